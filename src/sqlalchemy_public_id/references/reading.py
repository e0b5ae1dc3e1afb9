"""What a reference of an object shows, and where it comes from: the object, the session, or one SELECT for all."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from sqlalchemy import inspect, select
from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.orm import InstanceState, Mapper, QueryableAttribute, Session, load_only, object_session, selectinload
from sqlalchemy.orm.attributes import get_history, instance_state, set_committed_value
from sqlalchemy.orm.base import PASSIVE_NO_INITIALIZE
from sqlalchemy.orm.exc import DetachedInstanceError
from sqlalchemy.orm.interfaces import ORMOption
from sqlalchemy.util.concurrency import in_greenlet

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError, PublicIdNotFound, ReferenceNotReadable, shown
from sqlalchemy_public_id.orm.inspection import session_of
from sqlalchemy_public_id.references.reference import PublicRef, Source, refs_of
from sqlalchemy_public_id.references.stored import AT_ONCE, public_ids_by_key, values_of
from sqlalchemy_public_id.references.waiting import Waiting

__all__ = [
    "Unknown",
    "eager",
    "forget",
    "known",
    "load",
    "lookup_keys",
    "lookup_objects",
    "newly_related",
    "read",
    "remember",
]

_REMEMBERED = "sqlalchemy_public_id.references"
"""In the ``info`` of an object's state: attribute → foreign key and public id, ``None`` for a row that is not readable.
"""


class Unknown(enum.Enum):
    """Reasons why the public id of a row that a foreign key points to is not known."""

    NOT_ASKED = enum.auto()
    """The database was not asked for it."""
    NOT_READABLE = enum.auto()
    """The database was asked, and had no such row to show."""
    ASSIGNED = enum.auto()
    """The row was assigned by another of its public ids, and its key is found at the next flush."""


def load(session: Session, objects: Iterable[object]) -> None:
    """Fetch the public ids that all references of *objects* show, as far as they are not known: one SELECT a model.

    A row that cannot be read raises nothing here; the attribute does, so that the rest of a page can be shown.

    >>> from sqlalchemy import select
    >>> from sqlalchemy_public_id import references
    >>> references.load(session, session.scalars(select(User)))
    """
    session = session_of(session)
    states: list[InstanceState[Any]] = []
    for instance in objects:
        state = cast("InstanceState[Any] | None", inspect(instance, raiseerr=False))
        if not isinstance(state, InstanceState):
            raise TypeError(f"expected mapped objects, not {shown(instance)}")
        states.append(state)
    _load_keys(session, states)
    lacking: dict[Source, list[tuple[InstanceState[Any], PublicRef]]] = {}
    for state in states:
        for ref in refs_of(state.mapper).values():
            if known(state, ref, session) in (Unknown.NOT_ASKED, Unknown.NOT_READABLE):
                lacking.setdefault(ref.source, []).append((state, ref))
    for source, members in lacking.items():
        _fetch(session, source, members)


def eager(attribute: QueryableAttribute[Any]) -> ORMOption:
    """A loader option: a query for the objects also fetches what the reference *attribute* shows, in one more SELECT.

    ``select(Order).options(references.eager(Order.customer_public_id))``

    It is ``selectinload()`` of the relationship, of which only key and public id are loaded; the rest of those objects
    is deferred. Where the objects are needed, load them: the reference needs nothing else then.
    """
    entity: Any = getattr(attribute, "parent", None)
    ref = refs_of(entity.mapper).get(attribute.key) if entity is not None else None
    if entity is None or ref is None:
        raise ConfigurationError(
            f"{shown(attribute)} is no reference; expected the attribute of a model, as Order.customer_public_id"
        )
    relationship = getattr(entity.entity, ref.relationship)
    return selectinload(relationship).load_only(*ref.source.columns(), raiseload=False)


def read(ref: PublicRef, instance: object) -> str | None:
    """Return the public id that *ref* of *instance* shows; asks the database for it, and for those of its neighbours.

    :raises ReferenceNotReadable: where the foreign key is set, and the row that it points to cannot be read.
    """
    state = instance_state(instance)
    session = object_session(instance)
    if session is not None and _lacks_key(state, ref):
        _refuse_outside_greenlet(session, state, ref)
        _load_keys(session, list(map(instance_state, session.identity_map.values()))[:AT_ONCE])
    public_id = known(state, ref, session)
    if isinstance(public_id, Unknown) and public_id is not Unknown.NOT_READABLE:
        if session is None:
            raise _detached(state, ref)
        _refuse_outside_greenlet(session, state, ref)
        if public_id is Unknown.ASSIGNED:
            return _id_of_assigned(session, state, ref)
        _fetch(session, ref.source, _neighbours(session, state, ref))
        public_id = known(state, ref, session)
    if isinstance(public_id, Unknown):
        raise ReferenceNotReadable(field=_where(state, ref), model=ref.target.__name__, key=state.dict.get(ref.key))
    return public_id


def _where(state: InstanceState[Any], ref: PublicRef) -> str:
    return f"{state.class_.__name__}.{ref.attribute}"


def _detached(state: InstanceState[Any], ref: PublicRef) -> DetachedInstanceError:
    where = _where(state, ref)
    if state.has_identity:
        return DetachedInstanceError(f"{where} was not loaded before its object left the session; {_advice(where)}")
    return DetachedInstanceError(f"{where}: the foreign key is set, but its object is in no session; add it to one")


def _refuse_outside_greenlet(session: Session, state: InstanceState[Any], ref: PublicRef) -> None:
    if session.get_bind(_mapper(ref)).dialect.is_async and not in_greenlet():
        where = _where(state, ref)
        # a relationship that is loaded as None, by conditions of the program: eager() would load it so again
        advice = _LOAD if ref.relationship in state.dict else _advice(where)
        raise MissingGreenlet(f"{where} is not loaded, and no attribute can wait for the database; {advice}")


_LOAD = "load it before it is read, references.load(session, objects)"


def _advice(where: str) -> str:
    return f"load it with the object, .options(references.eager({where})), or later, references.load(session, objects)"


def known(state: InstanceState[Any], ref: PublicRef, session: Session | None) -> str | Unknown | None:
    """Return what *ref* shows, where that can be told without asking for it; ``None`` where it points to nothing."""
    related = state.dict.get(ref.relationship)
    if ref.relationship in state.dict and newly_related(state, ref):
        return None if related is None else _id_of(related, ref)
    if ref.key not in state.dict and related is not None:  # the key is deferred
        return _id_of(related, ref)
    # a relationship that was loaded as None tells nothing: conditions of the program may hide the object
    key = state.dict[ref.key] if ref.key in state.dict else getattr(state.obj(), ref.key)
    if key is None:
        return None
    if isinstance(key, Waiting):
        return key.public_id if key.attribute == ref.attribute else Unknown.ASSIGNED
    remembered = state.info.get(_REMEMBERED, {}).get(ref.attribute)
    if remembered is not None and remembered[0] == key:
        return Unknown.NOT_READABLE if remembered[1] is None else cast("str", remembered[1])
    if related is None and session is not None and ref.source.is_primary:
        token = state.identity_token  # its shard, where there are several
        related = session.identity_map.get(_mapper(ref).identity_key_from_primary_key((key,), identity_token=token))
    if related is not None:
        values = instance_state(related).dict
        if values.get(ref.target_key) == key and values.get(ref.target_id) is not None:
            return cast("str", values[ref.target_id])
    return Unknown.NOT_ASKED


def _id_of(related: object, ref: PublicRef) -> str | None:
    return cast("str | None", getattr(related, ref.target_id))


def _lacks_key(state: InstanceState[Any], ref: PublicRef) -> bool:
    """Return True if only the foreign key, which is deferred or expired, tells what *ref* of a stored object shows."""
    return (
        state.persistent
        and ref.key not in state.dict
        and state.dict.get(ref.relationship) is None
        and not newly_related(state, ref)
    )


def _load_keys(session: Session, states: Sequence[InstanceState[Any]]) -> None:
    """Fetch the foreign keys that are deferred or expired, of all *states* at once: one SELECT a model."""
    lacking: dict[tuple[Mapper[Any], Any], list[InstanceState[Any]]] = {}
    for state in dict.fromkeys(states):
        if any(_lacks_key(state, ref) for ref in refs_of(state.mapper).values()):
            lacking.setdefault((state.mapper, state.identity_token), []).append(state)
    for (mapper, shard), members in lacking.items():
        if len(members) == 1:
            continue  # SQLAlchemy asks for it
        names = list(dict.fromkeys(ref.key for ref in refs_of(mapper).values()))
        for state, values in values_of(session, mapper, shard, members, names):
            for name, value in values.items():
                if name not in state.dict:
                    set_committed_value(state.obj(), name, value)


def newly_related(state: InstanceState[Any], ref: PublicRef) -> bool:
    """Return True if the relationship was set to something since the last flush; it decides then.

    ``None`` for an object that is not stored yet says nothing: constructors of dataclasses set it.
    """
    instance = state.obj()
    added = cast("Sequence[Any]", get_history(instance, ref.relationship, PASSIVE_NO_INITIALIZE).added)
    return bool(added) and (added[0] is not None or state.has_identity)


def remember(state: InstanceState[Any], ref: PublicRef, key: Any, public_id: str | None) -> None:
    """Keep the *public_id* that belongs to *key*, for as long as the object keeps that key."""
    state.info.setdefault(_REMEMBERED, {})[ref.attribute] = (key, public_id)


def forget(state: InstanceState[Any], attributes: Iterable[str] | None) -> None:
    """When a foreign key is expired or refreshed (``None``: all attributes), it may come to mean another row."""
    if attributes is None or any(ref.key in attributes for ref in refs_of(state.mapper).values()):
        state.info.pop(_REMEMBERED, None)


def _neighbours(
    session: Session, state: InstanceState[Any], ref: PublicRef
) -> Iterator[tuple[InstanceState[Any], PublicRef]]:
    """The references of the objects in *session* that lack an id of the same source, *ref* of *state* first."""
    yield state, ref
    keys: set[Any] = set()
    for instance in [*session.identity_map.values(), *session.new]:
        other = instance_state(instance)
        for each in refs_of(other.mapper).values():
            if (
                each.source == ref.source
                and each.key in other.dict
                and known(other, each, session) is Unknown.NOT_ASKED
            ):
                yield other, each
                keys.add(other.dict[each.key])
        if len(keys) >= AT_ONCE:
            return


def _fetch(session: Session, source: Source, members: Iterable[tuple[InstanceState[Any], PublicRef]]) -> None:
    """Ask for the public ids of all *members*, and remember them."""
    by_shard: dict[Any, list[tuple[InstanceState[Any], PublicRef, Any]]] = {}
    for state, ref in members:
        by_shard.setdefault(state.identity_token, []).append((state, ref, state.dict[ref.key]))
    for shard, wanted in by_shard.items():
        public_ids = public_ids_by_key(session, source, shard, list(dict.fromkeys(key for _, _, key in wanted)))
        for state, ref, key in wanted:
            if public_ids.get(key) is not None or state.persistent:
                remember(state, ref, key, public_ids.get(key))


def _id_of_assigned(session: Session, state: InstanceState[Any], ref: PublicRef) -> str:
    """Return the public id that *ref* shows of a row that was assigned by another of its ids."""
    waiting = cast("Waiting", state.dict[ref.key])
    found: Any = None
    for new in session.new:
        if isinstance(new, ref.target) and instance_state(new).dict.get(waiting.source.public_id) == waiting.public_id:
            found = getattr(new, ref.target_id)
    if found is None:
        _, given = waiting.source.columns()
        query = select(getattr(ref.target, ref.target_id)).where(given == waiting.public_id)
        with session.no_autoflush:
            found = session.scalar(query)
    if found is None:
        where = f"{state.class_.__name__}.{waiting.attribute}"
        raise PublicIdNotFound(waiting.public_id, model=ref.target.__name__, field=where)
    return cast("str", found)


def lookup_keys(session: Session, source: Source, public_ids: Iterable[str]) -> dict[str, Any]:
    """Public id → key, of the rows that a query of the program finds: an id that comes in opens nothing hidden."""
    key, public_id = source.columns()
    found: dict[str, Any] = {}
    with session.no_autoflush:
        traits = traits_for(session.get_bind(inspect(source.model)).dialect)
        for condition in traits.any_of(public_id, list(public_ids), public_id.type.as_parameter):
            for text, each in session.execute(select(public_id, key).where(condition)):
                found[text] = each
    return found


def lookup_objects(session: Session, source: Source, public_ids: Iterable[str]) -> dict[str, object]:
    """Public id → object with its key, of the rows that a query of the program finds."""
    key, public_id = source.columns()
    found: dict[str, object] = {}
    with session.no_autoflush:
        traits = traits_for(session.get_bind(inspect(source.model)).dialect)
        for condition in traits.any_of(public_id, list(public_ids), public_id.type.as_parameter):
            query = select(source.model, public_id).where(condition).options(load_only(key, public_id, raiseload=False))
            for each, text in session.execute(query):
                found[text] = each
    return found


def _mapper(ref: PublicRef) -> Mapper[Any]:
    mapper: Mapper[Any] = inspect(ref.target)
    return mapper
