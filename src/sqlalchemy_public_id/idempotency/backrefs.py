"""Backrefs to an object that is not in the session yet.

``Order(customer=ada)`` also puts the new order into ``ada.orders``. A flush before the order is added would warn about
it, and discard it. So the order is taken out of the attributes of other objects until it is stored, without events for
validators or listeners of the application. Its own attributes are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from sqlalchemy import inspect
from sqlalchemy.orm import InstanceState, RelationshipProperty, Session
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.orm.collections import collection_adapter

Backref: TypeAlias = tuple[InstanceState[Any], RelationshipProperty[Any]]
"""An object, and its relationship that refers to the new object."""
_NEVER_LOADED = {"dynamic", "write_only"}


def related_objects(state: InstanceState[Any], relationship: RelationshipProperty[Any]) -> list[InstanceState[Any]]:
    """Return the objects that a relationship of *state* refers to, as far as they are loaded."""
    value = state.dict.get(relationship.key)
    if value is None or relationship.lazy in _NEVER_LOADED:
        return []
    return [inspect(other) for other in (collection_adapter(value) if relationship.uselist else [value])]


def leave_backrefs(session: Session, state: InstanceState[Any]) -> list[Backref]:
    """Take the object of *state* out of the backrefs of objects in *session*; return those that were loaded."""
    left: list[Backref] = []
    for relationship in state.mapper.relationships:
        for other in related_objects(state, relationship):
            back = other.mapper.relationships.get(relationship.back_populates)
            # only if both sides populate each other, no other pending change of the attribute is lost
            if back is None or back.back_populates != relationship.key or other.session is not session:
                continue
            is_loaded = state in related_objects(other, back)
            if is_loaded:
                left.append((other, back))
            if is_loaded and back.uselist:
                collection_adapter(other.dict[back.key]).remove_without_event(state.object)
            elif is_loaded and other.pending:
                set_committed_value(other.object, back.key, None)
            elif other.persistent and (is_loaded or back.key not in other.dict or back.lazy in _NEVER_LOADED):
                session.expire(other.object, [back.key])  # discards what a load or a flush would add
    return left


def enter_backrefs(state: InstanceState[Any], left: Sequence[Backref]) -> None:
    """Put the object of *state*, which is now stored, back into the backrefs that :func:`leave_backrefs` returned."""
    for other, back in left:
        if not back.uselist:
            set_committed_value(other.object, back.key, state.object)
        elif back.key in other.dict and state not in related_objects(other, back):  # unless a listener has reloaded it
            collection_adapter(other.dict[back.key]).append_without_event(state.object)
