"""Prove that the rows of several databases can be put into one: no key and no public id may be in two of them.

>>> from sqlalchemy_public_id.merging import merge_check
>>> report = merge_check({"north": engine, "south": another_engine})  # doctest: +SKIP
>>> report.is_proven  # doctest: +SKIP
True

Ranges of keys that lie apart are proof enough, and two index lookups per database find them. Otherwise the values
of all databases are read in order and compared side by side, so the memory does not grow with the tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from heapq import merge
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Literal, TypeAlias
from uuid import UUID

from sqlalchemy import Connection, Engine, Inspector, cast, column, create_engine, inspect, select, table, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.types import BINARY, CHAR, VARBINARY, Integer, LargeBinary, String, TypeEngine, Uuid

from sqlalchemy_public_id.dialects.catalog import columns_of, primary_key_of
from sqlalchemy_public_id.errors import ConfigurationError, safe_repr

__all__ = ["Clash", "Comparison", "Proof", "Report", "TableReport", "merge_check"]

_NOT_MERGED = {"alembic_version"}  # a table that describes its database

Proof: TypeAlias = Literal["ranges", "compared", "nothing to compare", "not comparable"]
"""``ranges``: smallest and largest values lie apart. ``compared``: every value was read. ``nothing to compare``: fewer
than two databases have the column and rows. ``not comparable``: the types differ, or have no known order."""


@dataclass(frozen=True)
class Clash:
    """A value that several databases have."""

    value: str
    """As a string: a number stored in 128 bits is a UUID."""
    databases: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """One column of a table, in all databases that have it."""

    column: str
    """The name of the column. Several names with commas, or nothing, if no single column is the key."""
    proof: Proof
    reason: str = ""
    """Why it is not comparable, or there is nothing to compare."""
    compared: int = 0
    """The number of values that were read."""
    clashes: int = 0
    """The number of values that are in several databases."""
    examples: tuple[Clash, ...] = ()
    """The first of them, in order."""

    @property
    def is_proven(self) -> bool:
        """Return True if certainly no value clashes."""
        return self.proof != "not comparable" and not self.clashes


@dataclass(frozen=True)
class TableReport:
    """One table."""

    name: str
    missing: tuple[str, ...]
    """The databases that do not have it."""
    key: Comparison
    public_id: Comparison

    @property
    def is_proven(self) -> bool:
        """Return True if its rows can be put together."""
        return self.key.is_proven and self.public_id.is_proven


@dataclass(frozen=True)
class Report:
    """The result of :func:`merge_check`."""

    databases: tuple[str, ...]
    tables: tuple[TableReport, ...]

    @property
    def clashes(self) -> int:
        """The number of keys and public ids that are in several databases."""
        return sum(table.key.clashes + table.public_id.clashes for table in self.tables)

    @property
    def is_proven(self) -> bool:
        """Return True if certainly nothing clashes."""
        return all(table.is_proven for table in self.tables)

    def as_dict(self) -> dict[str, Any]:
        """Return the report in plain values, for JSON."""
        summary = {"databases": [*self.databases], "is_proven": self.is_proven, "clashes": self.clashes}
        return {**summary, "tables": [asdict(table) for table in self.tables]}


# --- the check


def merge_check(
    databases: Sequence[str | URL | Engine] | Mapping[str, str | URL | Engine],
    *,
    tables: Collection[str] | None = None,
    schema: str | None = None,
    column: str = "public_id",
    examples: int = 10,
) -> Report:
    """Compare the keys and public ids of two or more *databases*, and change nothing.

    Ids are compared as they are stored, a UUID of PostgreSQL with 16 bytes of MySQL or SQLite. The result holds for the
    moment of the check: stop the writers, or check again after the last one.

    :param databases: URLs or engines; a mapping gives them names in the report.
    :param tables: which tables; by default all except that of Alembic.
    :param schema: where to look, instead of the default schema of each connection.
    :param column: the column of public ids.
    :param examples: how many clashing values of a column are shown; all of them are counted.
    :raises ConfigurationError: for fewer than two databases, a database that is given twice, an asynchronous driver,
        and a table that no database has.
    """
    named = _named(databases)
    if isinstance(tables, (str, bytes)):
        raise ConfigurationError(f"tables is {safe_repr(tables)}, expected a list of names: [{safe_repr(tables)}]")
    if not isinstance(examples, int) or isinstance(examples, bool) or examples < 0:
        raise ConfigurationError(f"examples is {safe_repr(examples)}, expected a whole number, 0 or more")
    with ExitStack() as stack:
        members: list[_Member] = []
        for name, database in named.items():
            engine = database if isinstance(database, Engine) else create_engine(database)
            if engine is not database:
                stack.callback(engine.dispose)
            if engine.dialect.is_async:
                raise ConfigurationError(
                    f"{name} has the asynchronous driver {engine.driver}, expected another one: nothing is awaited here"
                )
            connection = stack.enter_context(engine.connect())
            inspector = inspect(connection)
            members.append(_Member(name, connection, inspector, set(inspector.get_table_names(schema=schema))))
        existing = set[str]().union(*(member.tables for member in members))
        unknown = sorted(set(tables or ()) - existing)
        if unknown:
            raise ConfigurationError(
                f"no database has a table {', '.join(map(repr, unknown))}; there are: {', '.join(sorted(existing))}"
            )
        wanted = sorted(existing - _NOT_MERGED if tables is None else set(tables))
        reports = tuple(_compare_table(table, members, schema, column, examples) for table in wanted)
    return Report(tuple(named), reports)


def _named(databases: Any) -> dict[str, URL | Engine]:
    """Return name → URL or engine. The default name is the URL without password and options."""
    by_name: Any = databases
    if isinstance(databases, (str, bytes)) or not isinstance(databases, Iterable):
        raise ConfigurationError(f"databases is {safe_repr(databases)}, expected URLs or engines, two or more")
    members: list[tuple[Any, Any]] = [(None, member) for member in by_name]
    if isinstance(databases, Mapping):
        members = list(by_name.items())
    if len(members) < 2:
        raise ConfigurationError(f"there are {len(members)} databases to compare, expected two or more")
    named: dict[str, URL | Engine] = {}
    seen: list[object] = []
    for name, member in members:
        if not isinstance(member, (str, URL, Engine)):
            raise ConfigurationError(f"a database is {safe_repr(member)}, expected a URL or an Engine")
        url = member.url if isinstance(member, Engine) else make_url(member)
        database = member if isinstance(member, Engine) else url
        label = url.set(query={}).render_as_string(hide_password=True)
        # each engine of SQLite in memory has a database of its own
        is_in_memory = url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}
        if (database if is_in_memory else url) in seen and not (is_in_memory and database is url):
            raise ConfigurationError(f"{label} is given twice; a database clashes with itself")
        seen += [database, url]
        if name is None:
            name = f"{label} ({len(named) + 1})" if label in named else label
        named[name] = database
    return named


@dataclass(frozen=True)
class _Member:
    name: str
    connection: Connection
    inspector: Inspector
    tables: set[str]


def _compare_table(
    name: str, members: Sequence[_Member], schema: str | None, public_id: str, examples: int
) -> TableReport:
    key_values: list[_Values] = []
    id_values: list[_Values] = []
    primary: set[tuple[str, ...]] = set()
    having = [member for member in members if name in member.tables]
    for member in having:
        columns = columns_of(member.inspector, name, schema)
        key = tuple(primary_key_of(member.inspector, name, schema))
        primary.add(key)
        if len(key) == 1:
            key_values.append(_Values(member, name, schema, key[0], columns[key[0]]["type"]))
        if public_id in columns:
            id_values.append(_Values(member, name, schema, public_id, columns[public_id]["type"]))
    return TableReport(
        name=name,
        missing=tuple(member.name for member in members if name not in member.tables),
        key=_compare_keys(having, primary, key_values, examples),
        public_id=_compare(public_id, id_values, examples),
    )


def _compare_keys(
    having: Sequence[_Member], primary: set[tuple[str, ...]], sources: Sequence[_Values], examples: int
) -> Comparison:
    names = ", ".join(sorted({name for key in primary for name in key}))
    if len(having) < 2:
        return Comparison(names, "nothing to compare", f"{having[0].name} alone has the table")
    if len(primary) > 1:
        return Comparison(names, "not comparable", "the databases have different keys")
    if not names:
        return Comparison(names, "nothing to compare", "there is no key")
    if not sources:
        return Comparison(names, "not comparable", "the key has several columns")
    return _compare(names, sources, examples)


def _compare(column: str, sources: Sequence[_Values], examples: int) -> Comparison:
    if len(sources) < 2:
        owner = f"{sources[0].member.name} alone" if sources else "no database"
        return Comparison(column, "nothing to compare", f"{owner} has the column")
    python_types = {source.python_type for source in sources}
    if len(python_types) > 1 or None in python_types:
        types = ", ".join(f"{source.type_!r} in {source.member.name}" for source in sources)
        return Comparison(column, "not comparable", f"the types have no order in common: {types}")
    try:
        return _compare_values(column, sources, examples)
    except _NotComparable as error:
        return Comparison(column, "not comparable", str(error))


def _compare_values(column: str, sources: Sequence[_Values], examples: int) -> Comparison:
    bounded = [(source, bounds) for source in sources if (bounds := source.bounds()) is not None]
    if len(bounded) < 2:
        return Comparison(column, "nothing to compare", "no two databases have rows")
    if all(before[1] < after[0] for before, after in pairwise(sorted(bounds for _, bounds in bounded))):
        return Comparison(column, "ranges")
    reads: list[Iterator[tuple[Any, str]]] = []
    for source, (first, last) in bounded:  # what others may have, too
        others = [bounds for other, bounds in bounded if other is not source]
        others = [(low, high) for low, high in others if low <= last and first <= high]
        if others:
            reads.append(source.read(max(first, min(others)[0]), min(last, max(high for _, high in others))))
    compared = clashes = 0
    shown_clashes: list[Clash] = []
    for value, group in groupby(merge(*reads, key=itemgetter(0)), key=itemgetter(0)):
        names = tuple(name for _, name in group)
        compared += len(names)
        if len(names) > 1:
            clashes += 1
            if len(shown_clashes) < examples:
                shown_clashes.append(Clash(_as_string(value), names))
    return Comparison(column, "compared", "", compared, clashes, tuple(shown_clashes))


# --- the values of a column, in one order on all databases

_AT_ONCE = 10_000
_MYSQL = {"mysql", "mariadb"}
_BYTEWISE = {"C", "POSIX", "ucs_basic", "pg_c_utf8"}
_MYSQL_COLLATION = text(
    "SELECT collation_name FROM information_schema.columns WHERE table_schema = coalesce(:schema, database()) "
    "AND table_name = :table AND column_name = :column"
)
_PG_COLLATION = text("SELECT collname FROM pg_collation WHERE collname = :collation AND NOT collisdeterministic")


class _NotComparable(Exception):
    """The values of a column have no order in common with those of others; the message is the reason."""


def _as_string(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    return str(UUID(bytes=value)) if len(value) == 16 else value.hex()


@dataclass(frozen=True, eq=False)
class _Values:
    """A column of a table in one database. Values are ordered as numbers, or byte by byte."""

    member: _Member
    table: str
    schema: str | None
    column: str
    type_: TypeEngine[Any]

    @property
    def python_type(self) -> type | None:
        """The values are compared as these; ``None`` for types that each database orders in its own way."""
        if isinstance(self.type_, (Integer, String)):
            return int if isinstance(self.type_, Integer) else str
        # a UUID is its 16 bytes, however it is stored
        return bytes if isinstance(self.type_, (BINARY, VARBINARY, LargeBinary, Uuid)) else None

    def bounds(self) -> tuple[Any, Any] | None:
        """Return the smallest and the largest value, which an index finds; ``None`` if there is none.

        :raises _NotComparable: if the collation ignores case, or a value is not of the type of the column.
        """
        if (collation := self._collation_ignoring_case()) is not None:
            raise _NotComparable(
                f"the collation {collation} of {self.table}.{self.column} in {self.member.name} does not distinguish "
                f"upper case from lower case"
            )
        bounds = [
            self._canonical(value)
            for order in (self._order.asc(), self._order.desc())
            for value in self.member.connection.execute(self._query.order_by(order).limit(1)).scalars()
        ]
        return (bounds[0], bounds[1]) if bounds else None

    def read(self, lower: Any, upper: Any) -> Iterator[tuple[Any, str]]:
        """Yield each value once, with the name of the database; of integers, those from *lower* to *upper*.

        :raises _NotComparable: if they do not come in order.
        """
        query = self._query.order_by(self._order)
        if self.python_type is int:
            query = query.where(self._column.between(lower, upper))
        streaming = self.member.connection.execution_options(stream_results=True, yield_per=_AT_ONCE)
        with closing(streaming.execute(query)) as result:
            last: Any = None
            for value in map(self._canonical, result.scalars()):
                if last is None or last < value:
                    yield value, self.member.name
                elif value != last:
                    raise _NotComparable(
                        f"{self.member.name} does not send {self.table}.{self.column} byte by byte in order: "
                        f"{_as_string(value)!r} came after {_as_string(last)!r}"
                    )
                last = value

    @property
    def _column(self) -> Any:
        return column(self.column, self.type_)

    @property
    def _query(self) -> Any:
        return select(self._column).select_from(table(self.table, schema=self.schema)).where(self._column.is_not(None))

    @property
    def _order(self) -> Any:
        """The expression by which the database sorts as Python does."""
        collation = getattr(self.type_, "collation", None)
        dialect = self.member.connection.dialect.name
        if isinstance(self.type_, Uuid) and dialect in _MYSQL:
            return cast(self._column, String)  # MariaDB sorts UUIDs by their last group
        if self.python_type is not str:
            return self._column
        if dialect == "sqlite":
            return self._column.collate("BINARY")
        if dialect == "postgresql":
            return self._column if collation in _BYTEWISE else self._column.collate("C")
        return self._column if str(collation).endswith("_bin") else cast(self._column, LargeBinary)

    def _collation_ignoring_case(self) -> str | None:
        connection, collation = self.member.connection, getattr(self.type_, "collation", None)
        if self.python_type is str and connection.dialect.name in _MYSQL:
            # reflection has a collation only if it is not that of the table
            names = {"schema": self.schema, "table": self.table, "column": self.column}
            collation = str(connection.scalar(_MYSQL_COLLATION, names))
            return collation if "ci" in collation.lower().split("_") else None
        if self.python_type is str and connection.dialect.name == "postgresql":
            if type(self.type_).__name__ == "CITEXT":
                return "citext"
            return collation and connection.scalar(_PG_COLLATION, {"collation": collation})
        return None

    def _canonical(self, value: Any) -> Any:
        if isinstance(value, UUID):
            return value.bytes
        if isinstance(value, bytearray):
            return bytes(value)
        if self.python_type is None or not isinstance(value, self.python_type):
            raise _NotComparable(
                f"{self.member.name} has {safe_repr(value)} in {self.table}.{self.column}, which is {self.type_!r}"
            )
        if isinstance(value, str) and isinstance(self.type_, CHAR):
            return value.rstrip(" ")  # PostgreSQL sends the padding, MySQL and MariaDB do not
        return value
