"""Whether the rows of several databases can be put into one: no key and no public id may be there twice.

>>> from sqlalchemy_public_id.merging import merge_check
>>> report = merge_check({"north": engine, "south": another_engine})  # doctest: +SKIP
>>> report.is_proven  # doctest: +SKIP
True

Ranges of keys that lie apart are proof enough, and two index lookups a database tell them. Otherwise the values of all
databases are read in order and compared side by side, so that the memory that it takes does not grow with the tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, Engine, Inspector, create_engine, inspect
from sqlalchemy.engine import URL

from sqlalchemy_public_id.dialects.catalog import columns_of, primary_key_of
from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.merging.members import named_databases
from sqlalchemy_public_id.merging.report import Clash, Comparison, Proof, Report, TableReport
from sqlalchemy_public_id.merging.streams import Kind, NotComparable, Stream, kind_of, shared, shown_value

__all__ = ["Clash", "Comparison", "Proof", "Report", "TableReport", "merge_check"]

_NOT_MERGED = {"alembic_version"}
"""Tables that are about a database, and not in it."""


def merge_check(
    databases: Sequence[str | URL | Engine] | Mapping[str, str | URL | Engine],
    *,
    tables: Collection[str] | None = None,
    schema: str | None = None,
    column: str = "public_id",
    examples: int = 10,
) -> Report:
    """Compare the keys and public ids of *databases*, two or more, and change nothing.

    Ids are compared as they are stored, a UUID of PostgreSQL with 16 bytes of MySQL or SQLite. It tells what was there
    while it looked: stop the writers, or look again after the last one.

    :param databases: URLs or engines; name → URL or engine, to have them called so in the report.
    :param tables: which tables; all but that of Alembic, where nothing is said.
    :param schema: where to look, instead of the usual schema of each connection.
    :param column: the column of public ids.
    :param examples: how many clashing values of a column are shown; all of them are counted.
    :raises ConfigurationError: for fewer than two databases, one that is there twice, an asynchronous driver, and
        where none of them has one of *tables*.
    """
    named = named_databases(databases)
    if isinstance(tables, (str, bytes)):
        raise ConfigurationError(f"tables is {shown(tables)}, expected a list of names: [{shown(tables)}]")
    if not isinstance(examples, int) or isinstance(examples, bool) or examples < 0:
        raise ConfigurationError(f"examples is {shown(examples)}, expected a whole number, 0 or more")
    with ExitStack() as stack:
        members: list[_Database] = []
        for name, each in named.items():
            engine = each if isinstance(each, Engine) else create_engine(each)
            if engine is not each:
                stack.callback(engine.dispose)
            if engine.dialect.is_async:
                raise ConfigurationError(
                    f"{name} has the asynchronous driver {engine.driver}, expected another one: nothing is awaited here"
                )
            connection = stack.enter_context(engine.connect())
            inspector = inspect(connection)
            members.append(_Database(name, connection, inspector, set(inspector.get_table_names(schema=schema))))
        there = set[str]().union(*(member.tables for member in members))
        unknown = sorted(set(tables or ()) - there)
        if unknown:
            raise ConfigurationError(
                f"no database has a table {', '.join(map(repr, unknown))}; there are: {', '.join(sorted(there))}"
            )
        looked_at = sorted(there - _NOT_MERGED if tables is None else set(tables))
        found = tuple(_compare_table(name, members, schema, column, examples) for name in looked_at)
    return Report(tuple(named), found)


# --- inside


@dataclass(frozen=True)
class _Database:
    name: str
    connection: Connection
    inspector: Inspector
    tables: set[str]


def _compare_table(
    name: str, members: Sequence[_Database], schema: str | None, public_id: str, examples: int
) -> TableReport:
    keys: list[Stream] = []
    ids: list[Stream] = []
    primary: set[tuple[str, ...]] = set()
    having = [member for member in members if name in member.tables]
    for member in having:
        columns = columns_of(member.inspector, name, schema)
        types = {column: found["type"] for column, found in columns.items()}
        key = tuple(primary_key_of(member.inspector, name, schema))
        primary.add(key)
        if len(key) == 1:
            keys.append(Stream(member.connection, member.name, name, schema, key[0], types[key[0]]))
        if public_id in types:
            ids.append(Stream(member.connection, member.name, name, schema, public_id, types[public_id]))
    return TableReport(
        name=name,
        missing=tuple(member.name for member in members if name not in member.tables),
        key=_compare_keys(having, primary, keys, examples),
        public_id=_compare(public_id, ids, examples),
    )


def _compare_keys(
    having: Sequence[_Database], primary: set[tuple[str, ...]], keys: Sequence[Stream], examples: int
) -> Comparison:
    names = ", ".join(sorted({name for key in primary for name in key}))
    if len(having) < 2:
        return Comparison(names, "nothing to compare", f"{having[0].name} alone has the table")
    if len(primary) > 1:
        return Comparison(names, "not comparable", "the databases have different keys")
    if not names:
        return Comparison(names, "nothing to compare", "there is no key")
    if not keys:
        return Comparison(names, "not comparable", "the key has several columns")
    return _compare(names, keys, examples)


def _compare(column: str, streams: Sequence[Stream], examples: int) -> Comparison:
    kinds: set[Kind | None] = {kind_of(stream.type) for stream in streams}
    if len(streams) < 2:
        who = f"{streams[0].database} alone" if streams else "no database"
        return Comparison(column, "nothing to compare", f"{who} has the column")
    if len(kinds) > 1 or None in kinds:
        types = ", ".join(f"{stream.type!r} in {stream.database}" for stream in streams)
        return Comparison(column, "not comparable", f"the types have no order in common: {types}")
    try:
        return _compare_values(column, streams, examples)
    except NotComparable as error:
        return Comparison(column, "not comparable", str(error))


def _compare_values(column: str, streams: Sequence[Stream], examples: int) -> Comparison:
    found: list[tuple[Stream, tuple[Any, Any]]] = []
    for stream in streams:
        ends = stream.ends()
        if ends is not None:
            found.append((stream, ends))
    if len(found) < 2:
        return Comparison(column, "nothing to compare", "no two databases have rows")
    in_order = sorted(ends for _, ends in found)
    if all(before[1] < after[0] for before, after in pairwise(in_order)):
        return Comparison(column, "ranges")
    compared = clashes = 0
    shown_first: list[Clash] = []
    for value, members, databases in shared([stream for stream, _ in found], [ends for _, ends in found]):
        compared += members
        if members > 1:
            clashes += 1
            if len(shown_first) < examples:
                shown_first.append(Clash(shown_value(value), databases))
    return Comparison(column, "compared", "", compared, clashes, tuple(shown_first))
