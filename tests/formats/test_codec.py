"""Encodings: numbers as text of fixed width, and back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.formats import BASE36, BASE58, CROCKFORD32
from sqlalchemy_public_id.formats.codec import Codec, codec_of

ALPHABETS = {
    "base36": BASE36,
    "base58": BASE58,
    "crockford32": CROCKFORD32,
    "typeid": CROCKFORD32.lower(),
    "decimal": "0123456789",
    "hex": "0123456789abcdef",
}
SIZES = (63, 96, 128)

codecs = st.builds(codec_of, st.sampled_from([*ALPHABETS]), st.sampled_from(SIZES))


def digit_by_digit(number: int, codec: Codec) -> str:
    """The text of *number* by the rule of the schools."""
    digits = ALPHABETS[codec.encoding]
    text = ""
    for _ in range(codec.width):
        number, digit = divmod(number, len(digits))
        text = digits[digit] + text
    return text


def check(number: int, codec: Codec) -> None:
    text = codec.encode(number)

    assert text == digit_by_digit(number, codec)
    assert codec.decode(text) == number
    assert re.fullmatch(codec.pattern((0, 0)), text)


@given(codecs, st.data())
def test_every_number(codec: Codec, data: st.DataObject) -> None:
    """Every number has the text that division digit by digit gives, of fixed width, which is read as this number."""
    check(data.draw(st.integers(0, 2**codec.bits - 1)), codec)


@pytest.mark.parametrize("encoding", ALPHABETS)
@pytest.mark.parametrize("bits", SIZES)
def test_ends(encoding: str, bits: int) -> None:
    """The smallest and the largest number are written like any other, and the width is no larger than needed."""
    codec = codec_of(encoding, bits)

    for number in (0, 1, 2**bits - 1):
        check(number, codec)
    assert len(codec.digits) ** (codec.width - 1) < 2**bits


def test_hyphenated() -> None:
    """A UUID in the usual form: RFC 9562's example of version 7."""
    codec = codec_of("hyphenated", 128)

    assert codec.encode(0x017F22E279B07CC398C4DC0C0C07398F) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
    assert codec.decode("017F22E2-79B0-7CC3-98C4-DC0C0C07398F") == 0x017F22E279B07CC398C4DC0C0C07398F


@given(st.sampled_from(["hex", "hyphenated", "crockford32", "typeid"]), st.data())
def test_exact_patterns(encoding: str, data: st.DataObject) -> None:
    """Where digits are bits, the pattern matches the texts of the numbers with given bits, and no others."""
    codec = codec_of(encoding, 128)
    mask, value, other = (data.draw(st.integers(0, 2**128 - 1)) for _ in range(3))
    pattern = codec.pattern((mask, value & mask))

    assert re.fullmatch(pattern, codec.encode(other & ~mask | value & mask))
    assert bool(re.fullmatch(pattern, codec.encode(other))) == (other & mask == value & mask)


def test_too_large_for_the_pattern() -> None:
    """A text of digits that are bits is not matched where it stands for a larger number."""
    assert not re.fullmatch(codec_of("crockford32", 128).pattern((0, 0)), "8ZZZZZZZZZZZZZZZZZZZZZZZZZ")
    assert re.fullmatch(codec_of("crockford32", 128).pattern((0, 0)), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ")


@pytest.mark.parametrize("encoding", ["base64", None, ["hex"]])
def test_unknown_encoding(encoding: object) -> None:
    """Of an encoding that there is not, it is said which there are."""
    with pytest.raises(ConfigurationError, match=r"encoding is .*, expected one of 'hyphenated', 'hex', 'decimal'"):
        codec_of(encoding, 128)  # type: ignore[arg-type]
