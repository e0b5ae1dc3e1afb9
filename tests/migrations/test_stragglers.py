"""On SQLite, where the contract sets the default by a copy, it also gives ids to the rows of a live writer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, event
from support.people import People

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.errors import BackfillIncomplete, MigrationRefused


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    engine = create_engine(f"sqlite:///{tmp_path / 'live.db'}", connect_args={"timeout": 30})
    made = People(engine)
    made.create(200)
    yield made
    engine.dispose()


@pytest.mark.parametrize("spelled", ["public_id", "Public_ID"])
def test_rows_after_the_backfill(people: People, spelled: str) -> None:
    """The contract fills the few rows that were inserted after the backfill, however the table spells the column."""
    people.execute(f"ALTER TABLE person ADD COLUMN {spelled} VARCHAR(12)")
    people.run("expand_public_id")
    people.run("backfill_public_id")
    people.write(5)

    people.run("contract_public_id")

    people.check_complete(205)


@pytest.mark.parametrize(("rows", "check_digit"), [(0, False), (1001, False), (1, True)])
def test_rows_without_backfill(people: People, rows: int, check_digit: bool) -> None:
    """The contract does not fill many rows, or all of them, or any with check digits: the backfill has to run."""
    if check_digit:
        people.options.update(format=NanoId(check_digit=True), server_default="none")
    people.run("expand_public_id")
    if rows:
        people.run("backfill_public_id")
        people.write(rows)

    with pytest.raises(BackfillIncomplete):
        people.run("contract_public_id")


def test_share_of_a_large_table(people: People) -> None:
    """The contract of a large table fills one row in a hundred, and not one in twenty."""
    people.run("expand_public_id")
    people.write(40_000)
    people.run("backfill_public_id")
    people.write(2_000)

    with pytest.raises(BackfillIncomplete):
        people.run("contract_public_id")
    people.execute("DELETE FROM person WHERE public_id IS NULL AND id % 5 <> 0")  # the rest is one in a hundred
    people.run("contract_public_id")

    people.check_complete()


@pytest.mark.parametrize(
    ("operation", "options", "raises"),
    [
        ("contract_public_id", {}, True),
        ("contract_public_id", {"on_duplicate": "replace"}, False),
        ("add_public_id", {}, False),
    ],
)
def test_duplicate_after_the_preflight(people: People, operation: str, options: dict[str, str], raises: bool) -> None:
    """A duplicate written before the index is replaced with consent, or if the operation has generated all ids."""
    people.run("expand_public_id")
    if operation == "contract_public_id":
        people.run("backfill_public_id")
    writer, written = People(create_engine(people.engine.url)), list[str]()

    def write(connection: Connection, cursor: object, statement: str, *_: object) -> None:
        if statement == "BEGIN IMMEDIATE" and not written and None not in writer.ids():  # just before the index
            written.append(statement)
            writer.execute("UPDATE person SET public_id = 'izkpm55j334u' WHERE id IN (1, 2)")

    event.listen(people.engine, "before_cursor_execute", write)
    with pytest.raises(MigrationRefused, match="1 id is in several rows") if raises else nullcontext():
        people.run(operation, **options)
    writer.engine.dispose()

    assert people.ids()[0] == "izkpm55j334u"
    if raises:
        assert people.ids()[1] == "izkpm55j334u"
    else:
        people.check_complete(200)


def test_live_writer(people: People) -> None:
    """All rows of a program that keeps writing during the migration have an id in the end."""
    over, errors = threading.Event(), list[Exception]()

    def write() -> None:
        while not over.is_set():
            try:
                people.write(1)
            except Exception as error:
                errors.append(error)
            over.wait(0.005)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        people.add()
    finally:
        over.set()
        writer.join()

    assert errors == []
    people.check_complete()
