"""Every character is equally likely at every place: chi-square of a hundred thousand ids per alphabet, or a million.

A test fails where uniform ids would look as uneven as these with a chance below one in two hundred million. There are
fewer than two hundred such chances here, so a false alarm comes less than once in a million runs.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, product

import pytest

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.formats import BASE36, alphabets

PRESETS = {name: getattr(alphabets, name) for name in alphabets.__all__}
SUSPECT = 5e-9
LENGTH, COUNT, CONTROL = 12, 100_000, 20_000
MANY = 1_000_000


def chance(statistic: float, degrees: int) -> float:
    """The chance that a chi-square value of *degrees* degrees of freedom is *statistic* or more."""
    x, a = statistic / 2, 0.5 if degrees % 2 else 1.0
    total = math.erfc(math.sqrt(x)) if degrees % 2 else math.exp(-x)
    while a < degrees / 2:  # Q(a+1, x) = Q(a, x) + x**a * exp(-x) / gamma(a+1)
        total += math.exp(a * math.log(x) - x - math.lgamma(a + 1)) if x else 0.0
        a += 1
    return min(total, 1.0)


def chance_of(counts: Sequence[int]) -> float:
    """The chance that equally likely events are at least as uneven as *counts*."""
    expected = sum(counts) / len(counts)
    return chance(sum((count - expected) ** 2 / expected for count in counts), len(counts) - 1)


def chances(ids: list[str], alphabet: str) -> list[float]:
    """The chances of the counts of characters: over whole ids, then at each place."""
    text = "".join(ids)
    columns = [text, *(text[place::LENGTH] for place in range(LENGTH))]
    return [chance_of([column.count(character) for character in alphabet]) for column in columns]


@pytest.mark.parametrize(
    ("alphabet", "count"),
    [
        *(pytest.param(alphabet, COUNT, id=name) for name, alphabet in PRESETS.items()),
        pytest.param(BASE36, MANY, marks=pytest.mark.slow, id="a million of BASE36"),
    ],
)
def test_characters_are_equally_likely(alphabet: str, count: int) -> None:
    """Ids are as even as chance makes them, on the whole and at each place."""
    assert min(chances(NanoId(LENGTH, alphabet).generate_many(count), alphabet)) > SUSPECT


@pytest.mark.parametrize("alphabet", PRESETS.values(), ids=PRESETS)
def test_control(alphabet: str) -> None:
    """The detector lets the ids of another generator pass, on a smaller sample."""
    nanoid = pytest.importorskip("nanoid")
    ids = [nanoid.generate(alphabet, LENGTH) for _ in range(CONTROL)]

    assert min(chances(ids, alphabet)) > SUSPECT


@pytest.mark.parametrize("count", [COUNT, CONTROL], ids=["full sample", "control sample"])
def test_bias_is_detected(count: int) -> None:
    """The detector finds ``byte % 36``, in both sample sizes: on the whole, and in the full one at each place too."""
    text = os.urandom(count * LENGTH).translate((BASE36 * 8)[:256].encode()).decode()
    found = chances([text], BASE36)

    assert found[0] < SUSPECT
    assert count == CONTROL or max(found) < SUSPECT


@pytest.mark.parametrize(("count", "percent"), [(COUNT, 109), (MANY, 103)], ids=["full sample", "a million"])
def test_slight_bias_is_detected(count: int, percent: int) -> None:
    """The detector finds one character that comes a little too often: less is found in a larger sample."""
    even = LENGTH * count // 36

    assert chance_of([even] * 35 + [even * percent // 100]) < SUSPECT


def test_ids_are_equally_likely() -> None:
    """All ids of a tiny space are equally likely: the characters of an id do not depend on each other."""
    format = NanoId(length=3, alphabet="abcdefg", prefix="x")
    counts = Counter(format.generate() for _ in range(100_000))

    assert {f"x_{''.join(body)}" for body in product("abcdefg", repeat=3)} == set(counts)
    assert chance_of(list(counts.values())) > SUSPECT


def test_neighbours_are_independent() -> None:
    """The last character of an id says nothing about the first of the next."""
    ids = NanoId().generate_many(COUNT)
    counts = Counter(earlier[-1] + later[0] for earlier, later in pairwise(ids))

    assert chance_of([counts[a + b] for a, b in product(BASE36, repeat=2)]) > SUSPECT


@pytest.mark.parametrize(
    ("statistic", "degrees", "expected"),
    [(0.0, 5, 1.0), (3.841, 1, 0.05), (5.991, 2, 0.05), (11.345, 3, 0.01), (49.802, 35, 0.05), (92.010, 63, 0.01)],
)
def test_chances_are_those_of_the_tables(statistic: float, degrees: int, expected: float) -> None:
    """The arithmetic of the detector agrees with the printed chi-square tables."""
    assert expected == pytest.approx(chance(statistic, degrees), rel=1e-3)
