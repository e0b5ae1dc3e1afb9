"""Collision probabilities, compared with exact fractions and high-precision decimals."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.formats import Budget

EXACT = 1e-13
"""The accepted relative error in small spaces; the precision of a float is about 1e-16."""
CLOSE = 2e-7
"""The accepted relative error in large ones."""


def near(expected: float, rel: float = EXACT) -> Any:
    """Return an object equal to *expected* within that relative error, however small *expected* is."""
    return pytest.approx(expected, rel=rel, abs=0)


def exact(capacity: int, issued: int) -> Fraction:
    """Return the probability of a duplicate as a fraction."""
    return 1 - math.prod((1 - Fraction(taken, capacity) for taken in range(issued)), start=Fraction(1))


def precise(capacity: int, issued: int) -> float:
    """Return the probability of a duplicate in a space of a million ids or more, by Stirling's series in 250 digits."""
    with localcontext() as context:
        context.prec = 250  # most digits cancel out

        def log_factorial(number: int) -> Decimal:
            n = Decimal(number)
            series = 1 / (12 * n) - 1 / (360 * n**3) + 1 / (1260 * n**5) - 1 / (1680 * n**7)
            return n * n.ln() - n + n.ln() / 2 + series  # without ln(2 pi)/2, which cancels out

        distinct = log_factorial(capacity) - log_factorial(capacity - issued) - issued * Decimal(capacity).ln()
        return float(1 - distinct.exp())


@pytest.mark.parametrize("capacity", [1, 2, 3, 10, 36, 365])
def test_tiny_spaces_are_exact(capacity: int) -> None:
    """In tiny spaces the probability of each count equals the exact product of fractions."""
    chances = [Budget(capacity).probability(count) for count in range(capacity + 2)]

    assert chances == [near(float(exact(capacity, count))) for count in range(capacity + 2)]


@given(st.floats(20, 250), st.floats(-60, 2))
@example(249.0, -59.0)
def test_large_spaces(bits: float, pairs: float) -> None:
    """In large spaces the probability has six digits of the precise one, close to certainty and far from it."""
    capacity = int(2**bits)
    issued = 2 + math.isqrt(int(capacity * 10**pairs))

    assert Budget(capacity).probability(issued) == near(precise(capacity, issued), CLOSE)


@pytest.mark.parametrize("issued", [2, 998, 999, 1000, 1001, 1002])
def test_both_methods_agree_where_they_meet(issued: int) -> None:
    """The switch between multiplying factors and summing two terms is not visible in six digits of the result."""
    assert Budget(10**6).probability(issued) == near(precise(10**6, issued), CLOSE)


def test_known_figures() -> None:
    """The birthday problem and the budget of 12 characters of base 36 have their known figures."""
    budget = NanoId(length=12).budget()

    assert Budget(365).ids_at(0.5) == 22
    assert Budget(2).ids_at(0.5) == 1  # two ids reach the probability
    assert 35.20 < budget.years_at(0.01, per_hour=1000) < 35.21
    assert budget.years_at(0.01, per_hour=0.5) == near(4 * budget.years_at(0.01, per_hour=2))


@pytest.mark.parametrize("probability", [1e-300, 0.01, 0.999999])
@pytest.mark.parametrize("capacity", [1, 2, 7, 365, 10**6, 36**12, 2**122, 2**800])
def test_ids_at_is_the_largest_count_below(capacity: int, probability: float) -> None:
    """``ids_at()`` is the largest count whose probability is below the given one."""
    budget = Budget(capacity)
    ids = budget.ids_at(probability)

    assert budget.probability(ids) < probability <= budget.probability(ids + 1)


def test_spaces_beyond_a_float() -> None:
    """Spaces larger than the largest float have a budget; a number of years beyond a float is infinite."""
    budget = NanoId(length=255).budget()

    assert budget.probability(10**100) == near(float(Fraction(10**200, 2 * budget.capacity)))
    assert budget.ids_at(0.5) == near(math.sqrt(2 * math.log(2)) * 6**255, rel=1e-9)
    assert Budget(2**3000).years_at(0.01, per_hour=1000) == math.inf
    assert 1e140 < Budget(2**1000).years_at(0.01, per_hour=1000) < 1e150


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((lambda p=p: Budget(36).ids_at(p), "above 0 and below 1") for p in (0, 1, -0.1, 1.1, math.nan)),
        *((lambda n=n: Budget(36).years_at(0.01, per_hour=n), "per_hour is .* above 0") for n in (0, -1, math.nan)),
        (lambda: Budget(36).probability(-1), "issued is -1, expected 0 or more"),
        (lambda: Budget(0), "capacity is 0, expected 1 or more"),
    ],
)
def test_impossible_numbers(call: Callable[[], object], message: str) -> None:
    """Probabilities of 0 or less or 1 or more, rates of 0 or less, and counts out of range are refused."""
    with pytest.raises(ValueError, match=message):
        call()
