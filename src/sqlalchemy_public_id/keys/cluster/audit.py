"""Find problems in the rows of a table with cluster keys, and in its counter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import Connection, Inspector, column, func, not_, select, table

from sqlalchemy_public_id.dialects import KeyCounter, key_counter_of
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.keys.cluster.catalog import read_config, read_counter, read_key_range, read_upcoming
from sqlalchemy_public_id.keys.cluster.ddl import CONFIG
from sqlalchemy_public_id.keys.ranges import LAST_CLUSTER, SEQUENCE_BITS, Range, range_of

Clusters: TypeAlias = Mapping[str, "int | Range"]
"""Table → the number of its cluster, or the range of its keys."""

_HALF_USED = 0.5
_NEARLY_USED_UP = 0.9


class KeyProblem(NamedTuple):
    """The contents of a :class:`~sqlalchemy_public_id.audit.Finding`, without its table."""

    column: str
    problem: Literal["key-range-nearly-full", "key-counter-outside", "keys-outside", "cluster-unknown"]
    severity: Literal["warning", "error"]
    message: str
    facts: dict[str, Any]


def cluster_problems(
    connection: Connection,
    inspector: Inspector,
    name: str,
    schema: str | None,
    clusters: Clusters,
    key: str | None,
    *,
    is_sorted: bool,
) -> list[KeyProblem] | None:
    """Return the problems of the keys of the table *name*; ``None`` if no range limits them.

    PostgreSQL shows the limits of a sequence. All databases but SQLite show the counter of ``strategy="function"``, and
    a trigger of ``enforce_range=True`` contains its range. An ``AUTO_INCREMENT`` without such a trigger has to be in
    *clusters*.

    :param key: the column of the primary key that is counted, or None.
    :param is_sorted: False if no index begins with it: rows are not read then, because that would read all of them.
    """
    if key is None:
        if name in clusters:
            raise ConfigurationError(f"clusters names {name!r}, whose primary key has no column with a counter")
        return None
    told = _range_in(clusters, name)
    by_function = read_counter(connection, name, schema, key) is not None
    shown = read_key_range(connection, name, schema, key)
    if by_function:
        shown = read_config(connection, inspector, schema)
        if shown is None:
            message = (
                f"the keys of {name} contain the cluster in {CONFIG}, which does not have one row with a "
                f"number from 0 to {LAST_CLUSTER}, so every INSERT fails: INSERT INTO {CONFIG} (cluster) VALUES (10)"
            )
            return [KeyProblem(key, "cluster-unknown", "error", message, {"config": CONFIG})]
    keys = told or shown
    if keys is None:
        return None
    found = list(problems_of(connection, name, schema, key, keys, by_function=by_function)) if is_sorted else []
    if not any(each.problem == "key-counter-outside" for each in found):
        found += _strange_counter(connection, name, schema, key, keys, shown, by_function)
    return found


def _strange_counter(
    connection: Connection, name: str, schema: str | None, key: str, keys: Range, shown: Range | None, by_function: bool
) -> Iterator[KeyProblem]:
    """Yield the problem of a counter that generates other keys than *keys*, or of triggers that accept others."""
    has_triggers = key_counter_of(connection.dialect) is not KeyCounter.SEQUENCE and not by_function
    upcoming = None if by_function else read_upcoming(connection, name, schema, key)
    remedy = f"run op.set_cluster({name!r})"
    if upcoming is not None and not upcoming.stays_in(keys):
        state = f"the counter of {name} {upcoming}"
    elif shown in (None, keys) or not (has_triggers or by_function):
        return
    elif by_function:
        state, remedy = f"{CONFIG} has the {_in_words(shown)}", f"update {CONFIG}"
    else:
        state = f"the triggers of {name} accept the keys of {_in_words(shown)}"
    message = (
        f"{state}, but its keys should be those of {_in_words(keys)}: a copy of a database goes on counting for the "
        f"original, so that both generate the same keys; {remedy}"
    )
    facts = {"start": keys.start, "last": keys.last, "cluster": keys.cluster, "upcoming": upcoming and upcoming.first}
    yield KeyProblem(key, "key-counter-outside", "error", message, facts)


def _in_words(keys: Range) -> str:
    return f"the range {keys.start} to {keys.last}" if keys.cluster is None else f"cluster {keys.cluster}"


def problems_of(
    connection: Connection, name: str, schema: str | None, key: str, keys: Range, *, by_function: bool = False
) -> Iterator[KeyProblem]:
    """Yield the problems of the rows whose *key* should be within *keys*. Reads only the ends of the index."""
    column_, cluster = table(name, column(key), schema=schema).c[key], keys.cluster
    range_name = _in_words(keys)
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
