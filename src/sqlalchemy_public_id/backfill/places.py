"""The places of rows, by which a statement finds them again: values that only the server interprets.

PostgreSQL has ``ctid`` and SQLite ``rowid``, for tables of any key and of none. MySQL and MariaDB have keys only, whose
values Python and its drivers change: times of more than a day, zero dates, floats of four bytes. The server writes them
as text, or as hexadecimal digits, and converts that to the type of the column again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Connection, Numeric, String, Text, cast, func, inspect, text
from sqlalchemy.dialects.mysql import BIGINT, CHAR, DATETIME, TIME
from sqlalchemy.sql.elements import literal_column
from sqlalchemy.types import Date, NullType, TypeEngine, UserDefinedType

from sqlalchemy_public_id.migrating import PublicIdColumn
from sqlalchemy_public_id.migrating.catalog import names_in_queries, primary_key_of

Expression = Callable[[Any], ColumnElement[Any]]


class Written(UserDefinedType[Any]):
    """A type whose values are as the server writes them.

    :param write: returns the expression that is selected for a column.
    :param read: returns the expression that is compared, for a parameter with such a value.
    """

    cache_ok: bool | None = False

    def __init__(self, write: Expression, read: Expression) -> None:
        self.write: Expression = write
        self.read: Expression = read

    def column_expression(self, colexpr: ColumnElement[Any]) -> ColumnElement[Any]:
        return self.write(colexpr)

    def bind_expression(self, bindvalue: BindParameter[Any]) -> ColumnElement[Any]:
        return self.read(bindvalue)


class Tid(UserDefinedType[str]):
    """A place in a table of PostgreSQL as text, such as ``(7,1)``: the page, and the row in it."""

    cache_ok: bool | None = True

    def get_col_spec(self, **options: Any) -> str:
        return "tid"

    def column_expression(self, colexpr: ColumnElement[Any]) -> ColumnElement[Any]:
        return cast(colexpr, Text)

    def bind_expression(self, bindvalue: BindParameter[Any]) -> ColumnElement[Any]:
        return cast(cast(bindvalue, Text), self)  # otherwise, asyncpg expects a tuple


NUMBER = BIGINT(unsigned=True)
"""The type of an ENUM, a SET or BITs of MySQL and MariaDB, which are sorted by their numbers, and compared as text."""


def types_of_places(connection: Connection, target: PublicIdColumn) -> dict[str, TypeEngine[Any]]:
    """Return the types of the columns that are the place of a row, by name; none if rows cannot be told apart."""
    names = names_in_queries(connection, target.table, target.schema, target.column)
    if connection.dialect.name == "postgresql":
        return {"ctid": Tid()}
    if connection.dialect.name == "sqlite":
        return dict.fromkeys(_sqlite_place(connection, target, names), NullType())
    for _, parts in groupby(connection.execute(_MYSQL_KEYS, names), lambda part: part.key):
        types = {part.name: _mysql_type(part) for part in parts}
        known = {name: type_ for name, type_ in types.items() if type_ is not None}
        if len(known) == len(types):
            return known
    return {}


def names_of_key(connection: Connection, target: PublicIdColumn) -> list[str]:
    """Return the columns of the primary key where a place is something else."""
    if connection.dialect.name in ("mysql", "mariadb"):
        return []
    if connection.dialect.name == "sqlite":
        names = names_in_queries(connection, target.table, target.schema, target.column)
        return list(connection.execute(_SQLITE_KEY, names).scalars())
    return primary_key_of(inspect(connection), target.table, target.schema)


def without_place(target: PublicIdColumn) -> str:
    """Return the problem of a table for which :func:`types_of_places` finds none."""
    return (
        f"{target.table} has no primary key, and no unique index of columns that are NOT NULL, so its rows cannot be "
        f"told apart"
    )


# a table WITHOUT ROWID is an index of its own name
_WITHOUT_ROWID = text("SELECT name FROM pragma_index_info(:table, :database) ORDER BY seqno")
# unlike the Inspector, which finds a table only by the capital letters that its statement has
_SQLITE_KEY = text("SELECT name FROM pragma_table_xinfo(:table, :database) WHERE pk > 0 ORDER BY pk")
_SQLITE_NAMES = text("SELECT lower(name) FROM pragma_table_xinfo(:table, :database)")


def _sqlite_place(connection: Connection, target: PublicIdColumn, names: dict[str, Any]) -> list[str]:
    key = list(connection.execute(_WITHOUT_ROWID, names).scalars())
    if key:
        return key
    columns = {*connection.execute(_SQLITE_NAMES, names).scalars()}  # may hide the row id
    free = [name for name in ("rowid", "_rowid_", "oid") if name not in columns]
    return free[:1] or list(connection.execute(_SQLITE_KEY, names).scalars())


# a part of an index that allows NULL, or that is an expression, has no name here
_MYSQL_KEYS = text("""
SELECT s.INDEX_NAME AS `key`, c.COLUMN_NAME AS name, c.DATA_TYPE AS kind, c.CHARACTER_SET_NAME AS charset,
       c.COLLATION_NAME AS collation, c.NUMERIC_SCALE AS scale
FROM information_schema.STATISTICS s
LEFT JOIN information_schema.COLUMNS c
ON c.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND c.TABLE_NAME = :table AND c.COLUMN_NAME = s.COLUMN_NAME
   AND c.IS_NULLABLE = 'NO'
WHERE s.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND s.TABLE_NAME = :table AND s.NON_UNIQUE = 0
ORDER BY s.INDEX_NAME <> 'PRIMARY', s.INDEX_NAME, s.SEQ_IN_INDEX
""")
_TIMES: dict[str, TypeEngine[Any]] = {
    "date": Date(),
    "datetime": DATETIME(fsp=6),
    "time": TIME(fsp=6),
    "timestamp": DATETIME(fsp=6),
}


def _mysql_type(part: Any) -> TypeEngine[Any] | None:
    """Return the type for a part of a key; ``None`` if the server has no text for it that it reads again."""
    kind: str = part.kind or ""
    if kind.endswith("int") or kind in ("double", "year"):
        return NullType()
    if kind in ("bit", "enum", "set"):
        return NUMBER
    if kind == "float":  # as text, it has six digits
        return Written(lambda column: column + literal_column("0e0"), _itself)
    if kind == "decimal":
        return Written(_as_text, lambda value: cast(value, Numeric(65, part.scale)))
    if kind in _TIMES:
        return Written(_as_text, lambda value: cast(value, _TIMES[kind]))
    if kind in ("inet4", "inet6", "uuid"):
        return Written(_as_text, _itself)
    if kind.endswith(("binary", "blob")):
        return Written(func.hex, func.unhex)
    if part.charset is not None:
        return Written(
            func.hex, lambda value: cast(func.unhex(value), CHAR(charset=part.charset)).collate(part.collation)
        )
    return None


def _as_text(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return cast(column, String)


def _itself(value: ColumnElement[Any]) -> ColumnElement[Any]:
    return value
