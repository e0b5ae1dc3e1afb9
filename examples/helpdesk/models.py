"""Organizations, their users, tickets, comments and tags. Keys are integers and never leave the service."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Literal

from sqlalchemy import Column, ForeignKey, String, Table, Text, UniqueConstraint, event
from sqlalchemy.orm import DeclarativeBase, Mapped, Mapper, declared_attr, mapped_column, relationship

from sqlalchemy_public_id import NanoId, PublicIdMixin, TypedId, bigint_key, tokens
from sqlalchemy_public_id.references import public_ref

Status = Literal["open", "waiting", "closed"]

TOKEN = tokens.Token(prefix="login")


class Base(DeclarativeBase):
    """The base class of the models in this example."""


class OrganizationId(TypedId, prefix="organization"):
    """``organization_…``"""


class UserId(TypedId, prefix="user"):
    """``user_…``"""


class TagId(TypedId, prefix="tag", format=NanoId(length=8)):
    """``tag_…``; short, because there are few tags."""


class TicketId(TypedId, prefix="ticket"):
    """``ticket_…``; clients can generate one, so that they can retry a request."""


class CommentId(TypedId, prefix="comment"):
    """``comment_…``"""


def now() -> datetime:
    """Return the current time in UTC, truncated to seconds, which every database stores unchanged."""
    return datetime.now(timezone.utc).replace(microsecond=0, tzinfo=None)


class Organization(PublicIdMixin[OrganizationId], Base):
    __tablename__ = "desk_organization"
    name: Mapped[str] = mapped_column(String(100))


class OfOrganization:
    """A model whose rows belong to one organization; ``tenants.py`` hides them from the others."""

    organization_id: Mapped[int] = mapped_column(ForeignKey(Organization.id), index=True)

    @declared_attr
    @classmethod
    def organization(cls) -> Mapped[Organization]:
        return relationship(Organization)


class Shared:
    """A model whose rows all organizations may see. There is none yet."""


@event.listens_for(Base, "before_mapper_configured", propagate=True)
def refuse_what_belongs_to_nobody(mapper: Mapper[Any], model: type[Any]) -> None:
    """Refuse a model that is neither, or both: it would be forgotten where other organizations' rows are hidden."""
    if sum(issubclass(model, kind) for kind in (Organization, OfOrganization, Shared)) != 1:
        raise TypeError(f"{model.__name__} must be either OfOrganization or Shared")


class User(OfOrganization, PublicIdMixin[UserId], Base):
    __tablename__ = "desk_user"
    name: Mapped[str] = mapped_column(String(100))


class Login(OfOrganization, Base):
    """A token of a user; the database stores only its digest."""

    __tablename__ = "desk_login"
    id: Mapped[int] = bigint_key()
    token: Mapped[bytes] = tokens.token_column(TOKEN)
    user_id: Mapped[int] = mapped_column(ForeignKey(User.id), index=True)
    user: Mapped[User] = relationship()
    expires_at: Mapped[datetime]


class Tag(OfOrganization, PublicIdMixin[TagId], Base):
    __tablename__ = "desk_tag"
    __table_args__ = (UniqueConstraint("organization_id", "name"),)
    name: Mapped[str] = mapped_column(String(40))


ticket_tag = Table(
    "desk_ticket_tag",
    Base.metadata,
    Column("ticket_id", ForeignKey("desk_ticket.id"), primary_key=True),
    Column("tag_id", ForeignKey(Tag.id), primary_key=True, index=True),
)


class Ticket(OfOrganization, PublicIdMixin[TicketId], Base):
    __tablename__ = "desk_ticket"
    author_id: Mapped[int] = mapped_column(ForeignKey(User.id))
    author: Mapped[User] = relationship(foreign_keys=author_id)
    author_public_id: Mapped[UserId] = public_ref("author")
    assignee_id: Mapped[int | None] = mapped_column(ForeignKey(User.id), index=True)
    assignee: Mapped[User | None] = relationship(foreign_keys=assignee_id)
    assignee_public_id: Mapped[UserId | None] = public_ref("assignee", scope="organization_id")
    subject: Mapped[str] = mapped_column(String(200))
    status: Mapped[Status] = mapped_column(default="open")
    priority: Mapped[int] = mapped_column(default=2)
    created_at: Mapped[datetime] = mapped_column(default=now)
    tags: Mapped[list[Tag]] = relationship(secondary=ticket_tag, order_by=Tag.name)


class Comment(OfOrganization, PublicIdMixin[CommentId], Base):
    __tablename__ = "desk_comment"
    ticket_id: Mapped[int] = mapped_column(ForeignKey(Ticket.id), index=True)
    ticket: Mapped[Ticket] = relationship()
    author_id: Mapped[int] = mapped_column(ForeignKey(User.id))
    author: Mapped[User] = relationship()
    author_public_id: Mapped[UserId] = public_ref("author")
    text: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=now)
