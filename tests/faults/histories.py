"""The histories: a program for every kind of write, and the ids that the library draws for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from faults.driver import Fault
from faults.models import IDS, LISTENERS
from support.steps import OBJECT_STEPS, ONLY_ON, ROW_STEPS

NEITHER, READ, DUPLICATE = "-", "?", "!"
"""Words for a row: the library generates its id; the program reads this id before the flush; its code is taken."""


@dataclass(frozen=True)
class Op:
    """A step of a program: its name, and a word for each of its rows.

    A word is an id that the program gives, ``-`` for none, or ``?`` for one that it reads from the new object. With a
    ``!`` behind it, the row has a code that another row has already, so that it must be refused.
    """

    name: str
    rows: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.name, *self.rows))


def _op(step: str) -> Op:
    name, *rows = step.split()
    return Op(name, tuple(rows))


@dataclass(frozen=True)
class History:
    """Everything that a run depends on, except for the database."""

    program: str
    """The steps of a session: ``"flush - fe; commit"``."""
    draws: tuple[str, ...]
    """The ids that the library draws, in their order."""
    listener: str = ""
    """What listeners of the application do: a key of ``models.LISTENERS``."""
    is_first: bool = False
    """True if the engine is new, so that the library has to look at its tables first."""
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        after = f", with a listener: {self.listener}" if self.listener else ""
        return " | ".join((f"{self.program}{after}", f"draws {' '.join(self.draws[:8])} …", *map(str, self.faults)))

    @property
    def steps(self) -> list[Op]:
        return [_op(step) for step in self.program.split("; ")]


DRAWS = {
    "taken": ("00", "01", "00", "02", "03", "00", *IDS[4:40]),
    "repeated": ("fe", "fe", "01", "01", "fe", "02", "02", "00", *IDS[4:40]),
}
"""Ids that the library draws: the id of the existing row, or ids of rows that have just been written."""

WRITES = [
    *(f"{name} - -" for name in (*OBJECT_STEPS, *ROW_STEPS) if name != "once"),  # which needs an id that it can repeat
    "flush -",
    "flush ?",
    "flush a1",
    "flush 00",
    "flush - - -",
    "flush - ? a1",
    "flush - 00 -",
    "flush - -! -",
    "core -",
    "core a1 a2",
    "core 00 a1",
    "bulk - - -",
    "bulk - ? a1",
    "bulk_save - ?",
    "once a1",
    "once a1; commit; once a1",
    "flush fe; once a1; once a1",
    "savepoint; flush -; release",
    "flush -; savepoint; flush -; undo; again",
    "savepoint; flush -; savepoint; core - -; undo; bulk - -; release",
    "merge -",
    "merge ?",
    "merge a1",
    "flush - -; rollback; again",
    "skipping - -! -",
    "flush -; or_rollback -",
]
"""The programs. A step is one of ``support.steps``, or a method of ``sessions.Player``."""


def histories(database: str) -> Iterator[History]:
    """Yield every kind of write of one session, without faults."""
    for draws in DRAWS.values():
        for program in WRITES:
            history = History(program, draws)
            if database in ONLY_ON.get(history.steps[-1].name, {database}):
                yield history
        for listener in LISTENERS:
            for program in ("flush -", "flush - -", "bulk - -"):
                yield History(program, draws, listener)
    if database == "postgresql":
        yield from (History(program, DRAWS["taken"], is_first=True) for program in ("flush -", "flush - -"))
