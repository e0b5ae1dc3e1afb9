"""The parts of SQLAlchemy's internals that have no public twin. Tested on 2.0.40, 2.0.57 and 2.1.9.

Everything else uses documented names of SQLAlchemy; one private attribute of Alembic is read in ``alembic/toimpl.py``.
``tests/unit/test_compat.py`` holds one test for each function here, so that a new release of SQLAlchemy fails with the
name of the part that has changed.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from sqlalchemy import Column, Insert, Table, inspect
from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.orm import (
    InstanceState,
    LoaderCriteriaOption,
    Mapper,
    Session,
    attributes,
    registry,
)
from sqlalchemy.orm.exc import UnmappedClassError
from sqlalchemy.util import await_only, safe_reraise


def available(owner: object, name: str) -> bool:
    """Return True if *owner* has *name*, which SQLAlchemy or Alembic does not document.

    Whoever asks has a slower way without the name, with documented ones alone.
    """
    return hasattr(owner, name)


def post_values_clauses(insert: Insert) -> list[Any]:
    """Return the clauses after the VALUES of *insert*, such as ON CONFLICT and ON DUPLICATE KEY.

    SQLAlchemy 2.1 keeps several in one list element: SQLite takes more than one ON CONFLICT clause.
    """
    clause: Any = insert._post_values_clause
    if clause is None:
        return []
    return list(clause.clauses) if clause.__visit_name__ == "element_list" else [clause]


def updated_columns(clause: Any) -> set[str]:
    """Return the names of the columns that an ON CONFLICT DO UPDATE or ON DUPLICATE KEY UPDATE clause sets."""
    pairs: dict[Any, Any] | list[Any] | None = getattr(clause, "update_values_to_set", None)  # PostgreSQL, SQLite
    if pairs is None:
        pairs = getattr(clause, "update", None)  # MySQL, MariaDB
    columns = pairs.keys() if isinstance(pairs, dict) else [pair[0] for pair in pairs or ()]
    return {name for column in columns for name in _names(column)}


def _names(column: Any) -> set[str]:
    if isinstance(column, str):
        return {column}
    column = getattr(column, "expression", column)  # an attribute of a model
    return {str(getattr(column, attribute, column)) for attribute in ("key", "name")}


def has_many_rows(insert: Insert) -> bool:
    """Return True for ``insert().values([{…}, {…}])``."""
    return bool(insert._multi_values)


def has_own_values(insert: Insert) -> bool:
    """Return True for ``insert().values(…)``, whose values are not in the parameters of a row."""
    return insert._values is not None


def selected_names(insert: Insert) -> set[str]:
    """Return the names of the columns that ``insert().from_select()`` fills from the SELECT."""
    return {str(name) for name in insert._select_names or ()}


def plain_table(table: Any) -> Table:
    """Return *table* without the annotations that ``insert(Model)`` adds."""
    plain: Table = table._deannotate() if hasattr(table, "_deannotate") else table
    return plain


def inserted_table(compiled: Any) -> Table | None:
    """Return the table that a *compiled* INSERT writes; None if its statement is no INSERT, as around a CTE.

    ``session.execute(insert(Model), rows)`` writes each table of a joined inheritance by itself, compiled from the same
    statement, which has the table of the model.
    """
    table = getattr(compiled.statement, "table", None)
    state: Any = compiled.dml_compile_state
    return None if table is None else plain_table(table if state is None else state.dml_table)


def parameter_positions(compiled: Any) -> dict[str, int] | None:
    """Return name → position of the parameters of one row, or None if the driver takes them by name."""
    return {name: at for at, name in enumerate(compiled.positiontup or ())} if compiled.positional else None


def parameters_per_row(compiled: Any, parameters: Any) -> tuple[int, int]:
    """Return the number of *parameters* for each row of an "insertmanyvalues" batch, and for the statement as a whole.

    SQLAlchemy keeps the positional ones contiguous. To the named ones of each row it appends the number of the row.
    """
    if compiled.positional:
        width: int = compiled._insertmanyvalues.num_positional_params_counted
        return width, len(compiled.positiontup) - width
    escaped: dict[str, str] = compiled.escaped_bind_names or {}
    names = compiled.bind_names.values()
    width = sum(f"{escaped.get(name, name)}__0" in parameters for name in names)
    return width, len(names) - width


def sentinel_key(compiled: Any) -> Column[Any] | None:
    """Return the key that SQLAlchemy adds to the RETURNING of an "insertmanyvalues" batch, to sort its rows."""
    many = compiled._insertmanyvalues
    if many is None or not many.implicit_sentinel or not many.sort_by_parameter_order:
        return None
    column: Column[Any] = many.sentinel_columns[0]
    return column


def returned_columns(compiled: Any) -> list[Any]:
    """Return the columns in the RETURNING of an INSERT, those that SQLAlchemy adds included."""
    return list(compiled.effective_returning or ())


def without_lock(statement: Any) -> Any:
    """Return a SELECT without its FOR UPDATE.

    ``with_for_update()`` cannot be taken back. Tested on 2.0.40 to 2.1.9. If the name is missing, the SELECT keeps its
    lock, inside of a subquery, so that the statement around it may have a DISTINCT: it locks the rows that it reads.
    """
    if not available(statement, "_for_update_arg"):
        return statement.subquery().select()
    unlocked = statement.options()  # a copy
    unlocked._for_update_arg = None
    return unlocked


def is_sorted_or_limited(statement: Any) -> bool:
    """Return True if a SELECT has an ORDER BY, LIMIT, OFFSET or FETCH.

    Tested on 2.0.40 to 2.1.9. If a name is missing, it is compared with a copy that has none, which takes a tenth of
    the time of a page.
    """
    if available(statement, "_order_by_clauses") and available(statement, "_has_row_limiting_clause"):
        return bool(statement._order_by_clauses) or statement._has_row_limiting_clause
    return not statement.compare(statement.order_by(None).limit(None).offset(None))


def loader_criteria(statement: Any) -> list[Any] | None:
    """Return the ``with_loader_criteria()`` among the options of a SELECT; None if SQLAlchemy does not tell.

    Tested on 2.0.40 to 2.1.9. If the name is missing, the rows of all pages are loaded to count them.
    """
    if not available(statement, "_with_options"):
        return None
    return [option for option in statement._with_options if isinstance(option, LoaderCriteriaOption)]


def driver_rows(context: Any) -> list[Any]:
    """Return the rows that an INSERT has returned, as the driver returns them: no type has converted their values."""
    rows: list[Any] | None = context._insertmanyvalues_rows
    return context.cursor.fetchall() if rows is None else [*rows]


def return_rows(context: Any, rows: list[Any]) -> None:
    """Make *rows* what an "insertmanyvalues" batch returns, as the driver would; the sentinel is the last column.

    SQLAlchemy asks the execution for the rows of each batch. The next batch returns its own again.
    """

    def fetchall_for_returning(cursor: Any) -> list[Any]:
        del context.fetchall_for_returning
        return rows

    context.fetchall_for_returning = fetchall_for_returning


def default_columns(compiled: Any) -> dict[str, Column[Any]]:
    """Return the parameters of an INSERT that column defaults fill in each execution: name → column.

    The rows after the first of ``insert().values([…])`` have stand-ins, ``public_id_m1`` with an ``original``.
    """
    return {column.key: getattr(column, "original", column) for column in compiled.insert_prefetch}


def insert_listeners(mapper: Mapper[Any]) -> list[Callable[..., Any]]:
    """Return the functions that listen to INSERTs of *mapper*, and to what they have filled in.

    Those without ``raw`` and ``retval`` are wrapped.
    """
    events = mapper.dispatch
    return [*events.before_insert, *events.after_insert, *mapper.class_manager.dispatch.refresh_flush]


def flush_listeners(session: Session) -> list[Callable[..., Any]]:
    """Return the functions that listen to flushes of *session*."""
    events = session.dispatch
    return [*events.before_flush, *events.after_flush, *events.after_flush_postexec]


def are_transient(states: list[InstanceState[Any]]) -> bool:
    """Return True if none of *states* has a row or a session."""
    has_no_row = {*map(attrgetter("key"), states)} == {None}
    # the session of an object may be gone
    return has_no_row and ({*map(attrgetter("session_id"), states)} == {None} or all(each.transient for each in states))


def attributes_of(objects: list[Any]) -> list[dict[str, Any]]:
    """Return the attributes of each object that are set: its ``__dict__``, unless it is instrumented in another way."""
    return list(map(attributes.instance_dict, objects))


def is_watched(session: Session) -> bool:
    """Return True if something listens to objects that enter *session*, or that become persistent."""
    events = session.dispatch
    return bool(
        events.before_attach or events.after_attach or events.transient_to_pending or events.pending_to_persistent
    )


def register_pending(session: Session, states: Iterable[InstanceState[Any]]) -> None:
    """Add new objects as ``add_all()`` does, without its walk along relationships: none may be set."""
    for state in states:
        session._save_impl(state)


def register_persistent(session: Session, states: list[InstanceState[Any]]) -> None:
    """Make *states*, whose rows are stored, persistent, as the end of a flush; a rollback makes them transient."""
    session._register_persistent(set(states))


@contextmanager
def as_flush(session: Session) -> Generator[None]:
    """Roll back the transaction or savepoint if the block fails, and require the caller to end it, as a flush does.

    ``SessionTransaction.rollback()`` would end it in silence, and a later commit would be without the rows before.
    """
    transaction = session._autobegin_t()._begin()
    try:
        yield
        transaction.commit()
    except BaseException:
        with safe_reraise():
            transaction.rollback(_capture_exception=True)


def register_stored(
    session: Session, mapper: Mapper[Any], states: list[InstanceState[Any]], rows: list[dict[str, Any]], key: str
) -> None:
    """Make transient *states*, whose rows are stored, persistent: both steps at once, for a third of the time.

    :param rows: the attributes of each object.
    :param key: the attribute of the primary key, which has one column.
    """
    identity_map: Any = session.identity_map
    transaction = session._transaction
    class_ = mapper._identity_class
    identities = [(class_, (row.get(key),), state.identity_token) for row, state in zip(rows, states, strict=True)]
    known, new = identity_map._dict, dict(zip(identities, states, strict=True))
    is_usual = len(new) == len(states) and known.keys().isdisjoint(new) and (class_, (None,), None) not in new
    if transaction is None or not is_usual or is_watched(session):
        register_pending(session, states)
        register_persistent(session, states)
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
    known.update(new)
    transaction._new.update(dict.fromkeys(states, True))


def is_in_greenlet() -> bool:
    """Return True inside of a greenlet of SQLAlchemy, in which the calls of an asynchronous driver can wait.

    It waits for nothing, which is refused elsewhere. Other tasks are not run meanwhile.
    """
    try:
        await_only(_do_nothing())
    except MissingGreenlet:
        return False
    return True


async def _do_nothing() -> None: ...


def mapped_classes(registry: registry) -> list[Mapper[Any]]:
    """Return the mappers of *registry* by the names of their classes, without those of declarations that failed.

    ``registry.mappers`` raises for all of them if one declaration failed before its class had a mapper. Then they are
    found among all classes of the program, in some milliseconds.
    """
    try:
        mappers: Iterable[Any] = registry.mappers
    except UnmappedClassError:
        found: list[Any] = [inspect(each, raiseerr=False) for each in _subclasses(object)]
        mappers = {each for each in found if isinstance(each, Mapper) and each.registry is registry}
    whole = [mapper for mapper in mappers if hasattr(mapper, "primary_key")]
    return sorted(whole, key=lambda mapper: (mapper.class_.__name__, mapper.class_.__module__))


def _subclasses(class_: type[Any]) -> set[type[Any]]:
    """Return all classes below *class_*."""
    below: set[type[Any]] = set()
    left = [class_]
    while left:
        new = {*type.__subclasses__(left.pop())} - below
        below |= new
        left += new
    return below
