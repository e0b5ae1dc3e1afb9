"""Encodings: numbers as text of fixed width, and back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlalchemy_public_id.formats import BASE36, BASE58, CROCKFORD32
from sqlalchemy_public_id.formats.codec import codec_of

ALPHABETS = {
    "base36": BASE36,
    "base58": BASE58,
    "crockford32": CROCKFORD32,
    "typeid": CROCKFORD32.lower(),
    "decimal": "0123456789",
    "hex": "0123456789abcdef",
}


@pytest.mark.parametrize("encoding", ALPHABETS)
@pytest.mark.parametrize("bits", [63, 96, 128])
@settings(max_examples=20)
@given(st.data())
def test_every_number(encoding: str, bits: int, data: st.DataObject) -> None:
    """Every number is encoded as by repeated division, in the width of the largest number, and decoded again."""
    codec, digits = codec_of(encoding, bits), ALPHABETS[encoding]
    number = data.draw(st.sampled_from([0, 1, 2**bits - 1]) | st.integers(0, 2**bits - 1))
    text, expected, rest = codec.encode(number), "", number
    while len(expected) < codec.width:
        rest, digit = divmod(rest, len(digits))
        expected = digits[digit] + expected

    assert (text, codec.decode(text)) == (expected, number)
    assert re.fullmatch(codec.pattern((0, 0)), text)
    assert len(digits) ** (codec.width - 1) < 2**bits


@given(st.sampled_from(["hex", "hyphenated", "crockford32", "typeid"]), st.data())
def test_exact_patterns(encoding: str, data: st.DataObject) -> None:
    """If digits represent bits, the pattern matches exactly the texts of the numbers with the given bits."""
    codec = codec_of(encoding, 128)
    mask, value, other = (data.draw(st.integers(0, 2**128 - 1)) for _ in range(3))
    pattern = codec.pattern((mask, value & mask))

    assert re.fullmatch(pattern, codec.encode(other & ~mask | value & mask))
    assert bool(re.fullmatch(pattern, codec.encode(other))) == (other & mask == value & mask)
