"""Obstacles on SQLite: names of indexes, which are those of the whole database."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrating.sqlite import foreign_keys_would_fire
from sqlalchemy_public_id.preflight.scene import Scene
from sqlalchemy_public_id.preflight.structure import obstacles_of_structure


def rights(scene: Scene) -> list[str]:
    """Return the rights that the migration needs."""
    return ["the right to write the file"]


def obstacles(scene: Scene) -> Iterator[Obstacle]:
    """Yield what stands in the way of the phases."""
    target = scene.target
    table, connection = target.table, scene.connection
    yield from obstacles_of_structure(connection, table, target.schema)
    copies = {"contract", "relax"} & {*scene.phases} or ("drop" in scene.phases and scene.state.constrained)
    if copies and foreign_keys_would_fire(connection, table, target.schema):
        problem = f"PRAGMA foreign_keys is ON, and other tables refer to {table!r}: a copy would delete or orphan rows"
        remedy = 'execute "PRAGMA foreign_keys=OFF" in env.py, before context.begin_transaction()'
        yield Obstacle("foreign-keys", problem, remedy)
    if "contract" not in scene.phases or scene.state.index:
        return
    master = scene.plan.quoted(target.schema or "main")
    others = "lower(name) = lower(?) AND lower(tbl_name) <> lower(?)"
    query = f"SELECT type, tbl_name FROM {master}.sqlite_master WHERE {others}"
    row = scene.connection.exec_driver_sql(query, (target.unique_name, target.table)).first()
    if row is not None:
        problem = f"the name {target.unique_name} belongs to the {row.type} of {row.tbl_name}"
        yield Obstacle("name-taken", problem, "pass unique_name= with another name")
