"""Compare a new object with the row that has its public id.

Values are compared in Python, by the type of their column. A column may have changed a value: it rounds 9.995 to 10.00,
or a fraction of a second, or its type converts the value. So values that differ are compared once more as
the database and the type return them, after a CAST to the type of the column. Where SQLAlchemy or the database has no
CAST, the comparison in Python decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from decimal import Decimal
from math import isnan
from typing import Any

from sqlalchemy import (
    BINARY,
    CHAR,
    Column,
    ColumnElement,
    Connection,
    Date,
    DateTime,
    Dialect,
    Float,
    LargeBinary,
    Numeric,
    Time,
    cast,
    inspect,
    literal,
    select,
    type_coerce,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.exc import DataError, NotSupportedError, ProgrammingError
from sqlalchemy.orm import ColumnProperty, InstanceState, Mapper
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import undecorated
from sqlalchemy_public_id.references import public_refs
from sqlalchemy_public_id.types import is_expression


@dataclass(frozen=True)
class Contents:
    """What the caller has set on an object before its INSERT."""

    state: InstanceState[Any]
    before: Mapping[str, Any]
    """The column attributes that were set."""
    compare: frozenset[str] | None
    """The column attributes that are compared; ``None`` for all."""

    @classmethod
    def given(cls, state: InstanceState[Any], compare: Collection[str] | None) -> Contents:
        """Return the contents that are set on the object now.

        :param compare: names of columns, relationships and references.
        """
        before = {prop.key: state.dict[prop.key] for prop, _ in _columns(state)}
        names = None if compare is None else frozenset(_columns_of(state.mapper, compare))
        return cls(state, before, names)

    def compared(self) -> frozenset[str]:
        """Return the column attributes to compare. A flush has set those of relationships and references."""
        given = {
            prop.key
            for prop, column in _columns(self.state)
            if (prop.key in self.before and not _is_left_out(self.state, prop.key, column, self.before[prop.key]))
            or (self._is_flushed(prop.key) and column.foreign_keys and not column.primary_key)
        }
        return frozenset(given if self.compare is None else given & self.compare)

    def _is_flushed(self, name: str) -> bool:
        return name not in self.before or self.before[name] is not self.state.dict[name]


def differing_attributes(connection: Connection, obj: object, stored: object, names: frozenset[str]) -> tuple[str, ...]:
    """Return those of *names* whose values differ between two objects, in the order of the model.

    A foreign key is named by its reference. A SELECT is sent only if values differ in Python.
    """
    state: InstanceState[Any] = inspect(obj)
    if type(obj) is not type(stored):
        discriminator = state.mapper.polymorphic_on
        return ("class" if discriminator is None else str(getattr(discriminator, "key", discriminator)),)
    differing: dict[str, tuple[TypeEngine[Any], Any]] = {
        prop.key: (column.type, state.dict[prop.key])
        for prop, column in _columns(state)
        if prop.key in names and not _is_equal(column.type, state.dict[prop.key], getattr(stored, prop.key))
    }
    for name, value in _converted(connection, differing).items():
        if _is_equal(differing[name][0], value, getattr(stored, name)):
            del differing[name]
    references = {ref.key: name for name, ref in public_refs(type(obj)).items()}
    return tuple(references.get(name, name) for name in differing)


# --- attributes


def _columns(state: InstanceState[Any]) -> Iterator[tuple[ColumnProperty[Any], Column[Any]]]:
    """Yield the attributes of *state* that are set and have a column."""
    for prop in state.mapper.column_attrs:
        if prop.key in state.dict and isinstance(prop.columns[0], Column):
            yield prop, prop.columns[0]


def _columns_of(mapper: Mapper[Any], names: Collection[str]) -> Iterator[str]:
    """Yield the column attributes that *names* stand for."""
    if isinstance(names, str):
        raise ConfigurationError(f"compare is the string {safe_repr(names)}, expected a list: [{safe_repr(names)}]")
    references = public_refs(mapper.class_)
    for name in names:
        if name in mapper.column_attrs:
            yield name
        elif name in references:
            yield references[name].key
        elif name in mapper.relationships:
            yield from (mapper.get_property_by_column(each).key for each in mapper.relationships[name].local_columns)
        else:
            raise ConfigurationError(
                f"{mapper.class_.__name__} has no attribute {safe_repr(name)} to compare; "
                f"expected a column, a relationship or a reference"
            )


def _is_left_out(state: InstanceState[Any], name: str, column: Column[Any], value: object) -> bool:
    """Return True if the caller has not set the value, or if an INSERT omits it: ``None`` for a generated value."""
    instance: Any = state.object
    fields: Mapping[str, Any] = getattr(state.class_, "model_fields", {})
    if name in fields and name not in instance.model_fields_set:
        return True  # the constructor of a SQLModel sets all defaults
    if column is state.mapper.version_id_col or is_expression(value):
        return True
    is_generated = column.primary_key or column.default is not None or column.server_default is not None
    return value is None and is_generated and not column.type.should_evaluate_none


# --- values


def _is_equal(type_: TypeEngine[Any], ours: Any, theirs: Any) -> bool:
    if isinstance(type_, CHAR) and isinstance(ours, str) and isinstance(theirs, str):
        return ours.rstrip(" ") == theirs.rstrip(" ")  # some databases pad the value, others strip it
    if isinstance(type_, BINARY) and isinstance(ours, bytes) and isinstance(theirs, bytes):
        return ours.rstrip(b"\0") == theirs.rstrip(b"\0")
    return bool(type_.compare_values(ours, theirs)) or (_is_nan(ours) and _is_nan(theirs))


def _is_nan(value: object) -> bool:
    return value.is_nan() if isinstance(value, Decimal) else isinstance(value, float) and isnan(value)


_CHANGED = (Numeric, Float, Date, DateTime, Time, postgresql.INET, postgresql.CIDR)
"""Types whose columns round or convert values."""

_UNCACHED: Mapping[str, Any] = {"compiled_cache": None}
"""Turns off the statement cache, whose keys ignore the variants of types: two columns would share one CAST."""


def _converted(connection: Connection, values: Mapping[str, tuple[TypeEngine[Any], Any]]) -> dict[str, Any]:
    """Return name → the converted value, from one SELECT without a table; values that are refused are left out."""
    if not values:
        return {}
    columns = [
        type_coerce(_as_stored(connection.dialect, type_, value), type_).label(f"value_{number}")
        for number, (type_, value) in enumerate(values.values())
    ]
    try:
        with connection.begin_nested() if traits_for(connection.dialect).aborts_transaction else nullcontext():
            row = connection.execute(select(*columns), execution_options=_UNCACHED).one()
    except (DataError, NotSupportedError, ProgrammingError, TypeError):  # MySQL returns a BIT as a number here
        if len(values) == 1:
            return {}
        alone = (_converted(connection, {name: pair}) for name, pair in values.items())
        return {name: value for part in alone for name, value in part.items()}
    return dict(zip(values, row, strict=True))


def _as_stored(dialect: Dialect, type_: TypeEngine[Any], value: Any) -> ColumnElement[Any]:
    """Return *value* with a CAST, if a column of *type_* changes values that the dialect passes on as they are."""
    given = literal(value, type_)
    kept = undecorated(type_.dialect_impl(dialect))
    if _is_binary(kept):
        return cast(given, LargeBinary())  # MySQL returns a parameter as text, which bytes may not be
    if kept.bind_processor(dialect) is not None or not isinstance(kept, _CHANGED):
        return given
    if isinstance(kept, mysql.TIMESTAMP):
        return cast(given, mysql.DATETIME(fsp=kept.fsp))  # SQLAlchemy casts to TIMESTAMP without its precision
    rounding = traits_for(dialect).float_to_cast(kept) if isinstance(kept, Float) else kept
    return cast(given, type_ if rounding is kept else rounding)


def _is_binary(type_: TypeEngine[Any]) -> bool:
    try:
        return type_.python_type is bytes
    except NotImplementedError:  # the type names no Python type, such as a type of an extension
        return False
