"""Parts of a rehearsal: what the server refuses on an empty copy of the table, it would refuse half-way."""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrating.plan import Scene, Step
from sqlalchemy_public_id.migrating.session import send
from sqlalchemy_public_id.migrating.steps import can_be_retried


def is_accepted(connection: Connection, sql: str) -> bool:
    """Execute *sql*, and return False if the server refuses it."""
    try:
        send(connection, sql)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return False
    return True


def refused(scene: Scene, step: Step, error: DBAPIError) -> Obstacle:
    """Return the obstacle that the *error* of a *step* shows; a lock that others have is none, and is raised."""
    dialect = scene.table.connection.dialect
    if can_be_retried(error, dialect):
        raise error
    reason = str(getattr(error.orig, "args", [error.orig])[-1])
    problem = f"{dialect.name} refuses to {step.name}: {reason}"
    return Obstacle("refused", problem, "change what the database names, in a revision before")
