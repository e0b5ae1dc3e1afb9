"""Compare a new object with the row that has its public id.

A column may change a value: ``"5"`` becomes 5, 9.995 becomes 10.00, a fraction of a second is rounded. Two values that
differ in Python are compared again after a round trip of the new one: it is sent through the bind processor, cast to
the type of the column by the database, and read by the result processor. So the rules are those of the database.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import (
    CHAR,
    FLOAT,
    JSON,
    Column,
    ColumnElement,
    Connection,
    Date,
    DateTime,
    Enum,
    Float,
    Integer,
    Numeric,
    String,
    Text,
    Time,
    Uuid,
    case,
    cast,
    literal,
    select,
    type_coerce,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DataError, NotSupportedError, ProgrammingError
from sqlalchemy.orm import ColumnProperty, InstanceState, RelationshipDirection
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.types import TypeDecorator, TypeEngine

from sqlalchemy_public_id.references import public_refs
from sqlalchemy_public_id.types import is_expression

_NUMBER = (int, float, Decimal)
_MYSQL = {"mysql", "mariadb"}


def given_attributes(state: InstanceState[Any]) -> frozenset[str]:
    """Return the column attributes that the caller has set on an object before its INSERT."""
    return frozenset(
        prop.key
        for prop, column in _columns(state)
        if not _is_left_out(state, prop.key, column) and not is_expression(state.dict[prop.key])
    )


def foreign_keys(state: InstanceState[Any]) -> dict[str, Any]:
    """Return the values of the foreign keys that are set on an object."""
    return {
        prop.key: state.dict[prop.key]
        for prop, column in _columns(state)
        if column.foreign_keys and not column.primary_key
    }


def flushed_foreign_keys(state: InstanceState[Any], before: Mapping[str, Any]) -> frozenset[str]:
    """Return the foreign keys that a flush has changed from *before*, and those of relationships that are set."""
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


def changed_attributes(connection: Connection, obj: object, stored: object, names: frozenset[str]) -> tuple[str, ...]:
    """Return those of *names* in which two objects differ, in the order of the model; a foreign key as its reference.

    Sends a SELECT only if values differ in Python.
    """
    state, dialect = instance_state(obj), connection.dialect
    if type(obj) is not type(stored):
        discriminator = state.mapper.polymorphic_on
        return ("class" if discriminator is None else str(getattr(discriminator, "key", discriminator)),)
    changed: dict[str, tuple[TypeEngine[Any], Any]] = {
        prop.key: (column.type, state.dict[prop.key])
        for prop, column in _columns(state)
        if prop.key in names and not _is_equal(dialect, column.type, state.dict[prop.key], getattr(stored, prop.key))
    }
    for name, value in _after_round_trip(connection, changed).items():
        if _is_equal(dialect, changed[name][0], value, getattr(stored, name)):
            del changed[name]
    references = {ref.key: name for name, ref in public_refs(type(obj)).items()}
    return tuple(references.get(name, name) for name in changed)


def _columns(state: InstanceState[Any]) -> Iterator[tuple[ColumnProperty[Any], Column[Any]]]:
    """Yield the attributes of *state* that are set and have a column."""
    for prop in state.mapper.column_attrs:
        if prop.key in state.dict and isinstance(prop.columns[0], Column):
            yield prop, prop.columns[0]


def _is_left_out(state: InstanceState[Any], name: str, column: Column[Any]) -> bool:
    """Return True if the caller has not set the value, or if an INSERT omits it: ``None`` for a generated value."""
    instance: Any = state.obj()
    fields: Mapping[str, Any] = getattr(state.class_, "model_fields", {})
    if name in fields and name not in instance.model_fields_set:
        return True  # the constructor of a SQLModel sets all defaults
    if column is state.mapper.version_id_col:
        return True
    is_generated = column.primary_key or column.default is not None or column.server_default is not None
    return state.dict[name] is None and is_generated and not column.type.should_evaluate_none


# --- values in Python


def _is_equal(dialect: Dialect, type_: TypeEngine[Any], ours: Any, theirs: Any) -> bool:
    kept = _database_type(type_, dialect)
    if isinstance(kept, JSON):
        return _is_equal_json(ours, theirs)
    if isinstance(type_, CHAR) and isinstance(ours, str) and isinstance(theirs, str):
        return ours.rstrip(" ") == theirs.rstrip(" ")  # some databases pad, others strip
    if isinstance(type_, Uuid) and isinstance(ours, str) and isinstance(theirs, str):
        return UUID(ours) == UUID(theirs)
    if isinstance(ours, _NUMBER) and isinstance(theirs, _NUMBER):
        if isinstance(ours, (float, Decimal)) and math.isnan(ours):
            return not isinstance(theirs, int) and math.isnan(theirs)
        if isinstance(kept, Float) and dialect.name in _MYSQL:
            return _is_equal_mysql_float(kept, ours, theirs)
    return bool(type_.compare_values(ours, theirs))


def _is_equal_json(ours: Any, theirs: Any) -> bool:
    """Compare as ``==`` does, except that True is not 1."""
    if type(ours) is bool or type(theirs) is bool or ours != theirs:
        return ours is theirs
    if issubclass(ours.__class__, dict):
        return all(_is_equal_json(ours[key], theirs[key]) for key in ours)
    if issubclass(ours.__class__, list):
        return all(map(_is_equal_json, ours, theirs))
    return True


def _is_equal_mysql_float(kept: Float[Any], ours: Any, theirs: Any) -> bool:
    # FLOAT is shown with six digits, and FLOAT(M, D) is rounded. A CAST to FLOAT needs MySQL 8.0.17.
    is_single = isinstance(kept, FLOAT) and (kept.precision or 24) <= 24
    half_a_unit = 0 if kept.scale is None else 0.501 * 10**-kept.scale
    return math.isclose(ours, theirs, rel_tol=5e-6 if is_single else 0, abs_tol=half_a_unit)


def _database_type(type_: TypeEngine[Any], dialect: Dialect) -> TypeEngine[Any]:
    """Return the type that is left without the application's type decorators."""
    kept = type_.dialect_impl(dialect)
    while isinstance(kept, TypeDecorator):
        kept = kept.impl_instance
    return kept


# --- values in the database


_UNCACHED: Mapping[str, Any] = {"compiled_cache": None}
"""SQLAlchemy's key of a cached statement leaves out the variants of types: one CAST would serve two columns."""


def _after_round_trip(connection: Connection, values: Mapping[str, tuple[TypeEngine[Any], Any]]) -> dict[str, Any]:
    """Return name → what a column of the type makes of the value, in one SELECT without a table.

    Values that cannot be cast are left out.
    """
    if not values:
        return {}
    columns = [
        type_coerce(_as_stored(connection.dialect, type_, value), type_).label(f"value_{number}")
        for number, (type_, value) in enumerate(values.values())
    ]
    try:
        with connection.begin_nested():  # an error would abort the transaction on PostgreSQL
            row = connection.execute(select(*columns), execution_options=_UNCACHED).one()
    except (DataError, NotSupportedError, ProgrammingError):
        if len(values) == 1:
            return {}
        alone = (_after_round_trip(connection, {name: pair}) for name, pair in values.items())
        return {name: value for part in alone for name, value in part.items()}
    return dict(zip(values, row, strict=True))


def _as_stored(dialect: Dialect, type_: TypeEngine[Any], value: Any) -> ColumnElement[Any]:
    """Return the expression that converts *value* as a column of *type_* does.

    Without a collation, which a CAST cannot have, and which would make different strings equal.
    """
    given, kept = literal(value, type_), _database_type(type_, dialect)
    text = kept if isinstance(kept, String) and not isinstance(kept, Enum) else None
    if dialect.name == "sqlite":
        if text is not None or isinstance(kept, Integer):
            return _with_affinity(given, Numeric() if text is None else String())
        return given
    if text is not None:
        return cast(given, String(None if isinstance(text, Text) else text.length))
    if dialect.name in _MYSQL:
        return _as_mysql_stores(dialect, kept, given, value)
    # the declared type, since its variant for the driver has lost its precision
    return cast(given, type_) if dialect.name in {"postgresql", "cockroachdb"} else given


def _with_affinity(given: ColumnElement[Any], affinity: TypeEngine[Any]) -> ColumnElement[Any]:
    """Convert *given* only if nothing is lost, as SQLite does when it stores it."""
    converted = cast(given, affinity)
    return case((converted == given, converted), else_=given)


def _as_mysql_stores(
    dialect: Dialect, kept: TypeEngine[Any], given: ColumnElement[Any], value: object
) -> ColumnElement[Any]:
    """Cast *given* to the types that MySQL and MariaDB have a CAST for; other values are only sent and read."""
    if isinstance(kept, JSON):
        return given if getattr(dialect, "is_mariadb", False) else cast(given, kept)  # a string for MariaDB
    if isinstance(kept, Integer):
        if not isinstance(value, _NUMBER):
            given = cast(given, Numeric(65, 0))  # a CAST truncates "4.5" to 4, a column rounds it to 5
        return cast(given, kept)
    if isinstance(kept, Numeric) and not isinstance(kept, Float):
        return cast(given, Numeric(kept.precision, kept.scale))  # UNSIGNED has no CAST
    if isinstance(kept, DateTime):
        from sqlalchemy.dialects import mysql  # loaded already: the connection has this dialect

        return cast(given, mysql.DATETIME(fsp=getattr(kept, "fsp", None)))  # TIMESTAMP has no CAST
    return cast(given, kept) if isinstance(kept, (Date, Time)) else given
