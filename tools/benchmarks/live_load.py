"""The load of a service without public ids: processes that write and read one table.

Each process has its own connection in AUTOCOMMIT mode and a schedule. The latency of a statement counts from the time
when it was due, even if the statement before it had to wait.
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
from uuid import uuid4

from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

__all__ = ["TABLE", "Load", "Sample", "Work", "running", "summary"]

TABLE = "live_person"
_PATIENCE = 600
"""Seconds to wait for a process that does not respond."""


class Work(NamedTuple):
    """What the processes of a load do."""

    statements: dict[str, str]
    """SQL by name, with the parameters ``:id``, of a row that may exist, and ``:new``, a text that is in no row."""
    processes: list[tuple[dict[str, int], int]]
    """The statements of each process, by weight, and their number per second: few, because a slow statement delays
    the next ones of the same process."""


_WRITER, _READER = {"insert": 4, "update": 5, "delete": 1}, {"select": 1}
_PERSONS = Work(
    {
        "insert": f"INSERT INTO {TABLE} (name, email) VALUES (:new, :new)",
        "update": f"UPDATE {TABLE} SET visits = visits + 1 WHERE id = :id",
        "delete": f"DELETE FROM {TABLE} WHERE id = :id",
        "select": f"SELECT id, name, email, visits FROM {TABLE} WHERE id = :id",
    },
    [(_WRITER, 30)] * 10 + [(_READER, 50)] * 2,
)


class Sample(NamedTuple):
    """One statement of the load; times are those of :func:`time.monotonic`."""

    kind: str
    due: float
    began: float
    ended: float
    error: str | None


@dataclass
class Load:
    """A running load, and its samples."""

    samples: list[Sample] = field(default_factory=list)
    """All statements, in the order in which they ended; empty until the load has ended."""
    began: float = 0.0

    def failed(self) -> list[Sample]:
        """Return the statements that raised an error."""
        return [each for each in self.samples if each.error is not None]


@contextmanager
def running(url: URL, rows: int, work: Work = _PERSONS) -> Iterator[Load]:
    """Run a load on the *rows* rows of the table during the block. Its samples are available afterwards."""
    context = multiprocessing.get_context("spawn")
    stop, answers = context.Event(), context.Queue()
    address = url.render_as_string(hide_password=False)
    children = [
        context.Process(target=_work, args=(address, rows, work.statements, weights, rate, stop, answers), daemon=True)
        for weights, rate in work.processes
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
    """Summarize *samples* for the file of results; times in ms."""
    found = list(samples)
    latencies = [(each.ended - each.due) * 1e3 for each in found]
    cuts = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else [0.0] * 99
    return {
        "statements": dict(Counter(each.kind for each in found)),
        "failed": dict(Counter(f"{each.kind}: {each.error}" for each in found if each.error)),
        "p50_ms": round(cuts[49], 2),
        "p99_ms": round(cuts[98], 2),
        "longest_latency_ms": round(max(latencies, default=0), 1),
        "longest_stall_ms": round(max(((each.ended - each.began) * 1e3 for each in found), default=0), 1),
    }


def _next(answers: Any, children: Iterable[Any]) -> list[Sample]:
    """Return the next message of a child; raise an error if one died."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        try:
            answer = answers.get(timeout=1)
        except queue.Empty:
            if any(child.exitcode not in (None, 0) for child in children):
                raise RuntimeError("a process of the load has died") from None
            continue
        return [Sample(*each) for each in answer]
    raise RuntimeError(f"a process of the load did not answer for {_PATIENCE} s")


def _work(
    address: str, rows: int, sql: dict[str, str], weights: dict[str, int], rate: int, stop: Event, answers: Any
) -> None:
    """Run one process of the load until it is stopped or its parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops this process
    parent, chance = multiprocessing.parent_process(), random.Random()
    engine = create_engine(make_url(address), isolation_level="AUTOCOMMIT")
    statements = {kind: text(sql[kind]) for kind in weights}
    samples: list[Sample] = []
    connection = engine.connect()
    connection.execute(text("SELECT 1")).all()
    answers.put([])
    due = time.monotonic() + chance.random() / rate
    while not stop.is_set() and parent is not None and parent.is_alive():
        time.sleep(max(0.0, due - time.monotonic()))
        kind = chance.choices(list(weights), list(weights.values()))[0]
        number = chance.randint(1, rows)
        began, failure = time.monotonic(), None
        try:
            result = connection.execute(statements[kind], {"id": number, "new": uuid4().hex})
            if result.returns_rows:
                result.all()
        except DBAPIError as error:
            # the first line, without the values that differ from row to row
            failure = f"{type(error.orig).__name__}: {str(error.orig).splitlines()[0][:150]}"
            if error.connection_invalidated:
                connection.close()
                connection = engine.connect()
        samples.append(Sample(kind, due, began, time.monotonic(), failure))
        due += chance.uniform(0.5, 1.5) / rate
    connection.close()
    engine.dispose()
    if stop.is_set():  # otherwise the parent is gone, and nobody reads it
        answers.put([tuple(each) for each in samples])
