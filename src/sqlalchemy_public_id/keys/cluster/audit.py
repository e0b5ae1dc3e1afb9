"""Read the counter and the range of a cluster key from the database, and find problems in its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import Connection, Inspector, column, func, not_, select, table, text

from sqlalchemy_public_id.dialects import KeyCounter, key_counter_of
from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.keys.cluster.ddl import CONFIG, PREFIX
from sqlalchemy_public_id.keys.ranges import LAST_CLUSTER, LAST_KEY, SEQUENCE_BITS, Range, range_of
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import live_table
from sqlalchemy_public_id.migrations.table import columns_of
from sqlalchemy_public_id.naming import cluster_name

Clusters: TypeAlias = Mapping[str, "int | Range"]
"""Table → the number of its cluster, or the range of its keys."""

_HALF_USED = 0.5
_NEARLY_USED_UP = 0.9
_BETWEEN = re.compile(r"NOT BETWEEN (\d+) AND (\d+)")
_NAME = r"""(?:`(?:[^`]|``)+`|"(?:[^"]|"")+"|[^\s`".()]+)"""
_DRAW = re.compile(rf"INSERT INTO (?:{_NAME}\.)?({_NAME}) \(\) VALUES")
"""The statement of the library's trigger that takes a number from the counter; the group is the counter's name."""


class KeyProblem(NamedTuple):
    """The contents of a :class:`~sqlalchemy_public_id.audit.Finding`, without its table."""

    column: str
    problem: Literal["key-range-nearly-full", "key-counter-outside", "keys-outside", "cluster-unknown"]
    severity: Literal["warning", "error"]
    message: str
    facts: dict[str, Any]


def cluster_problems(
    connection: Connection, inspector: Inspector, name: str, schema: str | None, clusters: Clusters
) -> list[KeyProblem] | None:
    """Return the problems of the keys of the table *name*; ``None`` if no range limits them.

    PostgreSQL shows the limits of a sequence. All databases but SQLite show the counter of ``strategy="function"``, and
    a trigger of ``enforce_range=True`` contains its range. An ``AUTO_INCREMENT`` without such a trigger has to be in
    *clusters*.
    """
    primary_key = live_table(connection, PublicIdColumn.of(name, schema=schema)).read_primary_key(inspector)
    if len(primary_key) != 1:
        if name in clusters:
            raise ConfigurationError(f"clusters names {name!r}, whose primary key is not one column")
        return None
    key, keys = primary_key[0], _range_in(clusters, name)
    by_function = read_counter(connection, name, schema, key) is not None
    if by_function:
        of_config = _of_config(connection, inspector, schema)
        if of_config is None:
            message = (
                f"the keys of {name} contain the cluster in {CONFIG}, which does not have one row with a "
                f"number from 0 to {LAST_CLUSTER}, so every INSERT fails: INSERT INTO {CONFIG} (cluster) VALUES (10)"
            )
            return [KeyProblem(key, "cluster-unknown", "error", message, {"config": CONFIG})]
        keys = keys or of_config
    keys = keys or read_key_range(connection, name, schema, key)
    return None if keys is None else list(problems_of(connection, name, schema, key, keys, by_function=by_function))


def problems_of(
    connection: Connection, name: str, schema: str | None, key: str, keys: Range, *, by_function: bool = False
) -> Iterator[KeyProblem]:
    """Yield the problems of the rows whose *key* should be within *keys*. Reads only the ends of the index."""
    column_, cluster = table(name, column(key), schema=schema).c[key], keys.cluster
    range_name = f"the range {keys.start} to {keys.last}" if cluster is None else f"cluster {cluster}"
    facts = {"start": keys.start, "last": keys.last, "cluster": cluster}
    inside = column_.between(keys.start, keys.last)
    last = connection.scalar(select(func.max(column_)).where(inside))
    used = 0.0 if last is None else (last - keys.start + 1) / (keys.stop - keys.start)
    if used >= _HALF_USED:
        then = "give it another range" if cluster is None else "give the database another cluster"
        message = f"the keys of {range_name} are {used:.0%} used up, at {last}; {then} before every INSERT fails"
        used_up = {**facts, "value": last, "used": round(used, 4)}
        severity: Literal["warning", "error"] = "error" if used >= _NEARLY_USED_UP else "warning"
        yield KeyProblem(key, "key-range-nearly-full", severity, message, used_up)
    largest = connection.scalar(select(func.max(column_)))
    follows_rows = not by_function and key_counter_of(connection.dialect) is not KeyCounter.SEQUENCE
    if largest is not None and largest > keys.last and follows_rows:
        counts_on = f"{connection.dialect.name} counts on from the largest key"
        message = (
            f"key {largest} is above the keys of {range_name}, and {counts_on}: new keys will be outside of the range; "
            f'except on SQLite, use strategy="function" for rows of several clusters'
        )
        yield KeyProblem(key, "key-counter-outside", "error", message, {**facts, "value": largest})
    # keys of other clusters come from a merge; keys of cluster 0 are valid only if this is cluster 0
    strange = not_(inside) if cluster is None else column_ < min(1 << SEQUENCE_BITS, keys.start)
    outside = connection.scalar(select(func.min(column_)).where(strange))
    if outside is not None:
        message = (
            f"there are keys outside of {range_name}, such as {outside}, from before the cluster was set, after a "
            f"TRUNCATE, or from a merge: other databases may have these keys, too"
        )
        yield KeyProblem(key, "keys-outside", "warning", message, {**facts, "example": outside})


def _range_in(clusters: Mapping[str, Any], name: str) -> Range | None:
    value = clusters.get(name)
    try:
        return value if value is None or isinstance(value, Range) else range_of(value)
    except ValueError as error:
        raise ConfigurationError(f"clusters[{name!r}]: {error}") from None


def _of_config(connection: Connection, inspector: Inspector, schema: str | None) -> Range | None:
    """Return the range of the cluster in the config table; ``None`` if that has no valid row."""
    if not inspector.has_table(CONFIG, schema=schema) or "cluster" not in columns_of(inspector, CONFIG, schema):
        return None
    numbers = connection.scalars(select(table(CONFIG, column("cluster"), schema=schema).c.cluster)).all()
    try:
        (number,) = numbers
        return range_of(number)
    except ValueError:  # no row, several rows, or an invalid number
        return None


# --- the catalogs


def read_counter(connection: Connection, name: str, schema: str | None, key: str) -> str | None:
    """Return the name of the counter of ``strategy="function"`` that the table *name* has, or ``None``."""
    if key_counter_of(connection.dialect) is KeyCounter.SEQUENCE:
        counter = str(_sequence(connection, name, schema, key)[0])
    else:
        drawn = _DRAW.search(_trigger(connection, cluster_name("key", name), schema))
        quote, counter = ("", "") if drawn is None else (drawn[1][0], drawn[1])
        counter = counter[1:-1].replace(quote * 2, quote) if quote in {'"', "`"} else counter
    return counter if counter.startswith(PREFIX) else None


def read_key_range(connection: Connection, name: str, schema: str | None, key: str) -> Range | None:
    """Return the range of a sequence of PostgreSQL, or elsewhere of a trigger; ``None`` if there is no range."""
    if key_counter_of(connection.dialect) is not KeyCounter.SEQUENCE:
        match = _BETWEEN.search(_trigger(connection, cluster_name("range", name), schema))
        return None if match is None else Range(int(match[1]), int(match[2]) + 1)
    _, first, last = _sequence(connection, name, schema, key)
    is_default = first == 1 and last in {2**31 - 1, 2**15 - 1, LAST_KEY}  # PostgreSQL's defaults
    return None if is_default or first < 1 else Range(first, last + 1)


def _sequence(connection: Connection, name: str, schema: str | None, key: str) -> tuple[str, int, int]:
    query = (
        "SELECT relname, seqmin, seqmax FROM pg_catalog.pg_sequence JOIN pg_catalog.pg_class ON oid = seqrelid "
        "WHERE oid = CAST(CAST(pg_catalog.pg_get_serial_sequence(:name, :key) AS regclass) AS oid)"
    )
    names = {"name": quoted_table(name, schema, connection.dialect), "key": key}
    found = connection.execute(text(query), names).one_or_none()
    return ("", 1, LAST_KEY) if found is None else (found.relname, found.seqmin, found.seqmax)


def _trigger(connection: Connection, name: str, schema: str | None) -> str:
    """Return the body of the trigger *name*; an empty string if there is none."""
    dialect = connection.dialect
    if key_counter_of(dialect) is KeyCounter.SQLITE_SEQUENCE:
        query = f"SELECT sql FROM {quoted_table('sqlite_master', schema, dialect)} WHERE type = 'trigger' AND name = ?"
        return str(connection.exec_driver_sql(query, (name,)).scalar() or "")
    query = (
        "SELECT count(*) FROM information_schema.TRIGGERS "
        "WHERE TRIGGER_SCHEMA = COALESCE(:schema, DATABASE()) AND TRIGGER_NAME = :name"
    )
    if not connection.scalar(text(query), {"name": name, "schema": schema}):
        return ""
    query = f"SHOW CREATE TRIGGER {quoted_table(name, schema, dialect)}"  # information_schema garbles a backquote
    return str(connection.exec_driver_sql(query, execution_options={"no_parameters": True}).one()[2])
