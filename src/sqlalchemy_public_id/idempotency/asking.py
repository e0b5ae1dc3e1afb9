"""What a column makes of a value, where the database alone can tell: of the text ``"5"`` in a column of numbers, say.

The value goes there and comes back in a SELECT that reads no table, and is compared in Python. So neither the collation
of a column nor its way to compare other types can make two values one.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Date,
    DateTime,
    Enum,
    Integer,
    Numeric,
    String,
    Text,
    Time,
    case,
    cast,
    literal,
    select,
    type_coerce,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DataError, NotSupportedError, ProgrammingError
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.idempotency.values import kept_type

__all__ = ["made_of"]


def made_of(connection: Connection, values: Mapping[str, tuple[TypeEngine[Any], Any]]) -> dict[str, Any]:
    """Name → what a column of the type makes of the value, in one statement. What cannot be asked is left out."""
    asked: dict[str, ColumnElement[Any]] = {}
    for name, (type_, value) in values.items():
        there = _there(connection.dialect, type_, value)
        if there is not None:
            asked[name] = type_coerce(there, type_).label(f"value_{len(asked)}")
    if not asked:
        return {}
    try:
        with connection.begin_nested():  # a type may be one that nothing can be cast to
            answer = connection.execute(select(*asked.values())).one()
    except (DataError, NotSupportedError, ProgrammingError):
        return {}
    return dict(zip(asked, answer, strict=True))


def _there(dialect: Dialect, type_: TypeEngine[Any], value: Any) -> ColumnElement[Any] | None:
    """*value* as a column of *type_* keeps it; ``None`` where a CAST is not sure to be the same."""
    given, kept = literal(value, type_), kept_type(type_, dialect)
    text = kept if isinstance(kept, String) and not isinstance(kept, Enum) else None
    if dialect.name == "sqlite":
        if isinstance(kept, JSON):
            return given
        if text is None and not isinstance(kept, Integer):
            return None
        return _by_affinity(given, Numeric() if text is None else String())
    if text is not None:  # without the collation, which no CAST may have
        return cast(given, String(None if isinstance(text, Text) else text.length))
    if dialect.name in {"postgresql", "cockroachdb"}:
        return cast(given, kept)
    if dialect.name not in {"mysql", "mariadb"}:
        return None
    if isinstance(kept, JSON):
        return given if getattr(dialect, "is_mariadb", False) else cast(given, kept)  # a text for MariaDB
    if isinstance(kept, Integer) and not isinstance(value, (int, float, Decimal)):
        return cast(cast(given, Numeric(65, 0)), kept)  # a CAST to an integer cuts texts off, a column rounds them
    return cast(given, kept) if isinstance(kept, (Integer, Date, DateTime, Time)) else None


def _by_affinity(given: ColumnElement[Any], affinity: TypeEngine[Any]) -> ColumnElement[Any]:
    """*given* as SQLite stores it: converted only where nothing is lost, as the comparison with a CAST does it, too."""
    converted = cast(given, affinity)
    return case((converted == given, converted), else_=given)
