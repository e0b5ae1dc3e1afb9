"""The rows of a table of SQLite by ``rowid``, or by the key of a table without one."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, case, false, func, text
from sqlalchemy.types import NullType

from sqlalchemy_public_id.migrating.rows import Places, Rows
from sqlalchemy_public_id.migrating.table import LiveTable
from sqlalchemy_public_id.types import as_bits_format

# a table WITHOUT ROWID is an index of its own name
_WITHOUT_ROWID = text("SELECT name FROM pragma_index_info(:table, :database) ORDER BY seqno")
# unlike the Inspector, which finds a table only by the capital letters that its statement has
_KEY = text("SELECT name FROM pragma_table_xinfo(:table, :database) WHERE pk > 0 ORDER BY pk")
_NAMES = text("SELECT lower(name) FROM pragma_table_xinfo(:table, :database)")


class SQLiteRows(Rows):
    """The rows of a table of SQLite."""

    @classmethod
    def read_places(cls, live: LiveTable) -> Places:
        key = list(live.connection.execute(_WITHOUT_ROWID, live.names).scalars())
        columns = {*live.connection.execute(_NAMES, live.names).scalars()}  # may hide the row id
        free = [name for name in ("rowid", "_rowid_", "oid") if name not in columns]
        names = key or free[:1] or live.connection.execute(_KEY, live.names).scalars()
        return dict.fromkeys(names, NullType())

    def read_key(self) -> list[str]:
        return list(self.connection.execute(_KEY, self.live.names).scalars())

    def is_well_formed(self) -> ColumnElement[bool]:
        format, column = self.target.format, self.column
        if format.is_native:
            number = as_bits_format(format)
            digits: Any = func.lower(func.hex(column))
            return column >= 0 if number.bits == 64 else digits.regexp_match(number.hex_pattern)
        lengths = [form.max_length for form in format.forms]  # "$" matches before a newline, too
        is_id = func.length(column).in_(lengths) & column.regexp_match(format.pattern)
        return case((func.typeof(column) == "text", is_id), else_=false())
