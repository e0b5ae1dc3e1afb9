"""What of a mapped class may be shown: its public ids; and what may not: its integer keys, under whatever name.

Everything here may be asked before mappers are configured, since response models and routes are declared while modules
are still being imported. What only configured mappers know is left out until then.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Cast, Column, ColumnElement, Integer, Label, TypeCoerce
from sqlalchemy import inspect as inspection
from sqlalchemy.ext.associationproxy import AssociationProxyInstance
from sqlalchemy.orm import ColumnProperty, Mapper, QueryableAttribute, RelationshipProperty, SynonymProperty
from sqlalchemy.types import NullType, TypeDecorator

from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.types import is_public_id

__all__ = [
    "Key",
    "has_attribute",
    "key_behind",
    "keys",
    "mapper_of",
    "public_id",
    "relationship_behind",
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
        is_inherited = self.column.primary_key and self.mapper.inherits is not None
        return bool(self.column.foreign_keys) and not is_inherited


def mapper_of(model: object) -> Mapper[Any] | None:
    """The mapper of *model*, where it is a mapped class."""
    found = cast("Mapper[Any] | None", inspection(model, raiseerr=False)) if isinstance(model, type) else None
    return found if isinstance(found, Mapper) else None


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
    return {name: Key(mapper, column) for name, column in mapper.columns.items() if _is_key(mapper, column)}


def key_behind(mapper: Mapper[Any], path: tuple[str, ...]) -> Key | None:
    """The integer key that is read at *path*, such as ``("customer", "id")``; ``None`` where it is something else.

    Synonyms, column properties, hybrids and association proxies that are plain names for a key are seen through.
    """
    name, *rest = path
    if rest:
        relationship = relationship_behind(mapper, (name,))
        if relationship is None or not mapper.configured:
            return None
        return key_behind(relationship.mapper, tuple(rest))
    if mapper.has_property(name):
        prop = mapper.get_property(name)
        if isinstance(prop, SynonymProperty):
            return key_behind(mapper, (prop.name,))
        return _key(mapper, prop.columns[0]) if isinstance(prop, ColumnProperty) else None
    value = _computed(mapper, name)
    if isinstance(value, AssociationProxyInstance):
        remote: Any = value.remote_attr
        return key_behind(remote.parent, (remote.key,))
    return _key(mapper, value.expression if isinstance(value, QueryableAttribute) else value)


def relationship_behind(mapper: Mapper[Any], path: tuple[str, ...]) -> RelationshipProperty[Any] | None:
    """The relationship that is read at *path*; synonyms and association proxies are seen through."""
    name, *rest = path
    if rest:
        first = relationship_behind(mapper, (name,))
        return relationship_behind(first.mapper, tuple(rest)) if first is not None and mapper.configured else None
    if mapper.has_property(name):
        prop = mapper.get_property(name)
        if isinstance(prop, SynonymProperty):
            return relationship_behind(mapper, (prop.name,))
        return prop if isinstance(prop, RelationshipProperty) else None
    value = _computed(mapper, name)
    if isinstance(value, AssociationProxyInstance):
        remote: Any = value.remote_attr
        return relationship_behind(remote.parent, (remote.key,))
    return None


def has_attribute(mapper: Mapper[Any], name: str) -> bool:
    """Whether the objects of *mapper* have an attribute *name*, mapped or not."""
    nothing = object()
    return mapper.has_property(name) or inspect.getattr_static(mapper.class_, name, nothing) is not nothing


def relationship_of(mapper: Mapper[Any], name: str) -> RelationshipProperty[Any] | None:
    """The relationship *name* of *mapper*, if there is one."""
    prop = mapper.get_property(name) if mapper.has_property(name) else None
    return prop if isinstance(prop, RelationshipProperty) else None


def snake_case(name: str) -> str:
    """``orderId`` and ``OrderId`` as ``order_id``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


# --- inside


_Attribute = AssociationProxyInstance[Any] | QueryableAttribute[Any] | ColumnElement[Any]
"""What a class may have under the name of an attribute, beside its properties."""


def _computed(mapper: Mapper[Any], name: str) -> _Attribute | None:
    """What the class has as *name* beside its properties, once the mappers are configured."""
    if name not in mapper.all_orm_descriptors or not mapper.configured:
        return None
    try:
        return cast("_Attribute", getattr(mapper.class_, name))  # a hybrid runs the code of its author
    except Exception:
        return None


def _key(mapper: Mapper[Any], expression: ColumnElement[Any] | None) -> Key | None:
    while isinstance(expression, (Label, Cast, TypeCoerce)):
        expression = expression.element if isinstance(expression, Label) else expression.clause
    return Key(mapper, expression) if isinstance(expression, Column) and _is_key(mapper, expression) else None


def _is_key(mapper: Mapper[Any], column: Column[Any]) -> bool:
    type_ = column.type
    while isinstance(type_, TypeDecorator):
        type_ = type_.impl_instance
    # a foreign key without a type takes that of the column it refers to, once that is known
    is_integer = isinstance(type_, Integer) or (isinstance(type_, NullType) and mapper.configured)
    is_ours = column.primary_key or bool(column.foreign_keys) or any(column is key for key in mapper.primary_key)
    return is_integer and is_ours
