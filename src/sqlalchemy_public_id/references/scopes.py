"""The attributes that an object and the row it refers to have in common: a ticket and its assignee the organisation.

The values are those that the flush will write. A foreign key may still be a relationship to an object without a key, or
a public id whose key has just been found.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from sqlalchemy import inspect, select
from sqlalchemy.orm import AttributeState, InstanceState, Mapper, RelationshipDirection, Session
from sqlalchemy.orm.attributes import instance_state

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError, PublicIdNotFound
from sqlalchemy_public_id.orm.inspection import is_sharded
from sqlalchemy_public_id.references.queries import public_ids_by_key
from sqlalchemy_public_id.references.reference import Condition, PublicRef, Source, UnresolvedKey
from sqlalchemy_public_id.weak import RefDict

Member: TypeAlias = tuple[InstanceState[Any], PublicRef, str]
"""An object, one of its references, and the public id that was assigned to it."""

Shared: TypeAlias = dict[Any, dict[str, Any]]
"""Key of a row → the values of its shared attributes."""

Targets: TypeAlias = tuple[dict[str, object], dict[str, Any], Shared]
"""Public id → new object, public id → key, and the shared values of the rows with these keys."""


Flushed: TypeAlias = tuple[InstanceState[Any], PublicRef, Targets, str]
"""An object, one of its references, and where the flush has found the public id that was assigned."""


def not_found(public_id: str, ref: PublicRef, model: type[Any]) -> PublicIdNotFound:
    """Build the error for an assigned id that belongs to no row, as far as the session may see."""
    return PublicIdNotFound(public_id, model=ref.target.__name__, field=f"{model.__name__}.{ref.attribute}")


def names_of(refs: Iterable[PublicRef]) -> tuple[str, ...]:
    """Return the names of all shared attributes of *refs*."""
    return tuple(dict.fromkeys(name for ref in refs for name in ref.shared))


def refused(
    session: Session,
    unresolved: Mapping[tuple[Source, Condition | None], list[Member]],
    targets: Mapping[tuple[Source, Condition | None], Targets],
) -> set[tuple[InstanceState[Any], PublicRef]]:
    """Return the references to rows that have other values of the shared attributes. Sends no statement for them."""
    others: set[tuple[InstanceState[Any], PublicRef]] = set()
    if not any(ref.shared for members in unresolved.values() for _, ref, _ in members):
        return others  # most flushes
    found: dict[UnresolvedKey, Any] = {}
    for (source, _), (new, keys, _) in targets.items():
        for attribute in {ref.attribute for members in unresolved.values() for _, ref, _ in members}:
            for public_id, value in [*new.items(), *keys.items()]:
                found[UnresolvedKey(attribute, public_id, source)] = value
    for wanted, members in unresolved.items():
        new, keys, stored = targets[wanted]
        for state, ref, public_id in members:
            target = new.get(public_id)
            if target is None and public_id not in keys:
                continue  # there is no such row
            for name in ref.shared:
                with session.no_autoflush:  # it may load an attribute that is expired
                    value = _value(state, name, found)
                    if value is None and not state.persistent and name not in state.dict:
                        raise ConfigurationError(
                            f"{state.class_.__name__}.{ref.attribute} has the scope {name!r}, which the object does "
                            f"not have before the flush: set {name}, or the relationship that it belongs to"
                        )
                    if target is not None:
                        other = _value(instance_state(target), name, found)
                    else:
                        other = stored.get(keys[public_id], {}).get(name)
                if not _is_same(value, other):
                    others.add((state, ref))
    return others


def remember(session: Session, members: list[Flushed]) -> None:
    """Note the references of a flush whose scope is checked once more after it."""
    if members:
        _flushed.keep(session, members)


def forget(session: Session) -> None:
    """Discard the references of a flush that has failed."""
    _flushed.pop(weakref.ref(session), None)


def check_again(session: Session) -> None:
    """Compare what the flush has written: a collection or another object may have changed a shared attribute.

    Values that an object shows need no statement, as in a program by hand: what it has loaded may be older than its
    row. Values that are not loaded are read, and so are values that differ from what was found.

    :raises PublicIdNotFound: if the row has other values than the one it refers to; the flush is rolled back.
    """
    by_ref: dict[PublicRef, list[InstanceState[Any]]] = {}
    for state, ref, targets, public_id in _flushed.pop(weakref.ref(session), ()):
        if state.dict.get(ref.key) is None or is_sharded(session):
            continue
        if not _is_shown(session, state, ref, targets, public_id):
            by_ref.setdefault(ref, []).append(state)
    for ref, states in by_ref.items():
        own = _own_values(session, states[0].mapper.base_mapper, states, ref.shared)
        others = _stored(session, ref.source, ref.shared, [state.dict[ref.key] for state in states])
        for state in states:
            values, other = own.get(_key_of(state)), others.get(state.dict[ref.key], {})
            if values is None:  # deleted
                continue
            if any(not _is_same(value, other.get(name)) for name, value in zip(ref.shared, values, strict=True)):
                public_ids = public_ids_by_key(session, ref.source, state.identity_token, [state.dict[ref.key]])
                raise not_found(str(public_ids.get(state.dict[ref.key])), ref, state.class_)


def _is_shown(session: Session, state: InstanceState[Any], ref: PublicRef, targets: Targets, public_id: str) -> bool:
    """Return True if *state* shows the values of the row it refers to: as it was found, and as its object is."""
    new, keys, stored = targets
    if public_id in new:
        rows = [instance_state(new[public_id]).dict]
    elif ref.source.is_primary:
        found = {**stored[keys[public_id]], ref.target_key: keys[public_id]}
        identity = ref.source.mapper.identity_key_from_primary_key((keys[public_id],))
        target = session.identity_map.get(identity)
        loaded = found if target is None else instance_state(target).dict
        if any(name not in loaded for name in ref.shared) and target in session.dirty:
            return False  # the flush may have written an SQL expression
        rows = [found, {**found, **loaded}]
    else:
        return False
    pairs = [(ref.key, ref.target_key), *zip(ref.shared, ref.shared, strict=True)]
    return all(
        name in state.dict and other in row and _is_same(state.dict[name], row[other])
        for row in rows
        for name, other in pairs
    )


def _key_of(state: InstanceState[Any]) -> tuple[Any, ...]:
    mapper = state.mapper
    return tuple(state.dict[mapper.get_property_by_column(column).key] for column in mapper.primary_key)


def _own_values(
    session: Session, mapper: Mapper[Any], states: list[InstanceState[Any]], names: tuple[str, ...]
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the key of each object → what the flush has written to the attributes *names*."""
    model = states[0].mapper.class_ if len({state.mapper for state in states}) == 1 else mapper.class_
    keys = [getattr(model, mapper.get_property_by_column(column).key) for column in mapper.primary_key]
    return _values(session, model, keys, names, [_key_of(state)[0] for state in states])


def check_row(model: type[Any], ref: PublicRef, row: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
    """Refuse a row of a statement that has other values of the shared attributes than the row it refers to.

    :param row: the parameters of the row, with the foreign keys that its references stand for.
    :param stored: the shared values of the row that *ref* refers to.
    :raises ConfigurationError: if the row does not have a shared attribute, so that it cannot be compared.
    """
    for name in ref.shared:
        if name not in row:
            raise ConfigurationError(
                f"{model.__name__}.{ref.attribute} has the scope {name!r}, and a row of the statement does not have "
                f"{name!r} to compare: add it to each row"
            )
        if not _is_same(row[name], stored.get(name)):
            raise not_found(row[ref.attribute], ref, model)


_flushed: RefDict[Session, list[Flushed]] = RefDict()
"""Session → the references that its flush has resolved, and whose scope has attributes."""


def _stored(session: Session, source: Source, names: tuple[str, ...], keys: list[Any]) -> dict[Any, dict[str, Any]]:
    """Return key → the values of the attributes *names* of its row."""
    key, _ = source.columns()
    values = _values(session, source.model, [key], names, keys)
    return {own: dict(zip(names, row, strict=True)) for (own,), row in values.items()}


def _values(
    session: Session, model: type[Any], keys: list[Any], names: tuple[str, ...], wanted: list[Any]
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the values of *keys* → those of the attributes *names*, of rows whose first key is *wanted*."""
    query: Any = select(*keys, *(getattr(model, name) for name in names))
    values: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    mapper: Mapper[Any] = inspect(model)
    if wanted:
        conditions = traits_for(session.get_bind(mapper).dialect).any_of(keys[0], list(dict.fromkeys(wanted)))
        with session.no_autoflush:
            for condition in conditions:
                for row in session.execute(query.where(condition)):
                    values[tuple(row[: len(keys)])] = tuple(row[len(keys) :])
    return values


def _value(state: InstanceState[Any], name: str, found: Mapping[UnresolvedKey, Any]) -> Any:
    """Return the value of the attribute that a flush will write: a key, or the object that will have the key."""
    mapper = state.mapper
    value = state.dict.get(name)
    if isinstance(value, UnresolvedKey):
        return found.get(value, value)
    columns = set(mapper.column_attrs[name].columns)
    for relationship in mapper.relationships:
        pairs = dict(relationship.local_remote_pairs)
        local = next((column for column in pairs if column in columns), None)
        if local is None or relationship.direction is not RelationshipDirection.MANYTOONE:
            continue
        related = state.dict.get(relationship.key)
        if related is None or not AttributeState(state, relationship.key).history.added:
            continue  # the foreign key decides
        key = relationship.mapper.get_property_by_column(pairs[local]).key
        remote = getattr(related, key)
        return related if remote is None else remote
    return getattr(state.obj(), name) if value is None and state.persistent else value


def _is_same(value: Any, other: Any) -> bool:
    return value is other or bool(value == other)
