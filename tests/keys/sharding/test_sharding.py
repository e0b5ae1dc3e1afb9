"""``ShardRouter``: sessions over several databases, and how many of them each call asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import (
    BigInteger,
    Engine,
    ForeignKey,
    MetaData,
    String,
    bindparam,
    event,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column, relationship, selectinload
from sqlalchemy.pool import NullPool
from support import servers

from conftest import url_of
from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdColumnMixin,
    PublicIdMixin,
    PublicIdNotFound,
    lookup,
)
from sqlalchemy_public_id.asyncio import lookup as async_lookup
from sqlalchemy_public_id.formats import Uuid7
from sqlalchemy_public_id.keys import ShardRouter
from sqlalchemy_public_id.references import public_ref
from sqlalchemy_public_id.testing import collisions, fixed_ids


class Base(DeclarativeBase):
    metadata = MetaData()


class Account(PublicIdMixin, Base):
    __tablename__ = "sharded_account"
    __public_id__ = NanoId(prefix="shacct")
    name: Mapped[str] = mapped_column(String(50), default="")
    notes: Mapped[list[Note]] = relationship(back_populates="account", cascade="all, delete-orphan")


class Note(PublicIdMixin, Base):
    __tablename__ = "sharded_note"
    account_id: Mapped[int] = mapped_column(ForeignKey(Account.id))
    account: Mapped[Account] = relationship(back_populates="notes")
    account_public_id: Mapped[str] = public_ref("account")


class Event(PublicIdMixin, Base):
    """Has ids that are stored as numbers."""

    __tablename__ = "sharded_event"
    __public_id__ = Uuid7(prefix="shev", encoding="crockford32")


class Region(PublicIdColumnMixin, Base):
    """Has a key that tells its cluster."""

    __tablename__ = "sharded_region"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)


class Word(PublicIdColumnMixin, Base):
    __tablename__ = "sharded_word"
    text: Mapped[str] = mapped_column(String(20), primary_key=True)


class Shards:
    """Four databases, and what is sent to them."""

    def __init__(self, engines: dict[str, Engine]) -> None:
        self.engines = engines
        self.sent: list[str] = []
        for name, engine in engines.items():
            event.listen(engine, "before_cursor_execute", lambda *call, name=name: self.sent.append(name))

    def router(self, **options: Any) -> ShardRouter:
        return ShardRouter(self.engines, **options)

    def asked(self, call: Callable[[], Any]) -> list[str]:
        """The shards that *call* sends statements to, in order."""
        self.sent.clear()
        call()
        return sorted(self.sent)

    def holding(self, model: type[Any], public_id: str) -> list[str]:
        """The shards that have the row."""
        found: list[str] = []
        for name, engine in self.engines.items():
            with Session(engine) as session:
                found += [name] if lookup.get(session, model, public_id) is not None else []
        return found


@pytest.fixture(params=["four files of SQLite", "four databases"])
def shards(
    request: pytest.FixtureRequest,
    new_engine: Callable[..., Engine],
    create_on: Callable[[Engine, MetaData], None],
) -> Shards:
    """Four files of SQLite; and SQLite, PostgreSQL, MySQL and MariaDB together."""
    kinds = ["sqlite"] * 4 if request.param.endswith("SQLite") else list(servers.servers())
    if len(kinds) < 4:
        pytest.skip(f"there are only {', '.join(kinds)}")
    engines = {name: new_engine(kind, poolclass=NullPool) for name, kind in zip("abcd", kinds, strict=True)}
    for engine in engines.values():
        create_on(engine, Base.metadata)
    return Shards(engines)


@pytest.fixture
def router(shards: Shards) -> ShardRouter:
    """Routes by a hash; notes lie with their accounts."""
    router = shards.router(place={Note: lambda note: router.shard_of(note.account)})
    return router


@pytest.fixture
def db(router: ShardRouter) -> Iterator[ShardedSession]:
    with router.session() as session:
        yield session


IDS = [f"shacct_{number:012}" for number in range(12)]


def stored(db: ShardedSession, count: int = 12) -> list[Account]:
    """Accounts in all shards; those of two shards may have the same key."""
    accounts = [Account(public_id=public_id, name=f"account {at}") for at, public_id in enumerate(IDS[:count])]
    db.add_all(accounts)
    db.commit()
    return accounts


# --- by the hash of the public id


def test_a_new_object_goes_where_its_id_says(shards: Shards, router: ShardRouter, db: ShardedSession) -> None:
    """Each row is in the one shard that its public id tells, made by the program or by the library."""
    accounts = [*stored(db), Account(), Account()]
    db.add_all(accounts)
    db.commit()
    ids = [account.public_id for account in accounts]
    db.close()

    assert [shards.holding(Account, id) for id in ids] == [[router.shard_of_id(Account, id)] for id in ids]
    assert {router.shard_of_id(Account, id) for id in ids} == set("abcd")


def by_an_alias(public_id: str) -> Any:
    other = aliased(Account)
    return select(other).where(other.public_id == public_id)


ONE: dict[str, Callable[[ShardedSession, str], Any]] = {
    "lookup.get": lambda db, text: lookup.get(db, Account, text),
    "lookup.get_many": lambda db, text: lookup.get_many(db, Account, [text]),
    "lookup.resolve": lambda db, text: lookup.resolve(db, text),
    "select": lambda db, text: db.scalars(select(Account).where(Account.public_id == text)).one(),
    "select of a column": lambda db, text: db.scalars(select(Account.name).where(Account.public_id == text)).one(),
    "select with another condition": lambda db, text: db.scalars(
        select(Account).where(Account.public_id == text, Account.name != "x")
    ).one(),
    "the other way round": lambda db, text: db.scalars(select(Account).where(literal(text) == Account.public_id)).one(),
    "in_": lambda db, text: db.scalars(select(Account).where(Account.public_id.in_([text]))).one(),
    "a parameter": lambda db, text: db.scalars(
        select(Account).where(Account.public_id == bindparam("wanted")), {"wanted": text}
    ).one(),
    "a callable": lambda db, text: db.scalars(
        select(Account).where(Account.public_id == bindparam("wanted", callable_=lambda: text, unique=True))
    ).one(),
    "an alias": lambda db, text: db.scalars(by_an_alias(text)).one(),
    "a join": lambda db, text: db.scalars(select(Note).join(Note.account).where(Account.public_id == text)).all(),
    "update": lambda db, text: db.execute(update(Account).where(Account.public_id == text).values(name="new")),
}


@pytest.mark.parametrize("shards", ["four files of SQLite"], indirect=True)
@pytest.mark.parametrize("name", ONE)
def test_an_id_asks_one_shard(name: str, shards: Shards, router: ShardRouter, db: ShardedSession) -> None:
    """A statement that says which public id it wants is sent to the shard of that, and to no other."""
    stored(db)

    asked = [shards.asked(lambda text=id: ONE[name](db, text)) for id in IDS]

    assert asked == [[router.shard_of_id(Account, id)] for id in IDS]


ALL: dict[str, Callable[[ShardedSession], Any]] = {
    "no condition": lambda db: db.scalars(select(Account)).all(),
    "a parameter with a value": lambda db: db.scalars(
        select(Account).where(Account.public_id == bindparam("wanted", IDS[0]))
    ).all(),
    "or": lambda db: db.scalars(select(Account).where(or_(Account.public_id == IDS[0], Account.name == "x"))).all(),
    "not": lambda db: db.scalars(select(Account).where(Account.public_id != IDS[0])).all(),
    "null": lambda db: db.scalars(select(Account).where(Account.public_id == None)).all(),  # noqa: E711
    "a subquery": lambda db: db.scalars(
        select(Account).where(Account.public_id.in_(select(Account.public_id).where(Account.public_id == IDS[0])))
    ).all(),
    "update": lambda db: db.execute(update(Account).values(name="x")),
    "public_ids_of": lambda db: lookup.public_ids_of(db, Account, [10**6]),
}


@pytest.mark.parametrize("shards", ["four files of SQLite"], indirect=True)
@pytest.mark.parametrize("name", ALL)
def test_what_tells_no_id_asks_all_shards(name: str, shards: Shards, db: ShardedSession) -> None:
    """Any other statement is sent to every shard, once."""
    stored(db)

    assert shards.asked(lambda: ALL[name](db)) == list("abcd")


def test_several_ids_ask_the_shards_concerned(shards: Shards, router: ShardRouter, db: ShardedSession) -> None:
    """``get_many`` asks each shard that has one of the ids once, and keeps the order; what can be no id asks none."""
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


def test_ids_of_numbers_are_routed_in_every_spelling(shards: Shards, router: ShardRouter, db: ShardedSession) -> None:
    """An id that is stored as a number tells its shard however it is written."""
    events = [Event() for _ in range(8)]
    db.add_all(events)
    db.commit()
    ids = [each.public_id for each in events]
    db.expunge_all()
    format = Event.__public_id__
    spelled = [f"shev_{id.removeprefix('shev_').upper()}" for id in ids]
    assert all(map(format.is_valid, spelled))

    asked = [shards.asked(lambda text=id: lookup.get_one(db, Event, text)) for id in spelled]

    assert asked == [[router.shard_of_id(Event, id)] for id in ids]
    assert len({each[0] for each in asked}) > 1


def test_related_objects_lie_and_are_loaded_together(shards: Shards, router: ShardRouter, db: ShardedSession) -> None:
    """Relationships are loaded from the shard of their object, though other shards have the same keys."""
    for at, account in enumerate(stored(db)):
        account.notes = [Note() for _ in range(at % 3 + 1)]
    db.commit()
    db.expunge_all()
    account = lookup.get_one(db, Account, IDS[5])
    own = router.shard_of_id(Account, IDS[5])
    counts: list[int] = []

    assert shards.asked(lambda: db.refresh(account)) == [own]
    assert shards.asked(lambda: account.notes) == [own]
    assert len(account.notes) == 3
    db.expunge_all()
    note = db.scalars(select(Note).join(Note.account).where(Account.public_id == IDS[5]).limit(1)).one()
    assert shards.asked(lambda: note.account) == [own]
    assert note.account.public_id == IDS[5]
    db.expunge_all()
    every = select(Account).order_by(Account.public_id).options(selectinload(Account.notes))
    asked = shards.asked(
        lambda: counts.extend(len(each.notes) for each in sorted(db.scalars(every), key=lambda each: each.public_id))
    )
    assert asked == sorted(list("abcd") * 2)
    assert counts == [at % 3 + 1 for at in range(12)]


def test_a_key_of_several_shards_has_no_one_public_id(db: ShardedSession) -> None:
    """Where shards count by themselves, a key belongs to several rows, and none of them is picked."""
    key = stored(db)[0].id

    with pytest.raises(ConfigurationError, match=f"several shards have a row of Account with the key {key}"):
        lookup.public_ids_of(db, Account, [key])


def test_a_collided_id_is_not_replaced(shards: Shards, router: ShardRouter, db: ShardedSession) -> None:
    """Another id would belong to another shard, so a generated one that is taken is an error of the database."""
    stored(db)
    db.add(Account(name="unlucky"))

    with collisions(Account, IDS[4]), pytest.raises(IntegrityError):
        db.flush()


def test_an_object_that_was_not_stored_may_go_elsewhere(
    shards: Shards, router: ShardRouter, db: ShardedSession
) -> None:
    """After a rollback, an object goes to the shard of the id that it has then."""
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
    """An INSERT would be sent to every shard, so it is refused, unless it says which one is meant."""
    statement = insert(Account.__table__).values(public_id=IDS[0], name="x")

    with pytest.raises(ConfigurationError, match=r"the shard of an INSERT .*Session\(router\.shards\[name\]\)"):
        db.execute(statement)
    assert shards.asked(lambda: db.execute(statement, bind_arguments={"shard_id": "c"})) == ["c"]


# --- pages


@pytest.mark.parametrize("newest_first", [False, True], ids=["oldest first", "newest first"])
@pytest.mark.parametrize("limit", [1, 5, 20])
def test_pages_go_through_all_shards(limit: int, newest_first: bool, shards: Shards, db: ShardedSession) -> None:
    """Forwards and back again, each row comes once, in the order of key and public id, though keys are repeated."""
    accounts = stored(db)
    expected = sorted(accounts, key=lambda each: (each.id, each.public_id), reverse=newest_first)
    assert len({each.id for each in accounts}) < 12
    forth: list[list[Account]] = []
    after: str | None = None
    while not forth or after is not None:
        page = lookup.page(db, Account, limit=limit, after=after, newest_first=newest_first)
        forth.append(list(page))
        after = page.next
    back: list[Account] = []
    before: str | None = forth[-1][-1].public_id
    while before is not None:
        page = lookup.page(db, Account, limit=limit, before=before, newest_first=newest_first)
        back[:0] = page
        before = page.previous

    assert [each for some in forth for each in some] == expected
    assert {len(some) for some in forth[:-1]} <= {limit}
    assert back == expected[:-1]


def test_a_page_asks_each_shard_once(shards: Shards, router: ShardRouter, db: ShardedSession) -> None:
    """A page is one statement for each shard; a cursor is one more, to the shard that has its row."""
    stored(db)

    assert shards.asked(lambda: lookup.page(db, Account, limit=5)) == list("abcd")
    cursor = str(router.shard_of_id(Account, IDS[3]))
    assert shards.asked(lambda: lookup.page(db, Account, limit=2, after=IDS[3])) == sorted([*"abcd", cursor])


def test_a_page_behind_an_unknown_row_is_refused(db: ShardedSession) -> None:
    """An id that no shard has is no place to go on from."""
    stored(db, 3)

    with pytest.raises(PublicIdNotFound) as caught:
        lookup.page(db, Account, limit=5, after="shacct_zzzzzzzzzzzz")
    assert caught.value.field == "after"


def test_pages_with_references(shards: Shards, db: ShardedSession) -> None:
    """A reference shows the row in the shard of its object, though rows of other shards have the same key."""
    for account in stored(db):
        account.notes = [Note()]
    db.commit()
    owners = {note.public_id: note.account.public_id for note in db.scalars(select(Note))}
    db.expunge_all()
    pages: list[Any] = []
    assert shards.asked(
        lambda: pages.append(lookup.page(db, Note, limit=12, references=[Note.account_public_id]))
    ) == list("abcd")
    assert shards.asked(lambda: pages.append([note.account_public_id for note in pages[0]])) == []
    assert {note.public_id: note.account_public_id for note in pages[0]} == owners


def test_keys_without_a_common_order_cannot_be_paged(db: ShardedSession) -> None:
    """Databases sort texts each in their own way, so a page over several of them is refused."""
    with pytest.raises(ConfigurationError, match="not an integer"):
        lookup.page(db, Word, limit=5)


# --- by prefix, and by key


def test_a_prefix_keeps_a_model_in_one_shard(shards: Shards) -> None:
    """Every row of a model is in the shard of its prefix, and every statement about it goes there."""
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


CLUSTERS = {10: "a", 20: "b", 30: "c", 40: "d"}


def test_a_key_asks_the_shard_of_its_cluster(shards: Shards) -> None:
    """The upper bits of a key tell where the row is; a public id alone does not, so all shards are asked for it."""
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
    """Where the database makes the key, new objects go to one shard after the other, and children to their parents."""
    with shards.router(by=CLUSTERS).session() as db:
        accounts = [Account(notes=[Note()]) for _ in range(7)]  # the next turn is not that of the first parent
        db.add_all(accounts)
        db.flush()
        token = [account._sa_instance_state.identity_token for account in accounts]
        below = [account.notes[0]._sa_instance_state.identity_token for account in accounts]

        assert sorted(token) == sorted("abcdabc")
        assert below == token


def test_a_foreign_key_tells_the_shard(shards: Shards) -> None:
    """Where keys tell the shard, a child that has nothing but its foreign key goes to the shard of its parent."""
    with shards.router(by=CLUSTERS).session() as db:
        db.add(Account(id=(30 << 48) + 1))
        db.flush()
        notes = [Note(account_id=(30 << 48) + 1) for _ in range(3)]
        db.add_all(notes)
        db.flush()

        assert [note._sa_instance_state.identity_token for note in notes] == ["c"] * 3


def test_the_program_may_choose_the_shard(shards: Shards) -> None:
    """A function of the object says where it goes; one that names no shard is refused."""
    with shards.router(by=CLUSTERS, place=lambda each: each.name).session() as db:
        account = Account(name="c")
        db.add(account)
        assert shards.asked(db.flush)[0] == "c"
        db.add(Account(name="z"))
        with pytest.raises(ConfigurationError, match="the place of Account is 'z', which is not a shard"):
            db.flush()


# --- asynchronous sessions


def test_asynchronous_sessions_are_sharded_too() -> None:
    """An AsyncSession that wraps a sharded one creates, looks up and pages over asynchronous engines."""

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
    """If one flush writes to two shards, a generated id that is taken in the second one is replaced there."""
    taken, first, second = "t" * 12, "1" * 12, "2" * 12
    with shards.router(by={range(1, 100): "a", range(100, 200): "b"}).session() as db:
        db.add(Region(id=100, public_id=taken))
        db.commit()
        regions = [Region(id=1), Region(id=101)]
        db.add_all(regions)
        with fixed_ids(Region, first, taken, second):
            db.flush()

        assert [region.public_id for region in regions] == [first, second]
