"""Subjects measured in turn, A B B A B A A B …, so that other load of the machine falls on all alike.

>>> from contextlib import contextmanager
>>> @contextmanager
... def adding():
...     yield lambda: sum(range(1000))
>>> ours, rival = interleaved(adding, adding, rounds=4)
>>> len(ours.wall), len(rival.wall)
(4, 4)
"""

from __future__ import annotations

import gc
import statistics
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Comparison", "Samples", "Subject", "interleaved", "repeated", "together"]

Subject = Callable[[], AbstractContextManager[Callable[[], object]]]
"""Prepares, yields the function to time, and cleans up; only that function is timed."""


@dataclass
class Samples:
    """The times of one subject in seconds, in order."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """The CPU time of this process, without the server and other processes."""


def interleaved(ours: Subject, rival: Subject, rounds: int) -> tuple[Samples, Samples]:
    """Time each subject *rounds* times, in alternating order, after one discarded round."""
    taken = together({"ours": ours, "rival": rival}, rounds)
    return taken["ours"], taken["rival"]


def together(subjects: Mapping[str, Subject], rounds: int) -> dict[str, Samples]:
    """Time any number of subjects, each once a round. Each is the first one, and each the last one, equally often."""
    taken = {name: Samples() for name in subjects}
    names = list(subjects)
    for turn in range(-1, rounds):
        at = turn % len(names)
        order = names[at:] + names[:at]
        for name in reversed(order) if turn // len(names) % 2 else order:
            wall, cpu = _time(subjects[name])
            if turn >= 0:
                taken[name].wall.append(wall)
                taken[name].cpu.append(cpu)
    return taken


def _time(subject: Subject) -> tuple[float, float]:
    """Measure wall and CPU time of *subject*. Garbage is collected first; the collector stays on, as in a program.

    What exists by then is left out of its full collections. One that visits 5 000 objects takes a third of their flush,
    and one more or less would be all that a sample shows.
    """
    with subject() as work:
        gc.collect()
        gc.freeze()
        cpu, wall = time.process_time(), time.perf_counter()
        work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        gc.unfreeze()
        return wall, cpu


def repeated(statement: str, number: int, **names: Any) -> Subject:
    """Run *statement* *number* times without a call around it, as :mod:`timeit` does."""
    timer = timeit.Timer(statement, "gc.enable()", globals={"gc": gc, **names})

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        yield lambda: timer.timeit(number)

    return subject


@dataclass
class Comparison:
    """One row of the table. The values are those of one operation, in *unit*."""

    what: str
    ours_name: str
    rival_name: str
    unit: str
    ours: list[float]
    rival: list[float]
    goal: float | None = None
    """The largest acceptable value of :attr:`figure`."""
    difference: bool = False
    """True if ours and rival are subtracted instead of divided."""
    cpu: tuple[list[float], list[float]] | None = None

    @classmethod
    def of_times(
        cls, what: str, names: tuple[str, str], taken: tuple[Samples, Samples], per: int, goal: float | None = None
    ) -> Comparison:
        """Return the times in µs of one of the *per* operations in each sample."""
        ours, rival = ([value * 1e6 / per for value in samples.wall] for samples in taken)
        cpu = tuple([value * 1e6 / per for value in samples.cpu] for samples in taken)
        return cls(what, *names, "µs", ours, rival, goal, cpu=(cpu[0], cpu[1]))

    @property
    def figures(self) -> list[float]:
        """The quotient or difference of the two in each round."""
        return _compared(self.ours, self.rival, self.difference)

    @property
    def figure(self) -> float:
        """The median of :attr:`figures`."""
        return statistics.median(self.figures)

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles of :attr:`figures`: half of the pairs lie between them."""
        if len(self.figures) < 2:
            return self.figure, self.figure
        low, _, high = statistics.quantiles(self.figures, n=4, method="inclusive")
        return low, high

    @property
    def cpu_figure(self) -> float | None:
        """The same as :attr:`figure`, of the CPU time of this process alone."""
        return None if self.cpu is None else statistics.median(_compared(*self.cpu, self.difference))

    @property
    def reached(self) -> bool | None:
        """True if the goal is reached; ``None`` without a goal."""
        return None if self.goal is None else self.figure <= self.goal


def _compared(ours: list[float], rival: list[float], difference: bool) -> list[float]:
    return [one - other if difference else one / other for one, other in zip(ours, rival, strict=True)]
