"""The events of mappers, attributes and sessions that make, check and protect the ids of objects.

* **Before the INSERT** (``before_insert``) an object without an id gets one; two objects of a flush never get the same.
* **On first access** of an object that is not flushed yet (``init_scalar``) the id is made at once, so that
  ``User().public_id`` is known before the flush.
* **On assignment** (``set``) the id is checked; that of a stored row cannot change (:class:`ImmutablePublicId`). If it
  is not loaded, nothing is loaded for that: the flush compares (``before_update``).

The listeners are set up with the mapper: :func:`watch` is called when the first column type is made, never at import.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, cast

from sqlalchemy import Column, FromClause, Table, event, select
from sqlalchemy.engine import Connection
from sqlalchemy.orm import InstanceState, LoaderCallableStatus, Mapper, QueryableAttribute, Session
from sqlalchemy.orm.attributes import AttributeEventToken, instance_state, set_committed_value

from sqlalchemy_public_id import guard, registry
from sqlalchemy_public_id.copying import watch_merges
from sqlalchemy_public_id.errors import ConfigurationError, ImmutablePublicId, shown
from sqlalchemy_public_id.guard import pending
from sqlalchemy_public_id.guard.attempt import exhausted
from sqlalchemy_public_id.inspection import MIXED_IN, id_attributes
from sqlalchemy_public_id.marks import marks_of, replace
from sqlalchemy_public_id.types import (
    is_copy,
    is_expression,
    max_retries,
    public_id_type,
    when_first_used,
)

__all__ = [
    "are_others_listening",
    "ensure_ids",
    "preparations",
    "watch",
]

preparations: list[Callable[[Session, Iterable[object]], None]] = []
"""What a flush does with objects before it sends them, for those who send objects without one."""

_connections: weakref.WeakKeyDictionary[Session, weakref.WeakSet[Connection]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
_watching = False


def watch() -> None:
    """Listen to mappers and sessions. Safe to call again."""
    global _watching
    with _lock:
        if not _watching:
            _watching = True
            event.listen(Mapper, "mapper_configured", _on_mapper_configured)
            event.listen(Session, "after_begin", _on_begin)
            event.listen(Session, "after_flush", _on_flushed)
            event.listen(Session, "after_soft_rollback", _on_rolled_back)
            event.listen(Session, "pending_to_transient", _on_taken_back)
            event.listen(Session, "persistent_to_transient", _on_row_taken_back)


def ensure_ids(
    states: Sequence[InstanceState[Any]], attributes: dict[str, Column[Any]], connection: Connection
) -> None:
    """Give the objects of *states* the ids they lack, and note for *connection* which ones may be replaced."""
    waiting = pending.of(connection)
    if waiting is None:
        guard.install_for(connection)
        waiting = pending.begin(connection, states[0].session)
    columns = [(key, column, public_id_type(column).next_id) for key, column in attributes.items()]
    for state in states:
        values, marks = state.dict, marks_of(state)
        for key, column, next_id in columns:
            value = values.get(key)
            if value is None or key in marks.settled:
                value = next_id()
                if key in marks.settled:
                    marks.forget(key)
            elif key in marks.made:
                marks.made -= {key}  # the row has it from now on; a rollback marks it again
                waiting.shown.add((column, value))
            else:
                marks = marks_of(state, create=True)
                marks.give(key)
                if not is_expression(value):
                    _make_room(waiting, column, value, connection)
                continue
            if waiting.setdefault((column, value), state) is not state:
                value = _another(waiting, column, connection)
                waiting[column, value] = state
                if values.get(key) is not None:
                    replace(state, key, value)
            values[key] = value


def _make_room(waiting: pending.Pending, column: Column[Any], given: str, connection: Connection) -> None:
    """Note the id *given* by the caller; an object of the same flush that drew it gets another one, if it still can."""
    other = waiting.get((column, given))
    if other is not None and (column, given) not in waiting.shown and _is_unwritten(other):
        pending.replace(waiting, column, given, _another(waiting, column, connection))
    waiting[column, given] = None


def _is_unwritten(state: InstanceState[Any]) -> bool:
    """Whether the row of *state* was surely not sent yet: then the database would have told its key."""
    mapper = state.mapper
    return all(state.dict.get(mapper.get_property_by_column(key).key) is None for key in mapper.primary_key)


def are_others_listening(session: Session, mapper: Mapper[Any]) -> bool:
    """Whether the program itself listens to flushes of *session* or to INSERTs of *mapper*."""
    flushes = session.dispatch.before_flush, session.dispatch.after_flush, session.dispatch.after_flush_postexec
    return (
        not all(map(_is_ours, chain(*flushes)))
        or len(list(mapper.dispatch.before_insert)) > 1  # one is ours, inside a function of SQLAlchemy's
        or len(list(mapper.dispatch.after_insert)) > 0
    )


def _is_ours(listener: Callable[..., Any]) -> bool:
    return getattr(listener, "__module__", "").startswith(f"{__package__}.")


def _another(waiting: pending.Pending, column: Column[Any], connection: Connection) -> str:
    """An id that no other row of the flush has."""
    type_ = public_id_type(column)
    for _ in range(max_retries(column)):
        value = type_.next_id()
        if (column, value) not in waiting:
            return value
    raise exhausted(connection, column)


# --- mappers


def _on_mapper_configured(mapper: Mapper[Any], model: type[Any]) -> None:
    attributes = id_attributes(mapper)
    if _is_declared_here(mapper, model):
        _refuse_two_declarations(mapper, model, attributes)
    if not attributes:
        return
    for key, column in attributes.items():
        _listen_to_attribute(mapper.class_manager[key], column)
    watch_merges(mapper, attributes)
    inherited = id_attributes(mapper.inherits).values() if mapper.inherits is not None else ()
    own = [column for column in attributes.values() if not any(column is other for other in inherited)]
    if not own and "__public_id__" in vars(model):
        raise ConfigurationError(
            f"{model.__name__} has the public id of the model it inherits from, and cannot have another format for it; "
            f"remove __public_id__"
        )
    for column in own:
        registry.remember_model(column.table, column.key, model)
    originals = [column for column in own if not is_copy(column)]
    if originals:
        owner = _owner(mapper)
        registry.models(mapper.registry).claim(owner, *(public_id_type(column).id_format for column in originals))

    def before_insert(_: Mapper[Any], connection: Connection, state: InstanceState[Any]) -> None:
        ensure_ids((state,), attributes, connection)

    def before_update(_: Mapper[Any], connection: Connection, state: InstanceState[Any]) -> None:
        _refuse_another_id(state, attributes, connection)

    event.listen(mapper, "before_insert", before_insert, raw=True)
    event.listen(mapper, "before_update", before_update, raw=True)
    event.listen(model, "expire", _on_expire, raw=True)


def _is_declared_here(mapper: Mapper[Any], model: type[Any]) -> bool:
    """Return True if *model* has a mixin and a table of its own; not if its table is a copy, a query or a union."""
    table: FromClause = mapper.local_table
    if not (hasattr(model, "__public_id__") and isinstance(table, Table)):
        return False
    return not any(map(is_copy, cast("Table", table).columns))


def _refuse_two_declarations(mapper: Mapper[Any], model: type[Any], attributes: dict[str, Column[Any]]) -> None:
    if not attributes:
        raise ConfigurationError(
            f"{model.__name__} declares public_id itself, beside the mixin that adds it; "
            f"remove it, or write public_id_column() instead of the mixin"
        )
    keys = [key for key in mapper.primary_key if isinstance(key, Column)]
    others = [key.name for key in keys if MIXED_IN not in key.info]
    if others and len(others) < len(keys):
        raise ConfigurationError(
            f"{model.__name__} has a key of its own, {', '.join(others)}, and PublicIdMixin adds another one; "
            f"use PublicIdColumnMixin"
        )


def _owner(mapper: Mapper[Any]) -> type[Any]:
    """Return the model to which the ids belong: the topmost one of concrete tables that share one format."""
    owner = mapper
    while owner.concrete and owner.inherits is not None and hasattr(owner.inherits.class_, "__public_id__"):
        owner = owner.inherits
    return owner.class_


def _listen_to_attribute(attribute: QueryableAttribute[Any], column: Column[Any]) -> None:
    key, type_ = attribute.key, public_id_type(column)

    def on_first_access(state: InstanceState[Any], value: Any, values: dict[str, Any]) -> Any:
        if state.has_identity or (key in marks_of(state).settled and not state.pending):
            return value
        made = values[key] = make_early(state)
        return made

    def make_early(state: InstanceState[Any]) -> str:
        marks_of(state, create=True).make(key)
        return type_.next_id()

    def on_set(state: InstanceState[Any], value: Any, old: Any, initiator: AttributeEventToken) -> Any:
        model = state.class_.__name__
        if state.has_identity and old is not None:  # a row from before the column was filled has none yet
            same = type_.canonical(value)
            if same is not None and state.committed_state.get(key, "") is LoaderCallableStatus.NO_VALUE:
                return same  # as what was assigned before: the flush compares
            if isinstance(old, str) and old in (value, same):
                return old
            if isinstance(old, str) or same is None:
                raise _immutable(model, key, old if isinstance(old, str) else None, value)
            return same  # that of the row is not loaded: the flush compares
        if value is None:  # "make me one", as the constructors of dataclasses and SQLModel say it
            made = make_early(state)
            if state.has_identity:
                marks_of(state).give(key)
            else:
                marks_of(state).asked |= {key}
            return made
        checked = value if is_expression(value) else type_.checked(value, field=f"{model}.{key}")
        marks_of(state, create=True).give(key)
        return checked

    def on_delete(state: InstanceState[Any], value: Any, initiator: AttributeEventToken) -> None:
        if state.has_identity:
            raise _immutable(state.class_.__name__, key, value if isinstance(value, str) else None, None)
        marks_of(state, create=True).forget(key)

    event.listen(attribute, "init_scalar", on_first_access, raw=True, retval=True)
    event.listen(attribute, "set", on_set, raw=True, retval=True)
    event.listen(attribute, "remove", on_delete, raw=True)


def _immutable(model: str, key: str, old: object, new: object) -> ImmutablePublicId:
    """Build the error for a stored row; *old* is None if the id of the row is not loaded."""
    return ImmutablePublicId(
        f"{model}.{key} is {'stored' if old is None else shown(old)} and cannot become {shown(new)}: links to the row "
        f"would break; to give the row another id on purpose, execute an UPDATE statement",
        model=model,
        attribute=key,
        old=old,
        new=new,
    )


def _refuse_another_id(state: InstanceState[Any], attributes: dict[str, Column[Any]], connection: Connection) -> None:
    """Compare ids that were assigned while that of the row was not loaded; equal ones are no change."""
    for key in attributes.keys() & state.committed_state.keys():
        if state.committed_state[key] is None:
            continue  # the row had none
        stored, assigned = _stored_id(state, key, connection), state.dict.get(key)
        if stored is not None and stored != assigned:
            raise _immutable(state.class_.__name__, key, stored, assigned)
        if stored is not None:
            set_committed_value(state.obj(), key, stored)


def _stored_id(state: InstanceState[Any], key: str, connection: Connection) -> str | None:
    mapper = state.mapper
    own = mapper.class_manager  # of the class itself: those of the base would be those of another table
    query = select(own[key])
    for column, value in zip(mapper.primary_key, cast("tuple[Any, ...]", state.identity), strict=True):
        query = query.where(own[mapper.get_property_by_column(column).key] == value)
    return connection.execute(query).scalar()


def _on_expire(state: InstanceState[Any], names: object) -> None:
    """``make_transient_to_detached()`` expires an object that has a row from now on, and so another id."""
    marks = marks_of(state)
    if marks.made and state.has_identity:
        for key in marks.made:
            state.dict.pop(key, None)
            state.expired_attributes.add(key)
            marks.forget(key)


# --- sessions


def _on_begin(session: Session, transaction: object, connection: Connection) -> None:
    guard.install_for(connection)
    _connections.setdefault(session, weakref.WeakSet()).add(connection)


def _on_flushed(session: Session, context: object) -> None:
    for connection in _connections.get(session, ()):
        pending.drop(connection, session)


def _on_rolled_back(session: Session, previous: object) -> None:
    _on_flushed(session, previous)


def _on_row_taken_back(session: Session, instance: object) -> None:
    """The row of *instance* is rolled back: an id that the library made for it may be replaced again."""
    state = instance_state(instance)
    for key in _attributes_of(state):
        if state.dict.get(key) is not None and key not in marks_of(state).given:
            marks_of(state, create=True).make(key)


def _on_taken_back(session: Session, instance: object) -> None:
    """The INSERT of *instance* has failed, or it was expunged before: the same for what this flush has made."""
    state = instance_state(instance)
    for key, column in _attributes_of(state).items():
        drawn = column, cast("str", state.dict.get(key))
        flushes = map(pending.of, _connections.get(session, ()))
        if any(flush is not None and flush.get(drawn) is state for flush in flushes):
            marks_of(state, create=True).make(key)


def _attributes_of(state: InstanceState[Any]) -> dict[str, Column[Any]]:
    """Return the public ids of an object; of one that is not mapped, or not any more, there are none."""
    mapper: Mapper[Any] | None = state.manager.mapper if state.manager.is_mapped else None
    return {} if mapper is None else id_attributes(mapper)


when_first_used(watch)
