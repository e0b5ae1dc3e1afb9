"""Find the columns that hold public ids, and read their settings from ``Column.info``."""

from __future__ import annotations

from typing import Any, TypeGuard

from sqlalchemy import Column, ColumnElement, Table, UniqueConstraint, event

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.types import IdColumnType

MAX_RETRIES = 1000
"""How many new ids to try, by default, for a row whose id collides."""

_RETRIES_KEY = "sqlalchemy_public_id.max_retries"

_ATTACHED = "sqlalchemy_public_id.attached"
"""Key in ``Column.info``, which is copied with the column: the column was attached to a table."""

_COPIED = "sqlalchemy_public_id.copied"
"""Key in ``Column.info``: the column was copied from another table."""


def is_public_id(column: ColumnElement[Any]) -> TypeGuard[Column[Any]]:
    """Return True if *column* holds the public ids of its own rows.

    Such a column has a default and no foreign key. A copy that is no longer unique belongs to a history table.
    """
    if not isinstance(column, Column):
        return False
    has_default = column.default is not None or column.server_default is not None
    is_own = isinstance(column.type, IdColumnType) and has_default and not column.foreign_keys
    return is_own and (not is_copy(column) or is_unique(column))


def is_copy(column: Column[Any]) -> bool:
    """Return True if the column was copied with its table, as ``to_metadata()`` and version tables do."""
    return _COPIED in column.info


def is_unique(column: Column[Any]) -> bool:
    """Return True if the table declares *column* alone as unique."""
    if list(column.table.primary_key) == [column]:
        return True
    unique = [index.columns for index in column.table.indexes if index.unique]
    unique += [
        constraint.columns for constraint in column.table.constraints if isinstance(constraint, UniqueConstraint)
    ]
    return any(list(columns) == [column] for columns in unique)


def after_type_attached(type_: IdColumnType, column: Any) -> None:
    """Watch a column for copies. Runs when *column* gets its type."""
    if isinstance(column, Column):
        event.listen(column, "after_parent_attach", _on_table)


def _on_table(column: Column[Any], table: Any) -> None:
    # Column.info is copied with the column: a copy has the first mark already when it is attached to another table
    if isinstance(table, Table):
        column.info[_COPIED if _ATTACHED in column.info else _ATTACHED] = True


def public_id_columns(table: Any) -> list[Column[Any]]:
    """Return the columns of *table* that hold the public ids of its rows."""
    return [column for column in table.columns if is_public_id(column)]


def public_id_type(column: Column[Any]) -> IdColumnType:
    """Return the type of *column*, narrowed for type checkers: it holds public ids."""
    assert isinstance(column.type, IdColumnType)
    return column.type


def max_retries(column: Column[Any]) -> int:
    """Return how many new ids may be tried for a row of *column*."""
    value: int = column.info.get(_RETRIES_KEY, MAX_RETRIES)
    return value


def set_max_retries(column: Column[Any], value: int) -> None:
    """Set how many new ids may be tried for a row of *column*."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigurationError(f"max_retries is {value!r}, expected a whole number of 0 or more")
    column.info[_RETRIES_KEY] = value
