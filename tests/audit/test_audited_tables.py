"""The tables that an audit reads: those of a schema, those that cannot be read, and how little it reads of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Connection, Engine, Inspector, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase
from support.applied_remedies import paste
from support.attached_databases import OTHER, attach
from support.command import run
from support.invoices import NAME, NewInvoices
from support.marks import on
from support.rights import USER, user_with

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdMixin, audit
from sqlalchemy_public_id.audit.tables import AuditedTable
from sqlalchemy_public_id.migrations.table import columns_of

pytestmark = pytest.mark.backend

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tables": ["invoces"]}, "there is no table 'invoces'; there are: invoice"),
    ({"formats": {"invoces": NanoId()}}, "there is no table 'invoces'"),
    ({"schema": "typo"}, "there is no schema 'typo'; there are: main"),
    ({"column": "publicid"}, "there is no column 'publicid' in invoice"),
    ({"tables": NAME}, rf"tables is '{NAME}', expected a list: write \['{NAME}'\]"),
    ({"formats": [NanoId()]}, r"formats is \[NanoId\(\)\], expected a dictionary by table"),
    ({"clusters": 5}, "clusters is 5, expected a dictionary by table"),
    ({"models": DeclarativeBase}, "models has .*DeclarativeBase.*, expected MetaData, such as Base.metadata"),
    ({"models": [DeclarativeBase]}, "models has .*DeclarativeBase.*, expected MetaData, such as Base.metadata"),
    ({"sample": 0}, "sample is 0, expected 1 or more"),
    ({"sample": "all"}, "sample is 'all', expected 1 or more"),
    ({"schema": 5}, "schema is 5, expected a name"),
    ({"column": NanoId()}, r"column is NanoId\(\)"),
    ({"formats": {NAME: "NanoId()"}}, r"NanoId\(\)"),
]


@on("sqlite")
@pytest.mark.parametrize(("options", "error"), WRONG, ids=[f"{options}" for options, _ in WRONG])
def test_arguments_that_cannot_be_used(
    engine: Engine, new_invoices: NewInvoices, options: dict[str, Any], error: str
) -> None:
    """An unusable argument, such as a table that does not exist, raises an error that says what to write."""
    new_invoices()

    with pytest.raises(ConfigurationError, match=error):
        audit.run(engine, **options)


@on("sqlite")
def test_models_that_can_be_read_once(engine: Engine, new_invoices: NewInvoices, base: Any) -> None:
    """A generator of models is read once, and not again for each table, where it would have none."""
    for name in (NAME, "receipt"):
        new_invoices(name=name)
        type(name, (PublicIdMixin, base), {"__tablename__": name, "__public_id__": NanoId(prefix=f"once{name}")})

    report = audit.run(engine, models=cast("Any", (each for each in [base.metadata])))

    assert [table.format for table in report.tables] == [
        f"once{table.name}_ and 12 of 0-9 a-z" for table in report.tables
    ]


@on("sqlite")
def test_other_databases(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that audits do not support is refused in a sentence."""
    monkeypatch.setattr(engine.dialect, "name", "elsewhere")

    with pytest.raises(ConfigurationError, match=r"cannot audit elsewhere; expected one of mariadb, "):
        audit.run(engine)


def test_no_table_is_read_as_a_whole(engine: Engine, new_invoices: NewInvoices, statements: list[str]) -> None:
    """No statement reads a whole table: each one stops at the size of the sample."""
    new_invoices(rows=[*NanoId().generate_many(10), None], nullable=True)
    statements.clear()

    audit.run(engine, tables=[NAME], sample=4)

    reading = [statement for statement in statements if f"FROM {NAME}" in statement]
    assert reading
    assert all(re.search(r"LIMIT|max\(|WHERE 0", statement, re.IGNORECASE) for statement in reading)


def test_open_transaction(engine: Engine, new_invoices: NewInvoices) -> None:
    """A transaction that is open on the given connection stays open, with its changes."""
    table = new_invoices(rows=[])
    with engine.connect() as connection:
        connection.execute(insert(table), {"id": 1, "public_id": "malformed"})

        report = audit.run(connection, tables=[NAME], formats={NAME: NanoId()})

        assert connection.in_transaction()
        assert "malformed-ids" in {finding.problem for finding in report.findings}
        connection.rollback()


# --- schemas


@pytest.fixture(name="other_schema")
def _other_schema(engine: Engine, tmp_path: Path) -> Iterator[tuple[Connection, str]]:
    """Yield a connection to a database that has a second schema with a table in it, and the name of the schema."""
    schema, bytewise = OTHER, ""
    if engine.name in {"mysql", "mariadb"}:
        schema, bytewise = f"{engine.url.database}_other", "CHARACTER SET ascii COLLATE ascii_bin"
    if engine.name == "sqlite":
        attach(engine, tmp_path / "other.db")
    with engine.connect() as connection:
        if engine.name != "sqlite":
            connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
        connection.exec_driver_sql(
            f"CREATE TABLE {schema}.{NAME} (id bigint PRIMARY KEY, public_id varchar(16) {bytewise} NOT NULL)"
        )
        connection.exec_driver_sql(f"INSERT INTO {schema}.{NAME} VALUES (1, 'izkpm55j334u')")
        connection.commit()
        yield connection, schema
        connection.rollback()
        if engine.name != "sqlite":
            connection.exec_driver_sql(f"DROP SCHEMA {schema}{' CASCADE' if engine.name == 'postgresql' else ''}")
            connection.commit()


def test_another_schema(other_schema: tuple[Connection, str]) -> None:
    """Another schema is audited on request, and named in the report and in the remedy, which builds the index."""
    connection, schema = other_schema

    report = audit.run(connection, schema=schema)
    [finding] = [finding for finding in report.findings if finding.problem == "unique-missing"]

    assert [(table.name, table.sampled) for table in report.tables] == [(f"{schema}.{NAME}", 1)]
    assert schema in str(finding.remedy)
    assert not connection.in_transaction()
    if connection.dialect.name != "sqlite":  # there, the remedy is a command, which has not attached the file
        paste(connection.engine, finding.remedy)
        assert "unique-missing" not in {one.problem for one in audit.run(connection, schema=schema).findings}


@on("postgresql")
def test_invalid_index(other_schema: tuple[Connection, str]) -> None:
    """The index that a failed CREATE INDEX CONCURRENTLY leaves is found; its remedy replaces it, in its schema."""
    connection, schema = other_schema
    with connection.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as own:
        own.exec_driver_sql(f"INSERT INTO {schema}.{NAME} VALUES (2, 'izkpm55j334u')")
        with pytest.raises(DBAPIError):
            own.exec_driver_sql(f"CREATE UNIQUE INDEX CONCURRENTLY half ON {schema}.{NAME} (public_id)")
        own.exec_driver_sql(f"DELETE FROM {schema}.{NAME} WHERE id = 2")
        findings = {one.problem: one for one in audit.run(own, schema=schema).findings}
        paste(own.engine, findings["index-invalid"].remedy)

        left = {one.problem for one in audit.run(own, schema=schema).findings}
        own.exec_driver_sql(f"CREATE UNIQUE INDEX other ON {schema}.{NAME} (public_id)")
        own.exec_driver_sql(f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{schema}.other'::regclass")
        [beside] = [one for one in audit.run(own, schema=schema).findings if one.problem == "index-invalid"]

    assert (beside.facts, beside.remedy, beside.message[-9:]) == ({"index": "other"}, None, "; drop it")
    assert findings["index-invalid"].facts["index"] == "half"
    assert not {"index-invalid", "unique-missing"} & left


@on("postgresql", "mysql", "mariadb")
def test_own_schemas_of_the_database(engine: Engine) -> None:
    """A system schema of the database counts as an existing schema."""
    audit.run(engine, schema="pg_catalog" if engine.name == "postgresql" else "information_schema", tables=[])


# --- tables that cannot be read


@pytest.fixture(name="reader")
def _reader(engine: Engine, new_engine: Callable[..., Engine], new_invoices: NewInvoices) -> Iterator[Connection]:
    """Yield a connection to a database with a faultless table, and with a table "hidden" that it cannot read."""
    new_invoices()
    if engine.name == "sqlite":

        def write_schema(statement: str) -> None:
            with engine.begin() as connection:
                connection.exec_driver_sql("PRAGMA writable_schema = ON")
                connection.exec_driver_sql(statement)

        virtual = "'CREATE VIRTUAL TABLE hidden USING nosuch(x)'"
        write_schema(f"INSERT INTO sqlite_master VALUES ('table', 'hidden', 'hidden', 0, {virtual})")
        with engine.connect() as connection:
            yield connection
        write_schema("DELETE FROM sqlite_master WHERE name = 'hidden'")
        engine.dispose()
        return
    new_invoices(name="hidden")
    readable = (NAME, f"{NAME}_id_seq") if engine.name == "postgresql" else (NAME,)
    with user_with(engine, "SELECT", *readable) as url:
        with engine.begin() as admin:
            admin.exec_driver_sql(f"GRANT INSERT ON hidden TO {USER}")
        with new_engine(engine.name, url).connect() as connection:
            yield connection


def test_tables_that_cannot_be_read(reader: Connection) -> None:
    """A table that cannot be read is a finding, of which ``public-id audit`` warns; the other tables are checked."""
    report = audit.run(reader)

    [finding] = report.findings
    assert (finding.table, finding.problem, finding.severity) == ("hidden", "table-unreadable", "warning")
    assert finding.facts["error"] in finding.message
    assert "\n" not in finding.message
    assert report.without_column == []
    tables = {table.name: table for table in report.tables}
    assert (tables[NAME].readable, tables[NAME].sampled, tables["hidden"].readable) == (True, 3, False)
    [other] = audit.run(reader, tables=["hidden"], column="code").tables
    assert (other.column, other.readable) == ("code", False)
    if reader.dialect.name == "sqlite":
        result = run("audit", reader.engine.url)
        assert result.exit_code == 1
        assert result.stdout.splitlines()[:3] == [
            "hidden",
            "  warning  table-unreadable  the table cannot be read, and was not checked: no such module: nosuch",
            f"{NAME}: 3 ids (12 of 0-9 a-z); nothing is wrong",
        ]


@on("postgresql")
def test_tables_that_cannot_be_read_and_transactions(reader: Connection, engine: Engine) -> None:
    """A table that cannot be read leaves the caller's transaction intact; without public ids, it is only an "info"."""
    with reader.begin():
        reader.exec_driver_sql("SET LOCAL public_id.marker = 'kept'")
        audit.run(reader)
        assert reader.exec_driver_sql("SHOW public_id.marker").scalar() == "kept"

    reader = reader.execution_options(isolation_level="AUTOCOMMIT")
    assert [finding.severity for finding in audit.run(reader).findings] == ["warning"]
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE hidden DROP COLUMN public_id")
    assert [finding.severity for finding in audit.run(reader).findings] == ["info"]


@on("postgresql")
def test_rows_that_are_hidden(engine: Engine, new_engine: Callable[..., Engine], new_invoices: NewInvoices) -> None:
    """If row-level security hides rows from the role, the audit warns that they were not checked."""
    new_invoices()
    with user_with(engine, "SELECT", NAME, f"{NAME}_id_seq") as url:
        role = new_engine(engine.name, url)
        before = audit.run(role).findings
        with engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE POLICY few ON {NAME} USING (id < 2)")
            connection.exec_driver_sql(f"ALTER TABLE {NAME} ENABLE ROW LEVEL SECURITY")
        [finding] = audit.run(role).findings

    assert before == []
    assert (finding.problem, finding.severity) == ("rows-hidden", "warning")
    assert "BYPASSRLS" in str(finding.remedy)
    assert audit.run(engine).findings == []


@pytest.mark.parametrize(
    ("database", "moment"),
    [
        ("sqlite", "listed"),
        ("postgresql", "listed"),
        ("mysql", "listed"),
        ("mariadb", "listed"),
        ("postgresql", "read"),
    ],
    indirect=["database"],
)
def test_table_that_is_dropped_meanwhile(
    engine: Engine, new_invoices: NewInvoices, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A table that is dropped after its name or its columns were read is a finding; the other tables are checked."""
    new_invoices()

    def drop() -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE gone")

    def listed(inspector: Inspector, schema: str | None = None) -> list[str]:
        drop()
        return ["gone", NAME]

    def read(inspector: Inspector, table: str, schema: str | None) -> Any:
        columns = columns_of(inspector, table, schema)
        if table == "gone":
            drop()
        return columns

    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE gone (id integer PRIMARY KEY, public_id varchar(12))")
    if moment == "listed":
        monkeypatch.setattr(Inspector, "get_table_names", listed)
    else:
        monkeypatch.setattr("sqlalchemy_public_id.audit.tables.columns_of", read)

    report = audit.run(engine)

    [finding] = report.findings
    assert (finding.table, finding.problem) == ("gone", "table-unreadable")
    assert "it is gone" in finding.message
    assert [table.sampled for table in report.tables] == [0, 3]


@on("sqlite")
@pytest.mark.parametrize(("table", "severity"), [(NAME, "warning"), ("plain", "info")])
def test_severity_of_a_table_that_cannot_be_read(
    engine: Engine, new_invoices: NewInvoices, table: str, severity: str
) -> None:
    """A table whose pages are damaged is a warning if it has public ids, and otherwise a remark."""
    new_invoices()
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE plain (id integer PRIMARY KEY)")
        connection.exec_driver_sql("PRAGMA writable_schema = ON")
        # the pages of an index have no rows
        index = f"SELECT rootpage FROM sqlite_master WHERE name = 'uq_{NAME}_public_id'"
        connection.exec_driver_sql(f"UPDATE sqlite_master SET rootpage = ({index}) WHERE name = '{table}'")
    engine.dispose()

    report = audit.run(engine, tables=[table])
    [finding] = report.findings

    assert (report.without_column, report.without_default) == ([], [])
    assert (finding.problem, finding.severity, finding.table) == ("table-unreadable", severity, table)
    assert "malformed" in finding.facts["error"]
    words = f"  {severity:<7}  table-unreadable  {finding.message}"
    assert run("audit", engine.url, "--table", table).stdout.splitlines() == [table, words]


@on("sqlite")
def test_a_lost_connection_ends_the_audit(
    engine: Engine, new_invoices: NewInvoices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost connection raises an error, and is not reported as a finding on a table."""
    new_invoices()

    def lose(table: AuditedTable) -> None:
        raise DBAPIError("SELECT 1", None, Exception("server closed the connection"), connection_invalidated=True)

    monkeypatch.setattr(AuditedTable, "values", property(lose))

    with pytest.raises(DBAPIError, match="server closed the connection"):
        audit.run(engine, tables=[NAME])
