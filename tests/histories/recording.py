"""Workers, in processes with several threads each, and their records.

Each operation is recorded before it begins and after it ends, in a file that outlives the process. An operation without
an end was cut off, and its outcome is unknown.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import astuple, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from histories.checking import Failure, Operation, Walk
from histories.operations import Done, Settings, Work
from histories.plans import Plan, plan_of
from sqlalchemy.orm import configure_mappers
from support.judge import Row

TICKET = 4
"""The size of a ticket in the pipe, in bytes."""

_PAUSE = 0.1
"""Seconds that a worker waits if the server is down or its disk is full."""


def work(settings: Settings, name: str, tickets: Connection) -> None:
    """Perform operations until there are no more tickets. This is the main function of a process."""
    log = Path(settings.records, f"{name}.log").open("a")  # noqa: SIM115  # stays open as long as the process
    os.dup2(log.fileno(), 2)
    faulthandler.enable(log)
    faulthandler.register(signal.SIGUSR1, log)
    record = os.open(Path(settings.records, f"{name}.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    work = Work(settings)
    # SQLAlchemy would never try these again after a time limit interrupted it: the events of a class of sessions are
    # prepared by its first session
    configure_mappers()
    work.open_session()

    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    threading.excepthook = _end_with_the_thread

    def loop(worker: str, is_main: bool) -> None:
        while ticket := os.read(tickets.fileno(), TICKET):  # atomic: the pipe holds whole tickets
            plan = plan_of(settings.seed, int.from_bytes(ticket, "big"))
            _write(record, t=plan.ticket, w=worker, b=time.monotonic_ns())
            done = work.perform(plan, is_main)
            _write(record, t=plan.ticket, e=time.monotonic_ns(), **_as_json(done))
            if done.failure is not None and (done.failure.lost or done.failure.name == "OperationalError"):
                time.sleep(_PAUSE if "connect" in done.failure.text else _PAUSE / 10)

    threads = [
        threading.Thread(target=loop, args=(f"{name}/{number}", False), daemon=True)
        for number in range(1, settings.threads)
    ]
    for thread in threads:
        thread.start()
    loop(f"{name}/0", True)
    for thread in threads:
        thread.join()


def _end_with_the_thread(told: threading.ExceptHookArgs) -> None:
    threading.__excepthook__(told)
    os._exit(70)


def _write(record: int, **values: Any) -> None:
    os.write(record, json.dumps(values, separators=(",", ":")).encode() + b"\n")


def _as_json(done: Done) -> dict[str, Any]:
    failure = astuple(done.failure) if done.failure else None
    return {"o": done.outcome, "r": done.told, "k": done.keys, "s": done.seen, "f": failure}


# --- the history


def history_of(settings: Settings) -> list[Operation]:
    """Return the operations that began, in the order of their tickets. Times count from the first operation."""
    found: dict[int, Operation] = {}
    for path in Path(settings.records).glob("*.jsonl"):
        for line in path.read_text().splitlines():
            values = json.loads(line)
            ticket = values["t"]
            if "b" in values:
                found[ticket] = begun(plan_of(settings.seed, ticket), values["w"], values["b"])
            else:
                found[ticket] = ended(found[ticket], values)
    first = min((operation.begin for operation in found.values()), default=0)
    return [
        replace(found[ticket], begin=found[ticket].begin - first, end=found[ticket].end - first)
        for ticket in sorted(found)
    ]


def begun(plan: Plan, worker: str, begin: float) -> Operation:
    """Return an operation without an end."""
    shelf = plan.shelf if plan.kind in ("add", "walk") else None
    walk = Walk(plan.shelf, plan.order) if plan.kind == "walk" else None
    return Operation(
        plan.ticket, plan.kind, begin, outcome="unknown", touches=plan.touches, shelf=shelf, walk=walk, worker=worker
    )


def ended(operation: Operation, values: dict[str, Any]) -> Operation:
    """Return the operation with its end; *values* come from the record."""
    touches, outcome = operation.touches, values["o"]
    if outcome == "ok":
        told = (_told(touch.verb, value) for touch, value in zip(touches, values["r"], strict=True))
        touches = tuple(replace(touch, told=value) for touch, value in zip(touches, told, strict=True))
    return replace(
        operation,
        end=values["e"],
        outcome=outcome,
        touches=touches,
        keys=tuple(values["k"]),
        walk=operation.walk and replace(operation.walk, seen=tuple(map(tuple, values["s"]))),
        failure=Failure(*values["f"]) if values["f"] else None,
    )


def _told(verb: str, value: Any) -> Any:
    if verb == "once":
        return value[0], Row(*value[1])
    return Row(*value) if isinstance(value, list) else value


def logs_of(settings: Settings) -> Iterator[str]:
    """Yield the standard error of each process."""
    for path in sorted(Path(settings.records).glob("*.log")):
        told = path.read_text().strip()
        if told:
            yield f"{path.name}: {told[-3000:]}"
