"""Triggers that the UPDATEs of a migration would fire: refuse, fire them, or leave them out."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from sqlalchemy import Connection

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrating.column import Triggers
from sqlalchemy_public_id.migrating.session import transaction
from sqlalchemy_public_id.migrating.table import LiveTable


def obstacles_of_triggers(live: LiveTable, triggers: Sequence[str], wanted: Triggers) -> Iterator[Obstacle]:
    """Yield an obstacle if UPDATEs would fire *triggers* without consent, or cannot leave them out."""
    if not triggers or wanted == "fire":
        return
    names = ", ".join(triggers)
    what = f"the trigger {names}" if len(triggers) == 1 else f"the triggers {names}"
    if wanted == "refuse":
        skip = ', or update_triggers="skip" to leave them out' if live.can_skip_triggers else ""
        remedy = f'pass update_triggers="fire" to accept this{skip}'
        yield Obstacle("update-triggers", f"the backfill would fire {what} once for each row", remedy)
    elif not live.can_skip_triggers:
        remedy = 'pass update_triggers="fire", or drop them until the backfill has ended'
        problem = f"{live.connection.dialect.name} cannot leave out {what}"
        yield Obstacle("update-triggers", problem, remedy)
    else:
        yield from live.obstacles_to_skipping()


@contextmanager
def updating(live: LiveTable, triggers: Triggers) -> Generator[None]:
    """Begin what UPDATEs need: a savepoint, or in AUTOCOMMIT mode a transaction where one is needed."""
    with _begun(live.connection, triggers), live.without_triggers() if triggers == "skip" else nullcontext():
        yield


def _begun(connection: Connection, triggers: Triggers) -> AbstractContextManager[object]:
    if not in_autocommit(connection):  # the caller's transaction has to survive a failed statement
        return connection.begin_nested()
    if traits_for(connection.dialect).commits_each_row:
        return transaction(connection, "BEGIN IMMEDIATE")
    return transaction(connection, "BEGIN") if triggers == "skip" else nullcontext()


def in_autocommit(connection: Connection) -> bool:
    """Return True if the options of *connection* have each statement committed."""
    return connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"
