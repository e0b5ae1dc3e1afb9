"""Find the columns that hold public ids, and read their settings from ``Column.info``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

from sqlalchemy import Column, ColumnElement, TextClause, UniqueConstraint

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.types import IdColumnType

MAX_RETRIES = 1000
"""How many new ids to try, by default, for a row whose id collides."""

_RETRIES_KEY = "sqlalchemy_public_id.max_retries"

_UNIQUE_WITH_KEY = "sqlalchemy_public_id.unique_with"

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
    """Return True if the table declares *column* as unique: alone, or with the columns that it is ``unique_with``."""
    names = {column.key, *declared_unique_with(column)}
    return any({each.key for each in columns} == names for columns in _unique_keys(column.table))


def is_in_unique_key(column: Column[Any]) -> bool:
    """Return True if any unique key of the table contains *column*, also one for some of its rows or with others.

    Columns are compared by their names: a column that a program declares for a reflected table replaces the one that
    its keys contain. The text of an expression in an index may name any column.
    """
    keys = [{each.name for each in columns} for columns in _unique_keys(column.table)]
    for index in column.table.indexes:
        if index.unique:
            is_text = any(isinstance(each, TextClause) for each in index.expressions)
            keys.append({column.name} if is_text else {each.name for each in index.columns})
    return any(column.name in names for names in keys)


def unique_with(column: Column[Any]) -> tuple[Column[Any], ...]:
    """Return the columns that rows with equal ids differ in: those of the smallest unique key of *column* and others.

    There are none if *column* is unique alone, or not at all.
    """
    # comparing columns would build SQL
    keys = [columns for columns in _unique_keys(column.table) if any(each is column for each in columns)]
    nothing: list[Column[Any]] = []
    smallest = min(keys, key=lambda columns: (len(columns), [each.name for each in columns]), default=nothing)
    return tuple(each for each in smallest if each is not column)


def _unique_keys(table: Any) -> Iterator[list[Column[Any]]]:
    """Yield the columns of each unique key that *table* declares for all of its rows."""
    yield list(table.primary_key)
    for constraint in table.constraints:
        if isinstance(constraint, UniqueConstraint):
            yield list(constraint.columns)
    for index in table.indexes:
        is_whole = not any(option.endswith("_where") for option in index.dialect_kwargs)
        if index.unique and is_whole and all(isinstance(each, Column) for each in index.expressions):
            yield list(index.columns)


def mark_copy(column: Column[Any]) -> None:
    """Mark a column of ids that was copied, when it is attached to its table."""
    # Column.info is copied with the column: a copy has the first mark already when it is attached to another table
    if isinstance(column.type, IdColumnType):
        set_info(column, _COPIED if _ATTACHED in column.info else _ATTACHED, True)


def set_info(column: Column[Any], key: str, value: object) -> None:
    """Set *key* in the ``Column.info`` of *column* alone: a program may pass one dictionary to several columns."""
    column.info = {**column.info, key: value}


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
    set_info(column, _RETRIES_KEY, value)


def declared_unique_with(column: Column[Any]) -> tuple[str, ...]:
    """Return the names of the columns that *column* was declared to be unique with."""
    names: tuple[str, ...] = column.info.get(_UNIQUE_WITH_KEY, ())
    return names


def set_unique_with(column: Column[Any], names: Sequence[str]) -> None:
    """Declare that *column* is unique with the columns *names* of its table."""
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"unique_with is {names!r}, expected the names of columns, such as ('tenant_id',)")
    if len({*names}) < len(names):
        raise ConfigurationError(f"unique_with is {names!r}, expected each other column once")
    set_info(column, _UNIQUE_WITH_KEY, tuple(names))
