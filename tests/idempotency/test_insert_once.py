"""``insert_once()``: an insert that can be repeated."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from sqlalchemy import Engine, MetaData, String, func, inspect, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from support.async_sessions import tell
from support.purchases import ADA, A, B, Base, Customer, Line, Order, differing, stored
from support.shapes import FOR_SERVERS, SHAPES

from conftest import Statements
from sqlalchemy_public_id import (
    ConfigurationError,
    IdempotencyConflict,
    NanoId,
    PublicIdColumnMixin,
    PublicIdMixin,
    lookup,
    public_id_column,
    testing,
)
from sqlalchemy_public_id.asyncio.idempotency import insert_once as async_once
from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.formats import Uuid7
from sqlalchemy_public_id.idempotency import insert_once
from sqlalchemy_public_id.orm.inspection import id_attributes

pytestmark = pytest.mark.backend


class Parcel(PublicIdColumnMixin, Base):
    """Declares its own key, and has a version."""

    __tablename__ = "parcel"
    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column()
    name: Mapped[str | None] = mapped_column(String(50))

    __mapper_args__: ClassVar[dict[str, Any]] = {"version_id_col": version}


# --- once, and again


def test_first_time_and_again(db: Session, engine: Engine) -> None:
    """The first call stores the object with its key, defaults and children, and returns it.

    A repetition finds the row, in the same transaction, in the next one, and in another session.
    """
    order = Order(public_id=A, number="1", lines=[Line(), Line()])
    assert insert_once(db, order) == (order, True)
    assert order in db
    assert (order.id, order.state, order.served) == (db.scalar(select(Order.id)), "new", "served")
    for _ in range(2):
        assert insert_once(db, Order(public_id=A, number="1", lines=[Line(), Line()])) == (order, False)
        db.commit()
    with Session(engine) as other:
        found, created = insert_once(other, Order(public_id=A, number="1"))
        assert (found.id, found.number, created) == (order.id, "1", False)

    assert stored(engine) == [A]
    assert len(order.lines) == len(stored(engine, Line)) == 2


def test_other_contents(db: Session) -> None:
    """The same id with different contents raises an error that names the attributes, and the transaction continues."""
    insert_once(db, Order(public_id=A, number="1", total=Decimal(5), state="new", note="same"))
    with pytest.raises(IdempotencyConflict) as caught:
        insert_once(db, Order(public_id=A, number="1", total=Decimal(6), state="paid", note="same"))

    assert (caught.value.public_id, caught.value.model) == (A, "Order")
    assert caught.value.differing == ("total", "state")
    db.commit()
    assert db.scalars(select(Order.total)).all() == [Decimal(5)]


def test_only_what_is_set_is_compared(db: Session) -> None:
    """Attributes that a repetition leaves unset are not compared, nor is ``None`` for a column with a default."""
    insert_once(db, Order(public_id=A, number="1", state="paid", served="cold", note="deferred"))

    assert insert_once(db, Order(public_id=A, state=None, served=None))[1] is False
    assert insert_once(db, Order(public_id=A, number="1", note="deferred"))[1] is False
    others = [{"number": None}, {"note": None}, {"note": "other"}, {"state": "new"}]
    assert [differing(db, Order(public_id=A, **other)) for other in others] == [*map(tuple, others)]


def test_deferred_column(db: Session, statements: Statements) -> None:
    """A deferred column is compared like others, and its value is loaded with the row."""
    insert_once(db, Order(public_id=A, note="deferred"))
    db.expunge_all()
    statements.clear()
    assert insert_once(db, Order(public_id=A, note="deferred"))[1] is False

    assert len([statement for statement in statements.starting("SELECT") if "FROM" in statement]) == 1


@pytest.mark.parametrize("expire_on_commit", [True, False])
def test_row_that_has_changed(db: Session, engine: Engine, expire_on_commit: bool) -> None:
    """The current contents of the row are compared, even if the session holds an older object."""
    db.expire_on_commit = expire_on_commit
    order, _ = insert_once(db, Order(public_id=A, state="new"))
    db.commit()
    with Session(engine) as other, other.begin():
        lookup.get_one(other, Order, A).state = "paid"

    assert differing(db, Order(public_id=A, state="new")) == ("state",)
    assert order.state == "paid"


def test_scoped_session(db: Session, engine: Engine) -> None:
    """A scoped session is accepted; a connection is not."""
    scoped = scoped_session(sessionmaker(engine))
    order, created = insert_once(scoped, Order(public_id=A))
    assert created
    assert order in scoped
    scoped.remove()
    with engine.connect() as connection, pytest.raises(TypeError, match="expected a Session"):
        insert_once(connection, Order(public_id=A))


# --- ids


def test_id_that_was_read_before(db: Session, engine: Engine) -> None:
    """A generated id may be known to the code that read it, and is not replaced by another one."""
    order = Order(number="1")
    public_id = order.public_id
    insert_once(db, Order(public_id=public_id, number="1"))

    found, created = insert_once(db, order)
    assert (found.public_id, order.public_id, created) == (public_id, public_id, False)
    db.commit()
    assert stored(engine) == [public_id]


@pytest.mark.parametrize("id", [{}, {"public_id": None}, {"public_id": A}], ids=["none", "None", "taken away"])
def test_none_is_no_id(db: Session, statements: list[str], id: dict[str, Any]) -> None:
    """An insert without a known id could not be repeated, and is rejected before anything is sent."""
    order = Order(number="1", **id)
    if id.get("public_id"):
        order.public_id = None
    statements.clear()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="no public_id"):
            insert_once(db, order)

    assert statements == []
    order.public_id = A
    assert insert_once(db, order) == (order, True)


def test_none_for_another_id(db: Session) -> None:
    """``None`` for a public id that does not identify the insert lets the library generate one, and never conflicts."""
    order, _ = insert_once(db, Order(public_id=A, code=None))

    assert insert_once(db, Order(public_id=A, code=None)) == (order, False)
    with pytest.raises(ConfigurationError, match="no code"):
        insert_once(db, Order(public_id=A, code=None), attribute="code")


def test_collision_of_another_id(db: Session) -> None:
    """If another generated id of the row collides, it is generated again."""
    order, _ = insert_once(db, Order(public_id=A))
    with testing.collisions(Order, order.code, attribute="code"):
        other, created = insert_once(db, Order(public_id=B))

    assert created
    assert other.code != order.code


def test_none_where_a_value_is_made(db: Session) -> None:
    """A key and a version that are ``None`` are generated by the INSERT, and are not compared."""
    payload: dict[str, Any] = {"public_id": A, "id": None, "version": None, "name": None}
    parcel, created = insert_once(db, Parcel(**payload))
    db.commit()

    assert created
    assert insert_once(db, Parcel(**payload)) == (parcel, False)
    assert insert_once(db, Parcel(**payload), compare=[*payload]) == (parcel, False)
    assert differing(db, Parcel(public_id=A, id=parcel.id + 1)) == ("id",)


def test_attribute(db: Session) -> None:
    """Any public id of a model can identify the insert; other public ids are compared only if they are set."""
    code = Uuid7(prefix="iocode").generate()
    order, _ = insert_once(db, Order(code=code, number="1"), attribute="code")

    assert insert_once(db, Order(code=code, number="1"), attribute="code") == (order, False)
    assert differing(db, Order(code=code, public_id=A), attribute="code") == ("public_id",)
    with pytest.raises(ConfigurationError, match="name one of"):
        insert_once(db, Order(code=code), attribute="number")


# --- what is refused


@pytest.mark.parametrize("value", [None, "order", Order])
def test_what_is_no_object(value: Any) -> None:
    """Only mapped objects can be inserted."""
    with Session() as session, pytest.raises(TypeError, match="mapped object"):
        insert_once(session, value)


def test_object_that_is_not_new(db: Session) -> None:
    """An object that was added to a session is rejected, because any flush could write it."""
    order = Order(public_id=A)
    db.add(order)
    with pytest.raises(ConfigurationError, match="not new"):
        insert_once(db, order)
    db.commit()
    with pytest.raises(ConfigurationError, match="not new"):
        insert_once(db, order)


@pytest.mark.parametrize(
    ("database", "turn", "begin", "end"),
    [
        ("sqlite", [], ["BEGIN"], []),
        ("postgresql", [], [], []),
        ("mysql", ["SELECT"], [], ["DO"]),
        ("mariadb", ["SELECT"], [], ["DO"]),
    ],
    indirect=["database"],
)
def test_what_is_sent(db: Session, statements: Statements, turn: list[str], begin: list[str], end: list[str]) -> None:
    """The first call sends an INSERT in a savepoint; a repetition also sends a SELECT.

    On MySQL and MariaDB, both also take a turn, which that SELECT ends.
    """
    db.close()
    db.connection()
    sent: list[list[str]] = []
    for _ in range(2):
        statements.clear()
        insert_once(db, Line(public_id=A))
        sent.append([statement.split()[0] for statement in statements])
        db.expunge_all()

    assert sent[0] == [*begin, *turn, "SAVEPOINT", "INSERT", "RELEASE", *end]
    assert sent[1] == [*turn, "SAVEPOINT", "INSERT", "ROLLBACK", "SELECT"]


# --- models of all kinds


@pytest.mark.backend(name=FOR_SERVERS)
@pytest.mark.parametrize("name", SHAPES)
# if the id is the key, SQLAlchemy warns of two objects of one row before the database refuses the second one
@pytest.mark.filterwarnings("ignore:New instance .* conflicts with persistent instance:sqlalchemy.exc.SAWarning")
def test_shapes(name: str, create: Callable[[MetaData], None], session: Session) -> None:
    """Models with any kind of mapping can be inserted once, by each of their public ids."""
    model, _ = SHAPES[name]()
    create(inspect(model).local_table.metadata)
    for attribute, column in id_attributes(inspect(model)).items():
        first, second, other = model(name="a"), model(name="a"), model(name="b")
        public_id = public_id_type(column).next_id()
        for each in (first, second, other):
            setattr(each, attribute, public_id)
        assert insert_once(session, first, attribute=attribute) == (first, True)
        session.commit()
        assert insert_once(session, second, attribute=attribute) == (first, False)
        assert differing(session, other, attribute=attribute) == ("name",)


@pytest.mark.parametrize("attribute", ["public_id", "code"])
def test_another_class_of_the_same_table(create: Callable[[MetaData], None], session: Session, attribute: str) -> None:
    """A row of another class in the same hierarchy is a conflict, whichever public id finds it."""

    class Own(DeclarativeBase): ...

    class Box(PublicIdMixin, Own):
        __tablename__ = "box"
        code: Mapped[str] = public_id_column(NanoId())
        kind: Mapped[str] = mapped_column(String(10))
        __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_on": "kind", "polymorphic_identity": "box"}

    class Crate(Box):
        lid: Mapped[str | None] = mapped_column(String(10))
        __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "crate"}

    create(Own.metadata)
    first = [Crate(**{attribute: A}), Box(**{attribute: B})]
    assert [insert_once(session, each, attribute=attribute) for each in first] == [(each, True) for each in first]
    others = [Box(**{attribute: A}), Crate(**{attribute: B}, lid="flat")]
    assert [differing(session, other, attribute=attribute) for other in others] == [("kind",)] * 2
    session.commit()


# --- what is compared


def test_compare(db: Session) -> None:
    """``compare`` names what a repetition has to repeat if it sets it: a column, or a relationship for its foreign
    key.
    """
    ada, eve = Customer(name="Ada"), Customer(name="Eve")
    db.add_all([ada, eve])
    db.flush()
    order, _ = insert_once(db, Order(public_id=A, number="1", customer=ada))

    assert insert_once(db, Order(public_id=A, number="2", customer=eve), compare=()) == (order, False)
    assert insert_once(db, Order(public_id=A, number="1", customer=eve), compare=["number"]) == (order, False)
    assert insert_once(db, Order(public_id=A, number="2", customer=ada), compare={"customer"}) == (order, False)
    assert insert_once(db, Order(public_id=A), compare=["number", "customer", "state"]) == (order, False)
    other = {"public_id": A, "number": "2", "customer": eve}
    assert differing(db, Order(**other)) == ("number", "customer_id")
    assert differing(db, Order(**other), compare=("customer",)) == ("customer_id",)


@pytest.mark.parametrize("compare", ["number", ["numbr"], [None]])
def test_compare_of_nothing(db: Session, engine: Engine, compare: Any) -> None:
    """``compare`` rejects an unknown name or a single string before anything is written."""
    with pytest.raises(ConfigurationError, match="compare"):
        insert_once(db, Order(public_id=A, number="1"), compare=compare)
    assert db.scalar(select(func.count()).select_from(Order)) == 0


# --- asynchronously


def test_async(async_engine: AsyncEngine) -> None:
    """The asynchronous version inserts once, finds the row again, and raises on conflicts; the session stays usable."""

    async def story(session: AsyncSession) -> None:
        ada, created = await async_once(session, Customer(public_id=ADA, name="Ada"))
        assert (ada.name, created) == ("Ada", True)
        await session.commit()
        assert await async_once(session, Customer(public_id=ADA, name="Ada")) == (ada, False)
        with pytest.raises(IdempotencyConflict) as caught:
            await async_once(session, Customer(public_id=ADA, name="Grace"))
        assert caught.value.differing == ("name",)
        with pytest.raises(IdempotencyConflict, match="does not meet the condition"):
            await async_once(session, Customer(public_id=ADA, name="Ada"), where=Customer.name == "Grace")
        line, created = await async_once(session, Line(public_id=A))
        assert (line.public_id, created) == (A, True)
        await session.rollback()
        assert await session.scalar(select(func.count()).select_from(Line)) == 0
        await session.rollback()
        await session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
            await async_once(session, Customer(public_id=ADA, name="Ada"))

    tell(async_engine, Base.metadata, story)
