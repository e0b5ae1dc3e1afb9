"""Sharded rows that could not be found again are refused; and how the rest of the library works with shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, event, func, inspect, select
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from support.sharded import Account, Base, Note, Region

from sqlalchemy_public_id import ConfigurationError, bulk, idempotency, lookup, references
from sqlalchemy_public_id.keys import ShardRouter


@pytest.fixture
def engines(new_engine: Callable[..., Engine]) -> dict[str, Engine]:
    engines = {name: new_engine("sqlite", poolclass=NullPool) for name in "ab"}
    for engine in engines.values():
        Base.metadata.create_all(engine)
    return engines


@pytest.fixture
def router(engines: dict[str, Engine]) -> ShardRouter:
    return ShardRouter(engines)


@pytest.fixture
def placing(engines: dict[str, Engine]) -> ShardRouter:
    """Return a router that places notes with their accounts."""
    placing = ShardRouter(engines, place={Note: lambda note: placing.shard_of(note.account)})
    return placing


@pytest.fixture
def placed(placing: ShardRouter) -> Iterator[ShardedSession]:
    with placing.session() as session:
        yield session


def id_in(router: ShardRouter, model: Any, shard: str) -> str:
    """Return a public id of *model* that belongs to *shard*."""
    made = model.__public_id__.generate_many(200)
    return next(each for each in made if router.shard_of_id(model, each) == shard)


def places(engines: dict[str, Engine], model: Any = Account) -> dict[str, str]:
    """Return public id → shard of the stored rows."""
    rows: dict[str, str] = {}
    for name, engine in engines.items():
        with Session(engine) as session:
            rows |= dict.fromkeys(session.scalars(select(model.public_id)), name)
    return rows


IN_A, IN_B = 10 << 48, 20 << 48

# --- foreign keys


@pytest.mark.parametrize("by_reference", [False, True], ids=["relationship", "reference"])
def test_a_child_elsewhere_is_refused(router: ShardRouter, engines: dict[str, Engine], by_reference: bool) -> None:
    """With a hash, a child whose id belongs to another shard than its parent is refused, and not stored.

    A public id that is assigned to a reference refers to its row, not to a row of another shard with the same key.
    """
    accounts = {shard: Account(public_id=id_in(router, Account, shard)) for shard in "ab"}
    ids = {shard: account.public_id for shard, account in accounts.items()}

    def note(shard: str) -> Note:
        of = {"account_public_id": ids["a"]} if by_reference else {"account": accounts["a"]}
        return Note(public_id=id_in(router, Note, shard), **of)

    with router.session(expire_on_commit=False) as db:
        db.add_all(accounts.values())
        db.commit()
        if by_reference:
            db.expunge_all()
        db.add(note("b"))
        with pytest.raises(
            ConfigurationError, match=r"Note belongs to 'b', but its account is in 'a'.*place={Note: …}"
        ):
            db.commit()
        db.rollback()
        db.add(note("a"))
        db.commit()

    assert [*places(engines, Note).values()] == ["a"]


def test_a_reference_tells_the_place(placing: ShardRouter, engines: dict[str, Engine]) -> None:
    """A child that refers to its parent only by public id is stored in the shard of the parent."""
    with placing.session() as db:
        ids = [id_in(placing, Account, shard) for shard in "abab"]
        db.add_all([Account(public_id=each) for each in ids])
        db.commit()
        db.expunge_all()
        db.add_all([Note(account_public_id=each) for each in ids])
        db.commit()
        db.expunge_all()

        assert sorted(note.account.public_id for note in db.scalars(select(Note))) == sorted(ids)
    assert sorted(places(engines, Note).values()) == list("aabb")


@pytest.mark.parametrize("by_reference", [False, True], ids=["relationship", "reference"])
def test_a_stored_child_stays_with_its_parent(by_reference: bool, placing: ShardRouter) -> None:
    """A stored object cannot move, so changing its parent to an object of another shard is refused."""
    with placing.session() as db:
        here, there = (Account(public_id=id_in(placing, Account, shard)) for shard in "ab")
        note = Note(account=here)
        db.add_all([here, there, note])
        db.commit()
        if by_reference:
            note.account_public_id = there.public_id
        else:
            note.account = there

        with pytest.raises(ConfigurationError, match="Note belongs to 'a', but its account is in 'b'"):
            db.commit()
        db.rollback()
        assert note.account is here


def test_keys_of_clusters_may_point_elsewhere(engines: dict[str, Engine]) -> None:
    """If keys determine the shard, a foreign key may refer to a row of another shard."""
    router = ShardRouter(engines, by={10: "a", 20: "b"})
    with router.session() as db:
        db.add(Note(id=IN_A + 1, account=Account(id=IN_B + 1)))
        db.commit()
        db.expunge_all()

        assert db.get_one(Note, IN_A + 1).account.id == IN_B + 1


# --- place, key and shard_of()


def test_a_place_against_the_key_is_refused(engines: dict[str, Engine]) -> None:
    """Placing a row in another shard than that of its key is refused, because it would not be found."""
    router = ShardRouter(engines, by={10: "a", 20: "b"}, place=lambda each: "b")
    with router.session() as db:
        db.add(Region(id=IN_A + 1))
        with pytest.raises(
            ConfigurationError, match=f"the key {IN_A + 1} of Region belongs to 'a', but place= returned"
        ):
            db.commit()
        db.rollback()
        db.add(Region(id=IN_B + 1))
        db.commit()
        assert db.get_one(Region, IN_B + 1) is not None


def test_shard_of_expired_objects_of_plain_sessions(engines: dict[str, Engine]) -> None:
    """``shard_of()`` uses the key of a stored object, even if it is expired and its session is not sharded."""
    router = ShardRouter(engines, by={10: "a", 20: "b"})
    with Session(engines["b"]) as session:
        regions = [Region(id=IN_B + number) for number in range(1, 5)]
        session.add_all(regions)
        session.commit()

        assert [router.shard_of(each) for each in regions] == list("bbbb")


def test_shard_of_leaves_an_object_as_it_is(engines: dict[str, Engine], router: ShardRouter) -> None:
    """``shard_of()`` before the flush does not fix the shard: the flush uses the attributes at that time."""
    router = ShardRouter(engines, by={10: "a", 20: "b"})
    accounts = [Account() for _ in range(4)]
    asked = [router.shard_of(each) for each in accounts]
    again = [router.shard_of(each) for each in accounts]
    tokens = [inspect(each).identity_token for each in accounts]
    for account, shard in zip(accounts, asked, strict=True):
        account.id = IN_B + 1 + accounts.index(account) if shard == "a" else None
    with router.session() as db:
        db.add_all(accounts)
        db.commit()

        assert sorted(asked) == list("aabb")
        assert again == asked
        assert tokens == [None] * 4
        assert [router.shard_of(each) for each in accounts] == list("bbbb")


def test_the_shard_is_chosen_at_the_flush(db: ShardedSession, router: ShardRouter) -> None:
    """An object is stored in the shard of its id at the flush, even if its connection was requested before."""
    accounts = [Account(public_id=id_in(router, Account, "a")) for _ in range(2)]
    db.add_all(accounts)
    for each in accounts:
        db.connection(bind_arguments={"mapper": inspect(Account), "instance": each})
        each.public_id = id_in(router, Account, "b")
    db.commit()

    assert [lookup.get_one(db, Account, each.public_id) for each in accounts] == accounts
    assert [router.shard_of(each) for each in accounts] == ["b", "b"]


# --- the rest of the library


def test_bulk_insert(db: ShardedSession, router: ShardRouter, engines: dict[str, Engine]) -> None:
    """``bulk.insert`` stores objects in the shards of their ids, and sets their keys and ids."""
    accounts = [Account() for _ in range(40)]
    bulk.insert(db, accounts)
    db.commit()

    found = places(engines)
    assert found == {each.public_id: router.shard_of(each) for each in accounts}
    assert min(Counter(found.values()).values()) > 5


def test_references(placed: ShardedSession, engines: dict[str, Engine]) -> None:
    """A reference reads from the object's own shard, although another shard has a row with the same key."""
    accounts = [Account() for _ in range(20)]
    placed.add_all([Note(account=account) for account in accounts])
    placed.commit()
    wanted = {note.public_id: note.account.public_id for note in placed.scalars(select(Note))}
    placed.expunge_all()
    sent: Counter[str] = Counter()
    for name, engine in engines.items():
        event.listen(engine, "before_cursor_execute", lambda *call, name=name: sent.update([name]))

    notes = placed.scalars(select(Note)).all()
    shown = {note.public_id: note.account_public_id for note in notes}

    assert shown == wanted
    assert sent == {"a": 2, "b": 2}
    assert len({note.account_id for note in notes}) < len(notes)


def test_references_of_expired_objects(placed: ShardedSession) -> None:
    """Expired foreign keys are reloaded from the shard of each object."""
    placed.add_all([Note(account=Account()) for _ in range(20)])
    placed.commit()
    wanted = {note.public_id: note.account.public_id for note in placed.scalars(select(Note))}
    placed.expunge_all()
    notes = placed.scalars(select(Note)).all()
    ids = {note: note.public_id for note in notes}
    for note in notes:
        placed.expire(note, ["account_id"])

    references.load(placed, notes)

    assert {ids[note]: note.account_public_id for note in notes} == wanted


def test_insert_once(db: ShardedSession) -> None:
    """``insert_once()`` refuses a sharded session, because it does not support the savepoint that is needed."""
    with pytest.raises(ConfigurationError, match="session of the shard that a repetition"):
        idempotency.insert_once(db, Account(public_id="shacct_izkpm55j334u"))

    assert not db.in_transaction()


# --- with a hash, the id of an object is fixed before its shard is chosen


def test_merged_object_is_found(router: ShardRouter, engines: dict[str, Engine]) -> None:
    """Copies from ``merge()`` are stored in the shards of their ids."""
    account = Account()
    with router.session() as session:
        merged = [session.merge(account), session.merge(account)]
        session.commit()
        ids = {each.public_id for each in merged}

        assert len(ids) == 2
        assert places(engines) == {id: router.shard_of_id(Account, id) for id in ids}
        assert all(lookup.get(session, Account, id) for id in ids)


def test_expression_tells_no_shard(router: ShardRouter, engines: dict[str, Engine]) -> None:
    """An SQL expression as an id is refused, because its shard is not known before the INSERT."""
    with router.session() as session:
        session.add(Account(public_id=func.lower("A" * 12)))
        with pytest.raises(ConfigurationError, match="SQL expression"):
            session.flush()

    assert places(engines) == {}
