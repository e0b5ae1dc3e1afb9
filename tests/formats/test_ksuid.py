"""KSUIDs: examples of the specification, the order of ids, and the end of their time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest
from support.clocks import clock_at

from sqlalchemy_public_id import ConfigurationError, Ksuid
from sqlalchemy_public_id.errors import KeySpaceExhausted

FIRST = datetime(2014, 5, 13, 16, 53, 20, tzinfo=timezone.utc)
LAST = datetime(2150, 6, 19, 23, 21, 35, tzinfo=timezone.utc)

# https://github.com/segmentio/ksuid
EXAMPLES = {
    "000000000000000000000000000": 0,
    "0ujtsYcgvSTl8PAuAdqWYSMnLOv": 0x0669F7EFB5A1CD34B5F99D1154FB6853345C9735,
    "0ujzPyRiIAffKhBux4PvQdDqMHY": 0x066A029C73FC1AA3B2446246D6E89FCD909E8FE8,
    "aWgEPTl1tmebfsQzFP4bxwgy80V": 2**160 - 1,
}


@pytest.mark.parametrize("format", [Ksuid(), Ksuid("evt"), Ksuid(storage="native")], ids=repr)
def test_examples(format: Ksuid) -> None:
    """The specification's examples, the first and the last KSUID have their numbers."""
    lead = "" if format.prefix is None else "evt_"

    assert {text: format.to_int(lead + text) for text in EXAMPLES} == EXAMPLES
    assert [format.from_int(number) for number in EXAMPLES.values()] == [lead + text for text in EXAMPLES]


def test_times() -> None:
    """Numbers count the seconds from 2014 to 2150."""
    first, *_, last = EXAMPLES

    assert (Ksuid().timestamp(first), Ksuid().timestamp(last)) == (FIRST, LAST)


def test_case_matters() -> None:
    """The same letters in another case are another id."""
    text = "0ujtsYcgvSTl8PAuAdqWYSMnLOv"

    assert Ksuid().validate(text.swapcase()) == text.swapcase()
    assert Ksuid().to_int(text.lower()) != Ksuid().to_int(text)


def test_ksuids_of_a_moment() -> None:
    """Within a second ids ascend in random steps, and another second has other random bits."""
    format = Ksuid()
    with clock_at(FIRST + timedelta(days=1)) as hands:
        numbers = [format.to_int(text) for text in format.generate_many(1000)]
        hands.now += 1000
        later = format.to_int(format.generate())
    steps = [after - before for before, after in pairwise(numbers)]

    assert {number >> 128 for number in numbers} == {86_400}
    assert min(steps) > 0
    assert max(steps) <= 2**56
    assert len({*steps}) == 999
    assert later >> 128 == 86_401
    assert abs(later % 2**128 - numbers[-1] % 2**128) > 2**80


def test_ends_of_the_time() -> None:
    """Before 2014 and after 2150, no id can be generated."""
    for at, error, years in (
        (FIRST - timedelta(seconds=1), ConfigurationError, "before 2014"),
        (LAST + timedelta(seconds=1), KeySpaceExhausted, "2150"),
    ):
        with clock_at(at), pytest.raises(error, match=years):
            Ksuid().generate()
    for at in (FIRST, LAST):
        with clock_at(at):
            assert Ksuid().timestamp(Ksuid().generate()) == at
