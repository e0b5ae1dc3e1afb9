"""The events of an attribute that is a public id.

* **On first access** of an object that is not flushed yet (``init_scalar``) the id is made at once, so that
  ``User().public_id`` is known before the flush.
* **On assignment** (``set``) the id is checked; that of a stored row cannot change (:class:`ImmutablePublicId`). If it
  is not loaded, nothing is loaded for that: the flush compares (``before_update``).
"""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import Column, event, select
from sqlalchemy.engine import Connection
from sqlalchemy.orm import InstanceState, LoaderCallableStatus, QueryableAttribute
from sqlalchemy.orm.attributes import AttributeEventToken, set_committed_value

from sqlalchemy_public_id.errors import ImmutablePublicId, shown
from sqlalchemy_public_id.orm.marks import marks_of
from sqlalchemy_public_id.types import is_expression, public_id_type


def listen_to_attribute(attribute: QueryableAttribute[Any], column: Column[Any]) -> None:
    """Listen to the first access, the assignment and the deletion of a public id."""
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


def refuse_another_id(state: InstanceState[Any], attributes: dict[str, Column[Any]], connection: Connection) -> None:
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


def on_expire(state: InstanceState[Any], names: object) -> None:
    """``make_transient_to_detached()`` expires an object that has a row from now on, and so another id."""
    marks = marks_of(state)
    if marks.made and state.has_identity:
        for key in marks.made:
            state.dict.pop(key, None)
            state.expired_attributes.add(key)
            marks.forget(key)
