"""What an object and a stored row have in common, as far as the columns keep what they are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, Connection
from sqlalchemy.orm import ColumnProperty, InstanceState
from sqlalchemy.orm.attributes import instance_state

from sqlalchemy_public_id.idempotency.asking import made_of
from sqlalchemy_public_id.idempotency.values import is_equal, is_same
from sqlalchemy_public_id.marks import marks_of
from sqlalchemy_public_id.references import public_refs
from sqlalchemy_public_id.types import is_expression

__all__ = ["differing", "foreign_keys", "given"]


def given(state: InstanceState[Any]) -> frozenset[str]:
    """The attributes of columns that are set on an object before its INSERT, and come back as they are."""
    return frozenset(
        prop.key
        for prop, column in _columns(state)
        if not _is_left_to_default(column, state.dict[prop.key])
        and not is_expression(state.dict[prop.key])
        and prop.key not in marks_of(state).made
    )


def foreign_keys(state: InstanceState[Any]) -> frozenset[str]:
    """The attributes of foreign keys, which a flush has set from relationships."""
    return frozenset(prop.key for prop, column in _columns(state) if column.foreign_keys and not column.primary_key)


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


def _is_left_to_default(column: Column[Any], value: object) -> bool:
    """Whether an INSERT leaves *value* out, as the unit of work does with ``None`` where there is a default."""
    has_default = column.default is not None or column.server_default is not None
    return value is None and has_default and not column.type.should_evaluate_none
