"""``ShardRouter``: sessions over several databases, and the shards that each call queries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import bindparam, column, insert, inspect, literal, or_, select, table, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import aliased, selectinload
from sqlalchemy.pool import NullPool
from support.sharded import CLUSTERS, IDS, Account, Base, Event, Note, Region, Shards, stored

from conftest import url_of
from sqlalchemy_public_id import ConfigurationError, lookup
from sqlalchemy_public_id.asyncio import lookup as async_lookup
from sqlalchemy_public_id.keys import ShardRouter
from sqlalchemy_public_id.testing import collisions, fixed_ids

# --- by the hash of the public id


def test_a_new_object_goes_where_its_id_says(shards: Shards, router: ShardRouter, db: ShardedSession) -> None:
    """Each row is stored in the shard of its public id, whether the id is given or generated."""
    accounts = [*stored(db), Account(), Account()]
    db.add_all(accounts)
    db.commit()
    ids = [account.public_id for account in accounts]
    db.close()

    assert [shards.holding(Account, id) for id in ids] == [[router.shard_of_id(Account, id)] for id in ids]
    assert {router.shard_of_id(Account, id) for id in ids} == set("abcd")


accounts, other = select(Account), aliased(Account)
ONE: dict[str, Callable[[ShardedSession, str], object]] = {
    "lookup.get": lambda db, text: lookup.get(db, Account, text),
    "lookup.get_many": lambda db, text: lookup.get_many(db, Account, [text]),
    "lookup.resolve": lambda db, text: lookup.resolve(db, text),
    "select": lambda db, text: db.execute(accounts.where(Account.public_id == text)),
    "select of a column": lambda db, text: db.execute(select(Account.name).where(Account.public_id == text)),
    "another condition": lambda db, text: db.execute(accounts.where(Account.public_id == text, Account.name != "x")),
    "the other way round": lambda db, text: db.execute(accounts.where(literal(text) == Account.public_id)),
    "in_": lambda db, text: db.execute(accounts.where(Account.public_id.in_([text]))),
    "a parameter": lambda db, text: db.execute(
        accounts.where(Account.public_id == bindparam("wanted")), {"wanted": text}
    ),
    "a callable": lambda db, text: db.execute(
        accounts.where(Account.public_id == bindparam("wanted", callable_=lambda: text, unique=True))
    ),
    "an alias": lambda db, text: db.execute(select(other).where(other.public_id == text)),
    "a join": lambda db, text: db.execute(select(Note).join(Note.account).where(Account.public_id == text)),
    "update": lambda db, text: db.execute(update(Account).where(Account.public_id == text).values(name="new")),
}


@pytest.mark.parametrize("shards", ["four files of SQLite"], indirect=True)
@pytest.mark.parametrize("name", ONE)
def test_an_id_asks_one_shard(name: str, shards: Shards, router: ShardRouter, db: ShardedSession) -> None:
    """A statement that filters by one public id is sent only to the shard of that id."""
    stored(db)

    asked = [shards.asked(lambda text=text: ONE[name](db, text)) for text in IDS]

    assert asked == [[router.shard_of_id(Account, text)] for text in IDS]


ALL: dict[str, Callable[[ShardedSession], object]] = {
    "no condition": lambda db: db.execute(accounts),
    "a parameter with a value": lambda db: db.execute(accounts.where(Account.public_id == bindparam("wanted", IDS[0]))),
    "or": lambda db: db.execute(accounts.where(or_(Account.public_id == IDS[0], Account.name == "x"))),
    "not": lambda db: db.execute(accounts.where(Account.public_id != IDS[0])),
    "null": lambda db: db.execute(accounts.where(Account.public_id == None)),  # noqa: E711
    "a subquery": lambda db: db.execute(
        accounts.where(Account.public_id.in_(select(other.public_id).where(other.public_id == IDS[0])))
    ),
    "update": lambda db: db.execute(update(Account).values(name="x")),
    "public_ids_of": lambda db: lookup.public_ids_of(db, Account, [10**6]),
}


@pytest.mark.parametrize("shards", ["four files of SQLite"], indirect=True)
@pytest.mark.parametrize("name", ALL)
def test_what_tells_no_id_asks_all_shards(name: str, shards: Shards, db: ShardedSession) -> None:
    """Any other statement is sent once to every shard."""
    stored(db)

    assert shards.asked(lambda: ALL[name](db)) == list("abcd")


def test_several_ids_ask_the_shards_concerned(shards: Shards, router: ShardRouter, db: ShardedSession) -> None:
    """``get_many`` queries each shard of the ids once, and keeps their order; malformed ids query none."""
    stored(db)
    wanted = [IDS[7], IDS[0], IDS[3]]
    found: dict[str, Account] = {}

    asked = shards.asked(lambda: found.update(lookup.get_many(db, Account, [*wanted, "no id"])))
    asked_again = shards.asked(lambda: lookup.get_many(db, Account, wanted[:1]))

    assert asked == sorted({str(router.shard_of_id(Account, id)) for id in wanted})
    assert list(found) == wanted
    assert asked_again == [router.shard_of_id(Account, wanted[0])]
    assert shards.asked(lambda: lookup.get(db, Account, "cus_izkpm55j334u")) == []
    assert len(shards.asked(lambda: db.scalars(select(Event).where(Event.public_id == "nonsense")).all())) == 1


def test_an_id_of_another_format_asks_all_shards(shards: Shards, db: ShardedSession) -> None:
    """A row whose id the format does not accept, such as an older one, is found in any shard."""
    old = {name: f"old_{name}" for name in "abcd"}
    for name, engine in shards.engines.items():
        with engine.begin() as connection:
            columns = {"public_id": old[name], "name": name}
            connection.execute(insert(table("sharded_account", column("public_id"), column("name"))), columns)

    for name, text in old.items():
        found = db.scalars(select(Account).where(Account.public_id == text)).one()
        assert found.name == name


def test_ids_of_numbers_are_routed_in_every_spelling(shards: Shards, router: ShardRouter, db: ShardedSession) -> None:
    """An id that is stored as a number is routed to its shard however it is written."""
    events = [Event() for _ in range(8)]
    db.add_all(events)
    db.commit()
    ids = [each.public_id for each in events]
    db.expunge_all()
    spelled = [f"shev_{id.removeprefix('shev_').upper()}" for id in ids]

    asked = [shards.asked(lambda text=id: lookup.get_one(db, Event, text)) for id in spelled]

    assert asked == [[router.shard_of_id(Event, id)] for id in ids]
    assert len({each[0] for each in asked}) > 1


def test_related_objects_lie_and_are_loaded_together(shards: Shards, router: ShardRouter, db: ShardedSession) -> None:
    """Relationships are loaded from the object's own shard, although other shards have the same keys."""
    for at, account in enumerate(stored(db)):
        account.notes = [Note() for _ in range(at % 3 + 1)]
    db.commit()
    db.expunge_all()
    account = lookup.get_one(db, Account, IDS[5])
    own = router.shard_of_id(Account, IDS[5])

    assert shards.asked(lambda: db.refresh(account)) == [own]
    assert shards.asked(lambda: account.notes) == [own]
    assert len(account.notes) == 3
    db.expunge_all()
    note = db.scalars(select(Note).join(Note.account).where(Account.public_id == IDS[5]).limit(1)).one()
    assert shards.asked(lambda: note.account) == [own]
    assert note.account.public_id == IDS[5]
    db.expunge_all()
    every = accounts.options(selectinload(Account.notes))
    assert shards.asked(lambda: db.scalars(every).all()) == sorted(list("abcd") * 2)
    counts = {account.public_id: len(account.notes) for account in db.scalars(accounts)}
    assert counts == {id: at % 3 + 1 for at, id in enumerate(IDS)}


def test_a_key_of_several_shards_has_no_one_public_id(db: ShardedSession) -> None:
    """If several shards have a row with the same key, looking up its public id raises."""
    key = stored(db)[0].id

    with pytest.raises(ConfigurationError, match=f"several shards have a row of Account with the key {key}"):
        lookup.public_ids_of(db, Account, [key])


def test_a_collided_id_is_not_replaced(shards: Shards, router: ShardRouter, db: ShardedSession) -> None:
    """A generated id that collides raises, because another id could belong to another shard."""
    stored(db)
    db.add(Account(name="unlucky"))

    with collisions(Account, IDS[4]), pytest.raises(IntegrityError):
        db.flush()


def test_an_object_that_was_not_stored_may_go_elsewhere(
    shards: Shards, router: ShardRouter, db: ShardedSession
) -> None:
    """After a rollback, an object is stored in the shard of its current id."""
    first, *others = IDS
    other = next(id for id in others if router.shard_of_id(Account, id) != router.shard_of_id(Account, first))
    account = Account(public_id=first)
    db.add(account)
    db.flush()
    db.rollback()
    account.public_id = other
    assert router.shard_of(account) == router.shard_of_id(Account, other)
    db.add(account)
    db.commit()
    db.close()

    assert shards.holding(Account, other) == [router.shard_of_id(Account, other)]


def test_an_insert_statement_has_to_name_its_shard(shards: Shards, db: ShardedSession) -> None:
    """An INSERT statement without a shard is refused, because it would be sent to every shard."""
    statement = insert(Account.__table__).values(public_id=IDS[0], name="x")

    with pytest.raises(ConfigurationError, match=r"the shard of an INSERT .*Session\(router\.shards\[name\]\)"):
        db.execute(statement)
    assert shards.asked(lambda: db.execute(statement, bind_arguments={"shard_id": "c"})) == ["c"]


# --- by prefix, and by key


def test_a_prefix_keeps_a_model_in_one_shard(shards: Shards) -> None:
    """All rows of a model are stored in the shard of its prefix, and its statements are sent only there."""
    with shards.router(by={"shacct": "b", "shev": "c"}).session() as db:
        stored(db, 4)
        db.add(Event())
        db.commit()

        assert shards.asked(lambda: db.scalars(select(Account)).all()) == ["b"]
        assert shards.asked(lambda: lookup.get(db, Account, IDS[2])) == ["b"]
        assert shards.asked(lambda: lookup.page(db, Event, limit=3)) == ["c"]
        with pytest.raises(ConfigurationError, match="nothing determines the shard of Note"):
            db.add(Note(account_id=1))
            db.flush()


def test_a_key_asks_the_shard_of_its_cluster(shards: Shards) -> None:
    """The upper bits of a key determine its shard; a lookup by public id queries all shards."""
    keys = [cluster << 48 | number for cluster in CLUSTERS for number in (1, 2)]
    with shards.router(by=CLUSTERS).session() as db:
        regions = [Region(id=key) for key in keys]
        db.add_all(regions)
        db.commit()
        ids = [region.public_id for region in regions]
        db.expunge_all()

        assert [shards.asked(lambda key=key: db.get_one(Region, key)) for key in keys] == [[s] for s in "aabbccdd"]
        in_two = select(Region).where(Region.id.in_([keys[0], keys[7]]))
        assert shards.asked(lambda: db.scalars(in_two).all()) == ["a", "d"]
        assert shards.asked(lambda: lookup.get_one(db, Region, ids[3])) == list("abcd")
        assert list(lookup.public_ids_of(db, Region, keys).values()) == ids
        with pytest.raises(ConfigurationError, match="belongs to no shard"):
            db.add(Region(id=5))
            db.flush()


def test_keys_of_the_database_take_turns(shards: Shards) -> None:
    """If the database generates keys, new objects are distributed round-robin, and children follow their parents."""
    with shards.router(by=CLUSTERS).session() as db:
        accounts = [Account(notes=[Note()]) for _ in range(7)]  # not a multiple of the four shards
        db.add_all(accounts)
        db.flush()
        tokens = [inspect(account).identity_token for account in accounts]

        assert sorted(tokens) == sorted("abcdabc")
        assert [inspect(account.notes[0]).identity_token for account in accounts] == tokens


def test_a_foreign_key_tells_the_shard(shards: Shards) -> None:
    """If keys determine the shard, a child with only a foreign key is stored in the shard of its parent."""
    with shards.router(by=CLUSTERS).session() as db:
        db.add(Account(id=(30 << 48) + 1))
        db.flush()
        notes = [Note(account_id=(30 << 48) + 1) for _ in range(3)]
        db.add_all(notes)
        db.flush()

        assert [inspect(note).identity_token for note in notes] == ["c"] * 3


def test_the_program_may_choose_the_shard(shards: Shards) -> None:
    """A function may choose the shard of an object; if it returns anything else, the flush raises."""
    with shards.router(by=CLUSTERS, place=lambda each: each.name).session() as db:
        account = Account(name="c")
        db.add(account)
        assert shards.asked(db.flush)[0] == "c"
        db.add(Account(name="z"))
        with pytest.raises(ConfigurationError, match="the place of Account is 'z', which is not a shard"):
            db.flush()


# --- asynchronous sessions


def test_asynchronous_sessions_are_sharded_too() -> None:
    """An AsyncSession over a sharded session supports writing, lookups and pages with async engines."""

    async def story() -> tuple[list[int], list[str]]:
        engines = {name: create_async_engine(url_of("sqlite", "aiosqlite"), poolclass=NullPool) for name in "ab"}
        for engine in engines.values():
            async with engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
        router = ShardRouter(engines)
        async with AsyncSession(
            sync_session_class=ShardedSession, **router.choosers, shards=router.shards, expire_on_commit=False
        ) as db:
            db.add_all(Account(public_id=id) for id in IDS)
            await db.commit()
            found = [await async_lookup.get_one(db, Account, id) for id in IDS]
            page = await async_lookup.page(db, Account, limit=20)
            held = [len([each for each in found if router.shard_of(each) == name]) for name in "ab"]
        for engine in engines.values():
            await engine.dispose()
        return held, sorted(each.public_id for each in page)

    held, ids = asyncio.run(story())

    assert sum(held) == 12
    assert min(held) > 0
    assert ids == IDS


@pytest.mark.parametrize("shards", ["four files of SQLite"], indirect=True)
def test_a_collision_in_one_of_two_shards(shards: Shards) -> None:
    """In a flush to two shards, a generated id that collides in the second shard is replaced."""
    taken, first, second = "t" * 12, "1" * 12, "2" * 12
    with shards.router(by={range(1, 100): "a", range(100, 200): "b"}).session() as db:
        db.add(Region(id=100, public_id=taken))
        db.commit()
        regions = [Region(id=1), Region(id=101)]
        db.add_all(regions)
        with fixed_ids(Region, first, taken, second):
            db.flush()

        assert [region.public_id for region in regions] == [first, second]
