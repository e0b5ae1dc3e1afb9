"""Execute an INSERT, and repeat it with new ids, until it stores its rows or fails for another reason."""

from __future__ import annotations

import enum
import logging
import sys
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from traceback import clear_frames
from typing import Any

from sqlalchemy import Column, PrimaryKeyConstraint, UniqueConstraint, select
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.columns import public_id_type, unique_with
from sqlalchemy_public_id.dialects import Violation, sees_commits
from sqlalchemy_public_id.dialects.quoting import unquoted
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.guard.call import DriverCall, IdInRow, names_of, schema_options
from sqlalchemy_public_id.guard.drawing import another, logger
from sqlalchemy_public_id.stored_ids import to_database

_FEW = 10
"""How many collisions of a batch are resolved one by one, by the id that the error names, before a SELECT is used.

Under REPEATABLE READ, a SELECT may not see the rows of others; under SERIALIZABLE, it can make the transaction fail.
"""


# --- the INSERT


def insert_until_stored(call: DriverCall, *, in_savepoint: bool, error: Exception | None = None) -> None:
    """Execute an INSERT until no id collides.

    :param in_savepoint: True to set a savepoint first. Without one, a failure undoes more than the INSERT
        (PostgreSQL aborts the transaction) or less (an ``executemany`` keeps the rows before the refused one).
    :param error: the error of the INSERT, if it was already executed and failed.
    """
    try:
        if in_savepoint:
            call.set_savepoint()
        # if the savepoint could not be set, only a single row can be sent again
        is_repeatable = call.has_savepoint or not in_savepoint or len(call.rows) == 1
        while error is not None or (error := call.send()) is not None:
            _replace_ids(call, error, is_repeatable=is_repeatable)
            error = None
        call.release_savepoint()
    except Exception:
        raise
    except BaseException as interrupt:
        # After an exception such as KeyboardInterrupt, SQLAlchemy closes the connection but not its cursors, which a
        # reference cycle through the frames of the traceback keeps alive.
        with suppress(Exception):  # the connection or the event loop may be closed
            call.traits.forget_statement(call.cursor)
        clear_frames(interrupt.__traceback__)
        raise


def _replace_ids(call: DriverCall, error: Exception, *, is_repeatable: bool) -> None:
    """Replace the ids that have collided; raise *error* if it has another cause, or if no retry is possible."""
    ids = None
    try:
        ids = _find_ids_to_replace(call, error)
        if not ids or not is_repeatable or call.has_equal_rows:
            note_own_id(call, error)
            raise error
        replace_collided(call, ids)
    except Exception:
        # an error is already being raised, and an error of the recovery must not hide it
        if call.has_savepoint and not call.connection.invalidated:
            with suppress(call.dialect.dbapi.Error):
                call.recover()
                if call.is_later:  # earlier batches must not stay: make the transaction fail
                    call.send()
                call.release_savepoint()
        raise
    finally:
        if ids is None or ids:  # the frames of its traceback can hold a cursor
            error.__traceback__ = None


def _find_ids_to_replace(call: DriverCall, error: Exception) -> list[IdInRow]:
    """Return the ids that have to be replaced; none if *error* is not about ids made for the INSERT."""
    traits, dialect = call.traits, call.dialect
    violation = traits.violation(error)
    if violation is None:
        if traits.error_code(error) is None:
            warn_unguarded(dialect, f"the driver {dialect.driver} reports no number with the error")
        return []
    dbapi_connection = call.connection.connection.dbapi_connection
    # statements such as INSERT OR ROLLBACK end the transaction, and undo the earlier work of the caller
    if not (traits.in_transaction(dbapi_connection) or traits.in_autocommit(dbapi_connection)):
        return []
    call.recover()  # must come first: until then, PostgreSQL also refuses the SELECT for the taken ids
    with suppress(dialect.dbapi.Error):
        traits.forget_statement(call.cursor)
    ids = find_collided(call, violation)
    column = ids[0].column if ids else None
    # engines such as MyISAM keep the rows before the refused one: another run would insert them twice
    if column is not None and sum(id.column is column for id in call.ids) > 1:
        engine = traits.engine_without_transactions(
            call.connection, *names_of(column.table, schema_options(call.context))
        )
        if engine is not None and match_violation(violation, column, dialect) is Match.MAYBE:
            return []
        if engine is not None:
            raise rows_stayed(call, column, engine) from error
    return ids


_OWN_ID = (
    "The program has set a public id that a row has already. To store a row once, however often the program runs, "
    "write sqlalchemy_public_id.idempotency.insert_once(session, obj). To change that row, look it up: merge() finds "
    "rows by key. To store a copy of it, set the id of the copy to None."
)


def note_own_id(call: DriverCall, error: Exception) -> None:
    """Add a note to *error*, which is raised unchanged, if it is about an id that the application has set.

    Tracebacks show notes since Python 3.11.
    """
    violation, own = call.traits.violation(error), {id.column for id in call.ids if not id.is_made}
    if violation is not None and sys.version_info >= (3, 11):
        if any(match_violation(violation, column, call.dialect) is Match.YES for column in own):
            error.add_note(_OWN_ID)


# --- what operators see

_warned: weakref.WeakSet[Dialect] = weakref.WeakSet()


def warn_unguarded(dialect: Dialect, missing: str) -> None:
    """Log, once for each engine, that collisions are not retried, and what the database or the driver is *missing*."""
    if dialect not in _warned:
        _warned.add(dialect)
        logger.warning(
            "public ids on %s: a collision is raised instead of retried, because %s; "
            "ids are generated and validated as usual",
            dialect.name,
            missing,
        )


_replaced: Counter[str] = Counter()
_replaced_lock = threading.RLock()  # a signal handler or a finalizer may insert a row


def collisions() -> dict[str, int]:
    """Return a dict of table → how many collided ids this process has replaced, for metrics.

    Each replaced id is also logged as INFO by the logger ``sqlalchemy_public_id``.

    >>> from sqlalchemy_public_id import guard
    >>> sum(guard.collisions().values()) >= 0
    True
    """
    with _replaced_lock:
        return dict(_replaced)


def _note(column: Column[Any], tries: int) -> None:
    table = column.table.name
    with _replaced_lock:
        _replaced[table] += 1
    cause = public_id_type(column).id_format.collision_cause
    # the id is not logged: it may be a secret
    logger.log(
        logging.WARNING if cause else logging.INFO,
        "%s: a %s was already taken, and was replaced (try %d)%s",
        *(table, column.name, tries, f"; such ids never collide by chance: {cause}" if cause else ""),
    )


# --- the violated constraint


class Match(enum.Enum):
    """An answer that may be unknown: constraints can have other names in the database than in the metadata."""

    YES = enum.auto()
    NO = enum.auto()
    MAYBE = enum.auto()


def match_violation(violation: Violation, column: Column[Any], dialect: Dialect) -> Match:
    """Return YES if *violation* is about a unique index or constraint that contains *column*, alone or with others."""
    if violation.columns is not None:
        own_name = f"{column.table.name}.{column.name}"
        return Match.YES if own_name in (violation.columns, *violation.columns.split(", ")) else Match.NO
    if violation.constraint is None:
        return Match.MAYBE
    own, others = _constraint_names(column, dialect)
    reported = {violation.constraint, violation.constraint.removeprefix(f"{column.table.name}.")}
    if reported & own:
        return Match.YES
    return Match.NO if reported & others else Match.MAYBE


def _constraint_names(column: Column[Any], dialect: Dialect) -> tuple[set[str], set[str]]:
    """Return the names of the unique constraints and indexes that contain *column*, and of all others of the table."""
    table = column.table
    own: set[str] = set()
    others: set[str] = set()
    of_key = own if column.primary_key else others
    of_key |= {"PRIMARY", f"{table.name}_pkey"}
    prepare = dialect.identifier_preparer
    for constraint in table.constraints:
        name = prepare.format_constraint(constraint) if constraint.name is not None else None
        columns = list(constraint.columns if isinstance(constraint, (PrimaryKeyConstraint, UniqueConstraint)) else ())
        is_own = any(each is column for each in columns)  # comparing columns would build SQL
        if name is not None:
            (own if is_own else others).add(unquoted(name, dialect))
        elif is_own and len(columns) == 1:  # the names that PostgreSQL, MySQL and MariaDB generate
            own |= {f"{table.name}_{column.name}_key", column.name}
    for index in table.indexes:
        is_own = bool(index.unique) and any(each is column for each in index.columns)
        (own if is_own else others).add(unquoted(prepare.format_index(index), dialect))
    return own, others


# --- the collided ids


def find_collided(call: DriverCall, violation: Violation) -> list[IdInRow]:
    """Return the ids that have to be replaced; none if the violation is not about ids that were made."""
    collided: list[IdInRow] = []
    hidden: list[IdInRow] = []
    for column in dict.fromkeys(id.column for id in call.ids):
        match = match_violation(violation, column, call.dialect)
        if match is Match.NO:
            continue
        ids = [id for id in call.ids if id.column is column]
        # a single id needs no search, and so no privilege to SELECT
        is_known = match is Match.YES and len(ids) == 1
        duplicates = ids if is_known else list(_duplicates(call, ids, violation if match is Match.YES else None))
        collided += duplicates
        # the other row is hidden by row-level security, or was deleted since: it may have had any of the ids
        if not duplicates and match is Match.YES:
            hidden += ids
    # an id that the application set has collided, too, and must not be replaced
    if not all(id.is_made for id in collided + hidden):
        return []
    call.taken.update((id.column, id.beside, id.text) for id in collided)
    return collided + hidden


def _duplicates(call: DriverCall, ids: list[IdInRow], violation: Violation | None) -> Iterator[IdInRow]:
    """Yield those of *ids*, the ids of a column, that the error names, or that the table or another row has."""
    column = ids[0].column
    named = set[str]() if violation is None else _named(call, ids, violation)
    # ids that are unique only with other columns collide with those of rows that have equal values in them
    groups: defaultdict[tuple[Any, ...], list[IdInRow]] = defaultdict(list)
    for id in ids:
        groups[id.beside].append(id)
    is_read = not named or len(call.taken) >= _FEW or sees_commits(call.connection)
    texts = {id.text for id in ids} if is_read else set[str]()
    if len(groups) > 1 and texts:  # one statement says for most groups that no row has their ids
        texts = _readable(call, column, texts)
    for beside, group in groups.items():
        seen, candidates = {*named}, [id.text for id in group if id.text in texts]
        if candidates:
            seen |= _readable(call, column, candidates, beside)
        # ids that the application set come first: of two equal ids in the batch, the first one stays
        for id in sorted(group, key=lambda each: each.is_made):
            if id.text in seen:
                yield id
            seen.add(id.text)


def _named(call: DriverCall, ids: list[IdInRow], violation: Violation) -> set[str]:
    """Return the id that the database names in the error, if it is exactly one of *ids*."""
    name, value = violation.entry or (None, None)
    format = public_id_type(ids[0].column).id_format
    if name != ids[0].column.name:
        return set()
    named = [
        id.text
        for id in ids
        if id.text is not None and call.traits.format_in_error(to_database(format, id.text, call.dialect)) == value
    ]
    return set(named) if len(named) == 1 else set()


def _readable(call: DriverCall, column: Column[Any], texts: Iterable[str], beside: Sequence[Any] = ()) -> set[str]:
    """Return which *texts* are in the table; none if the role may INSERT, but not SELECT.

    :param beside: values of the columns with which the ids are unique: only rows that have them count.
    """
    stored: set[str] = set()
    options = schema_options(call.context)
    try:
        for condition in call.traits.any_of(column, list(texts), public_id_type(column).as_parameter):
            own = (other == value for other, value in zip(unique_with(column), beside, strict=False))
            query = select(column).where(condition, *own)
            if call.traits.reads_old_snapshot:  # a plain SELECT may miss the row that the INSERT collided with
                query = query.with_for_update(read=True)
            stored.update(call.connection.execute(query, execution_options=options).scalars())
    except DBAPIError as error:
        if not call.traits.is_permission_error(error):
            raise
        call.recover()
    return stored


def rows_stayed(call: DriverCall, column: Column[Any], engine: str) -> ConfigurationError:
    """Build the error for a refused INSERT some of whose rows a storage *engine* without transactions has kept."""
    texts = [id.text for id in call.ids if id.column is column]
    stored = len(_readable(call, column, texts))
    return ConfigurationError(
        f"an INSERT of {len(texts)} rows into {column.table.name} collided in {column.name}, and the engine "
        f"{engine} has no transactions: the rows before the collision stay ({stored} of the {len(texts)} ids are "
        f"in the table now), so the INSERT is not run again; insert one row at a time (flushes do so with "
        f"create_engine(…, use_insertmanyvalues=False)), "
        f"or change the table: ALTER TABLE {column.table.name} ENGINE=InnoDB"
    )


# --- new ids


def replace_collided(call: DriverCall, ids: list[IdInRow]) -> None:
    """Replace *ids* by ids that have not collided and that no other row has.

    :raises PublicIdCollision: if a row has used up its retries.
    """
    used: defaultdict[tuple[Column[Any], tuple[Any, ...]], set[str]] = defaultdict(set)
    for column, beside, text in call.taken:
        used[column, beside].add(text)
    groups = {(id.column, id.beside): used[id.column, id.beside] for id in ids}
    for id in call.ids:  # SQLAlchemy tells all rows apart by their ids, also those that cannot collide
        for (column, _), texts in groups.items():
            if column is id.column:
                texts.add(id.text)
    for id in ids:
        column, row = id.column, (id.at, id.name)
        new, call.tries[row] = another(public_id_type(column), column, groups[column, id.beside], call.tries[row])
        for (other, _), texts in groups.items():
            if other is column:
                texts.add(new)
        call.replace(id, new)
        _note(column, call.tries[row])
