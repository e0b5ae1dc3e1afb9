"""The values of one column of several databases, in one order: read side by side, never all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, TypeAlias
from uuid import UUID

from sqlalchemy import (
    BINARY,
    CHAR,
    VARBINARY,
    Boolean,
    Connection,
    Integer,
    LargeBinary,
    String,
    Uuid,
    cast,
    column,
    func,
    select,
    table,
)
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.errors import shown

__all__ = ["Kind", "NotComparable", "Stream", "kind_of", "shared", "shown_value"]

Kind: TypeAlias = Literal["integer", "text", "bytes"]
"""What values are compared as. A UUID is its 16 bytes, wherever it is stored."""

_PYTHON: dict[Kind | None, type] = {"integer": int, "text": str, "bytes": bytes}

_AT_ONCE = 10_000
_MYSQL = {"mysql", "mariadb"}
_BYTEWISE = {"C", "POSIX", "ucs_basic", "pg_c_utf8"}


class NotComparable(Exception):
    """The values of a column cannot be put in order beside those of others; the message says why."""


def kind_of(type_: TypeEngine[Any]) -> Kind | None:
    """What values of *type_* are compared as; ``None`` for types of which databases have an order of their own."""
    if isinstance(type_, Integer):
        return "integer"
    if isinstance(type_, String):
        return "text"
    return "bytes" if isinstance(type_, (BINARY, VARBINARY, LargeBinary, Uuid)) else None


def shown_value(value: Any) -> str:
    """*value* as text; bytes in hexadecimal, and 16 of them as a UUID."""
    if not isinstance(value, bytes):
        return str(value)
    return str(UUID(bytes=value)) if len(value) == 16 else value.hex()


@dataclass(frozen=True)
class Stream:
    """One column of one table of one database. Values are ordered as numbers, or byte by byte."""

    connection: Connection
    database: str
    table: str
    schema: str | None
    column: str
    type: TypeEngine[Any]

    def ends(self) -> tuple[Any, Any] | None:
        """The smallest and the largest value, found by an index where there is one; ``None`` where there is none.

        :raises NotComparable: where values that differ are the same to this database, or are not of the column's type.
        """
        if (collation := self._ignoring_case()) is not None:
            raise NotComparable(
                f"the collation {collation} of {self.table}.{self.column} in {self.database} does not tell upper case "
                f"from lower case"
            )
        found = [
            self._canonical(value)
            for order in (self._order.asc(), self._order.desc())
            for value in self.connection.execute(self._all.order_by(order).limit(1)).scalars()
        ]
        return (found[0], found[1]) if found else None

    def values(self, lower: Any, upper: Any) -> Iterator[tuple[Any, str]]:
        """Each value once, with the name of the database; of numbers, those from *lower* to *upper*.

        :raises NotComparable: where they do not come in order.
        """
        query = self._all.order_by(self._order)
        if kind_of(self.type) == "integer":
            query = query.where(self._column.between(lower, upper))
        reading = self.connection.execution_options(stream_results=True, yield_per=_AT_ONCE).execute(query)
        with closing(reading):
            last: Any = None
            for value in map(self._canonical, reading.scalars()):
                if last is None or last < value:
                    yield value, self.database
                elif value != last:
                    raise NotComparable(
                        f"{self.database} does not send {self.table}.{self.column} byte by byte in order: "
                        f"{shown_value(value)!r} came after {shown_value(last)!r}"
                    )
                last = value

    @property
    def _column(self) -> Any:
        return column(self.column, self.type)

    @property
    def _all(self) -> Any:
        return select(self._column).select_from(table(self.table, schema=self.schema)).where(self._column.is_not(None))

    @property
    def _order(self) -> Any:
        """What the database sorts by, so that it does as Python does."""
        collation = getattr(self.type, "collation", None)
        dialect = self.connection.dialect.name
        if isinstance(self.type, Uuid) and dialect in _MYSQL:
            return cast(self._column, String)  # MariaDB sorts UUIDs by their last group
        if kind_of(self.type) != "text":
            return self._column
        if dialect == "sqlite":
            return self._column.collate("BINARY")
        if dialect == "postgresql":
            return self._column if collation in _BYTEWISE else self._column.collate("C")
        return self._column if str(collation).endswith("_bin") else cast(self._column, LargeBinary)

    def _ignoring_case(self) -> str | None:
        """The collation, if texts that differ in upper case alone are the same to it."""
        dialect = self.connection.dialect.name
        if kind_of(self.type) != "text":
            return None
        if dialect in _MYSQL:
            found = self._collation_of_mysql()
            return found if "ci" in found.lower().split("_") else None
        if dialect != "postgresql":
            return None
        collation: str | None = getattr(self.type, "collation", None)
        if type(self.type).__name__ == "CITEXT":
            return "citext"
        name, deterministic = column("collname", String()), column("collisdeterministic", Boolean())
        query = select(name).select_from(table("pg_collation")).where(name == collation, deterministic.is_(False))
        return None if collation is None else self.connection.scalar(query.limit(1))

    def _collation_of_mysql(self) -> str:
        """The collation of the column: reflection tells it only where it is not that of the table."""
        names = [column(name, String()) for name in ("table_schema", "table_name", "column_name")]
        wanted = func.coalesce(self.schema, func.database()), self.table, self.column
        query = select(column("collation_name", String())).select_from(table("columns", schema="information_schema"))
        for name, value in zip(names, wanted, strict=True):
            query = query.where(name == value)
        return str(self.connection.scalar(query))

    def _canonical(self, value: Any) -> Any:
        if isinstance(value, UUID):
            return value.bytes
        if isinstance(value, bytearray):
            return bytes(value)
        if not isinstance(value, _PYTHON[kind_of(self.type)]):
            raise NotComparable(
                f"{self.database} has {shown(value)} in {self.table}.{self.column}, which is {self.type!r}"
            )
        if isinstance(value, str) and isinstance(self.type, CHAR):
            return value.rstrip(" ")  # PostgreSQL sends the padding, MySQL and MariaDB do not
        return value


def shared(streams: Sequence[Stream], ends: Sequence[tuple[Any, Any]]) -> Iterator[tuple[Any, int, tuple[str, ...]]]:
    """Value, how many databases have it, and which, for all values that may be shared."""
    reads: list[Iterator[tuple[Any, str]]] = []
    for at, (stream, (first, last)) in enumerate(zip(streams, ends, strict=True)):
        others = [each for i, each in enumerate(ends) if i != at and each[0] <= last and first <= each[1]]
        if others:
            lower, upper = max(first, min(each[0] for each in others)), min(last, max(each[1] for each in others))
            reads.append(stream.values(lower, upper))
    for value, group in groupby(merge(*reads, key=itemgetter(0)), key=itemgetter(0)):
        databases = tuple(database for _, database in group)
        yield value, len(databases), databases
