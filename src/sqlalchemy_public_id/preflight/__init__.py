"""Look at a table before the first ALTER, and report everything that stands in the way.

A migration that stops half-way leaves a default or a CHECK behind, and INSERTs of the running program fail. So all
phases are examined before anything is changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrating.plan import Plan
from sqlalchemy_public_id.preflight import column, contents, mysql, postgresql, rehearsal, sqlite
from sqlalchemy_public_id.preflight.report import MigrationReport, PlannedStep, build_report
from sqlalchemy_public_id.preflight.scene import Consent, Scene

__all__ = ["Consent", "MigrationReport", "PlannedStep", "examine", "find_obstacles"]

_MODULES = {"mariadb": mysql, "mysql": mysql, "postgresql": postgresql, "sqlite": sqlite}


def examine(
    connection: Connection, plan: Plan, phases: Sequence[str], consent: Consent, *, runs: bool = False
) -> MigrationReport:
    """Report what *phases* would do, and everything that stands in their way. Nothing is changed.

    :param phases: ``expand``, ``backfill``, ``contract``, ``relax`` or ``drop``.
    :param runs: True if the phases run afterwards. The unique index of a contract finds duplicates by itself then.
    :raises ConfigurationError: if there is no such table.
    """
    scene = Scene(connection, plan, phases, consent, plan.target.read_state(connection), runs)
    dialect = connection.dialect.name
    warnings = postgresql.warnings(scene) if dialect == "postgresql" else ()
    return build_report(
        scene,
        obstacles=find_obstacles(scene),
        rights=_MODULES[dialect].rights(scene),
        warnings=[*warnings],
    )


def find_obstacles(scene: Scene, *, catalogs_only: bool = False) -> list[Obstacle]:
    """Return everything that stands in the way.

    :param catalogs_only: True to leave out what only a rehearsal, or the ids of all rows, show.
    """
    if scene.state.complete and not {"relax", "drop"} & {*scene.phases}:
        return []  # nothing is left to do
    checks = [_MODULES[scene.connection.dialect.name].obstacles, column.obstacles]
    obstacles = [obstacle for check in checks for obstacle in check(scene)]
    if obstacles or catalogs_only:
        return obstacles
    return [*rehearsal.obstacles(scene)] or [*contents.obstacles(scene)]  # which reads all ids
