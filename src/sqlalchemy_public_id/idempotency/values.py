"""Whether a stored value is what a column makes of a given one.

How much a column keeps is known from its type and the database, never from the value that is stored: 12:00:00 may be
all that is left of 12:00:00.9, or may be another time.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

from sqlalchemy import CHAR, JSON, Connection, Float, Numeric, cast, literal, select
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

__all__ = ["is_equal", "is_same", "kept_type"]

_MYSQL = {"mysql", "mariadb"}
_ANY_DAY = date(2000, 1, 1)
_REFUSED = object()


def is_same(connection: Connection, type_: TypeEngine[Any], ours: Any, theirs: Any) -> bool:
    """Whether *theirs* is what a column of *type_* makes of *ours*, as far as Python can tell."""
    kept = kept_type(type_, connection.dialect)
    if isinstance(kept, JSON):
        return _is_same_json(ours, theirs) or _is_same_json(_there_and_back(type_, ours), theirs)
    if is_equal(connection, type_, ours, theirs):
        return True
    if ours is None:
        return False
    if isinstance(kept, (Float, Numeric)) and isinstance(theirs, (int, float, Decimal)):
        changed = _there_and_back(type_, ours) if isinstance(type_, TypeDecorator) else ours
        return _is_same_number(connection.dialect, type_, kept, changed, theirs)
    if isinstance(theirs, (date, time, timedelta)) and connection.dialect.name != "sqlite":
        return _is_same_time(connection, type_, ours, theirs)
    changed = _there_and_back(type_, ours)
    return changed is not _REFUSED and bool(type_.compare_values(changed, theirs))


def is_equal(connection: Connection, type_: TypeEngine[Any], ours: Any, theirs: Any) -> bool:
    """Whether two values that a column has kept are one."""
    if isinstance(kept_type(type_, connection.dialect), JSON):
        return _is_same_json(ours, theirs)
    if isinstance(type_, CHAR) and isinstance(ours, str) and isinstance(theirs, str):
        return ours.rstrip(" ") == theirs.rstrip(" ")
    return bool(type_.compare_values(ours, theirs))


def _is_same_json(ours: Any, theirs: Any) -> bool:
    """As ``==``, but true is not 1."""
    if type(ours) is bool or type(theirs) is bool or ours != theirs:
        return ours is theirs
    if issubclass(ours.__class__, dict):
        return all(_is_same_json(ours[key], theirs[key]) for key in ours)
    if issubclass(ours.__class__, list):
        return all(map(_is_same_json, ours, theirs))
    return True


# --- numbers


def _is_same_number(dialect: Dialect, type_: TypeEngine[Any], kept: Any, ours: Any, theirs: Any) -> bool:
    is_float = isinstance(ours, float) or isinstance(theirs, float)
    try:
        ours, theirs = Decimal(str(ours)), Decimal(str(theirs))
    except InvalidOperation:
        return False
    if not ours.is_finite() or not theirs.is_finite():
        return str(ours) == str(theirs)
    declared = type_.compile(dialect=dialect).upper()  # where an adapted type may be any class of numbers
    is_decimal = declared.startswith(("NUMERIC", "DECIMAL"))
    if is_decimal and not is_float:
        relative = 2**-52 if dialect.name == "sqlite" else 0  # SQLite has doubles only
    else:
        relative = _precision(declared, dialect)
    places = _places(kept, is_decimal, dialect)
    absolute = Decimal(0) if places is None else Decimal(5).scaleb(-places - 1)
    return bool(abs(ours - theirs) <= max(absolute, Decimal(relative) * max(abs(ours), abs(theirs))))


def _precision(declared: str, dialect: Dialect) -> float:
    """The relative error of floats in a column. MySQL and MariaDB show six digits of single precision."""
    found = re.match(r"(FLOAT|REAL)\b(?:\((\d+)\))?", declared)
    name, bits = found.groups() if found else ("", None)
    if dialect.name in _MYSQL and name == "FLOAT" and int(bits or 24) <= 24:
        return 5e-6
    if dialect.name == "postgresql" and (name == "REAL" or (name == "FLOAT" and int(bits or 53) <= 24)):
        return 2**-23
    return 1e-14  # a double; PostgreSQL makes fifteen digits of one for a NUMERIC


def _places(kept: Any, is_decimal: bool, dialect: Dialect) -> int | None:
    """How many decimal places a column keeps, or its type shows; ``None``: all."""
    if kept.scale is not None:
        return int(kept.scale)
    if not is_decimal or dialect.name == "sqlite":
        return (kept.decimal_return_scale or 10) if kept.asdecimal else None
    return 0 if dialect.name in _MYSQL or kept.precision is not None else None


# --- times


def _is_same_time(connection: Connection, type_: TypeEngine[Any], ours: Any, theirs: Any) -> bool:
    if connection.dialect.name == "postgresql" and isinstance(ours, datetime) and _has_zone(ours) != _has_zone(theirs):
        ours = connection.scalar(select(cast(literal(ours, type_), type_)))  # by the time zone of the session
    unit = _unit(type_, connection.dialect)
    if isinstance(ours, time) and isinstance(theirs, time):
        return _is_near(datetime.combine(_ANY_DAY, ours), datetime.combine(_ANY_DAY, theirs), unit)
    if isinstance(theirs, datetime):
        if isinstance(ours, date) and not isinstance(ours, datetime):
            ours = datetime.combine(ours, time())
    elif isinstance(theirs, date):
        return bool((ours.date() if isinstance(ours, datetime) else ours) == theirs)
    if type(ours) is not type(theirs):
        return False
    return _is_near(ours, theirs, unit)


def _is_near(ours: Any, theirs: Any, unit: timedelta) -> bool:
    if _has_zone(ours) != _has_zone(theirs):
        ours, theirs = ours.replace(tzinfo=None), theirs.replace(tzinfo=None)
    return bool(abs(ours - theirs) < unit)


def _has_zone(value: Any) -> bool:
    return getattr(value, "tzinfo", None) is not None


def _unit(type_: TypeEngine[Any], dialect: Dialect) -> timedelta:
    """What a column tells apart. Some round to it, some truncate: MySQL and MariaDB differ, and can be told to."""
    declared = re.search(r"\((\d)\)", type_.compile(dialect=dialect))
    digits = int(declared[1]) if declared else 0 if dialect.name in _MYSQL else 6
    return timedelta(microseconds=10 ** (6 - digits))


# --- types


def kept_type(type_: TypeEngine[Any], dialect: Dialect) -> TypeEngine[Any]:
    """The type of the database under the types of the program."""
    kept = type_.dialect_impl(dialect)
    while isinstance(kept, TypeDecorator):
        kept = kept.impl_instance
    return kept


@cache
def _plain() -> Dialect:
    """A dialect whose driver knows of no types: they do all the work themselves."""
    from sqlalchemy.dialects import sqlite  # not everyone has it loaded

    return sqlite.dialect()


def _there_and_back(type_: TypeEngine[Any], value: Any) -> Any:
    """*value* as the type itself changes it on the way to a database and back: JSON, enums, types of the program.

    ``_REFUSED`` where it is none that the type knows, so that the driver and the database have made something of it.
    """
    dialect = _plain()
    implementation = type_.dialect_impl(dialect)
    bind = implementation.bind_processor(dialect)
    result = implementation.result_processor(dialect, None)
    try:
        sent = value if bind is None else bind(value)
        return sent if result is None else result(sent)
    except Exception:  # of a type of the program, it may be any
        return _REFUSED
