"""The rows of a table of MySQL or MariaDB by a key, whose values the server renders as text or hexadecimal digits.

In a condition, the server converts them back to the type of the column.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Numeric, String, and_, cast, func, select, text, update
from sqlalchemy.dialects.mysql import BIGINT, CHAR, DATETIME, TIME
from sqlalchemy.sql.elements import literal_column
from sqlalchemy.types import Date, NullType, TypeEngine, UserDefinedType

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrations.mysql.session import try_lock
from sqlalchemy_public_id.migrations.rows import PositionColumns, RowPosition, Rows, Window, encoded
from sqlalchemy_public_id.migrations.session import digest_of, restore, send
from sqlalchemy_public_id.migrations.table import LiveTable
from sqlalchemy_public_id.stored_ids import as_bits_format

Expression = Callable[[Any], ColumnElement[Any]]


class Written(UserDefinedType[Any]):
    """A type whose values remain in the form in which the server renders them.

    :param write: returns the expression to select for a column.
    :param read: returns the expression to compare with a column, for a parameter with such a value.
    """

    cache_ok: bool | None = False

    def __init__(self, write: Expression, read: Expression) -> None:
        self.write: Expression = write
        self.read: Expression = read

    def column_expression(self, colexpr: ColumnElement[Any]) -> ColumnElement[Any]:
        return self.write(colexpr)

    def bind_expression(self, bindvalue: BindParameter[Any]) -> ColumnElement[Any]:
        return self.read(bindvalue)


NUMBER = BIGINT(unsigned=True)
"""The type for ENUM, SET and BIT, whose values MySQL and MariaDB sort by number, and compare as text."""


# The name is NULL for a part of an index that allows NULL or is an expression. DISTINCT keeps MariaDB from merging the
# subquery, and then reading the columns of all databases.
_KEYS = text("""
SELECT s.INDEX_NAME AS `key`, c.COLUMN_NAME AS name, c.DATA_TYPE AS kind, c.CHARACTER_SET_NAME AS charset,
       c.COLLATION_NAME AS collation, c.NUMERIC_SCALE AS scale
FROM information_schema.STATISTICS s
LEFT JOIN (
    SELECT DISTINCT COLUMN_NAME, DATA_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, NUMERIC_SCALE
    FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table AND IS_NULLABLE = 'NO'
) c ON c.COLUMN_NAME = s.COLUMN_NAME
WHERE s.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND s.TABLE_NAME = :table AND s.NON_UNIQUE = 0
ORDER BY s.INDEX_NAME <> 'PRIMARY', s.INDEX_NAME, s.SEQ_IN_INDEX
""")
_NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "double", "year")
_TIMES: dict[str, TypeEngine[Any]] = {
    "date": Date(),
    "datetime": DATETIME(fsp=6),
    "time": TIME(fsp=6),
    "timestamp": DATETIME(fsp=6),
}


def _type_of(part: Any) -> TypeEngine[Any] | None:
    """Return the type for a part of a key; ``None`` if the server cannot convert its values to text and back."""
    kind: str = part.kind or ""
    if kind in _NUMBERS:
        return NullType()
    if kind in ("bit", "enum", "set"):
        return NUMBER
    if kind == "float":  # as text, it has only six digits
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


class MySQLRows(Rows):
    """The rows of a table of MySQL or MariaDB."""

    @classmethod
    def read_position_columns(cls, live: LiveTable) -> PositionColumns:
        for _, parts in groupby(live.read(_KEYS), lambda part: part.key):
            types = {part.name: _type_of(part) for part in parts}
            known = {name: type_ for name, type_ in types.items() if type_ is not None}
            if len(known) == len(types):
                return known
        return {}

    @property
    def position(self) -> list[Any]:
        return [cast(part, NUMBER) if part.type is NUMBER else part for part in self.parts]

    def is_well_formed(self) -> ColumnElement[bool]:
        format = self.target.format
        if format.is_native:
            number = as_bits_format(format)
            is_id: ColumnElement[bool] = func.lower(func.hex(self.column)).regexp_match(number.hex_pattern)
            return self.column >= 0 if number.bits == 64 else is_id
        text = cast(self.column, CHAR(charset="utf8mb4")).collate("utf8mb4_bin")  # other collations ignore case
        lengths = [form.max_length for form in format.forms]  # "$" matches before a newline, too
        return and_(func.char_length(text).in_(lengths), text.regexp_match(format.stored_pattern))

    @contextmanager
    def claim(self, after: RowPosition | None) -> Generator[bool]:
        target = self.target
        database = "''" if target.schema else "DATABASE()"  # such a lock is global to the server
        digest = digest_of(target.schema, target.table, target.column, after)
        name = f"SHA2(CONCAT({database}, '{digest}'), 224)"
        release = f"SELECT RELEASE_LOCK({name})"
        try:  # an interruption may come just when the lock was granted
            is_granted = bool(try_lock(self.connection, name))
            yield is_granted
            if not is_granted:
                return
        except BaseException:
            restore(self.connection, release)
            raise
        if not send(self.connection, release).scalar():
            raise ConfigurationError(
                "the advisory lock of this connection is gone, because a pooler sends its statements to several "
                "connections; connect to the server itself"
            )

    def window(self, after: RowPosition | None, until: RowPosition) -> Window:
        return _KeysWindow(self, after, until)


class _KeysWindow(Window):
    """A window whose keys are read first, because there is no UPDATE … RETURNING; a batch is one UPDATE."""

    def write(self, positions: Sequence[RowPosition], ids: Sequence[str]) -> int:
        rows, dialect = self.rows, self.rows.connection.dialect
        version = dialect.server_version_info or ()
        # Rows are locked before they are numbered: otherwise, MariaDB takes shared locks first and exclusive locks
        # later, and a writer in between causes a deadlock.
        locked = (
            select(*rows.parts)
            .where(rows.from_to(positions[0], positions[-1]), rows.column.is_(None))
            .order_by(*rows.parts)
            .with_for_update(skip_locked=version >= ((10, 6) if getattr(dialect, "is_mariadb", False) else (8, 0, 1)))
            .subquery("locked")
        )
        number = func.row_number().over(order_by=list(locked.c)).label("public_id_n")
        numbered_rows = select(*locked.c, number).subquery("numbered")
        same_row = and_(*(column == numbered_rows.c[column.name] for column in rows.parts))
        # in hexadecimal, so that nothing needs quotes; as parameters, they would take three times as long
        literals = literal_column(", ".join(_literal(rows.target.format, id) for id in ids), String())
        value: Any = func.elt(numbered_rows.c.public_id_n, literals)
        if rows.state.type == "uuid":  # of MariaDB, whose values are read and written as text
            value = cast(value, String())
        statement = update(rows.table).where(same_row, rows.column.is_(None)).values({rows.column: value, **rows.kept})
        return rows.connection.execute(statement, execution_options={"compiled_cache": None}).rowcount


def _literal(format: Format, id: str) -> str:
    if format.is_native:
        return encoded(format, id) if format.bits == 64 else f"0x{encoded(format, id)}"
    return f"0x{id.encode().hex()}"
