"""The helpdesk of ``examples/helpdesk`` with advanced-alchemy alone: its UUIDv7 keys are the ids in URLs and JSON.

Written to be short, and to answer as the helpdesk does. It lacks pages that new tickets do not shift, since the package
has LIMIT and OFFSET.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from datetime import datetime, timezone
from typing import Annotated, Any, Literal
from uuid import UUID

from advanced_alchemy.base import UUIDv7Base
from advanced_alchemy.filters import LimitOffset, OrderBy, StatementFilter
from advanced_alchemy.repository import SQLAlchemyAsyncRepository
from advanced_alchemy.service import OffsetPagination, SQLAlchemyAsyncRepositoryService
from fastapi import APIRouter, Body, Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Column, ForeignKey, LargeBinary, String, Table, Text, UniqueConstraint, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Mapped, joinedload, mapped_column, relationship, selectinload

# --- models

Status = Literal["open", "waiting", "closed"]


def now() -> datetime:
    return datetime.now(timezone.utc)


class Organisation(UUIDv7Base):
    __tablename__ = "desk_organisation"
    name: Mapped[str] = mapped_column(String(100))


class User(UUIDv7Base):
    __tablename__ = "desk_user"
    organisation_id: Mapped[UUID] = mapped_column(ForeignKey(Organisation.id), index=True)
    organisation: Mapped[Organisation] = relationship()
    name: Mapped[str] = mapped_column(String(100))


class Login(UUIDv7Base):
    __tablename__ = "desk_login"
    digest: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id), index=True)
    user: Mapped[User] = relationship()
    expires_at: Mapped[datetime]


class Tag(UUIDv7Base):
    __tablename__ = "desk_tag"
    __table_args__ = (UniqueConstraint("organisation_id", "name"),)
    organisation_id: Mapped[UUID] = mapped_column(ForeignKey(Organisation.id))
    organisation: Mapped[Organisation] = relationship()
    name: Mapped[str] = mapped_column(String(40))


ticket_tag = Table(
    "desk_ticket_tag",
    UUIDv7Base.metadata,
    Column("ticket_id", ForeignKey("desk_ticket.id"), primary_key=True),
    Column("tag_id", ForeignKey(Tag.id), primary_key=True, index=True),
)


class Ticket(UUIDv7Base):
    __tablename__ = "desk_ticket"
    organisation_id: Mapped[UUID] = mapped_column(ForeignKey(Organisation.id), index=True)
    organisation: Mapped[Organisation] = relationship()
    author_id: Mapped[UUID] = mapped_column(ForeignKey(User.id))
    assignee_id: Mapped[UUID | None] = mapped_column(ForeignKey(User.id), index=True)
    subject: Mapped[str] = mapped_column(String(200))
    status: Mapped[Status] = mapped_column(default="open")
    priority: Mapped[int] = mapped_column(default=2)
    created_at: Mapped[datetime] = mapped_column(default=now)
    tags: Mapped[list[Tag]] = relationship(secondary=ticket_tag, order_by=Tag.name)


class Comment(UUIDv7Base):
    __tablename__ = "desk_comment"
    ticket_id: Mapped[UUID] = mapped_column(ForeignKey(Ticket.id), index=True)
    author_id: Mapped[UUID] = mapped_column(ForeignKey(User.id))
    text: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=now)


class Users(SQLAlchemyAsyncRepositoryService[User]):
    class Repo(SQLAlchemyAsyncRepository[User]):
        model_type = User

    repository_type = Repo


class Tags(SQLAlchemyAsyncRepositoryService[Tag]):
    class Repo(SQLAlchemyAsyncRepository[Tag]):
        model_type = Tag

    repository_type = Repo


class Tickets(SQLAlchemyAsyncRepositoryService[Ticket]):
    class Repo(SQLAlchemyAsyncRepository[Ticket]):
        model_type = Ticket

    repository_type = Repo


class Comments(SQLAlchemyAsyncRepositoryService[Comment]):
    class Repo(SQLAlchemyAsyncRepository[Comment]):
        model_type = Comment

    repository_type = Repo


# --- schemas

NO_NUL = r"^[^\x00]*$"  # PostgreSQL stores no such character
Name = Annotated[str, Field(min_length=1, max_length=40, pattern=NO_NUL)]
Subject = Annotated[str, Field(min_length=1, max_length=200, pattern=NO_NUL)]
Remark = Annotated[str, Field(min_length=1, max_length=5000, pattern=NO_NUL)]
Priority = Annotated[int, Field(ge=1, le=4, description="1 is low, 4 is urgent")]
TagIds = Annotated[list[UUID], Field(max_length=20)]


class Out(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    id: UUID


class OrganisationOut(Out):
    name: str


class UserOut(Out):
    name: str


class MeOut(UserOut):
    organisation: OrganisationOut


class TagIn(BaseModel):
    name: Name


class TagOut(Out):
    name: str


class TicketIn(BaseModel):
    subject: Subject
    priority: Priority = 2
    assignee_id: UUID | None = None
    tags: TagIds = []


class TicketChange(BaseModel):
    subject: Subject = Field(default=None)  # only what is set is changed
    status: Status = Field(default=None)
    priority: Priority = Field(default=None)
    assignee_id: UUID | None = None
    tags: TagIds = Field(default=None)


class TicketOut(Out):
    subject: str
    status: Status
    priority: int
    created_at: datetime
    author_id: UUID
    assignee_id: UUID | None
    tags: list[TagOut]


class CommentIn(BaseModel):
    text: Remark


class CommentOut(Out):
    author_id: UUID
    text: str
    created_at: datetime


# --- the session, the user, and what the user may see

router = APIRouter(responses={401: {"description": "The token is missing, unknown or expired"}})
Responses = dict[int | str, dict[str, Any]]
NO_ROW: Responses = {404: {"description": "There is no such row"}}
CONFLICT: Responses = {409: {"description": "It is stored with other contents"}}
NO_JSON: Responses = {400: {"description": "The body is not JSON"}}


def create_app(engine: AsyncEngine, **options: Any) -> FastAPI:
    app = FastAPI(title="The helpdesk", version="1.0.0", **options)
    app.state.sessions = async_sessionmaker(engine, expire_on_commit=False)
    app.include_router(router)
    return app


async def get_session(request: Request) -> AsyncIterator[AsyncSession]:
    async with request.app.state.sessions() as session:
        yield session


Session = Annotated[AsyncSession, Depends(get_session)]
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


async def get_user(session: Session, bearer: Bearer) -> User:
    digest = hashlib.sha256((bearer.credentials if bearer else "").encode()).digest()
    query = select(Login).where(Login.digest == digest, Login.expires_at > now()).options(joinedload(Login.user))
    login = await session.scalar(query)
    if login is None:
        raise HTTPException(401, "sign in first", {"WWW-Authenticate": "Bearer"})
    return login.user


Me = Annotated[User, Depends(get_user)]


async def get_users(session: Session) -> Users:
    return Users(session=session)


async def get_tags(session: Session) -> Tags:
    return Tags(session=session)


async def get_tickets(session: Session) -> Tickets:
    return Tickets(session=session, load=[selectinload(Ticket.tags)])


async def get_comments(session: Session) -> Comments:
    return Comments(session=session)


UserService = Annotated[Users, Depends(get_users)]
TagService = Annotated[Tags, Depends(get_tags)]
TicketService = Annotated[Tickets, Depends(get_tickets)]
CommentService = Annotated[Comments, Depends(get_comments)]


async def get_ticket(tickets: TicketService, me: Me, ticket_id: UUID) -> Ticket:
    ticket = await tickets.get_one_or_none(Ticket.id == ticket_id, Ticket.organisation_id == me.organisation_id)
    if ticket is None:
        raise HTTPException(404, "no such Ticket")
    return ticket


TicketRow = Annotated[Ticket, Depends(get_ticket)]


async def get_limits(
    limit: Annotated[int, Query(ge=1, le=100)] = 20, offset: Annotated[int, Query(ge=0, le=10**9)] = 0
) -> LimitOffset:
    return LimitOffset(limit, offset)


Limits = Annotated[LimitOffset, Depends(get_limits)]


def orders(model: type[Any], names: list[str], newest_first: bool = False) -> list[StatementFilter]:
    wanted = [OrderBy(name.removeprefix("-"), "desc" if name.startswith("-") else "asc") for name in names]
    return [*wanted, OrderBy("id", "desc" if newest_first else "asc")]


def unknown(field: str, model: str) -> RequestValidationError:
    return RequestValidationError([{"type": "unknown", "loc": ("body", field), "msg": f"no such {model}"}])


async def check_assignees(users: Users, me: User, ids: set[UUID | None]) -> None:
    ids.discard(None)
    if ids and await users.count(User.id.in_(ids), User.organisation_id == me.organisation_id) < len(ids):
        raise unknown("assignee_id", "User")


async def find_tags(tags: Tags, me: User, ids: set[UUID]) -> dict[UUID, Tag]:
    if not ids:
        return {}
    rows = {tag.id: tag for tag in await tags.list(Tag.id.in_(ids), Tag.organisation_id == me.organisation_id)}
    if len(rows) < len(ids):
        raise unknown("tags", "Tag")
    return rows


async def new_tickets(users: Users, tags: Tags, me: User, new: list[TicketIn]) -> list[Ticket]:
    await check_assignees(users, me, {ticket.assignee_id for ticket in new})
    rows = await find_tags(tags, me, {tag for ticket in new for tag in ticket.tags})
    return [
        Ticket(
            organisation_id=me.organisation_id,
            author_id=me.id,
            tags=[rows[tag] for tag in dict.fromkeys(ticket.tags)],
            **ticket.model_dump(exclude={"tags"}),
        )
        for ticket in new
    ]


# --- users and tags


@router.get("/me")
async def show_me(session: Session, me: Me) -> MeOut:
    await session.refresh(me, ["organisation"])
    return MeOut.model_validate(me)


@router.get("/users")
async def list_users(
    users: UserService, me: Me, limits: Limits, sort: Annotated[list[Literal["name", "-name"]], Query()] = ()
) -> OffsetPagination[UserOut]:
    own = User.organisation_id == me.organisation_id
    rows, total = await users.list_and_count(own, limits, *orders(User, [*sort]))
    return users.to_schema(rows, total, [limits], schema_type=UserOut)


@router.get("/tags")
async def list_tags(
    tags: TagService, me: Me, limits: Limits, sort: Annotated[list[Literal["name", "-name"]], Query()] = ()
) -> OffsetPagination[TagOut]:
    own = Tag.organisation_id == me.organisation_id
    rows, total = await tags.list_and_count(own, limits, *orders(Tag, [*sort]))
    return tags.to_schema(rows, total, [limits], schema_type=TagOut)


@router.post("/tags", status_code=201, responses=NO_JSON | CONFLICT)
async def add_tag(session: Session, me: Me, new: TagIn) -> TagOut:
    tag = Tag(organisation_id=me.organisation_id, name=new.name)
    session.add(tag)
    try:
        await session.commit()
    except IntegrityError as error:
        raise HTTPException(409, "there is a tag with this name") from error
    return TagOut.model_validate(tag)


# --- tickets

Sort = Literal["priority", "-priority", "created_at", "-created_at", "subject", "-subject"]


@router.get("/tickets")
async def list_tickets(
    tickets: TicketService,
    me: Me,
    limits: Limits,
    sort: Annotated[list[Sort], Query()] = (),
    status: Annotated[list[Status] | None, Query()] = None,
    assignee_id: UUID | None = None,
    tag: UUID | None = None,
) -> OffsetPagination[TicketOut]:
    wanted: list[Any] = [Ticket.organisation_id == me.organisation_id]
    if status:
        wanted.append(Ticket.status.in_(status))
    if assignee_id is not None:
        wanted.append(Ticket.assignee_id == assignee_id)
    if tag is not None:
        wanted.append(Ticket.tags.any(Tag.id == tag))
    rows, total = await tickets.list_and_count(*wanted, limits, *orders(Ticket, [*sort], newest_first=True))
    return tickets.to_schema(rows, total, [limits], schema_type=TicketOut)


@router.post("/tickets", status_code=201, responses=NO_JSON)
async def add_tickets(
    users: UserService,
    tags: TagService,
    tickets: TicketService,
    me: Me,
    new: Annotated[list[TicketIn], Body(min_length=1, max_length=100)],
) -> list[TicketOut]:
    rows = await tickets.create_many(await new_tickets(users, tags, me, new), auto_commit=True)
    return [TicketOut.model_validate(row) for row in rows]


@router.put("/tickets/{ticket_id}", responses={201: {"model": TicketOut}, **CONFLICT, **NO_JSON})
async def put_ticket(
    session: Session,
    users: UserService,
    tags: TagService,
    tickets: TicketService,
    me: Me,
    ticket_id: UUID,
    new: TicketIn,
    response: Response,
) -> TicketOut:
    (ticket,) = await new_tickets(users, tags, me, [new])
    ticket.id = ticket_id
    wanted = {"author_id": me.id, **new.model_dump(exclude={"tags"})}
    organisation_id = me.organisation_id
    session.add(ticket)
    try:
        await session.commit()
    except IntegrityError as error:
        await session.rollback()
        own = Ticket.organisation_id == organisation_id
        stored = await tickets.get_one_or_none(Ticket.id == ticket_id, own)
        differing = [name for name, value in wanted.items() if stored and getattr(stored, name) != value]
        if stored is None or differing:
            raise HTTPException(409, {"differing": differing}) from error
        return TicketOut.model_validate(stored)
    response.status_code = 201
    return TicketOut.model_validate(ticket)


@router.get("/tickets/{ticket_id}", responses=NO_ROW)
async def show_ticket(ticket: TicketRow) -> TicketOut:
    return TicketOut.model_validate(ticket)


@router.patch("/tickets/{ticket_id}", responses=NO_JSON | NO_ROW)
async def change_ticket(
    session: Session, users: UserService, tags: TagService, me: Me, ticket: TicketRow, change: TicketChange
) -> TicketOut:
    values = change.model_dump(exclude_unset=True)
    await check_assignees(users, me, {values.get("assignee_id")})
    if "tags" in values:
        values["tags"] = list((await find_tags(tags, me, {*change.tags})).values())
    for name, value in values.items():
        setattr(ticket, name, value)
    await session.commit()
    return TicketOut.model_validate(ticket)


# --- comments


@router.get("/tickets/{ticket_id}/comments", responses=NO_ROW)
async def list_comments(comments: CommentService, ticket: TicketRow, limits: Limits) -> OffsetPagination[CommentOut]:
    rows, total = await comments.list_and_count(Comment.ticket_id == ticket.id, limits, *orders(Comment, []))
    return comments.to_schema(rows, total, [limits], schema_type=CommentOut)


@router.post("/tickets/{ticket_id}/comments", status_code=201, responses=NO_JSON | NO_ROW)
async def add_comment(comments: CommentService, me: Me, ticket: TicketRow, new: CommentIn) -> CommentOut:
    comment = await comments.create(Comment(ticket_id=ticket.id, author_id=me.id, text=new.text), auto_commit=True)
    return CommentOut.model_validate(comment)
