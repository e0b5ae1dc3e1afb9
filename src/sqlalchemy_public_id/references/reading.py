"""Read the public id of a reference: from the object, the session, or one SELECT for all objects of the session."""

from __future__ import annotations

import enum
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, TypeAlias, cast

from sqlalchemy import inspect
from sqlalchemy.exc import InvalidRequestError, MissingGreenlet
from sqlalchemy.orm import AttributeState, InstanceState, Mapper, QueryableAttribute, Session, selectinload
from sqlalchemy.orm.attributes import instance_state, set_committed_value
from sqlalchemy.orm.exc import DetachedInstanceError
from sqlalchemy.orm.interfaces import ORMOption

from sqlalchemy_public_id.errors import ConfigurationError, ReferenceNotReadable
from sqlalchemy_public_id.messages import refuse_coroutine, safe_repr
from sqlalchemy_public_id.orm.inspection import is_in_greenlet, session_of
from sqlalchemy_public_id.references.queries import AT_ONCE, Beside, public_ids_by_key, values_of
from sqlalchemy_public_id.references.reference import (
    PublicRef,
    Source,
    UnresolvedKey,
    objects_with_refs,
    ref_of,
    refs_of,
)
from sqlalchemy_public_id.weak import RefDict

_REMEMBERED = "sqlalchemy_public_id.references"
"""In the ``info`` of an object's state: attribute → what was fetched for it. It is pickled with the object."""
_Fetched: TypeAlias = tuple[str, Any, str | None]
"""The attribute of the foreign key, its value, and the public id; ``None`` if the row is not readable."""
_NOTHING: dict[str, _Fetched] = {}
_NEVER: _Fetched = "", None, None


class Unknown(enum.Enum):
    """Reasons why the public id of a row that a foreign key points to is not known."""

    NOT_LOADED = enum.auto()
    NOT_READABLE = enum.auto()
    """A SELECT has found no such row."""
    ASSIGNED = enum.auto()
    """The row was assigned by another of its public ids, and the next flush finds its key."""


def load(session: Session, objects: Iterable[object]) -> None:
    """Fetch the public ids of all references of *objects* that are not known yet, with one SELECT per model.

    If a row cannot be read, only access to its attribute raises an error, so the rest of a page can be shown.

    >>> from sqlalchemy import select
    >>> from sqlalchemy_public_id import references
    >>> references.load(session, session.scalars(select(User)))
    """
    session = session_of(session)
    if not isinstance(objects, Iterable):
        refuse_coroutine(objects)
        raise TypeError(f"expected mapped objects, not one: write [{type(objects).__name__.lower()}]")
    states: list[InstanceState[Any]] = []
    for instance in objects:
        state = cast("InstanceState[Any] | None", inspect(instance, raiseerr=False))
        if not isinstance(state, InstanceState):
            refuse_coroutine(instance)
            raise TypeError(f"expected mapped objects, not {safe_repr(instance)}")
        states.append(state)
    mappers = dict.fromkeys(state.mapper for state in states)
    for source in dict.fromkeys(ref.source for mapper in mappers for ref in refs_of(mapper).values()):
        _load(session, source, states)


def eager(attribute: QueryableAttribute[Any]) -> ORMOption:
    """Return a loader option that fetches the public ids of the reference *attribute*, with one more SELECT.

    ``select(Order).options(references.eager(Order.customer_public_id))``

    The option is ``selectinload()`` of the relationship, which loads key and public id, and defers other columns. A
    query that loads the related objects anyway does not need it.
    """
    entity: Any = getattr(attribute, "parent", None)
    ref = refs_of(entity.mapper).get(attribute.key) if entity is not None else None
    if entity is None or ref is None:
        raise ConfigurationError(
            f"{safe_repr(attribute)} is not a reference; expected an attribute such as Order.customer_public_id"
        )
    relationship = getattr(entity.entity, ref.relationship)
    return selectinload(relationship).load_only(*ref.source.columns(), raiseload=False)


def read(
    instance: object,
    attribute: str,
    relationship: str,
    find_id_of_assigned_row: Callable[[Session, InstanceState[Any], PublicRef], str],
) -> str | None:
    """Return the public id that a reference of *instance* shows; if needed, fetch it with those of the whole session.

    :param find_id_of_assigned_row: a function that finds the id of a row that was assigned by another of its ids.
    :raises ReferenceNotReadable: if the foreign key is set, and the row that it points to cannot be read.
    """
    state, values = instance_state(instance), instance.__dict__
    fetched: _Fetched = state.info.get(_REMEMBERED, _NOTHING).get(attribute, _NEVER)
    name, key, public_id = fetched
    if public_id is not None and relationship not in values and values.get(name) == key:
        return public_id  # the usual case on a page
    ref, session = ref_of(state.mapper, attribute, relationship), state.session
    shown = Unknown.NOT_LOADED if _lacks_key(state, ref) else read_loaded(state, ref)
    if shown in (Unknown.NOT_LOADED, Unknown.ASSIGNED):
        if session is None:
            raise _detached(state, ref)
        if session.get_bind(ref.source.mapper).dialect.is_async and not is_in_greenlet():
            raise _outside_greenlet(state, ref)
        if shown is Unknown.ASSIGNED:
            return find_id_of_assigned_row(session, state, ref)
        _load(session, ref.source, [state, *islice(_take_queued(session, ref.source, state), AT_ONCE)])
        shown = read_loaded(state, ref)
    if isinstance(shown, Unknown):
        raise ReferenceNotReadable(field=_where(state, ref), model=ref.target.__name__, key=state.dict.get(ref.key))
    return shown


def _where(state: InstanceState[Any], ref: PublicRef) -> str:
    return f"{state.class_.__name__}.{ref.attribute}"


def _detached(state: InstanceState[Any], ref: PublicRef) -> DetachedInstanceError:
    where = _where(state, ref)
    if not state.has_identity:
        return DetachedInstanceError(f"{where}: the foreign key is set, but its object is in no session; add it to one")
    return DetachedInstanceError(
        f"{where} was not loaded before its object left the session; load it with the object, "
        f".options(references.eager({where})), or later, references.load(session, objects)"
    )


def _outside_greenlet(state: InstanceState[Any], ref: PublicRef) -> MissingGreenlet:
    where = _where(state, ref)
    # conditions of the application may load a relationship as None, and would do so again with eager()
    eager = "" if ref.relationship in state.dict else f"with the object, .options(references.eager({where})), or "
    return MissingGreenlet(
        f"{where} is not loaded, and no attribute can wait for the database; load it {eager}before it is read, "
        f"await sqlalchemy_public_id.asyncio.references.load(session, objects)"
    )


# --- what is loaded


def read_loaded(state: InstanceState[Any], ref: PublicRef) -> str | Unknown | None:
    """Return what *ref* shows without a query, or why that is unknown; ``None`` for a foreign key that is null."""
    values = state.dict
    related: Any = values.get(ref.relationship)
    # the relationship decides if it was set after the foreign key, or if the key is deferred
    if relationship_changed(state, ref) or (related is not None and ref.key not in values):
        return None if related is None else cast("str | None", getattr(related, ref.target_id))
    # otherwise the key decides: a relationship is loaded as None if conditions of the application hide the object
    key = values[ref.key] if ref.key in values else getattr(state.obj(), ref.key)
    if key is None:
        return None
    if isinstance(key, UnresolvedKey):
        return key.public_id if key.attribute == ref.attribute else Unknown.ASSIGNED
    session = state.session
    if related is None and session is not None and ref.source.is_primary:
        identity = ref.source.mapper.identity_key_from_primary_key((key,), identity_token=state.identity_token)
        related = session.identity_map.get(identity)
    if related is not None:
        loaded = instance_state(related).dict
        if loaded.get(ref.target_key) == key and loaded.get(ref.target_id) is not None:
            return cast("str", loaded[ref.target_id])
    _, fetched_for, public_id = state.info.get(_REMEMBERED, _NOTHING).get(ref.attribute, _NEVER)
    if fetched_for != key:
        return Unknown.NOT_LOADED
    return Unknown.NOT_READABLE if public_id is None else public_id


def relationship_changed(state: InstanceState[Any], ref: PublicRef) -> bool:
    """Return True if the relationship was set since the last flush, and so replaces the foreign key.

    ``None`` does not count for an object without a row: constructors of dataclasses set it.
    """
    if ref.relationship not in state.dict:
        return False
    added = cast("Sequence[Any]", AttributeState(state, ref.relationship).history.added)
    return bool(added) and (added[0] is not None or state.has_identity)


def _lacks_key(state: InstanceState[Any], ref: PublicRef) -> bool:
    """Return True if *ref* depends on a foreign key that is deferred or expired."""
    return (
        (ref.key not in state.dict or any(name not in state.dict for name, _ in ref.also))
        and state.persistent
        and state.dict.get(ref.relationship) is None
        and not relationship_changed(state, ref)
    )


def values_beside(state: InstanceState[Any], ref: PublicRef) -> Beside:
    """Return the other columns of the composite foreign key of *ref*, and their values in the object."""
    return tuple((other, getattr(state.obj(), name)) for name, other in ref.also)


def forget(state: InstanceState[Any], value: Any, old: Any, initiator: Any) -> None:
    """Discard public ids that were fetched for an object. Runs when a column beside its foreign key is set."""
    if value != old:
        state.info.pop(_REMEMBERED, None)
        queue_for_reading(state)


def forget_all(session: Session) -> None:
    """Discard the public ids that were fetched for the objects of *session*. Runs after an UPDATE of public ids."""
    for state in map(instance_state, objects_with_refs(list(session))):
        if state.info.pop(_REMEMBERED, None) is not None:
            queue_for_reading(state)


def remember(state: InstanceState[Any], ref: PublicRef, key: Any, public_id: str | None) -> None:
    """Keep the *public_id* of *key*, for as long as the object has that key."""
    state.info.setdefault(_REMEMBERED, {})[ref.attribute] = ref.key, key, public_id


# --- what is read together


def _load(session: Session, source: Source, states: Sequence[InstanceState[Any]]) -> None:
    """Fetch the public ids of *source* that *states* lack, after the foreign keys that are deferred or expired."""
    objects = {state: instance for state in states if (instance := state.obj()) is not None}
    _load_keys(session, objects)
    by_shard: dict[tuple[Any, Beside], list[tuple[InstanceState[Any], PublicRef, Any]]] = {}
    mappers = {state.mapper for state in objects}
    refs = {mapper: [ref for ref in refs_of(mapper).values() if ref.source == source] for mapper in mappers}
    for state in objects:
        for ref in refs[state.mapper]:
            with suppress(InvalidRequestError):  # its row is gone, or its foreign key may not be loaded
                if read_loaded(state, ref) in (Unknown.NOT_LOADED, Unknown.NOT_READABLE):
                    place = state.identity_token, values_beside(state, ref)
                    by_shard.setdefault(place, []).append((state, ref, state.dict[ref.key]))
    for (shard, beside), unread in by_shard.items():
        keys = list(dict.fromkeys(key for _, _, key in unread))
        public_ids = public_ids_by_key(session, source, shard, keys, beside)
        for state, ref, key in unread:
            # the row that a pending object points to may be inserted later
            if public_ids.get(key) is not None or state.persistent:
                remember(state, ref, key, public_ids.get(key))


def _load_keys(session: Session, objects: Mapping[InstanceState[Any], object]) -> None:
    """Fetch the foreign keys of all *objects* with one SELECT per model, because a COMMIT expires every object."""
    lacking: defaultdict[tuple[Mapper[Any], Any], list[InstanceState[Any]]] = defaultdict(list)
    for state in objects:
        if any(_lacks_key(state, ref) for ref in refs_of(state.mapper).values()):
            lacking[state.mapper, state.identity_token].append(state)
    for (mapper, shard), states in lacking.items():
        if len(states) > 1:  # SQLAlchemy refreshes a single one, and any whose identity the database spells differently
            every = [(ref.key, *(name for name, _ in ref.also)) for ref in refs_of(mapper).values()]
            names = list(dict.fromkeys(chain.from_iterable(every)))
            for state, values in values_of(session, mapper, shard, states, names):
                for name in values.keys() - state.dict.keys():
                    set_committed_value(objects[state], name, values[name])


class _Queue:
    """The objects of a session whose references are read together, so that no access has to look at all objects."""

    __slots__ = ("_of_last_search", "_unqueued", "added", "by_source")

    def __init__(self) -> None:
        self.added: weakref.WeakSet[InstanceState[Any]] = weakref.WeakSet()
        """Objects that were loaded or changed since the last access to a reference."""
        self.by_source: defaultdict[Source, weakref.WeakSet[InstanceState[Any]]] = defaultdict(weakref.WeakSet)
        self._unqueued = 0
        self._of_last_search = 0

    def add_attached(self, session: Session) -> None:
        """Add the objects that were added to *session*, which no event of their model reports.

        Runs when a reference of an object is read that was not queued. All objects of the session are searched, but
        in a large session not for each such object: the searches take no longer than the SELECTs of these objects.
        """
        self._unqueued += 1
        if self._unqueued * _SEARCHED_FOR_ONE < self._of_last_search:
            return
        objects = list(session)
        self._unqueued, self._of_last_search = 0, len(objects)
        self.added.update(map(instance_state, objects_with_refs(objects)))


_queues: RefDict[Session, _Queue] = RefDict()

_SEARCHED_FOR_ONE = 100
"""The objects of a session that are searched, and searched for what they lack, in about the time of one SELECT."""


def queue_for_reading(state: InstanceState[Any], *event: object) -> None:
    """Queue an object whose references are then read together with those of others.

    Runs when an object is loaded, and when one of its foreign keys changes.
    """
    session = state.session
    if session is not None:
        _queue_of(session).added.add(state)


def _queue_of(session: Session) -> _Queue:
    queue = _queues.get(weakref.ref(session))
    return _queues.keep(session, _Queue()) if queue is None else queue


def queue_again(state: InstanceState[Any], *event: Any) -> None:
    """Discard public ids if a foreign key is expired or refreshed, and queue the object again.

    Runs when attributes are expired or refreshed. *event* ends with their names, or None for all.
    """
    if event[-1] is None or any(ref.key in event[-1] for ref in refs_of(state.mapper).values()):
        state.info.pop(_REMEMBERED, None)
    queue_for_reading(state)


def _take_queued(session: Session, source: Source, state: InstanceState[Any]) -> Iterator[InstanceState[Any]]:
    """Yield each object in the queue of *source*, and remove it, so that later accesses do not visit it again.

    :param state: the object whose reference is read.
    """
    queue = _queue_of(session)
    of_source = queue.by_source[source]
    if state not in queue.added and state not in of_source:
        queue.add_attached(session)
    for added in _popped(queue.added):
        for ref in refs_of(added.mapper).values():
            queue.by_source[ref.source].add(added)
    yield from (queued for queued in _popped(of_source) if queued.session is session)


def _popped(states: weakref.WeakSet[InstanceState[Any]]) -> Iterator[InstanceState[Any]]:
    with suppress(KeyError):  # the set is empty; the garbage collector may remove objects meanwhile
        while True:
            yield states.pop()
