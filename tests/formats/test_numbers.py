"""Tests for every format whose ids are numbers: text and number, order, time, older formats."""

from __future__ import annotations

import copy
import itertools
import pickle
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import StringConstraints, TypeAdapter
from support.clocks import clock_at
from support.every_format import one_of_each
from support.forks import machine
from support.strategies import any_text

from sqlalchemy_public_id import (
    ConfigurationError,
    Format,
    InvalidPublicId,
    JetifyTypeId,
    Ksuid,
    NanoId,
    ObjectId,
    Snowflake,
    Ulid,
    Uuid4,
    Uuid7,
)
from sqlalchemy_public_id.errors import KeySpaceExhausted
from sqlalchemy_public_id.formats._bits import BitsFormat, TimedFormat
from sqlalchemy_public_id.formats.parse import parse

UUID_ENCODINGS = ("base36", "hyphenated", "hex", "base58", "crockford32")
PLAIN = [format for format in one_of_each(machine_id=machine) if isinstance(format, BitsFormat)]
TIMED: list[TimedFormat] = [format for format in PLAIN if isinstance(format, TimedFormat)]
FORMATS: list[BitsFormat] = [
    *PLAIN,
    *(Uuid7("post", encoding=encoding) for encoding in UUID_ENCODINGS),
    *(Uuid4("post", separator=".", encoding=encoding, storage="text") for encoding in UUID_ENCODINGS),
    JetifyTypeId("line_item"),
    Ulid("evt", storage="text"),
    Ksuid("evt", storage="native"),
    *(Snowflake(machine, prefix="s", encoding=encoding) for encoding in ("base36", "hex", "base58", "crockford32")),
    *(ObjectId("o", encoding=encoding) for encoding in ("base36", "base58", "crockford32")),
]

every_format = pytest.mark.parametrize("format", FORMATS, ids=lambda value: re.sub(" at 0x\\w+", "", repr(value)))
every_timed_format = pytest.mark.parametrize("format", TIMED, ids=lambda value: type(value).__name__)


# --- texts and numbers


@every_format
def test_promises(format: BitsFormat) -> None:
    """Ids are valid, have the maximum length, match the pattern, and fit in the number of bits."""
    texts = [format.generate(), *format.generate_many(100)]

    assert len(set(texts)) == 101
    for text in texts:
        assert format.is_valid(text)
        assert format.validate(text) == text
        assert len(text) == format.max_length
        assert re.search(format.pattern, text)
        assert 0 <= format.to_int(text) < 2**format.bits
        assert format.from_int(format.to_int(text)) == text


@pytest.mark.parametrize("format", [f for f in FORMATS if not isinstance(f, Snowflake)] + [Snowflake(7)], ids=repr)
def test_values(format: BitsFormat) -> None:
    """A copy is equal and has the same hash, and ``repr`` can be parsed; other settings make a different format."""
    forms = format, format.accepting(format), format.prefixed("other")
    twins = [
        [copy.deepcopy(form), pickle.loads(pickle.dumps(form)), form.prefixed(form.prefix), parse(repr(form))]
        for form in forms
    ]
    assert twins == [[form] * 4 for form in forms]
    assert [[*map(hash, each)] for each in twins] == [[hash(form)] * 4 for form in forms]
    assert len({*forms}) == 3


@every_format
def test_no_number_of_so_many_bits(format: BitsFormat) -> None:
    """A number that is negative or too large raises."""
    for number in (-1, 2**format._used, 2**200):
        with pytest.raises(InvalidPublicId, match="it is out of range"):
            format.from_int(number)


nonsense = st.sampled_from([None, 5, "x" * 10**6, "٣" * 19, "1_0" * 8 + "1"])


@given(st.sampled_from(FORMATS), st.data())
def test_any_value(format: BitsFormat, data: st.DataObject) -> None:
    """Any value is either valid or raises InvalidPublicId; an exact pattern matches the valid values only.

    The pattern is tested in Python and in pydantic's regular expression engine.
    """
    text = data.draw(nonsense | any_text | st.from_regex(format.pattern, alphabet=st.characters()))
    rust = TypeAdapter(Annotated[str, StringConstraints(pattern=format.pattern)]).validator
    if format.is_valid(text):
        assert format.from_int(format.to_int(text)) == format.validate(text)
        assert format.validate(format.validate(text)) == format.validate(text)
    else:
        for check in (format.validate, format.to_int):
            with pytest.raises(InvalidPublicId) as raised:
                check(text)
            assert raised.value.value is text
    if format.has_exact_pattern and isinstance(text, str) and not text.endswith("\n"):
        assert format.is_valid(text) == bool(re.search(format.pattern, text)) == rust.isinstance_python(text)


@pytest.mark.parametrize(
    ("format", "text", "reason"),
    [
        (Uuid7(), "f5lxx1zz5pnorynqglhzmsp34", "it is too large for 128 bits"),
        (Uuid7(), "g" + "0" * 24, "it is too large for 128 bits"),
        (Uuid7(), "0" * 25, "it is not a UUID of version 7"),
        (Uuid7(encoding="hyphenated"), "919108f7-52d1-4320-9bac-f847db4148a8", "it is not a UUID of version 7"),
        (Uuid4(encoding="hyphenated"), "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "it is not a UUID of version 4"),
        (Uuid4(encoding="hyphenated"), "919108f7-52d1-4320-cbac-f847db4148a8", "it is not a UUID of version 4"),
        (Uuid4(encoding="hyphenated"), "919108f7-52d1-43209-bac-f847db4148a8", "it contains other characters"),
        (Uuid4(encoding="base58"), "Z" + "1" * 21, "it is too large for 128 bits"),
        (Ulid(), "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "it is too large for 128 bits"),
        (Ulid(), "01ARZ3NDEKTSV4RRFFQ69G5FAU", "it contains other characters"),
        (Ksuid(), "aWgEPTl1tmebfsQzFP4bxwgy80W", "it is too large for 160 bits"),
        (Ksuid(), "b" + "0" * 26, "it is too large for 160 bits"),
        (Ksuid(), "aWgEPTl1tmebfsQzFP4bxwgy80!", "it contains other characters"),
        (Snowflake(1), "9223372036854775808", "it is too large for 63 bits"),
        (Snowflake(1), "922337203685477580", "it has 18 characters"),
        (ObjectId(encoding="base58"), "5qCHTcgbQwpvYZQ9d", "it is too large for 96 bits"),
    ],
)
def test_reason(format: BitsFormat, text: str, reason: str) -> None:
    """The error says what is wrong with an id."""
    with pytest.raises(InvalidPublicId) as raised:
        format.validate(text)

    assert raised.value.reason == reason


@pytest.mark.parametrize(
    ("format", "text"),
    [
        (Uuid4(encoding="hex"), "919108f752d143209bacf847db4148a8"),
        (Uuid4(encoding="hyphenated"), "919108f7-52d1-4320-9bac-f847db4148a8"),
        (Uuid7("a", encoding="hyphenated"), "a_017f22e2-79b0-7cc3-98c4-dc0c0c07398f"),
        (ObjectId(), "507f1f77bcf86cd799439011"),
        (Ulid(), "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        (Uuid7(encoding="crockford32"), "01FWHE4YDGFK1SHH6W1G60EECF"),
    ],
)
def test_capitals(format: BitsFormat, text: str) -> None:
    """If the specification ignores letter case, so does the format, except in the prefix."""
    lead, body = text[: len(format._lead)], text[len(format._lead) :]
    forms = [lead + form for form in (body, body.upper(), body.lower(), body[:9] + body[9:].swapcase())]
    assert [form for form in forms if not format.is_valid(form)] == []
    assert [(format.validate(form), format.to_int(form)) for form in forms] == [(text, format.to_int(text))] * 4
    if lead:
        assert not format.is_valid(text.upper())


# --- settings


EVERY = [partial(type(each), 1) if isinstance(each, Snowflake) else type(each) for each in PLAIN]
REFUSED: list[tuple[list[Any], dict[str, object], str]] = [
    (EVERY, {"prefix": "1a"}, "prefix '1a' is not allowed"),
    (EVERY, {"prefix": "a" * 250}, "255 or fewer|63"),
    (EVERY, {"storage": "bytes"}, "storage is 'bytes', expected 'native' or 'text'"),
    (EVERY, {"storage": ["text"]}, r"storage is \['text'\]"),
    ([Uuid7, Uuid4], {"encoding": "decimal"}, "encoding is 'decimal', expected one of 'base36', 'hyphenated'"),
    ([Uuid7, Uuid4], {"encoding": ["hex"]}, r"encoding is \['hex'\]"),
    ([Uuid7], {"prefix": "a", "separator": "x"}, "contains the separator 'x'"),
    ([Uuid7], {"prefix": "a", "separator": "-", "encoding": "hyphenated"}, "contains the separator '-'"),
    ([Uuid7], {"prefix": "a", "separator": "A", "encoding": "hex"}, "contains the separator 'A'"),
    ([Uuid7], {"prefix": "a", "separator": None}, "the separator None is not allowed"),
]


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [(make, settings, message) for classes, settings, message in REFUSED for make in classes],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_refused_settings(make: Callable[..., Format], settings: dict[str, object], message: str) -> None:
    """Invalid settings raise at once, such as a separator that occurs in the encoding."""
    with pytest.raises(ConfigurationError, match=message):
        make(**settings)


# --- order and time

CENTURY = datetime(2020, 1, 1, tzinfo=timezone.utc)


@every_timed_format
def test_ascending(format: TimedFormat) -> None:
    """Each id of a process sorts after all earlier ones, and contains the time of its generation."""
    began = datetime.now(timezone.utc)
    texts = [format.generate() for _ in range(20_000)] + format.generate_many(20_000) + [format.generate()]
    first, last = (format.timestamp(text) for text in (texts[0], texts[-1]))

    assert texts == sorted(set(texts))
    # an ObjectId and a KSUID count seconds, and its counter may overflow into the next one
    assert began - timedelta(seconds=1) <= first <= last <= datetime.now(timezone.utc) + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("format", "years"),
    [
        *((Uuid7(encoding=encoding), 100) for encoding in UUID_ENCODINGS),
        *((format, 100) for format in (JetifyTypeId(), Ulid(), Ksuid())),
        (ObjectId(), 86),
        (Snowflake(1), 69),
    ],
    ids=repr,
)
def test_a_century(format: TimedFormat, years: int) -> None:
    """Text order equals time order for ids across a century, or as long as the bits of the format last."""
    total = 5000
    step = years * 365 * 86_400 * 1000 // total
    with clock_at(CENTURY) as hands:
        texts = []
        for _ in range(total):
            texts.append(format.generate())
            hands.now += step

    assert texts == sorted(set(texts))
    late = [format.timestamp(text) - CENTURY - timedelta(milliseconds=at * step) for at, text in enumerate(texts)]
    assert timedelta(seconds=-1) <= min(late) <= max(late) <= timedelta(seconds=1)


@every_timed_format
def test_a_clock_that_stands_still(format: TimedFormat) -> None:
    """Ids ascend while the clock stands still or is a little behind, without running far ahead of it."""
    with clock_at(CENTURY + timedelta(seconds=1)) as hands:
        texts = format.generate_many(9000)
        hands.now -= 50
        texts += format.generate_many(10)

    assert texts == sorted(set(texts))
    assert format.timestamp(texts[-1]) - CENTURY < timedelta(seconds=2.2)  # an ObjectId's counter may overflow


@pytest.mark.parametrize(
    ("format", "milliseconds", "error"),
    [
        *((format, -1, ConfigurationError) for format in TIMED),
        # 48 bits of milliseconds last until 10889, longer than Python's calendar
        *((format, 2**48 if format.bits == 128 else 2**43, KeySpaceExhausted) for format in TIMED),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_a_clock_that_is_wrong(format: TimedFormat, milliseconds: int, error: type[Exception]) -> None:
    """A time that does not fit in the bits raises."""
    with clock_at(CENTURY) as hands, pytest.raises(error):
        hands.now = milliseconds
        format.generate()


@pytest.mark.parametrize(
    ("format", "text", "reason"),
    [
        (JetifyTypeId(), "0" * 26, "it has no time"),
        (Ulid(), "7" + "Z" * 25, "its time is after the year 9999"),
        (Uuid7(encoding="hex"), "ffffffffffff7fffbfffffffffffffff", "its time is after the year 9999"),
        (Uuid7().accepting(Uuid4(encoding="hex")), "919108f752d143209bacf847db4148a8", "it has no time"),
        (Uuid7(storage="text").accepting(NanoId()), "izkpm55j334u", "it has no time"),
        (Ulid(), "nonsense", "it has 8 characters"),
        (Ulid(), None, "it is of type NoneType"),
    ],
)
def test_no_time(format: TimedFormat, text: str, reason: str) -> None:
    """``timestamp()`` of an id that is malformed or has no time raises InvalidPublicId."""
    with pytest.raises(InvalidPublicId) as raised:
        format.timestamp(text)

    assert raised.value.reason == reason


# --- properties


@pytest.mark.parametrize(
    ("format", "bits", "ordered", "entropy", "capacity", "budget"),
    [
        (NanoId(), None, False, NanoId().entropy_bits, 36**12, 36**12),
        (Uuid4(), 128, False, 122, 2**122, 2**122),
        (Uuid7(), 128, True, 74, 2**122, 2**74),
        (JetifyTypeId(), 128, True, 74, 2**122, 2**74),  # it accepts every UUID, and generates version 7
        (Ulid(), 128, True, 80, 2**128, 2**80),
        (Ksuid(storage="native"), 160, True, 128, 2**160, 2**128),
        (ObjectId(), 96, True, 0, 2**96, 2**64),
    ],
    ids=lambda value: type(value).__name__,
)
def test_facts(format: Format, bits: int | None, ordered: bool, entropy: float, capacity: int, budget: int) -> None:
    """A format knows its number of bits, how many of them are random, and whether its ids are ordered.

    If ids contain the time, the budget is that of a single tick of the clock.
    """
    assert (format.bits, format.ordered, format.entropy_bits) == (bits, ordered, entropy)
    assert format.is_native == (bits is not None)
    assert (format.capacity, format.budget().capacity) == (capacity, budget)


def test_facts_of_counted_ids() -> None:
    """Snowflakes are not random, so they have no budget."""
    format = Snowflake(1)

    assert (format.bits, format.ordered, format.entropy_bits, format.capacity) == (64, True, 0, 2**63)
    with pytest.raises(ConfigurationError, match="Snowflakes are not random"):
        format.budget()


# --- older formats


def test_accepting_other_numbers() -> None:
    """If ids are stored as numbers, an older id is converted to the new format, which accepts it."""
    old = "919108f7-52d1-4320-9bac-f847db4148a8"
    format = Uuid7("post").accepting(Uuid4(encoding="hyphenated"))
    seen = format.validate(old)

    assert seen == format.from_int(0x919108F752D143209BACF847DB4148A8)
    assert seen.startswith("post_")
    assert format.validate(seen) == seen
    assert format.to_int(old) == format.to_int(seen)
    assert format.is_valid(old.upper())
    assert not Uuid7("post").is_valid(seen)
    assert Uuid7().is_valid(Uuid7("post").accepting(Uuid4()).prefixed(None).generate())


def test_accepting_as_text() -> None:
    """If ids are stored as text, an older id is unchanged."""
    old = "919108f7-52d1-4320-9bac-f847db4148a8"
    format = Uuid7("post", storage="text").accepting(Uuid4(encoding="hyphenated"), NanoId())

    assert format.validate(old.upper()) == old
    assert format.validate("izkpm55j334u") == "izkpm55j334u"
    assert not format.is_valid(Uuid7("post").accepting(Uuid4()).from_int(0x919108F752D143209BACF847DB4148A8))
    assert format.to_int(old) == 0x919108F752D143209BACF847DB4148A8
    with pytest.raises(InvalidPublicId, match="it has no number"):
        format.to_int("izkpm55j334u")


@pytest.mark.parametrize("prefix", ["article", "entry"])
def test_accepting_another_prefix(prefix: str) -> None:
    """Ids with a former prefix are accepted, and converted to the new prefix."""
    format = Uuid7("post").accepting(Uuid7("article").accepting(Uuid7("entry")))
    old = Uuid7(prefix).generate()

    assert format.validate(old) == old.replace(prefix, "post")
    assert format.timestamp(old) == Uuid7(prefix).timestamp(old)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (Uuid7(), NanoId()),
        (Uuid7(), ObjectId()),
        (ObjectId(), Snowflake(1)),
        (Ulid(), Uuid7(storage="text").accepting(NanoId())),
    ],
    ids=repr,
)
def test_accepting_what_cannot_be_stored(new: BitsFormat, old: Format) -> None:
    """If ids are stored as numbers, a format whose ids are not numbers of that size is refused."""
    with pytest.raises(ConfigurationError, match='write storage="text"'):
        new.accepting(old)


@pytest.mark.parametrize("storage", ["native", "text"])
def test_accepting_other_digits_of_equal_length(storage: str) -> None:
    """If a text of the older format would be read as another number, the older format is refused, also in a chain."""
    old = Snowflake(1, encoding="base36", storage=storage)
    between = Snowflake(1, encoding="hex", storage=storage).accepting(old)
    for older in (old, between):
        with pytest.raises(ConfigurationError, match="write ids of equal length with other digits"):
            Snowflake(1, encoding="crockford32", storage=storage).accepting(older)
        new = Snowflake(1, encoding="crockford32", prefix="new", storage=storage).accepting(older)
        assert new.to_int(old.from_int(10**18)) == 10**18


def test_accepting_the_same_digits_in_another_case() -> None:
    """An older format with the same digits in small letters is read as the same numbers."""
    old = JetifyTypeId("user")
    format = Uuid7(prefix="user", encoding="crockford32").accepting(old)
    text = old.generate()

    assert format.to_int(text) == old.to_int(text)


@pytest.mark.parametrize(
    ("make", "encodings"),
    [
        (lambda encoding: Snowflake(1, encoding=encoding), Snowflake._encodings),
        (lambda encoding: Uuid7(encoding=encoding), Uuid7._encodings),
        (lambda encoding: ObjectId(encoding=encoding), ObjectId._encodings),
    ],
    ids=["Snowflake", "Uuid7", "ObjectId"],
)
def test_another_encoding_reads_old_ids(make: Callable[[str], BitsFormat], encodings: tuple[str, ...]) -> None:
    """A column that changes its encoding finds each old id under its number, or the change is refused."""
    for one, other in itertools.permutations(encodings, 2):
        old = make(one)
        try:
            new = make(other).accepting(old)
        except ConfigurationError:
            assert {one, other} == {"base36", "crockford32"}
            continue
        for id in old.generate_many(100):
            assert new.canonical(id) == new.from_int(old.to_int(id))
