"""``merge_check``: whether the rows of several databases can be put into one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import command
import pytest
import servers
from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, String, Table, create_engine, event, insert
from sqlalchemy.pool import NullPool

from sqlalchemy_public_id import ConfigurationError, Format, NanoId, PublicIdType, Ulid, Uuid7
from sqlalchemy_public_id.merging import Clash, Report, merge_check

pytestmark = pytest.mark.backend

ID = "izkpm55j334u"


def invoice(format: Format | None = None, key: Any = None) -> Table:
    """A table of its own for each format."""
    return Table(
        "merged_invoice",
        MetaData(),
        Column("id", key or BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
        *([] if format is None else [Column("public_id", PublicIdType(format), nullable=False)]),
    )


Databases = Callable[..., Engine]


@pytest.fixture
def filled(new_engine: Callable[..., Engine]) -> Iterator[Databases]:
    """Make a database of the kind with rows in a table; SQLite may be there several times."""
    made: list[tuple[Engine, Table]] = []

    def make(database: str, rows: list[dict[str, Any]], table: Table | None = None) -> Engine:
        table = invoice(NanoId()) if table is None else table
        engine = new_engine(database, poolclass=NullPool)
        table.metadata.drop_all(engine)
        table.metadata.create_all(engine)
        made.append((engine, table))
        if rows:
            with engine.begin() as connection:
                connection.execute(insert(table), rows)
        return engine

    yield make
    for engine, table in made:
        table.metadata.drop_all(engine)


def rows(format: Format, first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"id": key, "public_id": public_id} for key, public_id in enumerate(format.generate_many(count), start=first)
    ]


def compared(report: Report) -> Any:
    (table,) = report.tables
    return table


def test_ranges_that_lie_apart_are_proof_enough(database: str, filled: Databases) -> None:
    """Keys of different ranges are proven by the ends of the ranges, without reading the rows."""
    databases = {"one": filled("sqlite", rows(NanoId(), 1, 50)), "other": filled(database, rows(NanoId(), 51, 50))}
    sent: list[str] = []
    event.listen(databases["other"], "before_cursor_execute", lambda *call: sent.append(call[2]))

    table = compared(merge_check(databases, tables=["merged_invoice"]))

    assert (table.key.proof, table.key.compared) == ("ranges", 0)
    assert (table.public_id.proof, table.public_id.compared) == ("compared", 100)
    assert [statement for statement in sent if "BETWEEN" in statement] == []


def test_keys_and_ids_that_clash_are_found(database: str, filled: Databases) -> None:
    """Every key and id that both databases have is counted, and the first ones are shown."""
    one = [*rows(NanoId(), 1, 20), {"id": 21, "public_id": ID}]
    other = [*rows(NanoId(), 11, 10), {"id": 99, "public_id": ID}]
    databases = {"one": filled("sqlite", one), "other": filled(database, other)}

    report = merge_check(databases, tables=["merged_invoice"], examples=2)

    table = compared(report)
    assert (report.is_proven, report.clashes) == (False, 11)
    assert (table.key.proof, table.key.clashes) == ("compared", 10)
    assert table.key.examples == (Clash("11", ("one", "other")), Clash("12", ("one", "other")))
    assert (table.public_id.clashes, table.public_id.examples) == (1, (Clash(ID, ("one", "other")),))


@pytest.mark.parametrize("format", [Uuid7(), Ulid()], ids=["Uuid7", "Ulid"])
def test_numbers_are_compared_across_databases(format: Format, database: str, filled: Databases) -> None:
    """An id is the same whether it is stored as UUID of PostgreSQL or as 16 bytes elsewhere."""
    both = format.generate()
    table = invoice(format)
    databases = {
        "one": filled("sqlite", [*rows(format, 1, 30), {"id": 31, "public_id": both}], table),
        "other": filled(database, [{"id": 32, "public_id": both}, *rows(format, 33, 30)], table),
    }

    found = compared(merge_check(databases, tables=["merged_invoice"])).public_id

    number = format.to_int(both)  # type: ignore[attr-defined]
    assert (found.clashes, found.examples) == (1, (Clash(str(UUID(int=number)), ("one", "other")),))


def test_texts_are_compared_byte_by_byte(database: str, filled: Databases) -> None:
    """Texts in columns of another collation are brought into the order of bytes, so that none is passed over."""
    text = String(20).with_variant(String(20, "latin1_general_cs"), "mysql", "mariadb")
    plain = Table("merged_invoice", MetaData(), Column("id", Integer, primary_key=True), Column("public_id", text))
    one = [{"id": at, "public_id": text} for at, text in enumerate(["a", "B", "c", "D", "_e", "b-1"], start=1)]
    other = [{"id": at, "public_id": text} for at, text in enumerate(["A", "b", "C", "D", "_e", "b1"], start=7)]
    databases = {"one": filled("sqlite", one, plain), "other": filled(database, other, plain)}

    found = compared(merge_check(databases, tables=["merged_invoice"])).public_id

    assert [clash.value for clash in found.examples] == ["D", "_e"]


def test_four_databases_are_compared_at_once(filled: Databases) -> None:
    """A value is told with all the databases that have it."""
    names = list(servers.servers())
    if len(names) < 2:
        pytest.skip(f"there is only {names[0]}")
    databases = {
        name: filled(name, [{"id": 7, "public_id": ID}, *rows(NanoId(), 10 * at + 10, 5)])
        for at, name in enumerate(names)
    }

    table = compared(merge_check(databases, tables=["merged_invoice"]))

    assert table.key.examples == (Clash("7", tuple(names)),)
    assert table.public_id.examples == (Clash(ID, tuple(names)),)


def test_types_without_a_common_order_are_not_compared(filled: Databases) -> None:
    """A column of numbers here and of text there proves nothing, and that is said."""
    databases = {
        "one": filled("sqlite", rows(NanoId(), 1, 1)),
        "other": filled("sqlite", rows(Uuid7(), 5, 1), invoice(Uuid7())),
    }

    report = merge_check(databases)

    table = compared(report)
    assert (table.key.proof, table.public_id.proof) == ("ranges", "not comparable")
    assert "VARCHAR" in table.public_id.reason
    assert not report.is_proven


def test_tables_and_columns_of_one_database_are_said(filled: Databases) -> None:
    """What only one database has cannot clash; the report names who lacks it."""
    other = Table("merged_other", MetaData(), Column("id", Integer, primary_key=True))
    databases = {
        "one": filled("sqlite", rows(NanoId(), 1, 3)),
        "two": filled("sqlite", [{"id": 9}], invoice()),
        "three": filled("sqlite", [{"id": 1}], other),
    }

    report = merge_check(databases)

    found = {table.name: table for table in report.tables}
    assert report.is_proven
    assert found["merged_invoice"].missing == ("three",)
    assert found["merged_invoice"].public_id.reason == "one alone has the column"
    assert found["merged_other"].missing == ("one", "two")
    assert found["merged_other"].key.reason == "three alone has the table"


def test_empty_tables_clash_with_nothing(database: str, filled: Databases) -> None:
    """A table without rows is proven without a comparison."""
    databases = {"one": filled("sqlite", rows(NanoId(), 1, 3)), "other": filled(database, [])}

    report = merge_check(databases, tables=["merged_invoice"])

    assert report.is_proven
    assert compared(report).key.reason == "no two databases have rows"


@pytest.mark.parametrize(
    ("databases", "options", "message"),
    [
        ([], {}, "0 databases"),
        (["sqlite://"], {}, "1 databases"),
        (["sqlite:///a.db", "sqlite:///a.db"], {}, "given twice"),
        ({"a": "sqlite://", "b": "sqlite://"}, {"tables": ["nowhere"]}, "no database has a table 'nowhere'"),
        ({"a": "sqlite://", "b": "sqlite://"}, {"tables": "invoice"}, "expected a list of names: ['invoice']"),
        *(
            ({"a": "sqlite://", "b": "sqlite://"}, {"examples": examples}, "expected a whole number, 0 or more")
            for examples in (-1, True, 2.5, "3")
        ),
        ("sqlite://", {}, "expected URLs or engines, two or more"),
        ([None, None], {}, "a database is None, expected a URL or an Engine"),
        ([create_engine("sqlite:///a.db"), create_engine("sqlite:///a.db")], {}, "given twice"),
        ({"a": create_engine("sqlite:///a.db"), "b": "sqlite:///a.db"}, {}, "given twice"),
        (["sqlite://", "sqlite+aiosqlite://"], {}, "the asynchronous driver aiosqlite"),
    ],
    ids=[
        *("none", "one", "the same", "no table", "tables as text", "examples below 0", "examples as truth"),
        *(
            "half an example",
            "examples as text",
            "a text",
            "nothing",
            "engines of one URL",
            "names of one URL",
            "async",
        ),
    ],
)
def test_mistakes_are_told(databases: Any, options: dict[str, Any], message: str) -> None:
    """What cannot be compared is refused, with what to write instead."""
    with pytest.raises(ConfigurationError) as caught:
        merge_check(databases, **options)

    assert message in str(caught.value)


def run(*arguments: object) -> Any:
    return command.run("merge-check", *arguments)


def test_the_command_says_what_is_proven(filled: Databases) -> None:
    """The exit status is 0 where nothing clashes, and 1 where something does, in words and in JSON."""
    ids = [f"{number:012}" for number in range(6)]
    one = filled("sqlite", [{"id": key, "public_id": ids[2 * key]} for key in range(3)])
    apart = filled("sqlite", [{"id": 10 + key, "public_id": ids[2 * key + 1]} for key in range(3)])
    same = filled("sqlite", [{"id": 1, "public_id": ids[1]}])

    proven, clashing = run(one.url, apart.url), run(one.url, same.url, "--output", "json")

    assert (proven.exit_code, clashing.exit_code) == (0, 1)
    assert "key        id: the ranges lie apart" in proven.stdout
    assert "public id  public_id: 6 compared, no clashes" in proven.stdout
    assert json.loads(clashing.stdout)["tables"][0]["key"]["clashes"] == 1


def test_the_command_says_what_it_cannot_open(filled: Databases) -> None:
    """The exit status is 2, and one line says why."""
    result = run(filled("sqlite", []).url, "sqlite:////nowhere/at/all.db")

    assert result.exit_code == 2
    assert "there is no file '/nowhere/at/all.db'" in result.stderr
