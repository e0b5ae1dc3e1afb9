"""The ISO 7064 MOD 37,36 check character."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.formats import BASE36
from sqlalchemy_public_id.formats.nanoid import check_character, is_checked


@pytest.fixture(scope="module")
def mod_37_36() -> Any:
    """Another implementation, of the package python-stdnum."""
    return pytest.importorskip("stdnum.iso7064.mod_37_36")


@given(text=st.text(BASE36, min_size=1, max_size=64))
def test_same_as_stdnum(mod_37_36: Any, text: str) -> None:
    """The check character is that of another implementation, in both cases."""
    expected = mod_37_36.calc_check_digit(text.upper())

    assert expected == check_character(text.upper(), BASE36.upper())
    assert expected.lower() == check_character(text)


@given(text=st.text(BASE36, min_size=2, max_size=64))
def test_same_verdict_as_stdnum(mod_37_36: Any, text: str) -> None:
    """A text of any characters satisfies the check where another implementation says so."""
    assert mod_37_36.is_valid(text.upper()) == is_checked(text)


def test_every_mistyped_character_is_detected() -> None:
    """No single other character, at any place, makes another valid id."""
    text = NanoId(length=12, check_digit=True).generate()
    mistyped = [
        text[:place] + other + text[place + 1 :] for place in range(13) for other in BASE36 if other != text[place]
    ]

    assert len(mistyped) == 13 * 35
    assert not any(map(is_checked, mistyped))


def test_swapped_neighbours_are_detected() -> None:
    """Of all swaps of two neighbours, after whatever stands before them, 99.8 % are detected."""
    undetected = [
        text
        for text in map("".join, product(BASE36, repeat=3))
        if text[1] != text[2] and is_checked(text[0] + text[2] + text[1] + check_character(text))
    ]

    assert len(undetected) == 36 * 2  # one pair of characters in each of the 36 states of the method
    assert len(undetected) / (36 * 36 * 35) < 0.002


def test_swap_with_the_check_character() -> None:
    """A check character that changed places with the one before it is detected, except after two of 1260 texts."""
    texts = [text + check_character(text) for text in map("".join, product(BASE36, repeat=2))]
    swapped = [text[0] + text[2] + text[1] for text in texts if text[1] != text[2]]

    assert len(swapped) == 1260
    assert sum(map(is_checked, swapped)) == 2


@pytest.mark.parametrize("alphabet", [BASE36, BASE36.upper()], ids=["lower", "upper"])
def test_generated_ids_are_checked(mod_37_36: Any, alphabet: str) -> None:
    """What a format with a check digit makes satisfies another implementation."""
    ids = NanoId(alphabet=alphabet, check_digit=True).generate_many(1000)

    assert all(mod_37_36.is_valid(id.upper()) for id in ids)


def test_the_prefix_is_not_checked(mod_37_36: Any) -> None:
    """The check digit covers the random part only: it is the same under every prefix."""
    format = NanoId(prefix="cus", check_digit=True)
    body = format.generate().removeprefix("cus_")

    assert mod_37_36.is_valid(body.upper())
    assert NanoId(prefix="ord", check_digit=True).is_valid(f"ord_{body}")
