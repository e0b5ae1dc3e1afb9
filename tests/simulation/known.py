"""The defects that the simulation finds today, each with a history that shows it.

Whoever mends one removes it here: a history that has become right is a failure of ``test_simulation.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulation.exploring import DRAWS
from simulation.histories import History, program
from simulation.stage import Fault


@dataclass(frozen=True)
class Known:
    """A kind of defect."""

    part: str
    """The part of the library that has it, as in ``marks.known_defect``."""
    history: History
    why: str


def _plain(family: str, *steps: str, draws: str = "taken", **options: object) -> History:
    return History(family, (program(*steps),), DRAWS[draws], **options)  # type: ignore[arg-type]


def _heard(listener: str, *steps: str) -> History:
    return _plain("sqlite", *steps, draws="repeated", model="heard", listener=listener)


_BY_VALUE = "the guard takes the INSERT of a listener for one of the flush, because the ids are equal"
_OTHER_ROW = "an object shows an id that is not its row's"

RARE: dict[str, str] = {
    f"an object shows another id than before (a listener: {listener})": _BY_VALUE
    for listener in ("core", "core, twice")
} | {
    "a row is lost (a listener: core)": "a ROLLBACK that a time limit interrupts is taken for one that was not sent",
    "a part of a transaction is stored": "insert_once() of another session sends the row of a transaction that fails",
    "a connection is back in the pool inside a transaction (a listener: session, orm)": (
        "SQLAlchemy ends savepoints that a conflict has ended, and sends no ROLLBACK"
    ),
    "rollback() raises (a listener: session)": "SQLAlchemy ends a savepoint on a connection that was lost",
}
"""What fifty thousand random histories show once, and why: it follows from a known defect, or is not ours."""

KNOWN: dict[str, Known] = {
    "an id that was read is replaced": Known(
        "write path", _plain("sqlite", "flush ?"), "an id that was read before the flush is replaced if it collides"
    ),
    "an id that an object has kept is replaced": Known(
        "write path",
        _plain("sqlite", "flush - -", "rollback", "again", draws="repeated", faults=(Fault(7, "unique"),)),
        "an object that was rolled back and added again gets another id if its id collides",
    ),
    f"{_OTHER_ROW} (a listener: core)": Known("write path", _heard("core", "flush -"), _BY_VALUE),
    f"{_OTHER_ROW} (a listener: core, given)": Known("write path", _heard("core, given", "flush -"), _BY_VALUE),
    f"{_OTHER_ROW} (a listener: core, twice)": Known("write path", _heard("core, twice", "flush -"), _BY_VALUE),
    f"{_OTHER_ROW} (a listener: session, orm)": Known("write path", _heard("session, orm", "flush -"), _BY_VALUE),
    f"{_OTHER_ROW} (a listener: gives late)": Known("write path", _heard("gives late", "flush - -"), _BY_VALUE),
    "a duplicate is accepted (a listener: core, twice)": Known(
        "write path", _heard("core, twice", "flush -"), "an id that the application gives by Core is replaced"
    ),
    "a given id is replaced (a listener: gives late)": Known(
        "write path", _heard("gives late", "flush - -"), "an id that a listener to before_insert gives is replaced"
    ),
    "a connection is back in the pool with a lock": Known(
        "edge",
        _plain("mysql", "once a1", faults=(Fault(1, "limit", after=True),)),
        "insert_once() keeps its advisory lock if it is interrupted right after it has got it",
    ),
}
"""The kind of a defect, as :func:`simulation.running.kind_of` has it."""
