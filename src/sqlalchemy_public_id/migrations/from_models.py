"""What the models of a project and the arguments of an operation say about a column of public ids.

An operation that is written by hand may name the table only. Its unique index must have the name that the model
declares; otherwise, ``alembic check`` finds one index to add and one to remove. The models are the ``target_metadata``
of ``env.py``. If they do not contain the table (yet, or any more), their naming convention names the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from sqlalchemy import Column, DefaultClause, Dialect, Index, MetaData, String, Table, UniqueConstraint
from sqlalchemy.schema import conv

from sqlalchemy_public_id.columns import declared_unique_with, is_public_id, public_id_type, unique_with
from sqlalchemy_public_id.dialects.quoting import unquoted
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrations.column import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import database_of
from sqlalchemy_public_id.naming import unique_name
from sqlalchemy_public_id.stored_ids import SqlType
from sqlalchemy_public_id.unique_index import declare_unique

Models: TypeAlias = MetaData | Sequence[MetaData] | None
"""``target_metadata``: one ``MetaData``, several or none."""


def read_declared(column: Column[Any], dialect: Dialect) -> PublicIdColumn | None:
    """Return what a model declares about its *column* of public ids; ``None`` if the column is not unique."""
    type_, others = public_id_type(column), _others_of(column)
    format = type_.id_format
    generates = not has_own_default(column) and database_of(dialect).plan.defaults_of(dialect).can_generate(format)
    unique = _unique_of(column.table, column.name, *others)
    if unique is None:
        return None
    return PublicIdColumn.of(
        column.table.name,
        column.name,
        format=format,
        schema=column.table.schema,
        unique_name=_name_in_database(unique, dialect),
        unique_with=others,
        sql_type=type_.sql_type,
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
        unique = _unique_of(table, *target.unique_columns)
        return _name_in_database(unique or _by_convention(table.metadata, target), dialect)
    several = _several(models)
    return _name_in_database(_by_convention(several[0], target), dialect) if len(several) == 1 else None


def format_in_models(models: Models, target: PublicIdColumn) -> Format | None:
    """Return the format that the models declare for the column of *target*; ``None`` if they do not declare it."""
    column = _column_in_models(models, target)
    return None if column is None else public_id_type(column).id_format


def sql_type_in_models(models: Models, target: PublicIdColumn) -> SqlType | None:
    """Return the ``sql_type`` that the models declare for the column of *target*, if its ids can have it."""
    column = None if target.format.is_native else _column_in_models(models, target)
    return None if column is None else public_id_type(column).sql_type


def others_in_models(models: Models, target: PublicIdColumn) -> tuple[str, ...] | None:
    """Return the columns with which the models declare the column of *target* unique; ``None`` if they lack it."""
    column = _column_in_models(models, target)
    return None if column is None else _others_of(column)


def _others_of(column: Column[Any]) -> tuple[str, ...]:
    """Return the columns with which a model declares *column* unique.

    A unique key by hand that contains the primary key, or a column that may be NULL, says nothing about the ids.
    """
    names = [column.table.columns[key].name for key in declared_unique_with(column)]
    if names:
        return tuple(names)
    others = unique_with(column)
    key = {*column.table.primary_key}
    is_weak = any(each.nullable for each in others) or (key and key <= {*others})
    return () if is_weak else tuple(each.name for each in others)


def _several(models: Models) -> list[MetaData]:
    return [models] if isinstance(models, MetaData) else list(models or ())


def tables_in_models(models: Models, name: str, schema: str | None) -> list[Table]:
    """Return the table in each of the models that has it.

    Models that declare no table in this schema are translated to it, if each tenant has a schema.
    """
    found: list[Table] = []
    for metadata in _several(models):
        is_declared = any(table.schema == schema for table in metadata.tables.values())
        key = f"{schema}.{name}" if schema and is_declared else name
        found += [metadata.tables[key]] if key in metadata.tables else []
    return found


def _table_in_models(models: Models, target: PublicIdColumn) -> Table | None:
    return next(iter(tables_in_models(models, target.table, target.schema)), None)


def _column_in_models(models: Models, target: PublicIdColumn) -> Column[Any] | None:
    """Return the column of *target*, if the models declare it as one of public ids."""
    table = _table_in_models(models, target)
    columns = () if table is None else table.columns
    return next((each for each in columns if each.name == target.column and is_public_id(each)), None)


def _unique_of(table: Table, *columns: str) -> Index | UniqueConstraint | None:
    """Return the unique index or constraint that *table* declares on exactly these *columns*, if there is one.

    Of several, it is the one with the name that a naming convention or this library gives it.
    """
    indexes = [index for index in table.indexes if index.unique and not index.dialect_kwargs]
    constraints = [constraint for constraint in table.constraints if isinstance(constraint, UniqueConstraint)]
    wanted = sorted(columns)
    candidates: list[Index | UniqueConstraint] = [*indexes, *constraints]

    def rank(unique: Index | UniqueConstraint) -> tuple[bool, str]:
        is_usual = isinstance(unique.name, conv) or unique.name == unique_name(table.name, columns[0])
        return not is_usual, str(unique.name)

    # the indexes of a table are a set, whose order changes from run to run
    found = [each for each in candidates if sorted(str(getattr(part, "name", "")) for part in each.columns) == wanted]
    return min(found, key=rank, default=None)


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
    others = [Column(name, String(), nullable=False) for name in target.unique_with]
    alone = not others
    column = Column(target.column, String(), unique=alone, index=alone)
    declare_unique(column, target.unique_with)
    conventional = MetaData(naming_convention=metadata.naming_convention)
    table = Table(target.table, conventional, column, *others, schema=target.schema)
    return _unique_of(table, *target.unique_columns)
