"""The public ids of a mapped class, which may be shown, and its integer keys, which may not.

All functions work before mappers are configured, since response models and routes are declared while modules are still
being imported. Until mappers are configured, they leave out what depends on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Column, Integer, inspect
from sqlalchemy.orm import Mapper, RelationshipDirection, registry
from sqlalchemy.types import NullType

from sqlalchemy_public_id.columns import is_public_id
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import mapped_classes, undecorated


@dataclass(frozen=True)
class Key:
    """An integer primary key or foreign key, which must not leave the application."""

    mapper: Mapper[Any]
    column: Column[Any]

    def __str__(self) -> str:
        kind = "a foreign key" if self._is_reference else "an integer key"
        return f"{self.column}, {kind} of {self.mapper.class_.__name__}"

    @property
    def instead(self) -> str:
        """The name of the public id to show or take instead."""
        model, bases = self.mapper.class_.__name__, self.mapper.class_.__mro__
        mixin = "PublicIdMixin"
        if any(base.__name__ == "SQLModel" and base.__module__.startswith("sqlmodel") for base in bases):
            mixin = "PublicIdColumnSQLModel"
        if self._is_reference:
            name = str(self.column.key).removesuffix("_id")
            has_mixin = mixin == "PublicIdMixin" or mixin in [base.__name__ for base in bases]
            reference = f'{name}_public_id, which is public_ref("{name}") on {model}'
            return reference if has_mixin else f"{reference}, with {mixin}"
        names = [name for name, column in self.mapper.columns.items() if is_public_id(column)]
        return names[0] if names else f"public_id, with {mixin} on {model}"

    @property
    def _is_reference(self) -> bool:
        is_primary = self.column.primary_key or any(self.column is key for key in self.mapper.primary_key)
        is_inherited = is_primary and self.mapper.inherits is not None
        return (bool(self.column.foreign_keys) or not is_primary) and not is_inherited


def mapper_of(model: object) -> Mapper[Any] | None:
    """Return the mapper of *model*, or ``None`` if it is not a mapped class."""
    mapper = cast("Mapper[Any] | None", inspect(model, raiseerr=False)) if isinstance(model, type) else None
    return mapper if isinstance(mapper, Mapper) else None


def mappers_of(registry: registry) -> list[Mapper[Any]]:
    """Return the mappers of *registry*, bases first, without disposed and failed ones."""
    return sorted(mapped_classes(registry), key=lambda mapper: mapper.inherits is not None)


def public_id(model: Any, attribute: str | None = None) -> tuple[str, Column[Any]]:
    """Return name and column of the public id of *model*: *attribute*, the only public id, or ``public_id``.

    :raises ConfigurationError: if *model* is not mapped, or has no such public id.
    """
    # orm.inspection.public_id_attribute() configures mappers, which fails while models are still being imported
    mapper = mapper_of(model)
    if mapper is None:
        raise ConfigurationError(f"{safe_repr(model)} is not a mapped class")
    columns = {name: column for name, column in mapper.columns.items() if is_public_id(column)}
    if not columns:
        raise ConfigurationError(f"{model.__name__} has no public id; add PublicIdMixin or public_id_column() to it")
    name = attribute or (next(iter(columns)) if len(columns) == 1 else "public_id")
    if name not in columns:
        raise ConfigurationError(
            f"{model.__name__} has no public id {safe_repr(name)}; name one of {', '.join(columns)} with attribute=…"
        )
    return name, columns[name]


def keys(mapper: Mapper[Any]) -> dict[str, Key]:
    """Map attribute names to the integer primary keys and foreign keys of *mapper*."""
    found = {name: key_of(mapper, column) for name, column in mapper.columns.items() if isinstance(column, Column)}
    return {name: key for name, key in found.items() if key is not None}


def key_of(mapper: Mapper[Any], column: Column[Any]) -> Key | None:
    """Return *column* as a key of *mapper*, or ``None`` if it is no key."""
    return Key(mapper, column) if _is_key(mapper, column) else None


def snake_case(name: str) -> str:
    """Return *name* in snake case: ``orderId`` and ``OrderId`` become ``order_id``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _is_key(mapper: Mapper[Any], column: Column[Any]) -> bool:
    type_ = undecorated(column.type)
    # a foreign key without a type gets the type of its target once mappers are configured
    is_integer = isinstance(type_, Integer) or (isinstance(type_, NullType) and mapper.configured)
    if not is_integer:
        return False
    is_key = column.primary_key or bool(column.foreign_keys) or any(column is key for key in mapper.primary_key)
    return is_key or _is_in_many_to_one(mapper, column)


def _is_in_many_to_one(mapper: Mapper[Any], column: Column[Any]) -> bool:
    """Return True if a many-to-one relationship reads *column*, with or without a foreign key constraint."""
    return mapper.configured and any(
        local is column and any(remote is key for key in relationship.mapper.primary_key)
        for relationship in mapper.relationships
        if relationship.direction is RelationshipDirection.MANYTOONE
        for local, remote in relationship.local_remote_pairs or ()
    )
