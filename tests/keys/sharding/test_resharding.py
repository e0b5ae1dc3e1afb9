"""A new shard at the end gets its share of the rows, with their public ids and with keys of its own."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, delete, func, insert, select
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import Session
from support.sharded import Account, Note, Shards

from sqlalchemy_public_id import lookup
from sqlalchemy_public_id.keys import ShardRouter

pytestmark = pytest.mark.parametrize("shards", ["four files of SQLite"], indirect=True)

OLD = "abc"


def router_of(shards: Shards, names: str) -> ShardRouter:
    """Return a router by hash over some of the shards, which places notes with their accounts."""
    engines = {name: shards.engines[name] for name in names}
    router = ShardRouter(engines, place={Note: lambda note: router.shard_of(note.account)})
    return router


@pytest.fixture
def ids(shards: Shards) -> list[str]:
    """Store 300 accounts with a note each in three shards, and return the public ids of the accounts."""
    with router_of(shards, OLD).session() as db:
        accounts = [Account(name=f"account {number}", notes=[Note()]) for number in range(300)]
        db.add_all(accounts)
        db.commit()
        return [account.public_id for account in accounts]


def moved(shards: Shards, name: str, larger: ShardRouter) -> list[str]:
    """Return the public ids of the accounts that do not stay in this shard."""
    with Session(shards.engines[name]) as session:
        stored = session.scalars(select(Account.public_id)).all()
    return [each for each in stored if larger.shard_of_id(Account, each) != name]


def copy(source: Engine, target: Engine, ids: list[str]) -> None:
    """Copy accounts and their notes, without keys: those of *source* belong to other rows of *target*."""
    with Session(source) as old, Session(target) as new:
        for account in lookup.get_many(old, Account, ids).values():
            notes = old.scalars(select(Note.public_id).where(Note.account_id == account.id)).all()
            row = {"public_id": account.public_id, "name": account.name}
            new.execute(insert(Account.__table__), row)
            [key] = lookup.keys_of(new, Account, [account.public_id]).values()
            new.execute(insert(Note.__table__), [{"public_id": each, "account_id": key} for each in notes])
        new.commit()


def remove(source: Engine, ids: list[str]) -> None:
    with Session(source) as old:
        keys = list(lookup.keys_of(old, Account, ids).values())
        old.execute(delete(Note).where(Note.account_id.in_(keys)))
        old.execute(delete(Account).where(Account.id.in_(keys)))
        old.commit()


def count(db: ShardedSession) -> tuple[int, int]:
    return sum(db.scalars(select(func.count()).select_from(Account))), sum(
        db.scalars(select(func.count()).select_from(Note))
    )


def test_a_new_shard(shards: Shards, ids: list[str]) -> None:
    """A quarter of the rows moves to the fourth shard, and no row to another; then each is found with its note."""
    smaller, larger = router_of(shards, OLD), router_of(shards, "abcd")
    moving = {name: moved(shards, name, larger) for name in OLD}
    going = [each for of_one in moving.values() for each in of_one]
    assert {larger.shard_of_id(Account, each) for each in going} == {"d"}
    assert 40 < len(going) < 120
    assert all(smaller.shard_of_id(Account, each) == larger.shard_of_id(Account, each) for each in {*ids} - {*going})

    for name, of_one in moving.items():
        copy(shards.engines[name], shards.engines["d"], of_one)
    with smaller.session() as db:  # programs that have not restarted find all rows meanwhile
        assert lookup.get_many(db, Account, ids).keys() == {*ids}
        assert count(db) == (300, 300)
    with larger.session() as db:  # programs that have restarted, too, but queries of all shards see the copies
        assert lookup.get_many(db, Account, ids).keys() == {*ids}
        assert count(db) == (300 + len(going), 300 + len(going))
    for name, of_one in moving.items():
        remove(shards.engines[name], of_one)

    with larger.session() as db:
        assert count(db) == (300, 300)
        found = lookup.get_many(db, Account, ids)
        assert found.keys() == {*ids}
        for public_id, account in found.items():
            [note] = account.notes
            assert note.account_public_id == public_id
            assert larger.shard_of(account) == larger.shard_of(note) == larger.shard_of_id(Account, public_id)
        db.add_all(Account(notes=[Note()]) for _ in range(40))
        db.commit()
        assert count(db) == (340, 340)
    assert [shards.holding(Account, each) for each in going] == [["d"]] * len(going)


def test_the_router_before_the_rows(shards: Shards, ids: list[str]) -> None:
    """If programs get the larger router before the rows are copied, they do not find those that move."""
    larger = router_of(shards, "abcd")
    with larger.session() as db:
        missing = {each for each in ids if lookup.get(db, Account, each) is None}

    assert missing == {each for each in ids if larger.shard_of_id(Account, each) == "d"}
