"""Ids that a column holds already: how many are wrong, which of them a message shows, and what replaces them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine
from support.marks import SERVERS, on
from support.people import People, send

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import live_table, rows_of
from sqlalchemy_public_id.migrations.existing_ids import (
    count_duplicates,
    count_invalid,
    replace_duplicates,
    replace_invalid,
)
from sqlalchemy_public_id.migrations.rows import Rows

pytestmark = pytest.mark.backend

FORMAT = NanoId(length=9)
WITH_CHECK = NanoId(length=4, check_digit=True)
REPLACED = re.compile(r"(\S+): the row (.+) had '(.*)', and has '(.*)' now")


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """A connection in AUTOCOMMIT mode to a database with a table whose key has two columns."""
    people = People(engine)
    people.drop()
    people.execute(
        "CREATE TABLE person (tenant_id integer NOT NULL, number integer NOT NULL, public_id varchar(9), "
        "PRIMARY KEY (number, tenant_id))"
    )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield connection
    people.drop()


def write(connection: Connection, *rows: tuple[int, int, str | None]) -> None:
    for tenant, number, id in rows:
        value = "NULL" if id is None else "'{}'".format(id.replace("'", "''"))
        send(connection, f"INSERT INTO person VALUES ({tenant}, {number}, {value})")


def stored(connection: Connection) -> dict[tuple[int, int], str | None]:
    """Return tenant and number → id."""
    return {(tenant, number): id for tenant, number, id in send(connection, "SELECT * FROM person")}


def rows(connection: Connection, format: Format = FORMAT, *others: str) -> Rows:
    return rows_of(live_table(connection, PublicIdColumn.of("person", format=format, unique_with=others)))


def test_number_of_duplicates(connection: Connection) -> None:
    """An id counts once, however many rows share it; rows without an id share none; at most three ids are shown."""
    write(connection, *((tenant, number, "abcde"[number]) for number in range(5) for tenant in range(3)))
    write(connection, (1, 50, None), (1, 51, None), (1, 52, "z"))
    number, examples = count_duplicates(rows(connection))

    assert (number, len(examples), len({*examples})) == (5, 3, 3)
    assert {*examples} <= {*"abcde"}


def test_number_of_duplicates_of_a_tenant(connection: Connection) -> None:
    """Ids that are unique with a tenant may be equal in two tenants, and not in one."""
    write(connection, (1, 1, "a"), (2, 2, "a"), (1, 3, "b"), (1, 4, "b"), (2, 5, "b"))

    assert count_duplicates(rows(connection, FORMAT, "tenant_id")) == (1, ["b"])
    assert count_duplicates(rows(connection))[0] == 2


@pytest.mark.parametrize("others", [(), ("tenant_id",)])
def test_replaced_duplicates(connection: Connection, caplog: pytest.LogCaptureFixture, others: tuple[str, ...]) -> None:
    """The row with the smallest key keeps the id; each other one is logged with its key, its old and its new id."""
    write(connection, (2, 7, "a"), (1, 7, "a"), (1, 3, "a"), (3, 9, "b"), (1, 1, None), (1, 2, None))
    with caplog.at_level(logging.WARNING, "sqlalchemy_public_id"):
        number = replace_duplicates(rows(connection, FORMAT, *others), "refuse")
    found = stored(connection)
    moved = {(1, 7)} if others else {(1, 7), (2, 7)}

    assert number == len(moved) == len(caplog.messages)
    assert {key: id for key, id in found.items() if key not in moved} == {
        (1, 3): "a",
        (3, 9): "b",
        (1, 1): None,
        (1, 2): None,
        **({(2, 7): "a"} if others else {}),
    }
    said = [match.groups() for match in map(REPLACED.fullmatch, caplog.messages) if match]
    assert sorted(said) == sorted(("person.public_id", f"7, {key[0]}", "a", found[key]) for key in moved)
    assert all(FORMAT.is_valid(found[key]) and found[key] != "a" for key in moved)


@pytest.mark.parametrize("format", [NanoId(length=5), WITH_CHECK], ids=["judged by the database", "by Python"])
def test_number_of_invalid_ids(connection: Connection, format: Format) -> None:
    """Each row with an invalid id counts, and none without an id; at most three ids are shown, from the beginning."""
    good = format.generate()
    write(connection, *((1, number, f"bad{number}") for number in range(1, 6)), (1, 6, good), (1, 7, None))
    number, examples = count_invalid(rows(connection, format))

    assert (number, len(examples)) == (5, 3)
    assert {*examples} <= {f"bad{number}" for number in range(1, 6)}


@on("sqlite", "mysql", "mariadb")
@pytest.mark.parametrize("format", [NanoId(length=5), WITH_CHECK], ids=["judged by the database", "by Python"])
def test_sample(connection: Connection, format: Format) -> None:
    """A sample has the first rows, by their keys; one that is larger than the table has all of them."""
    write(connection, *((1, number, f"bad{number}") for number in range(1, 10)))
    found = {size: count_invalid(rows(connection, format), sample=size)[0] for size in (1, 3, 8, 9, 10, 1000)}

    assert found == {1: 1, 3: 3, 8: 8, 9: 9, 10: 9, 1000: 9}
    assert count_invalid(rows(connection, format), sample=1)[1] == ["bad1"]


@pytest.mark.parametrize("format", [NanoId(length=4), WITH_CHECK], ids=["judged by the database", "by Python"])
def test_replaced_invalid_ids(connection: Connection, caplog: pytest.LogCaptureFixture, format: Format) -> None:
    """Invalid ids are replaced and logged; valid ones, and rows without an id, stay as they are."""
    good = format.generate()
    write(connection, (1, 1, good), (2, 2, "no"), (3, 3, None), (1, 4, "it's"))
    with caplog.at_level(logging.WARNING, "sqlalchemy_public_id"):
        assert replace_invalid(rows(connection, format), "refuse") == 2
    found = stored(connection)

    assert (found[1, 1], found[3, 3]) == (good, None)
    assert format.is_valid(found[2, 2])
    assert format.is_valid(found[1, 4])
    assert caplog.messages[0] == f"person.public_id: the row 2, 2 had 'no', and has {found[2, 2]!r} now"
    assert f'the row 4, 1 had "it\'s", and has {found[1, 4]!r} now' in caplog.messages[1]
    assert count_invalid(rows(connection, format)) == (0, [])


@on(*SERVERS)
def test_id_that_is_changed_meanwhile(
    connection: Connection, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A row whose id another program changes in this moment keeps that id, and is not counted."""
    write(connection, (1, 1, "a"), (1, 2, "a"), (1, 3, "a"))
    generate = NanoId.generate

    def meanwhile(format: NanoId) -> str:
        with engine.begin() as other:
            send(other, "UPDATE person SET public_id = 'z' WHERE number = 2")
        return generate(format)

    monkeypatch.setattr(NanoId, "generate", meanwhile)
    assert replace_duplicates(rows(connection), "refuse") == 1
    found = stored(connection)

    assert (found[1, 1], found[1, 2]) == ("a", "z")
    assert found[1, 3] not in {"a", "z"}
    assert "the row 2, 1" not in caplog.text
