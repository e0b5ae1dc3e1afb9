"""The alphabet presets are what their names say."""

from __future__ import annotations

import base64
import string

import pytest

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.formats import BASE36, BASE58, BASE62, CROCKFORD32, UNAMBIGUOUS, URLSAFE64, alphabets

PRESETS = {name: getattr(alphabets, name) for name in alphabets.__all__}


@pytest.mark.parametrize("alphabet", PRESETS.values(), ids=PRESETS)
def test_preset_makes_a_format(alphabet: str) -> None:
    """Each preset has different characters, and is one that a format takes."""
    format = NanoId(alphabet=alphabet)

    assert len(set(alphabet)) == len(alphabet)
    assert set(format.generate()) <= set(alphabet)


def test_base36() -> None:
    """Base 36 is in the order in which int() counts."""
    assert list(range(36)) == [int(character, 36) for character in BASE36]
    assert BASE36.lower() == BASE36


def test_base62() -> None:
    """Base 62 is the digits and the letters of both cases, in the order of ASCII."""
    assert "".join(sorted(string.digits + string.ascii_letters)) == BASE62


def test_base58() -> None:
    """Base 58 is base 62 without the four look-alikes."""
    assert "".join(character for character in BASE62 if character not in "0OIl") == BASE58


def test_urlsafe64() -> None:
    """URL-safe 64 has the values that base64 gives to its characters."""
    values = sum(value << 6 * (63 - value) for value in range(64))  # the 64 values, six bits each

    assert base64.urlsafe_b64encode(values.to_bytes(48, "big")).decode() == URLSAFE64


def test_crockford32() -> None:
    """Crockford's 32 are the digits and the capitals without I, L, O and U."""
    assert "".join(c for c in string.digits + string.ascii_uppercase if c not in "ILOU") == CROCKFORD32


def test_unambiguous() -> None:
    """The unambiguous ones have no vowel, and not both of any two that look alike."""
    assert not set("aeiouyAEIOUY") & set(UNAMBIGUOUS)
    for alike in ("0oO", "1lIi", "2zZ", "5sS", "8B", "uv", "cC"):
        assert len(set(alike) & set(UNAMBIGUOUS)) <= 1, alike


@pytest.mark.parametrize("alphabet", [BASE36, CROCKFORD32, UNAMBIGUOUS], ids=["BASE36", "CROCKFORD32", "UNAMBIGUOUS"])
def test_one_case(alphabet: str) -> None:
    """An alphabet of one case keeps its ids apart where something folds case."""
    assert len(set(alphabet.lower())) == len(alphabet)
