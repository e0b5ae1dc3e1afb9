"""Examine a table before the first ALTER, and find all obstacles to the migration.

A migration that stops halfway leaves a default or a CHECK behind, and INSERTs of the running application fail. So all
phases are examined before anything is changed. The obstacles in this module concern all databases; each plan adds its
own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlalchemy import Uuid, inspect
from sqlalchemy.engine import Dialect

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.formats import Format, Uuid4, Uuid7
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.migrations.consent import Triggers
from sqlalchemy_public_id.migrations.databases import database_of, rows_of
from sqlalchemy_public_id.migrations.existing_ids import count_duplicates, count_invalid, count_lost
from sqlalchemy_public_id.migrations.plan import Migration
from sqlalchemy_public_id.migrations.rows import Rows, remedy_without_position, without_position
from sqlalchemy_public_id.migrations.stored_types import Fit, StoredIds, fit_of, in_revision
from sqlalchemy_public_id.migrations.table import FEW_ROWS, LiveTable, columns_of
from sqlalchemy_public_id.migrations.trial import try_ids
from sqlalchemy_public_id.stored_ids import column_type

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
READ_ONLY_REMEDY = "connect to the primary, with a user whose sessions may write"
_STRING = re.compile(r"'(?:[^']|'')*'")


def find_obstacles(migration: Migration, *, catalogs_only: bool = False) -> list[Obstacle]:
    """Return all obstacles to *migration*.

    :param catalogs_only: True to leave out the obstacles that only a rehearsal, or the ids of all rows, would show.
    """
    hidden = migration.table.obstacle_of_a_temporary_table()
    if hidden is not None:
        return [hidden]  # whatever else was read may be of the temporary table
    sets_default = "expand" in migration.phases and migration.plan.lacks_default(migration.state)
    collates = "contract" in migration.phases and migration.plan.changes_collation(migration.state)
    is_done = migration.state.complete and not (sets_default or collates) and migration.change is None
    if is_done and not {"loosen", "drop"} & {*migration.phases}:
        return [*_of_the_others(migration)]  # nothing is left to do
    if migration.runs and migration.read_only is not None:
        return [*obstacles_of_read_only(migration.read_only)]
    obstacles = [*_of_the_table(migration), *migration.plan.obstacles(migration), *_of_the_stored_code(migration)]
    if not any(obstacle.code == "missing-right" for obstacle in obstacles):
        obstacles += _of_the_column(migration)  # which may read rows
    if obstacles or catalogs_only:
        return obstacles
    if migration.read_only is None and (migration.state.exists or "expand" in migration.phases):
        obstacles = [*migration.plan.rehearse(migration)]
    return obstacles or [*_of_the_ids(migration)]  # which reads the ids of all rows


def _of_the_table(migration: Migration) -> Iterator[Obstacle]:
    if migration.state.misfit is not None and {"expand", "contract"} & {*migration.phases}:
        yield migration.state.misfit


def obstacles_of_read_only(reason: str | None) -> Iterator[Obstacle]:
    """Yield an obstacle if there is a *reason* why nothing can be changed through the connection."""
    if reason is not None:
        yield Obstacle("read-only", reason, READ_ONLY_REMEDY)


def _of_the_stored_code(migration: Migration) -> Iterator[Obstacle]:
    """Yield what breaks in programs that the database stores, and that it does not protect."""
    if migration.consent.stored_code == "ignore":
        return
    code, plan = migration.stored_code, migration.plan
    accept = 'or pass stored_code="ignore"'
    for finding in code.by_position:
        remedy = "name the columns there"
        if finding.extends:
            column = f"ADD COLUMN {plan.column} {plan.type}"
            remedy += f", or add the column there first (ALTER TABLE {finding.extends} {column})"
        if plan.hides_columns and not migration.state.exists:
            remedy += ", or pass invisible=True"
        yield Obstacle("stored-code", str(finding), f"{remedy}, {accept}")
    for name in code.by_name if "drop" in migration.phases else ():
        yield Obstacle("dependants", f"{name} needs the column", f"drop or change it first, {accept}")


def _of_the_others(migration: Migration) -> Iterator[Obstacle]:
    """Yield an obstacle for each column that the public id cannot be unique with."""
    target, live = migration.target, migration.table
    if not target.unique_with or not {"expand", "contract"} & {*migration.phases}:
        return
    reflected = columns_of(inspect(live.connection), target.table, target.schema)
    columns = {live.folded(name): column for name, column in reflected.items()}
    for name in target.unique_with:
        column = columns.get(live.folded(name))
        if column is None:
            problem = f"{target.table} has no column {name}, with which {target.column} should be unique"
            remedy = f"add {name} in an earlier revision, or pass unique_with= with the columns that it has"
            yield Obstacle("wrong-index", problem, remedy)
        elif column["nullable"]:
            problem = f"{name} may be NULL, so two rows with NULL may have equal ids"
            remedy = f"forbid NULL in an earlier revision: {_alter_column(migration, name)}, nullable=False)"
            yield Obstacle("wrong-index", problem, remedy)
    key = {live.folded(name) for name in live.read_primary_key()}
    if key and key <= {live.folded(name) for name in target.unique_with}:
        problem = f"unique_with contains the primary key {', '.join(sorted(key))}, so that no two ids need to differ"
        yield Obstacle("wrong-index", problem, "leave it out, or keep the ids in a separate table")


def _of_the_column(migration: Migration) -> Iterator[Obstacle]:
    if {"expand", "contract"} & {*migration.phases}:
        yield from _of_the_others(migration)
        of_type = [*obstacles_of_the_type(migration)]
        yield from of_type or obstacles_of_new_ids(migration)
        yield from _of_the_collation(migration)
        yield from _of_the_default(migration)
        yield from _of_the_index(migration)
    if "drop" in migration.phases and migration.state.exists:
        yield from _of_the_primary_key(migration)
    if "loosen" in migration.phases and not migration.target.keeps_unique:
        yield from _of_the_index(migration)  # it would stay
    if {"contract", "loosen"} & {*migration.phases} and not migration.consent.allow_lock:
        yield from _of_a_change_of_collation(migration)
    lacks_key = [*_of_the_key(migration)] if migration.fills_rows or _reads_ids(migration) else []
    yield from lacks_key
    if migration.fills_rows or "contract" in migration.phases:
        triggers = [*obstacles_of_triggers(migration.table, migration.triggers, migration.consent.update_triggers)]
        if triggers and (migration.fills_rows or (not lacks_key and _replaces_ids(migration))):  # which reads the ids
            yield from triggers


def _of_the_primary_key(migration: Migration) -> Iterator[Obstacle]:
    target = migration.target
    # SQLite has no index for INTEGER PRIMARY KEY; elsewhere, composite keys are found as indexes that lose a column
    has_index = any(index.primary and index.is_on(target.column) for index in migration.state.indexes)
    if has_index or target.column in _rows_class(migration).read_key(migration.table):
        problem = f"{target.column} is in the primary key of {target.table}"
        yield Obstacle("dependants", problem, "name the column of the public ids, or give the table another key first")


def obstacles_of_triggers(live: LiveTable, triggers: Sequence[str], wanted: Triggers) -> Iterator[Obstacle]:
    """Yield an obstacle if UPDATEs would fire *triggers* without consent, or if the triggers cannot be skipped."""
    if wanted == "fire":
        return
    if not triggers:
        yield from live.obstacles_of_hidden_triggers()
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
    target, plan = migration.target, migration.plan
    if not migration.state.exists:
        return
    columns = columns_of(inspect(migration.table.connection), target.table, target.schema)
    # MySQL and MariaDB ignore case in the name of a column
    name = next(name for name in (target.column, *columns) if name in columns and name.lower() == target.column.lower())
    ids, dialect = StoredIds.of(target.format), migration.table.connection.dialect
    fit = Fit() if ids is None else fit_of(columns[name]["type"], ids, dialect, is_key=True)
    if fit or (plan.stores_any_type and fit.code == "too-short"):  # SQLite stores longer values as well
        return
    problem = f"the column {target.column} is {migration.state.type}{fit.why}"
    remedy = fit.advice
    if fit.better is not None:
        verb = "widen" if fit.code == "too-short" else "change"
        change = f"{_alter_column(migration)}, type_={in_revision(fit.better)})"
        remedy = f"{verb} it in an earlier revision: {change}"
    yield Obstacle(fit.code, problem, remedy)


def obstacles_of_new_ids(migration: Migration) -> Iterator[Obstacle]:
    """Yield an obstacle for each CHECK, domain or copy of the column that refuses new ids."""
    outcomes = try_ids(migration.table) if migration.state.exists else []
    yield from (outcome.as_obstacle() for outcome in outcomes if outcome.refused is not None)


def _alter_column(migration: Migration, column: str | None = None) -> str:
    target = migration.target
    schema = f", schema={target.schema!r}" if target.schema else ""
    return f"op.alter_column({target.table!r}, {(column or target.column)!r}{schema}"


def _of_the_collation(migration: Migration) -> Iterator[Obstacle]:
    target, state = migration.target, migration.state
    if state.exact or migration.plan.changes_collation(state):
        return
    collation = f"the collation {state.collation}" if state.collation else "the collation"
    problem = f"{collation} of {target.column} {state.finds_others}"
    yield Obstacle("other-spellings", problem, migration.plan.how_to_change_collation())


def _of_a_change_of_collation(migration: Migration) -> Iterator[Obstacle]:
    target, plan = migration.target, migration.plan
    if plan.changes_collation(migration.state) and not migration.table.has_few_rows():
        work = f"{plan.work_of_collation} {target.table}, which has more than {FEW_ROWS:,} rows"
        problem = f"writers would wait: another collation {work}"
        yield Obstacle("needs-lock", problem, "pass allow_lock=True to accept this, in a quiet hour")


def _of_the_default(migration: Migration) -> Iterator[Obstacle]:
    default, target = migration.state.default, migration.target
    if default is None or migration.plan.has_own_default(migration.state) or target.server_default == "replace":
        return
    remedy = f"drop the default: {_alter_column(migration)}, server_default=None)"
    if migration.state.domain is not None:
        remedy = f"override it: {_alter_column(migration)}, server_default=sa.text('NULL'))"
    of_domain = "" if migration.state.domain is None else f" of the domain {migration.state.domain}"
    if "(" not in _STRING.sub("", default):
        yield Obstacle("constant-default", f"the default {default}{of_domain} gives all rows the same id", remedy)
    elif migration.plan.generates_ids and not makes_uuids(target.format, default, migration.table.connection.dialect):
        problem = f"the default {default}{of_domain} generates other ids than {target.format!r}"
        yield Obstacle("foreign-default", problem, f'{remedy}, or pass server_default="none" to keep it')


def makes_uuids(format: Format, default: str, dialect: Dialect) -> bool:
    """Return True if *default* is a function of the database whose ids the format accepts."""
    call = _UUID_CALL.fullmatch(default.replace('"', ""))  # quote_all_identifiers of PostgreSQL
    kind = _UUIDS.get(call[1]) if call else None
    traits = traits_for(dialect)
    return kind is not None and any(
        isinstance(form, kind)
        and isinstance(form, BitsFormat)
        and (
            isinstance(column_type(form, traits), Uuid)  # a column of bytes would store other ids
            if form.is_native
            else form.encoding == "hyphenated" and form.prefix is None
        )
        for form in format.forms
    )


def _of_the_index(migration: Migration) -> Iterator[Obstacle]:
    target = migration.target
    if migration.state.index:
        return
    for index in migration.state.indexes:
        is_ours = index.can_be_unique_index_of(*target.unique_columns)
        if migration.table.folded(index.name) != migration.table.folded(target.unique_name) or is_ours:
            continue
        defect = (
            "is not unique"
            if not index.unique
            else "is partial"
            if index.partial
            else "is deferrable"
            if index.deferrable
            else "is by another collation than the column"
            if index.by_other_collation
            else f"is not on {' and '.join(target.unique_columns)}{'' if target.unique_with else ' alone'}"
        )
        problem = f"there is an index {index.name}, which {defect}"
        others = tuple(name for name in index.columns if name != target.column)
        is_wider = index.unique and target.column in index.columns and others
        told = f"declare the ids with unique_with={others}, " if is_wider and others != target.unique_with else ""
        yield Obstacle("wrong-index", problem, f"{told}rename or drop it, or pass unique_name= with another name")


def _of_the_key(migration: Migration) -> Iterator[Obstacle]:
    if not _rows_class(migration).read_position_columns(migration.table):
        yield Obstacle("no-key", without_position(migration.target), remedy_without_position(migration.target))


def _rows_class(migration: Migration) -> type[Rows]:
    return database_of(migration.table.connection.dialect).rows


# --- existing ids, which are changed only with consent


def _reads_ids(migration: Migration) -> bool:
    """Return True if the ids that the column has are examined before it is completed."""
    if "contract" not in migration.phases or not migration.state.exists or migration.state.complete:
        return False
    return migration.table.has_rows()  # an empty table needs no key


def _of_the_ids(migration: Migration) -> Iterator[Obstacle]:
    """Yield obstacles for duplicate ids, and for invalid ids, which a report looks for in the first rows only."""
    state, consent = migration.state, migration.consent
    if not _reads_ids(migration):
        return
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
        others = f" with equal {', '.join(rows.target.unique_with)}" if rows.target.unique_with else ""
        problem = f"{ids} in several rows{others}, such as {', '.join(safe_repr(str(id)) for id in examples)}"
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
