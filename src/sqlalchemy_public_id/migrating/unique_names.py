"""The name of a unique index or constraint as the models of the project have it.

An operation that is written by hand names the table alone. Its index is to have the name that the model declares, or
``alembic check`` finds one too few and one too many. The models are the ``target_metadata`` of ``env.py``; a table that
they have no more, or not yet, is named by their naming convention.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from sqlalchemy import Column, Dialect, Index, MetaData, String, Table, UniqueConstraint, event
from sqlalchemy.schema import conv

from sqlalchemy_public_id.declare import name_index
from sqlalchemy_public_id.dialects.quoting import unquoted
from sqlalchemy_public_id.migrating.column import PublicIdColumn, Unique

Models: TypeAlias = MetaData | Sequence[MetaData] | None
"""``target_metadata``: one, several or none."""


def name_in_models(models: Models, target: PublicIdColumn, dialect: Dialect) -> str | None:
    """Return the name of the unique index, or the constraint, of *target*; ``None`` if there are no models."""
    several = [models] if isinstance(models, MetaData) else list(models or ())
    key = f"{target.schema}.{target.table}" if target.schema else target.table
    for metadata in several:
        if key in metadata.tables:
            unique = unique_of(metadata.tables[key], target.column, target.unique)
            return name_in_database(unique or _by_convention(metadata, target), dialect)
    return name_in_database(_by_convention(several[0], target), dialect) if len(several) == 1 else None


def unique_of(table: Table, column: str, kind: Unique) -> Index | UniqueConstraint | None:
    """Return the unique index or constraint of *column* alone that *table* declares, if there is one."""
    indexes = (index for index in table.indexes if index.unique and not index.dialect_kwargs)
    constraints = (constraint for constraint in table.constraints if isinstance(constraint, UniqueConstraint))
    for unique in indexes if kind == "index" else constraints:
        if [getattr(part, "name", None) for part in unique.columns] == [column]:
            return unique
    return None


def name_in_database(unique: Index | UniqueConstraint | None, dialect: Dialect) -> str | None:
    """Return the name of *unique*, cut to the length that the database allows; ``None`` if it has none.

    SQLAlchemy cuts names that a convention has made, when it writes them.
    """
    if unique is None or not isinstance(unique.name, str):  # without a name, there may be a symbol in its place
        return None
    if not isinstance(unique.name, conv):
        return str(unique.name)
    preparer: Any = dialect.identifier_preparer
    is_index = isinstance(unique, Index)
    return unquoted(preparer.format_index(unique) if is_index else preparer.format_constraint(unique), dialect)


def _by_convention(metadata: MetaData, target: PublicIdColumn) -> Index | UniqueConstraint | None:
    column = Column(target.column, String(), unique=True, index=target.unique == "index")
    event.listen(column, "after_parent_attach", name_index)
    conventional = MetaData(naming_convention=metadata.naming_convention)
    return unique_of(Table(target.table, conventional, column, schema=target.schema), target.column, target.unique)
