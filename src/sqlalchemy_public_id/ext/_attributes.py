"""Attributes of a mapped class, and paths of them: those that show an integer key, related objects or a dictionary.

Synonyms, column properties, hybrids, composites and association proxies are seen through. Those that only configured
mappers can tell are left out until then.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from sqlalchemy import Boolean, ClauseElement
from sqlalchemy.ext.associationproxy import AssociationProxyInstance
from sqlalchemy.ext.hybrid import HybridExtensionType
from sqlalchemy.orm import ColumnProperty, CompositeProperty, Mapper, RelationshipProperty, SynonymProperty
from sqlalchemy.types import TypeDecorator

from sqlalchemy_public_id.ext import _mapped, _samples
from sqlalchemy_public_id.ext._expressions import columns_of, expression_of

__all__ = [
    "dictionary_behind",
    "has_attribute",
    "key_behind",
    "key_of_dictionary",
    "keys_shown",
    "relationship_behind",
]

_STATE = "_sa_instance_state"
"""The attribute of each mapped object that SQLAlchemy keeps its identity in."""

Path = tuple[str | int, ...]
"""Names of attributes, with places in lists and keys of dictionaries among them."""


def has_attribute(mapper: Mapper[Any], name: str) -> bool:
    """Return True if the objects of *mapper* have an attribute *name*, mapped or not."""
    nothing = object()
    is_there = inspect.getattr_static(mapper.class_, name, nothing) is not nothing
    return is_there or mapper.has_property(name) or name == _STATE


def key_behind(mapper: Mapper[Any], path: Path) -> _mapped.Key | None:
    """The integer key that is read at *path*, such as ``("customer", "id")``; ``None`` where it is something else."""
    name, *rest = _names(path)
    if name.startswith("__") or name == _STATE:  # all that the object has
        return next(iter(_mapped.keys(mapper).values()), None)
    key = _key_of(mapper, name)
    relationship = relationship_behind(mapper, (name,)) if rest and key is None else None
    if relationship is None or not mapper.configured:
        return key
    # the first step behind a dictionary may be one of its keys
    steps = [tuple(rest), tuple(rest[1:])] if _is_dictionary(relationship) else [tuple(rest)]
    return _first(key_behind(relationship.mapper, each) for each in steps if each)


def relationship_behind(mapper: Mapper[Any], path: Path) -> RelationshipProperty[Any] | None:
    """The relationship that is read at *path*."""
    name, *rest = _names(path)
    if rest:
        first = relationship_behind(mapper, (name,))
        return relationship_behind(first.mapper, tuple(rest)) if first is not None and mapper.configured else None
    if mapper.has_property(name):
        prop = mapper.get_property(name)
        if isinstance(prop, SynonymProperty):
            return relationship_behind(mapper, (prop.name,))
        return prop if isinstance(prop, RelationshipProperty) else None
    value = _of_the_class(mapper, name)
    if isinstance(value, AssociationProxyInstance):
        target = _mapped.mapper_of(value.target_class)
        return relationship_behind(target, (value.value_attr,)) if target is not None else None
    found = getattr(value, "property", None)
    return found if isinstance(found, RelationshipProperty) else None  # pyright: ignore[reportUnknownVariableType]


def dictionary_behind(mapper: Mapper[Any], name: str) -> RelationshipProperty[Any] | None:
    """The relationship whose dictionary the attribute *name* shows, with its keys."""
    value = None if mapper.has_property(name) else _of_the_class(mapper, name)
    name = value.target_collection if isinstance(value, AssociationProxyInstance) else name
    found = relationship_behind(mapper, (name,))
    return found if found is not None and _is_dictionary(found) else None


def key_of_dictionary(relationship: RelationshipProperty[Any]) -> _mapped.Key | None:
    """The integer key that the keys of a dictionary are, or are made of.

    :raises Untold: where that cannot be told, because the function that makes the keys needs other objects.
    """
    function = getattr(_collection(relationship), "keyfunc", None)
    if function is None or not relationship.mapper.configured:
        raise _samples.Untold
    return _samples.key_in(relationship.mapper, keys_shown(relationship.mapper, plain=True), function)


def keys_shown(mapper: Mapper[Any], *, plain: bool = False) -> dict[str, _mapped.Key]:
    """Attribute name → key, for the attributes that show one; if *plain*, of those with a value in each row alone."""
    names = mapper.column_attrs.keys() if plain and mapper.configured else mapper.all_orm_descriptors.keys()
    found = {str(name): _key_of(mapper, str(name)) for name in names}
    return {name: key for name, key in found.items() if key is not None}


# --- inside


def _names(path: Path) -> list[str]:
    return [step for step in path if isinstance(step, str)]


def _key_of(mapper: Mapper[Any], name: str) -> _mapped.Key | None:
    """The integer key that the attribute *name* shows."""
    if mapper.has_property(name):
        prop = mapper.get_property(name)
        if isinstance(prop, SynonymProperty):
            return _key_of(mapper, prop.name)
        if isinstance(prop, CompositeProperty):
            return _first(_key_of(mapper, each.key) for each in prop.props)
        return _first(_key_in(mapper, each) for each in prop.columns) if isinstance(prop, ColumnProperty) else None
    value = _of_the_class(mapper, name)
    if isinstance(value, AssociationProxyInstance):
        target = _mapped.mapper_of(value.target_class)
        return key_behind(target, (value.value_attr,)) if target is not None else None
    expression = expression_of(value)
    key = _key_in(mapper, expression) if expression is not None else None
    if key is None and mapper.configured and _is_hybrid(mapper, name):
        # what an object shows is computed in Python, whatever the expression of the class is
        with contextlib.suppress(_samples.Untold):
            key = _samples.key_in(mapper, keys_shown(mapper, plain=True), lambda sample: getattr(sample, name))
    return key


def _key_in(mapper: Mapper[Any], expression: ClauseElement) -> _mapped.Key | None:
    """The integer key that the value of *expression* is made of."""
    type_ = getattr(expression, "type", None)
    while isinstance(type_, TypeDecorator):
        type_ = type_.impl_instance
    if isinstance(type_, Boolean):
        return None
    return _first(_mapped.key_of(mapper, column) for column in columns_of(expression))


def _of_the_class(mapper: Mapper[Any], name: str) -> Any:
    """Return the descriptor *name* of the class, once the mappers are configured."""
    if name not in mapper.all_orm_descriptors or not mapper.configured:
        return None
    try:
        return getattr(mapper.class_, name)  # a hybrid runs the code of its author
    except Exception:
        return None


def _is_hybrid(mapper: Mapper[Any], name: str) -> bool:
    found = mapper.all_orm_descriptors.get(name)
    return found is not None and found.extension_type is HybridExtensionType.HYBRID_PROPERTY


def _is_dictionary(relationship: RelationshipProperty[Any]) -> bool:
    return isinstance(_collection(relationship), Mapping)


def _collection(relationship: RelationshipProperty[Any]) -> object:
    """An empty collection of the kind that *relationship* has, where it has a kind of its own."""
    make = cast("Callable[[], object] | None", relationship.collection_class)  # pyright: ignore[reportUnknownMemberType]
    return make() if make is not None else None


def _first(found: Iterable[_mapped.Key | None]) -> _mapped.Key | None:
    return next((key for key in found if key is not None), None)
