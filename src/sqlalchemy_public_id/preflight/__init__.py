"""Look at a table before the first ALTER, and report everything that stands in the way.

A migration that stops half-way leaves a default or a CHECK behind, and INSERTs of the running program fail. So all
phases are examined before anything is changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from sqlalchemy_public_id.errors import MigrationRefused, Obstacle
from sqlalchemy_public_id.online.plan import Plan
from sqlalchemy_public_id.preflight import column, contents, mysql, postgresql, sqlite
from sqlalchemy_public_id.preflight.scene import Consent, Scene

__all__ = ["Consent", "find_obstacles", "require_clear_way"]

_OF_DATABASE = {
    "mariadb": mysql.obstacles,
    "mysql": mysql.obstacles,
    "postgresql": postgresql.obstacles,
    "sqlite": sqlite.obstacles,
}


def require_clear_way(connection: Connection, plan: Plan, phases: Sequence[str], consent: Consent) -> None:
    """Raise an error with everything that stands in the way of *phases*.

    :param phases: ``expand``, ``backfill``, ``contract``, ``relax`` or ``drop``.
    :raises MigrationRefused: if there is an obstacle. Nothing was changed.
    :raises ConfigurationError: if there is no such table.
    """
    obstacles = find_obstacles(connection, plan, phases, consent)
    if obstacles:
        raise MigrationRefused(target=plan.target, obstacles=obstacles)


def find_obstacles(connection: Connection, plan: Plan, phases: Sequence[str], consent: Consent) -> list[Obstacle]:
    """Return everything that stands in the way of *phases*, each with its remedy."""
    scene = Scene(connection, plan, phases, consent, plan.target.read_state(connection))
    if scene.state.complete and not {"relax", "drop"} & {*phases}:
        return []  # nothing is left to do
    checks = [_OF_DATABASE[connection.dialect.name], column.obstacles]
    obstacles = [obstacle for check in checks for obstacle in check(scene)]
    return obstacles or list(contents.obstacles(scene))  # reads all ids
