"""What an object and a stored row have in common, as far as the columns keep what they are given."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

from sqlalchemy import CHAR, Column
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import ColumnProperty, InstanceState
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.sql import ClauseElement
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.guard import pending
from sqlalchemy_public_id.references import public_refs
from sqlalchemy_public_id.types import is_public_id

__all__ = ["differing", "foreign_keys", "given"]


def given(state: InstanceState[Any]) -> frozenset[str]:
    """The attributes of columns that are set on an object before its INSERT, and come back as they are."""
    return frozenset(
        prop.key
        for prop, column in _columns(state)
        if not _is_left_to_default(column, state.dict[prop.key])
        and not _is_expression(state.dict[prop.key])
        and not (is_public_id(column) and pending.early.get((column, state.dict[prop.key])) is state)
    )


def foreign_keys(state: InstanceState[Any]) -> frozenset[str]:
    """The attributes of foreign keys, which a flush has set from relationships."""
    return frozenset(prop.key for prop, column in _columns(state) if column.foreign_keys and not column.primary_key)


def differing(obj: object, stored: object, names: frozenset[str]) -> tuple[str, ...]:
    """Those of *names* in which two objects differ, in the order of the model; a foreign key as its reference."""
    state = instance_state(obj)
    if type(obj) is not type(stored):
        discriminator = state.mapper.polymorphic_on
        return ("class" if discriminator is None else str(getattr(discriminator, "key", discriminator)),)
    shown = {ref.key: name for name, ref in public_refs(type(obj)).items()}
    return tuple(
        shown.get(prop.key, prop.key)
        for prop, column in _columns(state)
        if prop.key in names and not _is_same(column.type, state.dict[prop.key], getattr(stored, prop.key))
    )


def _columns(state: InstanceState[Any]) -> Iterator[tuple[ColumnProperty[Any], Column[Any]]]:
    """The attributes of *state* that are set and have a column."""
    for prop in state.mapper.column_attrs:
        if prop.key in state.dict and isinstance(prop.columns[0], Column):
            yield prop, prop.columns[0]


def _is_left_to_default(column: Column[Any], value: object) -> bool:
    """Whether an INSERT leaves *value* out, as the unit of work does with ``None`` where there is a default."""
    has_default = column.default is not None or column.server_default is not None
    return value is None and has_default and not column.type.should_evaluate_none


def _is_expression(value: object) -> bool:
    return isinstance(value, ClauseElement) or hasattr(value, "__clause_element__")


# --- values


def _is_same(type_: TypeEngine[Any], ours: Any, theirs: Any) -> bool:
    """Whether *theirs* is what a column of *type_* makes of *ours*."""
    if type_.compare_values(ours, theirs):
        return True
    if ours is None:
        return False
    if isinstance(type_, CHAR) and isinstance(ours, str) and isinstance(theirs, str):
        return ours.rstrip(" ") == theirs.rstrip(" ")
    if isinstance(theirs, (int, float, Decimal)) and isinstance(ours, (int, float, Decimal)):
        return _is_same_number(ours, theirs)
    if isinstance(theirs, (date, time, timedelta)):
        return type(ours) is type(theirs) and _is_same_time(ours, theirs)
    return bool(type_.compare_values(_there_and_back(type_, ours), theirs))


def _is_same_number(ours: float | Decimal, theirs: float | Decimal) -> bool:
    """As many digits as the column keeps: all of a NUMERIC, six of a FLOAT."""
    if isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=5e-6) or (math.isnan(ours) and math.isnan(theirs))
    if not isinstance(theirs, Decimal) or not theirs.is_finite() or not math.isfinite(ours):
        return False
    places = theirs.as_tuple().exponent
    return abs(Decimal(str(ours)) - theirs) <= Decimal(5).scaleb(int(places) - 1)


def _is_same_time(ours: Any, theirs: Any) -> bool:
    """The time zone counts where both have one; fractions of a second as far as they were kept."""
    if isinstance(theirs, (datetime, time)) and (ours.tzinfo is None) != (theirs.tzinfo is None):
        ours, theirs = ours.replace(tzinfo=None), theirs.replace(tzinfo=None)
    if isinstance(theirs, time):
        ours, theirs = (datetime.combine(date(2000, 1, 1), each) for each in (ours, theirs))
    fraction = theirs.microseconds if isinstance(theirs, timedelta) else getattr(theirs, "microsecond", 1)
    kept = timedelta(seconds=1) if fraction == 0 else timedelta(milliseconds=1 if fraction % 1000 == 0 else 0.001)
    return bool(abs(ours - theirs) < kept)


@cache
def _plain() -> Dialect:
    """A dialect whose driver knows of no types: they do all the work themselves."""
    from sqlalchemy.dialects import sqlite  # not everyone has it loaded

    return sqlite.dialect()


def _there_and_back(type_: TypeEngine[Any], value: Any) -> Any:
    """*value* as the type itself changes it on the way to a database and back: JSON, enums, types of the program."""
    dialect = _plain()
    implementation = type_.dialect_impl(dialect)
    bind = implementation.bind_processor(dialect)
    result = implementation.result_processor(dialect, None)
    sent = value if bind is None else bind(value)
    return sent if result is None else result(sent)
