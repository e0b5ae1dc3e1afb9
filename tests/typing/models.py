"""The models that the programs in should_pass and should_fail use."""

from __future__ import annotations

from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass

from sqlalchemy_public_id import (
    NanoId,
    PublicIdColumnMixin,
    PublicIdColumnMixinDataclass,
    PublicIdMixin,
    PublicIdMixinDataclass,
    TypedId,
    bigint_key,
    public_id_column,
)


class CustomerId(TypedId, prefix="cus"): ...


class OrderId(TypedId, prefix="ord", format=NanoId(length=10), aliases=("order",)): ...


class CardId(TypedId, prefix="card"): ...


class TicketId(TypedId, prefix="tic"): ...


class Base(DeclarativeBase): ...


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    name: Mapped[str]


class Team(PublicIdMixin, Base):
    __tablename__ = "team"
    __public_id__ = NanoId(prefix="team")


class Customer(PublicIdMixin[CustomerId], Base):
    __tablename__ = "customer"


class Order(PublicIdMixin[OrderId], Base):
    __tablename__ = "order"


class Card(Base):
    __tablename__ = "card"
    id: Mapped[int] = bigint_key()
    number: Mapped[CardId] = public_id_column(CardId)
    slug: Mapped[str] = public_id_column(NanoId(length=10), name="short_text", max_retries=20)
    code: Mapped[str] = public_id_column()


class Country(PublicIdColumnMixin, Base):
    __tablename__ = "country"
    id: Mapped[int] = bigint_key()


class DataBase(MappedAsDataclass, DeclarativeBase): ...


class Ticket(PublicIdMixinDataclass[TicketId], DataBase):
    __tablename__ = "ticket"
    title: Mapped[str]


class Seat(PublicIdColumnMixinDataclass, DataBase, kw_only=True):
    __tablename__ = "seat"
    id: Mapped[int] = bigint_key()
    row: Mapped[int]
