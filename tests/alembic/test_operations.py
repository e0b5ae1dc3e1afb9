"""``op.add_public_id()`` and its siblings: to nothing from everything and back, on every database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, exc, inspect, text
from support.marks import on
from support.people import People, migrating, send

from sqlalchemy_public_id import ConfigurationError, NanoId, Uuid7
from sqlalchemy_public_id.errors import BackfillIncomplete
from sqlalchemy_public_id.formats import BASE62

pytestmark = pytest.mark.backend

ROWS = 100
ODD = ["Person", "the person", 'a"b', "it's", "order", "per%cent %(x)s", "a:b", "né", "t" * 63, "semi;colon--"]


@pytest.fixture
def new_people(engine: Engine) -> Iterator[Callable[..., People]]:
    """Make a table; it is gone after the test."""
    made: list[People] = []

    def make(rows: int = ROWS, more: str = "", after: str = "", **options: Any) -> People:
        people = People(engine, **options)
        made.append(people)
        people.create(rows, more, after)
        return people

    yield make
    for people in made:
        people.drop()


def changes(statements: list[str]) -> list[str]:
    """Those that change something."""
    words = ("SELECT", "PRAGMA", "SHOW", "DESCRIBE", "SET", "BEGIN", "COMMIT", "ROLLBACK")
    return [statement for statement in statements if not statement.lstrip().upper().startswith(words)]


DEFAULTS = ["keep", "drop", "none"]


# --- all at once


@pytest.mark.parametrize("server_default", DEFAULTS)
def test_add(new_people: Callable[..., People], server_default: str) -> None:
    """A table that holds rows gets ids that are well-formed, unique and never NULL."""
    people = new_people(server_default=server_default)

    people.add()

    people.check_complete(ROWS)


@pytest.mark.backend(server_default=["keep", "drop"])
@pytest.mark.parametrize("server_default", DEFAULTS)
def test_add_again(new_people: Callable[..., People], statements: Any, server_default: str) -> None:
    """A second run sends nothing that changes anything."""
    people = new_people(server_default=server_default)
    people.add()
    ids = people.ids()
    statements.clear()

    people.add()

    assert changes(statements) == []
    assert people.ids() == ids


@pytest.mark.backend(server_default=["keep", "drop"])
@pytest.mark.parametrize("server_default", DEFAULTS)
def test_up_down_up(new_people: Callable[..., People], server_default: str) -> None:
    """After the way down nothing is left, and the way up works again."""
    people = new_people(server_default=server_default)
    people.add()

    people.run("drop_public_id")
    people.check_gone()

    people.add()
    people.check_complete(ROWS)


def test_drop_twice(new_people: Callable[..., People], statements: Any) -> None:
    """To drop what is not there changes nothing."""
    people = new_people()
    statements.clear()

    people.run("drop_public_id")

    assert changes(statements) == []


def test_format(new_people: Callable[..., People]) -> None:
    """Prefix, length and alphabet are those of the format, also for rows of old writers."""
    people = new_people(format=NanoId(length=20, alphabet=BASE62, prefix="per", separator="~"))

    people.add()

    people.check_complete(ROWS)


@on("postgresql")
def test_statements(new_people: Callable[..., People], statements: Any) -> None:
    """The whole operation sends 37 statements, which read what they need once."""
    people = new_people()
    statements.clear()

    people.add()

    assert len(statements) <= 37


def test_check_digit(new_people: Callable[..., People]) -> None:
    """No database generates check digits: the error says so, and nothing is changed."""
    people = new_people(format=NanoId(prefix="per", check_digit=True))

    with pytest.raises(ConfigurationError, match=r'check digit.*; pass server_default="none"'):
        people.add()

    assert people.columns() == ["id", "name"]
    people.options["server_default"] = "none"
    people.add()
    people.check_complete(ROWS)


def test_other_columns_are_left_alone(new_people: Callable[..., People], engine: Engine) -> None:
    """Other columns, defaults, indexes and the key stay as they were."""
    people = new_people(more=", city varchar(20) DEFAULT 'it''s' NOT NULL, born date, UNIQUE (name, born)")
    people.execute(f"CREATE INDEX by_city ON {people.name} (city)")

    def seen() -> list[Any]:
        inspector = inspect(engine)
        return [
            [(c["name"], str(c["type"]), c["nullable"], c["default"]) for c in inspector.get_columns("person")],
            sorted(index["name"] or "" for index in inspector.get_indexes("person")),
            inspector.get_pk_constraint("person"),
            sorted(map(str, inspector.get_unique_constraints("person"))),
        ]

    before = seen()
    people.add()
    people.run("drop_public_id")

    assert seen() == before


def test_empty_table(new_people: Callable[..., People]) -> None:
    """A table without rows is done too."""
    people = new_people(rows=0)

    people.add()

    people.check_complete(0)


def test_rows_that_have_ids_keep_them(new_people: Callable[..., People]) -> None:
    """Rows that were given ids before, by hand or by an earlier attempt, keep them."""
    people = new_people()
    people.run("expand_public_id", server_default="none")
    given = NanoId().generate_many(40)
    for key, id in enumerate(given, 1):
        people.execute(f"UPDATE {people.name} SET public_id = '{id}' WHERE id = {key}")

    people.add()

    people.check_complete(ROWS)
    assert people.ids()[:40] == given


@pytest.mark.parametrize("online", [True, False])
def test_many_duplicates_are_drawn_again(new_people: Callable[..., People], online: bool) -> None:
    """With a format so narrow that half of the new ids are taken, all are different in the end."""
    format = NanoId(length=2, alphabet="0123456789abcdef")
    people = new_people(rows=128, format=format, online=online)

    people.add()

    people.check_complete(128)


def test_two_columns(new_people: Callable[..., People]) -> None:
    """A table may have two of them; each goes without the other."""
    people = new_people()
    people.add()
    second = People(people.engine, column="share_id", format=NanoId(length=20, prefix="shr"))
    second.add()

    second.run("drop_public_id")

    assert "share_id" not in people.columns()
    people.check_complete(ROWS)


# --- phase by phase


@pytest.mark.parametrize("server_default", DEFAULTS)
def test_phases(new_people: Callable[..., People], server_default: str) -> None:
    """Expand, backfill and contract, in three migrations, end where one operation does."""
    people = new_people(server_default=server_default)

    people.run("expand_public_id")
    people.check_expanded()
    people.run("backfill_public_id")
    assert None not in people.ids()
    people.run("contract_public_id")

    people.check_complete(ROWS)


@pytest.mark.parametrize("operation", ["expand_public_id", "backfill_public_id", "contract_public_id"])
def test_phase_of_a_complete_column(new_people: Callable[..., People], statements: Any, operation: str) -> None:
    """A phase that is over sends nothing that changes anything."""
    people = new_people()
    people.add()
    statements.clear()

    people.run(operation)

    assert changes(statements) == []


@pytest.mark.backend(server_default=["keep", "drop"])
@pytest.mark.parametrize("server_default", DEFAULTS)
def test_loosen(new_people: Callable[..., People], server_default: str) -> None:
    """Contract can be undone and done again; the ids stay."""
    people = new_people(server_default=server_default)
    people.add()
    ids = people.ids()

    people.run("loosen_public_id")
    people.check_expanded()
    people.run("loosen_public_id")
    people.check_expanded()
    people.run("contract_public_id")

    people.check_complete(ROWS)
    assert people.ids() == ids


def test_drop_after_loosen(new_people: Callable[..., People]) -> None:
    """The way down of three migrations leaves nothing behind."""
    people = new_people()
    people.add()

    people.run("loosen_public_id")
    people.run("drop_public_id")

    people.check_gone()


def test_contract_before_backfill(new_people: Callable[..., People]) -> None:
    """Contract refuses while rows have no id; it says how many, and changes nothing."""
    people = new_people()
    people.run("expand_public_id")
    before = people.state()

    with pytest.raises(BackfillIncomplete, match=f"{ROWS} rows of person have no public_id yet") as caught:
        people.run("contract_public_id")

    assert caught.value.missing == ROWS
    assert people.state() == before


@pytest.mark.parametrize("operation", ["backfill_public_id", "contract_public_id"])
def test_phase_without_column(new_people: Callable[..., People], operation: str) -> None:
    """A later phase without a column says what to run first."""
    people = new_people()

    with pytest.raises(ConfigurationError, match=r"op\.expand_public_id\('person'\)"):
        people.run(operation)


@pytest.mark.parametrize(
    "operation",
    ["add_public_id", "expand_public_id", "backfill_public_id", "contract_public_id", "loosen_public_id"],
)
def test_no_table(engine: Engine, operation: str) -> None:
    """A table that is not there is an error that names it."""
    with pytest.raises(ConfigurationError, match="no table 'nobody'"):
        People(engine, table="nobody").run(operation)


# --- old programs


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("format", [NanoId(prefix="per"), Uuid7(encoding="hex", storage="text")], ids=repr)
def test_old_writers_in_each_phase(new_people: Callable[..., People], format: NanoId) -> None:
    """From expand to the end and back to expand, a row of a program that knows no public ids gets one."""
    people = new_people(format=format)

    for operation in ("expand_public_id", "backfill_public_id", "contract_public_id", "loosen_public_id"):
        people.run(operation)
        assert format.is_valid(people.written()), operation


@on("postgresql", "mysql", "mariadb")
def test_old_writers_until_the_end(new_people: Callable[..., People]) -> None:
    """With ``server_default="drop"`` the database makes ids until the column is complete, and not after."""
    people = new_people(server_default="drop")
    for operation in ("expand_public_id", "backfill_public_id"):
        people.run(operation)
        assert NanoId().is_valid(people.written()), operation

    people.run("contract_public_id")

    with pytest.raises(exc.DBAPIError):
        people.written()


@on("sqlite")
def test_old_writers_of_sqlite(new_people: Callable[..., People]) -> None:
    """SQLite cannot add a made default to a column: rows written before contract are NULL, and later ones are not."""
    people = new_people()
    people.run("expand_public_id")
    assert people.written() is None
    people.run("backfill_public_id")
    people.run("contract_public_id")

    assert NanoId().is_valid(people.written())


def test_ids_that_are_given_are_kept(new_people: Callable[..., People]) -> None:
    """The default in the database makes no id for a row that comes with one."""
    people = new_people()
    people.add()

    people.execute(f"INSERT INTO {people.name} (name, public_id) VALUES ('x', 'given0000000')")

    assert people.ids()[-1] == "given0000000"


# --- transactions


@on("postgresql", "sqlite")
def test_offline_is_undone_as_a_whole(new_people: Callable[..., People], engine: Engine) -> None:
    """With ``online=False`` everything happens in the transaction that is open; rolled back, nothing is left."""
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


def test_offline(new_people: Callable[..., People]) -> None:
    """With ``online=False`` the end is the same, and the way down too."""
    people = new_people(online=False)

    people.add()
    people.check_complete(ROWS)
    people.run("loosen_public_id")
    people.check_expanded()
    people.run("contract_public_id")
    people.check_complete(ROWS)

    people.run("drop_public_id")
    people.check_gone()


def test_offline_duplicates(new_people: Callable[..., People]) -> None:
    """With ``online=False`` too, rows that share an id before the index is there are drawn again."""
    people = new_people(rows=20_000, format=NanoId(length=5), online=False)

    people.add()

    people.check_complete(20_000)


@pytest.mark.parametrize("operation", ["add_public_id", "expand_public_id", "drop_public_id"])
def test_inside_a_transaction(new_people: Callable[..., People], engine: Engine, operation: str) -> None:
    """A connection that is inside a transaction gets an error that says what to change, and nothing is done."""
    people = new_people()

    with (
        engine.begin() as connection,
        pytest.raises(ConfigurationError, match=r"pass connectable\.connect\(\).*or pass online=False"),
        migrating(connection) as op,
    ):
        people.say(op, operation)

    assert people.columns() == ["id", "name"]


def test_other_operations_after_it(new_people: Callable[..., People], engine: Engine) -> None:
    """Operations after it in one migration are done, and committed."""
    people = new_people()

    with people.migrating() as op:
        people.say(op, "add_public_id")
        op.execute(text(f"INSERT INTO {people.name} (name) VALUES ('after')"))

    people.check_complete(ROWS + 1)


def test_one_transaction_for_all_migrations(new_people: Callable[..., People], engine: Engine) -> None:
    """It works too where env.py wants one transaction for all migrations, which is Alembic's default."""
    people = new_people()

    with engine.connect() as connection, migrating(connection, transaction_per_migration=False) as op:
        people.say(op, "add_public_id")

    people.check_complete(ROWS)


@on("postgresql", "mysql", "mariadb")
def test_settings_of_the_connection_stay(new_people: Callable[..., People], engine: Engine) -> None:
    """Timeouts, mode and isolation of the connection are what they were, also those that the user has set."""
    people = new_people()
    names = {
        "postgresql": ["lock_timeout", "statement_timeout", "default_transaction_isolation"],
        "mysql": ["lock_wait_timeout", "innodb_lock_wait_timeout", "sql_mode", "transaction_isolation", "autocommit"],
        "mariadb": ["lock_wait_timeout", "innodb_lock_wait_timeout", "sql_mode", "tx_isolation", "autocommit"],
    }[engine.name]

    def settings(connection: Any) -> list[Any]:
        show = "SHOW {}" if engine.name == "postgresql" else "SELECT @@SESSION.{}"
        return [send(connection, show.format(name)).scalar() for name in names]

    for first in (
        [],
        ["SET lock_timeout = '7s'"]
        if engine.name == "postgresql"
        else [
            "SET lock_wait_timeout = 77",
            "SET innodb_lock_wait_timeout = 9",
            "SET sql_mode = 'NO_ENGINE_SUBSTITUTION'",
        ],
        [] if engine.name == "postgresql" else ["SET lock_wait_timeout = 77", "SET sql_mode = ''"],
    ):
        with engine.connect() as connection:
            for statement in first:
                send(connection, statement)
            before = settings(connection)
            connection.commit()
            with migrating(connection) as op:
                people.say(op, "add_public_id")
                people.say(op, "drop_public_id")
            assert settings(connection) == before
            connection.invalidate()


# --- ways to say it


def test_batch(new_people: Callable[..., People]) -> None:
    """The twins in a batch do the same to the table of the batch."""
    people = new_people()

    with people.migrating() as op, op.batch_alter_table("person") as batch:
        batch.add_public_id(format=NanoId())
    people.check_complete(ROWS)

    with people.migrating() as op, op.batch_alter_table("person") as batch:
        batch.drop_public_id()
    people.check_gone()


def test_unknown_option(new_people: Callable[..., People]) -> None:
    """An option that is not known is an error that names those that are."""
    people = new_people()

    with pytest.raises(TypeError, match=r"add_public_id\(\) takes no formt; it takes format, schema"):
        people.add(formt=NanoId())


@pytest.mark.parametrize(
    "options",
    [
        {"server_default": True},
        {"attempts": 0},
        {"lock_timeout": 0},
        {"index_timeout": -1},
        {"batch_seconds": 0},
        {"pause": -1},
    ],
    ids=str,
)
def test_option_that_cannot_work(new_people: Callable[..., People], options: dict[str, Any]) -> None:
    """A value that cannot work is an error before anything is done."""
    people = new_people()

    with pytest.raises(ConfigurationError):
        people.add(**options)

    assert people.columns() == ["id", "name"]


@pytest.mark.backend(name=["Person", "a:b", "né"])  # tests/migrating/test_names.py has others
@pytest.mark.parametrize("name", ODD, ids=lambda name: name[:20])
def test_odd_names(new_people: Callable[..., People], name: str, engine: Engine) -> None:
    """Table and column may be called anything that the database takes."""
    people = new_people(table=name, column=name + "_" if len(name) < 60 else "c" * 63)

    people.add()
    people.check_complete(ROWS)
    people.run("loosen_public_id")
    people.run("contract_public_id")
    people.check_complete(ROWS)

    people.run("drop_public_id")
    people.check_gone()


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("schema", ["tenant", 'Odd "schema" %', "select"])
def test_schema(new_people: Callable[..., People], engine: Engine, schema: str) -> None:
    """A table in another schema is found, and everything beside it is in that schema too."""
    name = f"{schema}_{engine.url.database}" if engine.name != "postgresql" else schema
    quoted = People(engine, table="x", schema=name).name.removesuffix(".x")
    with engine.begin() as connection:
        send(connection, f"CREATE SCHEMA {quoted}")
    try:
        same = new_people(3)
        people = new_people(schema=name)
        people.add()
        people.check_complete(ROWS)
        assert same.columns() == ["id", "name"]

        people.run("loosen_public_id")
        people.check_expanded()
        people.run("contract_public_id")
        people.run("drop_public_id")
        people.check_gone()
    finally:
        with engine.begin() as connection:
            send(connection, f"DROP SCHEMA {quoted}" + " CASCADE" * (engine.name == "postgresql"))


@on("sqlite")
def test_attached_schema(new_people: Callable[..., People], engine: Engine, tmp_path: Any) -> None:
    """On SQLite, the schema is a database that is attached."""
    people = new_people(3)
    with engine.connect() as connection:
        send(connection, f"ATTACH '{tmp_path / 'other.db'}' AS other")
        send(connection, "CREATE TABLE other.person (id integer PRIMARY KEY AUTOINCREMENT, name text)")
        send(connection, "CREATE INDEX other.by_name ON person (lower(name))")
        send(connection, "INSERT INTO other.person (name) VALUES ('Ada'), ('Grace')")
        connection.commit()
        with migrating(connection) as op:
            op.add_public_id("person", schema="other")
        inspector = inspect(connection)
        assert [c["name"] for c in inspector.get_columns("person", schema="other")] == ["id", "name", "public_id"]
        indexes = {row[0] for row in send(connection, "SELECT name FROM other.sqlite_master WHERE type = 'index'")}
        assert "by_name" in indexes
        send(connection, "INSERT INTO other.person (name) VALUES ('new')")
        assert all(map(NanoId().is_valid, send(connection, "SELECT public_id FROM other.person").scalars()))
        connection.rollback()

    assert people.columns() == ["id", "name"]


@on("mysql", "mariadb")
def test_comment_stays(new_people: Callable[..., People], engine: Engine) -> None:
    """The comment of the column is repeated by each MODIFY."""
    people = new_people()
    people.run("expand_public_id")
    people.execute(
        "ALTER TABLE person MODIFY COLUMN public_id varchar(12) CHARACTER SET ascii COLLATE ascii_bin NULL "
        r"COMMENT 'what we show: it''s 100% \\ opaque'"
    )

    people.add()
    people.run("loosen_public_id")

    assert people.state().comment == r"what we show: it's 100% \ opaque"


@on("postgresql", "mysql", "mariadb")
def test_wrong_collation(new_people: Callable[..., People], engine: Engine) -> None:
    """With ``collation="bytes"``, a column is made to compare ids byte by byte."""
    collation = {"postgresql": 'COLLATE "en_US"', "mysql": "COLLATE utf8mb4_0900_ai_ci"}.get(
        engine.name, "COLLATE utf8mb4_general_ci"
    )
    if engine.name == "postgresql":
        with engine.connect() as connection:
            collation = send(
                connection,
                "SELECT 'COLLATE ' || quote_ident(collname) FROM pg_collation "
                "WHERE collname NOT IN ('C', 'POSIX', 'default') AND collencoding IN (-1, 6) LIMIT 1",
            ).scalar()
    people = new_people(more=f", public_id varchar(12) {collation}")
    was_exact = people.state().exact

    people.add(collation="bytes")

    people.check_complete(ROWS)
    assert was_exact == (engine.name == "postgresql")
    assert people.state().collation in {"C", "ascii_bin"}


def test_default_of_the_user(new_people: Callable[..., People], engine: Engine) -> None:
    """A default that someone else has given to the column is left as it is, if the operation wants none."""
    digits = {"postgresql": "floor(random() * 9)::text", "sqlite": "substr(hex(random()), 1, 1)"}.get(
        engine.name, "floor(rand() * 9)"
    )
    ours = (
        f"DEFAULT ({digits} || 'urs')"
        if engine.name in {"postgresql", "sqlite"}
        else f"DEFAULT (concat({digits}, 'urs'))"
    )
    people = new_people(rows=1, more=f", public_id varchar(12) {ours}", server_default="none", collation="bytes")
    people.execute("UPDATE person SET public_id = NULL")

    people.add()

    assert people.state().complete
    assert (people.written() or "").endswith("urs")


@on("sqlite")
def test_wait_while(new_people: Callable[..., People]) -> None:
    """An operation that fills rows asks ``wait_while`` before a batch, with its connection."""
    asked: list[str] = []

    def wait_while(connection: Connection) -> bool:
        asked.append(connection.dialect.name)
        return False

    new_people().add(wait_while=wait_while)

    assert set(asked) == {"sqlite"}
