"""References to rows that the application's own conditions hide, and to rows that cannot be read at all."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, ForeignKey, MetaData, String, delete, event, insert, select, text, update
from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    ORMExecuteState,
    Session,
    foreign,
    joinedload,
    load_only,
    make_transient,
    mapped_column,
    relationship,
    selectinload,
    with_loader_criteria,
)
from sqlalchemy.orm.exc import DetachedInstanceError
from support.async_sessions import tell
from support.marks import on
from support.shard_files import tables_in
from support.shared_tables import filled_engine

from conftest import Statements
from sqlalchemy_public_id import (
    NanoId,
    PublicIdMixin,
    PublicIdNotFound,
    ReferenceNotReadable,
    public_id_column,
    references,
)
from sqlalchemy_public_id.asyncio import references as awaited
from sqlalchemy_public_id.keys import ShardRouter
from sqlalchemy_public_id.references import public_ref


class Base(DeclarativeBase):
    metadata = MetaData()


class Soft:
    """A mixin for rows that can be deleted softly."""

    hidden: Mapped[bool] = mapped_column(default=False)


class Buyer(Soft, PublicIdMixin, Base):
    __tablename__ = "hidden_buyer"
    __public_id__ = NanoId(prefix="rhbuyer")
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "buyer"}  # noqa: RUF012
    kind: Mapped[str] = mapped_column(String(10))
    number: Mapped[str] = public_id_column(NanoId(prefix="rhnumber"))


class Shop(Buyer):
    """A joined-table subclass: foreign keys refer to its table, but its public ids are in its superclass's table."""

    __tablename__ = "hidden_shop"
    __mapper_args__ = {"polymorphic_identity": "shop"}  # noqa: RUF012
    id: Mapped[int] = mapped_column(ForeignKey(Buyer.id), primary_key=True)


class Region(Soft, PublicIdMixin, Base):
    __tablename__ = "hidden_region"
    __public_id__ = NanoId(prefix="rhregion")
    code: Mapped[str] = mapped_column(String(3), unique=True)


class Sale(Soft, PublicIdMixin, Base):
    __tablename__ = "hidden_sale"
    __public_id__ = NanoId(prefix="rhsale")
    note: Mapped[str | None] = mapped_column(String(20))
    buyer_id: Mapped[int | None] = mapped_column(ForeignKey(Buyer.id))
    buyer: Mapped[Buyer | None] = relationship(foreign_keys=buyer_id)
    buyer_public_id: Mapped[str | None] = public_ref("buyer", attribute="public_id")
    buyer_number: Mapped[str | None] = public_ref("buyer", attribute="number")
    shop_id: Mapped[int | None] = mapped_column(ForeignKey(Shop.id))
    shop: Mapped[Shop | None] = relationship(foreign_keys=shop_id)
    shop_public_id: Mapped[str | None] = public_ref("shop", attribute="public_id")
    region_code: Mapped[str | None] = mapped_column(ForeignKey(Region.code))
    region: Mapped[Region | None] = relationship()
    region_public_id: Mapped[str | None] = public_ref("region")
    origin_id: Mapped[int | None] = mapped_column(ForeignKey("hidden_sale.id"))
    origin: Mapped[Sale | None] = relationship(remote_side="Sale.id", foreign_keys=origin_id)
    origin_public_id: Mapped[str | None] = public_ref("origin")
    agent_id: Mapped[int | None]
    """A foreign key that no constraint enforces."""
    agent: Mapped[Buyer | None] = relationship(primaryjoin=lambda: foreign(Sale.agent_id) == Buyer.id)
    agent_public_id: Mapped[str | None] = public_ref("agent", attribute="public_id")


SEEN, HIDDEN, SHOP = (f"rhbuyer_{number:012}" for number in range(3))
NUMBER = "rhnumber_000000000001"
REGION, ORIGIN = "rhregion_000000000000", "rhsale_000000000000"
KEYS = {
    "buyer_public_id": "buyer_id",
    "buyer_number": "buyer_id",
    "shop_public_id": "shop_id",
    "region_public_id": "region_code",
    "origin_public_id": "origin_id",
}
"""The references that lead to hidden rows, and their foreign keys."""
REFERENCES = dict(zip(KEYS, (HIDDEN, NUMBER, SHOP, REGION, ORIGIN), strict=True))


def hide(session: Any, include_aliases: bool = True, everything: bool = False) -> None:
    """Hide softly deleted rows from the queries of *session*, as in SQLAlchemy's documentation."""

    @event.listens_for(session, "do_orm_execute")
    def _(state: ORMExecuteState) -> None:
        if state.is_select and not state.is_column_load and (everything or not state.is_relationship_load):
            for model in (Buyer, Shop, Region, Sale):
                visible = with_loader_criteria(model, model.hidden.is_(False), include_aliases=include_aliases)
                state.statement = state.statement.options(visible)


engine = filled_engine(Base.metadata, lambda session: None)


@pytest.fixture
def filled(engine: Engine) -> None:
    """Store a sale all of whose references lead to hidden rows, and one whose buyer is visible."""
    with Session(engine) as session, session.begin():
        session.execute(update(Sale).values(origin_id=None))
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(delete(table))
        fill(session)


def fill(session: Session) -> None:
    hidden = Buyer(public_id=HIDDEN, number=NUMBER, hidden=True)
    shop = Shop(public_id=SHOP, hidden=True)
    region = Region(public_id=REGION, code="EUR", hidden=True)
    origin = Sale(public_id=ORIGIN, note="origin", hidden=True)
    session.add(Sale(note="hidden", buyer=hidden, shop=shop, region=region, origin=origin))
    session.add(Sale(note="seen", buyer=Buyer(public_id=SEEN)))
    session.flush()


@pytest.fixture
def db(request: pytest.FixtureRequest, filled: None, session: Session) -> Session:
    """Return a session that hides rows in the way that the test names, or as SQLAlchemy's recipe does."""
    hide(session, **getattr(request, "param", {}))
    return session


each_way = pytest.mark.parametrize(
    "db", [{}, {"include_aliases": False}, {"everything": True}], ids=["recipe", "no-aliases", "all"], indirect=True
)
"""The ways in which applications hide rows."""


def sale(session: Session, note: str = "hidden", *options: Any) -> Sale:
    return session.scalars(select(Sale).where(Sale.note == note).options(*options)).one()


def stored(session: Session, note: str = "hidden") -> dict[str, Any]:
    """Return the foreign keys as the table stores them."""
    table = Sale.__table__
    columns = [table.c[name] for name in dict.fromkeys(KEYS.values())]
    return dict(session.connection().execute(select(*columns).where(table.c.note == note)).mappings().one())


# --- rows that the application hides


@pytest.mark.backend
@each_way
def test_read(db: Session, statements: Statements) -> None:
    """A reference shows the id of the row that its foreign key refers to, even if the application hides that row.

    It is loaded together with the ids of visible rows, in one statement.
    """
    one = sale(db)

    for _ in range(2):
        assert {name: getattr(one, name) for name in REFERENCES} == REFERENCES
        db.expire_all()
    other = sale(db, "seen")
    db.refresh(one)
    statements.clear()
    assert (one.buyer_public_id, other.buyer_public_id) == (HIDDEN, SEEN)
    assert len(statements) == 1


@each_way
@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("before", ["read", "expired", "unread", "committed", "relationship"])
def test_written_back(db: Session, before: str, name: str) -> None:
    """A reference accepts the id that it shows, even of a hidden row, and its foreign key does not change."""
    keys = stored(db)
    one = sale(db)
    if before == "expired":
        db.expire(one)
    elif before == "relationship":
        getattr(one, references.public_refs(Sale)[name].relationship)
    elif before == "committed":
        db.commit()
    setattr(one, name, getattr(one, name) if before == "read" else REFERENCES[name])
    db.commit()

    assert stored(db) == keys
    assert getattr(one, name) == REFERENCES[name]


@each_way
@pytest.mark.parametrize(("name", "public_id"), REFERENCES.items(), ids=REFERENCES)
def test_of_another_row(db: Session, statements: Statements, name: str, public_id: str) -> None:
    """The id of a hidden row is unknown to a row that does not refer to it, and nothing is written."""
    keys = stored(db, "seen")
    setattr(sale(db, "seen"), name, public_id)
    with pytest.raises(PublicIdNotFound) as caught:
        db.flush()
    db.rollback()
    assert (caught.value.value, caught.value.field) == (public_id, f"Sale.{name}")
    assert stored(db, "seen") == keys
    with pytest.raises(PublicIdNotFound):
        db.execute(insert(Sale), [{"note": "new", name: public_id}])
    assert statements.starting("UPDATE") == statements.starting("INSERT") == []


@pytest.mark.backend
@each_way
def test_in_sql(db: Session) -> None:
    """A query compares and selects the ids that objects show."""

    def notes(condition: Any) -> list[str | None]:
        return list(db.scalars(select(Sale.note).where(condition).order_by(Sale.note)))

    pairs = [(getattr(Sale, name), public_id) for name, public_id in REFERENCES.items()]
    equal = [[one == id, one.in_([id]), one.like(f"%{id[-5:]}")] for one, id in pairs]
    assert [[*map(notes, each)] for each in equal] == [[["hidden"]] * 3] * 5
    assert [id for one, id in pairs if "hidden" in notes(one != id) + notes(one.not_in([id]))] == []
    shown = [db.scalars(select(one).where(Sale.note == "hidden")).one() for one, _ in pairs]
    assert shown == [id for _, id in pairs]
    assert [len(db.scalars(select(Sale.note).order_by(one)).all()) for one, _ in pairs] == [2] * 5


@pytest.mark.parametrize(
    "options",
    [
        [references.eager(Sale.buyer_public_id)],
        [selectinload(Sale.buyer)],
        [joinedload(Sale.buyer)],
        [load_only(Sale.note)],
        [load_only(Sale.note), references.eager(Sale.buyer_public_id)],
        [load_only(Sale.note), joinedload(Sale.buyer)],
    ],
    ids=["eager", "selectinload", "joinedload", "deferred", "deferred-eager", "deferred-joinedload"],
)
@pytest.mark.parametrize("read_first", [True, False], ids=["read", "unread"])
def test_loaded_as_nothing(db: Session, options: list[Any], read_first: bool) -> None:
    """A relationship that was loaded as ``None`` does not change the reference, even if its id is written back."""
    visible = with_loader_criteria(Soft, lambda cls: cls.hidden.is_(False), include_aliases=True)
    keys = stored(db)
    db.expunge_all()
    one = sale(db, "hidden", visible, *options)
    if read_first:
        assert one.buyer_public_id == HIDDEN
    one.buyer_public_id = HIDDEN
    db.commit()
    assert stored(db) == keys
    assert one.buyer_public_id == HIDDEN


# --- rows that cannot be read


@pytest.fixture
def dangling(filled: None, session: Session) -> Session:
    """Return a session with two sales whose agent does not exist, and one sale without an agent."""
    session.execute(update(Sale).where(Sale.note != "origin").values(agent_id=10**9))
    session.commit()
    return session


@pytest.mark.backend
def test_not_readable(dangling: Session, statements: Statements) -> None:
    """A foreign key without a row raises an error that names the attribute, and is queried once."""
    one, origin, other = dangling.scalars(select(Sale).order_by(Sale.note)).all()
    statements.clear()
    for each in (one, other, one):
        with pytest.raises(ReferenceNotReadable, match=r"Sale\.agent_public_id") as caught:
            each.agent_public_id  # noqa: B018
        error = caught.value
        assert (error.field, error.model, error.key) == ("Sale.agent_public_id", "Buyer", 10**9)
        assert str(10**9) not in str(error)

    assert origin.agent_public_id is None
    assert len(statements) == 1
    assert one.buyer_public_id == HIDDEN
    assert len(dangling.scalars(select(Sale).where(Sale.agent_public_id.is_not(None))).all()) == 2


def test_readable_again(dangling: Session) -> None:
    """``load()`` reads a reference again whose row could not be read before, and is there now."""
    [one, other] = dangling.scalars(select(Sale).where(Sale.agent_id.is_not(None))).all()
    for each in (one, other):
        with pytest.raises(ReferenceNotReadable):
            each.agent_public_id  # noqa: B018
    dangling.execute(insert(Buyer), [{"id": 10**9, "public_id": "rhbuyer_0000000agent"}])

    references.load(dangling, [one, other])

    assert (one.agent_public_id, other.agent_public_id) == ("rhbuyer_0000000agent",) * 2


def test_a_page_with_one_that_is_not_readable(dangling: Session) -> None:
    """``load()`` raises for no object, and tries unreadable references again; a pickled object still raises."""
    one, origin, other = sales = dangling.scalars(select(Sale).order_by(Sale.note)).all()
    references.load(dangling, sales)
    assert origin.agent_public_id is None
    for each in (one, other):
        with pytest.raises(ReferenceNotReadable):
            each.agent_public_id  # noqa: B018
    key = stored(dangling, "seen")["buyer_id"]
    with dangling.no_autoflush:
        dangling.connection().execute(update(Sale.__table__).values(agent_id=key))
        dangling.expire(one, ["agent_id"])
    references.load(dangling, sales)
    assert one.agent_public_id == SEEN
    dangling.expunge_all()
    with pytest.raises(ReferenceNotReadable):
        pickle.loads(pickle.dumps(other)).agent_public_id  # noqa: B018


def test_a_row_without_a_public_id(create: Callable[[MetaData], None], session: Session) -> None:
    """While a table is being filled, a row without an id raises; a form could write ``None`` back."""

    class Filling(DeclarativeBase): ...

    class Author(PublicIdMixin, Filling):
        __tablename__ = "hidden_author"

    class Book(PublicIdMixin, Filling):
        __tablename__ = "hidden_book"
        author_id: Mapped[int | None] = mapped_column(ForeignKey(Author.id))
        author: Mapped[Any] = relationship(Author)
        author_public_id: Mapped[str | None] = public_ref("author")

    Author.__table__.c.public_id.nullable = True
    create(Filling.metadata)
    session.add(Book(author=Author()))
    session.commit()
    session.execute(update(Author).values(public_id=None), execution_options={"synchronize_session": False})
    session.expire_all()
    book = session.scalars(select(Book)).one()

    with pytest.raises(ReferenceNotReadable):
        book.author_public_id  # noqa: B018


def test_pending(db: Session) -> None:
    """A pending object shows the id of the row that its key refers to; a key without a row raises an error."""
    key = stored(db)["buyer_id"]
    one, other = Sale(buyer_id=key), Sale(agent_id=10**9)
    db.add_all([one, other])
    assert one.buyer_public_id == HIDDEN
    with pytest.raises(ReferenceNotReadable):
        other.agent_public_id  # noqa: B018
    assert {one, other} <= {*db.new}


def test_without_a_session(db: Session) -> None:
    """An object without a session shows the id that was assigned, and raises for an id that it would have to load."""
    buyer = Buyer()
    assert Sale().buyer_public_id is None
    assert Sale(buyer=buyer).buyer_public_id == buyer.public_id
    assert Sale(buyer_public_id=SEEN).buyer_public_id == SEEN
    with pytest.raises(DetachedInstanceError, match=r"Sale\.buyer_public_id.*in no session"):
        Sale(buyer_id=1).buyer_public_id  # noqa: B018
    with pytest.raises(DetachedInstanceError, match=r"Sale\.buyer_number.*in no session"):
        Sale(buyer_public_id=SEEN).buyer_number  # noqa: B018
    one = sale(db)
    db.expunge(one)
    make_transient(one)
    with pytest.raises(DetachedInstanceError):
        one.buyer_public_id  # noqa: B018


def test_the_other_id_of_an_assigned_row(db: Session) -> None:
    """An object to which one id of a row was assigned shows its other id, before and after the flush."""
    number = db.connection().scalar(select(Buyer.__table__.c.number).where(Buyer.__table__.c.public_id == SEEN))
    new = Buyer()
    one, other, missing = (Sale(buyer_public_id=each) for each in (SEEN, new.public_id, HIDDEN))
    db.add_all([one, new, other, missing])
    assert (one.buyer_number, other.buyer_number) == (number, new.number)
    with pytest.raises(PublicIdNotFound):
        missing.buyer_number  # noqa: B018
    assert missing in db.new
    db.expunge(missing)
    db.flush()
    assert (one.buyer_number, other.buyer_number) == (number, new.number)


# --- rows that PostgreSQL hides


@pytest.mark.backend
@on("postgresql")
def test_row_level_security(role: str, filled: None, session: Session) -> None:
    """A row that row-level security hides raises an error; nothing of it is shown, and writing changes nothing."""
    session.execute(text(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"))
    session.execute(text("ALTER TABLE hidden_buyer ENABLE ROW LEVEL SECURITY"))
    session.execute(text("CREATE POLICY seen ON hidden_buyer USING (NOT hidden)"))
    session.commit()
    keys = stored(session)
    session.execute(text(f"SET LOCAL ROLE {role}"))
    one, other = sale(session), sale(session, "seen")

    assert other.buyer_public_id == SEEN
    with pytest.raises(ReferenceNotReadable) as caught:
        one.buyer_public_id  # noqa: B018
    assert (caught.value.model, caught.value.key) == ("Buyer", keys["buyer_id"])
    one.buyer_public_id = HIDDEN
    with pytest.raises(PublicIdNotFound):
        session.flush()
    session.rollback()
    assert stored(session) == keys
    assert one.buyer_public_id == HIDDEN


# --- several databases


def test_shards(new_engine: Callable[..., Engine]) -> None:
    """In each shard, a reference shows the id of the hidden row in that shard, and accepts it."""
    engines = {name: new_engine("sqlite") for name in ("north", "south")}
    with tables_in(engines, Base.metadata):
        for name, engine in engines.items():
            with Session(engine) as session, session.begin():
                for number in range(3 if name == "south" else 0):
                    session.add(Buyer(number=f"rhnumber_{number:012}"))
                    session.flush()
                buyer = Buyer(public_id=f"rhbuyer_00000000{name[:4]}", hidden=True)
                session.add(Sale(note=name, public_id=f"rhsale_00000000{name[:4]}", buyer=buyer))
        router = ShardRouter(engines, by={range(1, 2): "north", range(2, 99): "south"}, place={Sale: lambda _: "north"})
        with router.session() as session:
            hide(session)
            found = {each.note: each for each in session.scalars(select(Sale))}
            assert {note: each.buyer_public_id for note, each in found.items()} == {
                name: f"rhbuyer_00000000{name[:4]}" for name in engines
            }
            for name, each in found.items():
                session.expire(each)
                each.buyer_public_id = f"rhbuyer_00000000{name[:4]}"
            session.commit()
            assert [each.buyer_id for each in (found["north"], found["south"])] == [1, 4]
            new = Sale(buyer_id=4)
            session.add(new)
            with session.no_autoflush:
                assert new.buyer_public_id == "rhbuyer_00000000sout"


def test_a_key_of_several_shards(new_engine: Callable[..., Engine]) -> None:
    """Before its shard is known, a new object shows the id of a row in any shard; two such rows raise an error."""
    engines = {name: new_engine("sqlite") for name in ("north", "south")}
    with tables_in(engines, Base.metadata):
        for at, engine in enumerate(engines.values()):
            with Session(engine) as session, session.begin():
                session.add(Buyer(id=1, hidden=True))
                session.add(Buyer(id=2 + at, hidden=True, public_id=f"rhbuyer_00000000000{at}"))
        with ShardRouter(engines).session() as session:
            hide(session)
            one, other = Sale(buyer_id=1), Sale(buyer_id=3)
            session.add_all([one, other])
            assert other.buyer_public_id == "rhbuyer_000000000001"
            with pytest.raises(ReferenceNotReadable):
                one.buyer_public_id  # noqa: B018
            assert {one, other} <= {*session.new}


# --- with AsyncSession


def test_async(async_engine: AsyncEngine) -> None:
    """``load()`` loads the ids of hidden rows; if ``eager()`` found none, the error suggests ``load()`` only."""

    async def story(session: AsyncSession) -> None:
        await session.run_sync(fill)
        await session.commit()
        session.expunge_all()
        hide(session.sync_session, everything=True)
        eager = select(Sale).where(Sale.note == "hidden").options(references.eager(Sale.buyer_public_id))
        one = (await session.scalars(eager)).one()
        with pytest.raises(MissingGreenlet, match=r"references\.load\(session, objects\)"):
            one.buyer_public_id  # noqa: B018
        await awaited.load(session, [one])
        assert {name: getattr(one, name) for name in REFERENCES} == REFERENCES

    tell(async_engine, Base.metadata, story)
