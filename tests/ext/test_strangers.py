"""What a client of one organization learns with the ids of another one, from FastAPI, Flask, Litestar and Starlette."""
# annotations are not postponed: FastAPI and Litestar evaluate those of handlers

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from datetime import date
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Body, Depends, FastAPI
from flask import Flask, jsonify, request
from sqlalchemy import Engine, MetaData, select
from sqlalchemy.orm import Session
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from support.marks import on
from support.strangers import CRITERIA, Base, Keys, Organization, Ticket, User, enter, fill, limit, row_level_security

from sqlalchemy_public_id import PublicIdNotFound, idempotency, lookup
from sqlalchemy_public_id.ext import fastapi as for_fastapi
from sqlalchemy_public_id.ext import flask as for_flask
from sqlalchemy_public_id.ext import starlette as for_starlette

OLD_LINKS = for_fastapi.LegacyKeys(up_to=1000, until=date.max)
UNKNOWN = {
    User: "strangeusr_000000000000",
    Ticket: "strangetkt_000000000000",
    Organization: "strangeorg_000000000000",
}


# --- what the views of all frameworks do


def list_users(session: Session, after: str | None, before: str | None, sort: str | None) -> list[str]:
    order_by = User.nickname if sort else None
    return [
        user.public_id for user in lookup.page(session, User, limit=5, after=after, before=before, order_by=order_by)
    ]


def list_tickets(session: Session, assignee: str) -> list[str]:
    assigned = select(Ticket).where(Ticket.assignee_public_id == assignee)
    return [ticket.public_id for ticket in lookup.page(session, assigned, limit=5)]


def new_ticket(session: Session, assignee: str) -> Ticket:
    key = session.info["organization_id"]
    ticket = Ticket(organization_id=key, title="new", assignee_public_id=assignee)
    session.add(ticket)
    return ticket


def add_ticket(session: Session, assignee: str) -> str:
    ticket = new_ticket(session, assignee)
    session.flush()
    return ticket.public_id


def preview_ticket(session: Session, assignee: str) -> str | None:
    with session.no_autoflush:
        return new_ticket(session, assignee).assignee_card


def find_anything(session: Session, text: str) -> str:
    row = lookup.resolve(session, text)
    if row is None:
        raise PublicIdNotFound(text, model="row")
    return str(row.name)


def put_user(session: Session, text: str) -> str:
    guess = User(public_id=text, organization_id=session.info["organization_id"], name="theirs")
    row, _ = idempotency.insert_once(session, guess)
    return str(row.nickname)


# --- the frameworks

Open = Callable[[], Session]
Ask = Callable[..., tuple[int, str]]
"""Sends a request: method, path and body; returns status and text."""


def through_asgi(app: Any) -> Ask:
    def ask(method: str, path: str, json: Any = None) -> tuple[int, str]:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, json=json)

        answer = asyncio.run(send())
        return answer.status_code, answer.text

    return ask


def with_fastapi(open_session: Open) -> Ask:
    def get_session() -> Iterator[Session]:
        with open_session() as session:
            yield session

    app = FastAPI()
    for_fastapi.install(app)
    Own = Annotated[Session, Depends(get_session)]
    row = for_fastapi.by_public_id(User, session=get_session, legacy_keys=OLD_LINKS, attribute="public_id")
    page = for_fastapi.page_of(User, session=get_session, sort=["nickname"], attribute="public_id")

    @app.get("/users/{user_id}")
    def show(user: Annotated[Any, Depends(row)]) -> str:
        return str(user.name)

    @app.get("/users")
    def users(page: Annotated[Any, Depends(page)]) -> list[str]:
        return [user.public_id for user in page]

    @app.put("/users/{text}")
    def put(session: Own, text: str) -> str:
        return put_user(session, text)

    @app.get("/tickets")
    def tickets(session: Own, assignee: str) -> list[str]:
        return list_tickets(session, assignee)

    @app.post("/tickets")
    def add(session: Own, assignee: Annotated[str, Body(embed=True)]) -> str:
        return add_ticket(session, assignee)

    @app.post("/preview")
    def preview(session: Own, assignee: Annotated[str, Body(embed=True)]) -> str | None:
        return preview_ticket(session, assignee)

    @app.get("/any/{text}")
    def anything(session: Own, text: str) -> str:
        return find_anything(session, text)

    return through_asgi(app)


def with_flask(open_session: Open) -> Ask:
    app = Flask("strangers")
    for_flask.install(app)

    @app.get("/users/<text>")
    def show(text: str) -> Any:
        with open_session() as session:
            found = for_flask.get_or_404(session, User, text, legacy_keys=OLD_LINKS, attribute="public_id")
            return jsonify(found.name)

    @app.get("/users")
    def users() -> Any:
        with open_session() as session:
            return jsonify(list_users(session, *map(request.args.get, ("after", "before", "sort"))))

    @app.put("/users/<text>")
    def put(text: str) -> Any:
        with open_session() as session:
            return jsonify(put_user(session, text))

    @app.get("/tickets")
    def tickets() -> Any:
        with open_session() as session:
            return jsonify(list_tickets(session, request.args["assignee"]))

    @app.post("/tickets")
    def add() -> Any:
        with open_session() as session:
            return jsonify(add_ticket(session, request.json["assignee"]))  # type: ignore[index]

    @app.post("/preview")
    def preview() -> Any:
        with open_session() as session:
            return jsonify(preview_ticket(session, request.json["assignee"]))  # type: ignore[index]

    @app.get("/any/<text>")
    def anything(text: str) -> Any:
        with open_session() as session:
            return jsonify(find_anything(session, text))

    client = app.test_client()

    def ask(method: str, path: str, json: Any = None) -> tuple[int, str]:
        answer = client.open(path, method=method, json=json)
        return answer.status_code, answer.text

    return ask


def with_litestar(open_session: Open) -> Ask:
    litestar = pytest.importorskip("litestar")
    from litestar.di import NamedDependency, Provide
    from litestar.params import FromPath, FromQuery, JSONBody

    from sqlalchemy_public_id.ext.litestar import PublicIdPlugin, by_public_id

    async def provide_session() -> AsyncIterator[Session]:
        with open_session() as session:
            yield session

    row = by_public_id(User, legacy_keys=OLD_LINKS, attribute="public_id")

    @litestar.get("/users/{user_id:str}", dependencies={"user": row})
    async def show(user: NamedDependency[Any]) -> str:
        return str(user.name)

    @litestar.get("/users")
    async def users(
        db_session: NamedDependency[Any],
        after: FromQuery[str | None] = None,
        before: FromQuery[str | None] = None,
        sort: FromQuery[str | None] = None,
    ) -> list[str]:
        return list_users(db_session, after, before, sort)

    @litestar.put("/users/{text:str}")
    async def put(db_session: NamedDependency[Any], text: FromPath[str]) -> str:
        return put_user(db_session, text)

    @litestar.get("/tickets")
    async def tickets(db_session: NamedDependency[Any], assignee: FromQuery[str]) -> list[str]:
        return list_tickets(db_session, assignee)

    @litestar.post("/tickets")
    async def add(db_session: NamedDependency[Any], data: JSONBody[dict[str, str]]) -> str:
        return add_ticket(db_session, data["assignee"])

    @litestar.post("/preview")
    async def preview(db_session: NamedDependency[Any], data: JSONBody[dict[str, str]]) -> str | None:
        return preview_ticket(db_session, data["assignee"])

    @litestar.get("/any/{text:str}")
    async def anything(db_session: NamedDependency[Any], text: FromPath[str]) -> str:
        return find_anything(db_session, text)

    app = litestar.Litestar(
        [show, users, put, tickets, add, preview, anything],
        dependencies={"db_session": Provide(provide_session)},
        plugins=[PublicIdPlugin()],
    )
    return through_asgi(app)


def with_starlette(open_session: Open) -> Ask:
    find_user = for_starlette.by_public_id(User, legacy_keys=OLD_LINKS, attribute="public_id")

    async def show(request: Request) -> JSONResponse:
        with open_session() as session:
            return JSONResponse((await find_user(request, session)).name)

    def users(request: Request) -> JSONResponse:
        with open_session() as session:
            return JSONResponse(list_users(session, *map(request.query_params.get, ("after", "before", "sort"))))

    def put(request: Request) -> JSONResponse:
        with open_session() as session:
            return JSONResponse(put_user(session, request.path_params["user_id"]))

    def tickets(request: Request) -> JSONResponse:
        with open_session() as session:
            return JSONResponse(list_tickets(session, request.query_params["assignee"]))

    async def add(request: Request) -> JSONResponse:
        with open_session() as session:
            return JSONResponse(add_ticket(session, (await request.json())["assignee"]))

    async def preview(request: Request) -> JSONResponse:
        with open_session() as session:
            return JSONResponse(preview_ticket(session, (await request.json())["assignee"]))

    def anything(request: Request) -> JSONResponse:
        with open_session() as session:
            return JSONResponse(find_anything(session, request.path_params["text"]))

    app = Starlette(
        routes=[
            Route("/users/{user_id}", show),
            Route("/users/{user_id}", put, methods=["PUT"]),
            Route("/users", users),
            Route("/tickets", tickets),
            Route("/tickets", add, methods=["POST"]),
            Route("/preview", preview, methods=["POST"]),
            Route("/any/{text}", anything),
        ]
    )
    for_starlette.install(app)
    return through_asgi(app)


FRAMEWORKS = {"fastapi": with_fastapi, "flask": with_flask, "litestar": with_litestar, "starlette": with_starlette}


# --- the requests

IN_PATHS: dict[str, tuple[str, str, Any]] = {
    "get": ("GET", "/users/{}", User),
    "old link": ("GET", "/users/{}", None),
    "after": ("GET", "/users?after={}", User),
    "before": ("GET", "/users?before={}", User),
    "sort, after": ("GET", "/users?sort=nickname&after={}", User),
    "sort, before": ("GET", "/users?sort=nickname&before={}", User),
    "filter": ("GET", "/tickets?assignee={}", User),
    "resolve a user": ("GET", "/any/{}", User),
    "resolve an organization": ("GET", "/any/{}", Organization),
    "resolve a ticket": ("GET", "/any/{}", Ticket),
    "reference": ("POST", "/tickets", User),
    "other id": ("POST", "/preview", User),
}
"""Request → method, path, and the model of the id in it; None for a key."""


class Organizations:
    """An application for clients of one organization, and the rows of the other."""

    def __init__(self, ask: Ask, engine: Engine, keys: Keys) -> None:
        self.ask = ask
        _, theirs = keys
        self.ids: dict[Any, str] = {}
        with Session(engine) as session:
            for model in UNKNOWN:
                is_theirs = model.id == theirs if model is Organization else model.organization_id == theirs
                row = session.scalars(select(model).where(is_theirs)).one()
                self.ids[model] = row.public_id
                if model is User:
                    self.ids[None], self.card = str(row.id), row.card

    def answer(self, method: str, path: str, text: str) -> tuple[int, str]:
        status, body = self.ask(method, path.format(text), {"assignee": text} if method == "POST" else None)
        return status, body.replace(text, "{}")


@pytest.fixture(params=FRAMEWORKS)
def organizations(
    request: pytest.FixtureRequest, engine: Engine, create: Callable[[MetaData], None], how: str
) -> Iterator[Organizations]:
    create(Base.metadata)
    keys = fill(engine)
    with ExitStack() as stack:
        is_secured = how == "row-level security"
        used = stack.enter_context(row_level_security(engine)) if is_secured else engine

        def open_session() -> Session:
            session = Session(used)
            if is_secured:
                enter(session, keys[0])
            else:
                limit(session, keys[0], CRITERIA[how])
            return session

        yield Organizations(FRAMEWORKS[request.param](open_session), engine, keys)


def hidden_by(*ways: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("how", ways)


@hidden_by("class", "base")
@pytest.mark.parametrize("what", IN_PATHS)
def test_ids_of_a_stranger(organizations: Organizations, statements: list[str], how: str, what: str) -> None:
    """An id of another organization gets the answer of an unknown id, after as many statements."""
    method, path, model = IN_PATHS[what]
    answers = []
    for text in (organizations.ids[model], UNKNOWN.get(model, "999")):
        statements.clear()
        answers.append((*organizations.answer(method, path, text), len(statements)))

    assert answers[0] == answers[1]
    assert answers[0][0] in ({200} if what == "filter" else {400, 404, 422})


@pytest.mark.backend
@on("postgresql")
@hidden_by("row-level security")
def test_ids_of_a_stranger_with_row_level_security(organizations: Organizations, how: str) -> None:
    """If the database hides the rows, an id of another organization gets the answer of an unknown id."""
    for method, path, model in IN_PATHS.values():
        theirs, unknown = (
            organizations.answer(method, path, text) for text in (organizations.ids[model], UNKNOWN.get(model, "999"))
        )
        assert theirs == unknown


@hidden_by("class", "base")
def test_repeated_inserts(organizations: Organizations, how: str) -> None:
    """An insert with the id of another organization is a conflict that names no attribute, also if a guess is right."""
    status, text = organizations.answer("PUT", "/users/{}", organizations.ids[User])

    assert status == 409
    assert "name" not in text
    assert "theirs" not in text


@hidden_by("class", "base")
def test_pages(organizations: Organizations, how: str) -> None:
    """A page contains no row of another organization, sorted or not."""
    for path in ("/users", "/users?sort=nickname"):
        status, text = organizations.ask("GET", path)
        assert status == 200
        assert text.count("strangeusr_") == 1
        assert organizations.ids[User] not in text
