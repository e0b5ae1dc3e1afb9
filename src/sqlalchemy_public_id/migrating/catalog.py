"""Names of columns and keys, as the Inspector reflects them."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import Inspector
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.exc import SAWarning

from sqlalchemy_public_id.dialects import traits_for


def columns_of(inspector: Inspector, table: str, schema: str | None) -> dict[str, ReflectedColumn]:
    """Return the columns of *table* by name. The type of one that SQLAlchemy has none for is ``NullType``."""
    with _without_warnings():
        columns = inspector.get_columns(table, schema=schema)
    return {_unescaped(column["name"], inspector.dialect): column for column in columns}


def primary_key_of(inspector: Inspector, table: str, schema: str | None) -> list[str]:
    """Return the names of the columns of the primary key, in its order."""
    with _without_warnings():  # on MySQL and MariaDB, it reads all columns as well
        names = inspector.get_pk_constraint(table, schema=schema)["constrained_columns"]
    return [_unescaped(name, inspector.dialect) for name in names]


@contextmanager
def _without_warnings() -> Generator[None]:
    """Hide SQLAlchemy's warnings of types that it does not know: they are those of other columns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)
        yield


def _unescaped(name: str, dialect: Dialect) -> str:
    # on MySQL and MariaDB, SQLAlchemy parses SHOW CREATE TABLE, and leaves a quote inside a name doubled
    quote: str = dialect.identifier_preparer.initial_quote
    return name.replace(quote * 2, quote) if traits_for(dialect).escapes_reflected_names else name
