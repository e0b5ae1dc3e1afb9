"""References where they do not belong, and ids where a relationship expects an object: the errors say what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, create_engine, inspect, select, update
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import (
    DeclarativeBase,
    Load,
    Mapped,
    MappedAsDataclass,
    Session,
    aliased,
    backref,
    contains_eager,
    defer,
    immediateload,
    joinedload,
    lazyload,
    mapped_column,
    raiseload,
    relationship,
    selectinload,
    subqueryload,
    undefer,
)
from support.orders import CUSTOMERS, Base, Order, fill, orders_in
from support.shared_tables import filled_engine

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, PublicIdMixinDataclass, TypedId, public_ref

engine = filled_engine(Base.metadata, fill)

OPTIONS = [selectinload, joinedload, subqueryload, immediateload, lazyload, raiseload, contains_eager, defer, undefer]


@pytest.mark.parametrize("option", [*OPTIONS, Load(Order).selectinload])
def test_loader_options(option: Any) -> None:
    """A loader option for a reference names ``references.eager()`` and the relationship."""
    with pytest.raises(ConfigurationError, match=r"references\.eager\(Model\.customer_public_id\).* name customer;"):
        select(Order).options(option(Order.customer_public_id))
    with pytest.raises(ConfigurationError, match="is a reference"):
        select(Order).options(selectinload(aliased(Order).customer_public_id))


def test_refresh_and_expire(db: Session) -> None:
    """A refreshed or expired foreign key refreshes the reference, which is no attribute of its own."""
    order = orders_in(db)[0]
    assert order.customer_public_id == CUSTOMERS[0]
    other = orders_in(db)[50].customer_id
    moved = update(Order.__table__).where(Order.__table__.c.id == order.id).values(customer_fk=other)
    db.connection().execute(moved)
    db.refresh(order, ["customer_id"])
    assert order.customer_public_id == CUSTOMERS[5]
    db.expire(order, ["customer_id"])
    assert order.customer_public_id == CUSTOMERS[5]


@pytest.mark.parametrize(
    "use",
    [
        lambda copy: copy().customer_public_id,
        lambda copy: copy(customer_public_id=CUSTOMERS[0]),
        lambda copy: select(copy).where(copy.customer_public_id == CUSTOMERS[0]),
        lambda copy: select(copy).order_by(copy.customer_public_id),
    ],
)
def test_a_copied_attribute(use: Callable[[Any], Any]) -> None:
    """A copy in a class that does not declare the reference is refused; sqlalchemy-history makes such copies."""

    class Other(DeclarativeBase): ...

    class OrderVersion(Other):
        __tablename__ = "order_version"
        id: Mapped[int] = mapped_column(primary_key=True)

    declared: Any = inspect(Order).all_orm_descriptors["customer_public_id"]
    version: Any = OrderVersion
    version.customer_public_id = hybrid_property(declared.fget, fset=declared.fset, expr=declared.expr)
    with pytest.raises(ConfigurationError, match=r"OrderVersion\.customer_public_id is a copy .* id of customer$"):
        use(OrderVersion)


# --- a public id or a key given to the relationship


class PersonId(TypedId, prefix="mrpers"): ...


class Own(DeclarativeBase):
    metadata = MetaData()


class Person(PublicIdMixin[PersonId], Own):
    __tablename__ = "person"
    houses: Mapped[list[House]] = relationship(back_populates="owner", foreign_keys="House.owner_id")


class House(PublicIdMixin, Own):
    __tablename__ = "house"
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "house"}  # noqa: RUF012  SQLAlchemy reads it
    kind: Mapped[str]
    owner_id: Mapped[int | None] = mapped_column(ForeignKey(Person.id))
    owner: Mapped[Person | None] = relationship(back_populates="houses", foreign_keys=owner_id)
    owner_public_id: Mapped[PersonId | None] = public_ref("owner")
    guest_id: Mapped[int | None] = mapped_column(ForeignKey(Person.id))
    guest: Mapped[Person | None] = relationship(foreign_keys=guest_id, backref=backref("visited"))
    guest_public_id: Mapped[PersonId | None] = public_ref("guest")


class Castle(House):
    __mapper_args__ = {"polymorphic_identity": "castle"}  # noqa: RUF012


@pytest.mark.parametrize("model", [House, Castle])
@pytest.mark.parametrize("name", ["owner", "guest"])
@pytest.mark.parametrize("given", ["mrpers_000000000000", PersonId("mrpers_000000000001"), 7])
def test_an_id_given_to_the_relationship(model: Any, name: str, given: Any) -> None:
    """A public id or a key that is assigned to a relationship raises an error, which names the attributes for them."""
    message = rf"{model.__name__}\.{name} cannot .*{model.__name__}\.{name}_public_id, .*{model.__name__}\.{name}_id$"
    engine = create_engine("sqlite://")
    Own.metadata.create_all(engine)
    with Session(engine) as session:
        with pytest.raises(ConfigurationError, match=message):
            model(**{name: given})
        session.add(house := model())
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=message):
                setattr(house, name, given)
            session.flush()
        setattr(house, name, person := Person())
        session.commit()
        assert getattr(house, f"{name}_public_id") == person.public_id


def test_an_id_given_to_the_relationship_of_a_dataclass() -> None:
    """The constructor of a dataclass raises the error, too."""

    class DataBase(MappedAsDataclass, DeclarativeBase): ...

    class Room(PublicIdMixinDataclass, DataBase):
        __tablename__ = "room"

    class Desk(PublicIdMixinDataclass, DataBase):
        __tablename__ = "desk"
        room_id: Mapped[int | None] = mapped_column(ForeignKey(Room.id), init=False)
        room: Mapped[Room | None] = relationship(Room, default=None)
        room_public_id: Mapped[str | None] = public_ref("room")

    with pytest.raises(ConfigurationError, match=r"Desk\.room cannot become '000000000000'"):
        Desk(room="000000000000")
    assert Desk(room=Room()).room_public_id
