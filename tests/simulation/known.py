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


RARE: dict[str, str] = {
    "a row is lost (a listener: core)": "a ROLLBACK that a time limit interrupts is taken for one that was not sent",
    "a part of a transaction is stored": "insert_once() of another session sends the row of a transaction that fails",
    "rollback() raises (a listener: session)": "SQLAlchemy ends a savepoint on a connection that was lost",
} | {
    f"a connection is back in the pool inside a transaction (a listener: {listener})": (
        "SQLAlchemy ends savepoints that a conflict has ended, and sends no ROLLBACK"
    )
    for listener in ("core", "session", "session, orm")
}
"""What a hundred thousand random histories show once, and why: it follows from a known defect, or is not ours."""

KNOWN: dict[str, Known] = {
    "a connection is back in the pool with a lock": Known(
        "edge",
        _plain("mysql", "once a1", faults=(Fault(1, "limit", after=True),)),
        "insert_once() keeps its advisory lock if it is interrupted right after it has got it",
    ),
}
"""The kind of a defect, as :func:`simulation.running.kind_of` has it."""
