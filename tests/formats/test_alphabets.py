"""The alphabet presets are what their names say."""

from __future__ import annotations

import base64
import string

import pytest

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.formats import BASE36, BASE58, BASE62, CROCKFORD32, UNAMBIGUOUS, URLSAFE64, alphabets

PRESETS = {name: getattr(alphabets, name) for name in alphabets.__all__}
VALUES_OF_BASE64 = sum(value << 6 * (63 - value) for value in range(64))  # the 64 values, six bits each


@pytest.mark.parametrize("alphabet", PRESETS.values(), ids=PRESETS)
def test_preset_makes_a_format(alphabet: str) -> None:
    """Each preset has different characters, and is one that a format takes."""
    assert len(set(alphabet)) == len(alphabet)
    assert set(NanoId(alphabet=alphabet).generate()) <= set(alphabet)


@pytest.mark.parametrize(
    ("alphabet", "expected"),
    [
        (BASE36, string.digits + string.ascii_lowercase),
        (BASE62, "".join(sorted(string.digits + string.ascii_letters))),
        (BASE58, "".join(character for character in BASE62 if character not in "0OIl")),
        (URLSAFE64, base64.urlsafe_b64encode(VALUES_OF_BASE64.to_bytes(48, "big")).decode()),
        (CROCKFORD32, "".join(c for c in string.digits + string.ascii_uppercase if c not in "ILOU")),
        (UNAMBIGUOUS, "6789bcdfghjkmnpqrtwz"),
    ],
    ids=["BASE36", "BASE62", "BASE58", "URLSAFE64", "CROCKFORD32", "UNAMBIGUOUS"],
)
def test_preset_for_ever(alphabet: str, expected: str) -> None:
    """The characters, and their order, are those of the standard, and never change."""
    assert alphabet == expected


def test_unambiguous() -> None:
    """The unambiguous ones are of one case, with no vowel, and not both of any two that look alike."""
    assert not set("aeiouy" + string.ascii_uppercase) & set(UNAMBIGUOUS)
    for alike in ("0o", "1li", "2z", "5s", "8B", "uv"):
        assert len(set(alike) & set(UNAMBIGUOUS)) <= 1, alike
