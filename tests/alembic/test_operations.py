"""``op.add_public_id()`` and its siblings: up and down on every database, at once and phase by phase."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, inspect, text
from support.marks import on
from support.people import People, migrating, send

from sqlalchemy_public_id import ConfigurationError, NanoId, Uuid7
from sqlalchemy_public_id.errors import BackfillIncomplete, MigrationRefused
from sqlalchemy_public_id.formats import BASE62

pytestmark = pytest.mark.backend

ROWS = 100


def changes(statements: list[str]) -> list[str]:
    """Return the statements that change something."""
    words = ("SELECT", "PRAGMA", "SHOW", "DESCRIBE", "SET", "BEGIN", "COMMIT", "ROLLBACK")
    return [statement for statement in statements if not statement.lstrip().upper().startswith(words)]


DEFAULTS = ["keep", "drop", "none"]
PHASES = ["expand_public_id", "backfill_public_id", "contract_public_id"]


# --- all at once


@pytest.mark.backend(server_default=["keep", "drop"])
@pytest.mark.parametrize("server_default", DEFAULTS)
def test_there_and_back(new_people: Callable[..., People], statements: Any, server_default: str) -> None:
    """Each row gets an id; the way back works in parts or as a whole; an operation that is done changes nothing."""
    people = new_people(ROWS, server_default=server_default)
    people.add()
    people.check_complete(ROWS)
    ids = people.ids()
    statements.clear()
    for operation in ["add_public_id", *PHASES]:
        people.run(operation)
    assert (changes(statements), people.ids()) == ([], ids)

    for _ in range(2):
        people.run("loosen_public_id")
        people.check_expanded()
    people.run("contract_public_id")
    people.check_complete(ROWS)
    assert people.ids() == ids

    people.run("drop_public_id")
    people.check_gone()
    statements.clear()
    people.run("drop_public_id")
    assert changes(statements) == []

    people.add()
    people.check_complete(ROWS)


@on("postgresql")
def test_statements(new_people: Callable[..., People], statements: Any) -> None:
    """The whole operation sends at most 47 statements, because it reads each fact once."""
    people = new_people()
    statements.clear()

    people.add()

    assert len(statements) <= 47


def test_check_digit(new_people: Callable[..., People]) -> None:
    """No database generates check digits: the error says so, and nothing is changed."""
    people = new_people(ROWS, format=NanoId(prefix="per", check_digit=True))

    with pytest.raises(ConfigurationError, match=r'check digit.*; pass server_default="none"'):
        people.add()

    assert people.columns() == ["id", "name"]
    people.options["server_default"] = "none"
    people.add()
    people.check_complete(ROWS)


def test_rows_that_have_ids_keep_them(new_people: Callable[..., People]) -> None:
    """Rows that already have ids, set by hand or by an earlier attempt, keep them."""
    people = new_people(ROWS)
    people.run("expand_public_id", server_default="none")
    given = NanoId().generate_many(40)
    for key, id in enumerate(given, 1):
        people.execute(f"UPDATE {people.name} SET public_id = '{id}' WHERE id = {key}")

    people.add()

    people.check_complete(ROWS)
    assert people.ids()[:40] == given


@pytest.mark.parametrize("online", [True, False])
def test_many_duplicates_are_drawn_again(new_people: Callable[..., People], online: bool) -> None:
    """With a format so narrow that half of its ids are taken, colliding ids are replaced until all are different."""
    format = NanoId(length=2, alphabet="0123456789abcdef")
    people = new_people(rows=128, format=format, online=online)

    people.add()

    people.check_complete(128)


def test_two_columns(new_people: Callable[..., People]) -> None:
    """A table may have two columns of public ids; each can be dropped without the other."""
    people = new_people(ROWS)
    people.add()
    second = People(people.engine, column="share_id", format=NanoId(length=20, prefix="shr"))
    second.add()

    second.run("drop_public_id")

    assert "share_id" not in people.columns()
    people.check_complete(ROWS)


# --- phase by phase


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (ROWS, {}),
        (0, {"server_default": "drop"}),
        (ROWS, {"server_default": "none"}),
        (ROWS, {"online": False}),
    ],
    ids=str,
)
def test_phases(new_people: Callable[..., People], rows: int, options: dict[str, Any]) -> None:
    """Expand, backfill and contract in three migrations have the result of a single operation, and can be undone."""
    people = new_people(rows, **options)

    people.run("expand_public_id")
    people.check_expanded()
    people.run("backfill_public_id")
    assert None not in people.ids()
    people.run("contract_public_id")
    people.check_complete(rows)

    people.run("loosen_public_id")
    people.check_expanded()
    people.run("drop_public_id")
    people.check_gone()


def test_contract_before_backfill(new_people: Callable[..., People]) -> None:
    """A contract is refused while rows have no id; the error has their number, and nothing is changed."""
    people = new_people(ROWS)
    people.run("expand_public_id")
    before = people.state()

    with pytest.raises(BackfillIncomplete, match=f"{ROWS} rows of person have no public_id yet") as caught:
        people.run("contract_public_id")

    assert caught.value.missing == ROWS
    assert people.state() == before


@pytest.mark.parametrize(
    ("operation", "table", "error"),
    [
        ("backfill_public_id", "person", r"op\.expand_public_id\('person'\)"),
        ("contract_public_id", "person", r"op\.expand_public_id\('person'\)"),
        ("add_public_id", "nobody", "no table 'nobody'"),
        ("loosen_public_id", "nobody", "no table 'nobody'"),
    ],
)
def test_nothing_to_work_on(new_people: Callable[..., People], operation: str, table: str, error: str) -> None:
    """The error names a table that does not exist; without the column, a later phase names what to run first."""
    people = new_people()
    people.table = table

    with pytest.raises(ConfigurationError, match=error):
        people.run(operation)


# --- old programs


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("format", [NanoId(prefix="per"), Uuid7(encoding="hex", storage="text")], ids=repr)
def test_old_writers_in_each_phase(new_people: Callable[..., People], format: NanoId) -> None:
    """From expand to contract, and back to expand, a row that an old program inserts gets an id."""
    people = new_people(format=format)

    for operation in ("expand_public_id", "backfill_public_id", "contract_public_id", "loosen_public_id"):
        people.run(operation)
        assert format.is_valid(people.written()), operation


@on("sqlite")
def test_old_writers_of_sqlite(new_people: Callable[..., People]) -> None:
    """SQLite cannot add an expression default to a column: until the contract, old programs insert NULL, then ids."""
    people = new_people()
    people.run("expand_public_id")
    assert people.written() is None
    people.run("backfill_public_id")
    people.run("contract_public_id")

    assert NanoId().is_valid(people.written())


# --- transactions


@on("postgresql", "sqlite")
def test_offline_is_undone_as_a_whole(new_people: Callable[..., People], engine: Engine) -> None:
    """With ``online=False``, everything happens in the open transaction; after a rollback, nothing is left."""
    people = new_people()

    with engine.connect() as connection, connection.begin() as transaction:
        if engine.name == "sqlite":
            send(connection, "BEGIN")  # the driver begins no transaction for DDL
        with migrating(connection) as op:
            people.say(op, "add_public_id", online=False)
        assert inspect(connection).get_columns("person")[-1]["nullable"] is False
        transaction.rollback()

    people.check_gone()
    assert people.columns() == ["id", "name"]


def test_other_operations_after_it(new_people: Callable[..., People], engine: Engine) -> None:
    """Operations that follow in the migration are executed, and committed."""
    people = new_people(ROWS)

    with people.migrating() as op:
        people.say(op, "add_public_id")
        op.execute(text(f"INSERT INTO {people.name} (name) VALUES ('after')"))

    people.check_complete(ROWS + 1)


def test_one_transaction_for_all_migrations(new_people: Callable[..., People], engine: Engine) -> None:
    """The operation also works if env.py uses one transaction for all migrations, which is Alembic's default."""
    people = new_people(ROWS)

    with engine.connect() as connection, migrating(connection, transaction_per_migration=False) as op:
        people.say(op, "add_public_id")

    people.check_complete(ROWS)


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("is_refused", [False, True], ids=["done", "refused"])
@pytest.mark.parametrize("of", ["server", "user"])
def test_settings_of_the_connection_stay(
    new_people: Callable[..., People], engine: Engine, of: str, is_refused: bool
) -> None:
    """Timeouts, ``sql_mode`` and isolation level of the connection are unchanged, even those that the user has set."""
    people = new_people(more=", public_id date" if is_refused else "")
    names = {
        "postgresql": ["lock_timeout", "statement_timeout", "default_transaction_isolation"],
        "mysql": ["lock_wait_timeout", "innodb_lock_wait_timeout", "sql_mode", "transaction_isolation", "autocommit"],
        "mariadb": ["lock_wait_timeout", "innodb_lock_wait_timeout", "sql_mode", "tx_isolation", "autocommit"],
    }[engine.name]

    def settings(connection: Any) -> list[Any]:
        show = "SHOW {}" if engine.name == "postgresql" else "SELECT @@SESSION.{}"
        return [send(connection, show.format(name)).scalar() for name in names]

    of_user = {"postgresql": ["SET lock_timeout = '7s'"]}.get(
        engine.name, ["SET lock_wait_timeout = 77", "SET innodb_lock_wait_timeout = 9", "SET sql_mode = ''"]
    )
    with engine.connect() as connection:
        for statement in of_user if of == "user" else []:
            send(connection, statement)
        before = settings(connection)
        connection.commit()
        with pytest.raises(MigrationRefused) if is_refused else nullcontext(), migrating(connection) as op:
            people.say(op, "add_public_id")
            people.say(op, "drop_public_id")
        assert settings(connection) == before
        connection.invalidate()


# --- options


@on("sqlite")
@pytest.mark.parametrize("online", [True, False])
def test_wait_while(new_people: Callable[..., People], online: bool) -> None:
    """An operation that fills rows calls ``wait_while`` with its connection before a batch."""
    asked: list[str] = []

    def wait_while(connection: Connection) -> bool:
        asked.append(connection.dialect.name)
        return False

    new_people().add(wait_while=wait_while, online=online)

    assert set(asked) == {"sqlite"}


def test_format(new_people: Callable[..., People]) -> None:
    """Prefix, length and alphabet are those of the format, also for rows of old writers."""
    people = new_people(ROWS, format=NanoId(length=20, alphabet=BASE62, prefix="per", separator="~"))

    people.add()

    people.check_complete(ROWS)


def test_ids_that_are_given_are_kept(new_people: Callable[..., People]) -> None:
    """The default of the database generates no id for a row that is inserted with one."""
    people = new_people()
    people.add()

    people.execute(f"INSERT INTO {people.name} (name, public_id) VALUES ('x', 'given0000000')")

    assert people.ids()[-1] == "given0000000"
