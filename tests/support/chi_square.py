"""The chi-square test, which tells whether counts are as even as chance makes them."""

from __future__ import annotations

import math
from collections.abc import Sequence

SUSPECT = 5e-9
"""The chance below which counts are suspect: uniform ids get there less than once in two hundred million tests."""


def chance_of(counts: Sequence[int]) -> float:
    """Return the probability that equally likely events are at least as uneven as *counts*."""
    expected, degrees = sum(counts) / len(counts), len(counts) - 1
    statistic = sum((count - expected) ** 2 / expected for count in counts)
    x, a = statistic / 2, 0.5 if degrees % 2 else 1.0
    total = math.erfc(math.sqrt(x)) if degrees % 2 else math.exp(-x)
    while a < degrees / 2:  # Q(a+1, x) = Q(a, x) + x**a * exp(-x) / gamma(a+1)
        total += math.exp(a * math.log(x) - x - math.lgamma(a + 1)) if x else 0.0
        a += 1
    return min(total, 1.0)
