"""Read the public id of a reference: from the object, the session, or one SELECT for all objects of the session."""

from __future__ import annotations

import enum
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias, cast

from sqlalchemy import inspect, select
from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.orm import AttributeState, InstanceState, Mapper, QueryableAttribute, Session, selectinload
from sqlalchemy.orm.attributes import instance_state, set_committed_value
from sqlalchemy.orm.exc import DetachedInstanceError
from sqlalchemy.orm.interfaces import ORMOption

from sqlalchemy_public_id.errors import ConfigurationError, PublicIdNotFound, ReferenceNotReadable, safe_repr
from sqlalchemy_public_id.orm.inspection import is_in_greenlet, session_of
from sqlalchemy_public_id.references.queries import AT_ONCE, public_ids_by_key, values_of
from sqlalchemy_public_id.references.reference import PublicRef, Source, UnresolvedKey, refs_of
from sqlalchemy_public_id.weak import RefDict

_REMEMBERED = "sqlalchemy_public_id.references"
"""In the ``info`` of an object's state: attribute → what was fetched for it. It is pickled with the object."""
_Fetched: TypeAlias = tuple[str, Any, str | None]
"""The attribute of the foreign key, its value, and the public id; ``None`` if the row is not readable."""
_NOTHING: dict[str, _Fetched] = {}


class Unknown(enum.Enum):
    """Reasons why the public id of a row that a foreign key points to is not known."""

    NOT_LOADED = enum.auto()
    NOT_READABLE = enum.auto()
    """A SELECT has found no such row."""
    ASSIGNED = enum.auto()
    """The row was assigned by another of its public ids, and its key is found at the next flush."""


def load(session: Session, objects: Iterable[object]) -> None:
    """Fetch the public ids that the references of *objects* show, except those that are known: one SELECT a model.

    A row that cannot be read raises nothing here. Its attribute raises, so that the rest of a page can be shown.

    >>> from sqlalchemy import select
    >>> from sqlalchemy_public_id import references
    >>> references.load(session, session.scalars(select(User)))
    """
    session = session_of(session)
    if not isinstance(objects, Iterable):
        raise TypeError(f"expected mapped objects, not one: write [{type(objects).__name__.lower()}]")
    states: list[InstanceState[Any]] = []
    for instance in objects:
        state = cast("InstanceState[Any] | None", inspect(instance, raiseerr=False))
        if not isinstance(state, InstanceState):
            raise TypeError(f"expected mapped objects, not {safe_repr(instance)}")
        states.append(state)
    _load_keys(session, states)
    missing: dict[Source, list[tuple[InstanceState[Any], PublicRef]]] = {}
    for state in states:
        for ref in refs_of(state.mapper).values():
            if public_id_without_query(state, ref, session) in (Unknown.NOT_LOADED, Unknown.NOT_READABLE):
                missing.setdefault(ref.source, []).append((state, ref))
    for source, members in missing.items():
        _fetch(session, source, members)


def eager(attribute: QueryableAttribute[Any]) -> ORMOption:
    """Return a loader option: the query also fetches what the reference *attribute* shows, in one more SELECT.

    ``select(Order).options(references.eager(Order.customer_public_id))``

    It is ``selectinload()`` of the relationship, with only key and public id loaded; other columns are deferred. If the
    query loads the objects anyway, the reference needs no option.
    """
    entity: Any = getattr(attribute, "parent", None)
    ref = refs_of(entity.mapper).get(attribute.key) if entity is not None else None
    if entity is None or ref is None:
        raise ConfigurationError(
            f"{safe_repr(attribute)} is no reference; expected the attribute of a model, as Order.customer_public_id"
        )
    relationship = getattr(entity.entity, ref.relationship)
    return selectinload(relationship).load_only(*ref.source.columns(), raiseload=False)


def read(ref: PublicRef, instance: object) -> str | None:
    """Return the public id that *ref* of *instance* shows; fetches it together with those of the whole session.

    :raises ReferenceNotReadable: if the foreign key is set, and the row that it points to cannot be read.
    """
    state = instance_state(instance)
    session = state.session
    if ref.key not in state.dict and session is not None and _lacks_key(state, ref):
        _refuse_outside_greenlet(session, state, ref)
        peers = [state]
        for place in (_LACKING, ref.source), ref.source.place:
            peers += islice(_no_longer_waiting(session, place), AT_ONCE)
        _load_keys(session, peers)
        for peer in peers:
            await_reading(places_of(refs_of(peer.mapper)), peer)
    public_id = public_id_without_query(state, ref, session)
    if isinstance(public_id, Unknown) and public_id is not Unknown.NOT_READABLE:
        if session is None:
            raise _detached(state, ref)
        _refuse_outside_greenlet(session, state, ref)
        if public_id is Unknown.ASSIGNED:
            return _other_id_of_assigned(session, state, ref)
        _fetch(session, ref.source, _unread(session, state, ref))
        public_id = public_id_without_query(state, ref, session)
    if isinstance(public_id, Unknown):
        raise ReferenceNotReadable(field=_where(state, ref), model=ref.target.__name__, key=state.dict.get(ref.key))
    return public_id


def public_id_fetched(instance: object, attribute: str, relationship: str) -> str | None:
    """Return the public id of the reference *attribute* if it was fetched, and nothing else decides what is shown.

    That is so for most rows of a page. :func:`read` looks at more.
    """
    fetched = instance_state(instance).info.get(_REMEMBERED, _NOTHING).get(attribute)
    if fetched is None:
        return None
    name, key, public_id = fetched
    values = instance.__dict__
    return public_id if relationship not in values and values.get(name) == key else None


def _where(state: InstanceState[Any], ref: PublicRef) -> str:
    return f"{state.class_.__name__}.{ref.attribute}"


def _detached(state: InstanceState[Any], ref: PublicRef) -> DetachedInstanceError:
    where = _where(state, ref)
    if state.has_identity:
        return DetachedInstanceError(f"{where} was not loaded before its object left the session; {_advice(where)}")
    return DetachedInstanceError(f"{where}: the foreign key is set, but its object is in no session; add it to one")


def _refuse_outside_greenlet(session: Session, state: InstanceState[Any], ref: PublicRef) -> None:
    if session.get_bind(ref.source.mapper).dialect.is_async and not is_in_greenlet():
        where = _where(state, ref)
        # conditions of the application may load a relationship as None, and would do so again with eager()
        eager = "" if ref.relationship in state.dict else f"with the object, .options(references.eager({where})), or "
        advice = f"load it {eager}before it is read, await sqlalchemy_public_id.asyncio.{_LOAD}"
        raise MissingGreenlet(f"{where} is not loaded, and no attribute can wait for the database; {advice}")


_LOAD = "references.load(session, objects)"


def _advice(where: str) -> str:
    return f"load it with the object, .options(references.eager({where})), or later, {_LOAD}"


def public_id_without_query(state: InstanceState[Any], ref: PublicRef, session: Session | None) -> str | Unknown | None:
    """Return what *ref* shows, or why that is unknown; ``None`` for a foreign key that is null."""
    values = state.dict
    related = None
    # the relationship decides if it was set after the foreign key, and if the key is deferred
    if ref.relationship in values:
        related = values[ref.relationship]
        if related is not None and values.get(ref.key) is not None:
            shown = _shown(related, ref, values[ref.key])
            if shown is not None:
                return shown  # whichever decides
        if relationship_changed(state, ref):
            return None if related is None else _id_of(related, ref)
        if related is not None and ref.key not in values:
            return _id_of(related, ref)
    # otherwise the key: a relationship may be loaded as None because conditions of the application hide the object
    key = values[ref.key] if ref.key in values else getattr(state.obj(), ref.key)
    if key is None:
        return None
    if isinstance(key, UnresolvedKey):
        return key.public_id if key.attribute == ref.attribute else Unknown.ASSIGNED
    fetched = state.info.get(_REMEMBERED, _NOTHING).get(ref.attribute)
    if fetched is not None and fetched[1] == key:
        return Unknown.NOT_READABLE if fetched[2] is None else fetched[2]
    if related is None and session is not None and ref.source.is_primary:
        shard = state.identity_token
        identity = ref.source.mapper.identity_key_from_primary_key((key,), identity_token=shard)
        related = session.identity_map.get(identity)
    shown = None if related is None else _shown(related, ref, key)
    return Unknown.NOT_LOADED if shown is None else shown


def _shown(related: object, ref: PublicRef, key: object) -> str | None:
    """Return the public id that is loaded in *related*, if *key* points to it."""
    values = instance_state(related).dict
    return cast("str | None", values.get(ref.target_id)) if values.get(ref.target_key) == key else None


def _id_of(related: object, ref: PublicRef) -> str | None:
    return cast("str | None", getattr(related, ref.target_id))


def relationship_changed(state: InstanceState[Any], ref: PublicRef) -> bool:
    """Return True if the relationship was set since the last flush, and so replaces the foreign key.

    ``None`` does not count for an object without a row: constructors of dataclasses set it.
    """
    added = cast("Sequence[Any]", AttributeState(state, ref.relationship).history.added)
    return bool(added) and (added[0] is not None or state.has_identity)


# --- deferred and expired foreign keys


def _lacks_key(state: InstanceState[Any], ref: PublicRef) -> bool:
    """Return True if *ref* depends on a foreign key that is deferred or expired."""
    return (
        state.persistent
        and ref.key not in state.dict
        and state.dict.get(ref.relationship) is None
        and not relationship_changed(state, ref)
    )


def _load_keys(session: Session, states: Sequence[InstanceState[Any]]) -> None:
    """Fetch the foreign keys of all *states* at once, one SELECT a model: a COMMIT expires every object."""
    lacking: dict[tuple[Mapper[Any], Any], list[InstanceState[Any]]] = {}
    for state in dict.fromkeys(states):
        if any(_lacks_key(state, ref) for ref in refs_of(state.mapper).values()):
            lacking.setdefault((state.mapper, state.identity_token), []).append(state)
    for (mapper, shard), members in lacking.items():
        if len(members) == 1:
            continue  # SQLAlchemy refreshes it
        names = list(dict.fromkeys(ref.key for ref in refs_of(mapper).values()))
        for state, values in values_of(session, mapper, shard, members, names):
            instance = state.obj()
            for name, value in values.items():
                if instance is not None and name not in state.dict:
                    set_committed_value(instance, name, value)


# --- public ids that were fetched


def remember(state: InstanceState[Any], ref: PublicRef, key: Any, public_id: str | None) -> None:
    """Keep the *public_id* of *key*, for as long as the object has that key."""
    state.info.setdefault(_REMEMBERED, {})[ref.attribute] = ref.key, key, public_id


def forget(state: InstanceState[Any], attributes: Iterable[str] | None) -> None:
    """Discard public ids if a foreign key is expired or refreshed. ``None`` stands for all attributes."""
    if attributes is None or any(ref.key in attributes for ref in refs_of(state.mapper).values()):
        state.info.pop(_REMEMBERED, None)


# --- what is read together


class _Waiting(set["weakref.ref[InstanceState[Any]]"]):
    """States of objects, which may be collected meanwhile; those that were leave when there are many."""

    __slots__ = ("limit",)

    def __init__(self) -> None:
        self.limit = 1000

    def discard_collected(self) -> None:
        self.difference_update([each for each in self if each() is None])
        self.limit = 2 * len(self) + 1000


_waiting: RefDict[Session, defaultdict[Any, _Waiting]] = RefDict()
"""Session → place → the objects whose references are read together. So the access to one attribute does not look for
them among all objects of the session. A place is the source of a reference; with :data:`_LACKING`, objects whose
foreign key is deferred or expired."""
_LACKING = "lacking"


def places_of(refs: dict[str, PublicRef]) -> tuple[object, ...]:
    """Return where the objects of a model with *refs* wait."""
    return tuple({ref.source.place: None for ref in refs.values()})


def await_reading(places: Sequence[object], state: InstanceState[Any], context: Any = None, *event: object) -> None:
    """Note an object that comes into a session, or whose foreign keys change."""
    session = state.session if context is None else context.session
    if session is not None:
        waiting = _waiting.get(weakref.ref(session))
        if waiting is None:
            waiting = _waiting.keep(session, defaultdict(_Waiting))
        noted = weakref.ref(state)  # without a callback, which would take longer than all else
        for place in places:
            states = waiting[place]
            states.add(noted)
            if len(states) > states.limit:
                states.discard_collected()


def _no_longer_waiting(session: Session, place: object) -> Iterator[InstanceState[Any]]:
    """Yield the objects that wait at *place*: each one once, so that none is looked at by every access."""
    waiting = _waiting.get(weakref.ref(session))
    states = None if waiting is None else waiting[place]
    while states:
        state = states.pop()()
        if state is not None and state.session is session:
            yield state


def _unread(
    session: Session, state: InstanceState[Any], ref: PublicRef
) -> Iterator[tuple[InstanceState[Any], PublicRef]]:
    """Yield *ref* of *state*, and the references in *session* that lack a public id of the same source."""
    yield state, ref
    keys: set[Any] = set()
    for other in _no_longer_waiting(session, ref.source.place):
        values = other.dict
        for other_ref in refs_of(other.mapper).values():
            if other_ref.source != ref.source:
                continue
            if other_ref.key not in values:
                await_reading([(_LACKING, ref.source)], other)
            elif public_id_without_query(other, other_ref, session) is Unknown.NOT_LOADED:
                yield other, other_ref
                keys.add(values[other_ref.key])
        if len(keys) >= AT_ONCE:
            return


def _fetch(session: Session, source: Source, members: Iterable[tuple[InstanceState[Any], PublicRef]]) -> None:
    by_shard: dict[Any, list[tuple[InstanceState[Any], PublicRef, Any]]] = {}
    for state, ref in members:
        by_shard.setdefault(state.identity_token, []).append((state, ref, state.dict[ref.key]))
    for shard, unread in by_shard.items():
        public_ids = public_ids_by_key(session, source, shard, list(dict.fromkeys(key for _, _, key in unread)))
        for state, ref, key in unread:
            # the row that a pending object points to may be inserted later
            if public_ids.get(key) is not None or state.persistent:
                remember(state, ref, key, public_ids.get(key))


def _other_id_of_assigned(session: Session, state: InstanceState[Any], ref: PublicRef) -> str:
    """Return the public id that *ref* shows of a row that was assigned by another of its ids."""
    assigned = cast("UnresolvedKey", state.dict[ref.key])
    public_id: Any = None
    for new in session.new:
        if (
            isinstance(new, ref.target)
            and instance_state(new).dict.get(assigned.source.public_id) == assigned.public_id
        ):
            public_id = getattr(new, ref.target_id)
    if public_id is None:
        _, column = assigned.source.columns()
        query = select(getattr(ref.target, ref.target_id)).where(column == assigned.public_id)
        with session.no_autoflush:
            public_id = session.scalar(query)
    if public_id is None:
        where = f"{state.class_.__name__}.{assigned.attribute}"
        raise PublicIdNotFound(assigned.public_id, model=ref.target.__name__, field=where)
    return cast("str", public_id)
