"""What a reference of an object shows, and where it comes from: the object, the session, or one SELECT for all."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from sqlalchemy import ColumnElement, Integer, and_, inspect, or_, select
from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.orm import InstanceState, Mapper, QueryableAttribute, Session, load_only, object_session, selectinload
from sqlalchemy.orm.attributes import get_history, instance_state, set_committed_value
from sqlalchemy.orm.base import PASSIVE_NO_INITIALIZE
from sqlalchemy.orm.exc import DetachedInstanceError
from sqlalchemy.orm.interfaces import ORMOption
from sqlalchemy.util.concurrency import in_greenlet

from sqlalchemy_public_id.dialects import Traits, traits_for
from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.listeners import is_sharded, require_session
from sqlalchemy_public_id.references.reference import PublicRef, Source, refs_of
from sqlalchemy_public_id.references.waiting import Waiting

__all__ = ["eager", "forget", "known", "load", "lookup_keys", "lookup_objects", "newly_related", "read", "remember"]

_REMEMBERED = "sqlalchemy_public_id.references"
"""In the ``info`` of an object's state: attribute → foreign key and public id."""

_AT_ONCE = 10_000
"""How many keys the access to one attribute asks for at most. Far more than a page, and one statement everywhere."""

_COMPOSITE_AT_ONCE = 512
"""How many rows are asked for at most by a primary key of several columns: SQLite nests no deeper than 1 000."""

_UNKNOWN: Any = object()


def load(session: Session, objects: Iterable[object]) -> None:
    """Fetch the public ids that all references of *objects* show, as far as they are not known: one SELECT a model.

    >>> from sqlalchemy import select
    >>> from sqlalchemy_public_id import references
    >>> references.load(session, session.scalars(select(User)))
    """
    require_session(session)
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
            if known(state, ref, session) is _UNKNOWN:
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
    """The public id that *ref* of *instance* shows; asks the database for it, and for those of its neighbours."""
    state = instance_state(instance)
    session = object_session(instance)
    if session is not None and state.persistent and ref.key not in state.dict and ref.relationship not in state.dict:
        _refuse_outside_greenlet(session, state, ref)
        _load_keys(session, list(map(instance_state, session.identity_map.values()))[:_AT_ONCE])
    found = known(state, ref, session)
    if found is _UNKNOWN:
        where = f"{state.class_.__name__}.{ref.attribute}"
        if session is None:
            if not state.has_identity:
                return None  # as the relationship of such an object
            raise DetachedInstanceError(f"{where} was not loaded before its object left the session; {_advice(where)}")
        _refuse_outside_greenlet(session, state, ref)
        _fetch(session, ref.source, _neighbours(session, state, ref))
        found = known(state, ref, session)
    return None if found is _UNKNOWN else cast("str | None", found)


def _refuse_outside_greenlet(session: Session, state: InstanceState[Any], ref: PublicRef) -> None:
    if session.get_bind(_mapper(ref)).dialect.is_async and not in_greenlet():
        where = f"{state.class_.__name__}.{ref.attribute}"
        raise MissingGreenlet(f"{where} is not loaded, and no attribute can wait for the database; {_advice(where)}")


def _advice(where: str) -> str:
    return f"load it with the object, .options(references.eager({where})), or later, references.load(session, objects)"


def known(state: InstanceState[Any], ref: PublicRef, session: Session | None) -> Any:
    """What *ref* shows, where that can be told without asking for it."""
    related = state.dict.get(ref.relationship)
    if ref.relationship in state.dict and newly_related(state, ref):
        return None if related is None else getattr(related, ref.target_id)
    if ref.key not in state.dict and ref.relationship in state.dict:  # the key is deferred
        return None if related is None else getattr(related, ref.target_id)
    key = state.dict[ref.key] if ref.key in state.dict else getattr(state.obj(), ref.key)
    if key is None:
        return None
    if isinstance(key, Waiting):
        return key.public_id if key.attribute == ref.attribute else None  # the other ids of that row: after the flush
    remembered = state.info.get(_REMEMBERED, {}).get(ref.attribute)
    if remembered is not None and remembered[0] == key:
        return remembered[1]
    if related is None and session is not None and ref.source.is_primary:
        token = state.identity_token  # its shard, where there are several
        related = session.identity_map.get(_mapper(ref).identity_key_from_primary_key((key,), identity_token=token))
    if related is not None:
        values = instance_state(related).dict
        if values.get(ref.target_key) == key and values.get(ref.target_id) is not None:
            return values[ref.target_id]
    return _UNKNOWN


def _load_keys(session: Session, states: Sequence[InstanceState[Any]]) -> None:
    """Fetch the foreign keys that are deferred or expired, of all *states* at once: one SELECT a model."""
    lacking: dict[tuple[Mapper[Any], Any], list[InstanceState[Any]]] = {}
    for state in dict.fromkeys(states):
        refs = refs_of(state.mapper).values()
        if state.persistent and any(ref.key not in state.dict and ref.relationship not in state.dict for ref in refs):
            lacking.setdefault((state.mapper, state.identity_token), []).append(state)
    for (mapper, shard), members in lacking.items():
        if len(members) == 1:
            continue  # SQLAlchemy asks for it
        primary = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
        names = list(dict.fromkeys(ref.key for ref in refs_of(mapper).values()))
        own, keys = ([mapper.attrs[name].class_attribute for name in some] for some in (primary, names))
        by_identity = {cast("tuple[Any, ...]", state.identity): state for state in members}
        with session.no_autoflush:
            traits = traits_for(session.get_bind(mapper, **_at(session, shard)).dialect)
            for condition in _any_of(traits, own, list(by_identity)):
                query = select(*own, *keys).where(condition)
                for row in session.execute(query, bind_arguments=_at(session, shard)):
                    found = by_identity.get(tuple(row[: len(own)]))  # None: PostgreSQL fills up CHAR with blanks
                    for name, value in zip(names, row[len(own) :], strict=True):
                        if found is not None and name not in found.dict:
                            set_committed_value(found.obj(), name, value)


def _any_of(
    traits: Traits, columns: Sequence[QueryableAttribute[Any]], keys: Sequence[tuple[Any, ...]]
) -> Iterator[ColumnElement[bool]]:
    """Conditions that together select the rows with one of *keys*, as few as the database allows.

    For several columns it is ``a = 1 AND b = 2 OR a = 3 AND …``, for which every database uses its index; of tuples,
    ``(a, b) IN …``, SQLite reads the whole table, and others know nothing.
    """
    if len(columns) == 1:
        yield from traits.any_of(columns[0], [key for (key,) in keys])
        return
    size = min(_COMPOSITE_AT_ONCE, (traits.max_parameters or _AT_ONCE) // len(columns))
    for at in range(0, len(keys), size):
        some = list(keys[at : at + size])
        length = 1 << (len(some) - 1).bit_length()  # few lengths, since SQLAlchemy keeps a compiled statement for each
        some += some[-1:] * (min(length, size) - len(some))
        yield or_(*(and_(*map(operator.eq, columns, key)) for key in some))


def newly_related(state: InstanceState[Any], ref: PublicRef) -> bool:
    """Whether the relationship was set to something since the last flush; it decides then.

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
            if each.source == ref.source and each.key in other.dict and known(other, each, session) is _UNKNOWN:
                yield other, each
                keys.add(other.dict[each.key])
        if len(keys) >= _AT_ONCE:
            return


def _fetch(session: Session, source: Source, members: Iterable[tuple[InstanceState[Any], PublicRef]]) -> None:
    """Ask for the public ids of all *members*, and remember them."""
    by_shard: dict[Any, list[tuple[InstanceState[Any], PublicRef, Any]]] = {}
    for state, ref in members:
        by_shard.setdefault(state.identity_token, []).append((state, ref, state.dict[ref.key]))
    for shard, wanted in by_shard.items():
        _fetch_from(session, source, shard, wanted)


def _fetch_from(
    session: Session, source: Source, shard: Any, wanted: list[tuple[InstanceState[Any], PublicRef, Any]]
) -> None:
    key, public_id = source.columns()
    found: dict[Any, str | None] = {}
    at, asked = _at(session, shard), list(dict.fromkeys(each for _, _, each in wanted))
    with session.no_autoflush:  # what a stored foreign key points to is stored, too
        traits = traits_for(session.get_bind(inspect(source.model), **at).dialect)
        for condition in traits.any_of(key, asked):
            for each, text in session.execute(select(key, public_id).where(condition), bind_arguments=at):
                found[each] = text
        if not isinstance(key.type, Integer):  # the same text may be spelled in another way there, 'eur' for 'EUR'
            for each in asked:
                if each not in found:
                    found[each] = session.scalar(select(public_id).where(key == each), bind_arguments=at)
    for state, ref, each in wanted:
        if found.get(each) is not None or state.persistent:
            remember(state, ref, each, found.get(each))


def _at(session: Session, shard: Any) -> dict[str, Any]:
    """Asks one database of a sharded session; a key means another row in each of them."""
    return {"shard_id": shard} if shard is not None and is_sharded(session) else {}


def lookup_keys(session: Session, source: Source, public_ids: Iterable[str]) -> dict[str, Any]:
    """Public id → key, of those that there are."""
    key, public_id = source.columns()
    found: dict[str, Any] = {}
    with session.no_autoflush:
        traits = traits_for(session.get_bind(inspect(source.model)).dialect)
        for condition in traits.any_of(public_id, list(public_ids), public_id.type.as_parameter):
            for text, each in session.execute(select(public_id, key).where(condition)):
                found[text] = each
    return found


def lookup_objects(session: Session, source: Source, public_ids: Iterable[str]) -> dict[str, object]:
    """Public id → object with its key, of those that there are."""
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
