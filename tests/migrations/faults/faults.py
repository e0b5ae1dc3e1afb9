"""Faults in the middle of an operation: the connection is lost, the user presses Ctrl-C, another session holds a lock.

A migration of a few rows sends about a hundred statements. :func:`meet` lets something happen at one of them, before or
after the server has executed it.

``PUBLIC_ID_EVERY_FAULT=1`` runs every fault at every statement on the servers, too, which takes half an hour.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from sqlalchemy import Engine, event
from support.server_faults import lose, refuse

EVERY_FAULT = bool(os.environ.get("PUBLIC_ID_EVERY_FAULT"))

Kind = Literal["lost", "interrupted", "lock timeout", "deadlock"]
Moment = Literal["before", "after"]

_CHANGE = re.compile(r"\s*(ALTER|CREATE|DROP|UPDATE|INSERT|WITH|GRANT|COMMENT|COMMIT|PRAGMA \w+=)", re.IGNORECASE)
"""The beginning of a statement that changes or commits something; WITH begins a batch of the backfill on PostgreSQL."""


@dataclass(frozen=True)
class Fault:
    """A fault at one statement, which is given by its number among those that an operation sends."""

    kind: Kind
    number: int
    moment: Moment = "before"


@dataclass
class Sent:
    """The statements that an operation has sent so far, and whether the chosen one has been reached."""

    statements: list[str] = field(default_factory=list)
    is_hit: bool = False


def is_change(statement: str) -> bool:
    """Return True if *statement* changes something, or commits it."""
    return _CHANGE.match(statement) is not None


def faults_at(statements: Sequence[str], kind: Kind, *, every: bool = False, few: int = 0) -> list[Fault]:
    """Return *every* fault of *kind*, or a *few*; of lost connections, also those after each change."""
    # a statement that only reads leaves the server as it was, so a fault after it equals one before the next statement
    # a server refuses a statement before it has an effect
    befores = [Fault(kind, number) for number in range(1, len(statements) + 1)]
    afters = [
        Fault(kind, number, "after")
        for number, statement in enumerate(statements, 1)
        if is_change(statement) and kind in ("lost", "interrupted")
    ]
    if every or EVERY_FAULT:
        return [*befores, *afters]
    drawn = random.Random(kind)
    if kind == "lost":
        return [*afters, *drawn.sample(befores, few)]
    changes = [fault for fault in [*befores, *afters] if is_change(statements[fault.number - 1])]
    return drawn.sample(changes, min(few, len(changes)))


@contextmanager
def meet(engine: Engine, number: int | None, moment: Moment, happens: Callable[[Any], object]) -> Iterator[Sent]:
    """Record the statements that are sent to *engine*; at statement *number*, call *happens* with its cursor."""
    sent = Sent()

    def pass_on(cursor: Any, statement: str, execute: Callable[[], object]) -> bool:
        if "innodb_trx" in statement:
            return False  # repeated until the server has refreshed the view, so their number differs from run to run
        sent.statements.append(statement)
        if sent.is_hit or len(sent.statements) != number:
            return False
        sent.is_hit = True
        if moment == "after":
            execute()
        happens(cursor)
        return moment == "after"

    def one(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
        return pass_on(cursor, statement, lambda: cursor.execute(statement, parameters))

    def many(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
        return pass_on(cursor, statement, lambda: cursor.executemany(statement, parameters))

    def bare(cursor: Any, statement: str, context: Any) -> bool:
        return pass_on(cursor, statement, lambda: cursor.execute(statement))

    listeners: dict[str, Callable[..., bool]] = {
        "do_execute": one,
        "do_executemany": many,
        "do_execute_no_params": bare,
    }
    for name, listener in listeners.items():
        event.listen(engine, name, listener)
    try:
        yield sent
    finally:
        for name, listener in listeners.items():
            event.remove(engine, name, listener)


@contextmanager
def failing(engine: Engine, fault: Fault | None) -> Iterator[Sent]:
    """Record the statements that are sent to *engine*, and let *fault* happen."""
    if fault is None:
        with meet(engine, None, "before", int) as sent:
            yield sent
        return
    with meet(engine, fault.number, fault.moment, lambda cursor: _FAULTS[fault.kind](engine, cursor)) as sent:
        yield sent


# --- each fault ends in an exception of the driver


def _interrupt(engine: Engine, cursor: Any) -> NoReturn:
    raise KeyboardInterrupt


_FAULTS: dict[Kind, Callable[[Engine, Any], NoReturn]] = {
    "lost": lose,
    "interrupted": _interrupt,
    "lock timeout": lambda engine, cursor: refuse(engine, cursor, "lock timeout"),
    "deadlock": lambda engine, cursor: refuse(engine, cursor, "deadlock"),
}
