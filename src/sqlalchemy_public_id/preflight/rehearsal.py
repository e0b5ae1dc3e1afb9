"""Run the steps of a migration on an empty copy of the table: what the server refuses there, it would refuse half-way.

PostgreSQL has no rehearsal: nothing there copies a table without its rows and with its dependants.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlalchemy import Connection, create_engine, inspect
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrating.plan import Plan, Scene, Step
from sqlalchemy_public_id.migrating.run import can_be_retried, mode_for_old_rows, plan_for, run_inside

_COPY = "public_id_rehearsal"


def obstacles(scene: Scene) -> Iterator[Obstacle]:
    """Yield the first step that the server refuses. Without the rights for a copy, nothing is yielded."""
    if not scene.state.exists and "expand" not in scene.phases:
        return
    if scene.connection.dialect.name == "sqlite":
        yield from _on_sqlite(scene)
    elif scene.connection.dialect.name in ("mysql", "mariadb") and scene.plan.online:  # an ALTER commits
        yield from _on_mysql(scene)


def _on_sqlite(scene: Scene) -> Iterator[Obstacle]:
    """Use a copy of the schema in memory. What needs functions or modules of the application is left out."""
    target = replace(scene.target, schema=None)
    master = quoted_table("sqlite_master", scene.target.schema or "main", scene.connection.dialect)
    query = f"SELECT sql FROM {master} WHERE sql IS NOT NULL ORDER BY type <> 'table', rowid"
    engine = create_engine("sqlite://", isolation_level="AUTOCOMMIT")
    with engine.connect() as copy:
        for sql in scene.connection.exec_driver_sql(query).scalars():
            _is_accepted(copy, sql)
        plan = plan_for(target, copy.dialect)
        for step in _steps(plan, scene) if inspect(copy).has_table(target.table) else ():
            try:
                run_inside([step], target, copy)
            except DBAPIError as error:
                yield _refused(scene, step, error)
                break
    engine.dispose()


def _on_mysql(scene: Scene) -> Iterator[Obstacle]:
    """Use a temporary table, which has the columns, indexes and CHECKs, and neither triggers nor foreign keys."""
    connection, dialect = scene.connection, scene.connection.dialect
    target = replace(scene.target, table=_COPY)  # the catalogs have no state of a temporary table
    plan = plan_for(target, dialect, allow_lock=True)  # temporary tables refuse LOCK=NONE
    (mode,) = connection.exec_driver_sql("SELECT @@SESSION.sql_mode").one()
    _send(connection, f"SET SESSION sql_mode = '{mode_for_old_rows(mode)}'")
    try:
        if not _is_accepted(connection, f"CREATE TEMPORARY TABLE {plan.table} LIKE {scene.plan.table}"):
            return
        for step in _steps(plan, scene):
            statements = step.sql(connection, scene.state) if step.needed(scene.state) else ()
            try:
                for sql in statements:
                    if sql.startswith(f"ALTER TABLE {plan.table} "):  # and not the trigger of the table itself
                        _send(connection, sql)
            except DBAPIError as error:
                if can_be_retried(error, dialect):
                    raise
                yield _refused(scene, step, error)
                break
        _send(connection, f"DROP TEMPORARY TABLE {plan.table}")
    finally:
        if not connection.invalidated:
            _send(connection, f"SET SESSION sql_mode = '{mode}'")


def _steps(plan: Plan, scene: Scene) -> Iterator[Step]:
    for phase in scene.phases:
        if phase != "backfill":
            yield from getattr(plan, phase)()


def _is_accepted(connection: Connection, sql: str) -> bool:
    try:
        _send(connection, sql)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return False
    return True


def _send(connection: Connection, sql: str) -> None:
    connection.exec_driver_sql(sql, execution_options={"no_parameters": True})


def _refused(scene: Scene, step: Step, error: DBAPIError) -> Obstacle:
    reason = str(getattr(error.orig, "args", [error.orig])[-1])
    problem = f"{scene.connection.dialect.name} refuses to {step.name}: {reason}"
    return Obstacle("refused", problem, "change what the database names, in a revision before")
