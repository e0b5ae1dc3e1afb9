"""The audit of cluster keys and ranges of keys: the used share of a range, and keys outside of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import ColumnClause, Connection, Inspector, column, func, not_, select, table

from sqlalchemy_public_id.errors import ConfigurationError, safe_repr
from sqlalchemy_public_id.keys.cluster.catalog import read_counter, read_key_range
from sqlalchemy_public_id.keys.cluster.ddl import CONFIG
from sqlalchemy_public_id.keys.ranges import LAST_CLUSTER, SEQUENCE_BITS, Range, range_of
from sqlalchemy_public_id.migrating.table import columns_of, primary_key_of

Clusters: TypeAlias = Mapping[str, "int | Range"]
"""Table → the number of its cluster, or the range of its keys."""

_HALF_USED = 0.5
_NEARLY_USED_UP = 0.9


class KeyProblem(NamedTuple):
    """What a :class:`~sqlalchemy_public_id.audit.Finding` says after its table."""

    column: str
    problem: Literal["key-range-nearly-full", "key-counter-outside", "keys-outside", "cluster-unknown"]
    severity: Literal["warning", "error"]
    message: str
    facts: dict[str, Any]


def cluster_problems(
    connection: Connection, inspector: Inspector, name: str, schema: str | None, clusters: Clusters
) -> list[KeyProblem] | None:
    """Return the problems of the keys of the table *name*; ``None`` if no range limits them.

    PostgreSQL shows the limits of a sequence. All databases but SQLite show the default or trigger of
    ``strategy="function"``, and a trigger of ``enforce_range=True`` has its range. An ``AUTO_INCREMENT`` without one
    has to be in *clusters*. Only the ends of the range are read, and of its index.
    """
    primary_key = primary_key_of(inspector, name, schema)
    if len(primary_key) != 1:
        if name in clusters:
            raise ConfigurationError(f"clusters names {name!r}, whose primary key is not one column")
        return None
    key, keys = primary_key[0], _range_in(clusters, name)
    own_counter = connection.dialect.name == "postgresql"  # others continue from the largest key of the table
    if read_counter(connection, name, schema, key) is not None:
        of_config, own_counter = _of_config(connection, inspector, schema), True
        if of_config is None:
            message = (
                f"the keys of {name} are those of the cluster in {CONFIG}, which does not have one row with a "
                f"number from 0 to {LAST_CLUSTER}, so every INSERT fails: INSERT INTO {CONFIG} (cluster) VALUES (10)"
            )
            return [KeyProblem(key, "cluster-unknown", "error", message, {"config": CONFIG})]
        keys = keys or of_config
    keys = keys or read_key_range(connection, name, schema, key)
    if keys is None:
        return None
    return list(_of_range(connection, table(name, column(key), schema=schema).c[key], keys, own_counter))


def _of_range(connection: Connection, key: ColumnClause[Any], keys: Range, own_counter: bool) -> Iterator[KeyProblem]:
    cluster, name, dialect = keys.cluster, key.name, connection.dialect.name
    range_name = f"the range {keys.start} to {keys.last}" if cluster is None else f"cluster {cluster}"
    facts = {"start": keys.start, "last": keys.last, "cluster": cluster}
    inside = key.between(keys.start, keys.last)
    last = connection.scalar(select(func.max(key)).where(inside))
    used = 0.0 if last is None else (last - keys.start + 1) / len(keys)
    if used >= _HALF_USED:
        then = "give it another range" if cluster is None else "give the database another cluster"
        message = f"the keys of {range_name} are {used:.0%} used up, at {last}; {then} before every INSERT fails"
        used_up = {**facts, "value": last, "used": round(used, 4)}
        severity: Literal["warning", "error"] = "error" if used >= _NEARLY_USED_UP else "warning"
        yield KeyProblem(name, "key-range-nearly-full", severity, message, used_up)
    largest = connection.scalar(select(func.max(key)))
    if largest is not None and largest > keys.last and not own_counter:
        message = (
            f"key {largest} is above the keys of {range_name}, and {dialect} counts on from the largest key: new keys "
            f'will be outside of the range; use strategy="function" for tables with rows of others'
        )
        yield KeyProblem(name, "key-counter-outside", "error", message, {**facts, "value": largest})
    # keys of other clusters come from a merge; cluster 0 makes keys only if it is this one
    strange = not_(inside) if cluster is None else key < min(1 << SEQUENCE_BITS, keys.start)
    outside = connection.scalar(select(func.min(key)).where(strange))
    if outside is not None:
        origin = "from before there were clusters, or after a TRUNCATE; other databases may have the same keys"
        if cluster is None:
            origin = "of other databases after a merge, or from before there were ranges, which others may have as well"
        message = f"there are keys outside of {range_name}, such as {outside}: {origin}"
        yield KeyProblem(name, "keys-outside", "warning", message, {**facts, "example": outside})


def _range_in(clusters: Mapping[str, Any], name: str) -> Range | None:
    value = clusters.get(name)
    if value is None or isinstance(value, Range):
        return value
    try:
        return range_of(value)
    except ValueError:
        raise ConfigurationError(
            f"clusters[{name!r}] is {safe_repr(value)}, expected the number of a cluster, or a range"
        ) from None


def _of_config(connection: Connection, inspector: Inspector, schema: str | None) -> Range | None:
    """Return the range of the cluster in the config table; ``None`` if that has no valid row."""
    if not inspector.has_table(CONFIG, schema=schema) or "cluster" not in columns_of(inspector, CONFIG, schema):
        return None
    numbers = connection.scalars(select(table(CONFIG, column("cluster"), schema=schema).c.cluster)).all()
    try:
        (number,) = numbers
        return range_of(number)
    except ValueError:  # no row, several, or one with a number that is none
        return None
