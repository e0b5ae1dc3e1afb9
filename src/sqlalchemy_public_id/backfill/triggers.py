"""Triggers that the UPDATE of a backfill would fire: refuse, fire them, or leave them out."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from sqlalchemy import Connection

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrating import PublicIdColumn
from sqlalchemy_public_id.migrating.catalog import Triggers, sqlite_triggers, unskippable_triggers, update_triggers
from sqlalchemy_public_id.migrating.run import transaction
from sqlalchemy_public_id.migrating.sqlite import in_schema


def obstacles_of_triggers(connection: Connection, target: PublicIdColumn, wanted: Triggers) -> Iterator[Obstacle]:
    """Yield an obstacle if the backfill would fire triggers without consent, or cannot leave them out."""
    triggers = update_triggers(connection, target.table, target.schema, target.column)
    if not triggers or wanted == "fire":
        return
    names = ", ".join(triggers)
    what = f"the trigger {names}" if len(triggers) == 1 else f"the triggers {names}"
    can_skip = connection.dialect.name in ("postgresql", "sqlite")
    if wanted == "refuse":
        skip = ', or update_triggers="skip" to leave them out' if can_skip else ""
        remedy = f'pass update_triggers="fire" to accept this{skip}'
        yield Obstacle("update-triggers", f"the backfill would fire {what} once for each row", remedy)
    elif not can_skip:
        remedy = 'pass update_triggers="fire", or drop them until the backfill has ended'
        yield Obstacle("update-triggers", f"{connection.dialect.name} cannot leave out {what}", remedy)
    elif connection.dialect.name == "postgresql":
        yield from _of_skipping(connection, target)


def _of_skipping(connection: Connection, target: PublicIdColumn) -> Iterator[Obstacle]:
    always = unskippable_triggers(connection, target.table, target.schema)
    if always:
        problem = f"{', '.join(always)} {'fires' if len(always) == 1 else 'fire'} for replicated changes, too"
        yield Obstacle("update-triggers", problem, 'ALTER TABLE … ENABLE TRIGGER, or pass update_triggers="fire"')
    if not _may_skip(connection):
        yield Obstacle(
            "missing-right",
            "the role may not set session_replication_role, which leaves out triggers",
            "run the migration as a superuser, or GRANT SET ON PARAMETER session_replication_role (PostgreSQL 15), "
            'or pass update_triggers="fire"',
        )


def _may_skip(connection: Connection) -> bool:
    if connection.exec_driver_sql("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").scalar():
        return True
    query = "SELECT has_parameter_privilege('session_replication_role', 'SET')"
    version = connection.dialect.server_version_info
    return version is not None and int(version[0]) >= 15 and bool(connection.exec_driver_sql(query).scalar())


@contextmanager
def transaction_without_triggers(connection: Connection, target: PublicIdColumn) -> Generator[None]:
    """Leave out the triggers of the table in a transaction, or in a savepoint of the open one."""
    with begin_updates(connection, "skip"), without_triggers(connection, target):
        yield


def begin_updates(connection: Connection, triggers: Triggers) -> AbstractContextManager[object]:
    """Begin what UPDATEs need: a savepoint, or in AUTOCOMMIT mode a transaction where one is needed."""
    if not in_autocommit(connection):  # the caller's transaction has to survive a failed statement
        return connection.begin_nested()
    if traits_for(connection.dialect).commits_each_row:
        return transaction(connection, "BEGIN IMMEDIATE")
    return transaction(connection, "BEGIN") if triggers == "skip" else nullcontext()


def in_autocommit(connection: Connection) -> bool:
    """Return True if the options of *connection* have each statement committed."""
    return connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"


@contextmanager
def without_triggers(connection: Connection, target: PublicIdColumn) -> Generator[None]:
    """Leave out the triggers of the table inside the open transaction."""
    if connection.dialect.name == "postgresql":
        before = connection.exec_driver_sql("SHOW session_replication_role").scalar_one()
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        yield
        connection.exec_driver_sql(f"SET LOCAL session_replication_role = {before}")  # the caller may go on
        return
    # SQLite has one writer: nobody else misses them
    schema = connection.dialect.identifier_preparer.quote(target.schema or "main")
    triggers = sqlite_triggers(connection, target.table, target.schema)
    for name, _ in triggers:
        connection.exec_driver_sql(f"DROP TRIGGER {schema}.{connection.dialect.identifier_preparer.quote(name)}")
    yield
    for _, sql in triggers:
        connection.exec_driver_sql(in_schema(sql, f"{schema}."))
