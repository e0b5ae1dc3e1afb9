"""Examine a table before the first ALTER, and find all obstacles to the migration.

A migration that stops halfway leaves a default or a CHECK behind, and INSERTs of the running application fail. So all
phases are examined before anything is changed. The obstacles in this module concern all databases; each plan adds its
own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import CHAR, BigInteger, String, Uuid, inspect
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.formats import Format, Uuid4, Uuid7
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.migrations.consent import Triggers
from sqlalchemy_public_id.migrations.databases import database_of, rows_of
from sqlalchemy_public_id.migrations.existing_ids import count_duplicates, count_invalid, count_lost
from sqlalchemy_public_id.migrations.plan import Migration
from sqlalchemy_public_id.migrations.rows import Rows, without_position
from sqlalchemy_public_id.migrations.table import FEW_ROWS, LiveTable, columns_of
from sqlalchemy_public_id.types import column_type

SAMPLE = 100_000
"""The number of rows whose ids a report compares with the format; the contract compares all."""
_UUIDS: dict[str, type[Format]] = {
    "gen_random_uuid": Uuid4,
    "uuid_generate_v4": Uuid4,
    "uuid_v4": Uuid4,
    "uuid_v7": Uuid7,
    "uuidv4": Uuid4,
    "uuidv7": Uuid7,
}
"""Functions of PostgreSQL and MariaDB, and the format of the ids that they generate."""
_UUID_CALL = re.compile(r"\(*(?:\w+\.)?(\w+)\(\)\)*(?:::text|::character varying(?:\(36\))?)?")
_STRING = re.compile(r"'(?:[^']|'')*'")


def find_obstacles(migration: Migration, *, catalogs_only: bool = False) -> list[Obstacle]:
    """Return all obstacles to *migration*.

    :param catalogs_only: True to leave out the obstacles that only a rehearsal, or the ids of all rows, would show.
    """
    if migration.state.complete and not {"loosen", "drop"} & {*migration.phases}:
        return []  # nothing is left to do
    obstacles = [*_of_the_table(migration), *migration.plan.obstacles(migration)]
    if not any(obstacle.code == "missing-right" for obstacle in obstacles):
        obstacles += _of_the_column(migration)  # which may read rows
    if obstacles or catalogs_only:
        return obstacles
    if migration.state.exists or "expand" in migration.phases:
        obstacles = [*migration.plan.rehearse(migration)]
    return obstacles or [*_of_the_ids(migration)]  # which reads the ids of all rows


def _of_the_table(migration: Migration) -> Iterator[Obstacle]:
    if migration.state.misfit is not None and {"expand", "contract"} & {*migration.phases}:
        yield migration.state.misfit


def _of_the_column(migration: Migration) -> Iterator[Obstacle]:
    if {"expand", "contract"} & {*migration.phases}:
        yield from obstacles_of_the_type(migration)
        yield from _of_the_collation(migration)
        yield from _of_the_default(migration)
        yield from _of_the_index(migration)
    if "drop" in migration.phases and migration.state.exists:
        yield from _of_the_primary_key(migration)
    if {"contract", "loosen"} & {*migration.phases} and not migration.consent.allow_lock:
        yield from _of_a_change_of_collation(migration)
    if migration.fills_rows:
        yield from _of_the_key(migration)
    if migration.fills_rows or "contract" in migration.phases:
        triggers = [*obstacles_of_triggers(migration.table, migration.triggers, migration.consent.update_triggers)]
        if triggers and (migration.fills_rows or _replaces_ids(migration)):  # which reads the ids
            yield from triggers


def _of_the_primary_key(migration: Migration) -> Iterator[Obstacle]:
    target = migration.target
    # SQLite has no index for INTEGER PRIMARY KEY; elsewhere, composite keys are found as indexes that lose a column
    has_index = any(index.primary and index.is_on(target.column) for index in migration.state.indexes)
    if has_index or target.column in rows_of(migration.table, migration.state).read_key():
        problem = f"{target.column} is in the primary key of {target.table}"
        yield Obstacle("dependants", problem, "name the column of the public ids, or give the table another key first")


def obstacles_of_triggers(live: LiveTable, triggers: Sequence[str], wanted: Triggers) -> Iterator[Obstacle]:
    """Yield an obstacle if UPDATEs would fire *triggers* without consent, or if the triggers cannot be skipped."""
    if not triggers or wanted == "fire":
        return
    names = ", ".join(triggers)
    what = f"the trigger {names}" if len(triggers) == 1 else f"the triggers {names}"
    if wanted == "refuse":
        skip = ', or update_triggers="skip" to fire none' if live.can_skip_triggers else ""
        remedy = f'pass update_triggers="fire" to accept this{skip}'
        yield Obstacle("update-triggers", f"the backfill would fire {what} once for each row", remedy)
    elif not live.can_skip_triggers:
        remedy = 'pass update_triggers="fire", or drop them until the backfill has ended'
        problem = f"{live.connection.dialect.name} cannot skip {what}"
        yield Obstacle("update-triggers", problem, remedy)
    else:
        yield from live.obstacles_to_skipping()


def _replaces_ids(migration: Migration) -> bool:
    """Return True if the contract will replace ids, by UPDATEs like those of the backfill."""
    consent = migration.consent
    if not migration.state.exists or migration.state.complete:
        return False
    if "replace" not in (consent.on_duplicate, consent.on_invalid):
        return False
    rows = rows_of(migration.table, migration.state)
    if consent.on_duplicate == "replace" and count_duplicates(rows)[0]:
        return True
    return consent.on_invalid == "replace" and count_invalid(rows)[0] > 0


def obstacles_of_the_type(migration: Migration) -> Iterator[Obstacle]:
    """Yield an obstacle if the type of the existing column cannot hold ids of the format."""
    target, dialect = migration.target, migration.table.connection.dialect
    if not migration.state.exists or migration.plan.stores_any_type:
        return
    columns = columns_of(inspect(migration.table.connection), target.table, target.schema)
    # MySQL and MariaDB ignore case in the name of a column
    name = next(name for name in (target.column, *columns) if name in columns and name.lower() == target.column.lower())
    existing = columns[name]["type"]
    if holds_ids(existing, target.format, dialect):
        return
    expected = column_type(target.format, traits_for(dialect))
    stored = migration.state.type
    if not (isinstance(target.format, BitsFormat) and target.format.is_native):
        length = getattr(existing, "length", None)
        kind = type(existing).__name__.upper()
        is_indexed = migration.plan.indexes_whole_texts or not kind.endswith("TEXT")
        if not isinstance(existing, String) or kind in {"CITEXT", "ENUM"} or not is_indexed:
            yield _wrong_type(migration)
        elif length is not None and length < target.format.max_length:
            problem = (
                f"the column {target.column} is {stored}, but ids have up to {target.format.max_length} characters"
            )
            widen = f"{_alter_column(migration)}, type_=sa.String({target.format.max_length}))"
            yield Obstacle("too-short", problem, f"widen it in an earlier revision: {widen}")
    elif isinstance(existing, BigInteger) and isinstance(expected, BigInteger):
        return  # the type that is reflected from MariaDB has a display width
    elif existing.compile(dialect).upper() != expected.compile(dialect).upper():
        yield _wrong_type(migration)


def _alter_column(migration: Migration) -> str:
    target = migration.target
    schema = f", schema={target.schema!r}" if target.schema else ""
    return f"op.alter_column({target.table!r}, {target.column!r}{schema}"


def holds_ids(existing: TypeEngine[Any], format: Format, dialect: Dialect) -> bool:
    """Return True if a column of the type *existing* returns ids of *format* as they were written.

    Such a column keeps its type, because its foreign keys would not allow another one: a CHAR that every id fills, so
    that no blanks are added, or the type UUID of MariaDB, which reads and writes hyphenated text.
    """
    if format.is_native:
        return False
    if isinstance(existing, CHAR):
        return {form.max_length for form in format.forms} == {existing.length}
    is_uuid = isinstance(existing, Uuid) and getattr(dialect, "is_mariadb", False)
    return is_uuid and all(
        isinstance(form, BitsFormat) and form.encoding == "hyphenated" and form.prefix is None for form in format.forms
    )


def _wrong_type(migration: Migration) -> Obstacle:
    target, type_ = migration.target, migration.state.type
    return Obstacle(
        "wrong-type",
        f"the column {target.column} is {type_}, but ids of {target.format!r} are stored as {migration.plan.type}",
        "rename it and add a new one, or pass the format that its ids have",
    )


def _of_the_collation(migration: Migration) -> Iterator[Obstacle]:
    target, state = migration.target, migration.state
    if state.exact or migration.plan.changes_collation(state):
        return
    collation = f"the collation {state.collation}" if state.collation else "the collation"
    problem = f"{collation} of {target.column} can treat different ids as equal, such as aB and Ab"
    yield Obstacle("other-spellings", problem, migration.plan.how_to_change_collation())


def _of_a_change_of_collation(migration: Migration) -> Iterator[Obstacle]:
    target, plan = migration.target, migration.plan
    if plan.changes_collation(migration.state) and not migration.table.has_few_rows():
        work = f"{plan.work_of_collation} {target.table}, which has more than {FEW_ROWS:,} rows"
        problem = f"writers would wait: another collation {work}"
        yield Obstacle("needs-lock", problem, "pass allow_lock=True to accept this, in a quiet hour")


def _of_the_default(migration: Migration) -> Iterator[Obstacle]:
    default, target = migration.state.default, migration.target
    if default is None or migration.plan.has_own_default(migration.state):
        return
    remedy = f"drop the default: {_alter_column(migration)}, server_default=None)"
    if "(" not in _STRING.sub("", default):
        yield Obstacle("constant-default", f"the default {default} gives all rows the same id", remedy)
    elif migration.plan.generates_ids and not _makes_uuids(migration, default):
        problem = f"the default {default} generates other ids than {target.format!r}"
        yield Obstacle("foreign-default", problem, f'{remedy}, or pass server_default="none" to keep it')


def _makes_uuids(migration: Migration, default: str) -> bool:
    """Return True if *default* is a function of the database whose ids the format accepts."""
    call = _UUID_CALL.fullmatch(default)
    kind = _UUIDS.get(call[1]) if call else None
    traits = traits_for(migration.table.connection.dialect)
    return kind is not None and any(
        isinstance(form, kind)
        and isinstance(form, BitsFormat)
        and (
            isinstance(column_type(form, traits), Uuid)  # a column of bytes would store other ids
            if form.is_native
            else form.encoding == "hyphenated" and form.prefix is None
        )
        for form in migration.target.format.forms
    )


def _of_the_index(migration: Migration) -> Iterator[Obstacle]:
    target = migration.target
    if migration.state.index:
        return
    for index in migration.state.indexes:
        if index.name.lower() != target.unique_name.lower() or index.can_be_unique_index_of(target.column):
            continue
        defect = (
            "is not unique"
            if not index.unique
            else "is partial"
            if index.partial
            else "is deferrable"
            if index.deferrable
            else f"is not on {target.column} alone"
        )
        problem = f"there is an index {index.name}, which {defect}"
        yield Obstacle("wrong-index", problem, "rename or drop it, or pass unique_name= with another name")


def _of_the_key(migration: Migration) -> Iterator[Obstacle]:
    target = migration.target
    if not database_of(migration.table.connection.dialect).rows.read_position_columns(migration.table):
        yield Obstacle("no-key", without_position(target), f"add one, or fill {target.column} by hand")


# --- existing ids, which are changed only with consent


def _of_the_ids(migration: Migration) -> Iterator[Obstacle]:
    """Yield obstacles for duplicate ids, and for invalid ids, which a report looks for in the first rows only."""
    state, consent = migration.state, migration.consent
    if "contract" not in migration.phases or not state.exists or state.complete:
        return
    if not migration.table.has_rows():
        return  # an empty table needs no key
    rows = rows_of(migration.table, state)
    if consent.on_duplicate == "refuse" and not state.valid and not migration.begins_with_index:
        yield from obstacles_of_duplicates(rows)
    if consent.on_invalid == "refuse":
        yield from _of_invalid_ids(rows, None if migration.runs else SAMPLE)
    elif consent.on_invalid == "keep" and migration.plan.becomes_ascii(state):
        yield from _of_lost_characters(rows)


def obstacles_of_duplicates(rows: Rows) -> Iterator[Obstacle]:
    """Yield an obstacle if several rows share an id."""
    number, examples = count_duplicates(rows)
    if number:
        ids = "1 id is" if number == 1 else f"{number} ids are"
        problem = f"{ids} in several rows, such as {', '.join(safe_repr(str(id)) for id in examples)}"
        remedy = 'correct the rows, or pass on_duplicate="replace": all rows but the first get another id'
        yield Obstacle("duplicates", problem, remedy)


def _of_invalid_ids(rows: Rows, sample: int | None) -> Iterator[Obstacle]:
    number, examples = count_invalid(rows, sample=sample)
    if number:
        ids = "1 id is" if number == 1 else f"{number} ids are"
        problem = f"{ids} not of the format {rows.target.format!r}, such as {', '.join(map(safe_repr, examples))}"
        remedy = 'pass the format with .accepting(…), or on_invalid="keep", or on_invalid="replace"'
        if any(map(rows.target.format.is_valid, examples)):  # lookups compare the spelling of new ids
            remedy = "write those in another case like new ids, with UPDATE and lower() or upper(), or " + remedy
        yield Obstacle("invalid-ids", problem, remedy)


def _of_lost_characters(rows: Rows) -> Iterator[Obstacle]:
    # the column becomes ASCII, and the server would refuse these ids halfway through the migration
    number, examples = count_lost(rows)
    if number:
        ids = "1 id has" if number == 1 else f"{number} ids have"
        values = ", ".join(map(safe_repr, examples))
        problem = f"{ids} characters outside ASCII, which a column of ids cannot store, such as {values}"
        yield Obstacle("not-ascii", problem, 'correct the rows, or pass on_invalid="replace"')
