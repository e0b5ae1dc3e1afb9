"""Request and response models. Declaring a response model with a field that would show a key raises an error."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from sqlalchemy_public_id.ext.fastapi import Matches
from sqlalchemy_public_id.ext.pydantic import PublicModel

from .models import Comment, CommentId, Organization, OrganizationId, Status, Tag, TagId, Ticket, TicketId, User, UserId

NO_NUL = r"^[^\x00]*$"  # PostgreSQL cannot store NUL in text
Name = Annotated[str, Field(min_length=1, max_length=40, pattern=NO_NUL)]
Subject = Annotated[str, Field(min_length=1, max_length=200, pattern=NO_NUL)]
Remark = Annotated[str, Field(min_length=1, max_length=5000, pattern=NO_NUL)]
Priority = Annotated[int, Field(ge=1, le=4, description="1 is low, 4 is urgent")]
Tags = Annotated[list[TagId], Field(max_length=20)]
Moment = Annotated[datetime, AfterValidator(lambda time: time.replace(tzinfo=timezone.utc))]


class OrganizationOut(PublicModel, model=Organization):
    public_id: OrganizationId
    name: str


class UserOut(PublicModel, model=User):
    public_id: UserId
    name: str


class MeOut(UserOut, model=User):
    organization: OrganizationOut


class TagIn(BaseModel):
    name: Name


class TagOut(PublicModel, model=Tag):
    public_id: TagId
    name: str


class TicketIn(BaseModel):
    subject: Subject
    priority: Priority = 2
    assignee_public_id: UserId | None = None
    tags: Tags = []


class TicketChange(BaseModel):
    subject: Subject = Field(default=None)  # only fields that are set are changed
    status: Status = Field(default=None)
    priority: Priority = Field(default=None)
    assignee_public_id: UserId | None = None
    tags: Tags = Field(default=None)


class TicketFilter(BaseModel):
    status: list[Status] | None = None
    assignee_public_id: UserId | None = None
    tag: Annotated[TagId | None, Matches(lambda tag: Ticket.tags.any(Tag.public_id == tag))] = None


class TicketOut(PublicModel, model=Ticket):
    public_id: TicketId
    subject: str
    status: Status
    priority: int
    created_at: Moment
    author_public_id: UserId
    assignee_public_id: UserId | None
    tags: list[TagOut]


class CommentIn(BaseModel):
    text: Remark


class CommentOut(PublicModel, model=Comment):
    public_id: CommentId
    author_public_id: UserId
    text: str
    created_at: Moment
