"""Attributes that are copied from a patch, an object with the key of a row, leave the id of the row."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import inspect, select
from sqlalchemy.orm import Session, load_only
from support.marks import on
from support.members import A, Animal, B, Dog, Link, Seat, Team, User
from support.rows import stored
from support.ways import flush

from sqlalchemy_public_id import ImmutablePublicId, testing
from sqlalchemy_public_id.orm.mappers import _patches

pytestmark = pytest.mark.usefixtures("members")


def copy(patch: Any, row: Any) -> None:
    """Copy all attributes that have values, as templates of repositories do."""
    for attribute in inspect(type(row)).column_attrs:
        value = getattr(patch, attribute.key, None)
        if value is not None:
            setattr(row, attribute.key, value)


def of(model: Any, **values: Any) -> Any:
    return model(name="new", **values)


@on("sqlite", "postgresql")
@pytest.mark.parametrize("model", [User, Team, Dog])
@pytest.mark.parametrize("state", ["loaded", "expired", "deferred"])
def test_copies_of_a_patch(session: Session, model: Any, state: str) -> None:
    """The row keeps its id, and gets the other values; the patch shows its own id for ever."""
    [row] = flush(session, model, [{"name": "old"}])
    session.commit()
    key, public_id = row.id, row.public_id
    if state == "expired":
        session.expire(row)
    elif state == "deferred":
        session.expunge_all()
        row = session.scalars(select(model).options(load_only(model.name))).one()
    patch = of(model, id=key)
    copy(patch, row)
    shown = patch.public_id
    assert (row.public_id, row.name) == (public_id, "new")
    session.commit()

    assert (row.public_id, row.name) == (public_id, "new")
    assert shown == patch.public_id != public_id
    assert model.public_id.type.id_format.is_valid(shown)


@on("sqlite")
def test_only_the_id_is_copied(session: Session, user: User) -> None:
    """An id that is not loaded is loaded, and shown, when the id of a patch is assigned."""
    session.expire(user)
    patch = User(id=1)
    user.public_id = patch.public_id

    assert user.public_id == A
    session.commit()
    assert stored(session, User) == {1: A}


@on("sqlite")
def test_copies_to_subclasses_and_composite_keys(session: Session) -> None:
    """A patch of a base class stands for the row of a subclass; a composite key counts as a whole."""
    [dog] = flush(session, Dog, [{"name": "Rex"}])
    seats = [Seat(line=1, place=1), Seat(line=1, place=2)]
    session.add_all(seats)
    session.commit()
    before = dog.public_id, [seat.public_id for seat in seats]
    animal, patch = Animal(id=dog.id), Seat(line=1, place=2)
    dog.public_id = animal.public_id
    seats[1].public_id = patch.public_id
    with pytest.raises(ImmutablePublicId):
        seats[0].public_id = patch.public_id

    assert before == (dog.public_id, [seat.public_id for seat in seats])


@on("sqlite")
def test_copies_of_two_ids(session: Session) -> None:
    """Each of two public ids of a model stays, and is not taken for the other one."""
    [link] = flush(session, Link, [{}])
    before, patch = (link.short, link.long), Link(id=link.id)
    copy(patch, link)
    assert before == (link.short, link.long)
    with pytest.raises(ImmutablePublicId):
        link.short = patch.long


OTHERS: dict[str, Callable[[int], Any]] = {
    "another key": lambda key: User(id=key + 1),
    "no key": lambda key: User(),
    "another model": lambda key: Team(id=key),
    "given": lambda key: User(id=key, public_id=B),
    "key set later": lambda key: late(key),
}


def late(key: int) -> User:
    user = User()
    assert user.public_id
    user.id = key
    return user


@on("sqlite")
@pytest.mark.parametrize("other", OTHERS)
def test_other_ids_are_refused(session: Session, user: User, other: str) -> None:
    """Any other assignment raises: of the id of an object with another key, without one, or with a given id."""
    patch = OTHERS[other](user.id)
    with pytest.raises(ImmutablePublicId):
        user.public_id = patch.public_id
    assert stored(session, User) == {user.id: A}


@on("sqlite")
def test_patch_that_became_a_row(session: Session, user: User) -> None:
    """The id of an object that has been added to a session, or whose id was replaced or is gone, is refused."""
    patches = [User(id=user.id), User(id=user.id), User(id=user.id)]
    ids = [patch.public_id for patch in patches]
    with Session(session.get_bind()) as twin, twin.no_autoflush:
        twin.add(patches[0])
        with pytest.raises(ImmutablePublicId):
            user.public_id = ids[0]
        twin.expunge(patches[0])
    patches[1].public_id = B
    for public_id in (ids[1], B):
        with pytest.raises(ImmutablePublicId):
            user.public_id = public_id
    patches.clear()
    gc.collect()
    with pytest.raises(ImmutablePublicId):
        user.public_id = ids[2]


@on("sqlite", "postgresql")
@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("is_loaded", [True, False])
def test_merged_patch(session: Session, user: User, is_read: bool, is_loaded: bool) -> None:
    """``merge()`` of a patch keeps the id of the row, whether the id of the patch was read before or not."""
    patch = User(id=user.id, name="new")
    shown = patch.public_id if is_read else None
    if not is_loaded:
        session.expunge_all()
    merged = session.merge(patch)
    session.commit()

    assert (merged.public_id, merged.name, stored(session, User)) == (A, "new", {1: A})
    if is_read:
        assert patch.public_id == shown


@on("sqlite")
def test_merged_patch_without_a_row(session: Session) -> None:
    """If no row has the key of a patch, ``merge()`` inserts one with the id that the patch has shown."""
    patch = User(id=7)
    shown = patch.public_id
    session.merge(patch)
    session.commit()

    assert stored(session, User) == {7: shown}


@on("sqlite")
def test_memory(session: Session) -> None:
    """Only objects with a key are remembered, as long as they exist."""
    gc.collect()
    before = len(_patches)
    users = [User() for _ in range(5)]
    assert all(user.public_id for user in users)
    assert len(_patches) == before
    with testing.fixed_ids(User, A):
        patch = User(id=1)
        assert patch.public_id == A
    assert len(_patches) == before + 1
    assert pickle.loads(pickle.dumps(patch)).public_id == A
    del patch
    gc.collect()
    assert len(_patches) == before
