"""Write ids into the rows of a window: each batch is one statement and one round trip, and a transaction of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Connection, String, Uuid, and_, bindparam, cast, func, literal_column, select, update

from sqlalchemy_public_id.backfill.keys import Key, Rows
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.types import PublicIdType, numbered

__all__ = ["Window", "window_for"]


class Window(ABC):
    """The rows behind *after* up to *until* that have no id, from the first to the last."""

    def __init__(self, connection: Connection, rows: Rows, after: Key | None, until: Key) -> None:
        self.connection = connection
        self.rows = rows
        self.after = after
        self.until = until

    @abstractmethod
    def fill(self, ids: Sequence[str]) -> int | None:
        """Give *ids* to the next rows, and say how many got one; ``None`` where there are no more.

        Rows that someone else has locked are left out, where the database can do that. If it fails, the rows are still
        the next ones.
        """

    @abstractmethod
    def skip(self, count: int) -> None:
        """Go past the next *count* rows."""


class _PostgreSQLWindow(Window):
    """The statement finds its rows, and tells the last one."""

    def fill(self, ids: Sequence[str]) -> int | None:
        rows, key = self.rows, self.rows.key
        todo = (
            select(*key)
            .where(rows.between(self.after, self.until), rows.column.is_(None))
            .order_by(*key)
            .limit(len(ids))
            .with_for_update(skip_locked=True, key_share=True)
            .cte("todo")
        )
        # one text is sent several times as fast as a list; no id has a blank in it
        sent = " ".join(_written(rows.target.format, text) for text in ids)
        texts: Any = func.string_to_array(bindparam("ids", sent, type_=String()), " ")
        # side by side, so that there is nothing to be joined, and nothing for the planner to guess
        keys = [func.array(select(column).order_by(*todo.c).scalar_subquery()) for column in todo.c]
        names = [f"key_{at}" for at in range(len(key))]
        pairs: Any = func.unnest(*keys, texts).table_valued(*names, "made").render_derived(name="pairs")
        same_row = and_(*(column == pairs.c[name] for column, name in zip(key, names, strict=True)))
        made = _read(rows.target.format, pairs.c.made)
        written = update(rows.table).where(same_row).values({rows.column: made}).returning(key[0]).cte("written")
        filled = select(func.count()).select_from(written).scalar_subquery()
        seen = select(func.count()).select_from(todo).scalar_subquery()
        last = select(filled, seen, *todo.c).order_by(*(column.desc() for column in todo.c)).limit(1)
        found = self.connection.execute(last).one_or_none() if self.after != self.until else None
        if found is None:
            return None
        self.after = tuple(found[2:]) if found[1] == len(ids) else self.until
        return int(found[0])

    def skip(self, count: int) -> None:
        """Rows that are locked are skipped by themselves."""
        self.after = self.until


class _KeysWindow(Window):
    """The keys are read first, all at once."""

    def __init__(self, connection: Connection, rows: Rows, after: Key | None, until: Key) -> None:
        super().__init__(connection, rows, after, until)
        self.keys = rows.missing(connection, after, until)

    def fill(self, ids: Sequence[str]) -> int | None:
        keys = self.keys[: len(ids)]
        if not keys:
            return None
        filled = self.write(keys, ids[: len(keys)])
        self.skip(len(keys))
        return filled

    def skip(self, count: int) -> None:
        del self.keys[:count]

    def write(self, keys: Sequence[Key], ids: Sequence[str]) -> int:
        """Where the database is in the same process, and there are no round trips to save."""
        rows = self.rows
        names = [f"public_id_key_{at}" for at in range(len(rows.key))]
        this_row = and_(*(column == bindparam(name) for column, name in zip(rows.key, names, strict=True)))
        made = bindparam("public_id_made", type_=PublicIdType(rows.target.format))
        statement = update(rows.table).where(this_row, rows.column.is_(None)).values({rows.column: made})
        pairs = zip(keys, ids, strict=True)
        found = [dict(zip(names, key, strict=True), public_id_made=text) for key, text in pairs]
        return self.connection.execute(statement, found).rowcount


class _MySQLWindow(_KeysWindow):
    """MySQL and MariaDB have no UPDATE … RETURNING."""

    def write(self, keys: Sequence[Key], ids: Sequence[str]) -> int:
        rows = self.rows
        # Locked before they are counted: otherwise MariaDB locks them to read first, and to write later, and whoever
        # wants to write in between is a deadlock.
        locked = (
            select(*rows.key)
            .where(rows.from_to(keys[0], keys[-1]), rows.column.is_(None))
            .order_by(*rows.key)
            .with_for_update(skip_locked=_skips_locked(self.connection))
            .subquery("locked")
        )
        number = func.row_number().over(order_by=list(locked.c)).label("public_id_n")
        numbered = select(*locked.c, number).subquery("numbered")
        same_row = and_(*(column == numbered.c[column.name] for column in rows.key))
        # in hexadecimal, so that nothing needs to be quoted; as parameters, they would take three times as long
        texts = literal_column(", ".join(_literal(rows.target.format, text) for text in ids), String())
        made: Any = func.elt(numbered.c.public_id_n, texts)
        statement = update(rows.table).where(same_row, rows.column.is_(None)).values({rows.column: made})
        return self.connection.execute(statement, execution_options={"compiled_cache": None}).rowcount


def _written(format: Format, text: str) -> str:
    """The id *text* as a statement carries it: a number in hexadecimal digits, an integer in decimal ones."""
    if not format.is_native:
        return text
    number = numbered(format)
    value = number.to_int(text)
    return str(value) if number.bits == 64 else f"{value:0{number.bits // 4}x}"


def _literal(format: Format, text: str) -> str:
    """The id *text* as MySQL reads it in a statement, with nothing to be quoted."""
    written = _written(format, text)
    if format.is_native:
        return written if format.bits == 64 else f"0x{written}"
    return f"0x{written.encode().hex()}"


def _read(format: Format, written: Any) -> Any:
    """What PostgreSQL makes of it."""
    if not format.is_native:
        return written
    if format.bits == 96:
        return func.decode(written, "hex")
    return cast(written, Uuid() if format.bits == 128 else BigInteger())


def _skips_locked(connection: Connection) -> bool:
    version = connection.dialect.server_version_info or ()
    is_mariadb: bool = getattr(connection.dialect, "is_mariadb", False)
    return version >= ((10, 6) if is_mariadb else (8, 0, 1))


def window_for(connection: Connection, rows: Rows, after: Key | None, until: Key) -> Window:
    """The window behind *after* up to *until*, for the database of *connection*."""
    kinds: dict[str, type[Window]] = {"mariadb": _MySQLWindow, "mysql": _MySQLWindow, "postgresql": _PostgreSQLWindow}
    return kinds.get(connection.dialect.name, _KeysWindow)(connection, rows, after, until)
