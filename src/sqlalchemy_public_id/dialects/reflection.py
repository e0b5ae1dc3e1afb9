"""Tables as the Inspector reflects them, with the names of columns as they are.

From MySQL and MariaDB, SQLAlchemy reads names as ``SHOW CREATE TABLE`` quotes them, and leaves a quote in them doubled.
"""

from __future__ import annotations

from sqlalchemy import Inspector
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import ReflectedColumn

__all__ = ["columns_of", "primary_key_of", "unescaped"]


def columns_of(inspector: Inspector, table: str, schema: str | None) -> dict[str, ReflectedColumn]:
    """Return the columns of *table* by name."""
    columns = inspector.get_columns(table, schema=schema)
    return {unescaped(column["name"], inspector.dialect): column for column in columns}


def primary_key_of(inspector: Inspector, table: str, schema: str | None) -> list[str]:
    """Return the names of the columns of the primary key, in its order."""
    names = inspector.get_pk_constraint(table, schema=schema)["constrained_columns"]
    return [unescaped(name, inspector.dialect) for name in names]


def unescaped(name: str, dialect: Dialect) -> str:
    """Return the *name* of a column that the Inspector has found, as it is."""
    if dialect.name not in {"mysql", "mariadb"}:
        return name
    quote: str = dialect.identifier_preparer.initial_quote
    return name.replace(quote * 2, quote)
