"""PostgreSQL: INSERTs that skip a row instead of failing, so that no savepoint is needed.

``ON CONFLICT DO NOTHING`` is added to the SQL string just before it is sent. It has no conflict target, so that it also
works while the unique index is still being built, on partitioned tables, and for a role without SELECT. A row that was
skipped for any reason is missing from the result. Then the plain INSERT is executed inside a savepoint, and the error
of the database shows if the id was the reason: if so, the row gets another one.

Triggers that run BEFORE INSERT have run for the skipped row, and the rows that they wrote stay. So the first collision
of a table looks for them: from then on its INSERTs are executed inside a savepoint, and a warning names the triggers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any
from weakref import ref

from sqlalchemy import ARRAY, Column, ForeignKeyConstraint, Table, any_, bindparam, insert, or_, select
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.engine.interfaces import ExecuteStyle
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id._compat import (
    driver_rows,
    has_many_rows,
    has_own_values,
    plain_table,
    post_values_clauses,
    return_rows,
    returned_columns,
    sentinel_key,
)
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError, PublicIdCollision
from sqlalchemy_public_id.guard.execution import GuardedInsert
from sqlalchemy_public_id.guard.parameters import Batch, Slot, may_contain_generated
from sqlalchemy_public_id.types import public_id_type
from sqlalchemy_public_id.weak import RefDict

_ON_CONFLICT = "\nON CONFLICT DO NOTHING"  # on a line of its own: other listeners may have added a comment
_RETURNING = " RETURNING "

_takes_clause: RefDict[Any, bool] = RefDict()
"""Compiled INSERT → True if it may have the clause. Cached, because every single-row INSERT needs it."""
_last_clause: RefDict[Any, tuple[str, str | None]] = RefDict()
"""Compiled INSERT → its statement, and the same with the clause or None. Listeners may change the statement."""


def insert_one_row(context: Any, cursor: Any, statement: str, parameters: Any) -> bool:
    """Execute an INSERT of one row with ON CONFLICT DO NOTHING. Return False, sending nothing, if it cannot have it.

    A flush of one object passes here. It is :func:`run` with what such an INSERT needs and no more.
    """
    compiled, dialect = context.compiled, context.dialect
    triggers = _triggers_before_insert.get(ref(dialect))
    if context.execute_style is not ExecuteStyle.EXECUTE or (triggers and any(triggers.values())):
        return False
    if context.execution_options.get("stream_results") or not may_contain_generated(context):
        return False
    traits, proxy = traits_for(dialect), context.root_connection.connection
    dbapi_connection = proxy.dbapi_connection
    if traits.in_autocommit(dbapi_connection) or not traits.sees_commits(dbapi_connection, dialect):
        return False
    if traits.defers_results(proxy.driver_connection):
        return False
    with_clause = _with_clause(compiled, statement)
    if with_clause is None:
        return False
    dialect.do_execute(cursor, with_clause, parameters, context)
    if cursor.rowcount == 0:
        with GuardedInsert(context, cursor, statement) as guarded:
            _run_skipped_row(guarded, Batch(context, parameters))
    return True


def run(guarded: GuardedInsert, batch: Batch) -> bool:
    """Execute the INSERT with ON CONFLICT DO NOTHING. Return False, sending nothing, if it cannot have the clause."""
    triggers = _triggers_before_insert.get(ref(guarded.dialect))
    if triggers and triggers.get(guarded.names):
        return False
    statement = _with_clause(guarded.context.compiled, guarded.statement)
    if statement is None:
        return False
    key = sentinel_key(guarded.context.compiled)
    if batch.rows == 1:
        guarded.execute(batch.for_driver(), statement)
        if guarded.cursor.rowcount == 0:
            _run_skipped_row(guarded, batch)
    elif key is not None and batch.ids and _has_plain_rows(guarded, batch):
        _run_many_rows(guarded, batch, statement, key)
    else:
        return False
    return True


# --- the statement


def _with_clause(compiled: Any, statement: str) -> str | None:
    """Return *statement* with the clause, or None if it cannot have it."""
    last = _last_clause.get(ref(compiled))
    if last is None or last[0] != statement:
        last = _last_clause.keep(compiled, (statement, _add_clause(compiled, statement)))
    return last[1]


def _add_clause(compiled: Any, statement: str) -> str | None:
    is_possible = _takes_clause.get(ref(compiled))
    if is_possible is None:
        is_possible = _takes_clause.keep(compiled, _can_take_clause(compiled.statement))
    if not is_possible:
        return None
    if not returned_columns(compiled):
        return statement + _ON_CONFLICT
    # the clause stands before RETURNING; a statement with the word in another place as well is left alone
    before, returning, after = statement.partition(_RETURNING)
    return None if not returning or _RETURNING in after else before + _ON_CONFLICT + returning + after


def _can_take_clause(insert_: Any) -> bool:
    if post_values_clauses(insert_) or insert_.select is not None or has_many_rows(insert_):
        return False
    return not _has_deferrable_constraint(plain_table(insert_.table))


def _has_deferrable_constraint(table: Table) -> bool:
    # PostgreSQL refuses ON CONFLICT without a target then
    return any(
        getattr(constraint, "deferrable", None) and not isinstance(constraint, ForeignKeyConstraint)
        for constraint in table.constraints
    )


def can_skip_rows(connection: Connection, table: Table) -> bool:
    """Return True if an INSERT into *table* may have ON CONFLICT DO NOTHING, which skips rows that collide.

    Not with a deferrable constraint, with triggers that ran for a skipped row once, without a transaction, or in one
    that does not see what others have committed.
    """
    dialect = connection.dialect
    if _has_deferrable_constraint(table) or _triggers_before_insert.get(ref(dialect), {}).get(
        names_of(connection, table)
    ):
        return False
    traits, driver_connection = traits_for(dialect), connection.connection.dbapi_connection
    return traits.sees_commits(driver_connection, dialect) and not traits.in_autocommit(driver_connection)


def names_of(connection: Connection, table: Table) -> tuple[str, str | None]:
    """Return the names of *table* and of its schema on *connection*."""
    schemas: Mapping[str | None, str | None] = connection.get_execution_options().get("schema_translate_map") or {}
    return table.name, schemas.get(table.schema, table.schema)


def _has_plain_rows(guarded: GuardedInsert, batch: Batch) -> bool:
    """Return True if each row is nothing but its parameters, so that it can be inserted by itself."""
    statement, parameters = guarded.context.compiled.statement, guarded.context.compiled_parameters[batch.first]
    return not has_own_values(statement) and parameters.keys() <= set(plain_table(statement.table).columns.keys())


# --- one row


def _run_skipped_row(guarded: GuardedInsert, batch: Batch) -> None:
    # The plain INSERT makes the database report the reason. A SELECT could not: row-level security may hide the
    # other row, and a role need not have the right to read the table.
    try:
        guarded.execute_with_retries(batch, guarded.execute, may_be_skipped=True)
    except PublicIdCollision:
        _warn_of_triggers(guarded)  # the application may go on, with the rows that they wrote
        raise
    if guarded.taken:
        _warn_of_triggers(guarded)


# --- the rows of a flush


def _run_many_rows(guarded: GuardedInsert, batch: Batch, statement: str, key: Column[Any]) -> None:
    """Insert all rows at once, then the skipped ones, and return the rows in their order.

    For a flush only: if it fails half-way, the session rolls back the rows that are stored already.
    """
    guarded.execute(batch.parameters, statement)
    if guarded.cursor.rowcount == batch.rows:
        return
    # the sentinel, which is the key, is the last column of each returned row
    inserted = {row[-1]: row for row in guarded.cursor.fetchall()}
    keys, taken = _keys_by_row(guarded, batch, key, inserted.keys())
    _warn_of_triggers(guarded)
    rows = {row: inserted[row_key] for row, row_key in keys.items() if row_key is not None}
    slots = {row: _taken_slots(batch, row, taken) for row in keys.keys() - rows.keys()}
    guarded.taken |= taken
    guarded.replace(batch, [slot for row in sorted(slots) for slot in slots[row]])
    # a row without a taken id violates another constraint: it goes alone, so that the database reports which one
    alone = {row for row in slots if not slots[row]}
    together = sorted(slots.keys() - alone)
    for some in [*([row] for row in sorted(alone)), together]:
        rows |= zip(some, _insert_rows(guarded, some, key), strict=True)
    # SQLAlchemy sorts the rows by the sentinel; a row that was inserted later has a larger key than those after it
    return_rows(guarded.context, [(*rows[row][:-1], at) for at, row in enumerate(keys)])


def _keys_by_row(
    guarded: GuardedInsert, batch: Batch, key: Column[Any], inserted: Collection[int]
) -> tuple[dict[int, int | None], set[tuple[Column[Any], str]]]:
    """Return row → its key, None for a row that was skipped; and the ids that others have."""
    ids: dict[Column[Any], list[str]] = {}
    for slot in batch.slots:
        ids.setdefault(slot.column, []).append(batch.text(slot))
    column, *others = ids
    conditions = [key == any_(_array(list(inserted), key))]
    conditions += [
        condition
        for one, texts in ids.items()
        for condition in guarded.traits.any_of(one, texts, public_id_type(one).as_parameter)
    ]
    query = select(key, column, *others).where(or_(*conditions))
    key_of_id: dict[str, int] = {}
    taken: set[tuple[Column[Any], str]] = set()
    for row_key, *texts in guarded.connection.execute(query, execution_options=guarded.options):
        if row_key in inserted:
            key_of_id[texts[0]] = row_key
        taken.update(zip(ids, texts, strict=True))
    # of several rows with the same id, the first one was inserted
    keys = {slot.row: key_of_id.pop(batch.text(slot), None) for slot in batch.slots if slot.column is column}
    if key_of_id:
        raise other_ids(column)
    return keys, taken


def other_ids(column: Column[Any]) -> ConfigurationError:
    """Build the error for rows that have not come back with the ids that were sent."""
    return ConfigurationError(
        f"rows of {column.table.name} were stored with other ids in {column.name} than were sent (by a trigger?), so "
        f"they cannot be told apart: leave the ids to the library or to the database"
    )


def _taken_slots(batch: Batch, row: int, taken: set[tuple[Column[Any], str]]) -> list[Slot]:
    # none if an id of the application is taken: the INSERT has to fail with the error of the database
    slots = [slot for slot in batch.slots if slot.row == row and (slot.column, batch.text(slot)) in taken]
    return slots if all(map(batch.is_generated, slots)) else []


def _insert_rows(guarded: GuardedInsert, rows: list[int], key: Column[Any]) -> list[Sequence[Any]]:
    """Insert *rows*, guarded as any INSERT; return what the driver returns for each, its key at the end."""
    if not rows:
        return []
    parameters = [guarded.context.compiled_parameters[row] for row in rows]
    columns: list[Column[Any]] = [*returned_columns(guarded.context.compiled), key]
    query: Any = insert(plain_table(key.table))
    query = query.returning(*columns, sort_by_parameter_order=len(rows) > 1)
    given: Any = [dict(one) for one in parameters]
    with guarded.connection.execute(query, given, execution_options=guarded.options) as result:
        for one, final in zip(parameters, result.context.compiled_parameters, strict=True):
            one.update(final)  # its id may have collided once more
        return [row[: len(columns)] for row in driver_rows(result.context)]


def _array(keys: list[Any], key: Column[Any]) -> Any:
    return bindparam(None, keys, type_=ARRAY(key.type))


# --- triggers

_triggers_before_insert: RefDict[Dialect, dict[tuple[str, str | None], list[str]]] = RefDict()
"""Engine → table and schema → the triggers that ran for a skipped row. Looked up at the first collision."""


def _warn_of_triggers(guarded: GuardedInsert) -> None:
    warn_of_triggers(guarded.connection, guarded.names, guarded.savepoint)


def warn_of_triggers(
    connection: Connection, names: tuple[str, str | None], savepoint: Callable[[], AbstractContextManager[object]]
) -> None:
    """Warn of triggers that have run for a skipped row, once for each table."""
    table, tables = names[0], _triggers_before_insert.get(ref(connection.dialect))
    if tables is None:
        tables = _triggers_before_insert.keep(connection.dialect, {})
    if names in tables:
        return
    traits, triggers = traits_for(connection.dialect), list[str]()
    try:
        with savepoint():
            triggers = traits.early_triggers(connection, *names)
    except DBAPIError as error:
        if not traits.is_permission_error(error.orig):
            raise
    tables[names] = triggers
    if triggers:
        warnings.warn(
            f"the public id of a row of {table} was taken, and PostgreSQL ran {', '.join(triggers)} before it left "
            f"the row out: what these triggers wrote for it stays in the transaction. From now on INSERTs into "
            f"{table} run inside a savepoint, which undoes it; triggers AFTER INSERT FOR EACH ROW need none",
            RuntimeWarning,
            stacklevel=2,
        )
