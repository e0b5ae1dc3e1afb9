"""Find counters that will generate what rows have already: of keys, of blocks of keys, and of ids that are counted.

Rows are read before the counter that they are compared with: a program that writes meanwhile takes numbers from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import Integer, func, select

from sqlalchemy_public_id.audit.report import Finding, Remedy, Severity
from sqlalchemy_public_id.audit.tables import AuditedTable
from sqlalchemy_public_id.columns import public_id_columns, public_id_type
from sqlalchemy_public_id.dialects import KeyCounter, key_counter_of
from sqlalchemy_public_id.dialects.quoting import literal, quoted_table
from sqlalchemy_public_id.keys.blocks.allocator import BlockAllocator
from sqlalchemy_public_id.keys.blocks.key import allocator_of
from sqlalchemy_public_id.keys.blocks.lease import COUNTERS, counter_table
from sqlalchemy_public_id.keys.cluster.catalog import (
    NextNumber,
    Unreadable,
    read_config,
    read_counter,
    read_key_range,
    read_next,
)
from sqlalchemy_public_id.keys.coprime.format import CoprimeKey
from sqlalchemy_public_id.keys.ranges import LAST_SEQUENCE, range_of

_SOON = 10_000
"""A key that is taken within so many numbers is an error; one that is farther away may be meant to be there."""


def counter_problems(table: AuditedTable) -> Iterator[Finding]:
    """Yield the counters of keys that are behind the rows of *table*, and those that were not compared with rows."""
    yield from _check_own_counter(table)
    yield from _check_blocks(table)
    yield from _list_others(table)


# --- IDENTITY and AUTO_INCREMENT


class _Upcoming(NamedTuple):
    """The keys that a table generates from now on."""

    first: int
    last: int
    counter: str
    """The sequence or the table that counts, as SQL writes it."""
    is_limited: bool
    """True for the range of a cluster, or another range: all keys in it are of this counter."""
    is_function: bool
    """True for ``strategy="function"``, whose counter does not contain the cluster."""


def _check_own_counter(table: AuditedTable) -> Iterator[Finding]:
    """Yield a finding if the counter of the key comes to keys that rows have, as after a partial restore.

    MySQL, MariaDB and SQLite keep the counter of a table above its rows; a separate counter they do not.
    """
    name = table.key
    if name is None or not isinstance(table.columns[name]["type"], Integer):
        return
    upcoming = _read_upcoming(table, name)
    if isinstance(upcoming, Unreadable):
        counter = upcoming.counter
        message = (
            f"the counter {counter} was not compared with the rows, because this role may not read it: "
            f"GRANT SELECT ON SEQUENCE {counter}, and USAGE on its schema"
        )
        yield Finding(table.full_name, name, "counter-not-compared", "info", message, {"counters": [counter]})
        return
    if upcoming is None:
        return
    if not table.is_key_sorted:
        message = (
            f"the counter of {name} was not compared with the rows, because no index begins with {name}, so that all "
            f"of them would be read"
        )
        facts: dict[str, Any] = {"counters": [upcoming.counter]}
        yield Finding(table.full_name, name, "counter-not-compared", "info", message, facts)
        return
    first, largest = _read_keys(table, name, upcoming.first, upcoming.last)
    if largest is not None:  # the rows may be new ones
        again = _read_upcoming(table, name)
        upcoming = again if isinstance(again, _Upcoming) else upcoming
        first, largest = _read_keys(table, name, upcoming.first, largest)
    if largest is None:
        return
    message = f"the counter of {name} continues at {upcoming.first}, but rows have keys from {first} to {largest}"
    severity: Severity = "error"
    remedy = None
    if upcoming.is_limited or first - upcoming.first < _SOON:
        message += ", so an INSERT will fail as a duplicate"
        remedy = _raise_counter(table, name, upcoming, largest)
    else:
        severity = "warning"
        message += (
            ", at which an INSERT will fail as a duplicate; if another database generates these keys, name the range "
            "or the cluster of this one: clusters=, or --cluster"
        )
    facts = {"upcoming": upcoming.first, "first": first, "value": largest}
    yield Finding(table.full_name, name, "key-counter-behind", severity, message, facts, remedy)


def _read_keys(table: AuditedTable, name: str, first: int, last: int) -> Any:
    """Return the smallest and the largest key from *first* to *last*, the ends of an index; None if there is no key."""
    key = table.source.c[name]
    return table.connection.execute(select(func.min(key), func.max(key)).where(key.between(first, last))).one()


def _read_upcoming(table: AuditedTable, name: str) -> _Upcoming | Unreadable | None:
    connection, place = table.connection, (table.name, table.schema)
    is_sequence = key_counter_of(table.dialect) is KeyCounter.SEQUENCE
    function = read_counter(connection, *place, name)
    if function is None and not is_sequence:
        return None
    if function is not None and not is_sequence:
        place, name = (function, table.schema), "number"
    found = read_next(connection, *place, name)
    if not isinstance(found, NextNumber):
        return found
    if function is not None:
        keys = read_config(connection, table.inspector, table.schema)
        if keys is None:
            return None
        first = keys.start - 1 + found.number
        return _Upcoming(first, keys.last, found.counter, is_limited=True, is_function=True)
    told = table.all_clusters.get(table.name)
    keys = range_of(told) if isinstance(told, int) else told or read_key_range(connection, *place, name)
    last = found.last if keys is None else min(found.last, keys.last)
    return _Upcoming(found.number, last, found.counter, is_limited=keys is not None, is_function=False)


def _raise_counter(table: AuditedTable, name: str, upcoming: _Upcoming, largest: int) -> Remedy:
    """Return the statements that raise the counter above the *largest* key, and never move it back."""
    source, counter = quoted_table(table.name, table.schema, table.dialect), upcoming.counter
    if key_counter_of(table.dialect) is KeyCounter.SEQUENCE:
        key = table.dialect.identifier_preparer.quote(name)
        taken = f"max({key} & {LAST_SEQUENCE})" if upcoming.is_function else f"max({key})"
        between = f"{key} BETWEEN {upcoming.first} AND {upcoming.last}"
        value = f"greatest({taken}, (SELECT last_value FROM {counter}))"
        sequence = literal(counter, table.dialect)
        return Remedy("sql", (f"SELECT pg_catalog.setval({sequence}, {value}) FROM {source} WHERE {between};",))
    number = largest & LAST_SEQUENCE
    lines = f"INSERT INTO {counter} (number) VALUES ({number});", f"DELETE FROM {counter} WHERE number = {number};"
    return Remedy("sql", lines)


# --- the table of counters


class _Counted(NamedTuple):
    """A counter that models name."""

    table: str
    schema: str | None
    name: str


def _check_blocks(table: AuditedTable) -> Iterator[Finding]:
    """Yield a finding if a key from blocks, which the models declare, has a counter below keys of its table."""
    for key in (each for model in table.declared for each in model.primary_key):
        allocator = allocator_of(key)
        if allocator is None:
            continue
        counter = _Counted(allocator.table.name, allocator.table.schema or table.schema, allocator.name)
        if not _has_counters(table, counter):
            yield _elsewhere(table, key.name, counter)
            continue
        largest = table.connection.scalar(select(func.max(table.source.c[key.name])))
        upcoming = max(_read_block(table, counter), allocator.start)
        if largest is not None and largest >= upcoming:
            message = (
                f"the counter {counter.name!r} continues at {upcoming}, but the table has keys up to {largest}, so an "
                f"INSERT will fail as a duplicate: write BlockAllocator(engine, {counter.name!r}, start={largest + 1})"
            )
            facts = {"counter": counter.name, "upcoming": upcoming, "value": largest}
            yield Finding(table.full_name, key.name, "key-counter-behind", "error", message, facts)


def check_counted_ids(table: AuditedTable) -> Iterator[Finding]:
    """Yield a finding if ids have numbers that their counter has not issued: it is behind, or the step is another."""
    for form in () if table.format is None else table.format.forms:
        if not isinstance(form, CoprimeKey):
            continue
        counter = _counter_of(form, table.schema)
        if not _has_counters(table, counter):
            yield _elsewhere(table, table.column, counter)
            continue
        numbers = [form.number(each) for each in table.ids if form.is_valid(each)]
        upcoming = _read_block(table, counter)
        strange = [number for number in numbers if number >= upcoming]
        if strange:
            largest = max(strange)
            message = (
                f"{len(strange)} of {len(numbers)} ids that were read have numbers from {min(strange)} to {largest}, "
                f"but the counter {form.name!r} continues at {upcoming}, so new ids may repeat old ones: either "
                f"{form.step!r} is another order than theirs, which has to be restored, or the counter went back; then "
                f"write start={largest + 1}"
            )
            facts: dict[str, Any] = {"counter": form.name, "upcoming": upcoming, "value": largest, "ids": len(strange)}
            yield table.finding("id-counter-behind", "error", message, **facts)


def _list_others(table: AuditedTable) -> Iterator[Finding]:
    """Yield a finding for the counters that no model names, if *table* is one of counters: nobody knows their rows."""
    named = [*_named(table)]
    if table.name not in {COUNTERS, *(each.table for each in named)} or not {"name", "next"} <= {*table.columns}:
        return
    schemas = {None, table.schema or table.inspector.default_schema_name}  # None is that of the audit
    known = {each.name for each in named if each.table == table.name and each.schema in schemas}
    names = table.source.c.name
    counters = [each for each in table.connection.scalars(select(names).order_by(names)) if each == each.strip()]
    others = [each for each in counters if each not in known]  # the other rows are orders of counted ids
    if others:
        why = "no model names them" if table.settings.models else "no models were passed: models=, or --models"
        message = f"counters were not compared with keys or ids, because {why}: {', '.join(map(repr, others))}"
        yield Finding(table.full_name, "name", "counter-not-compared", "info", message, {"counters": others})


def _named(table: AuditedTable) -> Iterator[_Counted]:
    """Yield all counters of keys and of ids that the models name."""
    for model in (each for models in table.settings.models for each in models.tables.values()):
        for allocator in filter(None, map(allocator_of, model.primary_key)):
            yield _Counted(allocator.table.name, allocator.table.schema, allocator.name)
        for column in public_id_columns(model):
            forms = public_id_type(column).id_format.forms
            yield from (_counter_of(form, table.schema) for form in forms if isinstance(form, CoprimeKey))


def _counter_of(form: CoprimeKey, schema: str | None) -> _Counted:
    counters = form.allocator.table if isinstance(form.allocator, BlockAllocator) else counter_table(COUNTERS)
    return _Counted(counters.name, counters.schema or schema, form.name)


def _has_counters(table: AuditedTable, counter: _Counted) -> bool:
    return table.inspector.has_table(counter.table, schema=counter.schema)


def _read_block(table: AuditedTable, counter: _Counted) -> int:
    """Return the first number that is not leased; 0 if the counter has no row."""
    counters = counter_table(counter.table, counter.schema).c
    return table.connection.scalar(select(counters.next).where(counters.name == counter.name)) or 0


def _elsewhere(table: AuditedTable, column: str, counter: _Counted) -> Finding:
    message = f"the counter {counter.name!r} was not compared with the rows: this database has no table {counter.table}"
    return Finding(table.full_name, column, "counter-not-compared", "info", message, {"counters": [counter.name]})
