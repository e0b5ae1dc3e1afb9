"""The number of random ids that can be issued before a duplicate is likely (the birthday problem).

With N equally likely ids, the probability that *n* of them contain a duplicate is ``1 - (1-0/N)(1-1/N)…(1-(n-1)/N)``.
:class:`Budget` computes it to six digits or more, from 2 ids to 2**200.

>>> from sqlalchemy_public_id import NanoId
>>> budget = NanoId(length=12).budget()
>>> round(budget.years_at(0.01, per_hour=1000), 1)
35.2
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Budget"]

_HOURS_PER_YEAR = 24 * 365.25
_CERTAIN = 40
"""At n(n-1)/2N = 40 the probability is 1 - 4e-18, which is 1 as a float."""
_SPARSE = 1000
"""If at most one id in 1000 is issued, two terms of the series of the logarithm have six digits. Otherwise the factors
are multiplied one by one; ``_CERTAIN`` limits them to fewer than 100,000."""


@dataclass(frozen=True)
class Budget:
    """The arithmetic of duplicates among :attr:`capacity` equally likely ids."""

    capacity: int
    """The number of different ids."""

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"capacity is {self.capacity}, expected 1 or more")

    def probability(self, issued: int) -> float:
        """Return the probability that *issued* ids contain at least one duplicate, from 0.0 to 1.0."""
        if issued < 0:
            raise ValueError(f"issued is {issued}, expected 0 or more")
        if issued <= 1:
            return 0.0
        if issued > self.capacity:
            return 1.0
        capacity, pairs = self.capacity, issued * (issued - 1) // 2
        if pairs > _CERTAIN * capacity:
            return 1.0
        if issued * _SPARSE > capacity:
            return -math.expm1(math.fsum(math.log1p(-taken / capacity) for taken in range(1, issued)))
        return -math.expm1(-pairs / capacity * (1 + (2 * issued - 1) / (6 * capacity)))

    def ids_at(self, probability: float) -> int:
        """Return how many ids can be issued before a duplicate has this *probability*, above 0 and below 1."""
        if not 0.0 < probability < 1.0:
            raise ValueError(f"probability is {probability}, expected a number above 0 and below 1")
        low, high = 1, self.capacity + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.probability(middle) < probability:
                low = middle
            else:
                high = middle
        return low

    def years_at(self, probability: float, *, per_hour: float) -> float:
        """Return the years until the chance of a duplicate reaches *probability*, at *per_hour* ids an hour.

        The result is infinity if a float cannot hold the number.
        """
        if not per_hour > 0:
            raise ValueError(f"per_hour is {per_hour}, expected a number above 0")
        try:
            return self.ids_at(probability) / per_hour / _HOURS_PER_YEAR
        except OverflowError:
            return math.inf
