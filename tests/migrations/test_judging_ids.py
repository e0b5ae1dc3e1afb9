"""The database and Python agree on which ids are valid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Engine, MetaData, Table, event, insert, select
from support.every_format import one_of_each
from support.marks import SERVERS, on
from support.people import People, people
from support.refusals import refused

from sqlalchemy_public_id import NanoId, PublicIdType, Uuid7
from sqlalchemy_public_id.formats import CROCKFORD32, Format, Ksuid, ObjectId, Snowflake, Ulid, Uuid4
from sqlalchemy_public_id.formats.alphabets import is_printable
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import live_table, rows_of
from sqlalchemy_public_id.migrations.existing_ids import count_invalid

pytestmark = pytest.mark.backend

PRINTABLE = "".join(filter(is_printable, map(chr, range(128))))
FORMATS: list[Format] = [
    NanoId(),
    NanoId(length=20, prefix="cus"),
    NanoId(alphabet=PRINTABLE),
    NanoId(alphabet=PRINTABLE[::7]),
    NanoId(prefix="inv", separator=".", check_digit=True),
    NanoId(length=16).accepting(NanoId(length=12), Uuid4(encoding="hyphenated", storage="text")),
    *one_of_each(prefix="user", storage="text"),
    Uuid7(encoding="hyphenated", storage="text"),
    NanoId(prefix="cus", ignore_case=True),
    NanoId(alphabet=CROCKFORD32, ignore_case=True).accepting(NanoId(prefix="inv")),
    NanoId(prefix="inv", check_digit=True, ignore_case=True),
]


def mistyped(id: str) -> list[str]:
    """Return strings that differ slightly from *id*."""
    changed = [id.upper(), id.lower(), id.swapcase(), id[::-1], id[:-1], id[:-1] + "ä", id[:-1] + "!", f"{id[0]}{id}"]
    return ["", *changed, f"{id}\n", f"\n{id}", f" {id}", f"{id[:-1]}\n", f"zz{id[2:]}", f"{id[:4]}0{id[5:]}"]


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_text(engine: Engine, format: Format) -> None:
    """Strings are invalid exactly if they are no canonical ids, whatever the collation of the column."""
    texts = [text for id in format.generate_many(5) for text in (id, *mistyped(id))]
    with people(engine, 0) as table, engine.begin() as connection:
        table.execute("ALTER TABLE person ADD COLUMN public_id varchar(80)")
        rows = Table("person", MetaData(), autoload_with=connection)
        connection.execute(insert(rows), [{"public_id": text} for text in [*texts, None]])
        number, examples = count_invalid(rows_of(live_table(connection, PublicIdColumn.of("person", format=format))))

    assert number == sum(format.canonical(text) != text for text in texts)
    assert len(examples) == 3
    assert not any(format.canonical(text) == text for text in examples)


@pytest.mark.parametrize(
    "format",
    [
        Uuid7(storage="native"),
        Ulid(storage="native"),
        Uuid7(storage="native").accepting(Uuid4()),
        ObjectId(storage="native"),
        Ksuid(storage="native"),
    ],
    ids=repr,
)
def test_numbers(engine: Engine, format: Any) -> None:
    """Numbers are invalid exactly if the format refuses them, such as a UUID of another version."""
    numbers = [format.to_int(format.generate())]
    any_number = format
    if format.bits == 128:
        any_number = Ulid(storage="native")
        numbers += [Uuid4().to_int(id) for id in Uuid4().generate_many(10)]
    with people(engine, 0) as table, engine.begin() as connection:
        column = Column("public_id", PublicIdType(any_number), nullable=True)
        table.execute(f"ALTER TABLE person ADD COLUMN public_id {column.type.compile(engine.dialect)}")
        rows = Table("person", MetaData(), column)
        connection.execute(insert(rows), [{"public_id": any_number.from_int(number)} for number in numbers])
        found, _ = count_invalid(rows_of(live_table(connection, PublicIdColumn.of("person", format=format))))

    assert found == sum(not format.is_valid(format.from_int(number)) for number in numbers)


OF_TEXT: list[Any] = [
    NanoId(),
    NanoId(alphabet="0123456789"),
    NanoId(check_digit=True),
    NanoId().accepting(NanoId(length=10)),
    Uuid7(encoding="hyphenated", storage="text"),
]
OF_NUMBERS: list[Any] = [Snowflake(machine_id=1), Ulid(storage="native"), ObjectId(storage="native")]


def others(database: str, format: Any) -> list[str]:
    """Return SQL for values that are no ids of *format*, and that a column of the database may have."""
    if database != "sqlite":
        return ["-1"] if format.is_native else ["''", "' x'", "'-1'", "'0.5'"]
    size = format.bits // 8 if format.is_native else format.max_length
    found = ["''", "x''", "x'00'", "0.5", "-1", f"'{'1' * (size - 1)}'", f"x'{'31' * (size - 1)}'"]
    if not isinstance(format, Snowflake):
        found += ["0", "1" * min(size, 18)]
    # as long as an id
    return [*found, f"'{'1' * size}'" if format.is_native else f"x'{'31' * size}'"]


@pytest.mark.parametrize(
    ("database", "format"),
    [
        *(("sqlite", format) for format in [*OF_TEXT, *OF_NUMBERS]),
        *((database, format) for database in SERVERS for format in [*OF_TEXT, OF_NUMBERS[0]]),
    ],
    indirect=["database"],
    ids=str,
)
def test_values_of_other_kinds(new_people: Callable[..., People], engine: Engine, format: Any) -> None:
    """Numbers, texts, bytes and empty values among ids refuse the migration, which replaces them with consent."""
    options: dict[str, Any] = {} if format.is_native or engine.name == "sqlite" else {"collation": "bytes"}
    type_ = "bigint" if format.is_native else "varchar(40)"
    if engine.name == "sqlite":
        type_ = ""  # such a column keeps all values as they are
    people = new_people(0, more=f", public_id {type_}", format=format, server_default="none", **options)
    values = others(engine.name, format)
    for value in (*values, "NULL"):
        people.execute(f"INSERT INTO person (name, public_id) VALUES ('other', {value})")
    rows = Table("person", MetaData(), Column("name"), Column("public_id", PublicIdType(format)))
    stored = format.generate()
    with engine.begin() as connection:
        connection.execute(insert(rows).values(name="id", public_id=stored))

    with engine.connect() as connection:
        number, _ = count_invalid(rows_of(live_table(connection, people.target)))
    assert number == len(values)
    assert refused(people)["invalid-ids"].startswith(f"{number} id")
    people.add(on_invalid="replace")

    with engine.connect() as connection:
        found = {row.public_id: row.name for row in connection.execute(select(rows))}
    assert found.pop(stored) == "id"
    assert len(found) == len(values) + 1
    assert [id for id in found if not format.is_valid(id)] == []


@on("sqlite")
def test_rows_that_are_read(engine: Engine) -> None:
    """A contract lets the database check the ids of a table, and does not fetch them."""
    with people(engine, 1000) as table:
        table.run("expand_public_id")
        table.run("backfill_public_id")
        fetched = 0

        @event.listens_for(engine, "connect")
        def count_rows(connection: Any, record: Any) -> None:
            def count(cursor: Any, row: Any) -> Any:
                nonlocal fetched
                fetched += 1
                return row

            connection.row_factory = count

        engine.dispose()
        table.run("contract_public_id")

    assert fetched < 500


def test_duplicates_are_found_by_the_index(engine: Engine, statements: Any) -> None:
    """A contract does not query for duplicates before it builds the unique index, which finds them by itself."""
    with people(engine, 1000) as table:
        table.run("expand_public_id")
        table.run("backfill_public_id")
        statements.clear()
        table.run("contract_public_id")

    of_rows = [statement for statement in statements if "information_schema" not in statement]
    assert not [statement for statement in of_rows if "HAVING" in statement]
