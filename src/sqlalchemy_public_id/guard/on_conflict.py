"""PostgreSQL: INSERTs that skip a row instead of failing, so that no savepoint is needed.

``ON CONFLICT DO NOTHING`` is added to the SQL string just before it is sent. It has no conflict target, so that it also
works while the unique index is still being built, on partitioned tables, and for a role without SELECT. A row that was
skipped for any reason is missing from the result. Then the plain INSERT is executed inside a savepoint, and the error
of the database shows if the id was the reason: if so, the row gets another one.

Triggers that run BEFORE INSERT would have run for a skipped row, and a row that a rule or a trigger stores elsewhere
looks like a skipped one. INSERTs into a table with such a trigger or rule are executed inside a savepoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import ref

from sqlalchemy import ARRAY, Column, ForeignKeyConstraint, Table, any_, bindparam, insert, select
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
from sqlalchemy_public_id._compat.flush_insert import is_of_flush
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.guard.execution import GuardedInsert, names_of, send_savepoint
from sqlalchemy_public_id.guard.parameters import MADE_IDS, Batch, id_parameters, may_contain_generated, table_of
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
    if context.execute_style is not ExecuteStyle.EXECUTE:
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
    if _runs_early(context.root_connection, names_of(table_of(compiled), context.execution_options)):
        return False
    dialect.do_execute(cursor, with_clause, parameters, context)
    if cursor.rowcount == 0:
        with GuardedInsert(context, cursor, statement) as guarded:
            _run_skipped_row(guarded, Batch(context, parameters))
    return True


def run(guarded: GuardedInsert, batch: Batch) -> bool:
    """Execute the INSERT with ON CONFLICT DO NOTHING. Return False, sending nothing, if it cannot have the clause."""
    statement = _with_clause(guarded.context.compiled, guarded.statement)
    if statement is None or _runs_early(guarded.connection, guarded.names):
        return False
    key = sentinel_key(guarded.context.compiled)
    if batch.rows == 1:
        guarded.execute(batch.for_driver(), statement)
        if guarded.cursor.rowcount == 0:
            _run_skipped_row(guarded, batch)
    elif key is not None and is_of_flush(guarded.context.compiled) and _has_plain_rows(guarded, batch):
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
        is_possible = _takes_clause.keep(compiled, _can_take_clause(compiled))
    if not is_possible:
        return None
    if not returned_columns(compiled):
        return statement + _ON_CONFLICT
    # the clause stands before RETURNING; a statement with the word in another place as well is left alone
    before, returning, after = statement.partition(_RETURNING)
    return None if not returning or _RETURNING in after else before + _ON_CONFLICT + returning + after


def _can_take_clause(compiled: Any) -> bool:
    insert_ = compiled.statement
    if post_values_clauses(insert_) or insert_.select is not None or has_many_rows(insert_):
        return False
    return not _has_deferrable_constraint(table_of(compiled))


def _has_deferrable_constraint(table: Table) -> bool:
    # PostgreSQL refuses ON CONFLICT without a target then
    return any(
        getattr(constraint, "deferrable", None) and not isinstance(constraint, ForeignKeyConstraint)
        for constraint in table.constraints
    )


def can_skip_rows(connection: Connection, table: Table) -> bool:
    """Return True if an INSERT into *table* may have ON CONFLICT DO NOTHING, which skips rows that collide.

    Not with a deferrable constraint, with triggers that would run for a skipped row, without a transaction, or in one
    that does not see what others have committed.
    """
    dialect = connection.dialect
    traits, driver_connection = traits_for(dialect), connection.connection.dbapi_connection
    if not traits.sees_commits(driver_connection, dialect) or traits.in_autocommit(driver_connection):
        return False
    names = names_of(table, connection.get_execution_options())
    return not _has_deferrable_constraint(table) and not _runs_early(connection, names)


def _has_plain_rows(guarded: GuardedInsert, batch: Batch) -> bool:
    """Return True if each row can be inserted by itself, and be told from the others by its id.

    Such a row is nothing but its parameters. Two rows that have drawn the same id are one to too many: the other one
    can be the row that was skipped, for another constraint.
    """
    compiled, parameters = guarded.context.compiled, guarded.context.compiled_parameters[batch.first]
    if has_own_values(compiled.statement) or not parameters.keys() <= set(table_of(compiled).columns.keys()):
        return False
    return batch.has_different_ids


# --- one row


def _run_skipped_row(guarded: GuardedInsert, batch: Batch) -> None:
    # The plain INSERT makes the database report the reason. A SELECT could not: row-level security may hide the
    # other row, and a role need not have the right to read the table.
    guarded.execute_with_retries(batch, guarded.execute, in_savepoint=True)


# --- the rows of a flush


def _run_many_rows(guarded: GuardedInsert, batch: Batch, statement: str, key: Column[Any]) -> None:
    """Insert all rows at once, then each skipped one alone, and return the rows in their order.

    For a flush only: if it fails half-way, the session rolls back the rows that are stored already.
    """
    guarded.execute(batch.parameters, statement)
    if guarded.cursor.rowcount == batch.rows:
        return
    # the sentinel, which is the key, is the last column of each returned row
    inserted = {row[-1]: row for row in guarded.cursor.fetchall()}
    keys = _keys_by_row(guarded, batch, key, list(inserted))
    rows = [
        inserted[keys[row]] if row in keys else _insert_alone(guarded, row, key)
        for row in range(batch.first, batch.first + batch.rows)
    ]
    # SQLAlchemy sorts the rows by the sentinel; a row that was inserted later has a larger key than those after it
    return_rows(guarded.context, [(*row[:-1], at) for at, row in enumerate(rows)])


def _keys_by_row(guarded: GuardedInsert, batch: Batch, key: Column[Any], inserted: list[Any]) -> dict[int, Any]:
    """Return row → its key, without the rows that were skipped."""
    slots = [slot for slot in batch.slots if slot.column is batch.slots[0].column]
    column = slots[0].column
    query = select(column, key).where(key == any_(bindparam(None, inserted, type_=ARRAY(key.type))))
    stored: dict[str, Any] = {}
    if inserted:
        rows = guarded.connection.execute(query, execution_options=guarded.options)
        stored.update((row[0], row[1]) for row in rows)
    keys = {slot.row: stored.pop(batch.text(slot)) for slot in slots if batch.text(slot) in stored}
    if stored:
        raise other_ids(column)
    return keys


def other_ids(column: Column[Any]) -> ConfigurationError:
    """Build the error for rows that have not come back with the ids that were sent."""
    return ConfigurationError(
        f"rows of {column.table.name} were stored with other ids in {column.name} than were sent (by a trigger?), so "
        f"they cannot be told apart: leave the ids to the library or to the database"
    )


def _insert_alone(guarded: GuardedInsert, row: int, key: Column[Any]) -> Sequence[Any]:
    """Insert a skipped row, guarded as any INSERT. Return what the driver returns for it, with its key at the end."""
    parameters = guarded.context.compiled_parameters[row]
    columns: list[Column[Any]] = [*returned_columns(guarded.context.compiled), key]
    query = insert(plain_table(key.table)).returning(*columns)
    made = {parameter.name for parameter in id_parameters(guarded.context.compiled) if parameter.is_default}
    options = guarded.options | {MADE_IDS: frozenset(made)}
    with guarded.connection.execute(query, dict(parameters), execution_options=options) as result:
        parameters.update(result.context.compiled_parameters[0])  # it may have got another id
        stored: Sequence[Any] = driver_rows(result.context)[0]
        return stored[: len(columns)]


# --- triggers

_early: RefDict[Dialect, dict[tuple[str, str | None], bool]] = RefDict()
"""Engine → table and schema → True if something runs for a row that the clause leaves out."""


def _runs_early(connection: Connection, names: tuple[str, str | None]) -> bool:
    """Return True if triggers or rules of a table run for a row that is left out, or if nobody knows.

    Looked up once for each table and engine, before its first INSERT: afterwards, it would be too late.
    """
    tables = _early.get(ref(connection.dialect))
    if tables is None:
        tables = _early.keep(connection.dialect, {})
    answer = tables.get(names)
    if answer is None:
        traits, answer = traits_for(connection.dialect), True
        send_savepoint(connection, "SAVEPOINT")
        try:
            answer = traits.runs_early(connection, *names)
        except DBAPIError as error:
            if not traits.is_permission_error(error.orig):
                raise
            send_savepoint(connection, "ROLLBACK TO SAVEPOINT")
        send_savepoint(connection, "RELEASE SAVEPOINT")
        tables[names] = answer
    return answer
