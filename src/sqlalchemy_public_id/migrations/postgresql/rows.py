"""The rows of a table of PostgreSQL by ``ctid``, for tables with any key or none, in windows of pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Boolean,
    ColumnElement,
    Integer,
    String,
    Text,
    Uuid,
    and_,
    bindparam,
    cast,
    func,
    literal,
    not_,
    select,
    text,
    true,
    update,
)
from sqlalchemy.types import UserDefinedType

from sqlalchemy_public_id.dialects import is_autocommit
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format, NanoId
from sqlalchemy_public_id.formats.alphabets import character_class
from sqlalchemy_public_id.migrations.rows import PositionColumns, RowPosition, Rows, Window, encoded
from sqlalchemy_public_id.migrations.session import digest_of
from sqlalchemy_public_id.migrations.state import Partition, State
from sqlalchemy_public_id.migrations.table import LiveTable
from sqlalchemy_public_id.stored_ids import as_bits_format

_PAGES = text("""
SELECT pg_catalog.pg_relation_size(pg_catalog.to_regclass(:regclass))
       / CAST(pg_catalog.current_setting('block_size') AS bigint)
""")
_SIZE = text("""
SELECT EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = c.oid) AS is_parent,
       CASE WHEN relpages > 0 AND reltuples > CAST(0 AS real)
            THEN reltuples / CAST(relpages AS real) ELSE 100 END AS density
FROM pg_catalog.pg_class c WHERE oid = CAST(pg_catalog.to_regclass(:regclass) AS oid)
""")


_KEY = text("""
SELECT a.attname AS name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type
FROM pg_catalog.pg_constraint n
CROSS JOIN pg_catalog.unnest(n.conkey) WITH ORDINALITY k (attnum, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = n.conrelid AND a.attnum = k.attnum
WHERE n.conrelid = CAST(pg_catalog.to_regclass(:regclass) AS oid) AND n.contype = 'p'
ORDER BY k.place
""")


_catalog: Any = func.pg_catalog
"""Functions that no role can replace, as one of another schema could with other types."""


def _text(value: str) -> ColumnElement[str]:
    """Return a parameter as TEXT: ``pg_catalog`` has no operators for VARCHAR, as which SQLAlchemy sends strings."""
    return cast(bindparam(None, value, type_=String()), Text)


class AsText(UserDefinedType[str]):
    """A type of PostgreSQL whose values remain text: a ``tid`` is ``(7,1)``, the page, and the row in it."""

    cache_ok: bool | None = True

    def __init__(self, name: str) -> None:
        self.name: str = name

    def get_col_spec(self, **options: Any) -> str:
        return self.name

    def column_expression(self, colexpr: ColumnElement[Any]) -> ColumnElement[Any]:
        return cast(colexpr, Text)

    def bind_expression(self, bindvalue: BindParameter[Any]) -> ColumnElement[Any]:
        return cast(cast(bindvalue, Text), self)  # otherwise, asyncpg expects a tuple


class _StoredRows(Rows):
    """The rows of a table of PostgreSQL, in whatever order."""

    @classmethod
    def read_key(cls, live: LiveTable) -> list[str]:
        return live.read_primary_key()

    @property
    def compared(self) -> ColumnElement[Any]:
        return self.column if self.target.format.is_native else cast(self.column, Text)

    def has_id(self, value: Any) -> ColumnElement[bool]:
        return self.compared == (_text(value) if isinstance(value, str) else value)

    def is_well_formed(self) -> ColumnElement[bool]:
        format = self.target.format
        if format.is_native:
            number = as_bits_format(format)
            if number.bits == 64:
                return self.column >= 0
            digits: Any = _catalog.replace(cast(self.column, Text), "-", "", type_=Text)
            if number.bits != 128:  # bytes
                digits = _catalog.encode(self.column, "hex", type_=Text)
            matches: ColumnElement[bool] = digits.regexp_match(_text(number.hex_pattern))
            return matches
        text = cast(self.column, Text).collate("C")
        if not isinstance(format, NanoId) or len(format.forms) > 1:
            return text.regexp_match(_text(format.stored_pattern))
        # searching for characters outside the alphabet takes a quarter of the time
        lead = "" if format.prefix is None else format.prefix + format.separator
        others = f"[^{character_class(format.alphabet)[1:]}"
        body: Any = _catalog.substr(text, len(lead) + 1, type_=Text) if lead else text
        length: Any = _catalog.length(text, type_=Integer)
        is_id = and_(length == format.max_length, not_(body.regexp_match(_text(others))))
        starts: Any = _catalog.starts_with(text, _text(lead), type_=Boolean)
        return and_(starts, is_id) if lead else is_id


class RowsByKey(_StoredRows):
    """The rows of a table whose pages are elsewhere, as on the workers of Citus, by the primary key."""

    @classmethod
    def read_position_columns(cls, live: LiveTable) -> PositionColumns:
        return {row.name: AsText(row.type) for row in live.read(_KEY)}


class PostgreSQLRows(_StoredRows):
    """The rows of a table of PostgreSQL by their pages."""

    def __init__(self, live: LiveTable, state: State) -> None:
        super().__init__(live, state)
        size = self.connection.execute(_SIZE, live.names).one()
        self._density: float = size.density
        if size.is_parent and state.partitions is None:  # each of these tables has its own ctids
            raise ConfigurationError(
                f"other tables inherit from {self.target.table}; fill these tables one by one, with ONLY for this one"
            )

    @classmethod
    def read_position_columns(cls, live: LiveTable) -> PositionColumns:
        return {"ctid": AsText("tid")}

    def by_storage(self) -> Sequence[Rows]:
        if self.state.partitions is not None:
            parts = [part for part in self.state.partitions if part.kind != "p"]
            return [rows for part in parts for rows in self._of(part)]
        # rows that are there before their pages are counted
        if self.live.has_rows() and not self.connection.scalar(_PAGES, self.live.names):
            return [RowsByKey(self.live, self.state)]
        return [self]

    def _of(self, part: Partition) -> Sequence[Rows]:
        live = type(self.live)(self.connection, replace(self.target, table=part.name, schema=part.schema))
        rows = type(self)(live, replace(self.state, partitions=None))
        if part.kind == "f" and rows.has_missing():
            raise ConfigurationError(
                f"{part.name} of {self.target.table} is a foreign table; fill it on the server that stores its rows"
            )
        return [] if part.kind == "f" else rows.by_storage()

    def last(self, *, missing: bool = False) -> RowPosition | None:
        if missing and not self.has_missing():
            return None
        pages = self.connection.scalar(_PAGES, self.live.names)
        return (f"({pages},0)",) if pages else None

    def end_of_window(self, after: RowPosition | None, until: RowPosition, size: int) -> RowPosition | None:
        page = (0 if after is None else _page(after)) + _pages(size)
        return (f"({page},0)",) if page < _page(until) else None

    def count_window(self, size: int) -> int:
        return int(_pages(size) * self._density)

    def window(self, after: RowPosition | None, until: RowPosition) -> Window:
        return _PagesWindow(self, after, until)


def _page(position: RowPosition) -> int:
    return int(position[0][1:].partition(",")[0])


def _pages(size: int) -> int:
    return max(1, size // 100)  # fixed, so that the windows of all processes begin at the same pages


class _PagesWindow(Window):
    """A window of pages. The statement of a batch selects its rows, sets ids, and returns the last position."""

    def __init__(self, rows: Rows, after: RowPosition | None, until: RowPosition) -> None:
        self.rows = rows
        self.until: RowPosition = until
        self.after: RowPosition | None = after
        # Each batch has its own claim: behind a pooler, the next one may run in another session. There is no claim in a
        # transaction of the caller, which would keep the window from others until it ends.
        is_alone = is_autocommit(rows.connection)
        self.claim: ColumnElement[bool] = lock_of_window(rows, after) if is_alone else true()

    @property
    def is_done(self) -> bool:
        return self.after == self.until

    def fill(self, ids: Sequence[str]) -> int:
        rows, (position,) = self.rows, self.rows.parts
        claim = select(self.claim.label("is_ours")).cte("claim")
        is_ours = select(claim.c.is_ours).scalar_subquery()
        todo = (
            select(position)
            .where(is_ours, rows.between(self.after, self.until), rows.column.is_(None))
            .order_by(position)
            .limit(len(ids))
            .with_for_update(skip_locked=True, key_share=True)
            .cte("todo")
        )
        # one string is sent several times as fast as a list; no id contains a blank
        sent = " ".join(encoded(rows.target.format, id) for id in ids)
        strings: Any = _catalog.string_to_array(_text(sent), " ")
        # arrays side by side: there is nothing to join, and nothing for the planner to estimate
        # PostgreSQL itself looks for an unnest() of several arrays in pg_catalog
        positions = func.array(select(todo.c.ctid).scalar_subquery())
        pairs: Any = func.unnest(positions, strings).table_valued("tid", "made").render_derived(name="pairs")
        value = _decoded(rows.target.format, pairs.c.made)
        written = (
            update(rows.table)
            .where(position == pairs.c.tid)
            .values({rows.column: value})
            .returning(literal(1))
            .cte("written")
        )
        filled = select(func.count()).select_from(written).scalar_subquery()
        seen = select(func.count()).select_from(todo).scalar_subquery()
        # a row that another transaction has just moved may be behind the window
        inside = todo.c.ctid <= bindparam("until", self.until[0], type_=position.type)
        last = select(todo.c.ctid).where(inside).order_by(todo.c.ctid.desc()).limit(1).scalar_subquery()
        row = rows.connection.execute(select(claim.c.is_ours, filled, seen, cast(last, Text))).one()
        self.is_taken = not row[0]
        self.after = (row[3],) if row[2] == len(ids) and row[3] else self.until
        return int(row[1])

    def skip(self, count: int) -> None:
        self.after = self.until  # SKIP LOCKED skips single rows


def lock_of_window(rows: Rows, after: RowPosition | None) -> ColumnElement[bool]:
    """Return an expression that locks a window, and is False if another process has locked it.

    The lock ends with the transaction. A lock of the session would be lost behind a pooler that changes the session.
    """
    target = rows.target
    digest = digest_of(target.schema, target.table, target.column, after)
    name: Any = _text(f"batch {digest}")
    if not target.schema:
        name = func.coalesce(cast(_catalog.current_schema(), Text), _text("")) + name
    lock: ColumnElement[bool] = _catalog.pg_try_advisory_xact_lock(_catalog.hashtextextended(name, 0), type_=Boolean)
    return lock


def _decoded(format: Format, encoded: Any) -> Any:
    if not format.is_native:
        return encoded
    if format.bits == 64 or format.bits == 128:
        return cast(encoded, BigInteger() if format.bits == 64 else Uuid())
    return _catalog.decode(encoded, "hex")  # bytes
