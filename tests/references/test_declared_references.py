"""Declarations of references: their attributes, relationships that are added later, and invalid declarations."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Column, ForeignKey, ForeignKeyConstraint, Integer, MetaData, Table, inspect, select
from sqlalchemy.exc import ArgumentError, InvalidRequestError
from sqlalchemy.ext.declarative import AbstractConcreteBase
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    backref,
    configure_mappers,
    mapped_column,
    registry,
    relationship,
)

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdColumnMixin,
    PublicIdMixin,
    PublicIdMixinDataclass,
    PublicIdType,
    TypedId,
    public_id_column,
    references,
)
from sqlalchemy_public_id.orm.inspection import mapped_classes
from sqlalchemy_public_id.references import public_ref


@pytest.fixture(autouse=True)
def no_broken_mappers() -> Iterator[None]:
    """Free the models that a test could not map; otherwise, later tests could not call ``configure_mappers()``."""
    gc.freeze()  # the collection below skips objects that are older than the test
    yield
    while gc.collect():
        pass


class Base(DeclarativeBase):
    metadata = MetaData(schema="shop")


class BuyerId(TypedId, prefix="rsbuy"): ...


class Buyer(PublicIdMixin[BuyerId], Base):
    __tablename__ = "buyer"


class Bill(PublicIdMixin, Base):
    __tablename__ = "bill"
    buyer_id: Mapped[int] = mapped_column(ForeignKey(Buyer.id))
    buyer: Mapped[Buyer] = relationship()
    buyer_public_id: Mapped[BuyerId] = public_ref("buyer")
    origin_id: Mapped[int | None] = mapped_column(ForeignKey("shop.bill.id"))
    origin: Mapped[Bill | None] = relationship(remote_side="Bill.id")
    origin_public_id: Mapped[str | None] = public_ref("origin")


def test_public_refs() -> None:
    """``public_refs()`` describes the references of a model."""
    buyer, origin = references.public_refs(Bill).values()

    assert (buyer.attribute, buyer.relationship, buyer.key) == ("buyer_public_id", "buyer", "buyer_id")
    assert (buyer.target, buyer.target_key, buyer.target_id) == (Buyer, "id", "public_id")
    assert (buyer.id_format, buyer.typed, buyer.nullable) == (BuyerId.id_format, BuyerId, False)
    assert (origin.target, origin.id_format, origin.typed, origin.nullable) == (Bill, NanoId(), None, True)
    assert references.public_refs(Buyer) == {}
    for wrong in (1, "Bill", int, Bill(), None):
        with pytest.raises(ConfigurationError, match="not a mapped class"):
            references.public_refs(wrong)


def test_annotation_of_the_attribute() -> None:
    """The function that reads a reference is annotated with a type: packages that make schemas read it."""
    read: Any = inspect(Bill).all_orm_descriptors["buyer_public_id"].fget
    assert read.__annotations__["return"] == str | None


def test_subclass_that_refers_to_itself() -> None:
    """A joined subclass may refer to itself, although SQLAlchemy repeats the condition of the relationship."""

    class Own(DeclarativeBase): ...

    class Person(PublicIdMixin, Own):
        __tablename__ = "person"
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "person"}  # noqa: RUF012  # SQLAlchemy reads it
        kind: Mapped[str]

    class Employee(Person):
        __tablename__ = "employee"
        id: Mapped[int] = mapped_column(ForeignKey(Person.id), primary_key=True)
        __mapper_args__ = {"polymorphic_identity": "employee"}  # noqa: RUF012  # SQLAlchemy reads it
        boss_id: Mapped[int | None] = mapped_column(ForeignKey("employee.id"))
        boss: Mapped[Employee | None] = relationship(remote_side="Employee.id", foreign_keys=boss_id)
        boss_public_id: Mapped[str | None] = public_ref("boss")

    assert references.public_refs(Employee)["boss_public_id"].target is Employee


def test_what_is_no_reference() -> None:
    """Other attributes, other values, and the reference of an unmapped mixin raise an error."""

    class Mixin:
        buyer_public_id: Mapped[str] = public_ref("buyer")

    for wrong in (Bill.buyer, Bill.buyer_id, "buyer_public_id", Bill, None):
        with pytest.raises(ConfigurationError, match=r"expected an attribute such as"):
            references.eager(wrong)
    for name in (None, 1, relationship(), Buyer):
        with pytest.raises(ConfigurationError, match="expected the name of the relationship"):
            public_ref(name)
    with pytest.raises(ConfigurationError, match="belongs to no mapped class"):
        select(Mixin.buyer_public_id)


def test_imperative_mapping() -> None:
    """A class that is mapped imperatively declares the reference in its body, and can be mapped again."""
    mapped = registry()
    make = NanoId().generate
    room = Table(
        "room",
        mapped.metadata,
        Column("id", Integer, primary_key=True),
        Column("public_id", PublicIdType(NanoId()), default=make, unique=True),
    )
    desk = Table(
        "desk", mapped.metadata, Column("id", Integer, primary_key=True), Column("room", ForeignKey("room.id"))
    )

    class Room: ...

    class Desk:
        room_public_id = public_ref("room")

    mapped.map_imperatively(Room, room)
    mapped.map_imperatively(Desk, desk, properties={"room_id": desk.c.room, "room": relationship(Room)})
    mapped.configure()

    assert references.public_refs(Desk)["room_public_id"].key == "room_id"
    assert "desk.room IN (SELECT" in str(select(desk.c.id).where(Desk.room_public_id == "x"))

    mapped.dispose()
    mapped.map_imperatively(Room, room)
    mapped.map_imperatively(Desk, desk, properties={"room_key": desk.c.room, "room": relationship(Room)})
    assert references.public_refs(Desk)["room_public_id"].key == "room_key"


def test_dataclass() -> None:
    """The reference of a dataclass can be passed to the constructor or omitted."""

    class DataBase(MappedAsDataclass, DeclarativeBase): ...

    class Room(PublicIdMixinDataclass, DataBase):
        __tablename__ = "room"

    class Desk(PublicIdMixinDataclass, DataBase):
        __tablename__ = "desk"
        number: Mapped[int]
        room_id: Mapped[int | None] = mapped_column(ForeignKey("room.id"), init=False)
        room_public_id: Mapped[str | None] = public_ref("room")
        room: Mapped[Room | None] = relationship(default=None)

    desks = Desk(1, room_public_id="0123456789ab"), Desk(1, room_public_id="0123456789ab", room=None)
    assert [desk.room_public_id for desk in desks] == ["0123456789ab"] * 2
    assert Desk(2).room_public_id is None
    assert "number=2" in repr(Desk(2))


# --- rejected declarations


def declared(column: Any, related: Callable[[], Any], ref: Any, other: Any = PublicIdMixin) -> None:
    """Configure two models, the second of which has the reference *ref*."""

    class Own(DeclarativeBase): ...

    Table("pairs", Own.metadata, *(Column(each, ForeignKey(f"{each}.id")) for each in ("target", "pointing")))

    class Target(other, Own):
        __tablename__ = "target"
        pointing_id = mapped_column(ForeignKey("pointing.id", use_alter=True))
        pointing = relationship("Pointing", foreign_keys=[pointing_id])

    class Pointing(PublicIdMixin, Own):
        __tablename__ = "pointing"
        target_id = column
        target = related()
        target_public_id = ref

    Own.registry.configure()


def key() -> Any:
    return mapped_column(ForeignKey("target.id"))


def many_to_one(**options: Any) -> Any:
    return relationship("Target", foreign_keys="Pointing.target_id", **options)


class OnlyKey:
    """Has no public id."""

    id: Mapped[int] = mapped_column(primary_key=True)


class TwoIds(OnlyKey):
    left: Mapped[str] = public_id_column()
    right: Mapped[str] = public_id_column()


@pytest.mark.parametrize(
    ("related", "ref", "other", "message"),
    [
        (many_to_one, "tagret", PublicIdMixin, "has no relationship 'tagret'; it has target"),
        (
            lambda: relationship("Target", foreign_keys="Target.pointing_id", viewonly=True),
            "target",
            PublicIdMixin,
            "onetomany",
        ),
        (lambda: many_to_one(viewonly=True), "target", PublicIdMixin, "viewonly"),
        (many_to_one, "target", OnlyKey, "Target has no public id"),
        (many_to_one, "target", TwoIds, "name one of left, right"),
        (
            lambda: many_to_one(primaryjoin="and_(foreign(Pointing.target_id) == Target.id, Target.id > 5)"),
            *("target", PublicIdMixin, "additional condition"),
        ),
        (lambda: relationship("Target", secondary="pairs"), "target", PublicIdMixin, "manytomany"),
    ],
    ids=["no relationship", "one-to-many", "viewonly", "no public id", "several", "condition", "many-to-many"],
)
def test_refused(related: Callable[[], Any], ref: str, other: Any, message: str) -> None:
    """Configuring the mappers raises an error for an invalid reference, which names the attribute."""
    with pytest.raises(ConfigurationError, match=rf"Pointing\.target_public_id: .*{message}"):
        declared(key(), related, public_ref(ref), other)


def test_composite_foreign_keys_are_refused() -> None:
    """A reference for a composite foreign key is rejected."""

    class Own(DeclarativeBase): ...

    class Seat(PublicIdColumnMixin, Own):
        __tablename__ = "seat"
        row: Mapped[int] = mapped_column(primary_key=True)
        number: Mapped[int] = mapped_column(primary_key=True)

    class Ticket(PublicIdMixin, Own):
        __tablename__ = "ticket"
        __table_args__ = (ForeignKeyConstraint(["row", "number"], ["seat.row", "seat.number"]),)
        row: Mapped[int]
        number: Mapped[int]
        seat: Mapped[Any] = relationship("Seat")
        seat_public_id: Mapped[str] = public_ref("seat")

    with pytest.raises(ConfigurationError, match=r"composite foreign key \((row, number|number, row)\)"):
        Own.registry.configure()


# --- relationships that come from the other side


@pytest.mark.parametrize("is_customer_first", [True, False])
@pytest.mark.parametrize("as_function", [True, False])
@pytest.mark.parametrize("is_one_refused", [False, True], ids=["", "beside a declaration that failed"])
def test_backref(is_customer_first: bool, as_function: bool, is_one_refused: bool) -> None:
    """The relationship may be a ``backref`` of the other model, whichever model is declared first.

    A class that could not be mapped, but is still alive, as in an interactive session, does not matter.
    """

    class Own(DeclarativeBase): ...

    if is_one_refused:
        with pytest.raises(ArgumentError) as failed:  # noqa: F841  its traceback keeps the class
            type("Failed", (Own,), {"__tablename__": "failed", "__table_args__": (1,)})

    def declare_shop() -> Any:
        class Shop(PublicIdMixin, Own):
            __tablename__ = "shop"
            sales = relationship("Sale", backref=backref("shop", lazy="select") if as_function else "shop")

        return Shop

    def declare_sale() -> Any:
        class Sale(PublicIdMixin, Own):
            __tablename__ = "sale"
            shop_id: Mapped[int | None] = mapped_column(ForeignKey("shop.id"))
            shop_public_id: Mapped[str | None] = public_ref("shop")

        class Return(Sale):
            """Inherits the reference of its superclass."""

        return Sale, Return

    if is_customer_first:
        shop, (sale, back) = declare_shop(), declare_sale()
    else:
        (sale, back), shop = declare_sale(), declare_shop()
    Own.registry.configure()

    assert [references.public_refs(model)["shop_public_id"].target for model in (sale, back)] == [shop, shop]
    sold, other = [model(shop_public_id="0123456789ab") for model in (sale, back)], shop()
    for each in sold:
        each.shop = other  # the reference follows the relationship
    assert [(each.shop_public_id, each.shop_id) for each in sold] == [(other.public_id, None)] * 2


def test_a_backref_that_cannot_be_seen() -> None:
    """A relationship that a ``backref`` adds is checked as soon as it exists, and the error names the attribute."""

    class Own(DeclarativeBase): ...

    class Sale(PublicIdMixin, Own):
        __tablename__ = "sale"
        shop_public_id: Mapped[str | None] = public_ref("shop")

    class Shop(PublicIdMixin, Own):
        __tablename__ = "shop"
        sale_id: Mapped[int | None] = mapped_column(ForeignKey("sale.id"))
        sale = relationship("Sale", backref="shop")

    with pytest.raises(ConfigurationError, match=r"Sale\.shop_public_id: the relationship 'shop' is onetomany"):
        Own.registry.configure()
    with pytest.raises(ConfigurationError, match=r"Sale\.shop_public_id: the relationship 'shop' is onetomany"):
        Sale(shop_public_id="0123456789ab")


def test_a_class_that_waits_beside_a_declaration_that_failed() -> None:
    """Mapped classes are found while a class of another base waits for its subclasses."""

    class Other(DeclarativeBase): ...

    class Waiting(AbstractConcreteBase, Other): ...

    class Own(DeclarativeBase): ...

    with pytest.raises(ArgumentError) as failed:
        type("Failed", (Own,), {"__tablename__": "failed", "__table_args__": (1,)})

    class Shop(PublicIdMixin, Own):
        __tablename__ = "shop"

    assert [mapper.class_ for mapper in mapped_classes(Own.registry)] == [Shop]
    del failed

    class Found(Waiting):  # otherwise, every configuration in this process would wait, too
        __tablename__ = "found"
        __mapper_args__ = {"concrete": True, "polymorphic_identity": "found"}  # noqa: RUF012
        id: Mapped[int] = mapped_column(primary_key=True)

    Other.registry.configure()


def test_a_missing_relationship() -> None:
    """A reference whose relationship no model adds raises when mappers are configured, and whenever it is used."""

    class Own(DeclarativeBase): ...

    class Sale(PublicIdMixin, Own):
        __tablename__ = "sale"
        shop_public_id: Mapped[str | None] = public_ref("shpo")

    class Return(PublicIdMixin, Own):
        __tablename__ = "return"
        shop_public_id: Mapped[str | None] = public_ref("shpo")

    class Shop(PublicIdMixin, Own):
        __tablename__ = "shop"
        sale_id: Mapped[int | None] = mapped_column(ForeignKey("sale.id"))
        sale = relationship("Sale", backref="shop")

    missing = r"\.shop_public_id: \w+ has no relationship 'shpo'; it has"
    with pytest.raises(ConfigurationError, match=missing):
        Own.registry.configure()
    for use in (
        lambda: Sale(shop_public_id="0123456789ab"),
        lambda: Return().shop_public_id,
        lambda: select(Return).where(Return.shop_public_id == "0123456789ab"),
    ):
        with pytest.raises(ConfigurationError, match=missing):
            use()

    class Other(DeclarativeBase): ...

    class Room(PublicIdMixin, Other):
        __tablename__ = "room"

    Other.registry.configure()  # this registry is not affected by the errors of the other one


def test_another_mistake_while_a_backref_is_awaited() -> None:
    """A model that cannot be configured for another reason does not affect other registries."""

    class Own(DeclarativeBase): ...

    class Sale(PublicIdMixin, Own):
        __tablename__ = "sale"
        shop_id: Mapped[int | None] = mapped_column(ForeignKey("shop.id"))
        shop_public_id: Mapped[str | None] = public_ref("shop")

    class Wrong(PublicIdMixin, Own):
        __tablename__ = "wrong"
        nothing = relationship("NoSuchModel")

    class Shop(PublicIdMixin, Own):
        __tablename__ = "shop"
        sales = relationship("Sale", backref="shop")

    with pytest.raises(InvalidRequestError, match="NoSuchModel"):
        Own.registry.configure()

    class Other(DeclarativeBase): ...

    class Room(PublicIdMixin, Other):
        __tablename__ = "room"

    Other.registry.configure()

    assert Room().public_id
    Own.registry.dispose()  # otherwise, the next call of configure_mappers() would raise
    configure_mappers()
    assert inspect(Sale, raiseerr=False) is None  # the class is alive, and no longer mapped


def test_models_that_nobody_needs_are_freed() -> None:
    """A reference keeps neither its own model nor the related one alive, even after it was read."""

    class Temporary(DeclarativeBase): ...

    class Owner(PublicIdMixin, Temporary):
        __tablename__ = "owner"

    class Thing(PublicIdMixin, Temporary):
        __tablename__ = "thing"
        owner_id = mapped_column(ForeignKey(Owner.id))
        owner = relationship(Owner)
        owner_public_id = public_ref("owner")

    assert Thing(owner_public_id="izkpm55j334u").owner_public_id == "izkpm55j334u"
    assert [*references.public_refs(Thing)] == ["owner_public_id"]
    models = weakref.ref(Owner), weakref.ref(Thing)
    del Temporary, Owner, Thing
    while gc.collect():
        pass

    assert [model() for model in models] == [None, None]
