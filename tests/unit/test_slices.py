"""The slices of an ``executemany`` on MySQL and MariaDB: each is one statement of the driver."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysql.converters import encoders, escape_item

from sqlalchemy_public_id.guard.retry import _slices

PLAIN = "INSERT INTO t (a, b) VALUES (%(a)s, %(b)s)"
values = st.one_of(
    st.text(max_size=60, alphabet=st.characters(exclude_categories=["Cs"])),
    st.none(),
    st.integers(-(2**63), 2**63),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.binary(max_size=60),
)
parts = st.lists(st.tuples(st.fixed_dictionaries({"a": values, "b": values}), st.integers(1, 130)), max_size=5)


def sliced(rows: list[Any], limit: int, statement: str = PLAIN) -> list[tuple[int, list[Any]]]:
    traits = SimpleNamespace(slice_bytes=lambda driver: limit + len(statement))
    guarded: Any = SimpleNamespace(traits=traits, dialect=SimpleNamespace(driver="pymysql"), statement=statement)
    return list(_slices(guarded, rows))


@given(parts, st.integers(0, 5000))
def test_slices(parts: list[tuple[dict[str, Any], int]], limit: int) -> None:
    """All rows in their order; none but single rows above the limit, however the driver escapes them."""
    rows = [row for row, times in parts for _ in range(times)]
    slices = sliced(rows, limit)

    assert [row for _, part in slices for row in part] == rows
    assert [first for first, _ in slices] == [sum(len(part) for _, part in slices[:at]) for at in range(len(slices))]
    for _, part in slices:
        literals = "".join(f"{escape_item(value, 'utf8mb4', encoders)},," for row in part for value in row.values())
        assert part
        assert len(part) == 1 or len(literals.encode(errors="surrogateescape")) <= limit


@pytest.mark.parametrize("value", ["a" * 20, 7, None, "ü" * 20, b"a" * 20])
def test_few_slices(value: object) -> None:
    """A slice is not much smaller than it may be."""
    rows = [{"a": value, "b": value}] * 1000

    assert len(sliced(rows, 10**6)) == 1
    assert 10 <= len(sliced(rows, 10_000)) <= 1000 * 2 * 90 // 10_000 + 2


def test_rows_that_the_driver_sends_one_by_one() -> None:
    """It does not know the statement as one of many rows."""
    rows = [{"a": "a", "b": 1}] * 250

    assert [len(part) for _, part in sliced(rows, 10**6, "INSERT INTO t SELECT %(a)s, %(b)s")] == [1] * 250
