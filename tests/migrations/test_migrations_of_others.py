"""Tables, connections and listeners of other programs on which a migration once went wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, event, text
from support.marks import on
from support.people import People, migrating, send
from support.projects import Project

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdType, Uuid4, audit, backfill
from sqlalchemy_public_id.migrations import Consent, PublicIdColumn
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.mysql.session import try_lock
from sqlalchemy_public_id.migrations.operation import PHASES, examine, run_phases

pytestmark = pytest.mark.backend


@pytest.fixture
def people(new_people: Callable[..., People]) -> People:
    return new_people()


class Killed(Exception):
    """Raised where the process would be killed."""


@on("sqlite")
def test_killed_inside_a_transaction(people: People) -> None:
    """With ``online=False``, a copy on SQLite that fails is rolled back, although the driver begins no transaction."""
    people.add()
    ids = people.ids()

    def kill(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("INSERT INTO person"):
            raise Killed

    event.listen(people.engine, "before_cursor_execute", kill)
    with pytest.raises(Killed), people.engine.connect() as connection, migrating(connection) as op:
        op.loosen_public_id("person", online=False)
    event.remove(people.engine, "before_cursor_execute", kill)

    with people.engine.connect() as connection:
        assert send(connection, "PRAGMA legacy_alter_table").scalar() == 0
    assert people.ids() == ids
    people.run("loosen_public_id", online=False)
    assert people.ids() == ids
    people.check_expanded()


@on("sqlite")
def test_foreign_keys_of_every_engine(database: str, tmp_path: Path) -> None:
    """A listener of all engines that turns foreign keys on does not break the rehearsal on a copy in memory."""

    def switch_on(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA foreign_keys=ON")

    event.listen(Engine, "connect", switch_on)
    try:
        engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}", isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for sql in (
                "CREATE TABLE person (id INTEGER PRIMARY KEY)",
                "CREATE TABLE visit (id INTEGER PRIMARY KEY, person_id INTEGER REFERENCES person (id))",
                "PRAGMA foreign_keys=OFF",
            ):
                send(connection, sql)
            run_phases(
                connection,
                plan_for(PublicIdColumn.of("person"), connection.dialect),
                ["expand", "backfill", "contract"],
            )
        engine.dispose()
    finally:
        event.remove(Engine, "connect", switch_on)


@on("postgresql")
def test_index_of_a_table_before_it_in_the_search_path(people: People) -> None:
    """The index of the table is dropped, not the index of that name in a schema that is searched first."""
    people.add()
    with people.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        try:
            send(connection, "CREATE SCHEMA first")
            send(connection, "CREATE TABLE first.other (x text)")
            send(connection, "CREATE UNIQUE INDEX uq_person_public_id ON first.other (x)")
            send(connection, "SET search_path = first, public")
            run_phases(connection, plan_for(people.target, connection.dialect), ["loosen"])
            query = "SELECT schemaname FROM pg_indexes WHERE indexname = 'uq_person_public_id'"
            assert send(connection, query).scalars().all() == ["first"]
        finally:
            send(connection, "DROP SCHEMA first CASCADE")
            connection.invalidate()


@on("postgresql")
def test_downgrade_keeps_a_default_that_could_be_ours(new_project: Callable[..., Project]) -> None:
    """The downgrade of an adoption keeps ``DEFAULT gen_random_uuid()``, which the library would have set as well."""
    project = new_project()
    project.execute("CREATE TABLE person (id INTEGER PRIMARY KEY, public_id uuid DEFAULT gen_random_uuid())")
    project.execute("INSERT INTO person VALUES (1), (2)")
    models = MetaData()
    Table(
        "person",
        models,
        Column("id", Integer, primary_key=True),
        Column(
            "public_id", PublicIdType(Uuid4()), unique=True, nullable=False, server_default=text("gen_random_uuid()")
        ),
    )
    project.migrate(models)
    project.downgrade()

    with project.engine.connect() as connection:
        query = "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'person'::regclass"
        assert send(connection, query).scalar() == "gen_random_uuid()"


@on("mariadb")
@pytest.mark.parametrize("key", ["", " AUTO_INCREMENT"])
def test_versioned_table(engine: Engine, key: str) -> None:
    """A system-versioned table gets its ids, whatever its key, without a rehearsal: a copy would refuse the ALTER."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        send(connection, f"CREATE TABLE person (id INTEGER{key} PRIMARY KEY, x INTEGER) WITH SYSTEM VERSIONING")
        try:
            send(connection, "INSERT INTO person (id, x) VALUES (1, 1), (2, 2)")
            run_phases(
                connection,
                plan_for(PublicIdColumn.of("person"), connection.dialect),
                ["expand", "backfill", "contract"],
            )
            assert send(connection, "SELECT count(DISTINCT public_id) FROM person").scalar() == 2
        finally:
            send(connection, "DROP TABLE person")


@on("postgresql", "mysql", "mariadb")
def test_engine_that_commits_each_statement(engine: Engine, people: People) -> None:
    """An engine with ``isolation_level="AUTOCOMMIT"`` works like a connection with that level: no savepoint is set."""
    own = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    with own.connect() as connection:
        run_phases(connection, plan_for(people.target, connection.dialect), ["expand"])
        assert backfill.run(connection, "person", format=NanoId()).filled == 3
        same = people.ids()[0]
        send(connection, f"UPDATE person SET public_id = '{same}'")
        run_phases(
            connection, plan_for(people.target, connection.dialect, Consent(on_duplicate="replace")), ["contract"]
        )
    own.dispose()

    people.check_complete(3)


@on("mysql", "mariadb")
def test_interrupted_rehearsal(people: People) -> None:
    """A rehearsal that is interrupted drops its temporary table, so that the next one does not find it."""

    def kill(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("ALTER TABLE public_id_rehearsal"):
            raise Killed

    with people.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        event.listen(connection, "before_cursor_execute", kill)
        with pytest.raises(Killed):
            run_phases(connection, plan_for(people.target, connection.dialect), ["expand"])
        event.remove(connection, "before_cursor_execute", kill)
        send(connection, "CREATE TEMPORARY TABLE public_id_rehearsal (x integer)")
        connection.invalidate()


@on("mariadb")
def test_oracle_mode(people: People) -> None:
    """With ``sql_mode=ORACLE``, whose functions have other names in the catalog, the default is recognized as ours."""
    own = create_engine(people.engine.url, connect_args={"init_command": "SET SESSION sql_mode = 'ORACLE'"})
    with own.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for phases in (["expand", "backfill", "contract"], ["loosen"], ["contract"]):
            run_phases(connection, plan_for(people.target, connection.dialect), phases)
    own.dispose()

    people.check_complete(3)


@on("mysql", "mariadb")
@pytest.mark.parametrize(
    ("setting", "advice"),
    [("sql_mode = 'ANSI'", '"connect" listener with insert=True'), ("sql_quote_show_create = 0", "set it to 1")],
)
def test_names_that_sqlalchemy_does_not_recognize(new_people: Callable[..., People], setting: str, advice: str) -> None:
    """If SQLAlchemy leaves out columns, because a listener changes the quotes of names, the error says what to do."""
    people = new_people(1, ", public_id varchar(8)")
    own = create_engine(people.engine.url)

    @event.listens_for(own, "connect")
    def change(dbapi_connection: Any, _: object) -> None:
        with dbapi_connection.cursor() as cursor:
            cursor.execute(f"SET SESSION {setting}")

    with pytest.raises(ConfigurationError, match=f"SQLAlchemy cannot read tables.*{advice}"):
        audit.run(own, tables=[people.name])
    with own.connect() as connection, pytest.raises(ConfigurationError, match=advice):
        examine(connection, plan_for(people.target, connection.dialect), PHASES["expand"])
    own.dispose()


@on("mariadb")
@pytest.mark.parametrize("in_schema", [False, True])
def test_empty_string_is_null(engine: Engine, new_people: Callable[..., People], in_schema: bool) -> None:
    """With ``sql_mode=EMPTY_STRING_IS_NULL``, each row gets an id, also one whose key is the empty string."""
    mode = {"init_command": "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,EMPTY_STRING_IS_NULL'"}
    people = new_people(3)
    people.execute(f"ALTER TABLE {people.name} DROP COLUMN id, ADD COLUMN code varchar(9) NOT NULL")
    people.execute(f"UPDATE {people.name} SET code = CASE name WHEN 'p0' THEN '' ELSE name END")
    people.execute(f"ALTER TABLE {people.name} ADD PRIMARY KEY (code)")
    people.engine = create_engine(engine.url, connect_args=mode)
    try:
        people.add(schema=engine.url.database if in_schema else None)
        assert people.state().complete
        with people.engine.connect() as connection:
            assert "EMPTY_STRING_IS_NULL" in str(connection.scalar(text("SELECT @@sql_mode")))
    finally:
        people.engine.dispose()
        people.engine = engine


@on("mariadb")
def test_lock_without_an_answer(engine: Engine) -> None:
    """An advisory lock that the server cannot take is an error, and not the lock of another process."""
    with engine.connect() as connection, pytest.raises(ConfigurationError, match="takes no advisory lock"):
        try_lock(connection, "NULL")
