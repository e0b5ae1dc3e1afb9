"""Alphabets and the random source: each character is equally likely at each place, and no byte is used twice."""

from __future__ import annotations

import base64
import os
import string
from collections import Counter

import pytest
from support.chi_square import SUSPECT, chance_of

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.formats import BASE36, BASE58, BASE62, CROCKFORD32, UNAMBIGUOUS, URLSAFE64
from sqlalchemy_public_id.formats.pool import RandomText

PRINTABLE = "".join(map(chr, range(33, 127)))
LENGTH, COUNT = 12, 100_000
VALUES_OF_BASE64 = sum(value << 6 * (63 - value) for value in range(64))  # the 64 values, six bits each


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
def test_alphabets(alphabet: str, expected: str) -> None:
    """An alphabet has the characters of its standard in a fixed order, and ids contain each equally often."""
    text = "".join(NanoId(LENGTH, alphabet=alphabet).generate_many(COUNT))

    assert alphabet == expected
    columns = text, *(text[place::LENGTH] for place in range(LENGTH))
    chances = [chance_of([column.count(character) for character in alphabet]) for column in columns]
    assert [chance for chance in chances if chance <= SUSPECT] == []


def test_bias_is_detected() -> None:
    """The chi-square test detects the bias of ``byte % 36``, and agrees with printed tables."""
    text = os.urandom(COUNT).translate((BASE36 * 8)[:256].encode()).decode()

    assert chance_of([text.count(character) for character in BASE36]) < SUSPECT
    assert chance_of([10, 10]) == 1.0
    assert chance_of([60, 40]) == pytest.approx(0.0455, rel=1e-3)
    assert chance_of([40, 60, 50]) == pytest.approx(0.1353, rel=1e-3)


def test_no_character_is_favoured() -> None:
    """Equally many of the 256 byte values map to each character, and the rest are discarded."""
    sizes = range(1, len(PRINTABLE) + 1)
    counts = {size: Counter(RandomText(PRINTABLE[:size], 1)(1, lambda _: bytes(range(256)))) for size in sizes}

    assert counts == {size: dict.fromkeys(PRINTABLE[:size], 256 // size) for size in sizes}


@pytest.mark.parametrize("length", [1, 5, 12, 21, 200])
def test_texts_are_cut_from_the_source_in_order(length: int) -> None:
    """Ids are cut from the random bytes in order, and use each byte once."""
    source = os.urandom(4096)
    texts = RandomText("0123456789abcdef", length)(1, lambda _: source)

    assert {len(text) for text in texts} == {length}
    assert "".join(texts) == "".join(f"{byte % 16:x}" for byte in source)[: 4096 // length * length]


def test_asks_again_until_there_is_enough() -> None:
    """If too many bytes were discarded, more are read."""
    chunks = [b"\xff" * 100, b"\x00\x01", b"\x02\x03"]  # 256 is 3 * 85 + 1, so only the last byte is dropped

    assert RandomText("abc", 4)(1, lambda _: chunks.pop(0)) == ["abca"]
    assert chunks == []
