"""``merge_check`` and the types of columns: what databases pad, sort in their own way, or take for the same."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from marks import on, since_mariadb
from sqlalchemy import CHAR, UUID, Column, Engine, Integer, LargeBinary, MetaData, String, Table, insert, text
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.pool import NullPool

from sqlalchemy_public_id.merging import Comparison, merge_check

pytestmark = pytest.mark.backend

Databases = Callable[..., Engine]


@pytest.fixture
def filled(new_engine: Callable[..., Engine]) -> Iterator[Databases]:
    """Make a database of the kind that has a table with public ids of a type."""
    made: list[tuple[Engine, Table]] = []

    def make(database: str, type_: Any, *ids: Any) -> Engine:
        table = Table(
            "merged_value", MetaData(), Column("id", Integer, primary_key=True), Column("public_id", type_, index=False)
        )
        engine = new_engine(database, poolclass=NullPool)
        table.drop(engine, checkfirst=True)
        table.create(engine)
        made.append((engine, table))
        with engine.begin() as connection:
            connection.execute(insert(table), [{"public_id": each} for each in ids])
        return engine

    yield make
    for engine, table in made:
        table.drop(engine)


def compared(one: Engine, other: Engine) -> Comparison:
    (table,) = merge_check({"one": one, "other": other}, tables=["merged_value"]).tables
    return table.public_id


@since_mariadb(10, 7, "UUID")
@on("postgresql", "mariadb")
def test_native_uuids_are_in_one_order(engine: Engine, filled: Databases) -> None:
    """UUIDs that a database sorts by their last part are compared with those of others, and none is missed."""
    ids = [
        uuid.UUID(f"{first}0000000-0000-4000-8000-00000000000{last}")
        for first, last in ((5, 1), (9, 2), (6, 3), (1, 9))
    ]
    as_bytes = [each.bytes for each in ids]

    found = compared(filled(engine.dialect.name, UUID(), *ids), filled("sqlite", LargeBinary(16), *as_bytes))

    assert (found.proof, found.clashes) == ("compared", 4)


def test_padding_is_no_difference(database: str, filled: Databases) -> None:
    """An id in a ``CHAR`` is the same as in a ``VARCHAR``, whether the database sends the padding or not."""
    plain = String(12).with_variant(String(12, "ascii_bin"), "mysql", "mariadb")
    padded = CHAR(12).with_variant(CHAR(12, "ascii_bin"), "mysql", "mariadb")

    found = compared(filled(database, padded, "abc", "bcd", "x"), filled("sqlite", plain, "abc", "x", "z"))

    assert [clash.value for clash in found.examples] == ["abc", "x"]


@on("mysql", "mariadb", "postgresql")
def test_collations_that_ignore_case_are_not_comparable(engine: Engine, filled: Databases) -> None:
    """Where a column does not tell upper case apart, ids that differ byte by byte may be the same: that is said."""
    name = engine.dialect.name
    with engine.begin() as connection:
        if name == "postgresql":
            if not connection.scalar(text("SELECT 1 FROM pg_available_extensions WHERE name = 'citext'")):
                pytest.skip("this server has no citext")
            connection.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS citext")
    type_: Any = postgresql.CITEXT() if name == "postgresql" else mysql.VARCHAR(12, collation="utf8mb4_general_ci")

    found = compared(filled(name, type_, "ABC"), filled("sqlite", String(12), "abc"))

    assert found.proof == "not comparable"
    assert "does not distinguish upper case from lower case" in found.reason
    assert "citext" in found.reason or "utf8mb4_general_ci" in found.reason


@on("mysql", "mariadb")
def test_the_collation_of_the_table_counts(engine: Engine, filled: Databases) -> None:
    """A column that says no collation has that of its table, and is judged by it."""
    found = compared(filled(engine.dialect.name, String(12), "ABC"), filled("sqlite", String(12), "abc"))

    assert found.proof == "not comparable"
    assert "_ci of merged_value.public_id in one does not distinguish upper case" in found.reason


@on("mysql", "mariadb")
def test_an_order_that_is_not_that_of_bytes_is_said(engine: Engine, filled: Databases) -> None:
    """Where values do not come in the order of bytes, as control characters behind padding, nothing is proven."""
    type_ = mysql.VARCHAR(12, collation="utf8mb4_bin")

    found = compared(filled(engine.dialect.name, type_, "a", "a\x01", "b"), filled("sqlite", String(12), "a", "b"))

    assert found.proof == "not comparable"
    assert "does not send merged_value.public_id byte by byte in order" in found.reason


def test_values_of_another_type_are_not_comparable(filled: Databases) -> None:
    """SQLite keeps a text in a column of numbers: then there is no order, and that is said."""
    one, other = filled("sqlite", Integer(), 5), filled("sqlite", Integer(), 5)
    for engine in (one, other):
        with engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO merged_value (public_id) VALUES ('abc')")

    found = compared(one, other)

    assert found.proof == "not comparable"
    assert "one has 'abc' in merged_value.public_id, which is INTEGER()" in found.reason
