"""Numbers that wait in memory.

The next ones lie in a list: ``list.pop`` is atomic, so a number is taken without a lock. The others are ranges, of
which a portion is put into the list whenever that is empty.
"""

from __future__ import annotations

import threading
from collections import deque

__all__ = ["Stock", "joined"]

_PORTION = 1024
_PORTIONS = 8
"""A block is at least so many portions: at the end of each one it is seen whether it is time for the next lease."""


class Stock:
    """Numbers that were leased and not used yet.

    >>> stock = Stock()
    >>> stock.add(range(10, 13))
    >>> stock.add(range(20, 30))
    >>> stock.take(5), stock.left, stock.issued
    ([range(10, 13), range(20, 22)], 8, 5)
    """

    __slots__ = ("_added", "_in_ranges", "_ranges", "lock", "loose", "portion")

    def __init__(self) -> None:
        self.loose: list[int] = []
        """The next numbers, the very next one at the end."""
        self.lock = threading.Lock()
        """Held by all that do more than to pop from :attr:`loose`."""
        self.portion = _PORTION
        self._ranges: deque[range] = deque()
        self._in_ranges = 0
        self._added = 0

    @property
    def left(self) -> int:
        """How many numbers wait."""
        return len(self.loose) + self._in_ranges

    @property
    def issued(self) -> int:
        """How many of them were taken so far."""
        return self._added - self.left

    def sized(self, block: int) -> None:
        """Get ready for blocks of this size."""
        self.portion = min(max(block // _PORTIONS, 1), _PORTION)

    def add(self, numbers: range) -> None:
        """Put *numbers* behind the others."""
        with self.lock:
            self._ranges.append(numbers)
            self._in_ranges += len(numbers)
            self._added += len(numbers)

    def give_back(self, numbers: list[range]) -> None:
        """Put *numbers* that were taken before the others again."""
        with self.lock:
            self._unload()
            self._ranges.extendleft(reversed(numbers))
            self._in_ranges += sum(map(len, numbers))

    def take(self, count: int) -> list[range]:
        """The next *count* numbers in order, or as many as there are."""
        with self.lock:
            taken = _popped(self.loose, count)
            missing = count - sum(map(len, taken))
            while missing and self._ranges:
                numbers = self._ranges.popleft()
                if len(numbers) > missing:
                    self._ranges.appendleft(numbers[missing:])
                    numbers = numbers[:missing]
                taken.append(numbers)
                self._in_ranges -= len(numbers)
                missing -= len(numbers)
            if not self.loose and self._ranges:
                self._load()
        return joined(taken)

    def _load(self) -> None:
        numbers = self._ranges.popleft()
        portion, rest = numbers[: self.portion], numbers[self.portion :]
        if rest:
            self._ranges.appendleft(rest)
        self._in_ranges -= len(portion)
        self.loose = list(reversed(portion))  # a new list: nobody can be in the midst of it

    def _unload(self) -> None:
        loose = _popped(self.loose, len(self.loose))
        self._ranges.extendleft(reversed(loose))
        self._in_ranges += sum(map(len, loose))


def _popped(loose: list[int], count: int) -> list[range]:
    """The last *count* of *loose*, one by one, because other threads pop as well."""
    numbers: list[range] = []
    for _ in range(count):
        try:
            number = loose.pop()
        except IndexError:
            break
        numbers.append(range(number, number + 1))
        if len(numbers) > 1 and numbers[-2].stop == number:
            numbers[-2:] = [range(numbers[-2].start, number + 1)]
    return numbers


def joined(ranges: list[range]) -> list[range]:
    """*ranges*, where neighbours that touch are one.

    >>> joined([range(3), range(3, 5), range(7, 9)])
    [range(0, 5), range(7, 9)]
    """
    made: list[range] = []
    for numbers in ranges:
        if made and made[-1].stop == numbers.start:
            made[-1] = range(made[-1].start, numbers.stop)
        else:
            made.append(numbers)
    return made
