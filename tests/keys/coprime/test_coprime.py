"""Coprime-step keys: arithmetic, values that never change, and exhaustion."""

from __future__ import annotations

import dataclasses
import math
import pickle
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import PRINTABLE, presets

from sqlalchemy_public_id import ConfigurationError, InvalidPublicId
from sqlalchemy_public_id.errors import KeySpaceExhausted
from sqlalchemy_public_id.formats import BASE36, BASE58, BASE62
from sqlalchemy_public_id.keys.coprime.step import CoprimeStep

SEED = 67 * 71 * 73 * 79 * 83 * 89
"""The step that the original description proposes for six characters of an alphabet of 62."""

orders = st.permutations(PRINTABLE).map("".join)
alphabets = presets | st.tuples(orders, st.integers(2, 94)).map(lambda drawn: drawn[0][: drawn[1]])


@st.composite
def steps(draw: st.DrawFn, alphabet: st.SearchStrategy[str] = alphabets, longest: int = 40) -> CoprimeStep:
    """Draw any step over an alphabet, or one with the defaults."""
    digits, length = draw(alphabet), draw(st.integers(1, longest))
    size = len(digits) ** length
    wanted = draw(st.none() | st.integers(1, 2 * size))
    step = None if wanted is None else next(each for each in range(wanted, 3 * size) if math.gcd(each, size) == 1)
    return CoprimeStep(digits, length, step, draw(st.none() | st.integers(0, size - 1)))


@st.composite
def small(draw: st.DrawFn) -> CoprimeStep:
    """Draw a step with a few thousand keys at most."""
    base = draw(st.integers(2, 12))
    longest = max(length for length in range(1, 12) if base**length <= 3000)
    return draw(steps(orders.map(lambda order: order[:base]), longest))


# --- the method


@given(small())
def test_every_key_once(step: CoprimeStep) -> None:
    """Every text is generated once, and each key leads back to its index."""
    keys = step.keys(0, step.size)
    texts = {"".join(text) for text in product(step.alphabet, repeat=step.length)}

    assert len(keys) == step.size == len(texts)
    assert set(keys) == texts
    assert [step.index(key) for key in keys] == list(range(step.size))
    assert [step.key(index) for index in range(step.size)] == keys


@given(steps(), st.data())
def test_large_spaces(step: CoprimeStep, data: st.DataObject) -> None:
    """In spaces of any size, each key is the text that the definition gives, and leads back to its index.

    The evaluated ``repr`` and the pickle of a step are equal to it.
    """
    index = data.draw(st.integers(0, step.size - 1))
    key = step.key(index)
    assert step.start is not None
    assert step.step is not None
    number, text = (step.start + index * step.step) % step.size, ""
    while len(text) < step.length:
        number, digit = divmod(number, len(step.alphabet))
        text = step.alphabet[digit] + text

    assert (key, step.index(key)) == (text, index)
    for twin in (eval(repr(step), {"CoprimeStep": CoprimeStep}), pickle.loads(pickle.dumps(step))):
        assert (twin, hash(twin), twin.key(index)) == (step, hash(step), key)


@pytest.mark.parametrize(
    ("alphabet", "length", "number", "keys"),
    [
        (BASE36, 6, 1345325471, ["m8yzrz", "8hxzjy", "uqwzbx", "gzvz3w", "38uyvv"]),
        (BASE58, 8, 79147337205789, ["cr4rANTn", "Eh8hKjvZ", "rYCYV7PL"]),
        ("01", 8, 159, ["10011111", "00111110", "11011101", "01111100", "00011011"]),
    ],
)
def test_keys_for_ever(alphabet: str, length: int, number: int, keys: list[str]) -> None:
    """The defaults and their keys never change between versions, because keys would repeat."""
    step = CoprimeStep(alphabet, length)

    assert step.step == number
    assert step.keys(0, 5)[: len(keys)] == keys
    assert step.key(step.size - 1) == alphabet[0] * length


# --- the end


@pytest.mark.parametrize("wrong", [-1, True, "3"], ids=repr)
def test_no_number(wrong: Any) -> None:
    """Anything but an integer of 0 or more is refused, with the name of the argument."""
    step = CoprimeStep(BASE36, 6)

    for name, call in {
        "index": lambda: step.key(wrong),
        "first": lambda: step.keys(wrong, 1),
        "count": lambda: step.keys(0, wrong),
        "issued": lambda: step.remaining(wrong),
    }.items():
        with pytest.raises(ValueError, match=f"{name} is .*, expected a whole number of 0 or more"):
            call()


def test_exhausted() -> None:
    """After the last key an error is raised, and keys do not start again."""
    step = CoprimeStep("abc", 2)

    assert [step.remaining(issued) for issued in (0, 8, 9, 99)] == [9, 1, 0, 0]
    assert step.key(8) == "aa"
    with pytest.raises(
        KeySpaceExhausted,
        match=r"CoprimeStep\(alphabet='abc', length=2, .* has 9 keys, .* index 9; continue with keys of 3",
    ):
        step.key(9)
    with pytest.raises(KeySpaceExhausted, match="index 10;"):
        step.keys(5, 6)
    assert step.keys(5, 4) == [step.key(index) for index in range(5, 9)]
    assert step.keys(9, 0) == step.keys(10, 0) == []


# --- settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 0}, "length is 0, expected a whole number from 1 to 255"),
        ({"alphabet": "a"}, "expected two characters or more"),
        ({"step": 0}, "step is 0, which has the factor 2176782336 in common"),
        ({"step": True}, "step is True"),
        ({"start": -1}, "start is -1, expected a whole number of 0 or more"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else None,
)
def test_refused(settings: dict[str, Any], message: str) -> None:
    """Invalid settings raise when the step is declared."""
    with pytest.raises(ConfigurationError, match=message):
        CoprimeStep(**{"alphabet": BASE36, "length": 6, **settings})


@pytest.mark.parametrize(("step", "factor", "better"), [(9, 9, 11), (36**6, 36**6, 36**6 + 1), (7 * 36**6 + 2, 2, 5)])
def test_common_factor(step: int, factor: int, better: int) -> None:
    """A step that would repeat keys too early is refused, with the common factor and a nearby step that works."""
    message = f"the factor {factor} in common .* repeat after {36**6 // factor}; step={better} has none"
    with pytest.raises(ConfigurationError, match=message):
        CoprimeStep(BASE36, 6, step)

    assert CoprimeStep(BASE36, 6, better).step == better % 36**6


@pytest.mark.parametrize(("text", "reason"), [("M8YZRZ", "it contains other characters"), (5, "it is of type int")])
def test_malformed(text: Any, reason: str) -> None:
    """Anything but a key is refused, with the reason and the value."""
    step = CoprimeStep(BASE36, 6)
    with pytest.raises(InvalidPublicId, match=f"^code: .*{reason} .*expected 6 of 0-9 a-z") as raised:
        step.index(text, field="code")

    assert raised.value.value == text
    assert not step.is_valid(text)


# --- equality


def test_different_values() -> None:
    """Steps with different keys are unequal; a step or start beyond the size is equal to its remainder."""
    step = CoprimeStep(BASE36, 6)
    others = [CoprimeStep(BASE36, 7), CoprimeStep(BASE36, 6, 5), CoprimeStep(BASE36, 6, start=0)]

    assert len({step, *others}) == 4
    assert CoprimeStep(BASE62, 6, SEED) == CoprimeStep(BASE62, 6, SEED % 62**6)
    assert CoprimeStep(BASE36, 6, start=36**6 + 5) == CoprimeStep(BASE36, 6, start=5)
    assert repr(CoprimeStep("01", 3, 7, 0)) == "CoprimeStep(alphabet='01', length=3, step=7, start=0)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        step.length = 7
