"""What of a mapped class may be shown: its public ids; and what may not: its integer keys, under whatever name.

Everything here may be asked before mappers are configured, since response models and routes are declared while modules
are still being imported. What only configured mappers know is left out until then.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Column, ColumnClause, Integer, inspect
from sqlalchemy.orm import Mapper, RelationshipDirection, RelationshipProperty, registry
from sqlalchemy.orm.exc import UnmappedClassError
from sqlalchemy.types import NullType, TypeDecorator

from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.types import is_public_id

__all__ = [
    "Key",
    "key_of",
    "keys",
    "mapper_of",
    "mappers_of",
    "public_id",
    "relationship_of",
    "snake_case",
]


@dataclass(frozen=True)
class Key:
    """An integer key or foreign key, which nobody outside should see."""

    mapper: Mapper[Any]
    column: Column[Any]

    def __str__(self) -> str:
        kind = "a foreign key" if self._is_reference else "an integer key"
        return f"{self.column}, {kind} of {self.mapper.class_.__name__}"

    @property
    def instead(self) -> str:
        """What to show or take instead."""
        model, bases = self.mapper.class_.__name__, self.mapper.class_.__mro__
        mixin = "PublicIdMixin"
        if any(base.__name__ == "SQLModel" and base.__module__.startswith("sqlmodel") for base in bases):
            mixin = "PublicIdColumnSQLModel"
        if self._is_reference:
            name = str(self.column.key).removesuffix("_id")
            is_able = mixin == "PublicIdMixin" or mixin in [base.__name__ for base in bases]
            return f'{name}_public_id, which is public_ref("{name}") on {model}' + (
                "" if is_able else f", with {mixin}"
            )
        found = [name for name, column in self.mapper.columns.items() if is_public_id(column)]
        return found[0] if found else f"public_id, with {mixin} on {model}"

    @property
    def _is_reference(self) -> bool:
        is_primary = self.column.primary_key or any(self.column is key for key in self.mapper.primary_key)
        is_inherited = is_primary and self.mapper.inherits is not None
        return (bool(self.column.foreign_keys) or not is_primary) and not is_inherited


def mapper_of(model: object) -> Mapper[Any] | None:
    """The mapper of *model*, where it is a mapped class."""
    found = cast("Mapper[Any] | None", inspect(model, raiseerr=False)) if isinstance(model, type) else None
    return found if isinstance(found, Mapper) else None


def mappers_of(registry: registry) -> list[Mapper[Any]]:
    """The mappers of *registry*, bases first; without those that were disposed of, or whose class is not mapped."""
    mappers: list[Mapper[Any] | None] = list(registry.mappers)
    # an object that is still alive keeps the manager of its class, without a mapper
    whole = [mapper for mapper in mappers if mapper is not None and hasattr(mapper, "primary_key")]
    return sorted(whole, key=lambda mapper: (mapper.inherits is not None, mapper.class_.__name__))


def public_id(model: Any, attribute: str | None = None) -> tuple[str, Column[Any]]:
    """The name and column of the public id of *model*: the one named, the only one, or ``public_id``.

    :raises ConfigurationError: where there is none, or several and none is named.
    """
    mapper = mapper_of(model)
    if mapper is None:
        raise ConfigurationError(f"{shown(model)} is not a mapped class")
    found = {name: column for name, column in mapper.columns.items() if is_public_id(column)}
    if not found:
        raise ConfigurationError(f"{model.__name__} has no public id; add PublicIdMixin or public_id_column() to it")
    name = attribute or (next(iter(found)) if len(found) == 1 else "public_id")
    if name not in found:
        raise ConfigurationError(
            f"{model.__name__} has no public id {shown(name)}; name one of {', '.join(found)} with attribute=…"
        )
    return name, found[name]


def keys(mapper: Mapper[Any]) -> dict[str, Key]:
    """Attribute name → key, for the integer keys and foreign keys of *mapper*."""
    columns = [(name, column) for name, column in mapper.columns.items() if isinstance(column, Column)]
    return {name: Key(mapper, column) for name, column in columns if _is_key(mapper, column)}


def key_of(mapper: Mapper[Any], column: ColumnClause[Any]) -> Key | None:
    """The integer key that *column* is, of *mapper* or of another model of its registry."""
    if isinstance(column, Column) and any(column is each for each in mapper.columns):
        return Key(mapper, column) if _is_key(mapper, column) else None
    others: list[Mapper[Any]] = []
    with contextlib.suppress(UnmappedClassError):  # of a class whose mapping failed
        others = mappers_of(mapper.registry)
    if isinstance(column, Column):
        owner = next((other for other in others if other.local_table is column.table), mapper)
        return Key(owner, column) if _is_key(owner, column) else None
    table = getattr(column.table, "name", None)  # that of a lightweight table; a name in textual SQL has none
    named = (key for other in [mapper, *others] for key in keys(other).values() if key.column.name == column.name)
    return next((key for key in named if table in (None, key.column.table.name)), None)


def relationship_of(mapper: Mapper[Any], name: str) -> RelationshipProperty[Any] | None:
    """The relationship *name* of *mapper*, if there is one."""
    prop = mapper.get_property(name) if mapper.has_property(name) else None
    return prop if isinstance(prop, RelationshipProperty) else None


def snake_case(name: str) -> str:
    """``orderId`` and ``OrderId`` as ``order_id``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


# --- inside


def _is_key(mapper: Mapper[Any], column: Column[Any]) -> bool:
    type_ = column.type
    while isinstance(type_, TypeDecorator):
        type_ = type_.impl_instance
    # a foreign key without a type takes that of the column it refers to, once that is known
    is_integer = isinstance(type_, Integer) or (isinstance(type_, NullType) and mapper.configured)
    if not is_integer:
        return False
    is_ours = column.primary_key or bool(column.foreign_keys) or any(column is key for key in mapper.primary_key)
    return is_ours or _refers(mapper, column)


def _refers(mapper: Mapper[Any], column: Column[Any]) -> bool:
    """Return True if *column* holds the key of a related object, with or without a foreign key constraint."""
    return mapper.configured and any(
        local is column and any(remote is key for key in relationship.mapper.primary_key)
        for relationship in mapper.relationships
        if relationship.direction is RelationshipDirection.MANYTOONE
        for local, remote in relationship.local_remote_pairs or ()
    )
