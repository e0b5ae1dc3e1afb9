"""PostgreSQL: INSERTs that skip a row instead of failing, so that no savepoint is needed.

``ON CONFLICT DO NOTHING`` is put into the text of the statement just before it is sent. It has no conflict target, so
that it also works while the unique index is still being built, on partitioned tables, and for a role without SELECT.
Whatever keeps a row out, the row is missing afterwards. Then the plain INSERT is run inside of a savepoint, and the
error of the database tells whether the id was the reason: if so, the row gets another one.

Triggers that run BEFORE INSERT have run for the row that was left out, and what they wrote stays. So the first
collision of a table looks for them: from then on its INSERTs go inside a savepoint, and what has stayed is told.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any

from sqlalchemy import ARRAY, Column, ForeignKeyConstraint, Table, any_, bindparam, cast, func, insert, select
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id._compat import has_expressions, has_many_rows, key_behind_returning, plain_table, post_values
from sqlalchemy_public_id.errors import ConfigurationError, PublicIdCollision
from sqlalchemy_public_id.guard.execution import Attempt
from sqlalchemy_public_id.guard.parameters import Batch, Slot

__all__ = ["run"]

_QUIET = "\nON CONFLICT DO NOTHING"  # on a line of its own: other listeners may have added a comment
_RETURNING = " RETURNING "


def run(attempt: Attempt, batch: Batch) -> bool:
    """Run the INSERT of *attempt* so that collisions do no harm, if it is of a form that allows it; whether it was."""
    statement = _quiet_text(attempt)
    if statement is None:
        return False
    key = key_behind_returning(attempt.context.compiled)
    if batch.rows == 1:
        _one_row(attempt, batch, statement)
    elif key is not None and batch.pending and _is_plain(attempt, batch):
        _many_rows(attempt, batch, statement, key)
    else:
        return False
    return True


def _quiet_text(attempt: Attempt) -> str | None:
    """The statement with ON CONFLICT DO NOTHING, or ``None`` where that is not possible."""
    statement, insert_ = attempt.statement, attempt.context.compiled.statement
    if post_values(insert_) is not None or insert_.select is not None or has_many_rows(insert_):
        return None
    if _has_deferrable_constraint(plain_table(insert_.table)):
        return None  # PostgreSQL refuses ON CONFLICT without a target there
    if _early_triggers.get(attempt.dialect, {}).get(attempt.names):
        return None
    if not attempt.context.compiled.effective_returning:
        return statement + _QUIET
    before, found, after = statement.partition(_RETURNING)
    return None if not found or _RETURNING in after else before + _QUIET + found + after


_early_triggers: weakref.WeakKeyDictionary[Dialect, dict[tuple[str, str | None], list[str]]] = (
    weakref.WeakKeyDictionary()
)
"""Engine → table and schema → the triggers that ran for a row that was left out. Looked up at the first collision."""


def _warn_of_triggers(attempt: Attempt) -> None:
    """Warn of triggers that have run for a row that was left out, once for each table."""
    table, known = attempt.names[0], _early_triggers.setdefault(attempt.dialect, {})
    if attempt.names in known:
        return
    names = known[attempt.names] = _look_for_triggers(attempt)
    if names:
        warnings.warn(
            f"the public id of a row of {table} was taken, and PostgreSQL ran {', '.join(names)} before it left "
            f"the row out: what these triggers wrote for it stays in the transaction. From now on INSERTs into "
            f"{table} run inside a savepoint, which undoes it; triggers AFTER INSERT FOR EACH ROW need none",
            RuntimeWarning,
            stacklevel=2,
        )


def _look_for_triggers(attempt: Attempt) -> list[str]:
    try:
        with attempt.saved():
            return attempt.traits.early_triggers(attempt.connection, *attempt.names)
    except DBAPIError as error:
        if not attempt.traits.is_permission_error(error.orig):
            raise
        return []


def _has_deferrable_constraint(table: Table) -> bool:
    return any(
        getattr(constraint, "deferrable", None) and not isinstance(constraint, ForeignKeyConstraint)
        for constraint in table.constraints
    )


def _is_plain(attempt: Attempt, batch: Batch) -> bool:
    """Whether each row is nothing but its parameters, so that one of them can be inserted by itself."""
    table = plain_table(attempt.context.compiled.statement.table)
    return not has_expressions(attempt.context.compiled.statement) and batch.names_in_row() <= set(table.columns.keys())


def _one_row(attempt: Attempt, batch: Batch, statement: str) -> None:
    """A row count of zero: something keeps the row out, and the INSERT as it was has the database say what.

    The table is not asked: it may hide the row (row-level security), and a role need not have the right to read it.
    """
    attempt.execute(batch.for_driver(), statement)
    if attempt.cursor.rowcount == 0:
        try:
            attempt.until_it_fits(batch, lambda parameters: _plainly(attempt, parameters))
        except PublicIdCollision:
            _warn_of_triggers(attempt)  # the caller may go on, with what they wrote
            raise
        if attempt.has_collided:
            _warn_of_triggers(attempt)


def _plainly(attempt: Attempt, parameters: Any) -> None:
    """The INSERT as it was, inside of a savepoint.

    If nothing is wrong, it was a trigger that kept the row out, the first time as well: what it did then is enough.
    """
    attempt.execute(parameters)
    if attempt.cursor.rowcount == 0:
        attempt.send("ROLLBACK TO SAVEPOINT")


def _collided(attempt: Attempt, batch: Batch, slots: list[Slot]) -> list[Slot]:
    """Those of *slots* whose id is seen to be taken; none if the caller gave one of these, who has to be told."""
    found = [slot for slot in slots if attempt.exists(slot.column, [batch.text(slot)])]
    return found if all(map(batch.is_ours, found)) else []


def _many_rows(attempt: Attempt, batch: Batch, statement: str, key: Column[Any]) -> None:
    """Too few rows in return are the collision: insert the missing ones one by one, then return all of them.

    For a flush only: where that fails half-way, the session rolls back the rows that are there already.
    """
    attempt.execute(batch.parameters, statement)
    if attempt.cursor.rowcount == batch.rows:
        return
    keys = _keys_of_rows(attempt, batch, key, [row[-1] for row in attempt.cursor.fetchall()])
    _warn_of_triggers(attempt)
    for row, slots in batch.slots_by_row().items():
        if keys[row] is None:
            attempt.replace(batch, _collided(attempt, batch, slots))
            keys[row] = _insert_one(attempt, batch, row, key)
    _return_all(attempt, key, list(keys.values()))


def _keys_of_rows(attempt: Attempt, batch: Batch, key: Column[Any], inserted: list[int]) -> dict[int, int | None]:
    """Row → its key; ``None`` for a row that was left out."""
    column = batch.slots[0].column
    known = attempt.connection.execute(
        select(column, key).where(key == any_(_array(inserted, key))), execution_options=attempt.options
    )
    by_id: dict[str, int] = {row[0]: row[1] for row in known}
    # of several rows with the same id, the first one was inserted
    keys = {slot.row: by_id.pop(batch.text(slot), None) for slot in batch.slots if slot.column is column}
    if by_id:
        raise ConfigurationError(
            f"rows of {column.table.name} were stored with other ids in {column.name} than were sent (by a trigger?), "
            f"so a collision in the same flush cannot be retried: leave the ids to the library or to the database"
        )
    return keys


def _insert_one(attempt: Attempt, batch: Batch, row: int, key: Column[Any]) -> int:
    """Insert *row* by itself, guarded as any other INSERT of one row; its key."""
    parameters = attempt.context.compiled_parameters[row]
    query = insert(plain_table(key.table)).returning(key)
    result = attempt.connection.execute(query, dict(parameters), execution_options=attempt.options)
    parameters.update(result.context.compiled_parameters[0])
    found: int = result.scalar_one()
    return found


def _return_all(attempt: Attempt, key: Column[Any], keys: list[Any]) -> None:
    """Have the cursor return what RETURNING would have, with the position of the row in place of the key behind it."""
    ordered = _array(keys, key)
    columns = attempt.context.compiled.effective_returning
    query = select(*columns, func.array_position(ordered, cast(key, key.type))).where(key == any_(ordered))
    with attempt.connection.execute(query, execution_options=attempt.options) as result:
        statement, parameters = result.context.statement, result.context.parameters[0]
    attempt.execute(parameters, statement)


def _array(keys: list[Any], key: Column[Any]) -> Any:
    return bindparam(None, keys, type_=ARRAY(key.type))
