"""The rows of a table in the order of their key, and the statements that set ids in a window of them.

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
    Uuid,
    and_,
    bindparam,
    cast,
    func,
    inspect,
    literal_column,
    or_,
    select,
    true,
    tuple_,
    update,
)

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrating.advisory_locks import lock_of_transaction
from sqlalchemy_public_id.migrating.catalog import columns_of, primary_key_of
from sqlalchemy_public_id.migrating.triggers import columns_changed_by_updates
from sqlalchemy_public_id.online import PublicIdColumn
from sqlalchemy_public_id.types import IdColumnType, as_bits_format

Key: TypeAlias = tuple[Any, ...]
"""The values of the primary key of one row."""
_Comparison: TypeAlias = Callable[[Any, Any], ColumnElement[bool]]
_STRICT: dict[_Comparison, _Comparison] = {operator.gt: operator.gt, operator.ge: operator.gt, operator.le: operator.lt}


class Rows:
    """The table of *target*, as the database describes it.

    :raises ConfigurationError: if there is no such table or column, or no primary key.
    """

    def __init__(self, connection: Connection, target: PublicIdColumn) -> None:
        self.target = target
        inspector = inspect(connection)
        if not inspector.has_table(target.table, schema=target.schema):
            raise ConfigurationError(f"there is no table {target.table!r}; create it first, or correct its name")
        columns = columns_of(inspector, target.table, target.schema)
        key = primary_key_of(inspector, target.table, target.schema)
        if not key:
            raise ConfigurationError(
                f"{target.table} has no primary key, so its rows cannot be told apart; "
                f"add one, or fill {target.column} by hand"
            )
        if target.column not in columns:
            raise ConfigurationError(
                f"{target.table} has no column {target.column!r}; "
                f"add it first, with op.expand_public_id({target.table!r})"
            )
        kept = columns_changed_by_updates(connection, target.table, target.schema)
        names = dict.fromkeys([*key, target.column, *kept])
        types = {name: columns[name]["type"] for name in names}
        self.converts_text: bool = isinstance(types[target.column], Uuid) and not target.format.is_native
        """True for the type UUID of MariaDB, which is read and written as text."""
        if self.converts_text:
            types[target.column] = String()
        table_columns = [Column(name, type_, primary_key=name in key) for name, type_ in types.items()]
        self.table: Table = Table(target.table, MetaData(), *table_columns, schema=target.schema)
        self.key: list[Column[Any]] = [self.table.columns[name] for name in key]
        self.column: Column[Any] = self.table.columns[target.column]
        self.kept: dict[Any, Any] = {self.table.columns[name]: self.table.columns[name] for name in kept}
        """Assignments that keep ``ON UPDATE CURRENT_TIMESTAMP`` from changing a column."""
        self._indexes_row_values = traits_for(connection.dialect).indexes_row_values

    def between(self, after: Key | None, until: Key) -> ColumnElement[bool]:
        """Return a condition for the rows behind *after*, or from the first one, up to *until*."""
        up_to = self._compare(until, operator.le)
        return up_to if after is None else and_(self._compare(after, operator.gt), up_to)

    def from_to(self, first: Key, last: Key) -> ColumnElement[bool]:
        """Return a condition for the rows from *first* to *last*, both included."""
        return and_(self._compare(first, operator.ge), self._compare(last, operator.le))

    def last(self, connection: Connection, *, missing: bool = False) -> Key | None:
        """Return the last key of the table, or of the rows that have no id."""
        query = select(*self.key).order_by(*(column.desc() for column in self.key)).limit(1)
        if missing:
            query = query.where(self.column.is_(None))
        return _key(connection.execute(query).one_or_none())

    def end_of_window(self, connection: Connection, after: Key | None, until: Key, size: int) -> Key | None:
        """Return the key of the row *size* places behind *after*; ``None`` if there are fewer rows."""
        query = select(*self.key).where(self.between(after, until)).order_by(*self.key).offset(size - 1).limit(1)
        return _key(connection.execute(query).one_or_none())

    def missing(self, connection: Connection, after: Key | None, until: Key) -> list[Key]:
        """Return the keys of the rows in a window that have no id."""
        query = select(*self.key).where(self.between(after, until), self.column.is_(None)).order_by(*self.key)
        return [tuple(row) for row in connection.execute(query)]

    def _compare(self, key: Key, comparison: _Comparison) -> ColumnElement[bool]:
        # in the form for which the database uses the index of the key
        if len(key) == 1:
            return comparison(self.key[0], key[0])
        if self._indexes_row_values:
            values = [bindparam(None, value, type_=column.type) for column, value in zip(self.key, key, strict=True)]
            return comparison(tuple_(*self.key), tuple_(*values))
        return _compare_columns(self.key, key, comparison)


def _compare_columns(columns: Sequence[Any], values: Key, comparison: _Comparison) -> ColumnElement[bool]:
    column, value = columns[0], values[0]
    if len(columns) == 1:
        return comparison(column, value)
    rest = _compare_columns(columns[1:], values[1:], comparison)
    return or_(_STRICT[comparison](column, value), and_(column == value, rest))


def _key(row: Any) -> Key | None:
    return None if row is None else tuple(row)


# --- windows: the rows behind *after* up to *until* that have no id, in the order of their key. Locked rows are left
# out if the database can skip them. After a failure, the next rows are still the same.


class _PostgreSQLWindow:
    """One statement selects its rows, and returns the last key."""

    is_taken: bool = False
    """True if another process fills a batch of these rows."""

    def __init__(self, connection: Connection, rows: Rows, after: Key | None, until: Key) -> None:
        self.connection: Connection = connection
        self.rows: Rows = rows
        self.until: Key = until
        self.after: Key | None = after
        target = rows.target
        # each batch has its own claim: behind a pooler, the next one may run in another session
        self.claim: ColumnElement[bool] = lock_of_transaction(target.table, target.column, after, schema=target.schema)
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            self.claim = true()  # others would wait for it until the transaction of the caller ends

    def fill(self, ids: Sequence[str]) -> int | None:
        rows, key = self.rows, self.rows.key
        claim = select(self.claim.label("is_ours")).cte("claim")
        is_ours = select(claim.c.is_ours).scalar_subquery()
        todo = (
            select(*key)
            .where(is_ours, rows.between(self.after, self.until), rows.column.is_(None))
            .order_by(*key)
            .limit(len(ids))
            .with_for_update(skip_locked=True, key_share=True)
            .cte("todo")
        )
        # one string is sent several times as fast as a list; no id contains a blank
        sent = " ".join(_encoded(rows.target.format, id) for id in ids)
        strings: Any = func.string_to_array(bindparam("ids", sent, type_=String()), " ")
        # arrays side by side: there is nothing to join, and nothing for the planner to estimate
        keys = [func.array(select(column).order_by(*todo.c).scalar_subquery()) for column in todo.c]
        names = [f"key_{at}" for at in range(len(key))]
        pairs: Any = func.unnest(*keys, strings).table_valued(*names, "made").render_derived(name="pairs")
        same_row = and_(*(column == pairs.c[name] for column, name in zip(key, names, strict=True)))
        value = _decoded(rows.target.format, pairs.c.made)
        written = (
            update(rows.table)
            .where(same_row)
            .values({rows.column: value, **rows.kept})
            .returning(key[0])
            .cte("written")
        )
        filled = select(func.count()).select_from(written).scalar_subquery()
        seen = select(func.count()).select_from(todo).scalar_subquery()
        last = select(*todo.c).order_by(*(column.desc() for column in todo.c)).limit(1).subquery("last")
        result = select(claim.c.is_ours, filled, seen, *last.c).select_from(claim.outerjoin(last, true()))
        if self.after == self.until:
            return None
        row: Any = self.connection.execute(result).one()
        self.is_taken = not row[0]
        if not row[2]:
            return None
        last_key: Key = tuple(row[3:])
        self.after = last_key if row[2] == len(ids) else self.until
        return int(row[1])

    def skip(self, count: int) -> None:
        self.after = self.until  # SKIP LOCKED skips single rows


class _KeysWindow:
    """All keys are read first. The database is in the same process: there are no round trips to save."""

    is_taken: bool = False

    def __init__(self, connection: Connection, rows: Rows, after: Key | None, until: Key) -> None:
        self.connection: Connection = connection
        self.rows: Rows = rows
        self.keys: list[Key] = rows.missing(connection, after, until)

    def fill(self, ids: Sequence[str]) -> int | None:
        """Set *ids* in the next rows, and return how many rows got one; ``None`` at the end of the window."""
        keys = self.keys[: len(ids)]
        if not keys:
            return None
        filled = self.write(keys, ids[: len(keys)])
        self.skip(len(keys))
        return filled

    def skip(self, count: int) -> None:
        """Go past the next *count* rows."""
        del self.keys[:count]

    def write(self, keys: Sequence[Key], ids: Sequence[str]) -> int:
        rows = self.rows
        names = [f"public_id_key_{at}" for at in range(len(rows.key))]
        this_row = and_(*(column == bindparam(name) for column, name in zip(rows.key, names, strict=True)))
        value = bindparam("public_id_made", type_=IdColumnType(rows.target.format))
        statement = update(rows.table).where(this_row, rows.column.is_(None)).values({rows.column: value, **rows.kept})
        pairs = zip(keys, ids, strict=True)
        parameters = [dict(zip(names, key, strict=True), public_id_made=id) for key, id in pairs]
        return self.connection.execute(statement, parameters).rowcount


class _MySQLWindow(_KeysWindow):
    """MySQL and MariaDB have no UPDATE … RETURNING, so the keys are read first; a batch is one UPDATE."""

    def write(self, keys: Sequence[Key], ids: Sequence[str]) -> int:
        rows, dialect = self.rows, self.connection.dialect
        version = dialect.server_version_info or ()
        # Locked before they are counted: otherwise MariaDB locks them to read first, and to write later, and a writer
        # in between is a deadlock.
        locked = (
            select(*rows.key)
            .where(rows.from_to(keys[0], keys[-1]), rows.column.is_(None))
            .order_by(*rows.key)
            .with_for_update(skip_locked=version >= ((10, 6) if getattr(dialect, "is_mariadb", False) else (8, 0, 1)))
            .subquery("locked")
        )
        number = func.row_number().over(order_by=list(locked.c)).label("public_id_n")
        numbered_rows = select(*locked.c, number).subquery("numbered")
        same_row = and_(*(column == numbered_rows.c[column.name] for column in rows.key))
        # in hexadecimal, so that nothing needs quotes; as parameters, they would take three times as long
        literals = literal_column(", ".join(_literal(rows.target.format, id) for id in ids), String())
        value: Any = func.elt(numbered_rows.c.public_id_n, literals)
        if rows.converts_text:
            value = cast(value, String())  # bytes would not be converted
        statement = update(rows.table).where(same_row, rows.column.is_(None)).values({rows.column: value, **rows.kept})
        return self.connection.execute(statement, execution_options={"compiled_cache": None}).rowcount


Window: TypeAlias = _PostgreSQLWindow | _KeysWindow


def window_for(connection: Connection, rows: Rows, after: Key | None, until: Key) -> Window:
    """Build the window behind *after* up to *until* for the database of *connection*."""
    kinds: dict[str, type[Window]] = {"mariadb": _MySQLWindow, "mysql": _MySQLWindow, "postgresql": _PostgreSQLWindow}
    return kinds.get(connection.dialect.name, _KeysWindow)(connection, rows, after, until)


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
