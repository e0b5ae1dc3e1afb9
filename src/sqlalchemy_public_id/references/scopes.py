"""Check the attributes that an object must share with the row it refers to, such as the organization.

They are compared before the flush, by the values that it will write: a foreign key may still be a relationship to an
object without a key, or a public id whose key has just been found. Attributes that a collection or a listener changes
in the flush are compared after it, by the values of the objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy.orm import AttributeState, InstanceState, RelationshipDirection, Session
from sqlalchemy.orm.attributes import instance_state

from sqlalchemy_public_id.errors import ConfigurationError, PublicIdNotFound
from sqlalchemy_public_id.references.reference import PublicRef, Source, UnresolvedKey, refs_of

Member: TypeAlias = tuple[InstanceState[Any], PublicRef, str]
"""An object, one of its references, and the public id that was assigned to it."""

Found: TypeAlias = Mapping[tuple[Source, str], Any]
"""Public id → its key, or the new object that will have one."""


class Target(NamedTuple):
    """What an assigned public id stands for."""

    key: Any = None
    instance: object = None
    """The object that the relationship is set to, instead of the key: a new object, or a row of a sharded session."""
    shared: Mapping[str, Any] = {}
    """The stored values of shared attributes."""


def not_found(public_id: str, ref: PublicRef, model: type[Any]) -> PublicIdNotFound:
    """Build the error for an assigned id that belongs to no row that the session can see."""
    return PublicIdNotFound(public_id, model=ref.target.__name__, field=f"{model.__name__}.{ref.attribute}")


def is_in_scope(state: InstanceState[Any], ref: PublicRef, target: Target, found: Found) -> bool:
    """Return True if *state* will have the same values of the shared attributes as *target*."""
    for name, other in ref.compared:
        value = _value(state, name, found)
        if value is None and not state.persistent and name not in state.dict:
            raise ConfigurationError(
                f"{state.class_.__name__}.{ref.attribute} has the scope {name!r}, which the object does "
                f"not have before the flush: set {name}, or the relationship that it belongs to"
            )
        one = target.instance
        if not _is_same(value, target.shared[other] if one is None else _value(instance_state(one), other, found)):
            return False
    return True


def stored_values(state: InstanceState[Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the values of the attributes *names* before they were changed, without those that are not loaded."""
    stored: dict[str, Any] = {}
    for name in names:
        history = AttributeState(state, name).history
        for value in history.deleted or history.unchanged or ():
            stored[name] = value
    return stored


def written_values(state: InstanceState[Any], ref: PublicRef, found: Found) -> dict[str, Any]:
    """Return the values of the shared attributes that a flush will write."""
    return {name: _value(state, name, found) for name in ref.shared}


def moves(stored: Mapping[str, Any], written: Mapping[str, Any]) -> bool:
    """Return True if a shared attribute changes, so that the object leaves the tenant of the row it refers to."""
    return not all(name in stored and _is_same(value, stored[name]) for name, value in written.items())


def check_again(session: Session, members: Iterable[tuple[Member, Target]]) -> None:
    """Compare what the flush has written: a collection or another object may have changed a shared attribute.

    :raises PublicIdNotFound: if an object and the row it refers to have different values; the flush is rolled back.
    """
    changed: dict[Source, dict[Any, object]] = {}
    for (state, ref, public_id), target in members:
        if ref.source not in changed:
            rows = [one for one in session.dirty if isinstance(one, ref.target)]
            changed[ref.source] = {getattr(one, ref.target_id): one for one in rows}
        one = changed[ref.source].get(public_id, target.instance)
        for name, other in ref.compared:
            if not _is_same(getattr(state.obj(), name), target.shared[other] if one is None else getattr(one, other)):
                raise not_found(public_id, ref, state.class_)


def check_row(model: type[Any], ref: PublicRef, row: Mapping[str, Any], target: Target) -> None:
    """Refuse a row of a statement whose shared attributes differ from the row it refers to.

    :param row: the parameters of the row, with the foreign keys that its references stand for.
    :raises ConfigurationError: if the row does not have a shared attribute, so that it cannot be compared.
    """
    for name, other in ref.compared:
        if name not in row:
            raise ConfigurationError(
                f"{model.__name__}.{ref.attribute} has the scope {name!r}, and a row of the statement does not have "
                f"{name!r} to compare: add it to each row"
            )
        if not _is_same(row[name], target.shared[other]):
            raise not_found(row[ref.attribute], ref, model)


def _value(state: InstanceState[Any], name: str, found: Found) -> Any:
    """Return the value of the attribute that a flush will write: a key, or the object that will have the key."""
    mapper = state.mapper
    value = state.dict.get(name)
    if isinstance(value, UnresolvedKey):
        return found.get((refs_of(mapper)[value.attribute].source, value.public_id), value)
    for relationship in mapper.relationships:
        if relationship.direction is not RelationshipDirection.MANYTOONE or relationship.key not in state.dict:
            continue
        for local, remote in relationship.local_remote_pairs:
            related = state.dict[relationship.key]
            is_own = local in mapper.column_attrs[name].columns
            if is_own and related is not None and AttributeState(state, relationship.key).history.added:
                key = getattr(related, relationship.mapper.get_property_by_column(remote).key)
                return related if key is None else key
    return getattr(state.obj(), name) if value is None and state.persistent else value


def _is_same(value: Any, other: Any) -> bool:
    return value is other or bool(value == other)
