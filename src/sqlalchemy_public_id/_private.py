"""Names of SQLAlchemy that are not part of its public interface: why each is used, and the fallback without it.

Tested with SQLAlchemy 2.0.25, 2.0.58 and 2.1.9. If a release lacks a name, the library still works: it warns once
(``RuntimeWarning``), and uses the public interface, which is slower but equally correct. Four accesses have no public
fallback. Without the parameters of an execution (:func:`read_layout`), a collision raises the ``IntegrityError`` of the
database; without the columns that an upsert sets (:func:`updated_columns`), an upsert that changes ids is not refused;
without :func:`options_of`, ``lookup.pages()`` asks for ``where=`` for shared ids; and without :func:`is_distinct_on`, a
page of a statement with DISTINCT ON is not refused. ``SQLALCHEMY_PUBLIC_ID_PUBLIC_ONLY`` switches every fast path off.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from operator import attrgetter
from typing import Any, cast

from sqlalchemy import Column, Insert, Table, Update
from sqlalchemy.engine import ExecutionContext
from sqlalchemy.engine.interfaces import ExecuteStyle
from sqlalchemy.orm import InstanceState, LoaderCriteriaOption, Mapper, Session
from sqlalchemy.sql import compiler

IS_FAST: bool = "SQLALCHEMY_PUBLIC_ID_PUBLIC_ONLY" not in os.environ


def available(owner: object, name: str) -> bool:
    """Return True if *owner* has *name*, which SQLAlchemy or Alembic does not document."""
    return IS_FAST and hasattr(owner, name)


_warned: set[str] = set()


def _warn(effect: str, error: AttributeError) -> None:
    """Warn once about the *effect* of a missing name."""
    if effect not in _warned:
        _warned.add(effect)
        warnings.warn(
            f"this release of SQLAlchemy is not known to sqlalchemy-public-id ({error}): {effect}",
            RuntimeWarning,
            stacklevel=2,
        )


# --- the execution of an INSERT

_UNGUARDED = "collided public ids are not replaced, and raise the IntegrityError of the database"


@dataclass(frozen=True)
class ParameterLayout:
    """Where the values of a compiled INSERT are in the parameters of its executions."""

    prefetched: tuple[Any, ...] = ()
    """The columns whose defaults are called in each execution.

    After the first row, ``insert().values([…])`` has separate column objects, whose ``original`` is the column.
    """
    positions: dict[str, int] | None = None
    """Parameter → its position in the parameters of one row; None if the driver takes parameters by name."""
    escaped: Mapping[str, str] = field(default_factory=dict[str, str])
    """Parameter → its name for the driver, if the two differ."""
    width: int = 0
    """The number of positional parameters for each row of a batch. SQLAlchemy keeps them together."""
    returned: tuple[Any, ...] = ()
    """The columns in the RETURNING."""
    sentinel: tuple[Any, ...] = ()
    """The sentinels, after these columns: SQLAlchemy restores the order of a batch by the values that it sent."""
    sort_column: Any = None
    """A sentinel whose values the database generates instead: SQLAlchemy sorts the rows of a batch by it."""

    @property
    def defaults(self) -> dict[str, Column[Any]]:
        """Parameter → the column whose default fills it in each execution."""
        return {column.key: column_of_table(column) for column in self.prefetched}


def column_of_table(column: Any) -> Column[Any]:
    """Return the column of the table for one of :attr:`ParameterLayout.prefetched`."""
    # no getattr() on a Column of the table: it would try the comparator of its type, which takes microseconds
    return cast("Column[Any]", column if isinstance(column, Column) else getattr(column, "original", column))


def prefetched_columns(compiled: Any) -> list[Column[Any]]:
    """Return the columns of an INSERT whose defaults are Python functions; none if this is unknown."""
    return list(getattr(compiled, "insert_prefetch", ()))


def read_layout(context: ExecutionContext) -> ParameterLayout | None:
    """Return the layout of the INSERT that *context* is about to execute; None if it is unknown.

    The guard cannot work without this access: only the event ``do_execute`` sees a statement fail, and it receives the
    parameters as they are passed to the driver.
    """
    compiled: Any = context.compiled
    try:
        # each execution reads these: check them before the first one, and not after a collision
        attrgetter("compiled_parameters", "root_connection", "execute_style", "execution_options")(context)
        attrgetter("EXECUTEMANY", "INSERTMANYVALUES")(ExecuteStyle)
        many: Any = compiled._insertmanyvalues
        positional: bool = compiled.positional
        last: tuple[Any, ...] = () if many is None else tuple(many.sentinel_columns or ())
        are_sent = many is not None and bool(many.sentinel_param_keys)
        for column in compiled.insert_prefetch:
            if not isinstance(column, Column):
                attrgetter("original")(column)
        return ParameterLayout(
            prefetched=tuple(compiled.insert_prefetch),
            positions={name: at for at, name in enumerate(compiled.positiontup or ())} if positional else None,
            escaped=compiled.escaped_bind_names or {},
            width=many.num_positional_params_counted if many is not None and positional else 0,
            returned=tuple(compiled.effective_returning or ()),
            sentinel=last if are_sent else (),
            sort_column=last[0] if last and not are_sent else None,
        )
    except AttributeError as error:
        _warn(_UNGUARDED, error)
        return None


def is_known_row(names: tuple[str, ...], parameters: Mapping[str, Any]) -> bool:
    """Return True if *parameters*, whose names have no row number, are the parameters *names* of a single row."""
    if not (is_known := set(parameters) == set(names)):
        _warn(_UNGUARDED, AttributeError("the parameters of several rows have names of another form"))
    return is_known


def sent_parameters(result: Any) -> list[dict[str, Any]] | None:
    """Return the parameters of each row that an INSERT has sent; None if they are unknown: then, no id is replaced."""
    return cast("list[dict[str, Any]] | None", getattr(result.context, "compiled_parameters", None))


def change_returned_rows(context: ExecutionContext, change: Callable[[Sequence[Any]], list[Any]]) -> None:
    """Let *change* replace the rows, as the driver returns them, of the batch that *context* has just executed.

    SQLAlchemy keeps the ids of a batch before the guard replaces some of them, and looks for the kept ids in the last
    columns of the returned rows. The change applies to the rows of this batch only.
    """
    execution: Any = context

    def fetchall_for_returning(cursor: Any) -> list[Any]:
        del execution.fetchall_for_returning
        return change(execution.fetchall_for_returning(cursor))

    execution.fetchall_for_returning = fetchall_for_returning


def make_sentinel(column: Column[Any]) -> None:
    """Let SQLAlchemy tell the rows of a batch apart by *column*, as ``insert_sentinel=True`` does.

    A flush needs the keys of its rows in the order of its objects. SQLite returns rows in any order, so SQLAlchemy
    sends one INSERT per object without a sentinel; on PostgreSQL, the returned ids show which rows were skipped. The
    argument of the column is public, but a table may have only one sentinel, and refuses a second one, such as the
    ``SentinelMixin`` of an application. Here, the table is complete, and its own sentinel has precedence.
    """
    table: Any = column.table
    batch = getattr(compiler, "_InsertManyValuesBatch", None)
    # before 2.0.29, SQLAlchemy matches the rows by the values that the driver sends, and not by the ids
    is_matched_by_ids = batch is None or "sentinel_values" in batch._fields
    if not (IS_FAST and is_matched_by_ids and isinstance(table, Table)):
        return
    try:
        _ = ExecutionContext.fetchall_for_returning
        if table._sentinel_column is None:
            table._sentinel_column = column
    except AttributeError as error:
        _warn("on SQLite a flush sends an INSERT for each object, on PostgreSQL it has savepoints", error)


_SEES_INFO: bool = IS_FAST and (_probe := Column[Any]()).info == {} and "info" in vars(_probe)  # made when it is read


def has_info(column: Column[Any]) -> bool:
    """Return True if *column* has a dictionary ``info``: reading it would make one for every column of a program."""
    return not _SEES_INFO or "info" in vars(column)


# --- flushes, and the statements of programs

session_token: Callable[[InstanceState[Any]], object] = attrgetter(
    "session_id" if available(InstanceState, "session_id") else "session"
)
"""Return an object that is equal for two states if they belong to the same session, and None without a session.

A flush calls this for each object. The public ``InstanceState.session`` calls three functions, the attribute none.
"""


def updated_columns(clause: Any) -> set[str]:
    """Return the names of the columns that an ON CONFLICT DO UPDATE or ON DUPLICATE KEY UPDATE clause sets."""
    if clause.__visit_name__ == "on_conflict_do_nothing":
        return set()
    try:  # MySQL and MariaDB have clause.update
        pairs: Any = clause.update_values_to_set if hasattr(clause, "update_values_to_set") else clause.update
    except AttributeError as error:
        _warn("upserts that change public ids are not refused", error)
        return set()
    columns: list[Any] = [*pairs] if isinstance(pairs, dict) else [pair[0] for pair in pairs or ()]
    return {name for column in columns for name in _names(column)}


def _names(column: Any) -> set[str]:
    if isinstance(column, str):
        return {column}
    column = getattr(column, "expression", column)  # an attribute of a model
    return {str(getattr(column, attribute, column)) for attribute in ("key", "name")}


def names_in_values(update: Update) -> set[str] | None:
    """Return the names that ``update().values(…)`` sets; None if they are unknown: then references are read again."""
    values: Any = update._values if available(update, "_values") else None
    return {name for column in values for name in _names(column)} if values else None


def has_own_values(insert: Insert) -> bool:
    """Return True for ``insert().values(…)``, whose values are not in the parameters of a row, or if this is unknown.

    A row of such an INSERT cannot be sent again alone, so the INSERT is executed inside a savepoint on PostgreSQL.
    """
    try:
        return insert._values is not None
    except AttributeError as error:
        _warn("on PostgreSQL INSERTs of several rows have savepoints", error)
        return True


def inserted_table(compiled: Any, insert: Insert) -> Any:
    """Return the table of a compiled *insert*: for one of the tables of a joined inheritance, *insert* has the model.

    If the name is missing, the keys of the others are not compared with their counters.
    """
    return compiled.compile_state.dml_table if available(compiled.compile_state, "dml_table") else insert.table


def has_many_rows(insert: Insert) -> bool:
    """Return True for ``insert().values([…])``, which has all rows in one set of parameters, or if this is unknown."""
    try:
        return bool(insert._multi_values)
    except AttributeError as error:
        _warn("on PostgreSQL INSERTs have savepoints", error)
        return True


def has_own_compilation(construct: type[Any]) -> bool:
    """Return True if a program has a ``@compiles`` of *construct*, which ours would replace; False without it."""
    return available(construct, "_compiler_dispatcher")


# --- lookups


def without_lock(statement: Any) -> Any:
    """Return a SELECT without its FOR UPDATE.

    ``with_for_update()`` cannot be undone. If the name is missing, the SELECT keeps its FOR UPDATE inside a subquery,
    so that the statement around it may have a DISTINCT: the rows that it reads are locked.
    """
    if not available(statement, "_for_update_arg"):
        return statement.subquery().select()
    unlocked = statement.options()  # a copy
    unlocked._for_update_arg = None
    return unlocked


def is_distinct_on(statement: Any) -> bool:
    """Return True if a SELECT has a DISTINCT ON; False if it is unknown: then its pages may have other rows."""
    return IS_FAST and not {"_distinct_on", "_pre_columns_clause"}.isdisjoint(cast("dict[str, Any]", vars(statement)))


def options_of(statement: Any) -> tuple[Any, ...] | None:
    """Return the options of a SELECT; None if they are unknown: then more statements are sent."""
    return tuple(statement._with_options) if available(statement, "_with_options") else None


def loader_criteria(statement: Any) -> list[Any] | None:
    """Return the ``with_loader_criteria()`` among the :func:`options_of` a SELECT; None if they are unknown."""
    options = options_of(statement)
    return None if options is None else [each for each in options if isinstance(each, LoaderCriteriaOption)]


def may_change_statements(session: Session, *, besides: str) -> bool:
    """Return True if a listener to ``do_orm_execute`` may change the statements of *session*, or if this is unknown.

    If the name is missing, a page with a cursor selects one more row.

    :param besides: a package whose own listeners do not count.
    """
    return not (available(session, "dispatch") and _are_of(besides, session.dispatch.do_orm_execute))


def _are_of(package: str, listeners: Iterable[object]) -> bool:
    # a method of a built-in type has no module
    return all(str(getattr(each, "__module__", None)).startswith(f"{package}.") for each in listeners)


# --- objects whose rows are stored without a flush


def can_persist(session: Session, state: InstanceState[Any]) -> bool:
    """Return True if :func:`as_flush` and :func:`persist` can be used; otherwise, a flush inserts the objects.

    The unit of work makes the objects of a flush persistent, so that a rollback makes them transient again. No public
    function does so for rows that are stored in another way. The transaction of *session* must have begun.
    """
    transaction: Any = session.get_nested_transaction() or session.get_transaction()
    needed: list[tuple[object, str]] = [
        (session, "_register_persistent _transaction hash_key"),
        (session.identity_map, "_dict _wr"),
        (transaction, "_begin _new"),
        (state.mapper, "_identity_class"),
        (state, "_instance_dict _orphaned_outside_of_session _strong_obj committed_state expired expired_attributes"),
        (state, "identity_token key modified session_id"),
    ]
    try:
        for owner, names in needed:
            attrgetter(*names.split())(owner)
        if "_capture_exception" not in signature(transaction.rollback).parameters:
            raise AttributeError("rollback() has no _capture_exception")
    except AttributeError as error:
        _warn("bulk.insert() takes the time of a flush", error)
        return False
    return IS_FAST


def has_listeners(session: Session, mapper: Mapper[Any], *, besides: str) -> bool:
    """Return True if something listens to flushes of *session*, or to INSERTs of *mapper*, or if this is unknown.

    :param besides: a package whose own listeners do not count. SQLAlchemy must not wrap them in another function, as it
        does for ``retval``, and without ``raw`` for an object of a session.
    """
    of_session = "before_flush after_flush after_flush_postexec before_attach after_attach transient_to_pending"
    watched: list[tuple[Any, str]] = [
        (session, f"{of_session} pending_to_persistent"),
        (mapper, "before_insert after_insert"),
        (mapper.class_manager, "refresh_flush"),
    ]
    try:
        found = [each for owner, names in watched for name in names.split() for each in getattr(owner.dispatch, name)]
    except AttributeError as error:
        _warn("bulk.insert() takes the time of a flush", error)
        return True
    return not _are_of(besides, found)


@contextmanager
def as_flush(session: Session) -> Generator[None]:
    """Roll back the transaction or savepoint if the block fails, and require the caller to end it, as a flush does.

    ``SessionTransaction.rollback()`` would end it silently, and a later commit would lack the earlier rows.
    """
    begun: Any = session.get_nested_transaction() or session.get_transaction()
    transaction = begun._begin()
    try:
        yield
        transaction.commit()
    except BaseException:
        transaction.rollback(_capture_exception=True)
        raise


def persist(session: Session, states: list[InstanceState[Any]], rows: list[dict[str, Any]]) -> None:
    """Make transient *states* of one model, whose rows are stored, persistent, as a flush does, in a third of the time.

    :param rows: the attributes of each object. The primary key has one column.
    """
    identity_map: Any = session.identity_map
    transaction: Any = session._transaction
    mapper = states[0].mapper
    key, class_ = mapper.get_property_by_column(mapper.primary_key[0]).key, mapper._identity_class
    identities = [(class_, (row.get(key),), state.identity_token) for row, state in zip(rows, states, strict=True)]
    present, new = identity_map._dict, dict(zip(identities, states, strict=True))
    # the session may still hold an object whose row was deleted, and whose key the database has issued again
    if len(new) < len(states) or not present.keys().isdisjoint(new) or (class_, (None,), None) in new:
        session.add_all(state.obj() for state in states)
        session._register_persistent(set(states))
        return
    number, reference = session.hash_key, identity_map._wr
    for identity, state in new.items():
        state.key = identity
        state.session_id = number
        state._instance_dict = reference
        state.committed_state.clear()
        if state.expired_attributes:
            state.expired_attributes.difference_update(state.dict)
        state.modified = state.expired = False
        state._strong_obj = None
        if state._orphaned_outside_of_session:
            state._orphaned_outside_of_session = False
    if mapper.relationships:
        for state in states:
            vars(state).pop("_pending_mutations", None)
    present.update(new)
    transaction._new.update(dict.fromkeys(states, True))
