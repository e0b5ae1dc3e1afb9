"""On every database, an audit finds what is wrong with the public ids, and its remedies fix it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Engine,
    Index,
    Integer,
    MetaData,
    Numeric,
    SmallInteger,
    String,
    Table,
    UniqueConstraint,
    insert,
    inspect,
    text,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Session
from support.applied_remedies import mend, paste
from support.invoices import NAME, NewInvoices, raise_counter
from support.marks import on

from sqlalchemy_public_id import NanoId, ObjectId, PublicIdMixin, Snowflake, Uuid7, audit, public_id_column
from sqlalchemy_public_id.alembic import AddPublicIdOp, ExpandPublicIdOp
from sqlalchemy_public_id.audit import Finding
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.operation import PHASES, examine
from sqlalchemy_public_id.naming import derived_name

pytestmark = pytest.mark.backend


def found(engine: Engine, **options: Any) -> dict[str, Finding]:
    """Return the findings on the table, by problem."""
    return {finding.problem: finding for finding in audit.run(engine, tables=[NAME], **options).findings}


def mended(engine: Engine, **options: Any) -> list[Finding]:
    """Return the findings that are left when the remedies have been pasted, one after the other."""
    return mend(engine, lambda: audit.run(engine, tables=[NAME], **options))


def names_of_indexes(engine: Engine) -> set[str | None]:
    return {index["name"] for index in inspect(engine).get_indexes(NAME)}


@pytest.mark.parametrize("format", [NanoId(prefix="inv"), Uuid7(), ObjectId(), Snowflake(machine_id=1)], ids=repr)
@pytest.mark.parametrize("known", [True, False], ids=["known", "guessed"])
def test_our_own_models_are_faultless(
    engine: Engine, create: Callable[[MetaData], None], format: Format, known: bool
) -> None:
    """A new table of a model of this library has no findings, with or without rows."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Invoice(PublicIdMixin, Base):
        __tablename__ = NAME
        __public_id__ = format

    create(Base.metadata)
    formats = {NAME: format} if known else None

    empty = audit.run(engine, formats=formats)
    with Session(engine) as session, session.begin():
        session.add_all(Invoice() for _ in range(3))
    filled = audit.run(engine, formats=formats)

    assert (empty.findings, filled.findings) == ([], [])
    assert [(table.name, table.sampled) for table in filled.tables if table.has_column] == [(NAME, 3)]


def test_remedies_of_all_that_a_migration_left_undone(engine: Engine, new_invoices: NewInvoices) -> None:
    """The worst finding comes first. Pasting one remedy after the other, with an audit after each, fixes everything."""
    collation = {"sqlite": None, "postgresql": "C"}.get(engine.name, "utf8mb4_general_ci")
    ids = [*NanoId().generate_many(3), None]
    new_invoices(rows=ids, type=String(12, collation=collation), nullable=True, index=False)

    severities = {problem: finding.severity for problem, finding in found(engine).items()}

    of_mysql = {"collation": "warning"} if engine.name in {"mysql", "mariadb"} else {}
    assert severities == {"missing-ids": "error", "unique-missing": "error", "nullable": "warning", **of_mysql}
    assert [*severities.values()] == sorted(severities.values())
    assert mended(engine) == []


@on("sqlite")
def test_commands(engine: Engine, new_invoices: NewInvoices) -> None:
    """A remedy that looks at the table is a command with the options that it needs; on SQLite, so is the contract."""
    new_invoices(rows=NanoId(length=8, prefix="inv").generate_many(3), nullable=True)
    findings = found(engine, defaults=True)
    format = "'NanoId(length=8, prefix=\"inv\")'"

    assert str(findings["default-missing"].remedy) == f"public-id expand --format {format} {NAME}"
    assert str(findings["nullable"].remedy) == f"public-id contract --format {format} --server-default none {NAME}"


@pytest.mark.parametrize("unique_with", [(), ("tenant",)], ids=["alone", "with another column"])
def test_missing_column(engine: Engine, create: Callable[[MetaData], None], unique_with: tuple[str, ...]) -> None:
    """A column that the models declare and the table lacks is an error, with the command that adds it."""
    declared, stored = MetaData(), MetaData()
    code = public_id_column(NanoId(prefix="inv"), unique_with=unique_with).column
    code.name = code.key = "code"
    columns = [[Column("id", BigInteger, primary_key=True), Column("tenant", Integer, nullable=False)] for _ in "12"]
    Table(NAME, declared, *columns[0], code)
    create_table = Table(NAME, stored, *columns[1])
    create(stored)
    with engine.begin() as connection:
        connection.execute(insert(create_table), {"id": 1, "tenant": 1})

    finding = found(engine, models=declared)["column-missing"]

    assert (finding.severity, finding.column) == ("error", "code")
    assert finding.message == "the table has no column code for ids of NanoId(prefix='inv')"
    assert mended(engine, models=declared) == []


@on("sqlite")
def test_index_of_a_missing_column(engine: Engine) -> None:
    """The command that adds a column gives its unique index the name that the models have."""
    declared = MetaData(naming_convention={"ix": "own_%(column_0_label)s"})
    ids = public_id_column(NanoId()).column
    ids.name = ids.key = "public_id"
    Table(NAME, declared, Column("id", BigInteger, primary_key=True), ids)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {NAME} (id integer PRIMARY KEY)")

    remedy = str(found(engine, models=declared)["column-missing"].remedy)

    assert f"--unique-name own_{NAME}_public_id " in remedy


@on("sqlite")
def test_format_of_a_missing_column(engine: Engine) -> None:
    """A format for a table without the column is an error, because no id was checked."""
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {NAME} (id integer PRIMARY KEY, Public_Id varchar(12))")

    finding = found(engine, formats={NAME: NanoId()})["column-missing"]

    assert finding.message == "the table has no column public_id for ids of NanoId(), but Public_Id"
    assert finding.remedy is None


ID = "izkpm55j334u"


@pytest.mark.parametrize(
    ("rows", "options", "message", "facts"),
    [
        ([ID, None, None], {}, "2 rows have no id", {"rows": 2, "exact": True, "sampled": 3}),
        ([None] * 4, {"sample": 4}, "4 rows have no id", {"exact": True}),
        ([None] * 5, {"sample": 4}, "more than 4 rows have no id", {"rows": 4, "exact": False}),
        # without an index, the audit reads both ends of the table
        ([ID, *NanoId().generate_many(20), "0z3n8s4kq2vh", None], {"sample": 4}, "1 of 4 rows that were read", {}),
    ],
    ids=["some", "as many as may be read", "more", "without an index"],
)
def test_missing_ids(
    engine: Engine, new_invoices: NewInvoices, rows: list[Any], options: Any, message: str, facts: dict[str, Any]
) -> None:
    """Rows without an id are counted by the index, up to the number that may be read; without an index, in a sample."""
    new_invoices(rows=rows, nullable=True, index="1 of" not in message)

    finding = found(engine, **options)["missing-ids"]

    assert finding.message.startswith(message)
    assert facts.items() <= finding.facts.items()
    assert finding.severity == "error"


@on("sqlite")
def test_rows_at_both_ends_of_the_key(engine: Engine, new_invoices: NewInvoices) -> None:
    """Rows that are among both the first and the last ones count once."""
    new_invoices(rows=NanoId().generate_many(6))

    assert [table.sampled for table in audit.run(engine, sample=8).tables] == [6]


# --- indexes

PARTIAL = {"postgresql_where": text("id > 5"), "sqlite_where": text("id > 5")}
ALL = ("sqlite", "postgresql", "mysql", "mariadb")
INDEXES: dict[str, tuple[Sequence[str], Callable[[], Any], bool, dict[str, str]]] = {
    "not unique": (ALL, lambda: Index("ix_other", "public_id"), False, {"unique-missing": "(ix_other is none)"}),
    "several columns": (ALL, lambda: Index("uq", "public_id", "id", unique=True), False, {"unique-missing": ""}),
    "partial": (
        ("sqlite", "postgresql"),
        lambda: Index("uq_some", "public_id", unique=True, **PARTIAL),
        False,
        {"unique-missing": "(uq_some leaves rows out)"},
    ),
    "constraint": (ALL, lambda: UniqueConstraint("public_id"), False, {}),
    "second": (ALL, lambda: Index("another", "public_id"), True, {"index-redundant": "another adds nothing to uq"}),
    "second unique": (
        ALL,
        lambda: Index("another", "public_id", unique=True),
        True,
        {"index-redundant": "another adds nothing to uq"},
    ),
    "constraint beside it": (
        ALL,
        lambda: UniqueConstraint("public_id", name="by_the_table"),
        True,
        {"index-redundant": f"the index uq_{NAME}_public_id adds nothing to "},
    ),
}
"""Name → databases, what the table has, whether it also has the unique index of a migration, and the findings."""
NAMELESS = {"constraint beside it": {"mysql", "mariadb"}}
"""Databases on which a constraint is an index like any other."""


@pytest.mark.parametrize(
    ("database", "kind"),
    [
        (database, kind)
        for kind, (databases, *_) in INDEXES.items()
        for database in databases
        if database not in NAMELESS.get(kind, ())
    ],
    indirect=["database"],
)
def test_indexes(engine: Engine, new_invoices: NewInvoices, kind: str) -> None:
    """An index that allows duplicates does not count, a constraint counts as one, and a second index is redundant."""
    _, other, has_ours, expected = INDEXES[kind]
    new_invoices(other(), index=has_ours)

    findings = found(engine)

    assert findings.keys() == expected.keys()
    assert all(words in findings[problem].message for problem, words in expected.items())


@on("sqlite", "postgresql")
def test_plain_index_beside_a_partial_one(engine: Engine, new_invoices: NewInvoices) -> None:
    """A plain index is not redundant beside a unique index of some rows, because only it finds the others."""
    new_invoices(Index("uq_some", "public_id", unique=True, **PARTIAL), Index("ix_all", "public_id"), index=False)

    assert found(engine).keys() == {"unique-missing"}


OTHER_COLLATIONS = {"sqlite": "NOCASE", "postgresql": '"POSIX"'}


@on("sqlite", "postgresql")
@pytest.mark.parametrize(
    ("own", "unique", "beside", "message"),
    [
        (False, "UNIQUE", "", "(uq_other is by another collation than the column)"),
        (False, "", "", "(uq_other is none)"),
        (False, "UNIQUE", "WHERE id > 5", " leaves rows out)"),
        (True, "UNIQUE", "", None),
    ],
    ids=["alone", "not unique", "beside a partial one", "beside ours"],
)
def test_index_by_another_collation(
    engine: Engine, new_invoices: NewInvoices, own: bool, unique: str, beside: str, message: str | None
) -> None:
    """A unique index by another collation does not count, and is not redundant, because it may be for other queries."""
    new_invoices(index=own)
    with engine.begin() as connection:
        collated = f"public_id COLLATE {OTHER_COLLATIONS[engine.name]}"
        connection.exec_driver_sql(f"CREATE {unique} INDEX uq_other ON {NAME} ({collated})")
        if beside:
            connection.exec_driver_sql(f"CREATE UNIQUE INDEX uq_some ON {NAME} (public_id) {beside}")

    findings = found(engine)

    assert findings.keys() == (set() if message is None else {"unique-missing"})
    if message is not None:
        assert message in findings["unique-missing"].message


@pytest.mark.parametrize(
    ("nullable", "expected"),
    [(False, {"unique-with-others": "rows that differ in tenant can have one id"}), (True, {"unique-missing": ""})],
    ids=["tenant", "tenant that may be NULL"],
)
def test_index_that_begins_with_another_column(
    engine: Engine, new_invoices: NewInvoices, nullable: bool, expected: dict[str, str]
) -> None:
    """Beside a unique index that begins with a tenant, a plain one on the ids is not redundant: look-ups need it."""
    tenant = Column("tenant", Integer, nullable=nullable, server_default="1")
    unique = Index("uq_of_tenants", "tenant", "public_id", unique=True)
    wide = Index("a_wide_one", "tenant", "id", "public_id", unique=True)
    new_invoices(tenant, wide, unique, Index("ix_own", "public_id"), index=False)

    findings = found(engine)

    assert findings.keys() == expected.keys()
    assert [each.facts.get("unique_with") for each in findings.values()] == [None if nullable else ["tenant"]]
    assert all(words in findings[problem].message for problem, words in expected.items())


@on("sqlite", "postgresql")
def test_missing_ids_beside_a_partial_index(engine: Engine, new_invoices: NewInvoices) -> None:
    """An index of some rows does not find those without an id, which are counted in the sample."""
    new_invoices(Index("uq_some", "public_id", unique=True, **PARTIAL), rows=[ID, None], nullable=True, index=False)

    finding = found(engine)["missing-ids"]

    assert finding.message == "1 of 2 rows that were read have no id"
    assert finding.facts == {"rows": 1, "exact": False, "sampled": 2}


@on("sqlite")
def test_rowid(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """An INTEGER PRIMARY KEY of SQLite, which has no index, counts as unique."""
    metadata = MetaData()
    Table(NAME, metadata, Column("public_id", Integer, primary_key=True))
    create(metadata)

    assert found(engine, formats={NAME: Snowflake(machine_id=1)}) == {}


def test_primary_key(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """Public ids that are the primary key of their table count as unique."""
    metadata = MetaData()
    Table(NAME, metadata, Column("public_id", traits_for(engine.dialect).text_type(12), primary_key=True))
    create(metadata)

    assert found(engine) == {}


@on("mysql", "mariadb")
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a whole one"])
def test_index_on_a_prefix(engine: Engine, new_invoices: NewInvoices, beside: bool) -> None:
    """A unique index on the first characters refuses ids that begin alike; its remedy builds a complete index."""
    name = "uq_short" if beside else "uq_invoice_public_id"
    new_invoices(rows=[], index=beside)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE UNIQUE INDEX {name} ON {NAME} (public_id(4))")
        if beside:
            connection.exec_driver_sql(f"CREATE INDEX ix_short ON {NAME} (public_id(3))")

    problems = found(engine)

    assert problems.keys() == {"unique-prefix", *(["index-redundant"] if beside else [])}
    assert (problems["unique-prefix"].severity, problems["unique-prefix"].facts) == (
        "error",
        {"index": name, "length": 4},
    )
    if beside:
        assert problems["index-redundant"].facts["index"] == "ix_short"
    else:
        assert [finding.remedy for finding in mended(engine)] == [None]  # the old index has to be dropped by hand
        assert names_of_indexes(engine) == {name, f"{name}_2"}


@on("postgresql")
def test_deferrable_constraint(engine: Engine, new_invoices: NewInvoices) -> None:
    """A DEFERRABLE UNIQUE constraint is a warning; its remedy builds an index, which makes the constraint redundant."""
    name = "uq_invoice_public_id"
    new_invoices(UniqueConstraint("public_id", name=name, deferrable=True), index=False)

    problems = found(engine)

    assert {problem: finding.severity for problem, finding in problems.items()} == {"unique-deferrable": "warning"}
    assert problems["unique-deferrable"].facts == {"constraint": name}
    assert [finding.facts for finding in mended(engine)] == [{"index": name, "beside": f"{name}_2"}]


@on("mysql", "mariadb")
def test_limit_of_rows(engine: Engine, new_invoices: NewInvoices) -> None:
    """An audit, and a plan, see all tables and columns in a session with ``sql_select_limit``, and restore it."""
    new_invoices(rows=[None, "short"], nullable=True, index=False)
    new_invoices(name="receipt")
    usual = audit.run(engine, defaults=True)
    plan = plan_for(PublicIdColumn.of(NAME), engine.dialect)
    with engine.connect() as connection:
        planned = examine(connection, plan, PHASES["add"])
        connection.exec_driver_sql("SET SESSION sql_select_limit = 1")
        assert audit.run(connection, defaults=True) == usual
        assert examine(connection, plan, PHASES["add"]) == planned
        assert connection.exec_driver_sql("SELECT @@sql_select_limit").scalar() == 1
        connection.invalidate()


@pytest.mark.parametrize("beside", [True, False], ids=["beside another", "alone"])
@on("mysql", "mariadb")
def test_hidden_index(engine: Engine, new_invoices: NewInvoices, beside: bool) -> None:
    """A unique index that no look-up uses is a warning, with the ALTER that shows it, unless there is another one."""
    new_invoices()
    name, hidden = f"uq_{NAME}_public_id", "INVISIBLE" if engine.name == "mysql" else "IGNORED"
    with engine.begin() as connection:
        if beside:
            connection.exec_driver_sql(f"CREATE UNIQUE INDEX other ON {NAME} (public_id)")
        connection.exec_driver_sql(f"ALTER TABLE {NAME} ALTER INDEX {name} {hidden}")

    problems = found(engine)

    if beside:
        assert {problem: finding.facts for problem, finding in problems.items()} == {
            "index-redundant": {"index": name, "beside": "other"}
        }
    else:
        assert {problem: finding.severity for problem, finding in problems.items()} == {"index-hidden": "warning"}
        assert mended(engine) == []


def test_names_that_are_taken(engine: Engine, new_invoices: NewInvoices) -> None:
    """If another object has the name of the unique index, the remedy says so, and which option to pass."""
    new_invoices(Index("uq_invoice_public_id", "id"), index=False)

    remedy = found(engine)["unique-missing"].remedy

    assert remedy is not None
    assert remedy.language == "text"
    assert "uq_invoice_public_id" in str(remedy)
    assert "unique_name=" in str(remedy)


@on("postgresql", "mysql", "mariadb")
def test_remedies_that_lock_give_up(engine: Engine, new_invoices: NewInvoices) -> None:
    """While another transaction uses the table, the statements of a remedy fail after a second."""
    new_invoices(nullable=True)
    remedy = found(engine)["nullable"].remedy

    with engine.connect() as reader:
        reader.exec_driver_sql(f"SELECT 1 FROM {NAME}")
        began = time.monotonic()
        with pytest.raises(DBAPIError, match=r"lock timeout|Lock wait timeout"):
            paste(engine, remedy)

    assert time.monotonic() - began < 30  # a server waits for a day, a year or without a limit


@on("postgresql", "mysql", "mariadb")
def test_limits_of_a_remedy(engine: Engine, new_invoices: NewInvoices) -> None:
    """A long statement of a remedy waits longer for its lock, and the statements behind it do not."""
    new_invoices(nullable=True)
    remedy = found(engine)["nullable"].remedy

    assert remedy is not None
    assert [line for line in remedy.lines if line.startswith("-- ") == line.endswith(";")] == []
    first, long, again, *_ = [
        int(line.split("=")[1].strip(" ;")) for line in remedy.lines if "lock_" in line and "=" in line
    ]
    assert again == first < long


# --- types and collations


@pytest.mark.parametrize("type_", [Integer(), SmallInteger(), Numeric(20, 0)], ids=repr)
def test_type_of_the_column(engine: Engine, new_invoices: NewInvoices, type_: Any) -> None:
    """A column whose type cannot store any format is a finding, with or without rows."""
    table = new_invoices(rows=[], type=type_)

    empty = found(engine)
    with engine.begin() as connection:
        connection.execute(insert(table), [{"id": at, "public_id": at} for at in range(1, 4)])
    finding = found(engine)["column-type"]

    assert empty.keys() == {"column-type"}
    assert finding.severity == ("warning" if engine.name == "sqlite" else "error")
    assert finding.facts["type"] in finding.message
    assert finding.remedy is None


@on("sqlite")
def test_numbers_in_an_integer_of_sqlite(engine: Engine, new_invoices: NewInvoices) -> None:
    """An INTEGER column of SQLite can store the numbers of Snowflake."""
    new_invoices(rows=[], type=Integer())

    assert found(engine, formats={NAME: Snowflake(machine_id=1)}) == {}
    assert found(engine, formats={NAME: NanoId()}).keys() == {"column-type"}


COLLATIONS = {"sqlite": ("NOCASE", "warning"), "postgresql": ("und-x-icu", "info")}


def test_collation(engine: Engine, new_invoices: NewInvoices) -> None:
    """A collation that finds an id by other spellings is a finding; so is one of a language, whose order may change."""
    collation, severity = COLLATIONS.get(engine.name, ("utf8mb4_general_ci", "warning"))
    new_invoices(type=String(16, collation=collation))

    finding = found(engine)["collation"]

    assert finding.severity == severity
    assert finding.facts["collation"] == (None if engine.name == "sqlite" else collation)
    if engine.name == "sqlite":
        assert "BINARY" in str(finding.remedy)
    else:
        paste(engine, finding.remedy)
        assert found(engine) == {}


@on("postgresql")
@pytest.mark.parametrize("is_citext", [False, True], ids=["text", "citext"])
def test_collation_of_the_database(engine: Engine, new_invoices: NewInvoices, is_citext: bool) -> None:
    """A column without a collation of its own has that of the database, which a finding names; C.UTF-8 needs none."""
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS citext")
        query = "SELECT datcollate FROM pg_database WHERE datname = current_database()"
        own = connection.exec_driver_sql(query).scalar() or ""
    new_invoices(type=postgresql.CITEXT() if is_citext else String(16))

    finding = found(engine).get("collation")

    if is_citext:
        assert finding.facts["collation"] == own
        assert finding.message == f"the collation {own} can treat different ids as equal, such as aB and Ab"
    elif own in ("C", "POSIX") or own.startswith("C."):
        assert finding is None
    else:
        assert finding.facts["collation"] == own
        assert finding.message.startswith(f"the collation {own} has the order of a language")


@on("postgresql")
@pytest.mark.parametrize("collation", ["C.utf8", "ucs_basic", "POSIX"])
def test_collation_of_code_points(engine: Engine, new_invoices: NewInvoices, collation: str) -> None:
    """A collation in the order of bytes, or of code points, which is the same, has no finding."""
    new_invoices(type=String(16, collation=collation))

    assert "collation" not in found(engine)


# --- keys

UNSIGNED = mysql.BIGINT(unsigned=True)


@pytest.mark.parametrize(
    ("database", "type_", "first", "full", "advice"),
    [
        *((database, Integer(), 2**30 + 5, "50%", "make it a BIGINT") for database in ALL[1:]),
        *((database, SmallInteger(), 32_000, "98%", "make it a BIGINT") for database in ALL[1:]),
        *((database, BigInteger(), 2**62 + 10**9, "50%", "pass the cluster") for database in ALL[1:]),
        ("mysql", UNSIGNED, 2**63 + 5, "50%", "pass the cluster"),  # only cluster keys get this large
        ("mysql", mysql.INTEGER(unsigned=True), 2**30 + 5, None, ""),
        ("mysql", mysql.MEDIUMINT(), 8_221_000, "98%", "make it a BIGINT"),
        ("sqlite", None, 2**31, None, ""),
    ],
    indirect=["database"],
)
def test_full_key(
    engine: Engine, new_invoices: NewInvoices, type_: Any, first: int, full: str | None, advice: str
) -> None:
    """A key that is at least half full for its type on its database is a finding, with advice that can be taken."""
    new_invoices(key=type_, first=first)

    findings = found(engine)

    if full is None:
        assert findings == {}
    else:
        finding = findings["key-nearly-full"]
        assert f"is {full} full" in finding.message
        assert advice in finding.message
        assert (finding.column, finding.severity) == ("id", "error" if full == "98%" else "warning")


@pytest.mark.parametrize("columns", ["id", "public_id, id"])
def test_remedy_beside_an_index_of_the_name(engine: Engine, new_invoices: NewInvoices, columns: str) -> None:
    """If an index that is not unique has the name that the migration would use, the remedy says so."""
    new_invoices(index=False)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE INDEX uq_{NAME}_public_id ON {NAME} ({columns})")

    remedy = str(found(engine)["unique-missing"].remedy)
    assert "rename or drop it, or pass unique_name= with another name" in remedy


# --- defaults, and what a migration has left


def test_missing_default(engine: Engine, new_invoices: NewInvoices) -> None:
    """A missing server default is counted; it is a finding only with ``defaults=True``."""
    new_invoices()
    new_invoices(name="other", server_default="x")

    report = audit.run(engine, tables=[NAME, "other"])
    asked = audit.run(engine, tables=[NAME, "other"], defaults=True)

    assert report.findings == []
    assert [(finding.table, finding.problem) for finding in asked.findings] == [(NAME, "default-missing")]
    counts = {"tables": 2, "without_column": 0, "without_default": 1}
    assert json.loads(json.dumps(report.as_dict()))["counts"] == counts


FILLS = {
    "postgresql": [
        """CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS
        'begin new.public_id := left(gen_random_uuid()::text, 8); return new; end'""",
        f"CREATE TRIGGER fill BEFORE INSERT ON {NAME} FOR EACH ROW EXECUTE FUNCTION fill()",
    ],
    "mysql": [f"CREATE TRIGGER fill BEFORE INSERT ON {NAME} FOR EACH ROW SET NEW.public_id = LEFT(UUID(), 12)"],
}


@on("postgresql", "mysql", "mariadb")
def test_trigger(engine: Engine, new_invoices: NewInvoices) -> None:
    """A trigger that generates ids counts as a default."""
    new_invoices()
    with engine.begin() as connection:
        for statement in FILLS.get(engine.name, FILLS["mysql"]):
            connection.exec_driver_sql(statement)

    report = audit.run(engine, tables=[NAME], defaults=True)
    if engine.name == "postgresql":
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP FUNCTION fill() CASCADE")

    assert report.findings == []


@on("postgresql")
@pytest.mark.parametrize("column", ["bigint GENERATED ALWAYS AS IDENTITY", "made", "own DEFAULT NULL"])
def test_ids_that_the_type_or_a_sequence_makes(engine: Engine, column: str) -> None:
    """An identity column, and the default of a domain, generate ids, but not a default of NULL that overrides it."""
    with engine.connect() as connection:
        for statement in (
            "CREATE DOMAIN made AS text DEFAULT left(md5(random()::text), 12)",
            "CREATE DOMAIN own AS made",
            f"CREATE TABLE invoice (id int PRIMARY KEY, public_id {column})",
        ):
            connection.exec_driver_sql(statement)
        report = audit.run(connection, tables=[NAME], defaults=True)

    is_missing = "NULL" in column
    assert [table.has_default for table in report.tables] == [not is_missing]
    assert ("default-missing" in {finding.problem for finding in report.findings}) == is_missing


@on("postgresql")
@pytest.mark.parametrize(("check", "is_ours"), [("public_id IS NOT NULL", True), ("id > 0", False)])
def test_left_over_check(engine: Engine, new_invoices: NewInvoices, check: str, is_ours: bool) -> None:
    """A CHECK constraint that a migration left behind is found, and its remedy drops it; its namesake is not found."""
    new_invoices(CheckConstraint(check, name="ck_invoice_public_id_not_null"))

    findings = found(engine)

    assert {problem: each.severity for problem, each in findings.items()} == (
        {"check-left-over": "info"} if is_ours else {}
    )
    if is_ours:
        paste(engine, findings["check-left-over"].remedy)
        assert found(engine) == {}


@pytest.mark.parametrize("format", [NanoId(prefix="inv"), Uuid7(), ObjectId(), Snowflake(machine_id=1)], ids=repr)
def test_our_own_migrations_are_faultless(engine: Engine, create: Callable[[MetaData], None], format: Format) -> None:
    """A table whose column a migration of this library has added has no findings."""
    metadata = MetaData()
    Table(NAME, metadata, Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True))
    create(metadata)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        with Operations.context(context), context.begin_transaction():
            Operations(context).invoke(AddPublicIdOp(NAME, format=format, server_default="none"))
        connection.commit()

    assert found(engine, formats={NAME: format}, defaults=True).keys() == {"default-missing"}
    assert found(engine) == {}


def test_remedies_keep_the_default(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """What completes an expanded column leaves it the default that generates its ids, for programs without them."""
    table = Table(NAME, MetaData(), Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True))
    create(table.metadata)
    with engine.begin() as connection:
        connection.execute(insert(table), [{"id": 1}])
        raise_counter(connection, table)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        with Operations.context(context), context.begin_transaction():
            Operations(context).invoke(ExpandPublicIdOp(NAME))
        connection.commit()

    assert mend(engine, lambda: audit.run(engine, tables=[NAME], formats={NAME: NanoId()}, defaults=True)) == []


def test_remedies_name_the_format_of_another_width(engine: Engine, new_invoices: NewInvoices) -> None:
    """A remedy names the usual format, too, for a column that is wider: the command asks for it."""
    new_invoices(rows=[None], nullable=True, index=False)

    assert mend(engine, lambda: audit.run(engine, tables=[NAME], formats={NAME: NanoId()})) == []


def test_awkward_names(engine: Engine, new_invoices: NewInvoices) -> None:
    """The remedies quote names that need it, and truncate names that are too long."""
    name = "Order of a customer, with a name as long as the database can bear"[:60]
    new_invoices(name=name, nullable=True, index=False)

    left = mend(engine, lambda: audit.run(engine, tables=[name]))

    assert left == []
    assert derived_name("uq", name, "public_id") in {index["name"] for index in inspect(engine).get_indexes(name)}
