"""Attributes of a mapped class, and paths of them: those that show an integer key, related objects or a dictionary.

Synonyms, column properties, hybrids, composites and association proxies are resolved. What depends on configured
mappers is left out before that.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from sqlalchemy import (
    BinaryExpression,
    Boolean,
    CompoundSelect,
    FunctionElement,
    Select,
    TextClause,
    TextualSelect,
    UnaryExpression,
    WithinGroup,
    column,
)
from sqlalchemy.ext.associationproxy import AssociationProxyInstance
from sqlalchemy.ext.hybrid import HybridExtensionType
from sqlalchemy.orm import ColumnProperty, CompositeProperty, Mapper, RelationshipProperty, SynonymProperty
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.sql.elements import BooleanClauseList
from sqlalchemy.sql.expression import ClauseElement, ColumnClause
from sqlalchemy.sql.operators import is_comparison
from sqlalchemy.types import TypeDecorator

from sqlalchemy_public_id.ext import _mapped

Path = tuple[str | int, ...]
"""Names of attributes, with indexes of lists and keys of dictionaries among them."""

_STATE = "_sa_instance_state"  # SQLAlchemy keeps the identity of each mapped object in it
_COLUMN: Any = ColumnClause
_FUNCTION: Any = FunctionElement


def has_attribute(mapper: Mapper[Any], name: str) -> bool:
    """Return True if the objects of *mapper* have an attribute *name*, mapped or not."""
    missing = object()
    is_there = inspect.getattr_static(mapper.class_, name, missing) is not missing
    return is_there or mapper.has_property(name) or name == _STATE


def key_at(mapper: Mapper[Any], path: Path) -> _mapped.Key | None:
    """Return the integer key that is read at *path*, such as ``("customer", "id")``, or ``None``."""
    name, *rest = _names_in(path)
    if name.startswith("__") or name == _STATE:  # ``__dict__`` has all values of the object
        return next(iter(_mapped.keys(mapper).values()), None)
    key = _key_shown_by(mapper, name)
    relationship = relationship_at(mapper, (name,)) if rest and key is None else None
    if relationship is None or not mapper.configured:
        return key
    # the first step into a dictionary may be one of its keys
    paths = [tuple(rest), tuple(rest[1:])] if _is_dictionary(relationship) else [tuple(rest)]
    return _first(key_at(relationship.mapper, path) for path in paths if path)


def relationship_at(mapper: Mapper[Any], path: Path) -> RelationshipProperty[Any] | None:
    """Return the relationship that is read at *path*, or ``None``."""
    name, *rest = _names_in(path)
    if rest:
        parent = relationship_at(mapper, (name,))
        return relationship_at(parent.mapper, tuple(rest)) if parent is not None and mapper.configured else None
    if mapper.has_property(name):
        prop = mapper.get_property(name)
        if isinstance(prop, SynonymProperty):
            return relationship_at(mapper, (prop.name,))
        return prop if isinstance(prop, RelationshipProperty) else None
    descriptor = _descriptor(mapper, name)
    if isinstance(descriptor, AssociationProxyInstance):
        target = _mapped.mapper_of(descriptor.target_class)
        return relationship_at(target, (descriptor.value_attr,)) if target is not None else None
    relationship = getattr(descriptor, "property", None)
    return relationship if isinstance(relationship, RelationshipProperty) else None  # pyright: ignore[reportUnknownVariableType]


def dictionary_at(mapper: Mapper[Any], name: str) -> RelationshipProperty[Any] | None:
    """Return the relationship whose dictionary the attribute *name* shows, including its keys, or ``None``."""
    descriptor = None if mapper.has_property(name) else _descriptor(mapper, name)
    name = descriptor.target_collection if isinstance(descriptor, AssociationProxyInstance) else name
    relationship = relationship_at(mapper, (name,))
    return relationship if relationship is not None and _is_dictionary(relationship) else None


def key_of_dictionary(relationship: RelationshipProperty[Any]) -> _mapped.Key | None:
    """Return the integer key that the keys of a dictionary are computed from, or ``None``.

    :raises Undetermined: if the function that computes them needs other objects.
    """
    function = getattr(_collection(relationship), "keyfunc", None)
    if function is None or not relationship.mapper.configured:
        raise Undetermined
    return _key_in_result(relationship.mapper, keys_shown(relationship.mapper, is_stored=True), function)


def keys_shown(mapper: Mapper[Any], *, is_stored: bool = False) -> dict[str, _mapped.Key]:
    """Map the names of attributes that show an integer key to that key.

    :param is_stored: only attributes that each row has a value for: no hybrids, proxies or composites.
    """
    names = mapper.column_attrs.keys() if is_stored and mapper.configured else mapper.all_orm_descriptors.keys()
    keys = {str(name): _key_shown_by(mapper, str(name)) for name in names}
    return {name: key for name, key in keys.items() if key is not None}


def _names_in(path: Path) -> list[str]:
    return [step for step in path if isinstance(step, str)]


def _key_shown_by(mapper: Mapper[Any], name: str) -> _mapped.Key | None:
    if mapper.has_property(name):
        prop = mapper.get_property(name)
        if isinstance(prop, SynonymProperty):
            return _key_shown_by(mapper, prop.name)
        if isinstance(prop, CompositeProperty):
            return _first(_key_shown_by(mapper, part.key) for part in prop.props)
        return _first(map(partial(_key_in, mapper), prop.columns)) if isinstance(prop, ColumnProperty) else None
    descriptor = _descriptor(mapper, name)
    if isinstance(descriptor, AssociationProxyInstance):
        target = _mapped.mapper_of(descriptor.target_class)
        return key_at(target, (descriptor.value_attr,)) if target is not None else None
    expression = _expression_of(descriptor)
    key = _key_in(mapper, expression) if expression is not None else None
    if key is None and mapper.configured and _is_hybrid(mapper, name):
        # the value of an object is computed in Python: it may show what the SQL expression does not
        with contextlib.suppress(Undetermined):
            key = _key_in_result(mapper, keys_shown(mapper, is_stored=True), lambda sample: getattr(sample, name))
    return key


def _descriptor(mapper: Mapper[Any], name: str) -> Any:
    """Return the attribute *name* of the class, or ``None`` before mappers are configured."""
    if name not in mapper.all_orm_descriptors or not mapper.configured:
        return None
    try:
        return getattr(mapper.class_, name)  # a hybrid runs the code of its author
    except Exception:
        return None


def _is_hybrid(mapper: Mapper[Any], name: str) -> bool:
    descriptor = mapper.all_orm_descriptors.get(name)
    return descriptor is not None and descriptor.extension_type is HybridExtensionType.HYBRID_PROPERTY


def _is_dictionary(relationship: RelationshipProperty[Any]) -> bool:
    return isinstance(_collection(relationship), Mapping)


def _collection(relationship: RelationshipProperty[Any]) -> object:
    """Return an empty collection if *relationship* has a class of its own for it."""
    factory = cast("Callable[[], object] | None", relationship.collection_class)  # pyright: ignore[reportUnknownMemberType]
    return factory() if factory is not None else None


def _first(keys: Iterable[_mapped.Key | None]) -> _mapped.Key | None:
    return next((key for key in keys if key is not None), None)


# --- SQL expressions: a key in arithmetic, a function, CASE, a cast, a label or a scalar subquery can be read from the
# result; not from a comparison or a count, nor if the key only filters, groups or sorts rows


def _key_in(mapper: Mapper[Any], expression: ClauseElement) -> _mapped.Key | None:
    """Return the integer key that the value of *expression* is computed from, or ``None``."""
    type_ = getattr(expression, "type", None)
    while isinstance(type_, TypeDecorator):
        type_ = type_.impl_instance
    if isinstance(type_, Boolean):
        return None
    return _first(_mapped.key_of(mapper, source) for source in _columns_of(expression))


def _columns_of(expression: ClauseElement) -> Iterator[ColumnClause[Any]]:
    """Return the columns that the value of *expression* is computed from, including names in textual SQL."""
    pending: list[Any] = [expression]
    visited: dict[int, Any] = {}
    while pending:
        element = pending.pop()
        if id(element) in visited:
            continue
        visited[id(element)] = element  # a reference: the id of a freed element could be used again
        if isinstance(element, _COLUMN) and not element.is_literal:
            for base in element.base_columns:
                if isinstance(base, _COLUMN):
                    yield base
                else:
                    pending.append(base)
            pending += _textual_sources(element)
        elif isinstance(element, (_COLUMN, TextClause)):
            yield from map(column, re.findall(r"\w+", re.sub(r"'[^']*'", "", str(element))))
        elif not _hides_operands(element):
            pending += _operands(element)


def _expression_of(value: Any) -> ClauseElement | None:
    try:
        while hasattr(value, "__clause_element__") and not isinstance(value, ClauseElement):
            value = value.__clause_element__()
    except Exception:  # a hybrid runs the code of its author
        return None
    return value if isinstance(value, ClauseElement) else None


def _hides_operands(element: Any) -> bool:
    """Return True if the value of *element* is a boolean or a number of rows."""
    if isinstance(element, BinaryExpression):
        return is_comparison(element.operator)
    if isinstance(element, UnaryExpression):
        return isinstance(element.type, Boolean)  # pyright: ignore[reportUnknownMemberType]
    is_count = isinstance(element, _FUNCTION) and str(getattr(element, "name", "")).lower() == "count"
    return is_count or isinstance(element, BooleanClauseList)


def _operands(element: Any) -> Iterable[Any]:
    if isinstance(element, Select):
        return element.inner_columns
    if isinstance(element, CompoundSelect):
        return element.selects
    if isinstance(element, TextualSelect):
        return [element.element]
    if isinstance(element, WithinGroup):
        return element.get_children()
    # an element of the application may not list its children: then all its attributes count
    operands = [*element.get_children()] or [_expression_of(value) for value in list(element.__dict__.values())]
    # these parts of functions, windows and CASE choose a value, and are not in it
    criteria = [None, *(getattr(element, name, None) for name in ("criterion", "order_by", "partition_by", "value"))]
    return [operand for operand in operands if all(operand is not criterion for criterion in criteria)]


def _textual_sources(subquery_column: ColumnClause[Any]) -> Iterator[Any]:
    for proxied in subquery_column.proxy_set:
        source = getattr(getattr(proxied, "table", None), "element", None)
        if isinstance(source, (_FUNCTION, TextualSelect)):
            yield source


# --- sample objects: a Python function shows a key if its result changes with that key


class Undetermined(Exception):
    """The function fails for an object without related objects, or its results differ by themselves."""


_SAMPLE_KEY = 400_000_000


def _key_in_result(
    mapper: Mapper[Any], keys: Mapping[str, _mapped.Key], function: Callable[[Any], Any]
) -> _mapped.Key | None:
    """Return the first of *keys*, by attribute name, that the result of *function* for an object changes with.

    A boolean result shows no key.

    :raises Undetermined: if *function* fails or is not deterministic.
    """
    values = {prop.key: _empty_value(prop.columns[0].type) for prop in mapper.column_attrs}
    values |= {name: _SAMPLE_KEY + index for index, name in enumerate(keys)}

    def result_with(**changed: int) -> Any:
        sample = mapper.class_manager.new_instance()
        for name, value in (values | changed).items():
            set_committed_value(sample, name, value)
        return function(sample)

    try:
        result = result_with()
        if not result == result_with():
            raise Undetermined
        if isinstance(result, bool):
            return None
        return next((key for name, key in keys.items() if result_with(**{name: 2 * _SAMPLE_KEY}) != result), None)
    except Exception as error:  # the code of an author who did not expect such an object
        raise Undetermined from error


def _empty_value(type_: Any) -> Any:
    try:
        return type_.python_type()
    except Exception:  # the Python type needs arguments, or there is none
        return None
