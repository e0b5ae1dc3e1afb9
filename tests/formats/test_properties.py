"""Tests for every format, and for every text that is validated as an id."""

from __future__ import annotations

import gc
import pickle
import re
import sys
import timeit
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import StringConstraints, TypeAdapter
from support.every_format import one_of_each
from support.strategies import any_text, formats, nanoids, settings, texts

from sqlalchemy_public_id import (
    ConfigurationError,
    Format,
    InvalidPublicId,
    NanoId,
    TypedId,
    Uuid7,
)
from sqlalchemy_public_id.formats import BASE36
from sqlalchemy_public_id.formats.parse import parse


def holds(format: Format) -> None:
    """Assert everything that a format guarantees about itself and its ids."""
    own = [*format.generate_many(5), format.generate()]

    for text in own:
        assert format.validate(text) == text
        assert format.is_valid(text)
        assert len(text) == format.forms[0].max_length <= format.max_length
        assert re.search(format.pattern, text)
        if format.prefix is not None:
            prefix, separator, body = text.rpartition(format.separator)
            assert (prefix, separator) == (format.prefix, format.separator)
            assert body
    for twin in (parse(repr(format)), pickle.loads(pickle.dumps(format))):
        assert twin == format
        assert hash(twin) == hash(format)
    assert format.capacity >= 1
    assert format.entropy_bits >= 0


@given(settings())
def test_any_settings(arguments: dict[str, Any]) -> None:
    """Any settings either raise ConfigurationError or make a format that keeps its guarantees."""
    try:
        format = NanoId(**arguments)
    except ConfigurationError:
        return
    holds(format)


@given(formats())
def test_any_format(format: Format) -> None:
    """A format with valid settings keeps its guarantees, even if it accepts older formats."""
    holds(format)


@given(nanoids(), nanoids())
def test_two_formats(new: NanoId, old: NanoId) -> None:
    """Formats are equal if their settings are; a format accepts the ids of an older one, and generates its own."""
    format = new.accepting(old)

    assert (new == old) == (repr(new) == repr(old))
    assert format.is_valid(old.generate())
    assert new.is_valid(format.generate())
    assert format.max_length == max(new.max_length, old.max_length)


class Text(str):
    """A subclass of ``str``."""


@given(st.data())
def test_any_text(data: st.DataObject) -> None:
    """Any text, whatever its class, is valid and returned unchanged, or raises InvalidPublicId with the text."""
    format = data.draw(formats())
    text = data.draw(texts(format))
    if format.is_valid(text):
        assert format.validate(text) == format.validate(Text(text)) == text
    else:
        assert not format.is_valid(Text(text))
        with pytest.raises(InvalidPublicId) as raised:
            format.validate(text)
        assert raised.value.value is text
        assert len(str(raised.value)) < 10_000


@given(st.data())
def test_pattern(data: st.DataObject) -> None:
    """Without a check digit, the pattern matches exactly the valid ids, in Python and in pydantic's engine."""
    format = data.draw(formats(check_digits=False))
    text = data.draw(texts(format).filter(lambda text: not text.endswith("\n")))  # in Python, $ may precede it
    rust = TypeAdapter(Annotated[str, StringConstraints(pattern=format.pattern)]).validator

    assert format.is_valid(text) == bool(re.search(format.pattern, text)) == rust.isinstance_python(text)


@given(st.text(BASE36, min_size=12, max_size=12), any_text)
def test_any_typed_text(body: str, text: str) -> None:
    """A typed id equals its text; any other text raises InvalidPublicId."""
    assert FerryId(f"ferry_{body}") == TypedId.parse(f"ferry_{body}") == f"ferry_{body}"
    for check in (FerryId, TypedId.parse):
        with pytest.raises(InvalidPublicId) as raised:
            check(text)
        assert raised.value.value is text


class FerryId(TypedId, prefix="ferry"): ...


# --- performance


@pytest.mark.parametrize("lead", ["", "ferry_", "nobody_"])
@pytest.mark.parametrize("ask", [FerryId.id_format.is_valid, FerryId.id_format.validate, FerryId, TypedId.parse])
def test_constant_time(ask: Callable[[str], object], lead: str) -> None:
    """Validation time does not grow with the length of a text that is too long."""

    def seconds(text: str) -> float:
        """Return the shortest duration of many calls, which other processes have not slowed down."""

        def call() -> None:
            with suppress(InvalidPublicId):
                ask(text)

        return min(timeit.repeat(call, number=1, repeat=50))

    # linear time would take ten thousand times as long
    assert seconds(lead + "a" * 10**7) < 10 * seconds(lead + "a" * 1000)


CONSTRUCTORS: list[Callable[[], Format]] = [
    lambda: NanoId(prefix="cus", check_digit=True),
    lambda: Uuid7(encoding="hyphenated"),
    *(partial(type(each), **each._settings()) for each in one_of_each()),
]


@pytest.mark.parametrize("make", CONSTRUCTORS, ids=lambda make: type(make()).__name__)
def test_price_of_a_constructor(make: Callable[[], Format]) -> None:
    """A format like an earlier one takes some 50 to 100 calls (10 to 20 µs), because its pattern is cached."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")  # unlike time, the number of calls is the same in every run

    make()
    gc.disable()  # finalizers of other tests' objects would count
    sys.setprofile(count)
    try:
        make()
    finally:
        sys.setprofile(None)
        gc.enable()

    assert calls < 120
