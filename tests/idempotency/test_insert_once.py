"""``insert_once``: an insert that can be repeated."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from sqlalchemy import (
    CHAR,
    JSON,
    DateTime,
    Engine,
    Enum,
    Float,
    ForeignKey,
    MetaData,
    Numeric,
    String,
    Time,
    TypeDecorator,
    Uuid,
    event,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    Session,
    mapped_column,
    relationship,
    scoped_session,
    sessionmaker,
)
from support.marks import on
from support.shapes import FOR_SERVERS, SHAPES

from sqlalchemy_public_id import (
    ConfigurationError,
    IdempotencyConflict,
    InvalidPublicId,
    NanoId,
    PublicIdColumnMixin,
    PublicIdMixin,
    TypedId,
    bigint_key,
    idempotency,
    lookup,
    public_id_column,
    public_ref,
    testing,
)
from sqlalchemy_public_id.asyncio.idempotency import insert_once as async_once
from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.formats import Uuid7
from sqlalchemy_public_id.orm.inspection import id_attributes

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class BuyerId(TypedId, prefix="iobuyer"): ...


class Buyer(PublicIdMixin[BuyerId], Base):
    __tablename__ = "buyer"
    name: Mapped[str | None] = mapped_column(String(50))
    orders: Mapped[list[Order]] = relationship(back_populates="buyer")


class Lower(TypeDecorator[str]):
    """A type of the program, which changes what it is given."""

    impl = String(50)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return value and value.lower()


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Order(PublicIdMixin, Base):
    __tablename__ = "order"
    code: Mapped[str] = public_id_column(Uuid7(prefix="iocode"))
    number: Mapped[str | None] = mapped_column(String(50), unique=True)
    buyer_id: Mapped[int | None] = mapped_column(ForeignKey(Buyer.id))
    buyer: Mapped[Buyer | None] = relationship(back_populates="orders")
    lines: Mapped[list[Line]] = relationship(back_populates="order")
    total: Mapped[Decimal | None] = mapped_column(Numeric(10, 2))
    weight: Mapped[float | None] = mapped_column(Float)
    placed: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    at: Mapped[time | None] = mapped_column(Time)
    colour: Mapped[Colour | None] = mapped_column(Enum(Colour))
    data: Mapped[Any | None] = mapped_column(JSON)
    email: Mapped[str | None] = mapped_column(Lower)
    currency: Mapped[str | None] = mapped_column(CHAR(5))
    ticket: Mapped[Any | None] = mapped_column(Uuid)
    state: Mapped[str | None] = mapped_column(String(50), default="new")
    served: Mapped[str | None] = mapped_column(String(50), server_default="served")
    note: Mapped[str | None] = mapped_column(String(50), deferred=True)


class Gift(PublicIdMixin, Base):
    """Knows its buyer by public id as well."""

    __tablename__ = "gift"
    buyer_id: Mapped[int] = mapped_column(ForeignKey(Buyer.id))
    buyer: Mapped[Buyer] = relationship()
    buyer_public_id: Mapped[BuyerId] = public_ref("buyer")


class Line(PublicIdMixin, Base):
    __tablename__ = "line"
    order_id: Mapped[int | None] = mapped_column(ForeignKey(Order.id))
    order: Mapped[Order | None] = relationship(back_populates="lines")


class Parcel(PublicIdColumnMixin, Base):
    """Has a key of its own, and a version."""

    __tablename__ = "parcel"
    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column()
    name: Mapped[str | None] = mapped_column(String(50))

    __mapper_args__: ClassVar[dict[str, Any]] = {"version_id_col": version}


class Deed(MappedAsDataclass, Base, kw_only=True):
    """Has a constructor that writes what it is given, or a default."""

    __tablename__ = "deed"
    id: Mapped[int] = bigint_key(init=False)
    public_id: Mapped[str | None] = public_id_column()
    name: Mapped[str | None] = mapped_column(String(50), default=None)


class Odd(PublicIdColumnMixin, Base):
    """Has names that look like placeholders, and need quoting everywhere."""

    __tablename__ = "odd's %s (100%) `t` :x"
    id: Mapped[int] = mapped_column("key (:id)", primary_key=True)
    percent: Mapped[str | None] = mapped_column("%s", String(50))
    named: Mapped[str | None] = mapped_column("%(name)", String(50))
    colon: Mapped[str | None] = mapped_column(":x(y)", String(50))
    quotes: Mapped[str | None] = mapped_column("a\"b`c'd", String(50))
    brackets: Mapped[Decimal | None] = mapped_column(")[%%](", Numeric(10, 2))
    placed: Mapped[datetime | None] = mapped_column("{placed}", DateTime)


A, B = "izkpm55j334u", "8w0tnq3c5yzd"
ADA = "iobuyer_0000000000ad"
NOON = datetime(2024, 5, 17, 12, 30, 15, 678901)


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    """A session, and a buyer."""
    create(Base.metadata)
    session.add(Buyer(public_id=ADA, name="Ada"))
    session.commit()
    return session


def count(db: Session, model: type[Any] = Order) -> int:
    return db.scalar(select(func.count()).select_from(model)) or 0


# --- once, and again


def test_first_time(db: Session) -> None:
    """The object itself comes back, stored, with its key and its defaults."""
    order = Order(public_id=A, total=Decimal("9.99"))
    stored, created = idempotency.insert_once(db, order)

    assert stored is order
    assert created is True
    assert (order.id, order.state, order.served) == (db.scalar(select(Order.id)), "new", "served")
    assert order in db


def test_again(db: Session, engine: Engine) -> None:
    """A repetition finds the row, in the same transaction, in the next one, and in another session."""
    order, _ = idempotency.insert_once(db, Order(public_id=A, number="1"))
    assert idempotency.insert_once(db, Order(public_id=A, number="1")) == (order, False)
    db.commit()
    assert idempotency.insert_once(db, Order(public_id=A, number="1")) == (order, False)
    db.commit()
    with Session(engine) as other:
        found, created = idempotency.insert_once(other, Order(public_id=A, number="1"))
        assert (found.id, found.number, created) == (order.id, "1", False)

    assert count(db) == 1


def test_other_contents(db: Session) -> None:
    """The same id with other contents is an error that names the attributes, and the transaction goes on."""
    idempotency.insert_once(db, Order(public_id=A, number="1", total=Decimal(5), colour=Colour.RED, note="same"))
    with pytest.raises(IdempotencyConflict) as caught:
        idempotency.insert_once(db, Order(public_id=A, number="1", total=Decimal(6), colour=Colour.BLUE, note="same"))

    assert (caught.value.public_id, caught.value.model) == (A, "Order")
    assert caught.value.differing == ("total", "colour")
    db.commit()
    assert db.scalars(select(Order.total)).all() == [Decimal(5)]


def test_only_what_is_set_is_compared(db: Session) -> None:
    """What a repetition leaves open may be anything, as may what the defaults of the columns have made of it."""
    idempotency.insert_once(db, Order(public_id=A, number="1", state="paid", served="cold", note="deferred"))

    assert idempotency.insert_once(db, Order(public_id=A, state=None, served=None))[1] is False
    assert idempotency.insert_once(db, Order(public_id=A, number="1", note="deferred"))[1] is False
    for other in ({"number": None}, {"note": None}, {"note": "other"}, {"state": "new"}):
        with pytest.raises(IdempotencyConflict) as caught:
            idempotency.insert_once(db, Order(public_id=A, **other))
        assert caught.value.differing == tuple(other)


def test_row_that_has_changed(db: Session, engine: Engine) -> None:
    """The contents of the row as it is now count, also where the session has an older view of it."""
    order, _ = idempotency.insert_once(db, Order(public_id=A, state="new"))
    db.commit()
    with Session(engine) as other, other.begin():
        lookup.get_one(other, Order, A).state = "paid"

    with pytest.raises(IdempotencyConflict):
        idempotency.insert_once(db, Order(public_id=A, state="new"))
    assert order.state == "paid"


SAME: dict[str, tuple[Any, Any]] = {
    "decimal of more places": ("total", Decimal("9.994999")),
    "decimal rounded up": ("total", Decimal("0.005")),
    "whole number": ("total", 7),
    "float": ("weight", 1 / 3),
    "float of many digits": ("weight", 1234567.8912),
    "decimal for a float": ("weight", Decimal("0.1")),
    "time zone": ("placed", NOON.replace(tzinfo=timezone.utc)),
    "no time zone": ("placed", NOON),
    "time of day": ("at", NOON.time()),
    "enum": ("colour", Colour.RED),
    "name of an enum": ("colour", "BLUE"),
    "json": ("data", {"b": [1, 2.5, None], "a": {"ü": True}}),
    "json with tuples and numbers as keys": ("data", {1: (1, 2)}),
    "json null": ("data", JSON.NULL),
    "list": ("data", []),
    "type of the program": ("email", "Ada@Example.ORG"),
    "fixed length": ("currency", "EUR"),
    "text with blanks and more": ("note", "  ü 𝄞 ' \\ % :x "),
    "nothing": ("number", None),
    "expression": ("note", func.lower("ADA")),
}


def test_values_that_a_column_changes(db: Session, engine: Engine) -> None:
    """A value is the same as what its column keeps of it."""
    public_ids = dict(zip(SAME, NanoId().generate_many(len(SAME)), strict=True))
    for name, (attribute, value) in SAME.items():
        idempotency.insert_once(db, Order(public_id=public_ids[name], **{attribute: value}))
    db.commit()
    for name, (attribute, value) in SAME.items():
        with Session(engine) as other:
            again = Order(public_id=public_ids[name], **{attribute: value})
            assert idempotency.insert_once(other, again)[1] is False, name


DIFFERENT: list[tuple[str, Any, Any]] = [
    ("total", Decimal("9.99"), Decimal("9.98")),
    ("weight", 1.5, 1.50002),
    ("weight", 1.5, None),
    ("placed", NOON, NOON + timedelta(seconds=2)),
    ("placed", NOON.replace(tzinfo=timezone.utc), (NOON + timedelta(hours=1)).replace(tzinfo=timezone.utc)),
    ("at", NOON.time(), time(12, 31)),
    ("colour", Colour.RED, Colour.BLUE),
    ("data", {"a": 1}, {"a": 2}),
    ("data", [], {}),
    ("email", "a@example.org", "b@example.org"),
    ("currency", "EUR", "USD"),
    ("note", "a", "A"),
    ("note", "", None),
    ("note", "1", "1 "),
]


def test_values_that_differ(db: Session) -> None:
    """Values that the column keeps apart differ, in either direction."""
    for attribute, value, other in DIFFERENT:
        for first, second in ((value, other), (other, value)):
            public_id = NanoId().generate()
            idempotency.insert_once(db, Order(public_id=public_id, **{attribute: first}))
            with pytest.raises(IdempotencyConflict) as caught:
                idempotency.insert_once(db, Order(public_id=public_id, **{attribute: second}))
            assert caught.value.differing == (attribute,)


def test_scoped_session(db: Session, engine: Engine) -> None:
    """A scoped session does as well; a connection does not."""
    scoped = scoped_session(sessionmaker(engine))
    order, created = idempotency.insert_once(scoped, Order(public_id=A))  # type: ignore[arg-type]
    assert created
    assert order in scoped
    scoped.remove()
    with engine.connect() as connection, pytest.raises(TypeError, match="expected a Session"):
        idempotency.insert_once(connection, Order(public_id=A))  # type: ignore[arg-type]


# --- ids


def test_id_that_was_read_before(db: Session) -> None:
    """An id that the library has made may be kept by whoever read it; it is not exchanged for another one."""
    order = Order(number="1")
    public_id = order.public_id
    idempotency.insert_once(db, Order(public_id=public_id, number="1"))

    found, created = idempotency.insert_once(db, order)
    assert (found.public_id, created) == (public_id, False)
    assert order.public_id == public_id
    assert count(db) == 1


def test_object_without_an_id(db: Session, statements: list[str]) -> None:
    """Without an id that somebody knows, an insert could not be repeated."""
    statements.clear()
    with pytest.raises(ConfigurationError, match="no public_id"):
        idempotency.insert_once(db, Order(number="1"))
    with pytest.raises(InvalidPublicId):
        Order(public_id="nonsense")

    assert statements == []


@pytest.mark.parametrize("is_read", [False, True], ids=["never read", "read before"])
def test_none_is_no_id(db: Session, statements: list[str], is_read: bool) -> None:
    """An explicit ``None`` is refused before anything is sent, as a missing id is, also in place of an id."""
    order = Order(number="1") if is_read else Order(number="1", public_id=None)
    before = order.public_id if is_read else None
    order.public_id = None  # type: ignore[assignment]
    statements.clear()

    for _ in range(2):
        with pytest.raises(ConfigurationError, match="no public_id"):
            idempotency.insert_once(db, order)

    assert statements == []
    order.public_id = before or A
    assert idempotency.insert_once(db, order) == (order, True)


def test_none_for_another_id(db: Session) -> None:
    """``None`` for a public id that is not the repeated one is left to the library, and never a conflict."""
    order, _ = idempotency.insert_once(db, Order(public_id=A, code=None))

    assert idempotency.insert_once(db, Order(public_id=A, code=None)) == (order, False)
    with pytest.raises(ConfigurationError, match="no code"):
        idempotency.insert_once(db, Order(public_id=A, code=None), attribute="code")


def test_dataclass(db: Session) -> None:
    """A dataclass whose constructor is called with ``None`` as its id is refused; with an id it is inserted once."""
    with pytest.raises(ConfigurationError, match="no public_id"):
        idempotency.insert_once(db, Deed(public_id=None, name="a"))
    deed, created = idempotency.insert_once(db, Deed(public_id=A))

    assert created
    assert idempotency.insert_once(db, Deed(public_id=A)) == (deed, False)
    assert count(db, Deed) == 1


def test_none_where_a_value_is_made(db: Session) -> None:
    """A key and a version that are ``None`` are made by the INSERT, and are no contents that could differ."""
    payload: dict[str, Any] = {"public_id": A, "id": None, "version": None, "name": None}
    parcel, created = idempotency.insert_once(db, Parcel(**payload))
    db.commit()

    assert created
    assert idempotency.insert_once(db, Parcel(**payload)) == (parcel, False)
    with pytest.raises(IdempotencyConflict) as caught:
        idempotency.insert_once(db, Parcel(public_id=A, id=parcel.id + 1))
    assert caught.value.differing == ("id",)


def test_odd_names(db: Session) -> None:
    """Names of tables and columns may look like placeholders, and values may be ones that the database converts."""
    payload: dict[str, Any] = {
        "public_id": A,
        "percent": "%s",
        "named": "%(name)s",
        "colon": ":x",
        "quotes": None,
        "brackets": "9.99",
        "placed": NOON,
    }
    odd, created = idempotency.insert_once(db, Odd(**payload))
    db.commit()

    assert created
    assert idempotency.insert_once(db, Odd(**payload)) == (odd, False)
    for name in ("percent", "colon", "quotes"):
        with pytest.raises(IdempotencyConflict) as caught:
            idempotency.insert_once(db, Odd(**payload | {name: "other"}))
        assert caught.value.differing == (name,)


def test_attribute(db: Session) -> None:
    """Any public id of a model may be the one that is repeated; others that are not set do not differ."""
    code = Uuid7(prefix="iocode").generate()
    order, _ = idempotency.insert_once(db, Order(code=code, number="1"), attribute="code")

    assert idempotency.insert_once(db, Order(code=code, number="1"), attribute="code") == (order, False)
    with pytest.raises(IdempotencyConflict) as caught:
        idempotency.insert_once(db, Order(code=code, public_id=A), attribute="code")
    assert caught.value.differing == ("public_id",)
    with pytest.raises(ConfigurationError, match="name one of"):
        idempotency.insert_once(db, Order(code=code), attribute="number")


def test_collision_of_another_id(db: Session) -> None:
    """Where another id of the row collides that the library makes, it is made again, as everywhere."""
    order, _ = idempotency.insert_once(db, Order(public_id=A))
    with testing.collisions(Order, order.code, attribute="code"):
        other, created = idempotency.insert_once(db, Order(public_id=B))

    assert created
    assert other.code != order.code


# --- what is refused


@pytest.mark.parametrize("value", [None, 1, "order", {}, Order, Base.metadata])
def test_what_is_no_object(value: Any) -> None:
    """Only mapped objects can be inserted."""
    with Session() as session, pytest.raises(TypeError, match="mapped object"):
        idempotency.insert_once(session, value)


def test_object_that_is_not_new(db: Session) -> None:
    """An object that was added already would be written by any flush."""
    order = Order(public_id=A)
    db.add(order)
    with pytest.raises(ConfigurationError, match="not new"):
        idempotency.insert_once(db, order)
    db.commit()
    with pytest.raises(ConfigurationError, match="not new"):
        idempotency.insert_once(db, order)


def test_other_constraints(db: Session) -> None:
    """A duplicate of another column is the error it always was, and the transaction goes on."""
    idempotency.insert_once(db, Order(public_id=A, number="1"))
    order = Order(public_id=B, number="1")
    with pytest.raises(IntegrityError, match=r"number"):
        idempotency.insert_once(db, order)
    order.number = "2"

    assert idempotency.insert_once(db, order) == (order, True)
    db.commit()
    assert count(db) == 2


def test_other_constraints_first(db: Session) -> None:
    """The same in a transaction of its own, where a collision would be tried again."""
    idempotency.insert_once(db, Order(public_id=A, number="1"))
    db.commit()
    with pytest.raises(IntegrityError, match=r"number"):
        idempotency.insert_once(db, Order(public_id=B, number="1"))
    assert db.in_transaction()


# --- the transaction of the caller


def test_rest_of_the_transaction(db: Session) -> None:
    """What the session has done before, and what is pending in it, is written and stays so."""
    idempotency.insert_once(db, Order(public_id=A))
    db.commit()
    ada = lookup.get_one(db, Buyer, ADA)
    db.execute(text("UPDATE buyer SET name = 'before'"))
    pending = Buyer(name="pending")
    db.add(pending)
    ada.orders  # noqa: B018  loaded
    ada.name = "Countess"
    assert idempotency.insert_once(db, Order(public_id=A))[1] is False
    with pytest.raises(IdempotencyConflict):
        idempotency.insert_once(db, Order(public_id=A, number="2"))
    db.commit()

    assert db.scalars(select(Buyer.name).order_by(Buyer.id)).all() == ["Countess", "pending"]


def test_rollback(db: Session) -> None:
    """The row belongs to the caller's transaction, and goes with it."""
    idempotency.insert_once(db, Order(public_id=A))
    db.rollback()
    assert count(db) == 0
    db.rollback()
    with db.begin():
        savepoint = db.begin_nested()
        idempotency.insert_once(db, Order(public_id=A))
        savepoint.rollback()
        _, created = idempotency.insert_once(db, Order(public_id=A))
        assert created

    assert count(db) == 1


def test_object_can_be_sent_again_after_a_rollback(db: Session) -> None:
    """The same object is good for another try."""
    order = Order(public_id=A, lines=[Line()])
    idempotency.insert_once(db, order)
    db.rollback()

    assert idempotency.insert_once(db, order) == (order, True)
    assert count(db, Line) == 1


def refuses_newer_rows(session: Session) -> bool:
    """PostgreSQL reads nothing behind its snapshot; nor does MariaDB since 11.6, by a setting of the server."""
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        return True
    setting = connection.exec_driver_sql("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'").one_or_none()
    return setting is not None and setting[1] == "ON"


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@on("postgresql", "mysql", "mariadb")
def test_snapshots(db: Session, database: str, engine: Engine, level: str) -> None:
    """A row that was committed after the snapshot is found where the transaction can begin anew, or read past it."""
    with Session(engine.execution_options(isolation_level=level)) as early:
        early.scalars(select(Buyer)).all()
        idempotency.insert_once(db, Order(public_id=A))
        db.commit()
        if refuses_newer_rows(early):
            with pytest.raises(IntegrityError if database == "postgresql" else OperationalError):
                idempotency.insert_once(early, Order(public_id=A))
            assert early.scalar(select(func.count()).select_from(Buyer)) == 1
            early.rollback()
        assert idempotency.insert_once(early, Order(public_id=A))[1] is False


@pytest.mark.parametrize("said", ["to the engine", "to a copy of it", "to the connection"])
def test_autocommit(db: Session, engine: Engine, new_engine: Callable[..., Engine], said: str) -> None:
    """Where each statement commits by itself it is refused before anything is sent, however that was chosen."""
    auto: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
    used = new_engine(engine.name, engine.url, **auto) if said == "to the engine" else engine
    used.connect().close()  # which asks for settings the first time
    sent: list[str] = []
    event.listen(used, "before_cursor_execute", lambda *call: sent.append(call[2]))
    with Session(used.execution_options(**auto) if said == "to a copy of it" else used) as session:
        if said == "to the connection":
            session.connection(execution_options=auto)
        session.add(Buyer(name="pending"))
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
                idempotency.insert_once(session, Order(public_id=A))

    assert sent == []
    assert (count(db), count(db, Buyer)) == (0, 1)


@on("sqlite")
def test_a_program_that_says_begin_itself(database: str, db: Session, engine: Engine) -> None:
    """The recipe of SQLAlchemy for SQLite, BEGIN by an event, is no AUTOCOMMIT."""
    db.close()
    event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    engine.dispose()

    assert idempotency.insert_once(db, Order(public_id=A))[1] is True
    db.rollback()
    assert count(db) == 0


def test_costs(db: Session, engine: Engine) -> None:
    """The first time takes an INSERT in a savepoint, and a turn on MySQL and MariaDB; a repetition one SELECT more.

    That SELECT ends the turn, too.
    """
    sent: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *call: sent.append(call[2].split()[0]))
    line = Line(public_id=A)
    idempotency.insert_once(db, line)
    first = list(sent)
    sent.clear()
    idempotency.insert_once(db, Line(public_id=A))

    assert first == FIRST[engine.name]
    assert sent == AGAIN[engine.name]


CREATED, FOUND = ["SAVEPOINT", "INSERT", "RELEASE"], ["SAVEPOINT", "INSERT", "ROLLBACK"]
FIRST = {
    "sqlite": ["BEGIN", *CREATED],
    "postgresql": CREATED,
    "mysql": ["SELECT", *CREATED, "DO"],
    "mariadb": ["SELECT", *CREATED, "DO"],
}
AGAIN = {
    "sqlite": [*FOUND, "SELECT"],
    "postgresql": [*FOUND, "SELECT"],
    "mysql": ["SELECT", *FOUND, "SELECT"],
    "mariadb": ["SELECT", *FOUND, "SELECT"],
}


# --- relationships and models of all kinds


def test_reference_that_differs(db: Session) -> None:
    """A foreign key that differs is named as its reference, where the model has one: it is what a client has sent."""
    first, second = Buyer(name="Ada"), Buyer(name="Grace")
    db.add_all([first, second])
    db.flush()
    idempotency.insert_once(db, Gift(public_id=A, buyer_public_id=first.public_id))

    with pytest.raises(IdempotencyConflict) as caught:
        idempotency.insert_once(db, Gift(public_id=A, buyer_public_id=second.public_id))

    assert caught.value.differing == ("buyer_public_id",)


def test_parent(db: Session) -> None:
    """A relationship to one object counts as its foreign key, whether that or the object is given."""
    ada, grace = lookup.get_one(db, Buyer, ADA), Buyer(name="Grace")
    db.add(grace)
    order, created = idempotency.insert_once(db, Order(public_id=A, buyer=ada))
    assert created
    assert order.buyer_id == ada.id
    db.commit()

    for same in ({"buyer": ada}, {"buyer_id": ada.id}, {}):
        assert idempotency.insert_once(db, Order(public_id=A, **same)) == (order, False)
    for other in ({"buyer": grace}, {"buyer_id": grace.id}, {"buyer_id": None}):
        with pytest.raises(IdempotencyConflict) as caught:
            idempotency.insert_once(db, Order(public_id=A, **other))
        assert caught.value.differing == ("buyer_id",)
    assert ada.orders == [order]
    assert grace.orders == []


def test_pending_parent(db: Session) -> None:
    """A parent that is pending is written first, and stays when the row is there already."""
    idempotency.insert_once(db, Order(public_id=A))
    grace = Buyer(name="Grace")
    db.add(grace)
    with pytest.raises(IdempotencyConflict):
        idempotency.insert_once(db, Order(public_id=A, buyer=grace))
    db.commit()

    assert count(db, Buyer) == 2
    assert grace.orders == []


def test_new_parent(db: Session) -> None:
    """A parent that is new would be inserted anew with each repetition."""
    with pytest.raises(ConfigurationError, match=r"Order\.buyer is new"):
        idempotency.insert_once(db, Order(public_id=A, buyer=Buyer(name="Grace")))


def test_children(db: Session) -> None:
    """What the object brings along is inserted with it, once."""
    order, _ = idempotency.insert_once(db, Order(public_id=A, lines=[Line(), Line()]))
    again, created = idempotency.insert_once(db, Order(public_id=A, lines=[Line(), Line()]))
    db.commit()

    assert (again, created) == (order, False)
    assert len(order.lines) == count(db, Line) == 2


@pytest.mark.backend(name=FOR_SERVERS)
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str, create: Callable[[MetaData], None], session: Session) -> None:
    """Models that are mapped in any way can be inserted once, by each of their public ids."""
    model, _ = SHAPES[name]()
    create(inspect(model).local_table.metadata)
    for attribute, column in id_attributes(inspect(model)).items():
        first, second, other = model(name="a"), model(name="a"), model(name="b")
        public_id = public_id_type(column).next_id()
        for each in (first, second, other):
            setattr(each, attribute, public_id)
        assert idempotency.insert_once(session, first, attribute=attribute) == (first, True)
        session.commit()
        assert idempotency.insert_once(session, second, attribute=attribute) == (first, False)
        with pytest.raises(IdempotencyConflict) as caught:
            idempotency.insert_once(session, other, attribute=attribute)
        assert caught.value.differing == ("name",)


def test_another_class_of_the_same_table(create: Callable[[MetaData], None], session: Session) -> None:
    """A row of another class in the same hierarchy is another row."""
    crate, _ = SHAPES["joined tables"]()
    box = crate.__mro__[1]
    create(crate.metadata)
    idempotency.insert_once(session, crate(public_id=A, name="a"))
    idempotency.insert_once(session, box(public_id=B, name="b"))
    for other in (box(public_id=A, name="a"), crate(public_id=B, name="b")):
        with pytest.raises(IdempotencyConflict) as caught:
            idempotency.insert_once(session, other)
        assert caught.value.differing == ("kind",)
    session.commit()


# --- asynchronously


def test_async_autocommit(async_engine: AsyncEngine) -> None:
    """The awaited twin refuses AUTOCOMMIT with every driver."""

    async def story() -> None:
        try:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
            async with AsyncSession(async_engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
                with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
                    await async_once(session, Buyer(public_id=ADA, name="Ada"))
                assert await session.scalar(select(func.count()).select_from(Buyer)) == 0
        finally:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)
            await async_engine.dispose()

    asyncio.run(story())


def test_async(async_engine: AsyncEngine) -> None:
    """The awaited twin inserts once, finds again, and tells a conflict, with every driver; the session goes on."""

    async def story() -> None:
        try:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
            async with AsyncSession(async_engine, expire_on_commit=False) as session:
                ada, created = await async_once(session, Buyer(public_id=ADA, name="Ada"))
                assert (ada.name, created) == ("Ada", True)
                await session.commit()
                assert await async_once(session, Buyer(public_id=ADA, name="Ada")) == (ada, False)
                with pytest.raises(IdempotencyConflict) as caught:
                    await async_once(session, Buyer(public_id=ADA, name="Grace"))
                assert caught.value.differing == ("name",)
                with pytest.raises(ConfigurationError, match="no public_id"):
                    await async_once(session, Buyer(public_id=None, name="Ada"))
                line, created = await async_once(session, Line(public_id=A))
                assert (line.public_id, created) == (A, True)
                await session.rollback()
                assert await session.scalar(select(func.count()).select_from(Line)) == 0
        finally:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)
            await async_engine.dispose()

    asyncio.run(story())


@on("sqlite")
def test_object_that_is_older_than_its_row(db: Session, engine: Engine) -> None:
    """A repetition is compared with the row as it is now, though the session has an older object of it."""
    with Session(engine, expire_on_commit=False) as session:
        order, _ = idempotency.insert_once(session, Order(public_id=A, number="1"))
        session.commit()
        with Session(engine) as other, other.begin():
            other.get_one(Order, order.id).number = "2"

        with pytest.raises(IdempotencyConflict) as caught:
            idempotency.insert_once(session, Order(public_id=A, number="1"))
    assert caught.value.differing == ("number",)
