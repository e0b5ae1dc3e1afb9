"""What holds for every format, and for every text that is taken for an id."""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import StringConstraints, TypeAdapter
from support.strategies import any_text, formats, junk, nanoids, settings, texts

from sqlalchemy_public_id import ConfigurationError, Format, InvalidPublicId, NanoId, TypedId
from sqlalchemy_public_id.formats import BASE36


def holds(format: Format) -> None:
    """All that a format promises of itself and of the ids it makes."""
    own = [*format.generate_many(5), format.generate()]

    for text in own:
        assert format.validate(text) == text
        assert format.is_valid(text)
        assert len(text) <= format.max_length
        assert re.search(format.pattern, text)
        if format.prefix is not None:
            prefix, separator, body = text.rpartition(format.separator)
            assert (prefix, separator) == (format.prefix, format.separator)
            assert body
    assert eval(repr(format), {"NanoId": NanoId}) == format
    assert pickle.loads(pickle.dumps(format)) == format
    assert format.capacity >= 1
    assert format.entropy_bits >= 0


@given(settings())
def test_any_settings(arguments: dict[str, Any]) -> None:
    """Any settings at all are refused as such, or give a format that keeps its promises."""
    try:
        format = NanoId(**arguments)
    except ConfigurationError:
        return
    holds(format)


@given(formats())
def test_any_format(format: Format) -> None:
    """A format with sound settings keeps its promises, also where it accepts older ones."""
    holds(format)


@given(nanoids())
def test_max_length(format: Format) -> None:
    """Every id of a format that accepts no others is as long as the maximum."""
    assert {len(text) for text in format.generate_many(20)} == {format.max_length}


@given(nanoids(), nanoids())
def test_accepting(new: NanoId, old: NanoId) -> None:
    """A format that accepts another accepts every id of both, and makes its own."""
    format = new.accepting(old)

    assert format.is_valid(old.generate())
    assert new.is_valid(format.generate())
    assert format.max_length == max(new.max_length, old.max_length)


@given(nanoids(), nanoids())
def test_equal_formats(one: NanoId, other: NanoId) -> None:
    """Formats are equal where their settings are, and equal ones have one hash."""
    assert (one == other) == (repr(one) == repr(other))
    assert hash(one) == hash(pickle.loads(pickle.dumps(one)))


@given(st.data())
def test_any_text(data: st.DataObject) -> None:
    """Any text at all validates to itself, or raises InvalidPublicId with the text in it, and nothing else."""
    format = data.draw(formats())
    text = data.draw(texts(format))
    if format.is_valid(text):
        assert format.validate(text) == text
    else:
        with pytest.raises(InvalidPublicId) as raised:
            format.validate(text)
        assert raised.value.value is text
        assert len(str(raised.value)) < 10_000


@given(st.data())
def test_pattern(data: st.DataObject) -> None:
    """The pattern accepts what the format accepts, the check digit aside: in Python, and in the engine of pydantic."""
    format = data.draw(formats(check_digits=False))
    text = data.draw(texts(format).filter(lambda text: not text.endswith("\n")))  # to Python alone, $ may precede it
    rust = TypeAdapter(Annotated[str, StringConstraints(pattern=format.pattern)]).validator

    assert format.is_valid(text) == bool(re.search(format.pattern, text)) == rust.isinstance_python(text)


@given(st.text(BASE36, min_size=12, max_size=12), any_text)
def test_any_typed_text(body: str, text: str) -> None:
    """A typed id equals the text it was made of; any other text is refused as the malformed id it is."""
    assert FerryId(f"ferry_{body}") == TypedId.parse(f"ferry_{body}") == f"ferry_{body}"
    for check in (FerryId, TypedId.parse):
        with pytest.raises(InvalidPublicId) as raised:
            check(text)
        assert raised.value.value is text


class FerryId(TypedId, prefix="ferry"): ...


@given(formats(), junk.filter(lambda value: not isinstance(value, str)))
def test_no_text(format: Format, value: object) -> None:
    """What is no text is never valid, and is refused with the same error."""
    assert format.is_valid(value) is False
    with pytest.raises(InvalidPublicId) as raised:
        format.validate(value)

    assert raised.value.value is value


class Text(str):
    """A text with a type of its own."""


@given(formats(), any_text)
def test_text_of_another_str_type(format: Format, text: str) -> None:
    """A subclass of str is judged by its text."""
    made = format.generate()

    assert format.validate(Text(made)) == made
    assert format.is_valid(text) == format.is_valid(Text(text))


LONG = 10**7
"""Ten megabytes."""


@pytest.mark.parametrize("character", ["a", "_", "\n", "\0", "\ud800", "🙈"], ids=ascii)
@pytest.mark.parametrize("format", [NanoId(), NanoId(prefix="cus", check_digit=True).accepting(NanoId())], ids=repr)
def test_ten_megabytes(format: Format, character: str) -> None:
    """A text of ten megabytes is refused as any other."""
    text = character * LONG
    with pytest.raises(InvalidPublicId) as raised:
        format.validate(text)

    assert not format.is_valid(text)
    assert raised.value.value is text


@pytest.mark.parametrize("lead", ["", "cus_", "nobody_"])
@pytest.mark.parametrize("ask", [FerryId.id_format.is_valid, FerryId.id_format.validate, FerryId, TypedId.parse])
def test_constant_time(ask: Callable[[str], object], lead: str) -> None:
    """Beyond the maximum, a text that is ten thousand times as long takes no longer."""

    def seconds(text: str) -> float:
        best = float("inf")
        for _ in range(50):  # the fastest of many, which no other process has disturbed
            began = time.perf_counter()
            with suppress(InvalidPublicId):
                ask(text)
            best = min(best, time.perf_counter() - began)
        return best

    shorter, longer = seconds(lead + "a" * 1000), seconds(lead + "a" * LONG)

    assert longer < 10 * shorter  # linear time would be ten thousand times
