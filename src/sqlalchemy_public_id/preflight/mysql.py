"""Obstacles on MySQL and MariaDB: rights, and what makes every ALTER lock the table."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import text

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrating.indexes import names_in_queries, read_indexes
from sqlalchemy_public_id.preflight.scene import Scene
from sqlalchemy_public_id.preflight.structure import obstacles_of_structure

_TABLE = text("""
SELECT t.ENGINE AS engine, CURRENT_USER() AS user
FROM information_schema.TABLES t
WHERE t.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND t.TABLE_NAME = :table
""")
_GENERATED = text("""
SELECT c.COLUMN_NAME FROM information_schema.COLUMNS c
WHERE c.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND c.TABLE_NAME = :table AND c.EXTRA LIKE '%GENERATED%'
  AND c.EXTRA NOT LIKE 'DEFAULT%' AND (c.EXTRA LIKE '%STORED%' OR EXISTS (
      SELECT 1 FROM information_schema.STATISTICS s WHERE s.TABLE_SCHEMA = c.TABLE_SCHEMA
      AND s.TABLE_NAME = c.TABLE_NAME AND s.COLUMN_NAME = c.COLUMN_NAME))
ORDER BY c.ORDINAL_POSITION
""")
_GRANTED = text("""
SELECT PRIVILEGE_TYPE FROM information_schema.USER_PRIVILEGES WHERE GRANTEE = :grantee
UNION SELECT PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES
      WHERE GRANTEE = :grantee AND COALESCE(:schema, DATABASE()) LIKE TABLE_SCHEMA
UNION SELECT PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES
      WHERE GRANTEE = :grantee AND TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table
""")
_FOREIGN_KEYS = text("""
SELECT k.CONSTRAINT_NAME AS name, k.TABLE_NAME AS `table`,
       k.REFERENCED_COLUMN_NAME = :column AND k.REFERENCED_TABLE_NAME = :table
       AND k.REFERENCED_TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AS refers_to_ours,
       r.DELETE_RULE = 'SET NULL' OR r.UPDATE_RULE = 'SET NULL' AS sets_null
FROM information_schema.KEY_COLUMN_USAGE k
JOIN information_schema.REFERENTIAL_CONSTRAINTS r ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA
     AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME AND r.TABLE_NAME = k.TABLE_NAME
WHERE k.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND k.TABLE_NAME = :table AND k.COLUMN_NAME = :column
   OR k.REFERENCED_TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND k.REFERENCED_TABLE_NAME = :table
      AND k.REFERENCED_COLUMN_NAME = :column
ORDER BY 1
""")
_WIDER_INDEXES = text("""
SELECT s.INDEX_NAME FROM information_schema.STATISTICS s
WHERE s.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND s.TABLE_NAME = :table
GROUP BY s.INDEX_NAME
HAVING COUNT(*) > 1 AND MAX(s.COLUMN_NAME = :column)
ORDER BY s.INDEX_NAME
""")
_OF_COPY = text("""
SELECT TRIGGER_NAME FROM information_schema.TRIGGERS
WHERE EVENT_OBJECT_SCHEMA = COALESCE(:schema, DATABASE()) AND EVENT_OBJECT_TABLE = :table
  AND LEFT(TRIGGER_NAME, 7) = 'pt_osc_'
ORDER BY TRIGGER_NAME
""")
_ALTER = ("ALTER", "CREATE", "INSERT")
"""The privileges that ALTER TABLE takes."""


def rights(scene: Scene) -> list[str]:
    """Return the privileges that the migration needs."""
    needed = [*_ALTER, "SELECT", "UPDATE"] if scene.fills_rows else [*_ALTER, "SELECT"]
    return [*needed, "TRIGGER"] if scene.plan.uses_trigger else needed


def obstacles(scene: Scene) -> Iterator[Obstacle]:
    """Yield what stands in the way of the phases."""
    target = scene.target
    names = names_in_queries(scene.connection, target.table, target.schema, target.column)
    table = scene.connection.execute(_TABLE, names).one()
    yield from _of_rights(scene, names, table.user)
    yield from _of_copies(scene, names)
    if scene.state.exists:
        yield from _of_the_column(scene, names)
    if "contract" in scene.phases:
        yield from obstacles_of_structure(scene.connection, target.table, target.schema)
    if not scene.consent.allow_lock:
        yield from _of_locks(scene, names, table.engine)


def _of_copies(scene: Scene, names: dict[str, object]) -> Iterator[Obstacle]:
    # the copy replaces the table: it receives rows from now on, and no changes of columns, defaults and indexes
    triggers = scene.connection.execute(_OF_COPY, names).scalars().all()
    if triggers and set(scene.phases) != {"backfill"}:
        table = scene.target.table
        problem = f"pt-online-schema-change is copying {table}; its copy lacks what this migration changes"
        remedy = f"wait until the tool has ended; if it was killed, drop its triggers {', '.join(triggers)}"
        yield Obstacle("table-copied", problem, remedy)


def _of_the_column(scene: Scene, names: dict[str, object]) -> Iterator[Obstacle]:
    target = scene.target
    yield from _of_foreign_keys(scene, names)
    for index in scene.connection.execute(_WIDER_INDEXES, names).scalars() if "drop" in scene.phases else ():
        problem = f"the index {index} has other columns beside this one, and would keep only those"
        yield Obstacle("dependants", problem, "drop it first")
    is_invisible = getattr(scene.connection.dialect, "is_mariadb", False) and "INVISIBLE" in scene.state.attributes
    if is_invisible and "contract" in scene.phases and target.server_default == "drop":
        problem = f"{target.column} is INVISIBLE, and MariaDB wants a default for such a column that forbids NULL"
        yield Obstacle("refused", problem, 'pass server_default="keep", or make it visible')


def _of_foreign_keys(scene: Scene, names: dict[str, object]) -> Iterator[Obstacle]:
    """Yield the foreign keys of the column, and those that refer to it, which refuse an ALTER."""
    keys = scene.connection.execute(_FOREIGN_KEYS, names).all()
    drops, state = "drop" in scene.phases, scene.state
    drops_index = "relax" in scene.phases and state.index and not scene.target.keeps_unique
    for key in keys:
        name = f"the foreign key {key.name} of {key.table}"
        remedy = "drop it before the migration, and add it again afterwards"
        if drops:
            yield Obstacle("dependants", f"{name} needs the column", "drop it first")
        elif drops_index and key.refers_to_ours:
            yield Obstacle("dependants", f"{name} needs the unique index of the column", "drop it first")
        elif {"contract", "relax"} & {*scene.phases} and scene.plan.changes_collation(state):
            problem = f"{name} needs the type of the column, whose collation has to change"
            yield Obstacle("dependants", problem, remedy)
        elif "contract" in scene.phases and state.nullable and key.sets_null and not key.refers_to_ours:
            problem = f"{name} sets the column to NULL, which the migration forbids"
            yield Obstacle("dependants", problem, "give it another action than SET NULL")


def _of_locks(scene: Scene, names: dict[str, object], engine: str) -> Iterator[Obstacle]:
    target, connection = scene.target, scene.connection
    if {"drop", "relax"} & {*scene.phases} and not scene.state.exists:
        return
    causes: list[str] = []
    if engine.lower() != "innodb":
        causes.append(f"the engine is {engine}")
    kinds = {index.kind for index in read_indexes(connection, target.table, target.schema)}
    causes += [f"there is a {kind.upper()} index" for kind in ("fulltext", "spatial") if kind in kinds]
    if getattr(connection.dialect, "is_mariadb", False):
        generated = connection.execute(_GENERATED, names).scalars().all()
        causes += [f"the column {name} is generated, and stored or indexed" for name in generated]
    if "contract" in scene.phases and scene.state.versioned and _has_history(scene):
        causes.append("earlier versions of its rows get the empty string as id")
    if causes:
        problem = f"writers would wait while {connection.dialect.name} changes {target.table}: {', '.join(causes)}"
        remedy = "pass allow_lock=True to accept this, in a quiet hour"
        yield Obstacle("needs-lock", problem, remedy)


def _has_history(scene: Scene) -> bool:
    query = f"SELECT (SELECT count(*) FROM {scene.plan.table} FOR SYSTEM_TIME ALL) > count(*) FROM {scene.plan.table}"
    return bool(scene.connection.exec_driver_sql(query, execution_options={"no_parameters": True}).scalar())


def _of_rights(scene: Scene, names: dict[str, object], user: str) -> Iterator[Obstacle]:
    connection = scene.connection
    if connection.exec_driver_sql("SELECT CURRENT_ROLE()").scalar() not in (None, "NONE"):
        return  # the catalogs do not list what a role grants
    name, _, host = user.rpartition("@")
    granted = {*connection.execute(_GRANTED, {**names, "grantee": f"'{name}'@'{host}'"}).scalars()}
    missing = [privilege for privilege in rights(scene) if privilege not in granted]
    if missing:
        privileges = ", ".join(missing)
        problem = f"{user} lacks the privileges {privileges} on {scene.target.table}"
        yield Obstacle("missing-right", problem, f"GRANT {privileges} ON {scene.plan.table} TO '{name}'@'{host}'")
