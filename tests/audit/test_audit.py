"""What is wrong with the public ids of a database is found, whichever database it is, and its remedy mends it."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Engine,
    Index,
    Inspector,
    Integer,
    MetaData,
    Numeric,
    SmallInteger,
    String,
    Table,
    UniqueConstraint,
    Uuid,
    create_engine,
    insert,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Session
from support.command import run
from support.marks import on
from support.pasting import mend, paste

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    ObjectId,
    PublicIdMixin,
    PublicIdType,
    Snowflake,
    Uuid4,
    Uuid7,
    audit,
)
from sqlalchemy_public_id.alembic import AddPublicIdOp
from sqlalchemy_public_id.audit import Finding
from sqlalchemy_public_id.audit.tables import AuditedTable
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.formats import URLSAFE64, Format
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.formats.parse import parse
from sqlalchemy_public_id.migrating.table import columns_of
from sqlalchemy_public_id.naming import derived_name
from sqlalchemy_public_id.types import column_type

pytestmark = pytest.mark.backend

NAME = "invoice"

Make = Callable[..., Table]


@pytest.fixture(name="make")
def _make(engine: Engine, create: Callable[[MetaData], None]) -> Make:
    """Create a table with a faultless column of public ids, but for what the arguments say."""

    def make(
        *rest: Any,
        rows: list[str | None] | None = None,
        name: str = NAME,
        type: Any = None,
        key: Any = None,
        first: int = 1,
        index: bool = True,
        **options: Any,
    ) -> Table:
        metadata = MetaData()
        table = Table(
            name,
            metadata,
            Column("id", key or BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
            Column("public_id", type or traits_for(engine.dialect).text_type(16), **{"nullable": False, **options}),
            *rest,
        )
        if index:
            Index(f"uq_{name}_public_id", table.c.public_id, unique=True)
        create(metadata)
        ids = NanoId().generate_many(3) if rows is None else rows
        with engine.begin() as connection:
            for at, public_id in enumerate(ids):
                connection.execute(insert(table), {"id": first + at, "public_id": public_id})
        return table

    return make


def found(engine: Engine, **options: Any) -> dict[str, Finding]:
    """The findings on the one table, by problem."""
    report = audit.run(engine, tables=[NAME], **options)
    return {finding.problem: finding for finding in report.findings}


FORMATS = [NanoId(prefix="inv"), Uuid7(), ObjectId(), Snowflake(machine_id=1)]


@pytest.mark.parametrize("format", FORMATS, ids=repr)
@pytest.mark.parametrize("known", [True, False], ids=["known", "guessed"])
def test_our_own_models_are_faultless(
    engine: Engine, create: Callable[[MetaData], None], format: Format, known: bool
) -> None:
    """A fresh table of a model of this library has no findings, without rows or with some."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Invoice(PublicIdMixin, Base):
        __tablename__ = NAME
        __public_id__ = format

    create(Base.metadata)
    formats = {NAME: format} if known else None

    empty = audit.run(engine, formats=formats)
    with Session(engine) as session:
        session.add_all(Invoice() for _ in range(3))
        session.commit()
    filled = audit.run(engine, formats=formats)

    assert (empty.findings, filled.findings) == ([], [])
    assert [(table.name, table.sampled) for table in filled.tables if table.has_column] == [(NAME, 3)]


@pytest.mark.parametrize("format", FORMATS, ids=repr)
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


def test_unknown_tables(engine: Engine, make: Make) -> None:
    """A table that is not there is an error that names those which are."""
    make()

    with pytest.raises(ConfigurationError, match=r"there is no table 'invoces'; there are: .*invoice"):
        audit.run(engine, tables=["invoces"])
    with pytest.raises(ConfigurationError, match=r"there is no table 'invoces'"):
        audit.run(engine, formats={"invoces": NanoId()})


def test_remedies_of_all_that_a_migration_left_undone(engine: Engine, make: Make) -> None:
    """The worst is first. Whoever pastes one remedy after the other, and looks again, ends with a faultless column."""
    collation = {"sqlite": None, "postgresql": "C"}.get(engine.name, "utf8mb4_general_ci")
    make(rows=[*NanoId().generate_many(3), None], type=String(12, collation=collation), nullable=True, index=False)

    severities = {problem: finding.severity for problem, finding in found(engine).items()}
    left = mend(engine, lambda: audit.run(engine, tables=[NAME]))

    of_mysql = {"collation": "warning"} if engine.name in {"mysql", "mariadb"} else {}
    assert severities == {"missing-ids": "error", "unique-missing": "error", "nullable": "warning", **of_mysql}
    assert [*severities.values()] == sorted(severities.values())
    assert left == []


@on("sqlite")
def test_nullable_on_sqlite(engine: Engine, make: Make) -> None:
    """On SQLite, the remedy is a command: a shell that goes on after an error would lose the table."""
    make(nullable=True)

    assert str(found(engine)["nullable"].remedy) == "public-id contract --server-default none invoice"


def test_commands_say_what_they_have_to(engine: Engine, make: Make) -> None:
    """A command that is a remedy has the format, if it is not the usual one."""
    name = "some"
    make(name=name, rows=NanoId(length=8, prefix="inv").generate_many(3), index=False)

    [finding] = audit.run(engine, tables=[name], defaults=True).findings[-1:]

    assert str(finding.remedy) == (
        "public-id expand --format " + shlex.quote("NanoId(length=8, prefix='inv')") + " some"
    )


def test_missing_ids(engine: Engine, make: Make) -> None:
    """Rows without an id are counted, by the index."""
    make(rows=["izkpm55j334u", None, None], nullable=True)

    finding = found(engine)["missing-ids"]

    assert finding.message == "2 rows have no id"
    assert dict(finding.facts) == {"rows": 2, "exact": True, "sampled": 3}
    assert finding.severity == "error"


def test_counting_stops(engine: Engine, make: Make) -> None:
    """Of very many rows without an id, no more are counted than may be read."""
    make(rows=[None] * 9, nullable=True)

    assert found(engine, sample=4)["missing-ids"].message == "more than 4 rows have no id"


def test_missing_ids_without_an_index(engine: Engine, make: Make) -> None:
    """Where no index finds them, rows without an id are looked for at both ends of the table."""
    make(
        rows=["izkpm55j334u", "0z3n8s4kq2vh", *NanoId().generate_many(20), "b5n0c1d2e3f4", None],
        nullable=True,
        index=False,
    )

    assert found(engine, sample=4)["missing-ids"].message == "1 of 4 rows that were read have no id"


INDEXES: dict[str, tuple[Callable[[], Any], bool, str | None, str]] = {
    "not unique": (lambda: Index("ix_other", "public_id"), False, "unique-missing", "(ix_other is none)"),
    "several columns": (lambda: Index("uq_both", "public_id", "id", unique=True), False, "unique-missing", ""),
    "constraint": (lambda: UniqueConstraint("public_id"), False, None, ""),
    "second": (
        lambda: Index("another", "public_id"),
        True,
        "index-redundant",
        "the index another adds nothing to uq",
    ),
    "second unique": (lambda: Index("another", "public_id", unique=True), True, "index-redundant", "drop it"),
}
"""What a table has beside the unique index of a migration, or instead of it; the problem, and words of its message."""


@pytest.mark.parametrize("kind", INDEXES)
def test_indexes(engine: Engine, make: Make, kind: str) -> None:
    """An index that lets duplicates in is none, a constraint is as good as an index, and a second one is redundant."""
    other, has_ours, problem, words = INDEXES[kind]
    make(other(), index=has_ours)

    findings = found(engine)

    assert [*findings] == [problem] * (problem is not None)
    assert all(words in finding.message for finding in findings.values())


@on("postgresql", "sqlite")
def test_index_on_some_rows(engine: Engine, make: Make) -> None:
    """A unique index that leaves rows out guards the others alone."""
    some = Index("uq_some", "public_id", unique=True, postgresql_where=text("id > 5"), sqlite_where=text("id > 5"))
    make(some, index=False)

    finding = found(engine)["unique-missing"]

    assert "uq_some leaves rows out" in finding.message
    assert finding.facts["indexes"] == ["uq_some"]


def test_primary_key(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """Public ids that are the primary key of their table are unique."""
    metadata = MetaData()
    Table(NAME, metadata, Column("public_id", traits_for(engine.dialect).text_type(12), primary_key=True))
    create(metadata)

    assert found(engine) == {}


@on("mysql", "mariadb")
def test_index_on_a_prefix(engine: Engine, make: Make) -> None:
    """A unique index on the first characters refuses ids that begin alike; its remedy builds another one."""
    make(rows=[], index=False)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE UNIQUE INDEX uq_invoice_public_id ON {NAME} (public_id(4))")

    problems = found(engine)
    left = mend(engine, lambda: audit.run(engine, tables=[NAME]))

    assert problems.keys() == {"unique-prefix"}
    assert problems["unique-prefix"].severity == "error"
    assert problems["unique-prefix"].facts == {"index": "uq_invoice_public_id", "length": 4}
    assert {index["name"] for index in _indexes(engine, NAME)} == {"uq_invoice_public_id", "uq_invoice_public_id_2"}
    assert [finding.remedy for finding in left] == [None]  # the old one is to be dropped by hand


@on("mysql", "mariadb")
def test_second_index_on_a_prefix(engine: Engine, make: Make) -> None:
    """A unique index on the first characters is an error beside a unique index on the whole column, too."""
    make(rows=[])
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE UNIQUE INDEX uq_short ON {NAME} (public_id(4))")
        connection.exec_driver_sql(f"CREATE INDEX ix_short ON {NAME} (public_id(3))")

    problems = found(engine)

    assert problems.keys() == {"unique-prefix", "index-redundant"}
    assert problems["unique-prefix"].facts["index"] == "uq_short"
    assert problems["index-redundant"].facts["index"] == "ix_short"
    assert "drop it" in problems["unique-prefix"].message


@on("postgresql")
def test_deferrable_constraint(engine: Engine, make: Make) -> None:
    """A UNIQUE constraint that is DEFERRABLE is a warning; its remedy builds an index, beside which it is redundant."""
    make(UniqueConstraint("public_id", name="uq_invoice_public_id", deferrable=True), index=False)

    problems = found(engine)
    left = mend(engine, lambda: audit.run(engine, tables=[NAME]))

    assert problems.keys() == {"unique-deferrable"}
    assert problems["unique-deferrable"].severity == "warning"
    assert problems["unique-deferrable"].facts == {"constraint": "uq_invoice_public_id"}
    assert [finding.facts for finding in left] == [
        {"index": "uq_invoice_public_id", "beside": "uq_invoice_public_id_2"}
    ]


@pytest.mark.parametrize("type_", [Integer(), SmallInteger(), Numeric(20, 0)], ids=repr)
def test_type_of_the_column(engine: Engine, make: Make, type_: Any) -> None:
    """A column of a type in which no format is stored is found, without rows or with some."""
    table = make(rows=[], type=type_)

    empty = found(engine)
    with engine.begin() as connection:
        connection.execute(insert(table), [{"id": at, "public_id": at} for at in range(1, 4)])
    finding = found(engine)["column-type"]

    assert empty.keys() == {"column-type"}
    assert finding.severity == ("warning" if engine.name == "sqlite" else "error")
    assert finding.facts["type"] in finding.message
    assert finding.remedy is None


@on("sqlite")
def test_numbers_in_an_integer_of_sqlite(engine: Engine, make: Make) -> None:
    """INTEGER holds the numbers of Snowflake on SQLite."""
    make(rows=[], type=Integer())

    assert found(engine, formats={NAME: Snowflake(machine_id=1)}) == {}
    assert found(engine, formats={NAME: NanoId()}).keys() == {"column-type"}


def test_malformed_ids(engine: Engine, make: Make) -> None:
    """Ids that the format refuses are counted, and some of them shown."""
    make(rows=["cus_izkpm55j334u", "cus_0a1b2c3d4e5f", "ord_izkpm55j334u", "cus_izkpm55j334"])

    finding = found(engine, formats={NAME: NanoId(prefix="cus")})["malformed-ids"]

    assert finding.severity == "error"
    assert finding.facts["malformed"] == 2
    assert set(finding.facts["examples"]) == {"ord_izkpm55j334u", "cus_izkpm55j334"}
    assert "expected cus_ and 12 of 0-9 a-z" in finding.message
    assert str(finding.remedy).startswith("__public_id__ = NanoId(prefix='cus').accepting(NanoId(")


def models(table: str, format: Format) -> MetaData:
    """The models of a project with a naming convention."""
    metadata = MetaData(naming_convention={"ix": "public_%(table_name)s"})
    key = Column("id", Integer, primary_key=True)
    options = {"default": format.generate, "unique": True, "index": True}
    Table(table, metadata, key, Column("public_id", PublicIdType(format), **options))
    return metadata


def test_names_of_models(engine: Engine, make: Make) -> None:
    """The index that a remedy builds has the name that the models give it, by their naming convention."""
    make(index=False)
    declared = models(NAME, NanoId())

    left = mend(engine, lambda: audit.run(engine, tables=[NAME], models=declared))

    assert left == []
    assert [index["name"] for index in _indexes(engine, NAME)] == ["public_invoice"]


def test_formats_of_models(engine: Engine, make: Make) -> None:
    """The format of the ids is that of the model, unless ``formats=`` names another one."""
    make()
    declared = models(NAME, NanoId(length=16))

    assert found(engine, models=declared).keys() == {"malformed-ids"}
    assert found(engine, models=[MetaData(), declared]).keys() == {"malformed-ids"}
    assert found(engine, models=declared, formats={NAME: NanoId()}) == {}


def test_guessed_format(engine: Engine, make: Make) -> None:
    """Where no format is known, an id that looks unlike nearly all others is malformed."""
    make(rows=[*NanoId(length=8, prefix="cus").generate_many(150), "oops"])

    finding = found(engine)["malformed-ids"]

    assert finding.severity == "warning"
    assert finding.facts["examples"] == ["oops"]
    assert finding.message.endswith("(expected cus_ and 8 of 0-9 a-z, a guess from the others)")


@pytest.mark.parametrize(
    ("ids", "message", "remedy"),
    [
        (
            [*NanoId(length=16).generate_many(3), *NanoId(prefix="cus").generate_many(5)],
            "3 of 8 ids",
            "__public_id__ = NanoId(prefix='cus').accepting(NanoId(length=16))",
        ),
        ([*NanoId().generate_many(40), "__world__"], "1 of 41 ids", "__public_id__ = NanoId().accepting('__world__')"),
        (["a b", "a  b"], "2 of 2 ids that were read are malformed: 'a b', 'a  b' (no format has such ids)", "None"),
        (NanoId(length=16, alphabet=URLSAFE64).generate_many(200), "", ""),
        (NanoId(length=16, alphabet="abcdefXYZ.~_-").generate_many(200), "", ""),
    ],
    ids=["two formats", "by hand", "no format", "separators", "odd separators"],
)
def test_ids_of_an_unknown_format(engine: Engine, make: Make, ids: list[str], message: str, remedy: str) -> None:
    """Where no format is known, it is that of most ids, whatever its alphabet; the remedy accepts the others, too."""
    make(rows=ids)

    finding = found(engine).get("malformed-ids")

    assert ("" if finding is None else finding.message).startswith(message)
    assert ("" if finding is None else str(finding.remedy)) == remedy


COLLATIONS = {
    "sqlite": ("NOCASE", "warning"),
    "postgresql": ("und-x-icu", "info"),
    "mysql": ("utf8mb4_general_ci", "warning"),
    "mariadb": ("utf8mb4_general_ci", "warning"),
}


def test_collation(engine: Engine, make: Make) -> None:
    """A collation that finds an id by other spellings is found, and one of a language, whose order upgrades change."""
    collation, severity = COLLATIONS[engine.name]
    make(type=String(16, collation=collation))

    finding = found(engine)["collation"]

    assert finding.severity == severity
    assert finding.facts["collation"] == (None if engine.name == "sqlite" else collation)
    if engine.name == "sqlite":
        assert "BINARY" in str(finding.remedy)
    else:
        paste(engine, finding.remedy)
        assert found(engine) == {}


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize(
    ("type_", "first", "full"),
    [(Integer, 2**30 + 5, "50%"), (SmallInteger, 32_000, "98%"), (BigInteger, 2**62 + 10**9, "50%")],
)
def test_full_key(engine: Engine, make: Make, type_: Any, first: int, full: str) -> None:
    """A key that is at least half full is found, and how full it is is said."""
    make(key=type_(), first=first)

    finding = found(engine)["key-nearly-full"]

    assert f"is {full} full" in finding.message
    assert finding.column == "id"
    assert finding.severity == ("error" if full == "98%" else "warning")


@pytest.mark.parametrize(
    ("database", "type_", "first", "words"),
    [
        ("sqlite", None, 2**31, None),
        ("mysql", mysql.INTEGER(unsigned=True), 2**30 + 5, None),
        ("mysql", mysql.BIGINT(unsigned=True), 2**63 + 5, "pass the cluster"),  # only its keys get so far
        ("mysql", Integer(), 2**31 - 1000, "make it a BIGINT"),
    ],
    indirect=["database"],
)
def test_size_of_a_key(engine: Engine, make: Make, type_: Any, first: int, words: str | None) -> None:
    """INTEGER holds 64 bits on SQLite, and an unsigned key twice as many rows. The advice is one that can be taken."""
    make(key=type_, first=first)

    findings = found(engine)

    assert [*findings] == ["key-nearly-full"] * (words is not None)
    assert all(words in finding.message for finding in findings.values() if words)


@on("postgresql")
def test_short_sequence(engine: Engine, make: Make) -> None:
    """A bigint key ends where its sequence ends."""
    make(first=2**30 + 5)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER SEQUENCE {NAME}_id_seq AS integer")

    assert found(engine)["key-nearly-full"].facts["limit"] == 2**31 - 1


def test_missing_default(engine: Engine, make: Make) -> None:
    """A database that makes no ids is told of; one with a default is not."""
    make()
    make(name="other", server_default="x")

    report = audit.run(engine, tables=[NAME, "other"])
    asked = audit.run(engine, tables=[NAME, "other"], defaults=True)

    assert report.findings == []
    assert [table.name for table in report.without_default] == [NAME]
    assert [(finding.table, finding.problem) for finding in asked.findings] == [(NAME, "default-missing")]
    assert json.loads(json.dumps(report.as_dict()))["counts"] == {
        "tables": 2,
        "without_column": 0,
        "without_default": 1,
    }


FILLS = {
    "postgresql": [
        """CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS
        'begin new.public_id := left(gen_random_uuid()::text, 8); return new; end'""",
        f"CREATE TRIGGER fill BEFORE INSERT ON {NAME} FOR EACH ROW EXECUTE FUNCTION fill()",
    ],
    "mysql": [f"CREATE TRIGGER fill BEFORE INSERT ON {NAME} FOR EACH ROW SET NEW.public_id = LEFT(UUID(), 12)"],
}


@on("postgresql", "mysql", "mariadb")
def test_trigger(engine: Engine, make: Make) -> None:
    """A trigger that makes ids is as good as a default."""
    make()
    with engine.begin() as connection:
        for statement in FILLS.get(engine.name, FILLS["mysql"]):
            connection.exec_driver_sql(statement)

    report = audit.run(engine, tables=[NAME], defaults=True)
    if engine.name == "postgresql":
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP FUNCTION fill() CASCADE")

    assert report.findings == []


@on("postgresql")
def test_left_over_check(engine: Engine, make: Make) -> None:
    """The CHECK constraint of a migration that was not finished is found; its remedy drops it."""
    make(CheckConstraint("public_id IS NOT NULL", name="ck_invoice_public_id_not_null"))

    finding = found(engine)["check-left-over"]
    paste(engine, finding.remedy)

    assert finding.severity == "info"
    assert found(engine) == {}


@on("postgresql")
def test_check_of_the_project(engine: Engine, make: Make) -> None:
    """A constraint that has the name of the library's, and checks something else, is not dropped."""
    make(CheckConstraint("id > 0", name="ck_invoice_public_id_not_null"))

    assert found(engine) == {}


def test_awkward_names(engine: Engine, make: Make) -> None:
    """The remedies quote names that need it, and cut names that are too long."""
    name = "Order of a customer, with a name as long as the database can bear"[:60]
    make(name=name, nullable=True, index=False)

    left = mend(engine, lambda: audit.run(engine, tables=[name]))

    assert left == []
    assert derived_name("uq", name, "public_id") in {index["name"] for index in _indexes(engine, name)}


def _indexes(engine: Engine, name: str) -> list[Any]:
    from sqlalchemy import inspect

    return list(inspect(engine).get_indexes(name))


def test_names_that_are_taken(engine: Engine, make: Make) -> None:
    """If something else has the name of the unique index, the remedy says so, and what to pass."""
    make(Index("uq_invoice_public_id", "id"), index=False)

    remedy = found(engine)["unique-missing"].remedy

    assert remedy is not None
    assert remedy.language == "text"
    assert "uq_invoice_public_id" in str(remedy)
    assert "unique_name=" in str(remedy)


@on("postgresql", "mysql", "mariadb")
def test_remedies_that_lock_give_up(engine: Engine, make: Make) -> None:
    """While another transaction uses the table, the statements of a remedy fail after a second."""
    make(nullable=True)
    remedy = found(engine)["nullable"].remedy

    with engine.connect() as reader:
        reader.exec_driver_sql(f"SELECT 1 FROM {NAME}")
        began = time.monotonic()
        with pytest.raises(DBAPIError, match=r"lock timeout|Lock wait timeout"):
            paste(engine, remedy)

    assert time.monotonic() - began < 5


@pytest.fixture(name="other_schema")
def _other_schema(engine: Engine, tmp_path: Any) -> Iterator[tuple[Connection, str]]:
    """A connection to a database that has a second schema with a table in it."""
    schema = f"{engine.url.database}_other" if engine.name in {"mysql", "mariadb"} else "other"
    bytewise = "CHARACTER SET ascii COLLATE ascii_bin" if engine.name in {"mysql", "mariadb"} else ""
    with engine.connect() as connection:
        if engine.name == "sqlite":
            connection.exec_driver_sql(f"ATTACH DATABASE '{tmp_path / 'other.db'}' AS other")
        else:
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
    """Another schema is looked at on request, and named in the report and in the remedy, which builds the index."""
    connection, schema = other_schema

    report = audit.run(connection, schema=schema)
    [finding] = [finding for finding in report.findings if finding.problem == "unique-missing"]

    assert [(table.name, table.sampled) for table in report.tables] == [(f"{schema}.{NAME}", 1)]
    assert schema in str(finding.remedy)
    assert not connection.in_transaction()
    if connection.dialect.name != "sqlite":  # where nobody else has attached the file
        paste(connection.engine, finding.remedy)
        assert "unique-missing" not in {one.problem for one in audit.run(connection, schema=schema).findings}


@on("postgresql")
def test_invalid_index(other_schema: tuple[Connection, str]) -> None:
    """What a failed CREATE INDEX CONCURRENTLY leaves is found; its remedy replaces it, in its schema."""
    connection, schema = other_schema
    with connection.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as own:
        own.exec_driver_sql(f"INSERT INTO {schema}.{NAME} VALUES (2, 'izkpm55j334u')")
        with pytest.raises(DBAPIError):
            own.exec_driver_sql(f"CREATE UNIQUE INDEX CONCURRENTLY half ON {schema}.{NAME} (public_id)")
        own.exec_driver_sql(f"DELETE FROM {schema}.{NAME} WHERE id = 2")
        findings = {one.problem: one for one in audit.run(own, schema=schema).findings}
        paste(own.engine, findings["index-invalid"].remedy)

        left = {one.problem for one in audit.run(own, schema=schema).findings}

    assert findings["index-invalid"].facts["index"] == "half"
    assert not {"index-invalid", "unique-missing"} & left


def test_unknown_schemas(engine: Engine, make: Make) -> None:
    """A schema that does not exist is an error that names the others."""
    make()

    with pytest.raises(ConfigurationError, match=r"^there is no schema 'typo'; there are: "):
        audit.run(engine, schema="typo")


@on("postgresql", "mysql", "mariadb")
def test_own_schemas_of_the_database(engine: Engine) -> None:
    """A schema of the database itself exists."""
    schema = "pg_catalog" if engine.name == "postgresql" else "information_schema"

    audit.run(engine, schema=schema, tables=[])


# --- tables that cannot be read


@pytest.fixture(name="reader")
def _reader(engine: Engine, make: Make) -> Iterator[Connection]:
    """A connection to a database with a faultless table, and with a table "hidden" that it cannot read."""
    make()
    if engine.name == "sqlite":
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA writable_schema = ON")
            connection.exec_driver_sql(
                "INSERT INTO sqlite_master VALUES"
                " ('table', 'hidden', 'hidden', 0, 'CREATE VIRTUAL TABLE hidden USING nosuch(x)')"
            )
            connection.commit()
        with engine.connect() as connection:
            yield connection
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA writable_schema = ON")
            connection.exec_driver_sql("DELETE FROM sqlite_master WHERE name = 'hidden'")
            connection.commit()
        engine.dispose()
        return
    make(name="hidden")
    name = f"reader_{os.getpid()}"
    user = name if engine.name == "postgresql" else f"{name}@'%%'"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as admin:
        admin.exec_driver_sql(f"CREATE ROLE {user} LOGIN" if user == name else f"CREATE USER {user}")
        admin.exec_driver_sql(f"GRANT SELECT ON {NAME} TO {user}")
        admin.exec_driver_sql(f"GRANT INSERT ON hidden TO {user}")
        own = create_engine(engine.url.set(username=name, password=None))
        try:
            with own.connect() as connection:
                yield connection
        finally:
            own.dispose()
            if user == name:
                admin.exec_driver_sql(f"DROP OWNED BY {user}")
            admin.exec_driver_sql(f"DROP {'ROLE' if user == name else 'USER'} {user}")


def test_tables_that_cannot_be_read(reader: Connection) -> None:
    """A table that cannot be read is a finding, and the others are checked."""
    report = audit.run(reader)

    [finding] = report.findings
    assert (finding.table, finding.problem, finding.severity) == ("hidden", "table-unreadable", "warning")
    assert finding.facts["error"] in finding.message
    assert "\n" not in finding.message
    tables = {table.name: table for table in report.tables}
    assert (tables[NAME].readable, tables[NAME].sampled) == (True, 3)
    assert not tables["hidden"].readable
    assert json.loads(json.dumps(report.as_dict()))["findings"][0]["problem"] == "table-unreadable"


@on("sqlite")
def test_command_about_a_table_that_cannot_be_read(reader: Connection) -> None:
    """``public-id audit`` warns of a table that cannot be read, and the others are checked."""
    result = run("audit", reader.engine.url)

    assert result.exit_code == 1
    assert result.stdout.splitlines()[:3] == [
        "hidden",
        "  warning  table-unreadable  the table cannot be read, and was not checked: no such module: nosuch",
        f"{NAME}: 3 ids (12 of 0-9 a-z); nothing is wrong",
    ]


@on("postgresql")
def test_tables_that_cannot_be_read_in_a_transaction(reader: Connection) -> None:
    """A table that cannot be read leaves the transaction of the caller as it was."""
    with reader.begin():
        reader.exec_driver_sql("SET LOCAL public_id.marker = 'kept'")

        audit.run(reader)

        assert reader.exec_driver_sql("SHOW public_id.marker").scalar() == "kept"


@on("postgresql")
def test_tables_that_cannot_be_read_in_autocommit(reader: Connection) -> None:
    """Without transactions, a table that cannot be read is a finding, too."""
    reader = reader.execution_options(isolation_level="AUTOCOMMIT")

    assert [finding.problem for finding in audit.run(reader).findings] == ["table-unreadable"]


@on("postgresql")
def test_plain_tables_that_cannot_be_read(reader: Connection, engine: Engine) -> None:
    """A table without public ids that cannot be read is a remark."""
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE hidden DROP COLUMN public_id")

    [finding] = audit.run(reader).findings

    assert (finding.problem, finding.severity) == ("table-unreadable", "info")


def test_tables_that_are_dropped_meanwhile(
    engine: Engine, make: Make, create: Callable[[MetaData], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is dropped after it was listed is a finding, and the others are checked."""
    make()

    def listed(inspector: Inspector, schema: str | None = None) -> list[str]:
        return ["gone", NAME]

    monkeypatch.setattr(Inspector, "get_table_names", listed)

    report = audit.run(engine)

    [finding] = report.findings
    assert (finding.table, finding.problem) == ("gone", "table-unreadable")
    assert "it is gone" in finding.message
    assert [table.sampled for table in report.tables] == [0, 3]


@on("postgresql")
def test_table_that_is_dropped_amid_its_audit(engine: Engine, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is dropped after its columns were read is a finding as well."""
    make()
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE gone (id integer PRIMARY KEY, public_id varchar(12))")

    def read_and_drop(inspector: Inspector, table: str, schema: str | None) -> Any:
        columns = columns_of(inspector, table, schema)
        if table == "gone":
            with engine.begin() as other:
                other.exec_driver_sql("DROP TABLE gone")
        return columns

    monkeypatch.setattr("sqlalchemy_public_id.audit.tables.columns_of", read_and_drop)

    [finding] = audit.run(engine).findings

    assert (finding.table, finding.problem) == ("gone", "table-unreadable")
    assert "it is gone" in finding.message


def test_a_lost_connection_ends_the_audit(engine: Engine, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is lost is an error, and no table is blamed."""
    make()

    def lose(table: AuditedTable) -> None:
        raise DBAPIError("SELECT 1", None, Exception("server closed the connection"), connection_invalidated=True)

    monkeypatch.setattr(AuditedTable, "values", property(lose))

    with pytest.raises(DBAPIError, match="server closed the connection"):
        audit.run(engine, tables=[NAME])


def test_open_transaction(engine: Engine, make: Make) -> None:
    """A transaction that is open on the given connection stays open, with what it has done."""
    table = make(rows=[])
    with engine.connect() as connection:
        connection.execute(insert(table), {"id": 1, "public_id": "malformed"})

        report = audit.run(connection, tables=[NAME], formats={NAME: NanoId()})

        assert connection.in_transaction()
        assert "malformed-ids" in {finding.problem for finding in report.findings}
        connection.rollback()


def test_no_table_is_read_as_a_whole(engine: Engine, make: Make, statements: list[str]) -> None:
    """Each statement that reads rows stops after the size of the sample."""
    make(rows=[*NanoId().generate_many(10), None], nullable=True)
    statements.clear()

    audit.run(engine, tables=[NAME], sample=4)

    reading = [statement for statement in statements if f"FROM {NAME}" in statement]
    assert reading
    assert all(re.search(r"LIMIT|max\(|WHERE 0", statement, re.IGNORECASE) for statement in reading)


@on("sqlite")
def test_other_databases(engine: Engine, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database whose catalogs nobody knows is refused in a sentence."""
    make()
    monkeypatch.setattr(engine.dialect, "name", "elsewhere")

    with pytest.raises(ConfigurationError, match=r"cannot audit elsewhere; expected one of mariadb, "):
        audit.run(engine)


def test_sample_of_nothing(engine: Engine) -> None:
    """A sample of no rows is refused."""
    with pytest.raises(ConfigurationError, match="sample is 0, expected 1 or more"):
        audit.run(engine, sample=0)


# --- ids that are stored as numbers


@pytest.mark.parametrize("format", [Uuid7(prefix="inv"), ObjectId(), Snowflake(machine_id=1)], ids=repr)
def test_numbers(engine: Engine, make: Make, format: BitsFormat) -> None:
    """Numbers are read as what the format writes; one that it does not make is malformed, and shown as text."""
    wrong = {128: 7, 96: 8, 64: 2**62}[format.bits]
    table = make(rows=format.generate_many(5), type=PublicIdType(format))
    assert found(engine) == {}
    assert found(engine, formats={NAME: format}) == {}

    stored = Column("public_id", column_type(format, traits_for(engine.dialect)))
    plain = Table(table.name, MetaData(), Column("id", Integer), stored)
    with engine.begin() as connection:
        value = traits_for(engine.dialect).to_native(wrong, format.bits)
        connection.execute(insert(plain), {"id": 9, "public_id": value})

    examples = [each.facts["examples"] for each in found(engine, formats={NAME: format}).values()]
    assert examples == ([[format.from_int(wrong)]] if isinstance(format, Uuid7) else [])


def test_numbers_of_an_unknown_format(engine: Engine, make: Make) -> None:
    """Where no format is known, no number is malformed, however many digits it has."""
    table = make(rows=[], type=BigInteger())
    with engine.begin() as connection:
        connection.execute(insert(table), [{"id": at, "public_id": 10**at} for at in range(1, 6)])

    assert found(engine) == {}


@on("mysql", "mariadb")
def test_remedy_for_numbers(engine: Engine, make: Make) -> None:
    """The remedy for a column of numbers has its type, and can be pasted."""
    format = Uuid7()
    make(rows=[], type=column_type(format, traits_for(engine.dialect)), nullable=True)
    finding = found(engine, formats={NAME: format})["nullable"]

    assert "binary(16) NOT NULL" in str(finding.remedy)
    paste(engine, finding.remedy)
    assert found(engine) == {}


@on("sqlite")
def test_rows_at_both_ends_of_the_key(engine: Engine, make: Make) -> None:
    """Rows that are among the first ones and among the last ones count once."""
    make(rows=NanoId().generate_many(6))

    assert [table.sampled for table in audit.run(engine, sample=8).tables] == [6]


@on("sqlite")
def test_proposed_format(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """The format that is proposed for UUIDs that are stored as text accepts them."""
    stored = UUID("7d444840-9dc0-41d1-b245-5ffdce74fad2")
    metadata = MetaData()
    id_column = Column("public_id", Uuid, unique=True, nullable=False)
    document = Table(NAME, metadata, Column("id", Integer, primary_key=True), id_column)
    create(metadata)
    with engine.begin() as connection:
        connection.execute(insert(document).values(public_id=stored))

    findings = found(engine, formats={NAME: Uuid4(encoding="hyphenated")})

    assert "column-type" in findings  # it has text, and the format stores numbers
    proposed = str(findings["malformed-ids"].remedy).removeprefix("__public_id__ = ")
    assert parse(proposed).is_valid(stored.hex)
