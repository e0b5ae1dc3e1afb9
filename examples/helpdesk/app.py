"""The endpoints. They accept and return only public ids, and show each user only the rows of their organization."""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import ColumnElement
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import joinedload, selectinload

from sqlalchemy_public_id.asyncio import idempotency, lookup, tokens
from sqlalchemy_public_id.ext.fastapi import Page, by_public_id, install, page_of
from sqlalchemy_public_id.lookup import Page as Rows

from .formats import one_of_each
from .models import Comment, Login, Tag, TagId, Ticket, TicketId, User, now
from .schemas import (
    CommentIn,
    CommentOut,
    MeOut,
    TagIn,
    TagOut,
    TicketChange,
    TicketFilter,
    TicketIn,
    TicketOut,
    UserOut,
)
from .tenants import ALL_ORGANIZATIONS, TenantSession

PAGE = Path(__file__).with_name("page.html").read_text(encoding="utf-8")

log = logging.getLogger("helpdesk")

Responses = dict[int | str, dict[str, Any]]

NO_JSON: Responses = {400: {"description": "The body is not JSON"}}
NO_LOGIN: Responses = {401: {"description": "The token is missing, unknown or expired"}}

router = APIRouter(responses=NO_LOGIN)
public = APIRouter()


def create_app(engine: AsyncEngine, **options: Any) -> FastAPI:
    """Build the helpdesk on the database of *engine*; *options* are those of ``FastAPI()``."""
    app = FastAPI(title="The helpdesk", version="1.0.0", **options)
    app.state.sessions = async_sessionmaker(engine, expire_on_commit=False, sync_session_class=TenantSession)
    app.include_router(router)
    app.include_router(public)
    install(app)
    app.add_exception_handler(DBAPIError, database_error)
    return app


async def database_error(request: Request, error: Any) -> Response:
    """Answer 500, and log the error without its message, in which a driver may repeat keys."""
    stack = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s in %s %s\n%s", type(error.orig).__name__, request.method, request.url.path, stack)
    return JSONResponse({"detail": "internal server error"}, 500)


# --- the session, the user, and the rows that the user may see


async def open_session(request: Request) -> AsyncIterator[AsyncSession]:
    """Open a session for each request; work that the endpoint does not commit is rolled back."""
    async with request.app.state.sessions() as session:
        yield session


Opened = Annotated[AsyncSession, Depends(open_session)]
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


async def get_user(session: Opened, bearer: Bearer) -> User:
    """Return the user whose token the request carries. Every invalid token gets the same response."""
    login = await tokens.get(
        session,
        Login,
        bearer and bearer.credentials,
        where=Login.expires_at > now(),
        options=[joinedload(Login.user)],
        execution_options=ALL_ORGANIZATIONS,
    )
    if login is None:
        raise HTTPException(401, "sign in first", {"WWW-Authenticate": "Bearer"})
    return login.user


Me = Annotated[User, Depends(get_user)]


def get_session(session: Opened, me: Me) -> AsyncSession:
    """Return the session, which sees the rows of the user's organization from now on."""
    session.sync_session.info["organization_id"] = me.organization_id
    return session


Session = Annotated[AsyncSession, Depends(get_session)]

TicketRow = Annotated[Ticket, Depends(by_public_id(Ticket, session=get_session, options=[selectinload(Ticket.tags)]))]


def of_the_ticket(ticket: TicketRow) -> ColumnElement[bool]:
    return Comment.ticket_id == ticket.id


UserPage = Annotated[Rows[User], Depends(page_of(User, session=get_session, sort=["name"]))]
TagPage = Annotated[Rows[Tag], Depends(page_of(Tag, session=get_session, sort=["name"]))]
CommentPage = Annotated[Rows[Comment], Depends(page_of(Comment, session=get_session, scope=of_the_ticket))]
TicketPage = Annotated[
    Rows[Ticket],
    Depends(
        page_of(
            Ticket,
            session=get_session,
            filter=TicketFilter,
            sort=["priority", "created_at", "subject"],
            newest_first=True,
            options=[selectinload(Ticket.tags)],
            count=True,
        )
    ),
]


async def find_tags(session: AsyncSession, ids: Iterable[TagId]) -> dict[str, Tag]:
    """Return a dictionary of the tags with these ids; an unknown id is a 422 that names the field."""
    return await lookup.get_many(session, Tag, ids, field="tags")


async def new_tickets(session: AsyncSession, me: User, new: list[TicketIn]) -> list[Ticket]:
    """Build tickets of the user's organization."""
    tags = await find_tags(session, (tag for ticket in new for tag in ticket.tags))
    return [
        Ticket(
            organization_id=me.organization_id,
            author=me,
            tags=[tags[tag] for tag in dict.fromkeys(ticket.tags)],
            **ticket.model_dump(exclude={"tags"}),
        )
        for ticket in new
    ]


# --- users and tags


@router.get("/me")
async def show_me(session: Session, me: Me) -> MeOut:
    return await MeOut.of(session, me)


@router.get("/users", response_model=Page[UserOut])
async def list_users(page: UserPage) -> Any:
    return page


@router.get("/tags", response_model=Page[TagOut])
async def list_tags(page: TagPage) -> Any:
    return page


@router.post("/tags", status_code=201, responses={**NO_JSON, 409: {"description": "There is a tag with this name."}})
async def add_tag(session: Session, me: Me, new: TagIn) -> TagOut:
    tag = Tag(organization_id=me.organization_id, name=new.name)
    session.add(tag)
    try:
        await session.commit()
    except IntegrityError as error:
        raise HTTPException(409, "there is a tag with this name") from error
    return await TagOut.of(session, tag)


# --- tickets


@router.get("/tickets", response_model=Page[TicketOut])
async def list_tickets(page: TicketPage) -> Any:
    """List the tickets with tags and the public ids of users, newest first unless the request sorts them."""
    return page


@router.post("/tickets", status_code=201, responses=NO_JSON)
async def add_tickets(
    session: Session, me: Me, new: Annotated[list[TicketIn], Body(min_length=1, max_length=100)]
) -> list[TicketOut]:
    """Create several tickets with one SELECT for all assignees. A repeated request creates them again; PUT does not."""
    tickets = await new_tickets(session, me, new)
    session.add_all(tickets)
    await session.commit()
    return await TicketOut.many(session, tickets)


@router.put("/tickets/{ticket_id}", responses={201: {"model": TicketOut}, **NO_JSON})
async def put_ticket(session: Session, me: Me, ticket_id: TicketId, new: TicketIn, response: Response) -> TicketOut:
    """Create a ticket with an id from the client, which can retry after a timeout: the ticket is created once.

    The status is 201 if this request created it, 200 if it exists, and 409 if it exists with different contents.
    """
    (ticket,) = await new_tickets(session, me, [new])
    ticket.public_id = ticket_id
    ticket, created = await idempotency.insert_once(session, ticket)
    await session.commit()
    response.status_code = 201 if created else 200
    return await TicketOut.of(session, ticket)


@router.get("/tickets/{ticket_id}")
async def show_ticket(session: Session, ticket: TicketRow) -> TicketOut:
    return await TicketOut.of(session, ticket)


@router.patch("/tickets/{ticket_id}", responses=NO_JSON)
async def change_ticket(session: Session, ticket: TicketRow, change: TicketChange) -> TicketOut:
    """Change only the fields that the body contains."""
    values = change.model_dump(exclude_unset=True)
    if "tags" in values:
        values["tags"] = list((await find_tags(session, change.tags)).values())
    for name, value in values.items():
        setattr(ticket, name, value)
    await session.commit()
    return await TicketOut.of(session, ticket)


# --- comments


@router.get("/tickets/{ticket_id}/comments", response_model=Page[CommentOut])
async def list_comments(page: CommentPage) -> Any:
    return page


@router.post("/tickets/{ticket_id}/comments", status_code=201, responses=NO_JSON)
async def add_comment(session: Session, me: Me, ticket: TicketRow, new: CommentIn) -> CommentOut:
    comment = Comment(organization_id=me.organization_id, ticket=ticket, author=me, text=new.text)
    session.add(comment)
    await session.commit()
    return await CommentOut.of(session, comment)


# --- the page


@public.get("/", response_class=HTMLResponse)
async def show_page() -> str:
    return PAGE


@public.get("/formats")
async def show_formats() -> dict[str, str]:
    """Return a new id of each format."""
    return one_of_each()
