"""PostgreSQL: INSERTs that skip a row instead of failing, so that no savepoint is needed.

``ON CONFLICT DO NOTHING`` is added to the SQL string just before it is sent. It has no conflict target, so that it also
works while the unique index is still being built, on partitioned tables, and for a role without SELECT. A row that was
skipped for any reason is missing from the result. Then the plain INSERT is executed inside a savepoint, and the error
of the database shows whether the id was the reason: if so, the row gets a new id.

Triggers that run BEFORE INSERT would have run for a skipped row, and a row that a rule or a trigger stores elsewhere
looks like a skipped one. INSERTs into a table with such a trigger or rule are executed inside a savepoint, and so are
those into a table with a deferrable constraint, for which PostgreSQL refuses the clause.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast
from weakref import ref

from sqlalchemy import ColumnElement, Table
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.engine.interfaces import ExecuteStyle
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id._private import change_returned_rows
from sqlalchemy_public_id.dialects import execute_unlogged, traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.guard.call import DriverCall, names_of, returned_text, schema_options
from sqlalchemy_public_id.guard.collision import insert_until_stored
from sqlalchemy_public_id.guard.statement import MADE_IDS, InsertStatement
from sqlalchemy_public_id.types import MatchedId
from sqlalchemy_public_id.weak import RefDict

_ON_CONFLICT = "\nON CONFLICT DO NOTHING"  # on a separate line: other listeners may have appended a comment
_RETURNING = " RETURNING "
_REFUSALS = ("55000", "0A000")  # of a deferrable constraint as arbiter, and of a table with rules


# --- the statement


def with_do_nothing(context: Any, statement: str, insert: InsertStatement) -> str | None:
    """Return *statement* with ``ON CONFLICT DO NOTHING``; None if it must not have this clause in *context*."""
    connection = context.root_connection
    if not insert.can_skip_rows or not _sees_collisions(connection):
        return None
    if _is_forbidden(connection, names_of(insert.table, context.execution_options)):
        return None
    if not insert.layout.returned:
        return statement + _ON_CONFLICT
    # the clause precedes RETURNING; a statement that contains the word twice is not changed
    before, returning, after = statement.partition(_RETURNING)
    return None if not returning or _RETURNING in after else before + _ON_CONFLICT + returning + after


def _sees_collisions(connection: Connection) -> bool:
    """Return True in a transaction that sees the commits of others: in any other, a conflict raises an error anyway."""
    traits, dbapi_connection = traits_for(connection.dialect), connection.connection.dbapi_connection
    return traits.sees_commits(dbapi_connection, connection.dialect) and not traits.in_autocommit(dbapi_connection)


def can_skip_rows(connection: Connection, table: Table) -> bool:
    """Return True if an INSERT into *table* may have ON CONFLICT DO NOTHING, which skips rows that collide.

    It may not if the table has a deferrable constraint or triggers that would run for a skipped row, under AUTOCOMMIT,
    and in a transaction that does not see what others have committed.
    """
    if not _sees_collisions(connection):
        return False
    return not _is_forbidden(connection, names_of(table, connection.get_execution_options()))


# --- the rows


def insert_rows(
    context: Any, cursor: Any, statement: str, parameters: Any, first: int, insert: InsertStatement
) -> bool:
    """Execute an INSERT with the clause, and insert again the rows that the database skipped.

    Return False, without sending it, if the INSERT cannot have the clause.
    """
    conditional = with_do_nothing(context, statement, insert)
    if conditional is None:
        return False
    is_batch = context.execute_style is ExecuteStyle.INSERTMANYVALUES
    call = DriverCall(context, cursor, statement, parameters, first) if is_batch else None
    if call is not None and len(call.rows) > 1 and not _can_insert_alone(call):
        return False
    names = names_of(insert.table, context.execution_options)
    try:
        context.dialect.do_execute(cursor, conditional, parameters, context)
    except context.dialect.dbapi.Error as error:
        note_refusal(context.root_connection, names, error)
        raise
    stored, sent = cursor.rowcount, 1 if call is None else len(call.rows)
    if stored == sent:
        return True
    if not 0 <= stored < sent:
        raise _unknown_rows(context, stored, sent)
    check_skipped(context.root_connection, names)
    call = call or DriverCall(context, cursor, statement, parameters)
    if sent == 1:
        # The plain INSERT makes the database report the reason. A SELECT could not: row-level security may hide the
        # other row, and the role may lack the privilege to read the table.
        insert_until_stored(call, in_savepoint=True)
        if is_batch:  # the last of several batches may have one row
            call.return_rows_by_sent_ids()
        return True
    try:
        _insert_missing(call)
    except Exception:
        # The other rows are stored. A plain INSERT would have stored none and aborted the transaction: make it fail.
        with suppress(context.dialect.dbapi.Error):
            call.send()
        raise
    return True


def _unknown_rows(context: Any, stored: int, sent: int) -> ConfigurationError:
    return ConfigurationError(
        f"the driver {context.dialect.driver} counts {stored} rows for an INSERT … ON CONFLICT DO NOTHING of {sent}, "
        f"so it is unknown which are stored; call guard.uninstall(engine), and handle collisions as IntegrityErrors"
    )


def _can_insert_alone(call: DriverCall) -> bool:
    """Return True if each row can be inserted alone, and be recognized in the result by its id.

    All values of such a row are in its parameters, and no column default has read the id, which may be replaced. No two
    rows may have the same id: either of them may have been skipped, even because of another constraint.
    """
    insert = call.statement
    is_whole = call.rows[0].keys() <= insert.column_keys and not insert.dependent
    return insert.can_insert_alone and not call.has_equal_rows and is_whole


def _insert_missing(call: DriverCall) -> None:
    """Insert each row alone that the database has skipped, and let SQLAlchemy find all rows in the result."""
    column = call.statement.sentinel[0]
    text = returned_text(call.context, column, -1)
    found = {text(row[-1]): tuple(row) for row in call.cursor.fetchall()}
    rows: list[Any] = []
    for parameters in call.rows:
        sent = parameters[column.key]
        row = found.pop(sent, None)
        rows.append(row if row is not None else (*_insert_alone(call, parameters), MatchedId(sent)))
    change_returned_rows(call.context, lambda _: rows)


def _insert_alone(call: DriverCall, parameters: dict[str, Any]) -> Sequence[Any]:
    """Insert a row, guarded like any INSERT, and set its new id in *parameters*. Return the row of the driver."""
    insert = call.statement
    query = insert.table.insert().returning(*cast("Sequence[ColumnElement[Any]]", insert.layout.returned))
    made = frozenset(id.name for id in call.ids if id.is_made)
    options = schema_options(call.context) | {MADE_IDS: made}
    with call.connection.execute(query, dict(parameters), execution_options=options) as result:
        execution: Any = result.context
        row: Sequence[Any] = execution.cursor.fetchone()  # SQLAlchemy converts the values of all rows together
        parameters.update(execution.compiled_parameters[0])
    return row


def other_ids(column: Any) -> ConfigurationError:
    """Build the error for rows that were returned with other ids than were sent."""
    return ConfigurationError(
        f"rows of {column.table.name} were stored with other ids in {column.name} than were sent, probably by a "
        f"trigger, so they cannot be told apart; let either the library or the database generate the ids"
    )


# --- tables that must not have the clause

_forbidden: RefDict[Dialect, dict[tuple[str, str | None], bool]] = RefDict()
"""Engine → table and schema → True if INSERTs into the table must not have the clause."""


def _is_forbidden(connection: Connection, names: tuple[str, str | None]) -> bool:
    """Return True if INSERTs into a table must not have the clause, or if this is unknown.

    The table has triggers or rules that run for a skipped row, or a deferrable constraint, for which PostgreSQL refuses
    the clause. This is looked up once for each table and engine, before the first INSERT: later would be too late.
    """
    answer = _answers(connection).get(names)
    if answer is None:
        traits, answer = traits_for(connection.dialect), True
        execute_unlogged(connection.connection, "SAVEPOINT sqlalchemy_public_id")
        try:
            answer = traits.forbids_on_conflict(connection, *names)
        except DBAPIError as error:
            if not traits.is_permission_error(error):
                raise
            execute_unlogged(connection.connection, "ROLLBACK TO SAVEPOINT sqlalchemy_public_id")
        execute_unlogged(connection.connection, "RELEASE SAVEPOINT sqlalchemy_public_id")
        _answers(connection)[names] = answer
    return answer


def _answers(connection: Connection) -> dict[tuple[str, str | None], bool]:
    tables = _forbidden.get(ref(connection.dialect))
    return _forbidden.keep(connection.dialect, {}) if tables is None else tables


def check_skipped(connection: Connection, names: tuple[str, str | None]) -> None:
    """Refuse to insert skipped rows again if the table must not have the clause any more.

    It may have got a trigger since the first INSERT, or the search path may lead to the table of another tenant.

    :raises ConfigurationError: if a trigger may have stored the rows elsewhere; later INSERTs have no clause.
    """
    if traits_for(connection.dialect).forbids_on_conflict(connection, *names):
        _answers(connection)[names] = True
        raise ConfigurationError(
            f"{names[0]} has a trigger now that it did not have at the first INSERT of this program, so it is unknown "
            f"whether the trigger has stored the rows elsewhere; roll the transaction back, and run it again"
        )


def note_refusal(connection: Connection, names: tuple[str, str | None], error: BaseException | None) -> None:
    """Leave out the clause from now on if PostgreSQL refuses it, because of a new deferrable constraint or rule."""
    if traits_for(connection.dialect).error_code(error) in _REFUSALS:
        _answers(connection)[names] = True
