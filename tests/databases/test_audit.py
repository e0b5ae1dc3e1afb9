"""What is wrong with the public ids of a database is found, whichever database it is, and the advice mends it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from marks import on, since_mariadb
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
    create_engine,
    insert,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Session

from sqlalchemy_public_id import (
    BASE62,
    URLSAFE64,
    ConfigurationError,
    NanoId,
    ObjectId,
    PublicIdMixin,
    PublicIdType,
    Snowflake,
    TypeIdFormat,
    Ulid,
    Uuid7,
    audit,
)
from sqlalchemy_public_id.advice import about
from sqlalchemy_public_id.alembic import AddPublicIdOp
from sqlalchemy_public_id.audit import Finding, sampling
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats._bits import BitsFormat
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


def paste(engine: Engine, finding: Finding) -> None:
    """Run the good lines of the advice, each by itself."""
    assert finding.advice is not None
    assert engine.name in finding.advice.databases
    assert finding.advice.language == "sql"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in finding.advice.good.split(";\n"):
            connection.exec_driver_sql(statement.replace("%", "%%"))


FORMATS = [NanoId(prefix="inv"), TypeIdFormat("inv"), Ulid(), Uuid7(), ObjectId(), Snowflake(machine_id=1)]


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


def test_tables_without_the_column(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """A table without public ids is in the report, and has no findings."""
    metadata = MetaData()
    Table("plain", metadata, Column("id", Integer, primary_key=True))
    create(metadata)

    report = audit.run(engine)

    assert [(table.name, table.has_column) for table in report.tables if table.name == "plain"] == [("plain", False)]
    assert [finding for finding in report.findings if finding.table == "plain"] == []
    assert "plain" in {table.name for table in report.without_column}
    assert report.as_dict()["counts"]["without_column"] == len(report.without_column)


def test_unknown_tables(engine: Engine, make: Make) -> None:
    """A table that is not there is an error that names those which are."""
    make()

    with pytest.raises(ConfigurationError, match=r"there is no table 'invoces'; there are: .*invoice"):
        audit.run(engine, tables=["invoces"])
    with pytest.raises(ConfigurationError, match=r"there is no table 'invoces'"):
        audit.run(engine, formats={"invoces": NanoId()})


@on("postgresql", "mysql", "mariadb")
def test_nullable(engine: Engine, make: Make) -> None:
    """A column that may be NULL is found; the lines of the advice forbid it."""
    make(nullable=True)

    finding = found(engine)["nullable"]
    paste(engine, finding)

    assert finding.severity == "warning"
    assert found(engine) == {}


@since_mariadb(10, 10, "RANDOM_BYTES()")
@on("mysql", "mariadb")
def test_nullable_with_a_default(engine: Engine, make: Make) -> None:
    """MODIFY would lose a default: the advice is an operation of Alembic, which repeats it."""
    make(nullable=True, server_default=text("(left(hex(random_bytes(8)), 12))"))

    advice = found(engine)["nullable"].advice

    assert advice is not None
    assert 'op.contract_public_id("invoice", "public_id")' in advice.good


@on("sqlite")
def test_nullable_on_sqlite(engine: Engine, make: Make) -> None:
    """On SQLite the advice is an operation of Alembic, because the table has to be copied."""
    make(nullable=True)

    advice = found(engine)["nullable"].advice

    assert advice is not None
    assert advice.slug == "sqlite-copy"
    assert 'op.contract_public_id("invoice", "public_id")' in advice.good


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


def test_no_unique_index(engine: Engine, make: Make) -> None:
    """A table without the unique index is found; the lines of the advice build it."""
    make(index=False)

    finding = found(engine)["unique-missing"]
    paste(engine, finding)

    assert finding.severity == "error"
    assert found(engine) == {}


def test_index_that_is_not_unique(engine: Engine, make: Make) -> None:
    """An index that lets duplicates in is no unique index, and is named."""
    make(Index("ix_other", "public_id"), index=False)

    finding = found(engine)["unique-missing"]

    assert "ix_other is none" in finding.message
    assert finding.facts["indexes"] == ["ix_other"]


def test_index_on_several_columns(engine: Engine, make: Make) -> None:
    """A unique index that another column belongs to keeps no duplicates out."""
    make(Index("uq_both", "public_id", "id", unique=True), index=False)

    assert "unique-missing" in found(engine)


@on("postgresql", "sqlite")
def test_index_on_some_rows(engine: Engine, make: Make) -> None:
    """A unique index that leaves rows out guards the others alone."""
    some = Index("uq_some", "public_id", unique=True, postgresql_where=text("id > 5"), sqlite_where=text("id > 5"))
    make(some, index=False)

    assert "uq_some leaves rows out" in found(engine)["unique-missing"].message


def test_unique_constraint(engine: Engine, make: Make) -> None:
    """A UNIQUE constraint is as good as an index, with a name or without."""
    make(UniqueConstraint("public_id"), index=False)

    assert found(engine) == {}


def test_primary_key(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """Public ids that are the primary key of their table are unique."""
    metadata = MetaData()
    Table(NAME, metadata, Column("public_id", traits_for(engine.dialect).text_type(12), primary_key=True))
    create(metadata)

    assert found(engine) == {}


@on("mysql", "mariadb")
def test_index_on_a_prefix(engine: Engine, make: Make) -> None:
    """A unique index on the first characters refuses ids that begin alike; the lines of the advice replace it."""
    make(rows=[], index=False)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE UNIQUE INDEX uq_invoice_public_id ON {NAME} (public_id(4))")

    problems = found(engine)
    paste(engine, problems["unique-prefix"])

    assert problems.keys() == {"unique-prefix"}
    assert problems["unique-prefix"].severity == "error"
    assert problems["unique-prefix"].facts == {"index": "uq_invoice_public_id", "length": 4}
    assert [index["name"] for index in _indexes(engine, NAME)] == ["uq_invoice_public_id_2"]
    assert found(engine) == {}


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
    assert problems["unique-prefix"].advice


@on("postgresql")
@pytest.mark.parametrize("initially", ["DEFERRED", "IMMEDIATE"])
def test_deferrable_constraint(engine: Engine, make: Make, initially: str) -> None:
    """A UNIQUE constraint that is DEFERRABLE is a warning; the lines of the advice replace it."""
    make(UniqueConstraint("public_id", name="uq_invoice_public_id", deferrable=True, initially=initially), index=False)

    problems = found(engine)
    paste(engine, problems["unique-deferrable"])

    assert problems.keys() == {"unique-deferrable"}
    assert problems["unique-deferrable"].severity == "warning"
    assert problems["unique-deferrable"].facts == {"constraint": "uq_invoice_public_id"}
    assert [index["name"] for index in _indexes(engine, NAME)] == ["uq_invoice_public_id_2"]
    assert found(engine) == {}


@on("postgresql")
def test_deferrable_constraint_beside_an_index(engine: Engine, make: Make) -> None:
    """Beside another unique index, a DEFERRABLE constraint is redundant."""
    make(UniqueConstraint("public_id", name="late", deferrable=True))

    problems = found(engine)

    assert problems.keys() == {"index-redundant"}
    assert problems["index-redundant"].facts == {"index": "late", "beside": "uq_invoice_public_id"}


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
    assert finding.advice is not None
    assert finding.advice.good == "public_id: Mapped[str] = public_id_column()"


@on("sqlite")
def test_numbers_in_an_integer_of_sqlite(engine: Engine, make: Make) -> None:
    """INTEGER holds the numbers of Snowflake on SQLite."""
    make(rows=[], type=Integer())

    assert found(engine, formats={NAME: Snowflake(machine_id=1)}) == {}
    assert found(engine, formats={NAME: NanoId()}).keys() == {"column-type"}


@on("postgresql")
def test_invalid_index(engine: Engine, make: Make) -> None:
    """What a failed CREATE INDEX CONCURRENTLY leaves is found; the lines of the advice replace it."""
    table = make(rows=["izkpm55j334u", "izkpm55j334u"], index=False)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        with pytest.raises(DBAPIError):
            connection.exec_driver_sql(f"CREATE UNIQUE INDEX CONCURRENTLY uq_invoice_public_id ON {NAME} (public_id)")
        connection.execute(table.delete().where(table.c.id == 1))

    problems = found(engine)
    paste(engine, problems["index-invalid"])

    assert problems.keys() == {"index-invalid"}
    assert problems["index-invalid"].facts["index"] == "uq_invoice_public_id"
    assert found(engine) == {}


@pytest.mark.parametrize("unique", [True, False])
def test_redundant_index(engine: Engine, make: Make, unique: bool) -> None:
    """A second index on the column is found, unique or not."""
    make(Index("another", "public_id", unique=unique))

    finding = found(engine)["index-redundant"]

    assert finding.facts == {"index": "another", "beside": "uq_invoice_public_id"}


def test_malformed_ids(engine: Engine, make: Make) -> None:
    """Ids that the format refuses are counted, and some of them shown."""
    make(rows=["cus_izkpm55j334u", "cus_0a1b2c3d4e5f", "ord_izkpm55j334u", "cus_izkpm55j334"])

    finding = found(engine, formats={NAME: NanoId(prefix="cus")})["malformed-ids"]

    assert finding.severity == "error"
    assert finding.facts["malformed"] == 2
    assert set(finding.facts["examples"]) == {"ord_izkpm55j334u", "cus_izkpm55j334"}
    assert "expected cus_ and 12 of 0-9 a-z" in finding.message
    assert finding.advice is not None
    assert finding.advice.good.startswith("__public_id__ = NanoId(prefix='cus').accepting(NanoId(length=1")


def test_accepted_ids(engine: Engine, make: Make) -> None:
    """Ids of older formats that are still accepted are well-formed."""
    make(rows=["izkpm55j334u", "izkpm55j"])

    assert found(engine, formats={NAME: NanoId().accepting(NanoId(length=8))}) == {}


def test_guessed_format(engine: Engine, make: Make) -> None:
    """Where no format is known, an id that looks unlike nearly all others is malformed."""
    make(rows=[*NanoId(length=8, prefix="cus").generate_many(150), "oops"])

    finding = found(engine)["malformed-ids"]

    assert finding.facts["examples"] == ["oops"]
    assert finding.message.endswith("(ids here are 'cus_' and 8 characters)")


def test_mixed_formats(engine: Engine, make: Make) -> None:
    """Where no format is known and the ids have several forms, these are counted."""
    make(rows=[*NanoId(prefix="cus").generate_many(5), *NanoId(length=16).generate_many(3)])

    finding = found(engine)["mixed-formats"]

    assert dict(finding.facts["forms"]) == {"'cus_' and 12 characters": 5, "16 characters": 3}
    assert finding.advice is not None
    assert finding.advice.good == "__public_id__ = NanoId(length=12, prefix='cus').accepting(NanoId(length=16))"


@pytest.mark.parametrize("alphabet", [BASE62, URLSAFE64])
def test_alphabets_with_separators(engine: Engine, make: Make, alphabet: str) -> None:
    """Random ids are of one form, whatever their alphabet."""
    make(rows=NanoId(length=16, alphabet=alphabet).generate_many(200))

    assert found(engine) == {}


@on("postgresql", "mysql", "mariadb")
def test_collation(engine: Engine, make: Make) -> None:
    """A column that is not compared byte by byte is found; the lines of the advice change it."""
    make(type=String(16, collation="und-x-icu" if engine.name == "postgresql" else None))

    finding = found(engine)["collation"]
    paste(engine, finding)

    assert finding.severity == "warning"
    assert finding.facts["collation"] != finding.facts["expected"]
    assert found(engine) == {}


@on("sqlite")
def test_collation_on_sqlite(engine: Engine, make: Make) -> None:
    """NOCASE is found, by the index."""
    make(type=String(16, collation="NOCASE"))

    assert found(engine)["collation"].facts["collation"] == "NOCASE"


@on("mysql", "mariadb")
def test_wide_collation(engine: Engine, make: Make) -> None:
    """Another collation that compares byte by byte is worth a remark."""
    make(type=String(16, collation="utf8mb4_bin"))

    assert found(engine)["collation"].severity == "info"


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


@on("postgresql", "mysql", "mariadb")
def test_full_key_without_public_ids(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """The key of a table without public ids is checked as well."""
    metadata = MetaData()
    table = Table("plain", metadata, Column("id", Integer, primary_key=True))
    create(metadata)
    with engine.begin() as connection:
        connection.execute(insert(table), {"id": 2**31 - 1000})

    [finding] = [one for one in audit.run(engine).findings if one.table == "plain"]

    assert (finding.problem, finding.severity, finding.column) == ("key-nearly-full", "error", "id")
    assert finding.advice is not None
    assert finding.advice.good == "id: Mapped[int] = bigint_key()"


@on("mysql", "mariadb")
def test_unsigned_key(engine: Engine, make: Make) -> None:
    """An unsigned key holds twice as many rows."""
    from sqlalchemy.dialects.mysql import INTEGER

    make(key=INTEGER(unsigned=True), first=2**30 + 5)

    assert found(engine) == {}


@on("postgresql")
def test_short_sequence(engine: Engine, make: Make) -> None:
    """A bigint key ends where its sequence ends."""
    make(first=2**30 + 5)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER SEQUENCE {NAME}_id_seq AS integer")

    assert found(engine)["key-nearly-full"].facts["limit"] == 2**31 - 1


@on("sqlite")
def test_key_of_sqlite(engine: Engine, make: Make) -> None:
    """INTEGER holds 64 bits on SQLite."""
    make(first=2**31)

    assert found(engine) == {}


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


@on("mysql", "mariadb")
def test_trigger(engine: Engine, make: Make) -> None:
    """A trigger that makes ids is as good as a default."""
    make()
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"CREATE TRIGGER fill BEFORE INSERT ON {NAME} FOR EACH ROW "
            f"SET NEW.public_id = LEFT(HEX(RANDOM_BYTES(8)), 12)"
        )

    assert audit.run(engine, tables=[NAME], defaults=True).findings == []


@on("postgresql")
def test_trigger_on_postgresql(engine: Engine, make: Make) -> None:
    """A trigger that makes ids is as good as a default."""
    make()
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS "
            "'begin new.public_id := left(gen_random_uuid()::text, 8); return new; end'"
        )
        connection.exec_driver_sql(f"CREATE TRIGGER fill BEFORE INSERT ON {NAME} FOR EACH ROW EXECUTE FUNCTION fill()")

    report = audit.run(engine, tables=[NAME], defaults=True)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP FUNCTION fill() CASCADE")

    assert report.findings == []


@on("postgresql", "mysql", "mariadb")
def test_left_over_check(engine: Engine, make: Make) -> None:
    """The CHECK constraint of a migration that was not finished is found; the lines of the advice drop it."""
    make()
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"ALTER TABLE {NAME} ADD CONSTRAINT ck_invoice_public_id_not_null CHECK (public_id IS NOT NULL)"
        )

    finding = found(engine)["check-left-over"]
    paste(engine, finding)

    assert finding.severity == "info"
    assert found(engine) == {}


@on("postgresql", "mysql", "mariadb")
def test_awkward_names(engine: Engine, make: Make) -> None:
    """The lines of the advice quote names that need it, and cut names that are too long."""
    name = "Order of a customer, with a name as long as the database can bear"[:60]
    make(name=name, nullable=True, index=False)

    for problem in ("unique-missing", "nullable"):
        [finding] = [one for one in audit.run(engine, tables=[name]).findings if one.problem == problem]
        paste(engine, finding)

    report = audit.run(engine, tables=[name])
    assert report.findings == []
    assert derived_name("uq", name, "public_id") in {index["name"] for index in _indexes(engine, name)}


def _indexes(engine: Engine, name: str) -> list[Any]:
    from sqlalchemy import inspect

    return list(inspect(engine).get_indexes(name))


def taken(engine: Engine, name: str) -> str:
    """Return the statement that gives *name* to something else than the unique index."""
    if engine.name == "sqlite":
        return f"CREATE INDEX {name.upper()} ON {NAME} (id)"
    return f"CREATE INDEX {name} ON {NAME} (id)"


def test_free_names_of_indexes(engine: Engine, make: Make) -> None:
    """The advice gives the unique index a name that no other index has."""
    make(index=False)
    with engine.begin() as connection:
        connection.exec_driver_sql(taken(engine, "uq_invoice_public_id"))
        connection.exec_driver_sql(taken(engine, "uq_invoice_public_id_2"))

    paste(engine, found(engine)["unique-missing"])

    assert "uq_invoice_public_id_3" in {index["name"] for index in _indexes(engine, NAME)}
    assert found(engine) == {}


@on("postgresql", "sqlite")
def test_free_names_of_relations(engine: Engine, make: Make) -> None:
    """The advice gives the unique index a name that no other table has."""
    make(index=False)
    make(name="uq_invoice_public_id", rows=[])

    paste(engine, found(engine)["unique-missing"])

    assert found(engine) == {}


@on("postgresql")
def test_free_names_of_checks(engine: Engine, make: Make) -> None:
    """The advice gives the CHECK constraint a name that no other constraint has."""
    make(CheckConstraint("id > 0", name="ck_invoice_public_id_not_null"), nullable=True)

    problems = found(engine)
    paste(engine, problems["nullable"])

    assert problems["nullable"].advice is not None
    assert "ck_invoice_public_id_not_null_2" in problems["nullable"].advice.good
    assert "nullable" not in found(engine)


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("problem", ["nullable", "collation", "check-left-over"])
def test_lines_that_lock_give_up(engine: Engine, make: Make, problem: str) -> None:
    """While another transaction uses the table, the lines of the advice fail after a second."""
    collation = "und-x-icu" if engine.name == "postgresql" else None
    make(
        CheckConstraint("public_id IS NOT NULL", name="ck_invoice_public_id_not_null"),
        type=String(16, collation=collation) if problem == "collation" else None,
        nullable=True,
    )
    finding = found(engine)[problem]

    with engine.connect() as reader:
        reader.exec_driver_sql(f"SELECT 1 FROM {NAME}")
        began = time.monotonic()
        with pytest.raises(DBAPIError, match=r"lock timeout|Lock wait timeout"):
            paste(engine, finding)

    assert time.monotonic() - began < 5


@pytest.fixture(name="other_schema")
def _other_schema(engine: Engine, tmp_path: Any) -> Iterator[tuple[Connection, str]]:
    """A connection to a database that has a second schema with a table in it."""
    schema = f"{engine.url.database}_other" if engine.name in {"mysql", "mariadb"} else "other"
    with engine.connect() as connection:
        if engine.name == "sqlite":
            connection.exec_driver_sql(f"ATTACH DATABASE '{tmp_path / 'other.db'}' AS other")
        else:
            connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
        connection.exec_driver_sql(
            f"CREATE TABLE {schema}.{NAME} (id bigint PRIMARY KEY, public_id varchar(16) NOT NULL)"
        )
        connection.exec_driver_sql(f"INSERT INTO {schema}.{NAME} VALUES (1, 'izkpm55j334u')")
        connection.commit()
        yield connection, schema
        connection.rollback()
        if engine.name != "sqlite":
            connection.exec_driver_sql(f"DROP SCHEMA {schema}{' CASCADE' if engine.name == 'postgresql' else ''}")
            connection.commit()


def test_another_schema(other_schema: tuple[Connection, str]) -> None:
    """Another schema is looked at on request, and named in the report and in the advice."""
    connection, schema = other_schema

    report = audit.run(connection, schema=schema)

    assert [(table.name, table.sampled) for table in report.tables] == [(f"{schema}.{NAME}", 1)]
    [finding] = [finding for finding in report.findings if finding.problem == "unique-missing"]
    assert finding.advice is not None
    assert schema in finding.advice.good
    assert not connection.in_transaction()


def test_advice_for_another_schema(other_schema: tuple[Connection, str]) -> None:
    """The lines of the advice build the index in another schema."""
    connection, schema = other_schema
    [finding] = [one for one in audit.run(connection, schema=schema).findings if one.problem == "unique-missing"]
    assert finding.advice is not None

    with connection.engine.connect() if connection.dialect.name != "sqlite" else nullcontext(connection) as own:
        own = own.execution_options(isolation_level="AUTOCOMMIT")
        for statement in finding.advice.good.split(";\n"):
            own.exec_driver_sql(statement)

    assert "unique-missing" not in {one.problem for one in audit.run(connection, schema=schema).findings}


@on("postgresql")
def test_invalid_index_in_another_schema(other_schema: tuple[Connection, str]) -> None:
    """The lines of the advice drop the index in another schema."""
    connection, schema = other_schema
    with connection.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as own:
        own.exec_driver_sql(f"INSERT INTO {schema}.{NAME} VALUES (2, 'izkpm55j334u')")
        with pytest.raises(DBAPIError):
            own.exec_driver_sql(f"CREATE UNIQUE INDEX CONCURRENTLY half ON {schema}.{NAME} (public_id)")
        own.exec_driver_sql(f"DELETE FROM {schema}.{NAME} WHERE id = 2")
        [finding] = [one for one in audit.run(own, schema=schema).findings if one.problem == "index-invalid"]
        assert finding.advice is not None
        for statement in finding.advice.good.split(";\n"):
            own.exec_driver_sql(statement)

        assert not {"index-invalid", "unique-missing"} & {one.problem for one in audit.run(own, schema=schema).findings}


def test_unknown_schemas(engine: Engine, make: Make) -> None:
    """A schema that does not exist is an error that names the others."""
    make()

    with pytest.raises(ConfigurationError, match=r"^there is no schema 'typo'; there are: "):
        audit.run(engine, schema="typo")


@on("sqlite")
def test_schemas_of_sqlite_ignore_case(engine: Engine, make: Make) -> None:
    """SQLite has the schema main under any case."""
    make()

    assert [table.name for table in audit.run(engine, schema="MAIN").tables] == [f"MAIN.{NAME}"]


def test_own_schemas_of_the_database(engine: Engine) -> None:
    """A schema of the database itself exists."""
    schema = {"postgresql": "pg_catalog", "sqlite": "temp"}.get(engine.name, "information_schema")

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
    admin = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    with admin:
        if engine.name == "postgresql":
            admin.exec_driver_sql(f"CREATE ROLE {name}")
            admin.exec_driver_sql(f"GRANT SELECT ON {NAME} TO {name}")
            with engine.connect() as connection:
                connection.exec_driver_sql(f"SET ROLE {name}")
                connection.commit()
                yield connection
                connection.rollback()
                connection.exec_driver_sql("RESET ROLE")
                connection.commit()
            admin.exec_driver_sql(f"DROP OWNED BY {name}")
            admin.exec_driver_sql(f"DROP ROLE {name}")
            return
        admin.exec_driver_sql(f"CREATE USER {name}@'%%' IDENTIFIED BY 'secret-1'")
        admin.exec_driver_sql(f"GRANT SELECT ON {engine.url.database}.{NAME} TO {name}@'%%'")
        admin.exec_driver_sql(f"GRANT INSERT ON {engine.url.database}.hidden TO {name}@'%%'")
        own = create_engine(engine.url.set(username=name, password="secret-1"))
        try:
            with own.connect() as connection:
                yield connection
        finally:
            own.dispose()
            admin.exec_driver_sql(f"DROP USER {name}@'%%'")


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


def test_a_lost_connection_ends_the_audit(engine: Engine, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is lost is an error, and no table is blamed."""
    make()

    def lose(*arguments: Any) -> None:
        raise DBAPIError("SELECT 1", None, Exception("server closed the connection"), connection_invalidated=True)

    monkeypatch.setattr(sampling, "read", lose)

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


def test_as_json(engine: Engine, make: Make) -> None:
    """A report is made of plain values, which JSON takes."""
    make(rows=["a", "bb", None], nullable=True, index=False)

    report = audit.run(engine, tables=[NAME], formats={NAME: NanoId()})

    plain = json.loads(json.dumps(report.as_dict()))
    assert {finding["problem"] for finding in plain["findings"]} >= {"missing-ids", "malformed-ids", "nullable"}
    assert [table["name"] for table in plain["tables"]] == [NAME]


def test_worst_first(engine: Engine, make: Make) -> None:
    """The findings on a table begin with the worst."""
    make(rows=[None], nullable=True, index=False)

    severities = [finding.severity for finding in audit.run(engine, tables=[NAME]).findings]

    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert severities[0] == "error"


def test_no_table_is_read_as_a_whole(engine: Engine, make: Make, statements: list[str]) -> None:
    """Each statement that reads rows stops after the size of the sample."""
    make(rows=[*NanoId().generate_many(10), None], nullable=True)
    statements.clear()

    audit.run(engine, tables=[NAME], sample=4)

    reading = [statement for statement in statements if f"FROM {NAME}" in statement]
    assert reading
    assert all("LIMIT" in statement.upper() or "max(" in statement for statement in reading)


@on("mysql", "mariadb")
def test_what_the_advice_says_of_mysql(engine: Engine, make: Make) -> None:
    """A NOT NULL column that is added at once has the empty text in every row; the good line leaves NULL."""
    make()
    empty, null = about("empty-text", table=NAME, column="a"), about("empty-text", table=NAME, column="b")
    with engine.connect() as connection:
        connection.exec_driver_sql(empty.bad.rstrip(";"))
        for line in null.good.split(";\n"):
            connection.exec_driver_sql(line.rstrip(";"))

        assert connection.exec_driver_sql(f"SELECT DISTINCT a, b FROM {NAME}").all() == [("", None)]


@on("postgresql")
def test_what_the_advice_says_of_timeouts(engine: Engine, make: Make) -> None:
    """With the good lines, a statement that cannot have its lock gives up, and nobody waits behind it."""
    make()
    lines = about("no-lock-timeout", table=NAME, column="other").good.replace("'1s'", "'50ms'").split("\n")
    with engine.connect() as reader, engine.connect() as connection:
        reader.exec_driver_sql(f"SELECT 1 FROM {NAME}")
        with pytest.raises(DBAPIError, match="lock timeout"):
            for line in lines[1:]:  # SQLAlchemy has begun already
                connection.exec_driver_sql(line)


def test_sample_of_nothing(engine: Engine) -> None:
    """A sample of no rows is refused."""
    with pytest.raises(ConfigurationError, match="sample is 0, expected 1 or more"):
        audit.run(engine, sample=0)


# --- ids that are stored as numbers


@pytest.mark.parametrize("format", [Uuid7(prefix="inv"), ObjectId(), Snowflake(machine_id=1)], ids=repr)
def test_numbers(engine: Engine, make: Make, format: BitsFormat) -> None:
    """Numbers are read as what the format writes; one that it does not make is malformed, and shown as text."""
    wrong = {128: 7, 96: 8, 64: 2**62}[format.bits]
    table = make(rows=[], type=PublicIdType(format))
    fill = insert(Table(NAME, MetaData(), Column("id", Integer), Column("public_id", PublicIdType(format))))
    with engine.begin() as connection:
        connection.execute(fill, [{"id": at, "public_id": text} for at, text in enumerate(format.generate_many(5), 1)])
    assert found(engine) == {}
    assert found(engine, formats={NAME: format}) == {}

    value = traits_for(engine.dialect).to_native(wrong, format.bits)
    plain = Table(
        NAME, MetaData(), Column("id", Integer), Column("public_id", column_type(format, traits_for(engine.dialect)))
    )
    with engine.begin() as connection:
        connection.execute(insert(plain), {"id": 9, "public_id": value})
    findings = found(engine, formats={NAME: format})
    assert table.name == NAME
    assert list(findings) == (["malformed-ids"] if isinstance(format, Uuid7) else [])
    if findings:
        assert findings["malformed-ids"].facts["examples"] == [format.from_int(wrong)]


@on("mysql", "mariadb")
def test_advice_for_numbers(engine: Engine, make: Make) -> None:
    """The advice for a column of numbers has its type, and can be pasted."""
    format = Uuid7()
    make(rows=[], type=column_type(format, traits_for(engine.dialect)), nullable=True)
    finding = found(engine, formats={NAME: format})["nullable"]

    assert "BINARY(16) NOT NULL" in str(finding.advice.good if finding.advice else "")
    paste(engine, finding)
    assert found(engine) == {}


@on("sqlite")
def test_rows_at_both_ends_of_the_key(engine: Engine, make: Make) -> None:
    """Rows that are among the first ones and among the last ones count once."""
    make(rows=NanoId().generate_many(6))

    assert [table.sampled for table in audit.run(engine, sample=8).tables] == [6]
