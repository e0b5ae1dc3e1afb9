"""What the models of a project and the arguments of an operation say about a column of public ids.

An operation that is written by hand may name the table only. Its unique index must have the name that the model
declares; otherwise, ``alembic check`` finds one index to add and one to remove. The models are the ``target_metadata``
of ``env.py``. If they do not contain the table (yet, or any more), their naming convention names the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from sqlalchemy import Column, DefaultClause, Dialect, Index, MetaData, String, Table, UniqueConstraint, event
from sqlalchemy.schema import conv

from sqlalchemy_public_id.columns import is_public_id, public_id_type
from sqlalchemy_public_id.declare import name_index
from sqlalchemy_public_id.dialects.quoting import unquoted
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrations.column import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import database_of

Models: TypeAlias = MetaData | Sequence[MetaData] | None
"""``target_metadata``: one ``MetaData``, several or none."""


def read_declared(column: Column[Any], dialect: Dialect) -> PublicIdColumn | None:
    """Return what a model declares about its *column* of public ids; ``None`` if the column is not unique."""
    format = public_id_type(column).id_format
    generates = not has_own_default(column) and database_of(dialect).plan.defaults_of(dialect).can_generate(format)
    unique = _unique_of(column.table, column.name)
    if unique is None:
        return None
    return PublicIdColumn.of(
        column.table.name,
        column.name,
        format=format,
        schema=column.table.schema,
        unique_name=_name_in_database(unique, dialect),
        server_default="keep" if generates else "none",
        comment=column.comment,
    )


def has_own_default(column: Column[Any]) -> bool:
    """Return True if the model declares a server default of its own for *column*."""
    return isinstance(column.server_default, DefaultClause)


def name_in_models(models: Models, target: PublicIdColumn, dialect: Dialect) -> str | None:
    """Return the name that the models give the unique index or constraint of *target*; ``None`` if they give none."""
    table = _table_in_models(models, target)
    if table is not None:
        unique = _unique_of(table, target.column)
        return _name_in_database(unique or _by_convention(table.metadata, target), dialect)
    several = _several(models)
    return _name_in_database(_by_convention(several[0], target), dialect) if len(several) == 1 else None


def format_in_models(models: Models, target: PublicIdColumn) -> Format | None:
    """Return the format that the models declare for the column of *target*; ``None`` if they do not declare it."""
    table = _table_in_models(models, target)
    for column in () if table is None else table.columns:
        if column.name == target.column and is_public_id(column):
            return public_id_type(column).id_format
    return None


def _several(models: Models) -> list[MetaData]:
    return [models] if isinstance(models, MetaData) else list(models or ())


def _table_in_models(models: Models, target: PublicIdColumn) -> Table | None:
    key = f"{target.schema}.{target.table}" if target.schema else target.table
    return next((metadata.tables[key] for metadata in _several(models) if key in metadata.tables), None)


def _unique_of(table: Table, column: str) -> Index | UniqueConstraint | None:
    """Return the unique index or constraint that *table* declares on *column* alone, if there is one."""
    indexes = [index for index in table.indexes if index.unique and not index.dialect_kwargs]
    constraints = [constraint for constraint in table.constraints if isinstance(constraint, UniqueConstraint)]
    candidates: list[Index | UniqueConstraint] = [*indexes, *constraints]
    for unique in candidates:
        if [getattr(part, "name", None) for part in unique.columns] == [column]:
            return unique
    return None


def _name_in_database(unique: Index | UniqueConstraint | None, dialect: Dialect) -> str | None:
    """Return the name of *unique*, truncated to the length that the database allows; ``None`` if it has none.

    SQLAlchemy truncates the names that a naming convention generates when it renders them.
    """
    if unique is None or not isinstance(unique.name, str):  # instead of a name, there may be a symbol
        return None
    if not isinstance(unique.name, conv):
        return str(unique.name)
    preparer: Any = dialect.identifier_preparer
    is_index = isinstance(unique, Index)
    return unquoted(preparer.format_index(unique) if is_index else preparer.format_constraint(unique), dialect)


def _by_convention(metadata: MetaData, target: PublicIdColumn) -> Index | UniqueConstraint | None:
    column = Column(target.column, String(), unique=True, index=True)
    event.listen(column, "after_parent_attach", name_index)
    conventional = MetaData(naming_convention=metadata.naming_convention)
    return _unique_of(Table(target.table, conventional, column, schema=target.schema), target.column)
