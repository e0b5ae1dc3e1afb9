"""Look at a table before the first ALTER, and report everything that stands in the way.

A migration that stops half-way leaves a default or a CHECK behind, and INSERTs of the running program fail. So all
phases are examined before anything is changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrating.plan import Consent, Plan, Scene
from sqlalchemy_public_id.preflight import column, contents, rehearsal
from sqlalchemy_public_id.preflight.report import MigrationReport, PlannedStep, build_report

__all__ = ["Consent", "MigrationReport", "PlannedStep", "examine", "find_obstacles"]


def examine(
    connection: Connection, plan: Plan, phases: Sequence[str], consent: Consent, *, runs: bool = False
) -> MigrationReport:
    """Report what *phases* would do, and everything that stands in their way. Nothing is changed.

    :param phases: ``expand``, ``backfill``, ``contract``, ``relax`` or ``drop``.
    :param runs: True if the phases run afterwards. The unique index of a contract finds duplicates by itself then.
    :raises ConfigurationError: if there is no such table.
    """
    scene = Scene(connection, plan, phases, consent, plan.target.read_state(connection), runs)
    return build_report(scene, find_obstacles(scene))


def find_obstacles(scene: Scene, *, catalogs_only: bool = False) -> list[Obstacle]:
    """Return everything that stands in the way.

    :param catalogs_only: True to leave out what only a rehearsal, or the ids of all rows, show.
    """
    if scene.state.complete and not {"relax", "drop"} & {*scene.phases}:
        return []  # nothing is left to do
    obstacles = [*scene.plan.obstacles(scene), *column.obstacles(scene)]
    if obstacles or catalogs_only:
        return obstacles
    return [*rehearsal.obstacles(scene)] or [*contents.obstacles(scene)]  # which reads all ids
