"""Two organizations in one database, each with users and tickets."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from sqlalchemy_public_id import NanoId, PublicIdMixin, public_id_column
from sqlalchemy_public_id.references import public_ref

UNKNOWN = "tnu_000000000000"


class Base(DeclarativeBase):
    metadata = MetaData()


class Organization(PublicIdMixin, Base):
    """The tenants' own table."""

    __tablename__ = "organization"
    name: Mapped[str] = mapped_column(String(50))
    owned: Mapped[list[Ticket]] = relationship(overlaps="organization")
    users: Mapped[list[User]] = relationship(overlaps="organization")


class User(PublicIdMixin, Base):
    """A model with two public ids, and a foreign key to its organization."""

    __tablename__ = "user"
    __public_id__ = NanoId(prefix="tnu")
    card: Mapped[str] = public_id_column(NanoId(length=8))
    organization_id: Mapped[int] = mapped_column(ForeignKey(Organization.id))
    organization: Mapped[Organization] = relationship(overlaps="users")
    name: Mapped[str] = mapped_column(String(50))


class Ticket(PublicIdMixin, Base):
    """A model with references by a scope, and without one."""

    __tablename__ = "ticket"
    organization_id: Mapped[int] = mapped_column(ForeignKey(Organization.id))
    organization: Mapped[Organization] = relationship(overlaps="owned")
    organization_public_id: Mapped[str] = public_ref("organization")
    author_id: Mapped[int | None] = mapped_column(ForeignKey(User.id))
    author: Mapped[User | None] = relationship(foreign_keys=author_id)
    author_public_id: Mapped[str | None] = public_ref("author", attribute="public_id")
    assignee_id: Mapped[int | None] = mapped_column(ForeignKey(User.id))
    assignee: Mapped[User | None] = relationship(foreign_keys=assignee_id)
    assignee_public_id: Mapped[str | None] = public_ref("assignee", scope="organization_id")
    assignee_card: Mapped[str | None] = public_ref("assignee", attribute="card", scope="organization_id")
    watcher_id: Mapped[int | None] = mapped_column(ForeignKey(User.id))
    watcher: Mapped[User | None] = relationship(foreign_keys=watcher_id)
    watcher_public_id: Mapped[str | None] = public_ref("watcher", scope=lambda session: session.info["condition"])
    watcher_card: Mapped[str | None] = public_ref("watcher", attribute="card")


class Tenants:
    """Two organizations, a user of each, and a ticket of ours. The session belongs to our organization."""

    def __init__(self, session: Session) -> None:
        self.ours, self.theirs = Organization(name="ours"), Organization(name="theirs")
        self.ada = User(organization=self.ours, name="Ada")
        self.eve = User(organization=self.theirs, name="Eve")
        self.ticket = Ticket(organization=self.ours)
        session.add_all([self.ours, self.theirs, self.ada, self.eve, self.ticket])
        session.commit()
        session.info["condition"] = self.where

    @property
    def where(self) -> Any:
        return User.organization_id == self.ours.id
