"""Cluster keys and ranges of keys: how much of a range is used up, and which keys lie outside of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Connection, Inspector, column, func, not_, select, table, text

from sqlalchemy_public_id.audit.report import Finding, Severity
from sqlalchemy_public_id.dialects.catalog import primary_key_of
from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.keys.cluster.ddl import CONFIG, FUNCTION
from sqlalchemy_public_id.keys.ranges import LAST_CLUSTER, LAST_KEY, SEQUENCE_BITS, Range, range_of
from sqlalchemy_public_id.naming import cluster_name

__all__ = ["Clusters", "Counted", "counted", "findings", "limits", "made_by"]

Clusters: TypeAlias = Mapping[str, "int | Range"]
"""Table → the number of its cluster, or the range of its keys."""

_HALF_USED = 0.5
_NEARLY_USED_UP = 0.9
_BETWEEN = re.compile(r"NOT BETWEEN (\d+) AND (\d+)")


@dataclass(frozen=True)
class Counted:
    """A key that counts within a range."""

    column: str
    keys: Range | None
    """``None`` where they look up their cluster, and there is none."""
    own_counter: bool
    """Whether its counter does not look at the keys that are there."""


def counted(
    connection: Connection, inspector: Inspector, name: str, schema: str | None, clusters: Clusters
) -> Counted | None:
    """What is known of the key of the table *name*; ``None`` where its keys are those of no cluster and no range.

    PostgreSQL tells the limits of a sequence, and all but SQLite what ``strategy="function"`` made; a trigger of
    ``enforce_range=True`` tells its range. Of an ``AUTO_INCREMENT`` without one, *clusters* have to tell.
    """
    primary_key = primary_key_of(inspector, name, schema)
    if len(primary_key) != 1:
        if name in clusters:
            raise ConfigurationError(f"clusters names {name!r}, whose primary key is not one column")
        return None
    key = primary_key[0]
    postgresql = connection.dialect.name == "postgresql"
    looked_up = made_by(connection, name, schema, key) is not None
    keys = _given(name, clusters)
    if looked_up:
        told = _of_config(connection, inspector, schema)
        return Counted(key, told and (keys or told), own_counter=True)
    if keys is None:
        keys = limits(connection, name, schema, key)
    return None if keys is None else Counted(key, keys, postgresql or looked_up)


def findings(
    connection: Connection, full_name: str, name: str, schema: str | None, found: Counted
) -> Iterator[Finding]:
    """What is wrong with the keys of a table. Only the ends of the range, and of its index, are looked at."""
    rows = table(name, column(found.column), schema=schema)
    key, keys = rows.c[found.column], found.keys
    if keys is None:
        yield Finding(
            full_name,
            found.column,
            "cluster-unknown",
            "error",
            f"the keys of {full_name} are those of the cluster in {CONFIG}, which does not have one row with a number "
            f"from 0 to {LAST_CLUSTER}, so every INSERT fails: INSERT INTO {CONFIG} (cluster) VALUES (10)",
            {"config": CONFIG},
        )
        return
    cluster = keys.cluster
    inside = key.between(keys.start, keys.last)
    last = connection.scalar(select(func.max(key)).where(inside))
    whose = f"cluster {cluster}" if cluster is not None else f"the range {keys.start} to {keys.last}"
    used = 0.0 if last is None else (last - keys.start + 1) / len(keys)
    if used >= _HALF_USED:
        severity: Severity = "error" if used >= _NEARLY_USED_UP else "warning"
        facts = {"start": keys.start, "last": keys.last, "value": last, "used": round(used, 4)}
        then = "give the database another cluster" if cluster is not None else "give it another range"
        yield Finding(
            full_name,
            found.column,
            "key-range-nearly-full",
            severity,
            f"the keys of {whose} are {used:.0%} used up, at {last}; {then} before every INSERT fails",
            {**facts, "cluster": cluster},
        )
    largest = connection.scalar(select(func.max(key)))
    if largest is not None and largest > keys.last and not found.own_counter:
        yield Finding(
            full_name,
            found.column,
            "key-counter-outside",
            "error",
            f"there is a key behind those of {whose}, {largest}, and {connection.dialect.name} counts on from the "
            f'largest one: new keys would be those of others; use strategy="function" where rows of others are '
            f"brought in",
            {"start": keys.start, "last": keys.last, "value": largest, "cluster": cluster},
        )
    # keys of other clusters are what a merge brings; those of a cluster 0 that is not ours were made by nobody
    strange = key < min(1 << SEQUENCE_BITS, keys.start) if cluster is not None else not_(inside)
    outside = connection.scalar(select(func.min(key)).where(strange))
    if outside is not None:
        origin = "from before there were clusters, or after a TRUNCATE; other databases may have made the same ones"
        if cluster is None:
            origin = "of other databases after a merge, or from before there were ranges, which others may have as well"
        yield Finding(
            full_name,
            found.column,
            "keys-outside",
            "warning",
            f"there are keys outside of {whose}, such as {outside}: {origin}",
            {"start": keys.start, "last": keys.last, "example": outside, "cluster": cluster},
        )


def _given(name: str, clusters: Clusters) -> Range | None:
    given: object = clusters.get(name)
    if given is None or isinstance(given, Range):
        return given
    try:
        return range_of(given)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # it is looked at there
    except ValueError:
        raise ConfigurationError(
            f"clusters[{name!r}] is {shown(given)}, expected the number of a cluster, or a range"
        ) from None


def made_by(connection: Connection, name: str, schema: str | None, key: str) -> str | None:
    """What looks up the cluster of the table *name* for each key, in SQL; ``None`` where nothing does."""
    if connection.dialect.name == "postgresql":
        query = (
            "SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d JOIN pg_attribute a "
            "ON a.attrelid = d.adrelid AND a.attnum = d.adnum WHERE d.adrelid = to_regclass(:name) AND a.attname = :key"
        )
        facts = {"name": quoted_table(name, schema, connection.dialect), "key": key}
        default = connection.scalar(text(query), facts)
        return str(default) if default is not None and FUNCTION in default else None
    return _trigger(connection, cluster_name("key", name), schema)


def limits(connection: Connection, name: str, schema: str | None, key: str) -> Range | None:
    """The range that a sequence of PostgreSQL has, and elsewhere a trigger keeps; ``None`` where there is none."""
    if connection.dialect.name == "postgresql":
        return _of_sequence(connection, name, schema, key)
    return _of_guard(connection, name, schema)


def _of_config(connection: Connection, inspector: Inspector, schema: str | None) -> Range | None:
    """The range of the cluster that the database takes itself for; ``None`` where it takes itself for none."""
    if not inspector.has_table(CONFIG, schema=schema):
        return None
    if "cluster" not in {each["name"] for each in inspector.get_columns(CONFIG, schema=schema)}:
        return None
    numbers = connection.scalars(select(table(CONFIG, column("cluster"), schema=schema).c.cluster)).all()
    if len(numbers) != 1:
        return None
    try:
        return range_of(numbers[0])
    except ValueError:
        return None


def _of_sequence(connection: Connection, name: str, schema: str | None, key: str) -> Range | None:
    """The limits of the sequence of PostgreSQL, where somebody has set them."""
    quoted = quoted_table(name, schema, connection.dialect)
    query = "SELECT seqmin, seqmax FROM pg_sequence WHERE seqrelid = pg_get_serial_sequence(:name, :key)::regclass"
    found = connection.execute(text(query), {"name": quoted, "key": key}).one_or_none()
    if found is None or found.seqmin < 1:
        return None
    if found.seqmin == 1 and found.seqmax in {2**31 - 1, 2**15 - 1, LAST_KEY}:
        return None  # as PostgreSQL made it
    return Range(found.seqmin, found.seqmax + 1)


def _of_guard(connection: Connection, name: str, schema: str | None) -> Range | None:
    """The range that a trigger keeps."""
    found = _BETWEEN.search(_trigger(connection, cluster_name("range", name), schema) or "")
    return None if found is None else Range(int(found[1]), int(found[2]) + 1)


def _trigger(connection: Connection, name: str, schema: str | None) -> str | None:
    """What a trigger does, if there is one of this *name*."""
    found: Any = None
    if connection.dialect.name == "sqlite":
        master = quoted_table("sqlite_master", schema, connection.dialect)
        query = f"SELECT sql FROM {master} WHERE type = 'trigger' AND name = ?"
        found = connection.exec_driver_sql(query, (name,)).scalar()
    elif connection.dialect.name in {"mysql", "mariadb"}:
        query = (
            "SELECT ACTION_STATEMENT FROM information_schema.TRIGGERS "
            "WHERE TRIGGER_SCHEMA = COALESCE(:schema, DATABASE()) AND TRIGGER_NAME = :name"
        )
        found = connection.scalar(text(query), {"name": name, "schema": schema})
        if found is not None and "`" in found:  # which MySQL shows wrong if a name has one
            query = f"SHOW CREATE TRIGGER {quoted_table(name, schema, connection.dialect)}"
            found = connection.exec_driver_sql(query, execution_options={"no_parameters": True}).one()[2]
    return None if found is None else str(found)
