"""Rows in several databases: what would put one where nobody finds it is refused; what the rest of the library does."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
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
    func,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError, MultipleResultsFound
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, make_transient, mapped_column, relationship
from sqlalchemy.pool import NullPool
from support.shard_files import tables_in

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdColumnMixin,
    PublicIdMixin,
    bulk,
    idempotency,
    lookup,
    public_ref,
    references,
    testing,
)
from sqlalchemy_public_id.keys import ShardRouter


class Base(DeclarativeBase):
    metadata = MetaData()


class Master(PublicIdMixin, Base):
    __tablename__ = "refused_master"
    __public_id__ = NanoId(prefix="refmas")
    name: Mapped[str] = mapped_column(String(50), default="")


class Dog(PublicIdMixin, Base):
    __tablename__ = "refused_dog"
    __public_id__ = NanoId(prefix="refdog")
    master_id: Mapped[int] = mapped_column(ForeignKey(Master.id))
    master: Mapped[Master] = relationship()
    master_public_id: Mapped[str] = public_ref("master")


class Kennel(PublicIdColumnMixin, Base):
    __tablename__ = "refused_kennel"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)


@pytest.fixture
def engines(new_engine: Callable[..., Engine]) -> Iterator[dict[str, Engine]]:
    engines = {name: new_engine("sqlite", poolclass=NullPool) for name in "ab"}
    with tables_in(engines, Base.metadata):
        yield engines


@pytest.fixture
def router(engines: dict[str, Engine]) -> ShardRouter:
    return ShardRouter(engines)


@pytest.fixture
def placing(engines: dict[str, Engine]) -> ShardRouter:
    """A router for which dogs lie with their masters."""
    placing = ShardRouter(engines, place={Dog: lambda dog: placing.shard_of(dog.master)})
    return placing


@pytest.fixture
def db(router: ShardRouter) -> Iterator[ShardedSession]:
    with router.session() as session:
        yield session


@pytest.fixture
def placed(placing: ShardRouter) -> Iterator[ShardedSession]:
    with placing.session() as session:
        yield session


def id_in(router: ShardRouter, model: Any, shard: str) -> str:
    """A public id of *model* that belongs to *shard*."""
    made = model.__public_id__.generate_many(200)
    return next(each for each in made if router.shard_of_id(model, each) == shard)


def counts(engines: dict[str, Engine], model: Any) -> dict[str, int]:
    """How many rows each shard has."""
    found: dict[str, int] = {}
    for name, engine in engines.items():
        with Session(engine) as session:
            found[name] = len(session.scalars(select(model)).all())
    return found


CLUSTERS = {10: "a", 20: "b"}
IN_A, IN_B = 10 << 48, 20 << 48

# --- foreign keys


def test_a_child_elsewhere_is_refused(db: ShardedSession, router: ShardRouter, engines: dict[str, Engine]) -> None:
    """With a hash, a child whose id belongs to another shard than its parent is refused, and no row is left."""
    master = Master(public_id=id_in(router, Master, "a"))
    db.add(Dog(public_id=id_in(router, Dog, "b"), master=master))

    with pytest.raises(ConfigurationError, match="Dog belongs to 'b', but its master is in 'a'") as caught:
        db.commit()
    db.rollback()

    assert "place={Dog: …}" in str(caught.value)
    assert counts(engines, Dog) == {"a": 0, "b": 0}


def test_a_reference_elsewhere_is_refused(db: ShardedSession, router: ShardRouter, engines: dict[str, Engine]) -> None:
    """A public id that is assigned to a reference means the row that has it, not one with its key elsewhere."""
    ids = {shard: id_in(router, Master, shard) for shard in "ab"}
    db.add_all([Master(public_id=each) for each in ids.values()])
    db.commit()
    db.expunge_all()
    db.add(Dog(public_id=id_in(router, Dog, "b"), master_public_id=ids["a"]))

    with pytest.raises(ConfigurationError, match="Dog belongs to 'b', but its master is in 'a'"):
        db.commit()
    db.rollback()

    db.add(Dog(public_id=id_in(router, Dog, "a"), master_public_id=ids["a"]))
    db.commit()
    assert counts(engines, Dog) == {"a": 1, "b": 0}


def test_a_reference_tells_the_place(placing: ShardRouter, engines: dict[str, Engine]) -> None:
    """A child that names its parent by public id alone goes to the shard of the parent, and points to it."""
    with placing.session() as db:
        ids = [id_in(placing, Master, shard) for shard in "abab"]
        db.add_all([Master(public_id=each) for each in ids])
        db.commit()
        db.expunge_all()
        db.add_all([Dog(master_public_id=each) for each in ids])
        db.commit()
        db.expunge_all()

        assert sorted(dog.master.public_id for dog in db.scalars(select(Dog))) == sorted(ids)
    assert counts(engines, Dog) == {"a": 2, "b": 2}


@pytest.mark.parametrize("by_reference", [False, True], ids=["relationship", "reference"])
def test_a_stored_child_stays_with_its_parent(by_reference: bool, placing: ShardRouter) -> None:
    """A stored object cannot move, so it is refused that it refers to an object in another shard from now on."""
    with placing.session() as db:
        here, there = (Master(public_id=id_in(placing, Master, shard)) for shard in "ab")
        dog = Dog(master=here)
        db.add_all([here, there, dog])
        db.commit()
        if by_reference:
            dog.master_public_id = there.public_id
        else:
            dog.master = there

        with pytest.raises(ConfigurationError, match="Dog belongs to 'a', but its master is in 'b'"):
            db.commit()
        db.rollback()
        assert dog.master is here


def test_keys_of_clusters_may_point_elsewhere(engines: dict[str, Engine]) -> None:
    """Where keys tell the shard, a child may lie elsewhere: its foreign key means one row of all shards."""
    router = ShardRouter(engines, by=CLUSTERS)
    with router.session() as db:
        db.add(Dog(id=IN_A + 1, master=Master(id=IN_B + 1)))
        db.commit()
        db.expunge_all()

        assert db.get_one(Dog, IN_A + 1).master.id == IN_B + 1


# --- place, key and shard_of()


def test_a_place_against_the_key_is_refused(engines: dict[str, Engine]) -> None:
    """A row is looked for where its key says, so it is refused to place it elsewhere."""
    router = ShardRouter(engines, by=CLUSTERS, place=lambda each: "b")
    with router.session() as db:
        db.add(Kennel(id=IN_A + 1))
        with pytest.raises(
            ConfigurationError, match=f"the key {IN_A + 1} of Kennel belongs to 'a', but place= returned"
        ):
            db.commit()
        db.rollback()
        db.add(Kennel(id=IN_B + 1))
        db.commit()
        assert db.get_one(Kennel, IN_B + 1) is not None


def test_shard_of_expired_objects_of_plain_sessions(engines: dict[str, Engine]) -> None:
    """The key of a stored object tells its shard, also in a session of one database, and when it is expired."""
    router = ShardRouter(engines, by=CLUSTERS)
    with Session(engines["b"]) as session:
        kennels = [Kennel(id=IN_B + number) for number in range(1, 5)]
        session.add_all(kennels)
        session.commit()

        assert [router.shard_of(each) for each in kennels] == list("bbbb")


def test_shard_of_leaves_an_object_as_it_is(engines: dict[str, Engine], router: ShardRouter) -> None:
    """A question before the flush decides nothing: what is known of the object by then does."""
    router = ShardRouter(engines, by=CLUSTERS)
    masters = [Master() for _ in range(4)]
    asked = [router.shard_of(each) for each in masters]
    again = [router.shard_of(each) for each in masters]
    tokens = [inspect(each).identity_token for each in masters]
    for master, shard in zip(masters, asked, strict=True):
        master.id = IN_B + 1 + masters.index(master) if shard == "a" else None
    with router.session() as db:
        db.add_all(masters)
        db.commit()

        assert sorted(asked) == list("aabb")
        assert again == asked
        assert tokens == [None] * 4
        assert [router.shard_of(each) for each in masters] == list("bbbb")


def test_the_shard_is_chosen_at_the_flush(db: ShardedSession, router: ShardRouter) -> None:
    """An object whose connection was asked for goes where its id says when it is flushed, not where it said before."""
    masters = [Master(public_id=id_in(router, Master, "a")) for _ in range(2)]
    db.add_all(masters)
    for each in masters:
        db.connection(bind_arguments={"mapper": inspect(Master), "instance": each})
        each.public_id = id_in(router, Master, "b")
    db.commit()

    assert [lookup.get_one(db, Master, each.public_id) for each in masters] == masters
    assert [router.shard_of(each) for each in masters] == ["b", "b"]


# --- statements


def test_parameters_of_a_statement_miss_no_row(db: ShardedSession, router: ShardRouter) -> None:
    """``Select.params()`` gives a parameter another value later, which is looked for wherever it may be."""
    masters = [Master(name="old") for _ in range(16)]
    db.add_all(masters)
    db.commit()
    ids = [each.public_id for each in masters]
    wanted = Master.public_id == bindparam("wanted", ids[0])

    found = [db.scalars(select(Master).where(wanted).params(wanted=each)).one().public_id for each in ids]

    assert found == ids


def test_rows_of_an_update_are_counted_over_all_shards(db: ShardedSession, engines: dict[str, Engine]) -> None:
    """``rowcount`` is the sum over the shards, and a key that several have is not one row."""
    db.add_all([Master() for _ in range(16)])
    db.commit()
    db.expunge_all()
    here = counts(engines, Master)
    assert min(here.values()) > 0

    result: Any = db.execute(update(Master).values(name="x"))

    assert result.rowcount == 16
    with pytest.raises(MultipleResultsFound):
        db.get(Master, 1)


# --- the rest of the library


def test_bulk_insert(db: ShardedSession, router: ShardRouter, engines: dict[str, Engine]) -> None:
    """Objects that are inserted in bulk lie in the shards that their ids tell, with key and id."""
    masters = [Master() for _ in range(40)]

    bulk.insert(db, masters)
    db.commit()

    for name, engine in engines.items():
        with Session(engine) as session:
            here = set(session.scalars(select(Master.public_id)))
            assert here == {each.public_id for each in masters if router.shard_of(each) == name}
            assert len(here) > 5


def test_references(placed: ShardedSession, engines: dict[str, Engine]) -> None:
    """A reference shows the row of the object's own shard, although another shard has one with the same key."""
    masters = [Master() for _ in range(20)]
    placed.add_all([Dog(master=master) for master in masters])
    placed.commit()
    wanted = {dog.public_id: dog.master.public_id for dog in placed.scalars(select(Dog))}
    placed.expunge_all()
    sent: Counter[str] = Counter()
    for name, engine in engines.items():
        event.listen(engine, "before_cursor_execute", lambda *call, name=name: sent.update([name]))

    dogs = placed.scalars(select(Dog)).all()
    shown = {dog.public_id: dog.master_public_id for dog in dogs}

    assert shown == wanted
    assert sent == {"a": 2, "b": 2}
    assert len({dog.master_id for dog in dogs}) < len(dogs)


def test_references_of_expired_objects(placed: ShardedSession) -> None:
    """Foreign keys that have to be fetched again come from the shard of each object."""
    placed.add_all([Dog(master=Master()) for _ in range(20)])
    placed.commit()
    wanted = {dog.public_id: dog.master.public_id for dog in placed.scalars(select(Dog))}
    placed.expunge_all()
    dogs = placed.scalars(select(Dog)).all()
    ids = {dog: dog.public_id for dog in dogs}
    for dog in dogs:
        placed.expire(dog, ["master_id"])

    references.load(placed, dogs)

    assert {ids[dog]: dog.master_public_id for dog in dogs} == wanted


def test_insert_once(db: ShardedSession) -> None:
    """A repeated insert needs a savepoint, which a sharded session does not keep: that is said at once."""
    with pytest.raises(ConfigurationError, match="session of the shard that a repetition"):
        idempotency.insert_once(db, Master(public_id="refmas_izkpm55j334u"))

    assert not db.in_transaction()


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_over_a_join(placed: ShardedSession, router: ShardRouter, limit: int, newest_first: bool) -> None:
    """A join that repeats the rows of one shard fills its part of a page; rows behind them are not skipped."""
    masters = [Master() for _ in range(20)]
    placed.add_all(masters)
    placed.flush()
    for master in masters:
        placed.add_all([Dog(master=master) for _ in range(3 if router.shard_of(master) == "a" else 1)])
    placed.commit()
    seen: list[str] = []
    after: str | None = None
    while not seen or after is not None:
        joined = select(Master).join(Dog, Dog.master_id == Master.id)
        page = lookup.page(placed, joined, limit=limit, after=after, newest_first=newest_first)
        seen += [master.public_id for master in page]
        after = page.next

    expected = sorted(masters, key=lambda master: (master.id, master.public_id), reverse=newest_first)
    assert seen == [master.public_id for master in expected]


# --- with a hash, the id of an object is settled before its shard is chosen, and stays


def shards_of(engines: dict[str, Engine]) -> dict[str, str]:
    """Public id → the shard in which its row is."""
    rows: dict[str, str] = {}
    for name, engine in engines.items():
        with Session(engine) as session:
            rows |= dict.fromkeys(session.scalars(select(Master.public_id)), name)
    return rows


def agree(router: ShardRouter, engines: dict[str, Engine], count: int) -> None:
    """Each row is in the shard that its id names, where a lookup finds it."""
    rows = shards_of(engines)

    assert len(rows) == count
    assert {public_id: router.shard_of_id(Master, public_id) for public_id in rows} == rows
    with router.session() as session:
        assert all(lookup.get(session, Master, public_id) for public_id in rows)


COPIES: dict[str, Callable[[Master], Master]] = {
    "pickle": lambda master: pickle.loads(pickle.dumps(master)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", COPIES)
def test_object_that_is_delivered_twice(router: ShardRouter, engines: dict[str, Engine], way: str) -> None:
    """The second copy of an object whose id was read is refused, and stored nowhere."""
    master = Master(name="first")
    assert master.public_id
    for number in range(2):
        delivered = COPIES[way](master)
        with router.session() as session:
            session.add(delivered)
            if number == 0:
                session.commit()
            else:
                with pytest.raises(IntegrityError):
                    session.commit()

    agree(router, engines, 1)
    assert list(shards_of(engines)) == [master.public_id]


@pytest.mark.parametrize("read", [True, False])
def test_two_objects_that_drew_one_id(router: ShardRouter, engines: dict[str, Engine], read: bool) -> None:
    """Two pending objects with one id are refused together."""
    with testing.fixed_ids(Master, *[f"refmas_{'a' * 12}"] * 2), router.session() as session:
        masters = [Master(), Master()]
        if read:
            assert masters[0].public_id == masters[1].public_id
        session.add_all(masters)
        with pytest.raises(IntegrityError):
            session.flush()

    assert shards_of(engines) == {}


def test_merged_object_is_found(router: ShardRouter, engines: dict[str, Engine]) -> None:
    """Copies by ``merge()`` are in the shards of their ids."""
    master = Master()
    with router.session() as session:
        merged = [session.merge(master), session.merge(master)]
        session.commit()
        ids = [each.public_id for each in merged]

    assert ids[0] != ids[1]
    agree(router, engines, 2)


def test_clone_of_a_stored_object_is_refused(router: ShardRouter, engines: dict[str, Engine]) -> None:
    """``make_transient()`` leaves an object the id of its row, which is taken."""
    master = Master()
    assert master.public_id
    with router.session(expire_on_commit=False) as session:
        session.add(master)
        session.commit()
        session.expunge(master)
        make_transient(master)
        master.id = None  # type: ignore[assignment]
        session.add(master)
        with pytest.raises(IntegrityError):
            session.flush()

    agree(router, engines, 1)


def test_expression_tells_no_shard(router: ShardRouter, engines: dict[str, Engine]) -> None:
    """An SQL expression as id is refused, as its value is not known before the row is stored."""
    with router.session() as session:
        session.add(Master(public_id=func.lower("A" * 12)))
        with pytest.raises(ConfigurationError, match="SQL expression"):
            session.flush()

    assert shards_of(engines) == {}
