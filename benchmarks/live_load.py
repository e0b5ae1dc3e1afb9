"""The load of a service that knows nothing of public ids: processes that write and read one table.

Each process has a connection of its own in AUTOCOMMIT mode and a timetable. A statement that comes late because the one
before it had to wait is late all the same: its latency counts from when it was due, as its user would.
"""

from __future__ import annotations

import multiprocessing
import queue
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from typing import Any, NamedTuple

from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

__all__ = ["PER_SECOND", "Load", "Sample", "running", "summary"]

_STATEMENTS = {
    "insert": "INSERT INTO live_person (name, email) VALUES (:name, :email)",
    "update": "UPDATE live_person SET visits = visits + 1 WHERE id = :id",
    "delete": "DELETE FROM live_person WHERE id = :id",
    "select": "SELECT id, name, email, visits FROM live_person WHERE id = :id",
}
_WRITER = {"insert": 4, "update": 5, "delete": 1}
_PROCESSES: list[tuple[dict[str, int], int]] = [(_WRITER, 30)] * 10 + [({"select": 1}, 50)] * 2
"""What each process does, by weight, and how many statements a second it is to send: few, for a statement that is slow
makes those late that come after it in the same process."""
PER_SECOND = sum(rate for _, rate in _PROCESSES)
_PATIENCE = 600
"""Seconds until a process that does not come back is given up."""


class Sample(NamedTuple):
    """One statement of the load; times are those of :func:`time.monotonic`."""

    kind: str
    due: float
    began: float
    ended: float
    error: str | None

    @property
    def took(self) -> float:
        """How long the statement itself took."""
        return self.ended - self.began

    @property
    def latency(self) -> float:
        """How long after it was due its answer was there."""
        return self.ended - self.due


@dataclass
class Load:
    """A load that is going on, and what came of it."""

    samples: list[Sample] = field(default_factory=list)
    """All statements, in the order of their ends; empty until the load has ended."""
    began: float = 0.0

    def between(self, first: float, last: float) -> list[Sample]:
        """The statements that were under way, or due, at some time from *first* to *last*."""
        return [each for each in self.samples if each.ended >= first and each.due <= last]


@contextmanager
def running(url: URL, rows: int) -> Iterator[Load]:
    """A load on the *rows* rows of the table while the block runs; afterwards its samples are there."""
    context = multiprocessing.get_context("spawn")
    stop, answers = context.Event(), context.Queue()
    address = url.render_as_string(hide_password=False)
    children = [
        context.Process(target=_work, args=(address, rows, weights, rate, stop, answers), daemon=True)
        for weights, rate in _PROCESSES
    ]
    load = Load()
    try:
        for child in children:
            child.start()
        for _ in children:
            _next(answers, children)
        load.began = time.monotonic()
        yield load
        stop.set()
        load.samples = sorted((s for _ in children for s in _next(answers, children)), key=lambda sample: sample.ended)
    finally:
        stop.set()
        for child in children:
            child.join(5)
            if child.is_alive():
                child.kill()
                child.join()


def summary(samples: Iterable[Sample]) -> dict[str, Any]:
    """What is said of *samples* in the file of results; times in ms."""
    found = list(samples)
    latencies = [each.latency * 1e3 for each in found]
    cuts = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else [0.0] * 99
    return {
        "statements": dict(Counter(each.kind for each in found)),
        "failed": dict(Counter(f"{each.kind}: {each.error}" for each in found if each.error)),
        "p50_ms": round(cuts[49], 2),
        "p99_ms": round(cuts[98], 2),
        "longest_latency_ms": round(max(latencies, default=0), 1),
        "longest_stall_ms": round(max((each.took * 1e3 for each in found), default=0), 1),
    }


def _next(answers: Any, children: Iterable[Any]) -> list[Sample]:
    """What the next child says; an error where one has died without a word."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        try:
            answer = answers.get(timeout=1)
        except queue.Empty:
            if any(child.exitcode not in (None, 0) for child in children):
                raise RuntimeError("a process of the load has died") from None
            continue
        if isinstance(answer, str):
            raise RuntimeError(f"a process of the load could not begin: {answer}")
        return [Sample(*each) for each in answer]
    raise RuntimeError(f"a process of the load did not answer for {_PATIENCE} s")


def _work(address: str, rows: int, weights: dict[str, int], rate: int, stop: Event, answers: Any) -> None:
    """One process of the load, until it is told to stop or its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells us
    parent, chance = multiprocessing.parent_process(), random.Random()
    engine = create_engine(make_url(address), isolation_level="AUTOCOMMIT")
    statements = {kind: text(_STATEMENTS[kind]) for kind in weights}
    samples: list[Sample] = []
    try:
        connection = engine.connect()
        connection.execute(text(_STATEMENTS["select"]), {"id": 1}).all()
    except DBAPIError as error:
        answers.put(_short(error))
        return
    answers.put([])
    due = time.monotonic() + chance.random() / rate
    while not stop.is_set() and parent is not None and parent.is_alive():
        time.sleep(max(0.0, due - time.monotonic()))
        kind = chance.choices(list(weights), list(weights.values()))[0]
        number = chance.randint(1, rows)
        began, failure = time.monotonic(), None
        try:
            values = {"name": f"old {number}", "email": f"{number}@example.org"} if kind == "insert" else {"id": number}
            result = connection.execute(statements[kind], values)
            if result.returns_rows:
                result.all()
        except DBAPIError as error:
            failure = _short(error)
            if error.connection_invalidated:
                connection.close()
                connection = engine.connect()
        samples.append(Sample(kind, due, began, time.monotonic(), failure))
        due += chance.uniform(0.5, 1.5) / rate
    connection.close()
    engine.dispose()
    if stop.is_set():  # otherwise nobody is there to read it
        answers.put([tuple(each) for each in samples])


def _short(error: DBAPIError) -> str:
    """The kind of the error and its first line, without what differs from row to row."""
    line = str(error.orig).splitlines()[0]
    return f"{type(error.orig).__name__}: {line[:150]}"
