"""What a hundred thousand random histories show once and is not ours, or not of the write path.

A kind of defect that the library has would stand here with a history that shows it; there is none.
"""

from __future__ import annotations

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
"""The kind of a defect, as :func:`simulation.running.kind_of` has it, and its cause."""
