"""The random source: every character equally likely at every place, and no byte used twice."""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise, product

import pytest
from support.evenness import SUSPECT, chance_of

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.formats import BASE36, alphabets
from sqlalchemy_public_id.formats.pool import IdPool, RandomText

PRESETS = {name: getattr(alphabets, name) for name in alphabets.__all__}
PRINTABLE = "".join(map(chr, range(33, 127)))
HEX = "0123456789abcdef"
LENGTH, COUNT = 12, 100_000


class Bytes:
    """A source of known bytes in place of ``os.urandom``, one chunk a call; it counts the calls."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = list(chunks)
        self.asked: list[int] = []

    def __call__(self, size: int) -> bytes:
        self.asked.append(size)
        return self.chunks.pop(0)


# --- from bytes to texts


def test_no_character_is_favoured() -> None:
    """Of the 256 bytes, equally many lead to each character, and the rest to none."""
    for size in range(1, len(PRINTABLE) + 1):
        texts = RandomText(PRINTABLE[:size], 1)(1, Bytes(bytes(range(256))))

        assert dict.fromkeys(PRINTABLE[:size], 256 // size) == Counter(texts)


@pytest.mark.parametrize("length", [1, 5, 12, 21, 200])
def test_texts_are_cut_from_the_source_in_order(length: int) -> None:
    """Many texts are cut in groups, and what is left over one by one: together they are the source, once."""
    source = os.urandom(4096)
    texts = RandomText(HEX, length)(1, Bytes(source))
    whole = "".join(f"{byte % 16:x}" for byte in source)

    assert {len(text) for text in texts} == {length}
    assert "".join(texts) == whole[: 4096 // length * length]


def test_asks_again_until_there_is_enough() -> None:
    """Where too many bytes were dropped, more are drawn."""
    source = Bytes(b"\xff" * 100, b"\x00\x01", b"\x02\x03")  # 256 is 3 * 85 + 1, so only the last byte is dropped

    assert RandomText("abc", 4)(1, source) == ["abca"]
    assert len(source.asked) == 3


def test_large_bites() -> None:
    """The operating system is asked once for hundreds of ids."""
    source = Bytes(os.urandom(4096))

    assert len(RandomText(BASE36, 12)(1, source)) > 300
    assert source.asked == [4096]


def test_pools_are_told_apart_by_identity() -> None:
    """Two pools with equal content are two members of a set, with two hashes."""
    one, other = IdPool(), IdPool()

    assert len({one, other}) == len({hash(one), hash(other)}) == 2


# --- from the outside


@pytest.mark.parametrize("alphabet", PRESETS.values(), ids=PRESETS)
def test_characters_are_equally_likely(alphabet: str) -> None:
    """Ids are as even as chance makes them, on the whole and at each place."""
    text = "".join(NanoId(LENGTH, alphabet).generate_many(COUNT))

    for column in (text, *(text[place::LENGTH] for place in range(LENGTH))):
        assert chance_of([column.count(character) for character in alphabet]) > SUSPECT


def test_bias_is_detected() -> None:
    """The detector finds ``byte % 36``, at a single place too, and agrees with the printed chi-square tables."""
    text = os.urandom(COUNT).translate((BASE36 * 8)[:256].encode()).decode()

    assert chance_of([text.count(character) for character in BASE36]) < SUSPECT
    assert chance_of([10, 10]) == 1.0
    assert chance_of([60, 40]) == pytest.approx(0.0455, rel=1e-3)
    assert chance_of([40, 60, 50]) == pytest.approx(0.1353, rel=1e-3)


def test_characters_are_independent() -> None:
    """All ids of a tiny space are equally likely, and so is each first character after each last one."""
    format = NanoId(3, "abcdefg", "x")
    tiny = Counter(format.generate() for _ in range(COUNT))
    ids = NanoId().generate_many(COUNT)
    neighbours = Counter(earlier[-1] + later[0] for earlier, later in pairwise(ids))

    assert {f"x_{''.join(body)}" for body in product("abcdefg", repeat=3)} == set(tiny)
    assert chance_of(list(tiny.values())) > SUSPECT
    assert chance_of([neighbours[a + b] for a, b in product(BASE36, repeat=2)]) > SUSPECT
