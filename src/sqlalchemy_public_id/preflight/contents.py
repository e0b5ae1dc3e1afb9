"""Ids that the column holds already: duplicates and malformed ones are changed only with consent."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from sqlalchemy_public_id.backfill.contents import count_duplicates, count_invalid, count_lost
from sqlalchemy_public_id.errors import Obstacle, safe_repr
from sqlalchemy_public_id.migrating import PublicIdColumn
from sqlalchemy_public_id.migrating.plan import Scene


def obstacles(scene: Scene) -> Iterator[Obstacle]:
    """Yield what stands in the way of a unique column. Reads all ids that exist before the migration."""
    state, consent = scene.state, scene.consent
    if "contract" not in scene.phases or not state.exists or state.complete:
        return
    if consent.on_duplicate == "refuse" and not state.valid and not scene.begins_with_index:
        yield from obstacles_of_duplicates(scene.connection, scene.target)
    if consent.on_invalid == "refuse":
        yield from _of_invalid_ids(scene)
    elif consent.on_invalid == "keep" and scene.plan.collation == "ascii_bin" and scene.plan.changes_collation(state):
        yield from _of_lost_characters(scene)


def obstacles_of_duplicates(connection: Connection, target: PublicIdColumn) -> Iterator[Obstacle]:
    """Yield the obstacle that ids in several rows are."""
    number, examples = count_duplicates(connection, target)
    if number:
        ids = "1 id is" if number == 1 else f"{number} ids are"
        problem = f"{ids} in several rows, such as {', '.join(safe_repr(str(id)) for id in examples)}"
        remedy = 'correct the rows, or pass on_duplicate="replace": all rows but the first get another id'
        yield Obstacle("duplicates", problem, remedy)


def _of_invalid_ids(scene: Scene) -> Iterator[Obstacle]:
    number, examples = count_invalid(scene.connection, scene.target)
    if number:
        ids = "1 id is" if number == 1 else f"{number} ids are"
        problem = f"{ids} no {scene.target.format!r}, such as {', '.join(map(safe_repr, examples))}"
        remedy = 'pass the format with .accepting(…), or on_invalid="keep", or on_invalid="replace"'
        yield Obstacle("invalid-ids", problem, remedy)


def _of_lost_characters(scene: Scene) -> Iterator[Obstacle]:
    # the column becomes ASCII; outside of strict mode, the server would write question marks
    number, examples = count_lost(scene.connection, scene.target)
    if number:
        ids = "1 id has" if number == 1 else f"{number} ids have"
        values = ", ".join(map(safe_repr, examples))
        problem = f"{ids} other characters than ASCII, which a column of ids cannot keep, such as {values}"
        yield Obstacle("not-ascii", problem, 'correct the rows, or pass on_invalid="replace"')
