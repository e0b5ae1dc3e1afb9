"""The rows of a table in the order of their places, and the statements that set ids in a window of them.

A batch is one statement, one round trip and one transaction.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    MetaData,
    String,
    Table,
    Text,
    Uuid,
    and_,
    bindparam,
    cast,
    func,
    literal,
    literal_column,
    or_,
    select,
    text,
    true,
    tuple_,
    update,
)
from sqlalchemy import column as sql_column
from sqlalchemy.types import NullType

from sqlalchemy_public_id.backfill.places import NUMBER, names_of_key, types_of_places, without_place
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrating import PublicIdColumn
from sqlalchemy_public_id.migrating.catalog import columns_changed_by_updates, names_in_queries
from sqlalchemy_public_id.migrating.locks import lock_of_transaction
from sqlalchemy_public_id.types import IdColumnType, as_bits_format

Place: TypeAlias = tuple[Any, ...]
"""The place of one row, as the server writes it."""
_Comparison: TypeAlias = Callable[[Any, Any], ColumnElement[bool]]
_STRICT: dict[_Comparison, _Comparison] = {operator.gt: operator.gt, operator.ge: operator.gt, operator.le: operator.lt}


class Rows:
    """The table of *target*, as the database describes it.

    :raises ConfigurationError: if there is no such table or column, or if its rows cannot be told apart.
    """

    def __init__(self, connection: Connection, target: PublicIdColumn) -> None:
        self.target = target
        state = target.read_state(connection)
        if not state.exists:
            raise ConfigurationError(
                f"{target.table} has no column {target.column!r}; "
                f"add it first, with op.expand_public_id({target.table!r})"
            )
        types = types_of_places(connection, target)
        if not types:
            raise ConfigurationError(f"{without_place(target)}; add one, or fill {target.column} by hand")
        kept = columns_changed_by_updates(connection, target.table, target.schema)
        names = dict.fromkeys([*types, target.column, *kept])
        columns = [Column(name, types.get(name, NullType())) for name in names]
        self.table: Table = Table(target.table, MetaData(), *columns, schema=target.schema)
        self.parts: list[Column[Any]] = [self.table.columns[name] for name in types]
        """The columns of a place, which sort the rows."""
        self.place: list[Any] = [cast(part, NUMBER) if part.type is NUMBER else part for part in self.parts]
        """The same as they are selected and compared."""
        self.key: list[Any] = [sql_column(name) for name in names_of_key(connection, target)] or self.parts
        """What people call the place of a row: the primary key, if there is one."""
        self.column: Column[Any] = self.table.columns[target.column]
        self.kept: dict[Any, Any] = {self.table.columns[name]: self.table.columns[name] for name in kept}
        """Assignments that keep ``ON UPDATE CURRENT_TIMESTAMP`` from changing a column."""
        self.converts_text: bool = state.type == "uuid"
        """True for the type UUID of MariaDB, which is read and written as text."""
        self._indexes_row_values = traits_for(connection.dialect).indexes_row_values

    def between(self, after: Place | None, until: Place) -> ColumnElement[bool]:
        """Return a condition for the rows behind *after*, or from the first one, up to *until*."""
        up_to = self._compare(until, operator.le)
        return up_to if after is None else and_(self._compare(after, operator.gt), up_to)

    def from_to(self, first: Place, last: Place) -> ColumnElement[bool]:
        """Return a condition for the rows from *first* to *last*, both included."""
        return and_(self._compare(first, operator.ge), self._compare(last, operator.le))

    def at(self, place: Place) -> ColumnElement[bool]:
        """Return a condition for the row at *place*."""
        return and_(*(part == value for part, value in zip(self.place, place, strict=True)))

    def last(self, connection: Connection, *, missing: bool = False) -> Place | None:
        """Return the last place of the table, or of the rows that have no id."""
        query = select(*self.place).order_by(*(column.desc() for column in self.parts)).limit(1)
        if missing:
            query = query.where(self.column.is_(None))
        return _place(connection.execute(query).one_or_none())

    def end_of_window(self, connection: Connection, after: Place | None, until: Place, size: int) -> Place | None:
        """Return the place of the row *size* places behind *after*; ``None`` if there are fewer rows."""
        query = select(*self.place).where(self.between(after, until)).order_by(*self.parts).offset(size - 1).limit(1)
        return _place(connection.execute(query).one_or_none())

    def missing(self, connection: Connection, after: Place | None, until: Place) -> list[Place]:
        """Return the places of the rows in a window that have no id."""
        query = select(*self.place).where(self.between(after, until), self.column.is_(None)).order_by(*self.parts)
        return [tuple(row) for row in connection.execute(query)]

    def count_window(self, size: int) -> int:
        """Return about how many rows a window has for which *size* was asked."""
        return size

    def _compare(self, place: Place, comparison: _Comparison) -> ColumnElement[bool]:
        # in the form for which the database uses the index of the key
        if len(place) > 1 and self._indexes_row_values:
            values = [bindparam(None, value, type_=part.type) for part, value in zip(self.place, place, strict=True)]
            return comparison(tuple_(*self.place), tuple_(*values))
        return _compare_columns(self.place, place, comparison)


def _compare_columns(columns: Sequence[Any], values: Place, comparison: _Comparison) -> ColumnElement[bool]:
    column, value = columns[0], bindparam(None, values[0], type_=columns[0].type)
    if len(columns) == 1:
        return comparison(column, value)
    rest = _compare_columns(columns[1:], values[1:], comparison)
    return or_(_STRICT[comparison](column, value), and_(column == value, rest))


def _place(row: Any) -> Place | None:
    return None if row is None else tuple(row)


class _Pages(Rows):
    """A table of PostgreSQL, whose windows are pages: no key has to be read, or be there."""

    def __init__(self, connection: Connection, target: PublicIdColumn) -> None:
        super().__init__(connection, target)
        self._names = names_in_queries(connection, target.table, target.schema, target.column)
        self._scans_ranges = (connection.dialect.server_version_info or ()) >= (14,)
        is_parent, self._density = connection.execute(_PARENT, self._names).one()
        if is_parent:  # the rows of other tables have places of their own
            raise ConfigurationError(
                f"{target.table} has partitions, or other tables inherit from it; fill these tables one by one"
            )

    def between(self, after: Place | None, until: Place) -> ColumnElement[bool]:
        if self._scans_ranges:
            return super().between(after, until)
        first = 0 if after is None else _page(after)
        pages = f"generate_series({first}, {_page(until)}) page"
        # a row takes 28 bytes of a page at least
        lines = "generate_series(1, CAST(current_setting('block_size') AS int) / 28) line"
        places = f"SELECT CAST('(' || page || ',' || line || ')' AS tid) FROM {pages}, {lines}"
        return and_(super().between(after, until), self.parts[0] == literal_column(f"ANY (ARRAY({places}))"))

    def last(self, connection: Connection, *, missing: bool = False) -> Place | None:
        is_missing = select(literal(1)).select_from(self.table).where(self.column.is_(None)).limit(1)
        if missing and connection.execute(is_missing).first() is None:
            return None
        pages = connection.scalar(_PAGES, self._names)
        return (f"({pages},0)",) if pages else None

    def end_of_window(self, connection: Connection, after: Place | None, until: Place, size: int) -> Place | None:
        page = (0 if after is None else _page(after)) + _pages(size)
        return (f"({page},0)",) if page < _page(until) else None

    def count_window(self, size: int) -> int:
        return int(_pages(size) * self._density)


_PARENT = text("""
SELECT EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid) AS is_parent,
       CASE WHEN relpages > 0 AND reltuples > 0 THEN reltuples / relpages ELSE 100 END AS density
FROM pg_class c WHERE oid = to_regclass(:regclass)
""")
_PAGES = text("SELECT pg_relation_size(to_regclass(:regclass)) / CAST(current_setting('block_size') AS bigint)")


def _page(place: Place) -> int:
    return int(place[0][1:].partition(",")[0])


def _pages(size: int) -> int:
    return max(1, size // 100)  # fixed, so that the windows of all processes begin at the same pages


def rows_of(connection: Connection, target: PublicIdColumn) -> Rows:
    """Return the rows of *target* in the database of *connection*."""
    return (_Pages if connection.dialect.name == "postgresql" else Rows)(connection, target)


# --- windows: the rows behind *after* up to *until* that have no id, in the order of their places. Locked rows are left
# out if the database can skip them. After a failure, the next rows are still the same.


class _PagesWindow:
    """One statement selects its rows, and returns the last place."""

    is_taken: bool = False
    """True if another process fills a batch of these rows."""

    def __init__(self, connection: Connection, rows: Rows, after: Place | None, until: Place) -> None:
        self.connection: Connection = connection
        self.rows: Rows = rows
        self.until: Place = until
        self.after: Place | None = after
        target = rows.target
        # each batch has its own claim: behind a pooler, the next one may run in another session
        self.claim: ColumnElement[bool] = lock_of_transaction(target.table, target.column, after, schema=target.schema)
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            self.claim = true()  # others would wait for it until the transaction of the caller ends

    @property
    def is_done(self) -> bool:
        return self.after == self.until

    def fill(self, ids: Sequence[str]) -> int:
        rows, (place,) = self.rows, self.rows.parts
        claim = select(self.claim.label("is_ours")).cte("claim")
        is_ours = select(claim.c.is_ours).scalar_subquery()
        todo = (
            select(place)
            .where(is_ours, rows.between(self.after, self.until), rows.column.is_(None))
            .order_by(place)
            .limit(len(ids))
            .with_for_update(skip_locked=True, key_share=True)
            .cte("todo")
        )
        # one string is sent several times as fast as a list; no id contains a blank
        sent = " ".join(_encoded(rows.target.format, id) for id in ids)
        strings: Any = func.string_to_array(bindparam("ids", sent, type_=String()), " ")
        # arrays side by side: there is nothing to join, and nothing for the planner to estimate
        places = func.array(select(todo.c.ctid).scalar_subquery())
        pairs: Any = func.unnest(places, strings).table_valued("place", "made").render_derived(name="pairs")
        value = _decoded(rows.target.format, pairs.c.made)
        written = (
            update(rows.table)
            .where(place == pairs.c.place)
            .values({rows.column: value})
            .returning(literal(1))
            .cte("written")
        )
        filled = select(func.count()).select_from(written).scalar_subquery()
        seen = select(func.count()).select_from(todo).scalar_subquery()
        # a row that another transaction has just moved may be behind the window
        inside = todo.c.ctid <= bindparam("until", self.until[0], type_=place.type)
        last = select(todo.c.ctid).where(inside).order_by(todo.c.ctid.desc()).limit(1).scalar_subquery()
        row = self.connection.execute(select(claim.c.is_ours, filled, seen, cast(last, Text))).one()
        self.is_taken = not row[0]
        self.after = (row[3],) if row[2] == len(ids) and row[3] else self.until
        return int(row[1])

    def skip(self, count: int) -> None:
        self.after = self.until  # SKIP LOCKED skips single rows


class _PlacesWindow:
    """All keys are read first. The database is in the same process: there are no round trips to save."""

    is_taken: bool = False

    def __init__(self, connection: Connection, rows: Rows, after: Place | None, until: Place) -> None:
        self.connection: Connection = connection
        self.rows: Rows = rows
        self.keys: list[Place] = rows.missing(connection, after, until)

    @property
    def is_done(self) -> bool:
        """True at the end of the window."""
        return not self.keys

    def fill(self, ids: Sequence[str]) -> int:
        """Set *ids* in the next rows, and return how many rows got one."""
        keys = self.keys[: len(ids)]
        filled = self.write(keys, ids[: len(keys)])
        self.skip(len(keys))
        return filled

    def skip(self, count: int) -> None:
        """Go past the next *count* rows."""
        del self.keys[:count]

    def write(self, keys: Sequence[Place], ids: Sequence[str]) -> int:
        rows = self.rows
        names = [f"public_id_key_{at}" for at in range(len(rows.parts))]
        this_row = and_(*(column == bindparam(name) for column, name in zip(rows.parts, names, strict=True)))
        value = bindparam("public_id_made", type_=IdColumnType(rows.target.format))
        statement = update(rows.table).where(this_row, rows.column.is_(None)).values({rows.column: value, **rows.kept})
        pairs = zip(keys, ids, strict=True)
        parameters = [dict(zip(names, key, strict=True), public_id_made=id) for key, id in pairs]
        return self.connection.execute(statement, parameters).rowcount


class _MySQLWindow(_PlacesWindow):
    """MySQL and MariaDB have no UPDATE … RETURNING, so the keys are read first; a batch is one UPDATE."""

    def write(self, keys: Sequence[Place], ids: Sequence[str]) -> int:
        rows, dialect = self.rows, self.connection.dialect
        version = dialect.server_version_info or ()
        # Locked before they are counted: otherwise MariaDB locks them to read first, and to write later, and a writer
        # in between is a deadlock.
        locked = (
            select(*rows.parts)
            .where(rows.from_to(keys[0], keys[-1]), rows.column.is_(None))
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
        if rows.converts_text:
            value = cast(value, String())  # bytes would not be converted
        statement = update(rows.table).where(same_row, rows.column.is_(None)).values({rows.column: value, **rows.kept})
        return self.connection.execute(statement, execution_options={"compiled_cache": None}).rowcount


Window: TypeAlias = _PagesWindow | _PlacesWindow


def window_for(connection: Connection, rows: Rows, after: Place | None, until: Place) -> Window:
    """Build the window behind *after* up to *until* for the database of *connection*."""
    kinds: dict[str, type[Window]] = {"mariadb": _MySQLWindow, "mysql": _MySQLWindow, "postgresql": _PagesWindow}
    return kinds.get(connection.dialect.name, _PlacesWindow)(connection, rows, after, until)


def _encoded(format: Format, id: str) -> str:
    # without quotes: an integer of 64 bits in decimal digits, a larger one in hexadecimal digits
    if not format.is_native:
        return id
    number = as_bits_format(format)
    value = number.to_int(id)
    return str(value) if number.bits == 64 else f"{value:0{number.bits // 4}x}"


def _literal(format: Format, id: str) -> str:
    encoded = _encoded(format, id)
    if format.is_native:
        return encoded if format.bits == 64 else f"0x{encoded}"
    return f"0x{encoded.encode().hex()}"


def _decoded(format: Format, encoded: Any) -> Any:
    if not format.is_native:
        return encoded
    if format.bits == 96:
        return func.decode(encoded, "hex")
    return cast(encoded, Uuid() if format.bits == 128 else BigInteger())
