"""What an object and a stored row have in common, as far as the columns keep what they are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Column, Connection
from sqlalchemy.orm import ColumnProperty, InstanceState, RelationshipDirection
from sqlalchemy.orm.attributes import instance_state

from sqlalchemy_public_id.idempotency.asking import made_of
from sqlalchemy_public_id.idempotency.values import is_equal, is_same
from sqlalchemy_public_id.orm.marks import marks_of
from sqlalchemy_public_id.references import public_refs
from sqlalchemy_public_id.types import is_expression

__all__ = ["differing", "foreign_keys", "given", "references"]


def given(state: InstanceState[Any]) -> frozenset[str]:
    """The attributes of columns that are set on an object before its INSERT, and come back as they are."""
    return frozenset(
        prop.key
        for prop, column in _columns(state)
        if not _is_left_out(state, prop.key, column)
        and not is_expression(state.dict[prop.key])
        and prop.key not in marks_of(state).generated
    )


def foreign_keys(state: InstanceState[Any]) -> dict[str, Any]:
    """Return the values of the foreign keys that are set on an object."""
    return {
        prop.key: state.dict[prop.key]
        for prop, column in _columns(state)
        if column.foreign_keys and not column.primary_key
    }


def references(state: InstanceState[Any], before: Mapping[str, Any]) -> frozenset[str]:
    """Return the attributes of foreign keys that a flush has set, which were *before*; and those of relationships."""
    related = {
        column
        for relationship in state.mapper.relationships
        if relationship.direction is RelationshipDirection.MANYTOONE and relationship.key in state.dict
        for column in relationship.local_columns
    }
    return frozenset(
        name
        for name, value in foreign_keys(state).items()
        if name not in before or value is not before[name] or not related.isdisjoint(state.mapper.attrs[name].columns)
    )


def differing(connection: Connection, obj: object, stored: object, names: frozenset[str]) -> tuple[str, ...]:
    """Those of *names* in which two objects differ, in the order of the model; a foreign key as its reference.

    The database is asked about values that differ for Python, once, and only if there are any.
    """
    state = instance_state(obj)
    if type(obj) is not type(stored):
        discriminator = state.mapper.polymorphic_on
        return ("class" if discriminator is None else str(getattr(discriminator, "key", discriminator)),)
    different = {
        prop.key: (column.type, state.dict[prop.key])
        for prop, column in _columns(state)
        if prop.key in names and not is_same(connection, column.type, state.dict[prop.key], getattr(stored, prop.key))
    }
    neither_is_null = {
        key: (type_, value)
        for key, (type_, value) in different.items()
        if value is not None and getattr(stored, key) is not None
    }
    for key, made in made_of(connection, neither_is_null).items():
        if is_equal(connection, different[key][0], made, getattr(stored, key)):
            del different[key]
    shown = {ref.key: name for name, ref in public_refs(type(obj)).items()}
    return tuple(shown.get(key, key) for key in different)


def _columns(state: InstanceState[Any]) -> Iterator[tuple[ColumnProperty[Any], Column[Any]]]:
    """The attributes of *state* that are set and have a column."""
    for prop in state.mapper.column_attrs:
        if prop.key in state.dict and isinstance(prop.columns[0], Column):
            yield prop, prop.columns[0]


def _is_left_out(state: InstanceState[Any], name: str, column: Column[Any]) -> bool:
    """Return True if nobody has given the value, or if an INSERT leaves it out: ``None`` where a value is made."""
    instance: Any = state.obj()
    fields: Mapping[str, Any] = getattr(state.class_, "model_fields", {})
    if name in fields and name not in instance.model_fields_set:
        return True  # of a SQLModel: its constructor writes all defaults
    if column is state.mapper.version_id_col:
        return True
    is_made = column.primary_key or column.default is not None or column.server_default is not None
    return state.dict[name] is None and is_made and not column.type.should_evaluate_none
