"""The unique index of a column of public ids or tokens: the columns it has beside the id, its name, and its place.

An id is unique alone, or with other columns: a database that distributes a table by a column demands this column in
every unique index.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from sqlalchemy import Column, Index, MetaData, Table, UniqueConstraint, event
from sqlalchemy.sql import quoted_name

from sqlalchemy_public_id._private import has_info
from sqlalchemy_public_id.columns import (
    declared_unique_with,
    is_copy,
    is_in_unique_key,
    mark_copy,
    set_info,
    set_unique_with,
)
from sqlalchemy_public_id.errors import ConfigurationError, PublicIdWarning
from sqlalchemy_public_id.listeners import Listener, Listeners
from sqlalchemy_public_id.naming import unique_name

_NO_CONVENTION = MetaData().naming_convention
"""The default convention of SQLAlchemy's ``MetaData``: ``ix_<table>_<column>``."""

_HAS_INDEX = "sqlalchemy_public_id.unique_index"
"""Key in ``Column.info``: the column has a unique index of this module."""


def declare_unique(column: Column[Any], names: Sequence[str] = ()) -> None:
    """Name the unique index of *column*, or, with *names*, give it one that also has these columns of its table.

    :raises ConfigurationError: if *names* are not names of other columns.
    """
    if names:
        set_unique_with(column, names)
    set_info(column, _HAS_INDEX, True)
    LISTENERS.install()


def _after_column_attached(column: Column[Any], table: Any) -> None:
    """Name or add the unique index of *column*. Runs when any column is attached to its table."""
    if not isinstance(table, Table):
        return
    mark_copy(column)
    if has_info(column) and _HAS_INDEX in column.info:
        (_add_index if declared_unique_with(column) else _name_index)(column, cast("Table", table))


def _name_index(column: Column[Any], table: Table) -> None:
    """Name the unique index of *column*, which SQLAlchemy has added, unless the project has a naming convention.

    A naming convention applies ``ix`` to every ``Index``, unique or not, and ``uq`` to a ``UniqueConstraint``. If the
    convention has no ``ix``, the index would have no name and could not be created.
    """
    for index in table.indexes:
        if index.unique and list(index.columns) == [column]:
            _name(index, table, column)
            event.listen(table, "after_parent_attach", partial(_use_constraint, index))


def _add_index(column: Column[Any], table: Table) -> None:
    """Add the index of *column* with others, as soon as *table* has them."""
    if not is_copy(column):  # the copy of a table has a copy of the index
        if all(name in table.columns for name in declared_unique_with(column)):
            _index(column, table)  # at once: the table may have been complete before, and then nothing else runs
        event.listen(table, "after_parent_attach", partial(_complete, column))


LISTENERS = Listeners(Listener(Column, "after_parent_attach", _after_column_attached))
"""Installed by the first column of public ids or tokens. A column in ``Annotated`` loses listeners of its own."""


def _complete(column: Column[Any], table: Table, metadata: MetaData) -> None:
    """Check the index of *column* with others. Runs when *table* is complete."""
    check_unique_with(column)
    _use_constraint(_index(column, table), table, metadata)


def check_unique_with(column: Column[Any]) -> None:
    """Refuse columns that *column* cannot be unique with.

    Warn if *column* is unique neither alone nor with others: nothing would refuse an id that another row has.

    :raises ConfigurationError: names the column that is missing, may be NULL, or differs in every row by itself.
    """
    table, names = column.table, declared_unique_with(column)
    if not names and not is_in_unique_key(column):
        warnings.warn(
            f"{table.name}.{column.name} generates ids and is in no unique index of its table, so that two rows may "
            f"get one id; write unique=True, or public_id_column()",
            PublicIdWarning,
            stacklevel=2,
        )
    label = f"{table.name}.{column.name} is unique_with {', '.join(names)}"
    for name in names:
        if name not in table.columns:
            others = ", ".join(each.key for each in table.columns if each is not column)
            raise ConfigurationError(
                f"{label}, but {table.name} has no column {name!r}; write the name of a column of this table: {others}"
            )
        if table.columns[name] is column:
            raise ConfigurationError(f"{label}, but {name} is the public id itself; write the other columns")
        if table.columns[name].nullable:
            raise ConfigurationError(
                f"{label}, but {name} may be NULL, and rows with NULL may have equal ids; declare {name} with "
                f"nullable=False"
            )
    if names and table.primary_key and all(key.key in names for key in table.primary_key):
        raise ConfigurationError(
            f"{label}, which contains the primary key: rows always differ in their keys, so that no id would be "
            f"refused; leave the primary key out, or keep the ids in a separate table"
        )


def _index(column: Column[Any], table: Table) -> Index:
    columns = [column, *(table.columns[name] for name in declared_unique_with(column))]
    for index in table.indexes:
        if index.unique and list(index.columns) == columns:
            return index
    index = Index(None, *columns, unique=True)
    _name(index, table, column)
    return index


def _name(index: Index, table: Table, column: Column[Any]) -> None:
    is_named = table.metadata.naming_convention != _NO_CONVENTION
    if not (is_named and index.name):
        index.name = quoted_name(unique_name(table.name, column.name), None)


def _use_constraint(index: Index, table: Table, metadata: MetaData) -> None:
    """Replace the unique *index* by a constraint if the table refers to its own column. Runs when *table* is complete.

    A constraint is part of CREATE TABLE, where the foreign key needs it; the index would be created afterwards.
    """
    column, *others = index.columns
    names = {table.fullname, table.name} if table.schema == metadata.schema else {table.fullname}
    targets = {f"{name}.{column.key}" for name in names}
    if any(key.target_fullname in targets and not key.use_alter for key in table.foreign_keys):
        table.indexes.remove(index)
        column.index = column.unique = False  # copies of the table get the constraint, too
        constraint = UniqueConstraint(column, *others)
        table.append_constraint(constraint)
        if not isinstance(constraint.name, str):
            constraint.name = index.name
