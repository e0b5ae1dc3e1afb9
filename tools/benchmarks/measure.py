"""Measure subjects in turn, A B B A A B …, so that other load on the machine affects all of them alike.

>>> from contextlib import contextmanager
>>> @contextmanager
... def adding():
...     yield lambda: sum(range(1000))
>>> subjects = {"ours": adding, "theirs": adding}
>>> [one.what for one in compared("sums", subjects, [("ours", "theirs", None)], rounds=4)]
['sums']
"""

from __future__ import annotations

import gc
import statistics
import time
import timeit
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["Comparison", "Pair", "Subject", "Unavailable", "compared", "repeated", "together"]

Subject: TypeAlias = Callable[[], AbstractContextManager[Callable[[], object]]]
"""A context manager that prepares, yields the function to time, and cleans up. Only the function is timed."""
Times: TypeAlias = list[tuple[float, float]]
"""For each round: wall time and CPU time of this process (without the server), in seconds."""
Pair: TypeAlias = tuple[str, str, "float | None"]
"""The name of our subject, the name of its rival, and the largest acceptable ratio."""


class Unavailable(Exception):
    """A suite cannot run here. The message says what it needs."""


@dataclass
class Comparison:
    """One cell of a table, with one value per round: the cost of one operation, in *unit*."""

    what: str
    ours_name: str
    rival_name: str
    unit: str
    ours: list[float]
    rival: list[float]
    goal: float | None = None
    """The largest acceptable value of :attr:`figure`."""
    difference: bool = False
    """True if the values are subtracted instead of divided, because they can be zero."""
    cpu: tuple[list[float], list[float]] | None = None

    @property
    def figures(self) -> list[float]:
        """The quotient or difference of ours and rival in each round."""
        return self._compared(self.ours, self.rival)

    @property
    def figure(self) -> float:
        """The median of :attr:`figures`."""
        return statistics.median(self.figures)

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles of :attr:`figures`: half of the rounds lie between them."""
        if len(self.figures) < 2:
            return self.figure, self.figure
        low, _, high = statistics.quantiles(self.figures, n=4, method="inclusive")
        return low, high

    @property
    def cpu_figure(self) -> float | None:
        """Like :attr:`figure`, but for the CPU time of this process alone."""
        return None if self.cpu is None else statistics.median(self._compared(*self.cpu))

    @property
    def reached(self) -> bool | None:
        """True if the goal is reached; ``None`` without a goal."""
        return None if self.goal is None else self.figure <= self.goal

    def _compared(self, ours: list[float], rival: list[float]) -> list[float]:
        pairs = zip(ours, rival, strict=True)
        return [one - other if self.difference else one / other for one, other in pairs]


def compared(
    what: str, subjects: Mapping[str, Subject], pairs: Iterable[Pair], rounds: int, per: int = 1
) -> Iterator[Comparison]:
    """Time *subjects* together, and compare each pair, in µs per operation; a sample has *per* operations."""
    taken = together(subjects, rounds)
    micro = {name: [[each * 1e6 / per for each in kind] for kind in zip(*taken[name], strict=True)] for name in taken}
    for ours, rival, goal in pairs:
        (our_wall, our_cpu), (rival_wall, rival_cpu) = micro[ours], micro[rival]
        yield Comparison(what, ours, rival, "µs", our_wall, rival_wall, goal, cpu=(our_cpu, rival_cpu))


def together(subjects: Mapping[str, Subject], rounds: int) -> dict[str, Times]:
    """Time each subject once per round, after one discarded round. Each comes first, and last, equally often."""
    taken: dict[str, Times] = {name: [] for name in subjects}
    names = list(subjects)
    for turn in range(-1, rounds):
        at = turn % len(names)
        order = names[at:] + names[:at]
        for name in reversed(order) if turn // len(names) % 2 else order:
            times = _time(subjects[name])
            if turn >= 0:
                taken[name].append(times)
    return taken


def _time(subject: Subject) -> tuple[float, float]:
    """Measure *subject*. Garbage is collected first; the collector stays on, as in a program.

    Full collections skip the objects that exist by then. One that visits 5 000 objects takes a third of the time of
    their flush, so one collection more or less would dominate a sample.
    """
    with subject() as work:
        gc.collect()
        gc.freeze()
        cpu, wall = time.process_time(), time.perf_counter()
        work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        gc.unfreeze()
        return wall, cpu


def repeated(statement: str, number: int, names: Mapping[str, Any]) -> Subject:
    """Run *statement* *number* times without a call around it, as :mod:`timeit` does."""
    timer = timeit.Timer(statement, "gc.enable()", globals={"gc": gc, **names})

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        yield lambda: timer.timeit(number)

    return subject
