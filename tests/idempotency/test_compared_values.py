"""Which values ``insert_once()`` considers equal: those that type and column convert to the same value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import JSON, MetaData, func
from sqlalchemy.orm import Session
from support.forms import Base, Colour, is_repetition
from support.marks import SERVERS

pytestmark = pytest.mark.backend

ID = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
NOON = datetime(2024, 5, 17, 12)
FRACTION = timedelta(seconds=0.9)
UTC, EAST = timezone.utc, timezone(timedelta(hours=9))


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    create(Base.metadata)
    return session


ALL = ("sqlite", *SERVERS)
NOON_UTC = NOON.replace(tzinfo=UTC)
MICROSECONDS = datetime(2024, 5, 17, 12, 0, 0, 123456)

Rows = dict[str, list[tuple[Any, Any]]]
"""Attribute → pairs of the first value and the value that is sent again."""

SAME: Rows = {
    "number": [(5, 5.0), (None, None)],
    "big": [(2**63 - 1, 2**63 - 1)],
    "named": [("no. 5", "5")],
    "price": [("9.99", Decimal("9.990")), (7, Decimal(7))],
    "fixed": [("EUR", "EUR  ")],
    "loose": [("a", "a")],
    "note": [
        ("  ü 𝄞 ' \\ % :x ", "  ü 𝄞 ' \\ % :x "),
        (func.lower("ADA"), func.lower("EVE")),  # expressions are not compared
    ],
    "folded": [("Ada", "ADA")],
    "colour": [(Colour.RED, "RED")],
    "data": [
        ([5], [5.0]),
        ({1: (1, 2)}, {1: (1, 2)}),
        ({"b": [1, 2.5, None], "a": {"ü": True}}, {"a": {"ü": True}, "b": [1, 2.5, None]}),
        (JSON.NULL, JSON.NULL),
    ],
    "photo": [(b"\xff\xd8", b"\xff\xd8")],
    "packed": [(str(ID), ID), (ID, str(ID).upper())],
    "padded": [(b"\xff", b"\xff")],
    "flags": [(5, 5)],
    "stamp": [(MICROSECONDS, MICROSECONDS)],
}
CHANGED: Rows = {
    name: [(value, value) for value in values]
    for name, values in {
        "any_number": [Decimal("10.4"), 1 / 3],
        "whole_number": [Decimal("10.4"), Decimal("10.5")],
        "price": [Decimal("9.995"), Decimal("12345678901234567890.12")],
        "price_as_float": [2 / 3],
        "plain": [1234567.8912, 1e-30],
        "double": [1 / 3, 1.7976931348623157e308, Decimal("0.1")],
        "double_as_decimal": [Decimal(1) / 3],
        "real": [1 / 3],
        "precise": [1 / 3],
        "absolute": [-1 / 3],
        "at": [NOON + FRACTION, date(2024, 5, 17)],
        "at_zone": [NOON_UTC + FRACTION, NOON + FRACTION],
        "at_milliseconds": [NOON + timedelta(microseconds=1999), NOON + timedelta(microseconds=499)],
        "at_seconds": [NOON + FRACTION],
        "day": [NOON],
        "clock": [time(12, 0, 0, 900000)],
        "lasted": [timedelta(days=3, seconds=1) + FRACTION, -FRACTION],
        "data": [{"a": [1, 1.0, True, None, "ü", 1e20, 2**53]}],
    }.items()
}
"""Values that a column may store differently."""
OTHER: Rows = {
    "number": [("5", 6), (None, "5"), (None, 0), (0, None), (1, "10")],
    "big": [(2**62, "4611686018427387905")],
    "named": [("no. 5", "6")],
    "price": [(Decimal(10), Decimal("10.4"))],
    "price_as_float": [(10.0, 10.01)],
    "whole_number": [(Decimal(10), Decimal(11))],
    "any_number": [(Decimal(10), Decimal(11))],
    "plain": [(1.5, 1.50002), (None, 1.5)],
    "double": [(1700000000.0, 1700005000.0), (1.0, 1.0000000001)],
    "double_as_decimal": [(Decimal(1700000000), Decimal(1700005000))],
    "real": [(1.5, 1.50002)],
    "single": [(1.5, 1.50002)],
    "precise": [(1700000000.0, 1700005000.0)],
    "absolute": [(1.5, -1.50002)],
    "name": [(5, "5 "), ("05", 5), ("5.0", 5), ("a", "A"), ("", None), ("None", None), ("true", 1), ("é", "e")],
    "note": [("1", "1 ")],
    "fixed": [("5", 50)],
    "loose": [("a", "A"), ("5 ", 5)],
    "folded": [("ada", "eve")],
    "colour": [(Colour.RED, Colour.BLUE)],
    "at": [(NOON, NOON + timedelta(seconds=1)), (datetime(2024, 5, 17), date(2024, 5, 18))],
    "at_zone": [(NOON_UTC, NOON_UTC + timedelta(seconds=1))],
    "at_milliseconds": [(NOON, NOON + timedelta(milliseconds=1))],
    "day": [(date(2024, 5, 17), datetime(2024, 5, 18, 12))],
    "clock": [(time(12), time(12, 0, 1))],
    "lasted": [(timedelta(seconds=1), timedelta(seconds=2))],
    "data": [([1, 2], [1]), ([], {}), ({"a": None}, {}), ({"a": "5"}, {"a": 5})],
    "photo": [(b"\xff\xd8", b"\x89PNG")],
    "packed": [(str(ID), str(ID).replace("6", "7"))],
    "padded": [(b"\xff", b"\xfe"), (b"\xff\x01", b"\xff\x02")],
    "flags": [(5, 6)],
    "stamp": [(MICROSECONDS, MICROSECONDS + timedelta(microseconds=1111))],
}
"""Different values, even if a collation considers some of them equal."""
EXACT: Rows = {
    "any_number": [(Decimal(10), Decimal("10.4")), (Decimal("10.5"), Decimal(11))],
    "plain": [(1700000000.0, 1700000001.0)],
    "at": [
        (NOON, NOON + FRACTION),
        (NOON, NOON + timedelta(microseconds=1)),
        (NOON + timedelta(milliseconds=1), NOON + timedelta(microseconds=1900)),
    ],
    "at_zone": [(NOON_UTC, NOON_UTC + FRACTION)],
    "clock": [(time(12), time(12, 0, 0, 900000))],
    "lasted": [(timedelta(seconds=1), timedelta(seconds=1) + FRACTION)],
}
"""Values with different last digits, which these databases store and others round."""
TIMES: Rows = {
    "day": [
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01", date(2024, 1, 1)),
        (date(2024, 1, 1), "2024-01-01"),
        ("2024-01-01 05:00:00", "2024-01-01"),
    ],
    "at": [
        ("2024-01-01T05:00:00", datetime(2024, 1, 1, 5)),
        ("2024-01-01T05:00:00.9", "2024-01-01T05:00:00.9"),
        ("2024-01-01", date(2024, 1, 1)),
    ],
    "clock": [("12:30", time(12, 30))],
}
"""Times as text, which SQLite does not accept."""
OTHER_TIMES: Rows = {
    "day": [("2024-01-01", "2024-01-02"), ("2024-01-01", None)],
    "at": [(datetime(2024, 1, 1, 5), "2024-01-01 05:00:01")],
    "clock": [("12:30", "12:31")],
}
INSTANT = "2024-05-17T14:00:00+02:00"
OF_POSTGRESQL: Rows = {
    "single": [(float("inf"), float("inf")), (float("nan"), float("nan"))],
    "double": [(float("nan"), float("nan"))],
    "any_number": [(Decimal("NaN"), Decimal("NaN"))],
    "at_zone": [
        (INSTANT, INSTANT),
        (INSTANT, "2024-05-17T12:00:00Z"),
        (INSTANT, datetime(2024, 5, 17, 21, tzinfo=EAST)),
    ],
    "ticket": [(str(ID), str(ID).upper()), (str(ID), ID)],
    "address": [(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.1")), ("10.0.0.1", "10.0.0.1")],
    "machine": [("08-00-2B-01-02-03", "08:00:2b:01:02:03")],
    "numbers": [(["1", "2"], (1, 2))],
    "binary": [({"a": 1e25, "b": 1}, {"b": 1, "a": 10**25})],
}
OTHER_OF_POSTGRESQL: Rows = {
    "double": [(float("nan"), 1.0), (1.0, float("nan"))],
    "single": [(float("inf"), float("-inf"))],
    "any_number": [(Decimal(1), Decimal("1." + "0" * 40 + "1"))],
    "at_zone": [(INSTANT, "2024-05-17T14:00:00+03:00"), (INSTANT, "2024-05-17T12:00:00.000001Z")],
    "ticket": [(ID, str(ID).replace("6", "7")), (None, str(ID))],
    "address": [("10.0.0.1", "10.0.0.2")],
    "machine": [("08-00-2B-01-02-03", "08:00:2b:01:02:04")],
    "numbers": [((1, 2), (1, 3)), ((1, 2), (1, 2, 3))],
    "binary": [({"a": 10**25}, {"a": 10**25 + 1})],
}
OF_SQLITE: Rows = {"number": [(5, "5x"), (5, "5.7"), ("x", 0), (50, "5_0")], "name": [("5", b"5")]}
"""SQLite stores text in columns of any type, and a CAST would read a number from it."""
SINGLE: Rows = {"single": [(1234567.8912, 1234567.8912), (1 / 3, 1 / 3)]}

CASES: dict[str, tuple[tuple[str, ...], bool, Rows]] = {
    "the same for type and column": (ALL, True, SAME),
    "changed by the column": (ALL, True, CHANGED),
    "of single precision": (ALL, True, SINGLE),
    "other": (ALL, False, OTHER),
    "other in the last digits": (("sqlite", "postgresql"), False, EXACT),
    "no numbers": (("sqlite",), False, OF_SQLITE),
    "times as texts": (SERVERS, True, TIMES),
    "other times as texts": (SERVERS, False, OTHER_TIMES),
    "types of PostgreSQL": (("postgresql",), True, OF_POSTGRESQL),
    "other of types of PostgreSQL": (("postgresql",), False, OTHER_OF_POSTGRESQL),
}


@pytest.mark.parametrize(
    ("database", "what"),
    [(database, what) for what, (databases, *_) in CASES.items() for database in databases],
    indirect=["database"],
)
def test_values(db: Session, what: str) -> None:
    """Values are equal if type and column convert them to the same value in the database; others conflict."""
    _, is_same, rows = CASES[what]

    pairs = [(attribute, *pair) for attribute, values in rows.items() for pair in values]
    assert [pair for pair in pairs if is_repetition(db, *pair) is not is_same] == []
