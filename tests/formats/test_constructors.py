"""What it costs to write a format down: models, tests and services do so wherever they need one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from sqlalchemy_public_id import Format, JetifyTypeId, NanoId, ObjectId, Snowflake, Ulid, Uuid4, Uuid7

CONSTRUCTORS: dict[str, Callable[[], Format]] = {
    "NanoId()": NanoId,
    "NanoId(prefix='cus', check_digit=True)": lambda: NanoId(prefix="cus", check_digit=True),
    "ObjectId()": ObjectId,
    "Snowflake(machine_id=1)": lambda: Snowflake(machine_id=1),
    "JetifyTypeId('cus')": lambda: JetifyTypeId("cus"),
    "Ulid()": Ulid,
    "Uuid4()": Uuid4,
    "Uuid7()": Uuid7,
    "Uuid7(encoding='hyphenated')": lambda: Uuid7(encoding="hyphenated"),
}


def calls(make: Callable[[], Any]) -> int:
    """Return how many functions are called by *make*, those of C included: unlike time, the same on every run."""
    number = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        make()
    finally:
        sys.setprofile(None)
    return number


@pytest.mark.parametrize("make", CONSTRUCTORS.values(), ids=list(CONSTRUCTORS))
def test_price_of_a_constructor(make: Callable[[], Format]) -> None:
    """A format like one that was made before costs some 50 calls (10 µs): its pattern is not put together again."""
    first = make()

    assert calls(make) < 100
    assert make() == first
