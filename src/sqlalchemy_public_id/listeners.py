"""What happens to a mapped attribute that holds a public id.

* **Before the INSERT** (``before_insert``) an object without an id gets one; two objects of a flush never get the same.
* **On first access** of an object that is not flushed yet (``init_scalar``) the id is made at once, so that
  ``User().public_id`` is known before the flush.
* **On assignment** (``set``) the id is checked; that of a stored row cannot change (:class:`ImmutablePublicId`).

The listeners are set up with the mapper: :func:`watch` is called when the first column type is made, never at import.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, cast

from sqlalchemy import Column, event, inspect
from sqlalchemy.engine import Connection
from sqlalchemy.orm import InstanceState, Mapper, QueryableAttribute, Session, scoped_session
from sqlalchemy.orm.attributes import AttributeEventToken, instance_state

from sqlalchemy_public_id import guard, registry
from sqlalchemy_public_id._compat import is_merged
from sqlalchemy_public_id.errors import ConfigurationError, ImmutablePublicId, shown
from sqlalchemy_public_id.guard import pending
from sqlalchemy_public_id.guard.attempt import exhausted
from sqlalchemy_public_id.types import is_public_id, max_retries, public_id_type, when_first_used

__all__ = [
    "are_others_listening",
    "ensure_ids",
    "id_attributes",
    "identifier",
    "is_sharded",
    "preparations",
    "require_session",
    "session_of",
    "watch",
]

_GIVEN = "sqlalchemy_public_id.given"
"""In the ``info`` of an object's state: the names of the attributes whose id the caller gave."""

MIXED_IN = "sqlalchemy_public_id.mixed_in"
"""In the ``info`` of a column: it is the key that a mixin adds."""

_SHOWN = "sqlalchemy_public_id.shown"
"""In the same place: the program has seen an id that the library made, and may have copied it."""

preparations: list[Callable[[Session, Iterable[object]], None]] = []
"""What a flush does with objects before it sends them, for those who send objects without one."""

_attributes: weakref.WeakKeyDictionary[Mapper[Any], dict[str, Column[Any]]] = weakref.WeakKeyDictionary()
_connections: weakref.WeakKeyDictionary[Session, weakref.WeakSet[Connection]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
_watching = False


def watch() -> None:
    """Begin to look at mappers and sessions. Safe to call again."""
    global _watching
    with _lock:
        if not _watching:
            _watching = True
            event.listen(Mapper, "mapper_configured", _on_mapper_configured)
            event.listen(Session, "after_begin", _on_begin)
            event.listen(Session, "after_flush", _on_flushed)
            event.listen(Session, "after_soft_rollback", _on_rolled_back)
            event.listen(Session, "pending_to_transient", _on_taken_back)
            event.listen(Session, "persistent_to_transient", _on_taken_back)


def id_attributes(mapper: Mapper[Any]) -> dict[str, Column[Any]]:
    """Attribute name → column, for the public ids of *mapper*, those of the models it inherits from included."""
    found = _attributes.get(mapper)
    if found is None:
        found = {prop.key: prop.columns[0] for prop in mapper.column_attrs if is_public_id(prop.columns[0])}
        if mapper.configured:  # until then, attributes can come to it
            _attributes[mapper] = found
    return found


def identifier(model: Any, attribute: str | None = None) -> tuple[str, Column[Any]]:
    """The name and the column of the public id of *model* that is meant: the one named, the only one, or ``public_id``.

    :raises ConfigurationError: where there is none, or several and none is named.
    """
    mapper = cast("Mapper[Any] | InstanceState[Any] | None", inspect(model, raiseerr=False))
    if not isinstance(mapper, Mapper):
        but = f", but an object of one: pass {type(model).__name__}" if mapper is not None else ""
        raise ConfigurationError(f"{shown(model)} is not a mapped class{but}")
    attributes = id_attributes(mapper)
    if not attributes:
        raise ConfigurationError(
            f"{mapper.class_.__name__} has no public id; add PublicIdMixin or public_id_column() to it"
        )
    if attribute is None:
        attribute = next(iter(attributes)) if len(attributes) == 1 else "public_id"
    if attribute not in attributes:
        raise ConfigurationError(
            f"{mapper.class_.__name__} has no public id {shown(attribute)}; name one of {', '.join(attributes)} "
            f"with attribute=…"
        )
    return attribute, attributes[attribute]


def require_session(session: object) -> None:
    """Refuse what is no synchronous session: a connection would answer as well, with a key."""
    if not isinstance(session, (Session, scoped_session)):
        kind = type(session).__name__
        hint = "import it from sqlalchemy_public_id.asyncio" if hasattr(session, "run_sync") else "pass a Session"
        raise TypeError(f"expected a Session, not {kind}: {hint}")


def session_of(session: Session | scoped_session[Session]) -> Session:
    """*session*, or the one that a scoped session has; refuses what :func:`require_session` refuses."""
    require_session(session)
    return session() if isinstance(session, scoped_session) else session


def is_sharded(session: Session | scoped_session[Session]) -> bool:
    """Whether *session* has several databases. Where the module is not loaded, there is none of its sessions."""
    session = session_of(session)
    module = sys.modules.get("sqlalchemy.ext.horizontal_shard")
    return module is not None and isinstance(session, module.ShardedSession)


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
        values = state.dict
        for key, column, next_id in columns:
            value = values.get(key)
            if value is None:
                value = next_id()
            elif pending.early.get((column, value)) is state:
                del pending.early[column, value]
            elif _SHOWN not in state.info or key in state.info.get(_GIVEN, ()):
                _make_room(waiting, column, value, connection)
                continue
            if waiting.setdefault((column, value), state) is not state:
                value = _another(waiting, column, connection)
                waiting[column, value] = state
            values[key] = value


def _make_room(waiting: pending.Pending, column: Column[Any], given: str, connection: Connection) -> None:
    """Note the id *given* by the caller; an object of the same flush that drew it gets another one, if it still can."""
    other = waiting.get((column, given))
    if other is not None and _SHOWN not in other.info and _is_unwritten(other):
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
    _refuse_two_declarations(mapper, model, attributes)
    if not attributes:
        return
    for key, column in attributes.items():
        _listen_to_attribute(mapper.class_manager[key], column)
    inherited = id_attributes(mapper.inherits).values() if mapper.inherits is not None else ()
    own = [column for column in attributes.values() if not any(column is other for other in inherited)]
    if not own and "__public_id__" in vars(model):
        raise ConfigurationError(
            f"{model.__name__} has the public id of the model it inherits from, and cannot have another format for it; "
            f"remove __public_id__"
        )
    for column in own:
        registry.remember_model(column.table, column.key, model)
    if own:
        registry.models(mapper.registry).claim(model, *(public_id_type(column).id_format for column in own))

    def before_insert(_: Mapper[Any], connection: Connection, state: InstanceState[Any]) -> None:
        ensure_ids((state,), attributes, connection)

    event.listen(mapper, "before_insert", before_insert, raw=True)


def _refuse_two_declarations(mapper: Mapper[Any], model: type[Any], attributes: dict[str, Column[Any]]) -> None:
    if not attributes and hasattr(model, "__public_id__"):
        raise ConfigurationError(
            f"{model.__name__} declares public_id itself, beside the mixin that adds it; "
            f"remove it, or write public_id_column() instead of the mixin"
        )
    others = [key.name for key in mapper.primary_key if MIXED_IN not in key.info]
    if others and len(others) < len(mapper.primary_key):
        raise ConfigurationError(
            f"{model.__name__} has a key of its own, {', '.join(others)}, and PublicIdMixin adds another one; "
            f"use PublicIdColumnMixin"
        )


def _listen_to_attribute(attribute: QueryableAttribute[Any], column: Column[Any]) -> None:
    key, type_ = attribute.key, public_id_type(column)

    def on_first_access(state: InstanceState[Any], value: Any, values: dict[str, Any]) -> Any:
        if state.has_identity:
            return value
        made = values[key] = make_early(state)
        return made

    def make_early(state: InstanceState[Any]) -> str:
        made = type_.next_id()
        _note_early(state, column, made)
        return made

    def on_set(state: InstanceState[Any], value: Any, old: Any, initiator: AttributeEventToken) -> Any:
        model = state.class_.__name__
        if state.has_identity and old is not None:  # a row from before the column was filled has none yet
            if value != old and type_.canonical(value) != old and not _is_merged_into(state, column, value):
                raise _immutable(model, key, old, value)
            return old
        if value is None:  # "make me one", as the constructors of dataclasses and SQLModel say it
            state.info.get(_GIVEN, set()).discard(key)
            return make_early(state)
        checked = type_.checked(value, field=f"{model}.{key}")
        if state.pending and is_merged(state) and (column, checked) in pending.early:  # copied, not given
            _note_early(state, column, checked)
            return checked
        state.info.setdefault(_GIVEN, set()).add(key)
        return checked

    def on_delete(state: InstanceState[Any], value: Any, initiator: AttributeEventToken) -> None:
        if state.has_identity:
            raise _immutable(state.class_.__name__, key, value, None)

    event.listen(attribute, "init_scalar", on_first_access, raw=True, retval=True)
    event.listen(attribute, "set", on_set, raw=True, retval=True, active_history=True)
    event.listen(attribute, "remove", on_delete, raw=True)


def _is_merged_into(state: InstanceState[Any], column: Column[Any], value: Any) -> bool:
    """Whether *value* is an id that the library made for another object with the key of *state*: ``merge()`` copies it,
    though nobody gave it.
    """
    source = pending.early.get((column, value)) if isinstance(value, str) else None
    if source is None or state.identity is None or source.mapper.base_mapper is not state.mapper.base_mapper:
        return False
    keys = [state.mapper.get_property_by_column(key).key for key in state.mapper.primary_key]
    return tuple(map(source.dict.get, keys)) == tuple(state.identity)


def _immutable(model: str, key: str, old: object, new: object) -> ImmutablePublicId:
    return ImmutablePublicId(
        f"{model}.{key} is {shown(old)} and cannot become {shown(new)}: links to the row would break; "
        f"to give the row another id on purpose, execute an UPDATE statement",
        model=model,
        attribute=key,
        old=old,
        new=new,
    )


# --- sessions


def _on_begin(session: Session, transaction: object, connection: Connection) -> None:
    guard.install_for(connection)
    _connections_of(session).add(connection)


def _on_flushed(session: Session, context: object) -> None:
    for connection in _connections_of(session):
        pending.drop(connection, session)


def _on_rolled_back(session: Session, previous: object) -> None:
    _on_flushed(session, previous)


def _on_taken_back(session: Session, instance: object) -> None:
    """The row of *instance* is rolled back; an id that the library made for it may still be replaced."""
    state = instance_state(instance)
    for key, column in id_attributes(state.mapper).items():
        value = state.dict.get(key)
        if value is not None and key not in state.info.get(_GIVEN, ()):
            _note_early(state, column, value)


def _note_early(state: InstanceState[Any], column: Column[Any], made: str) -> None:
    pending.early[column, made] = state
    state.info[_SHOWN] = True


def _connections_of(session: Session) -> weakref.WeakSet[Connection]:
    """The connections that *session* has used."""
    return _connections.setdefault(session, weakref.WeakSet())


when_first_used(watch)
