"""Malformed ids, judged by the format that is passed to the audit, that models declare, or that most ids have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import BigInteger, Column, Engine, ForeignKey, Integer, MetaData, Table, Uuid, insert, inspect, text
from sqlalchemy.orm import DeclarativeBase, Mapped
from support.applied_remedies import mend, paste
from support.invoices import NAME, NewInvoices, raise_counter
from support.marks import SERVERS, on

from sqlalchemy_public_id import (
    NanoId,
    ObjectId,
    PublicIdMixin,
    PublicIdType,
    Snowflake,
    Ulid,
    Uuid4,
    Uuid7,
    audit,
    bigint_key,
    public_id_column,
)
from sqlalchemy_public_id.audit import Finding
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.formats import URLSAFE64, Format
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.formats.parse import parse
from sqlalchemy_public_id.stored_ids import column_type

pytestmark = pytest.mark.backend


def found(engine: Engine, **options: Any) -> dict[str, Finding]:
    """Return the findings on the table, by problem."""
    return {finding.problem: finding for finding in audit.run(engine, tables=[NAME], **options).findings}


def test_malformed_ids(engine: Engine, new_invoices: NewInvoices) -> None:
    """Ids that the format refuses are counted, and some of them are shown."""
    new_invoices(rows=["cus_izkpm55j334u", "cus_0a1b2c3d4e5f", "ord_izkpm55j334u", "cus_izkpm55j334"])

    finding = found(engine, formats={NAME: NanoId(prefix="cus")})["malformed-ids"]

    assert finding.severity == "error"
    assert finding.facts["malformed"] == 2
    assert set(finding.facts["examples"]) == {"ord_izkpm55j334u", "cus_izkpm55j334"}
    assert "expected cus_ and 12 of 0-9 a-z" in finding.message
    assert str(finding.remedy).startswith("__public_id__ = NanoId(prefix='cus').accepting(NanoId(")


@pytest.mark.parametrize(
    ("ids", "message", "remedy"),
    [
        (
            [*NanoId(length=16).generate_many(3), *NanoId(prefix="cus").generate_many(5)],
            "3 of 8 ids",
            "__public_id__ = NanoId(prefix='cus').accepting(NanoId(length=16))",
        ),
        (
            [*NanoId().generate_many(40), "__world__"],
            "1 of 41 ids that were read are malformed: '__world__' (expected 12 of 0-9 a-z, a guess from the others)",
            "__public_id__ = NanoId().accepting('__world__')",
        ),
        (["a b", "a  b"], "2 of 2 ids that were read are malformed: 'a b', 'a  b' (no format has such ids)", "None"),
        (NanoId(length=16, alphabet=URLSAFE64).generate_many(200), "", ""),
        (NanoId(length=16, alphabet="abcdefXYZ.~_-").generate_many(200), "", ""),
    ],
    ids=["two formats", "by hand", "no format", "separators", "odd separators"],
)
def test_ids_of_an_unknown_format(
    engine: Engine, new_invoices: NewInvoices, ids: list[str], message: str, remedy: str
) -> None:
    """Without a known format, that of most ids counts, whatever its alphabet; the remedy accepts the others, too."""
    new_invoices(rows=ids)

    finding = found(engine).get("malformed-ids")

    assert ("" if finding is None else finding.message).startswith(message)
    assert ("" if finding is None else str(finding.remedy)) == remedy
    assert (None if finding is None else finding.severity) == ("warning" if message else None)


# --- models


def models(format: Format) -> MetaData:
    """Return the models of a project with a naming convention."""
    metadata = MetaData(naming_convention={"ix": "public_%(table_name)s"})
    options = {"default": format.generate, "unique": True, "index": True}
    key = Column("id", Integer, primary_key=True)
    Table(NAME, metadata, key, Column("public_id", PublicIdType(format), **options))
    return metadata


def test_names_of_models(engine: Engine, new_invoices: NewInvoices) -> None:
    """The index that a remedy builds has the name that the naming convention of the models gives it."""
    new_invoices(index=False)

    assert mend(engine, lambda: audit.run(engine, tables=[NAME], models=models(NanoId()))) == []
    assert [index["name"] for index in inspect(engine).get_indexes(NAME)] == ["public_invoice"]


@on("sqlite")
def test_formats_of_models(engine: Engine, new_invoices: NewInvoices) -> None:
    """The format of the ids is taken from the model, unless ``formats=`` names another one."""
    new_invoices()
    declared = models(NanoId(length=16))

    assert found(engine, models=declared).keys() == {"malformed-ids"}
    assert found(engine, models=[MetaData(), declared]).keys() == {"malformed-ids"}
    assert found(engine, models=declared, formats={NAME: NanoId()}) == {}


# --- ids that are stored as numbers


@pytest.mark.parametrize("format", [Uuid7(prefix="inv"), ObjectId(), Snowflake(machine_id=1)], ids=repr)
def test_numbers(engine: Engine, new_invoices: NewInvoices, format: BitsFormat) -> None:
    """Stored numbers are read as ids of the format; one that it cannot generate is malformed, and shown as text."""
    wrong = {128: 7, 96: 8, 64: 2**62}[format.bits]
    new_invoices(rows=format.generate_many(5), type=PublicIdType(format))
    assert found(engine) == {}
    assert found(engine, formats={NAME: format}) == {}

    plain = Table(NAME, MetaData(), Column("id"), Column("public_id", column_type(format, traits_for(engine.dialect))))
    with engine.begin() as connection:
        value = traits_for(engine.dialect).to_native(wrong, format.bits)
        connection.execute(insert(plain), {"id": 9, "public_id": value})
        raise_counter(connection, plain)

    examples = [each.facts["examples"] for each in found(engine, formats={NAME: format}).values()]
    assert examples == ([[format.from_int(wrong)]] if isinstance(format, Uuid7) else [])


@pytest.mark.parametrize(
    ("database", "format", "value", "shown"),
    [
        *((database, Snowflake(machine_id=1), "-5", "-5") for database in ("sqlite", *SERVERS)),
        ("sqlite", Snowflake(machine_id=1), "1.5", "1.5"),
        ("sqlite", Snowflake(machine_id=1), "x'00'", "00"),
        ("sqlite", Snowflake(machine_id=1), "'five'", "five"),
        ("sqlite", Ulid(), "1234567890123456", "1234567890123456"),
        ("sqlite", Ulid(), "0.5", "0.5"),
        ("sqlite", Ulid(), "x'00'", "00"),
        ("sqlite", Ulid(), "x''", ""),
        ("sqlite", Ulid(), "'abcdefghijklmnop'", "abcdefghijklmnop"),
        ("postgresql", ObjectId(), r"'\x00'", "00"),
    ],
    indirect=["database"],
)
def test_values_of_other_kinds(
    engine: Engine, new_invoices: NewInvoices, format: BitsFormat, value: str, shown: str
) -> None:
    """A value among stored numbers that is none of them, as of another kind or length, is malformed, and shown."""
    new_invoices(rows=format.generate_many(5), type=PublicIdType(format))
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {NAME} SET public_id = {value} WHERE id = 1")

    finding = found(engine, formats={NAME: format})["malformed-ids"]

    assert finding.facts["examples"] == [shown]
    assert finding.facts["malformed"] == 1


@pytest.mark.parametrize("format", [Ulid(storage="text"), ObjectId(storage="text")], ids=repr)
def test_numbers_as_text(engine: Engine, new_invoices: NewInvoices, format: BitsFormat) -> None:
    """Ids of a format of numbers that are stored as text are audited, whatever else the column lacks."""
    new_invoices(rows=format.generate_many(5), type=column_type(format, traits_for(engine.dialect)), nullable=True)

    assert found(engine).keys() == {"nullable"}


SPELLED: list[tuple[Format, str, str]] = [
    (NanoId(ignore_case=True), "8W0TNQ3C5YZD", "8w0tnq3c5yzd"),
    (Ulid(storage="text"), "01arz3ndektsv4rrffq69g5fav", "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    (
        Uuid4(encoding="hyphenated", storage="text"),
        "919108F7-52D1-4320-9BAC-F847DB4148A8",
        "919108f7-52d1-4320-9bac-f847db4148a8",
    ),
]


@pytest.mark.parametrize(("format", "stored", "searched"), SPELLED, ids=["nanoid", "ulid", "uuid"])
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "guessed"])
def test_ids_in_another_spelling(
    engine: Engine, new_invoices: NewInvoices, format: Format, stored: str, searched: str, is_known: bool
) -> None:
    """An id in another spelling than the one that look-ups search for is malformed, although the format takes it."""
    new_invoices(rows=[stored, *format.generate_many(5)], type=column_type(format, traits_for(engine.dialect)))

    finding = found(engine, formats={NAME: format} if is_known else None)["malformed-ids"]

    assert finding.severity == ("error" if is_known else "warning")
    assert (finding.facts["malformed"], finding.facts["examples"]) == (1, [stored])
    if is_known:
        assert f"another spelling than the one that look-ups search for, {searched!r}: {stored!r}" in finding.message


@on("sqlite")
def test_number_among_texts(engine: Engine) -> None:
    """A number among ids of text, which a column of SQLite can have, is malformed, also without a known format."""
    values = ", ".join(f"({value!r})" for value in [*NanoId().generate_many(30), 5])
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {NAME} (public_id NOT NULL UNIQUE)")
        connection.exec_driver_sql(f"INSERT INTO {NAME} VALUES {values}")

    assert found(engine)["malformed-ids"].facts["examples"] == ["5"]


def test_numbers_of_an_unknown_format(engine: Engine, new_invoices: NewInvoices) -> None:
    """Without a known format, no number is malformed, and the remedies keep the type of the column."""
    new_invoices(rows=[10**at for at in range(1, 6)], type=BigInteger(), nullable=True)

    findings = found(engine)

    assert findings.keys() == {"nullable"}
    assert getattr(findings["nullable"].remedy, "language", None) == ("sh" if engine.name == "sqlite" else "sql")


@on("mysql", "mariadb")
def test_remedy_for_numbers(engine: Engine, new_invoices: NewInvoices) -> None:
    """The remedy for a column of numbers keeps its type, and can be pasted."""
    formats = {NAME: Uuid7()}
    new_invoices(rows=[], type=column_type(Uuid7(), traits_for(engine.dialect)), nullable=True)
    finding = found(engine, formats=formats)["nullable"]

    assert "binary(16) NOT NULL" in str(finding.remedy)
    paste(engine, finding.remedy)
    assert found(engine) == {}


@on("sqlite")
@pytest.mark.parametrize("older", [[], [Uuid4(prefix="doc")]], ids=repr)
def test_proposed_format(engine: Engine, create: Callable[[MetaData], None], older: list[Uuid4]) -> None:
    """The format that is proposed for UUIDs stored as text accepts them, and what the present one accepts."""
    stored = UUID("7d444840-9dc0-41d1-b245-5ffdce74fad2")
    id_column = Column("public_id", Uuid, unique=True, nullable=False)
    document = Table(NAME, MetaData(), Column("id", Integer, primary_key=True), id_column)
    create(document.metadata)
    with engine.begin() as connection:
        connection.execute(insert(document).values(public_id=stored))

    findings = found(engine, formats={NAME: Uuid4(encoding="hyphenated").accepting(*older)})

    assert "column-type" in findings  # the column has text, but the format stores numbers
    proposed = str(findings["malformed-ids"].remedy).removeprefix("__public_id__ = ")
    assert all(parse(proposed).is_valid(each) for each in (stored.hex, str(stored), *(one.generate() for one in older)))


def test_every_column_of_the_models(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """With models, each column of ids that they declare is audited, whatever its name; formats= is for the first."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Letter(Base):
        __tablename__ = "letter"
        id: Mapped[int] = bigint_key()
        code: Mapped[str] = public_id_column(NanoId(length=10))
        share: Mapped[str] = public_id_column(NanoId(prefix="shr"))

    create(Base.metadata)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO letter (id, code, share) VALUES (1, 'not an id', 'neither')"))

    def malformed(report: Any) -> list[str]:
        return [each.column for each in report.findings if each.problem == "malformed-ids"]

    report = audit.run(engine, tables=["letter"], models=Base.metadata)

    assert [(table.name, table.column, table.has_column) for table in report.tables] == [
        ("letter", "code", True),
        ("letter", "share", True),
    ]
    assert report.as_dict()["counts"]["tables"] == 1
    assert malformed(report) == ["code", "share"]
    assert malformed(audit.run(engine, models=Base.metadata, column="share")) == ["share"]
    with engine.begin() as connection:
        connection.execute(text("UPDATE letter SET share = 'shr_aaaaaaaaaaaa'"))
    of_code = {"letter": NanoId(length=8)}
    assert malformed(audit.run(engine, tables=["letter"], models=Base.metadata, formats=of_code)) == ["code"]
    [other] = audit.run(engine, tables=["letter"]).tables
    assert (other.column, other.has_column) == ("public_id", False)


def test_columns_that_repeat_ids(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """With models, a history table, which repeats ids, and a foreign key to them need neither ids nor an index."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Novel(PublicIdMixin, Base):
        __tablename__ = "novel"

    history = Novel.metadata.tables["novel"].to_metadata(Base.metadata, name="novel_history")
    history.indexes.clear()
    history.c.public_id.nullable, history.c.id.autoincrement = True, False
    history.append_column(Column("version", Integer, primary_key=True, autoincrement=False))
    reference = Column("public_id", PublicIdType(NanoId()), ForeignKey("novel.public_id"))
    Table("novel_of_the_day", Base.metadata, Column("day", Integer, primary_key=True), reference)
    create(Base.metadata)
    tables = [*Base.metadata.tables]

    report = audit.run(engine, tables=tables, models=Base.metadata)

    assert report.at_least("warning") == []
    assert {each.name: each.has_column for each in report.tables} == {
        "novel": True,
        "novel_history": False,
        "novel_of_the_day": False,
    }
    guessed = audit.run(engine, tables=tables)
    named = audit.run(engine, tables=["novel_history"], models=Base.metadata, column="public_id")
    told = audit.run(engine, tables=["novel_history"], models=Base.metadata, formats={"novel_history": NanoId()})
    assert [each.worst() for each in (guessed, named, told)] == ["error", "error", "error"]
    assert told.tables[0].has_column
