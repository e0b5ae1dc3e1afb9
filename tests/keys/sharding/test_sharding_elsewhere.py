"""What the rest of the library does on a session of several databases, whose keys are the same in each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, ForeignKey, MetaData, String, event, select
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlalchemy.pool import NullPool
from support.shard_files import tables_in

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdMixin,
    bulk,
    idempotency,
    lookup,
    public_ref,
    references,
)
from sqlalchemy_public_id.keys import ShardRouter


class Base(DeclarativeBase):
    metadata = MetaData()


class Owner(PublicIdMixin, Base):
    __tablename__ = "shard_owner"
    __public_id__ = NanoId(prefix="shown")
    name: Mapped[str] = mapped_column(String(50), default="")


class Pet(PublicIdMixin, Base):
    __tablename__ = "shard_pet"
    owner_id: Mapped[int] = mapped_column(ForeignKey(Owner.id))
    owner: Mapped[Owner] = relationship()
    owner_public_id: Mapped[str] = public_ref("owner")


@pytest.fixture
def engines(new_engine: Callable[..., Engine]) -> Iterator[dict[str, Engine]]:
    engines = {name: new_engine("sqlite", poolclass=NullPool) for name in "ab"}
    with tables_in(engines, Base.metadata):
        yield engines


@pytest.fixture
def router(engines: dict[str, Engine]) -> ShardRouter:
    router = ShardRouter(engines, place={Pet: lambda pet: router.shard_of(pet.owner)})
    return router


@pytest.fixture
def db(router: ShardRouter) -> Iterator[ShardedSession]:
    with router.session() as session:
        yield session


def test_bulk_insert(db: ShardedSession, router: ShardRouter, engines: dict[str, Engine]) -> None:
    """Objects that are inserted in bulk lie in the shards that their ids tell, with key and id."""
    owners = [Owner() for _ in range(40)]

    bulk.insert(db, owners)
    db.commit()

    for name, engine in engines.items():
        with Session(engine) as session:
            here = set(session.scalars(select(Owner.public_id)))
            assert here == {each.public_id for each in owners if router.shard_of(each) == name}
            assert len(here) > 5


def test_references(db: ShardedSession, engines: dict[str, Engine]) -> None:
    """A reference shows the row of the object's own shard, although another shard has one with the same key."""
    owners = [Owner() for _ in range(20)]
    db.add_all([Pet(owner=owner) for owner in owners])
    db.commit()
    wanted = {pet.public_id: pet.owner.public_id for pet in db.scalars(select(Pet))}
    db.expunge_all()
    sent: Counter[str] = Counter()
    for name, engine in engines.items():
        event.listen(engine, "before_cursor_execute", lambda *call, name=name: sent.update([name]))

    pets = db.scalars(select(Pet)).all()
    shown = {pet.public_id: pet.owner_public_id for pet in pets}

    assert shown == wanted
    assert sent == {"a": 2, "b": 2}
    assert len({pet.owner_id for pet in pets}) < len(pets)


def test_references_of_expired_objects(db: ShardedSession) -> None:
    """Foreign keys that have to be fetched again come from the shard of each object."""
    db.add_all([Pet(owner=Owner()) for _ in range(20)])
    db.commit()
    wanted = {pet.public_id: pet.owner.public_id for pet in db.scalars(select(Pet))}
    db.expunge_all()
    pets = db.scalars(select(Pet)).all()
    ids = {pet: pet.public_id for pet in pets}
    for pet in pets:
        db.expire(pet, ["owner_id"])

    references.load(db, pets)

    assert {ids[pet]: pet.owner_public_id for pet in pets} == wanted


def test_insert_once(db: ShardedSession) -> None:
    """A repeated insert needs a savepoint, which a sharded session does not keep: that is said at once."""
    with pytest.raises(ConfigurationError, match="session of the one shard"):
        idempotency.insert_once(db, Owner(public_id="shown_izkpm55j334u"))

    assert not db.in_transaction()


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_over_a_join(db: ShardedSession, router: ShardRouter, limit: int, newest_first: bool) -> None:
    """A join that repeats the rows of one shard fills its part of a page; rows behind them are not skipped."""
    owners = [Owner() for _ in range(20)]
    db.add_all(owners)
    db.flush()
    for owner in owners:
        db.add_all([Pet(owner=owner) for _ in range(3 if router.shard_of(owner) == "a" else 1)])
    db.commit()
    seen: list[str] = []
    after: str | None = None
    while not seen or after is not None:
        joined = select(Owner).join(Pet, Pet.owner_id == Owner.id)
        page = lookup.page(db, joined, limit=limit, after=after, newest_first=newest_first)
        seen += [owner.public_id for owner in page]
        after = page.next

    expected = sorted(owners, key=lambda owner: (owner.id, owner.public_id), reverse=newest_first)
    assert seen == [owner.public_id for owner in expected]
