"""Teams and their users, animals in two tables, links with two ids, and a table with room for thirty-six rows."""

from __future__ import annotations

from sqlalchemy import ForeignKey, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from sqlalchemy_public_id import NanoId, PublicIdColumnMixin, PublicIdMixin, TypedId, bigint_key, public_id_column

A, B, C, D, E = (letter * 12 for letter in "abcde")
"""Ids of users."""


class Base(DeclarativeBase):
    metadata = MetaData()


class TeamId(TypedId, prefix="member_team"): ...


class Team(PublicIdMixin[TeamId], Base):
    """A model with typed ids, and a collection of its users."""

    __tablename__ = "team"
    name: Mapped[str | None] = mapped_column(String(50))
    users: Mapped[list[User]] = relationship(back_populates="team")


class User(PublicIdMixin, Base):
    """A model with a unique email and a team."""

    __tablename__ = "user"
    __public_id__ = NanoId()
    name: Mapped[str | None] = mapped_column(String(200))
    email: Mapped[str | None] = mapped_column(String(50), unique=True)
    team_id: Mapped[int | None] = mapped_column(ForeignKey("team.id"))
    team: Mapped[Team | None] = relationship(back_populates="users")


class Tiny(PublicIdMixin, Base):
    """A model with only thirty-six possible ids."""

    __tablename__ = "tiny"
    __public_id__ = NanoId(length=1)
    number: Mapped[int | None]


class Link(Base):
    """A model with two public ids, one of which has another column name."""

    __tablename__ = "link"
    id: Mapped[int] = bigint_key()
    short: Mapped[str] = public_id_column(NanoId(length=8))
    long: Mapped[str] = public_id_column(NanoId(length=20), name="long_text")
    url: Mapped[str | None] = mapped_column(String(50), unique=True)


class Animal(PublicIdMixin, Base):
    """The base of a hierarchy of one table, and one that is joined."""

    __tablename__ = "animal"
    kind: Mapped[str] = mapped_column(String(10))
    name: Mapped[str | None] = mapped_column(String(50))
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}  # noqa: RUF012  # as SQLAlchemy has it


class Cat(Animal):
    """A subclass in the table of animals."""

    __mapper_args__ = {"polymorphic_identity": "cat"}  # noqa: RUF012


class Dog(Animal):
    """A subclass with a joined table."""

    __tablename__ = "dog"
    id: Mapped[int] = mapped_column(ForeignKey("animal.id"), primary_key=True)
    tricks: Mapped[int | None]
    __mapper_args__ = {"polymorphic_identity": "dog"}  # noqa: RUF012


class Seat(PublicIdColumnMixin, Base):
    """A model with a composite key of two columns."""

    __tablename__ = "seat"
    line: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    place: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
