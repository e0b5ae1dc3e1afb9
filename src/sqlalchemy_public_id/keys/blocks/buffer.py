"""Leased numbers in memory, and the size of the next block."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress

from sqlalchemy_public_id.errors import ConfigurationError, safe_repr

FIRST_SIZE = 100
SMALLEST, LARGEST = 10, 1_000_000
"""The bounds of an adaptive block."""

_MOST = 2**63 - 1
_FASTER, _SLOWER = 10, 0.5

_PORTION = 1024
"""The most numbers in the list: a list of a whole block would take 40 bytes for each."""


class BlockSize:
    """The size of the next block: the fixed *block*, or the numbers used in one second since the last lease.

    An adaptive size grows tenfold at most, and shrinks by half at most, from one block to the next.

    >>> size = BlockSize(None)
    >>> size.current, size.adapt(seconds=0.001, issued=100), size.adapt(seconds=2.0, issued=4000)
    (100, 1000, 2000)
    """

    def __init__(self, block: int | None) -> None:
        if block is not None and (not isinstance(block, int) or isinstance(block, bool) or not 1 <= block <= _MOST):
            raise ConfigurationError(
                f"block is {safe_repr(block)}, expected how many keys to lease at once, 1 to {_MOST}, "
                f"or nothing for a number that adapts to the rate"
            )
        self._is_fixed = block is not None
        self.current: int = FIRST_SIZE if block is None else block

    def adapt(self, *, seconds: float, issued: int) -> int:
        """Return the size of the next block after *issued* numbers were used in *seconds*."""
        if issued and not self._is_fixed:
            rate = issued / max(seconds, 1e-6)
            bounded = min(max(rate, self.current * _SLOWER), self.current * _FASTER)
            self.current = int(min(max(bounded, SMALLEST), LARGEST))
        return self.current


class Buffer:
    """Numbers that were leased and are not used yet.

    >>> buffer = Buffer()
    >>> buffer.add(range(10, 13))
    >>> buffer.add(range(20, 30))
    >>> buffer.take(5), buffer.left, buffer.issued
    ([range(10, 13), range(20, 22)], 8, 5)
    """

    # list.pop is atomic, so a number is taken from `current` without a lock. The other numbers are ranges; take() puts
    # a portion of them into the list when it is empty.

    __slots__ = ("_added", "_in_ranges", "_ranges", "current", "lock")

    def __init__(self) -> None:
        self.current: list[int] = []
        """The next numbers, the very next one at the end."""
        self.lock: threading.Lock = threading.Lock()
        """Held by everything except a pop from :attr:`current`."""
        self._ranges: deque[range] = deque()
        self._in_ranges = 0
        self._added = 0

    @property
    def left(self) -> int:
        """The number of numbers in memory."""
        return len(self.current) + self._in_ranges

    @property
    def issued(self) -> int:
        """The number of numbers that were taken."""
        return self._added - self.left

    def add(self, numbers: range) -> None:
        with self.lock:
            self._ranges.append(numbers)
            self._in_ranges += len(numbers)
            self._added += len(numbers)

    def give_back(self, numbers: list[range]) -> None:
        """Put *numbers* that were taken in front of the others again."""
        with self.lock:
            unused = _pop(self.current, len(self.current))
            self._ranges.extendleft(reversed([*numbers, *unused]))
            self._in_ranges += sum(map(len, numbers)) + sum(map(len, unused))

    def take(self, count: int) -> list[range]:
        """Remove and return the next *count* numbers in order, or as many as there are."""
        with self.lock:
            taken = _pop(self.current, count)
            missing = count - sum(map(len, taken))
            while missing and self._ranges:
                numbers = self._next_range(missing)
                taken.append(numbers)
                missing -= len(numbers)
            if not self.current and self._ranges:
                # a new list: another thread may be popping from the old one
                self.current = list(reversed(self._next_range(_PORTION)))
        return joined(taken)

    def _next_range(self, most: int) -> range:
        numbers = self._ranges.popleft()
        if len(numbers) > most:
            self._ranges.appendleft(numbers[most:])
            numbers = numbers[:most]
        self._in_ranges -= len(numbers)
        return numbers


def _pop(numbers: list[int], count: int) -> list[range]:
    popped: list[int] = []
    with suppress(IndexError):
        while len(popped) < count:  # one by one, because other threads pop as well
            popped.append(numbers.pop())
    return joined([range(number, number + 1) for number in popped])


def joined(ranges: list[range]) -> list[range]:
    """Merge neighbours that touch.

    >>> joined([range(3), range(3, 5), range(7, 9)])
    [range(0, 5), range(7, 9)]
    """
    merged: list[range] = []
    for numbers in ranges:
        if merged and merged[-1].stop == numbers.start:
            merged[-1] = range(merged[-1].start, numbers.stop)
        else:
            merged.append(numbers)
    return merged
