"""PostgreSQL: the values of a column in many rows, sent as one array.

``INSERT … SELECT … FROM unnest(…)`` has as many parameters as columns. VALUES have one for each value, and the driver
reads their text anew for each statement: that takes most of the time.
"""

from __future__ import annotations

import enum
from datetime import datetime, time
from typing import Any

from sqlalchemy import Boolean, Date, DateTime, Enum, Float, Integer, Interval, Numeric, String, Time, Uuid
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from sqlalchemy_public_id.types import PublicIdType

_PLAIN = (Boolean, Date, DateTime, Float, Integer, Numeric, Time, Uuid)


def item_type(type_: TypeEngine[Any], dialect: Dialect) -> TypeEngine[Any] | None:
    """Return the type of the items of an array, if each value is sent in the same way as by itself."""
    if isinstance(type_, PublicIdType):
        return type_.as_parameter
    impl = type_.dialect_impl(dialect)
    if isinstance(impl, (Enum, TypeDecorator)) or not type(impl).__module__.startswith("sqlalchemy."):
        return None
    if isinstance(impl, String):
        return String()  # a cast to VARCHAR(n) would cut longer strings
    return type_ if isinstance(impl, _PLAIN) or isinstance(type_, Interval) else None


def are_alike(values: list[Any]) -> bool:
    """Return True if the driver sends all *values* as the same type: it takes that of an array from one item."""
    kinds = set(map(type, values)) - {type(None)}
    if any(issubclass(kind, (list, tuple, set, dict)) for kind in kinds):
        return False
    if len(kinds) > 1:
        return all(issubclass(kind, str) and not issubclass(kind, enum.Enum) for kind in kinds)
    if any(issubclass(kind, (datetime, time)) for kind in kinds):
        return len({value.tzinfo is None for value in values if value is not None}) == 1
    return True
