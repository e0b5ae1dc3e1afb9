"""Find the problems of one table and their remedies: a function for each kind of problem."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from sqlalchemy import JSON, BigInteger, Date, DateTime, Float, Integer, Numeric, func, select

from sqlalchemy_public_id.audit.counters import check_counted_ids, counter_problems
from sqlalchemy_public_id.audit.report import Finding, Remedy, Severity
from sqlalchemy_public_id.audit.tables import AuditedTable
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.formats.guess import ranked_guesses
from sqlalchemy_public_id.keys.cluster.audit import cluster_problems
from sqlalchemy_public_id.keys.cluster.catalog import NextNumber, read_next
from sqlalchemy_public_id.keys.ranges import LAST_KEY
from sqlalchemy_public_id.messages import command_line, safe_repr
from sqlalchemy_public_id.migrations import PublicIdColumn, Timeouts
from sqlalchemy_public_id.migrations.databases import database_of, live_table, plan_for
from sqlalchemy_public_id.migrations.obstacles import find_obstacles, obstacles_of_the_type
from sqlalchemy_public_id.migrations.plan import Migration, Step
from sqlalchemy_public_id.migrations.steps import list_statements
from sqlalchemy_public_id.migrations.stored_types import has_width_of
from sqlalchemy_public_id.migrations.trial import try_ids
from sqlalchemy_public_id.naming import not_null_check_name

_SHOWN = 3
_OTHER_TYPES = (Integer, Numeric, Float, Date, DateTime, JSON)
"""Types that store no format: formats use text, bytes, UUID or BIGINT. A type unknown to SQLAlchemy may be any."""
_BYTEWISE = re.compile(r"C(\..+)?|POSIX|ucs_basic|pg_c_utf8|pg_unicode_fast")
"""The collations of PostgreSQL in the order of bytes; ``C.UTF-8`` has that of code points, which is the same."""
_HALF_FULL, _NEARLY_FULL = 0.5, 0.9


def find_problems(table: AuditedTable) -> Iterator[Finding]:
    """Yield all problems of *table*. Without public ids, only its key is checked."""
    if table.has_column:
        checks = (_check_missing, _check_null, _check_type, _check_indexes, _check_ids, _check_collation)
        for check in (_check_visible, *checks, _check_new_ids, _check_default):
            yield from check(table)
        if table.state.default is None and not table.state.filled:
            target = replace(table.target, server_default="keep")
            message = "the database generates no ids: programs that leave the column out cannot insert, or insert NULL"
            yield table.finding("default-missing", "info", message, _command("expand", table, target))
        yield from check_counted_ids(table)
    elif table.format is not None:
        yield _missing_column(table, table.format)
    if not table.is_first:
        return
    place = (table.connection, table.inspector, table.name, table.schema)
    is_sorted = table.key is not None and table.is_key_sorted
    of_cluster = cluster_problems(*place, table.all_clusters, table.key, is_sorted=is_sorted)
    if of_cluster is None:
        yield from _check_key(table)
    else:  # a key that counts within a range is full at the end of the range, not of its type
        yield from (Finding(table.full_name, *problem) for problem in of_cluster)
    yield from counter_problems(table)


def _missing_column(table: AuditedTable, format: Format) -> Finding:
    """Return the finding of a column that the models declare, or whose format was passed."""
    others = [each for each in table.columns if each.lower() == table.column.lower()]
    message = f"the table has no column {table.column} for ids of {format!r}{f', but {others[0]}' if others else ''}"
    remedy = None if others else _command("add", table, replace(table.target, server_default="keep"))
    return table.finding("column-missing", "error", message, remedy)


def _check_visible(table: AuditedTable) -> Iterator[Finding]:
    hidden = table.live.obstacle_of_hidden_rows()
    if hidden is not None:
        message = "row-level security hides rows from this role, and they were not checked"
        yield table.finding("rows-hidden", "warning", message, Remedy("text", (hidden.remedy,)))


def _check_missing(table: AuditedTable) -> Iterator[Finding]:
    rows, limit, is_counted = len(table.values), table.settings.sample, False
    count = rows - len(table.ids)
    message = f"{count:,} of {rows:,} rows that were read have no id"
    if table.state.nullable and any(index.valid and not index.partial for index in table.indexes):  # finds them
        ids = table.source.c[table.column]
        some = select(ids).where(ids.is_(None)).limit(limit + 1).subquery()
        found = table.connection.scalar(select(func.count()).select_from(some)) or 0
        count, is_counted = min(found, limit), found <= limit
        message = f"{count:,} row{'s have' if count > 1 else ' has'} no id"
        if not is_counted:
            message = f"more than {limit:,} rows have no id"
    if count:
        facts = {"rows": count, "exact": is_counted, "sampled": rows}
        yield table.finding("missing-ids", "error", message, _command("backfill", table, table.target), **facts)


def _check_null(table: AuditedTable) -> Iterator[Finding]:
    if table.state.nullable:
        message = "the column may be NULL: rows can be stored without an id"
        yield table.finding("nullable", "warning", message, _complete(table))
    elif table.state.check:
        name = not_null_check_name(table.name, table.column)
        message = f"the CHECK constraint {name} is left over from a migration"
        yield table.finding("check-left-over", "info", message, _complete(table), check=name)


def _check_type(table: AuditedTable) -> Iterator[Finding]:
    format, type_, is_text = table.format, table.state.type, table.is_text
    reflected, stores_any = table.columns[table.column]["type"], database_of(table.dialect).plan.stores_any_type
    is_of_64_bits = isinstance(format, BitsFormat) and format.bits == 64  # which an INTEGER of SQLite can store
    problem: str | None = None
    severity: Severity = "error"
    if format is not None and not stores_any:
        problem = next(map(str, obstacles_of_the_type(_contract(table))), None)
    elif isinstance(reflected, _OTHER_TYPES) and not isinstance(reflected, BigInteger) and not is_of_64_bits:
        effect = "ids are refused, or stored as other values"
        if stores_any:
            severity, effect = "warning", "an id of digits only is stored as a number, without its leading zeros"
        problem = f"the type of the column is {type_}, in which no format is stored: {effect}"
    elif format is not None and table.ids and format.is_native == is_text:
        stored, expected, advice = "numbers", "text", "take a format that is stored as numbers"
        if is_text:
            stored, expected, advice = "text", "numbers", 'pass storage="text"'
        problem = f"the column has {stored}, but ids of {format!r} are stored as {expected}; {advice}"
    if problem is not None:
        yield table.finding("column-type", severity, problem, type=type_)


def _check_indexes(table: AuditedTable) -> Iterator[Finding]:
    indexes, own_name, others = table.indexes, table.target.unique_name, table.target.unique_with
    listed = ", ".join(others)
    guard = min(  # the best of them: the index of a constraint, or one with the library's name
        (index for index in indexes if index.guards and table.is_on_all(index)),
        key=lambda it: (it.deferrable, bool(it.shown_by), not it.primary, not it.constraint, it.name != own_name),
        default=None,
    )
    uniques = [index for index in indexes if index.unique and table.is_on_all(index)]
    if all((index.valid and index.partial) or index.by_other_collation for index in uniques):
        names = [index.name for index in indexes]
        reason = "leaves rows out" if any(index.partial for index in indexes) else "is none"
        if uniques and all(index.by_other_collation for index in uniques):
            reason = "is by another collation than the column"
        found = f" ({', '.join(names)} {reason})" if names else ""
        message = f"there is no unique index{found}: two rows can have one id, and a lookup reads the whole table"
        if others:
            columns = ", ".join(table.target.unique_columns)
            message = f"there is no unique index on {columns}{found}: two rows can have one id and equal {listed}"
        yield table.finding("unique-missing", "error", message, _complete(table), indexes=names)
    elif others and not table.is_declared:
        keys = {each.lower() for each in table.state.partition_keys}
        severity: Severity = "info" if {each.lower() for each in others} <= keys else "warning"
        message = (
            f"no unique index is on the column alone: rows that differ in {listed} can have one id; if this is "
            f"intended, declare unique_with={others!r}, and pass the models"
        )
        yield table.finding("unique-with-others", severity, message, unique_with=[*others])
    for index in indexes:
        name = index.name
        if not index.valid:
            remedy, advice = (_complete(table), "") if name == own_name else (None, "; drop it")
            message = f"the index {name} is INVALID: no query uses it, and it guarantees nothing{advice}"
            yield table.finding("index-invalid", "error", message, remedy, index=name)
        elif index.unique and index.prefix_of:
            message = (
                f"the unique index {name} covers only the first {index.prefix} characters, so it rejects an id that "
                f"begins like another one; drop it once the column has a unique index of whole ids"
            )
            facts = {"index": name, "length": index.prefix}
            yield table.finding("unique-prefix", "error", message, _complete(table), **facts)
        elif index is guard and index.deferrable:  # there is no better one
            message = (
                f"the constraint {name} is DEFERRABLE: ON CONFLICT cannot use it, and a duplicate may fail only at "
                f"COMMIT, which is not retried; drop it once the column has another unique index"
            )
            yield table.finding("unique-deferrable", "warning", message, _complete(table), constraint=name)
        elif index is guard and index.shown_by:
            message = f"the unique index {name} is hidden from queries, so that a lookup reads the whole table"
            yield table.finding("index-hidden", "warning", message, Remedy("sql", (f"{index.shown_by};",)), index=name)
        elif guard is not None and index.unique and not table.is_on_all(index):
            message = f"the unique index {name} refuses equal ids of rows that differ in {listed}; drop it"
            yield table.finding("index-redundant", "warning", message, index=name, beside=guard.name)
        elif index.by_other_collation:
            continue  # it may be for other queries
        elif guard is not None and index is not guard and guard.columns[:1] == (table.column,):
            message = f"the index {name} adds nothing to {guard.name}, and slows down writes; drop it"
            yield table.finding("index-redundant", "warning", message, index=name, beside=guard.name)


def _check_ids(table: AuditedTable) -> Iterator[Finding]:
    ids, format, is_known = table.ids, table.likely_format, table.format is not None
    if not is_known and not any(isinstance(value, str) for value in table.values):
        return  # numbers have no pattern to check
    severity: Severity = "error" if is_known else "warning"
    spelled = [id for id in ids if format is not None and format.canonical(id) not in (None, id)]
    if format is not None and spelled and (is_known or len(spelled) < len(ids) / 2):  # or else the guess is wrong
        problem = f"have another spelling than the one that look-ups search for, {format.canonical(spelled[0])!r}"
        yield _wrong_ids(table, spelled, severity, f"{problem}: {_listed(spelled)}")
    malformed = [id for id in ids if format is None or not format.is_valid(id)]
    if not malformed:
        return
    expected, remedy = "no format has such ids", None
    if format is not None:
        expected = f"expected {format.expected}{'' if is_known else ', a guess from the others'}"
        is_rare = table.is_text and len(malformed) <= min(_SHOWN, len(ids) // 20)
        remedy = _accept(format, malformed, is_text=table.is_text, is_rare=is_rare)
    yield _wrong_ids(table, malformed, severity, f"are malformed: {_listed(malformed)} ({expected})", remedy)


def _wrong_ids(
    table: AuditedTable, wrong: Sequence[str], severity: Severity, problem: str, remedy: Remedy | None = None
) -> Finding:
    message = f"{len(wrong)} of {len(table.ids)} ids that were read {problem}"
    facts = {"malformed": len(wrong), "sampled": len(table.ids), "examples": wrong[:_SHOWN]}
    return table.finding("malformed-ids", severity, message, remedy, **facts)


def _listed(ids: Sequence[str]) -> str:
    return ", ".join(map(safe_repr, ids[:_SHOWN])) + (", …" if len(ids) > _SHOWN else "")


def _check_collation(table: AuditedTable) -> Iterator[Finding]:
    state = table.state
    collation = state.order or state.collation
    if not state.exact:
        name = f"the collation {collation}" if collation else "its collation"
        message = f"{name} {state.finds_others}"
        yield table.finding("collation", "warning", message, _complete(table, collation="bytes"), collation=collation)
    elif state.order is not None and not _BYTEWISE.fullmatch(state.order):
        message = (
            f"the collation {collation} has the order of a language, which upgrades of the server's libraries change: "
            f"REINDEX after each upgrade, or lookups miss rows"
        )
        yield table.finding("collation", "info", message, _complete(table, collation="bytes"), collation=collation)


def _check_new_ids(table: AuditedTable) -> Iterator[Finding]:
    """Yield a finding for each CHECK, domain or copy of the column that refuses new ids, or was not tried."""
    if table.format is None:
        return  # a guess generates other ids
    for outcome in try_ids(live_table(table.connection, table.target)):
        facts: dict[str, Any] = {"demand": outcome.demand, "table": outcome.table, "id": outcome.refused}
        if outcome.refused is None:
            yield table.finding("not-tried", "info", str(outcome), **facts)
        else:
            remedy = Remedy("text", (outcome.as_obstacle().remedy,))
            yield table.finding("ids-refused", "error", str(outcome), remedy, **facts)


def _check_default(table: AuditedTable) -> Iterator[Finding]:
    """Yield a finding if an earlier version of this library has written the default, or if it calls code of others."""
    try:
        plan = plan_for(table.target, table.dialect)
    except ConfigurationError:  # such as a name that the operations do not accept: the default is not ours
        return
    steps = [step for step in plan.renew_default() if step.statements(table.state)]
    if not steps:
        yield from _check_former_default(table)
        return
    severity: Severity = "info"
    message = "an earlier version of this library has written the default: the present one is shorter"
    if table.state.calls:
        severity = "error"
        calls = ", ".join(table.state.calls)
        message = f"the default runs code of another role as everyone who inserts: it calls {calls}"
    yield table.finding("default-outdated", severity, message, _statements(table, steps), calls=[*table.state.calls])


def _check_former_default(table: AuditedTable) -> Iterator[Finding]:
    """Yield a finding if this library has written the default for another format than that of the models."""
    default, format = table.state.default, table.format
    target = replace(table.target, server_default="replace")
    plan = plan_for(target, table.dialect)
    if default is None or format is None or plan.has_own_default(table.state):
        return
    former = plan.defaults.former_format(default, format, [id for id in table.ids if isinstance(id, str)])
    if former is not None:
        message = f"the default generates ids of {former!r}, which look-ups do not find, because they expect {format!r}"
        yield table.finding("default-outdated", "error", message, _command("expand", table, target), calls=[])


def _check_key(table: AuditedTable) -> Iterator[Finding]:
    """Yield a finding if an integer key that no cluster or range limits is at least half full."""
    name = table.key
    type_ = None if name is None else table.columns[name]["type"]
    if name is None or not isinstance(type_, Integer):
        return
    largest = 0
    if table.is_key_sorted:  # only the end of its index is read
        largest = table.connection.scalar(select(func.max(table.source.c[name]))) or 0
    limit = table.live.read_largest_key(name, type_)
    upcoming = read_next(table.connection, table.name, table.schema, name)  # rows with larger keys may be deleted
    value = max(largest, min(upcoming.number - 1, limit)) if isinstance(upcoming, NextNumber) else largest
    full = value / limit
    if full < _HALF_FULL:
        return
    advice = "make it a BIGINT, after the foreign keys that refer to it"
    if limit >= LAST_KEY:  # no counter that begins at 1 gets so far
        advice = "if its keys are those of a cluster, pass the cluster: clusters=, or --cluster"
    shown_type = str(type_.compile(table.dialect))
    message = (
        f"the key {name} ({shown_type}) is {full:.0%} full, at {value} of {limit}: it runs out after another "
        f"{(limit - value) / value:.0%} of the keys so far; {advice}"
    )
    facts = {"type": shown_type, "value": value, "limit": limit, "full": round(full, 4)}
    severity: Severity = "error" if full >= _NEARLY_FULL else "warning"
    yield Finding(table.full_name, name, "key-nearly-full", severity, message, facts)


# --- remedies


def _contract(table: AuditedTable, **changes: Any) -> Migration:
    """Return the migration that completes the column, with *changes* to its target. The server default stays as it is.

    :raises ConfigurationError: if the operations do not accept its names.
    """
    target = replace(table.target, **changes)
    plan = plan_for(target, table.dialect)
    return Migration(live_table(table.connection, target), plan, ["contract"], table.state)


def _complete(table: AuditedTable, **changes: Any) -> Remedy | None:
    """Return the remedy that completes the column, or the obstacles to it; ``None`` if no step is left."""
    try:
        migration = _contract(table, **changes)
    except ConfigurationError as error:  # such as a name that the operations do not accept
        return Remedy("text", (str(error),))
    of_a_guess = {"wrong-type", "too-short"} if table.format is None else set[str]()
    obstacles = [each for each in find_obstacles(migration, catalogs_only=True) if each.code not in of_a_guess]
    if obstacles:
        return Remedy("text", tuple(map(str, obstacles)))
    steps = [step for _, step in migration.steps]
    if not steps:
        return None
    if not migration.plan.works_in_a_shell:
        return _command("contract", table, migration.target)
    return _statements(table, steps)


def _statements(table: AuditedTable, steps: Sequence[Step]) -> Remedy:
    session = database_of(table.connection.dialect).session(table.connection, Timeouts())
    lines = list_statements(steps, session, table.state)
    return Remedy("sql", tuple(line if line.startswith("-- ") else f"{line};" for line in lines))


def _command(name: str, table: AuditedTable, target: PublicIdColumn) -> Remedy:
    """Return the command ``public-id`` *name* for *target*, with the options that differ from the defaults."""
    existing = table.columns.get(table.column)  # of which the command guesses a format that is not told
    is_told = table.format is not None and not (existing and has_width_of(existing["type"], target.format))
    usual = replace(PublicIdColumn.of(target.table, target.column), column="public_id")
    of_the_column = () if name == "backfill" else ("unique_name", "unique_with", "collation", "server_default")
    options = ("column", "schema", "format", *of_the_column)
    unusual = {
        each: value
        for each in options
        if (value := getattr(target, each)) != getattr(usual, each) or (each == "format" and is_told)
    }
    return Remedy("sh", (command_line(name, target.table, **unusual),))


def _accept(format: Format, malformed: Sequence[str], *, is_text: bool, is_rare: bool) -> Remedy | None:
    """Return the declaration of *format* that also accepts the *malformed* ids, or most of them.

    :param is_rare: True to list each of them, because they were probably chosen by hand, such as ``__world__``.
    """
    if isinstance(format, BitsFormat) and format.is_native and is_text:
        as_text: Format = replace(cast("Any", format), storage="text")
        format = as_text.accepting(*format.forms[1:])
    choices: list[Sequence[Any]] = [malformed] if is_rare else [[guess] for guess in ranked_guesses(malformed)]
    for older in choices:
        with suppress(ConfigurationError):  # the format is stored as numbers, and the guess has none of this size
            return Remedy("python", (f"__public_id__ = {format.accepting(*older)!r}",))
    return None
