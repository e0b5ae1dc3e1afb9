"""Looking rows up by public id."""

from __future__ import annotations

import gc
import json
import sys
import uuid
import weakref
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, ForeignKey, MetaData, String, create_engine, insert, select, true, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    joinedload,
    load_only,
    mapped_column,
    relationship,
)
from support.marks import classes_die, on, since_mariadb
from support.shared_tables import filled_engine

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdColumnMixin,
    PublicIdMixin,
    PublicIdNotFound,
    TypedId,
    bigint_key,
    lookup,
    public_id_column,
)
from sqlalchemy_public_id.errors import InvalidKey
from sqlalchemy_public_id.formats import BASE62


class Base(DeclarativeBase):
    metadata = MetaData()


class OwnerId(TypedId, prefix="lkown"): ...


class CarId(TypedId, prefix="lkcar"): ...


class Owner(PublicIdMixin[OwnerId], Base):
    __tablename__ = "owner"
    name: Mapped[str] = mapped_column(String(50))
    cars: Mapped[list[Car]] = relationship(back_populates="owner", order_by="Car.id")


class Car(PublicIdMixin, Base):
    __tablename__ = "car"
    __public_id__ = CarId
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "car"}  # noqa: RUF012
    kind: Mapped[str] = mapped_column(String(10))
    owner_id: Mapped[int | None] = mapped_column(ForeignKey(Owner.id))
    owner: Mapped[Owner | None] = relationship(back_populates="cars")


class Truck(Car):
    __tablename__ = "truck"
    __mapper_args__ = {"polymorphic_identity": "truck"}  # noqa: RUF012
    id: Mapped[int] = mapped_column(ForeignKey(Car.id), primary_key=True)
    load: Mapped[int] = mapped_column(default=10)


class Plain(PublicIdMixin, Base):
    __tablename__ = "plain"
    name: Mapped[str | None] = mapped_column(String(50))


class Seat(PublicIdColumnMixin, Base):
    __tablename__ = "seat"
    row: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Page(Base):
    """Has one public id, under another name, and loads its lines by a join."""

    __tablename__ = "page"
    id: Mapped[int] = bigint_key()
    slug: Mapped[str] = public_id_column()
    lines: Mapped[list[Line]] = relationship(lazy="joined")


class Line(Base):
    __tablename__ = "line"
    id: Mapped[int] = bigint_key()
    page_id: Mapped[int] = mapped_column(ForeignKey(Page.id))


class Pair(Base):
    """Has two public ids, neither of which is the default one."""

    __tablename__ = "pair"
    id: Mapped[int] = bigint_key()
    left: Mapped[str] = public_id_column()
    right: Mapped[str] = public_id_column()


ADA, GRACE = OwnerId("lkown_0000000000ad"), OwnerId("lkown_0000000000ge")
UNKNOWN = "lkown_zzzzzzzzzzzz"
CARS = [f"lkcar_{number:012}" for number in range(3)]

IMPOSSIBLE: list[Any] = [
    *("", "lkown_0000000000AD", "lkown_0000000000a", f"{ADA}\n", "lkown_0000000000a\0", "lkown_0000000000a\ud800"),
    *("lkown_\uff10000000000ad", f"lkown_{'0' * 10_000_000}", "' OR 1=1 --", CarId(CARS[0])),
    *(1, "1", True, Decimal(1), None, bytes(ADA, "ascii"), uuid.UUID(int=1), object(), [ADA], {ADA: ADA}, Owner),
]


def fill(session: Session) -> None:
    """Add two owners; Ada has three cars, of which the last is a truck."""
    ada = Owner(name="Ada", public_id=ADA)
    session.add_all([ada, Owner(name="Grace", public_id=GRACE)])
    for kind, public_id in zip((Car, Car, Truck), CARS, strict=True):
        session.add(kind(public_id=public_id, owner=ada))
        session.flush()


engine = filled_engine(Base.metadata, fill)


@pytest.fixture
def db(session: Session) -> Session:
    """Return a session whose transaction has begun."""
    session.connection()
    return session


# --- one row


@pytest.mark.backend
def test_get(db: Session) -> None:
    """A row is found by its public id, as text or a typed id, even before the flush; an unknown id returns ``None``."""
    found = lookup.get(db, Owner, str(ADA))

    assert found is not None
    assert found.name == "Ada"
    assert lookup.get(db, Owner, ADA) is lookup.get_one(db, Owner, ADA) is found
    assert lookup.get(db, Owner, UNKNOWN) is None
    with pytest.raises(PublicIdNotFound) as caught:
        lookup.get_one(db, Owner, UNKNOWN)
    assert (caught.value.value, caught.value.model) == (UNKNOWN, "Owner")
    db.add(owner := Owner(name="new"))
    assert lookup.get(db, Owner, owner.public_id) is owner


@classes_die
def test_get_keeps_no_model_alive() -> None:
    """A model that was declared in a function and looked up can be garbage-collected with its base."""

    def use() -> weakref.ref[Any]:
        class OtherBase(DeclarativeBase): ...

        class Note(PublicIdMixin, OtherBase):
            __tablename__ = "note"

        engine = create_engine("sqlite://")
        OtherBase.metadata.create_all(engine)
        with Session(engine) as session:
            assert lookup.get(session, Note, NanoId().generate()) is None
            assert not lookup.page(session, Note, limit=1)
        OtherBase.registry.dispose()
        return weakref.ref(Note)

    note = use()
    gc.collect()

    assert note() is None


@pytest.mark.filterwarnings("ignore::sqlalchemy_public_id.errors.PublicIdWarning")
@pytest.mark.parametrize("value", IMPOSSIBLE, ids=type)
def test_impossible_id_sends_nothing(db: Session, statements: list[str], value: Any) -> None:
    """A value that cannot be an id of the model is not found, and no statement is sent."""
    assert lookup.get(db, Owner, value) is None
    with pytest.raises(PublicIdNotFound) as caught:
        lookup.get_one(db, Owner, value)
    assert len(str(caught.value)) < 500
    assert statements == []


def test_nested_list_of_every_depth(db: Session, statements: list[str]) -> None:
    """A list of any depth that ``json.loads`` reads is not found, also where ``repr()`` of it would need more stack."""
    found: list[Any] = []
    for depth in range(100, sys.getrecursionlimit() + 10):
        try:
            value = json.loads("[" * depth + "]" * depth)
        except RecursionError:
            break
        found += [lookup.get(db, Owner, value), lookup.resolve(db, value), *lookup.get_many(db, Owner, [value])]

    assert found
    assert {*found} == {None}
    assert statements == []


@pytest.mark.filterwarnings("ignore::sqlalchemy_public_id.errors.PublicIdWarning")
def test_impossible_ids_send_nothing(db: Session, statements: list[str]) -> None:
    """Functions for several ids leave out values that cannot be ids of the model, and send no statement for them."""
    several = IMPOSSIBLE, [value for value in IMPOSSIBLE if type(value) is str]
    assert [lookup.get_many(db, Owner, values) for values in several] == [{}, {}]
    assert [lookup.keys_of(db, Owner, values) for values in several] == [{}, {}]
    assert lookup.get_many(db, Owner, []) == lookup.keys_of(db, Owner, []) == lookup.public_ids_of(db, Owner, []) == {}

    assert statements == []


@pytest.mark.backend
def test_options(db: Session, statements: list[str]) -> None:
    """``joinedload()`` in ``options`` loads a collection with its row, in one statement."""
    options = [joinedload(Owner.cars)]
    found = []
    for ask in (
        lambda: lookup.get(db, Owner, ADA, options=options),
        lambda: lookup.get_one(db, Owner, ADA, options=options),
        lambda: lookup.get_many(db, Owner, [ADA], options=options)[ADA],
        lambda: lookup.resolve(db, ADA, options=options),
    ):
        db.expunge_all()
        statements.clear()
        found.append(([car.public_id for car in ask().cars], len(statements)))
    assert found == [(CARS, 1)] * 4


@pytest.mark.backend
@since_mariadb(10, 6, "SKIP LOCKED")
@on("postgresql", "mysql", "mariadb")
def test_with_for_update(db: Session, engine: Engine) -> None:
    """``with_for_update`` locks the row: another session can read it, and can lock only other rows."""
    assert lookup.get_one(db, Owner, ADA, with_for_update=True).name == "Ada"
    with Session(engine) as other:
        assert lookup.get(other, Owner, ADA) is not None
        assert lookup.get_one(other, Owner, GRACE, with_for_update={"nowait": True}).name == "Grace"
        assert lookup.get(other, Owner, ADA, with_for_update={"skip_locked": True}) is None
        with pytest.raises(OperationalError):
            lookup.get_one(other, Owner, ADA, with_for_update={"nowait": True})
    db.rollback()
    with Session(engine) as other:
        assert lookup.get_one(other, Owner, ADA, with_for_update={"nowait": True}).name == "Ada"


@pytest.mark.filterwarnings("ignore::sqlalchemy_public_id.errors.PublicIdWarning")
@pytest.mark.backend
def test_get_many(db: Session, statements: list[str]) -> None:
    """Rows are returned in the order of the ids, each once, without unknown ids, and by one statement."""
    asked = [GRACE, UNKNOWN, str(ADA), None, GRACE, *IMPOSSIBLE]
    found = lookup.get_many(db, Owner, iter(asked))

    assert [(type(key), key, owner.name) for key, owner in found.items()] == [(str, GRACE, "Grace"), (str, ADA, "Ada")]
    assert len(statements) == 1


def test_get_many_of_a_deferred_id(db: Session, statements: list[str]) -> None:
    """A lookup takes one statement, whatever columns are loaded with the rows, and does not compare the rows."""

    class Own(DeclarativeBase): ...

    class Shy(Own):
        __tablename__ = "shy"
        id: Mapped[int] = mapped_column(primary_key=True)
        public_id: Mapped[str] = public_id_column(NanoId(), deferred=True)
        __hash__ = Own.__hash__

        def __eq__(self, other: object) -> bool:
            raise AssertionError("a row is compared")

    Own.metadata.create_all(db.connection())
    db.add_all([Shy(), Shy()])
    db.commit()
    ids = db.scalars(select(Shy.public_id)).all()
    db.expunge_all()
    statements.clear()

    assert list(lookup.get_many(db, Shy, ids)) == ids
    assert list(lookup.get_many(db, Shy, ids, options=[load_only(Shy.id)])) == ids
    assert len(statements) == 2


@pytest.mark.parametrize("wrong", [UNKNOWN, "no id", None, 1, []], ids=repr)
def test_unknown_ids_of_a_field(db: Session, wrong: Any) -> None:
    """With ``field``, the first id without a row raises an error that names the field and the id."""
    ada = lookup.get_one(db, Owner, ADA, field="owner")

    assert lookup.get_many(db, Owner, iter([ADA]), field="owners") == {ADA: ada}
    assert lookup.get_many(db, Owner, [], field="owners") == {}
    assert ada.id == 1  # a key is not a public id
    with pytest.raises(PublicIdNotFound, match=r"^owner: no Owner has the public id") as one:
        lookup.get_one(db, Owner, wrong, field="owner")
    with pytest.raises(PublicIdNotFound, match=r"^owners: no Owner has the public id") as many:
        lookup.get_many(db, Owner, iter([ADA, wrong, "later"]), field="owners")
    assert (one.value.field, many.value.field) == ("owner", "owners")
    assert one.value.value is many.value.value is wrong


@on("sqlite", "mysql", "mariadb")
def test_get_many_of_an_adopted_column(db: Session) -> None:
    """Rows of other ids, which a case-insensitive collation returns as well, are left out."""

    class Other(DeclarativeBase): ...

    class Coupon(Other):
        __tablename__ = "coupon"
        id: Mapped[int] = bigint_key()
        code: Mapped[str] = public_id_column(NanoId(length=4, alphabet=BASE62))

    connection = db.connection()
    collation = "NOCASE" if connection.dialect.name == "sqlite" else "utf8mb4_general_ci"
    connection.exec_driver_sql(
        f"CREATE TEMPORARY TABLE coupon (id INTEGER PRIMARY KEY, code VARCHAR(4) COLLATE {collation})"
    )
    connection.exec_driver_sql("INSERT INTO coupon VALUES (1, 'aBcD'), (2, 'AbCd'), (3, 'zzzz')")

    found = lookup.get_many(db, Coupon, ["AbCd", "xxxx"])
    assert {code: coupon.id for code, coupon in found.items()} == {"AbCd": 2}
    db.rollback()


@pytest.mark.backend
def test_get_many_after_an_update(db: Session) -> None:
    """Rows are found by their current ids, even if objects of the session show earlier ones."""
    owners = [Owner(name="Ada"), Owner(name="Bea")]
    db.add_all(owners)
    db.flush()
    first, second, third = owners[0].public_id, owners[1].public_id, OwnerId()
    table: Any = Owner.__table__
    for old, new in ((first, third), (second, first)):
        db.execute(update(table).values(public_id=new).where(table.c.public_id == old))

    assert [owner.public_id for owner in owners] == [first, second]
    assert lookup.get_many(db, Owner, [first, second, third]) == {first: owners[1], third: owners[0]}


@pytest.mark.filterwarnings("ignore::sqlalchemy_public_id.errors.PublicIdWarning")
@pytest.mark.backend
def test_keys_of_and_public_ids_of(db: Session, statements: list[str]) -> None:
    """Keys and typed public ids are returned in the order asked for, without unknown ones; no object is loaded."""
    keys = lookup.keys_of(db, Owner, [GRACE, UNKNOWN, ADA, GRACE, 1])
    found = lookup.public_ids_of(db, Owner, iter([keys[ADA], 999, None, keys[GRACE], keys[ADA]]))

    assert list(keys) == [GRACE, ADA]
    assert list(found.items()) == [(keys[ADA], ADA), (keys[GRACE], GRACE)]
    assert {type(public_id) for public_id in found.values()} == {OwnerId}
    assert len(statements) == 2
    assert not db.identity_map
    assert db.get_one(Owner, keys[ADA]).public_id == ADA


@pytest.mark.backend
def test_keys_as_text(db: Session) -> None:
    """A key may be passed as text, as to ``session.get()``; the dict has it as it was passed."""
    keys = lookup.keys_of(db, Owner, [ADA, GRACE])
    ada, grace = str(keys[ADA]), keys[GRACE]

    assert lookup.public_ids_of(db, Owner, [ada, grace, "999"]) == {ada: ADA, grace: GRACE}
    with pytest.raises(InvalidKey):
        lookup.public_ids_of(db, Owner, ["x1"])


STATEMENTS = {"sqlite": 10, "postgresql": 1, "mysql": 1, "mariadb": 1}


@pytest.mark.backend
def test_a_hundred_thousand(db: Session, statements: list[str]) -> None:
    """One statement looks up 100,000 ids; on SQLite, ten do."""
    database = db.get_bind().dialect.name
    made = [f"{number:012}" for number in range(100_000)]
    there = made[::200]
    db.execute(insert(Plain), [{"public_id": public_id} for public_id in there])
    statements.clear()

    assert list(lookup.get_many(db, Plain, made)) == there
    assert len(statements) == STATEMENTS[database]
    keys = lookup.keys_of(db, Plain, made)
    assert list(keys) == there
    assert len(statements) == 2 * STATEMENTS[database]
    found = lookup.public_ids_of(db, Plain, range(100_000))
    assert found == {key: public_id for public_id, key in keys.items()}
    assert len(statements) == 3 * STATEMENTS[database]


# --- models of all kinds


def test_inheritance(db: Session) -> None:
    """A row is found through its class and its superclasses, not through other subclasses, and has its own class."""
    assert type(lookup.get(db, Car, CARS[2])) is Truck
    assert type(lookup.get(db, Truck, CARS[2])) is Truck
    assert lookup.get(db, Truck, CARS[0]) is None
    assert [type(car) for car in lookup.get_many(db, Car, CARS).values()] == [Car, Car, Truck]
    assert list(lookup.get_many(db, Truck, CARS)) == list(lookup.keys_of(db, Truck, CARS)) == [CARS[2]]
    assert lookup.keys_of(db, Truck, CARS)[CARS[2]] == lookup.keys_of(db, Car, CARS)[CARS[2]]
    assert list(lookup.public_ids_of(db, Truck, lookup.keys_of(db, Car, CARS).values()).values()) == [CARS[2]]


@pytest.mark.backend
def test_composite_key(db: Session) -> None:
    """``keys_of()`` returns a composite key as a tuple; ``public_ids_of()`` does not accept composite keys."""
    seats = [Seat(row=1, number=number) for number in (3, 1, 2)]
    db.add_all(seats)
    db.flush()
    ids = [seat.public_id for seat in seats]

    assert lookup.get(db, Seat, ids[0]) is seats[0]
    assert lookup.get_many(db, Seat, ids) == dict(zip(ids, seats, strict=True))
    assert lookup.keys_of(db, Seat, ids) == {ids[0]: (1, 3), ids[1]: (1, 1), ids[2]: (1, 2)}
    with pytest.raises(ConfigurationError, match="composite"):
        lookup.public_ids_of(db, Seat, [(1, 3)])


def test_public_ids_of_other_names(db: Session) -> None:
    """The only public id of a model needs no ``attribute``; of several, every function uses the one that is named."""
    pair, page = Pair(), Page(lines=[Line(), Line()])
    db.add_all([pair, page])
    db.flush()
    left, always = pair.left, true()

    with pytest.raises(ConfigurationError, match="left, right"):
        lookup.get(db, Pair, left)
    assert lookup.get(db, Page, page.slug) is page
    assert lookup.public_ids_of(db, Page, [page.id]) == {page.id: page.slug}
    assert lookup.get(db, Pair, left, attribute="left", where=always) is pair
    assert lookup.get(db, Pair, left, attribute="right") is None
    assert lookup.get_one(db, Pair, left, attribute="left", options=[]) is pair
    assert lookup.get_many(db, Pair, [left], attribute="left") == {left: pair}
    assert lookup.keys_of(db, Pair, [left], attribute="left") == {left: pair.id}
    assert lookup.public_ids_of(db, Pair, [pair.id], attribute="left") == {pair.id: left}
    assert list(lookup.page(db, Pair, limit=1, attribute="left", where=always)) == [pair]


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("server", [0, 1], ids=["the server first", "SQLite first"])
def test_two_databases(engine: Engine, new_engine: Callable[..., Engine], server: int) -> None:
    """A program with a server and SQLite looks rows of one model up in both, in whatever order."""

    class Base(DeclarativeBase): ...

    class Both(PublicIdMixin, Base):
        __tablename__ = "both"

    engines = [new_engine("sqlite")]
    engines.insert(server, engine)
    try:
        for each in engines:
            Base.metadata.create_all(each)
            with Session(each) as session:
                session.add_all(rows := [Both(), Both()])
                session.flush()
                ids, keys = [row.public_id for row in rows], [row.id for row in rows]
                assert list(lookup.get_many(session, Both, ids)) == ids
                assert lookup.keys_of(session, Both, ids) == dict(zip(ids, keys, strict=True))
                assert lookup.public_ids_of(session, Both, keys) == dict(zip(keys, ids, strict=True))
                assert lookup.get(session, Both, ids[0]) is rows[0]
                assert len(lookup.page(session, Both, limit=1)) == 1
    finally:
        Base.metadata.drop_all(engine)
