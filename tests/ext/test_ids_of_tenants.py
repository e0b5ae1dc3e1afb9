"""Web adapters: the right tenant's row, or an answer that chooses none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from flask import Flask
from litestar import Litestar, get
from litestar.di import NamedDependency, Provide
from sqlalchemy import Engine, MetaData, true
from sqlalchemy.orm import Session
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from support.shared_ids import OF_BOTH, ONLY_THEIRS, OURS, THEIRS, Base, Note, expected, fill, is_of, public_id

from sqlalchemy_public_id.ext import fastapi, flask, litestar, starlette

SCOPES: dict[str, Callable[[], Any]] = {"ours": lambda: is_of(OURS), "any": lambda: true()}


def fastapi_app(engine: Engine, scope: Callable[[], Any]) -> Any:
    def sessions() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    app = FastAPI()
    fastapi.install(app)

    find = Depends(fastapi.by_public_id(Note, session=sessions, scope=scope))

    @app.get("/notes/{note_id}")
    def show(note: Any = find) -> Any:
        return {"text": note.text}

    return app


def starlette_app(engine: Engine, scope: Callable[[], Any]) -> Any:
    find = starlette.by_public_id(Note)

    async def show(request: Request) -> JSONResponse:
        with Session(engine) as session:
            note = await find(request, session, where=scope())
            return JSONResponse({"text": note.text})

    app = Starlette(routes=[Route("/notes/{note_id}", show)])
    starlette.install(app)
    return app


def litestar_app(engine: Engine, scope: Callable[[], Any]) -> Any:
    @get("/notes/{note_id:str}", dependencies={"note": litestar.by_public_id(Note, session="db", scope="condition")})
    async def show(note: NamedDependency[Any]) -> dict[str, Any]:
        return {"text": note.text}

    def session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    provided = {"db": Provide(session), "condition": Provide(scope, sync_to_thread=False)}
    return Litestar([show], dependencies=provided, plugins=[litestar.PublicIdPlugin()], openapi_config=None)


def answer_of_flask(engine: Engine, scope: Callable[[], Any], path: str) -> tuple[int, Any]:
    app = Flask("notes")
    flask.install(app)

    @app.get("/notes/<note_id>")
    def show(note_id: str) -> Any:
        with Session(engine) as session:
            return {"text": flask.get_or_404(session, Note, note_id, where=scope()).text}

    answer = app.test_client().get(path)
    return answer.status_code, answer.json


APPS = {"fastapi": fastapi_app, "starlette": starlette_app, "litestar": litestar_app, "flask": None}


@pytest.mark.parametrize("name", APPS)
def test_shared_ids(
    engine: Engine, create: Callable[[MetaData], None], send: Callable[..., httpx.Response], name: str, caplog: Any
) -> None:
    """With the tenant in the scope, its row or 404; an ambiguous id is a 409 that names no other row, and is logged."""
    create(Base.metadata)
    with Session(engine) as session:
        fill(session)
        session.commit()

    def answer(scope: str, number: int) -> tuple[int, Any]:
        path, make = f"/notes/{public_id(number)}", APPS[name]
        if make is None:
            return answer_of_flask(engine, SCOPES[scope], path)
        found = send(make(engine, SCOPES[scope]), "GET", path)
        return found.status_code, found.json()

    assert answer("ours", OF_BOTH[0]) == (200, {"text": expected(OURS, OF_BOTH[0])})
    assert answer("ours", ONLY_THEIRS[0])[0] == 404
    status, content = answer("any", OF_BOTH[0])
    assert (status, content["detail"]) == (409, "more than one Note has this public id")
    # httpx logs the path of a request, if an earlier test has set its level
    logged = [record.getMessage() for record in caplog.records if record.name == "sqlalchemy_public_id"]
    if name != "litestar":  # which sends records to handlers of its own
        assert "several rows of Note have one public id: name tenant_id in where=" in logged
    assert not [message for message in logged if public_id(OF_BOTH[0]) in message]
    assert answer("any", ONLY_THEIRS[0])[0] == 200


def test_pages(engine: Engine, create: Callable[[MetaData], None], send: Callable[..., httpx.Response]) -> None:
    """Pages of a scope have its rows; a cursor of both tenants is its own row, and one of the other is invalid."""
    create(Base.metadata)
    with Session(engine) as session:
        fill(session)
        session.commit()

    def sessions() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    def app(visible: Any) -> FastAPI:
        def scope() -> Any:
            return visible

        made = FastAPI()
        fastapi.install(made)
        find = Depends(fastapi.page_of(Note, session=sessions, scope=scope, sort=["text"]))

        @made.get("/notes")
        def show(page: Any = find) -> Any:
            return {"texts": [note.text for note in page], "next": page.next}

        return made

    for tenant in (OURS, THEIRS):
        for sort in ("", "&sort=text", "&sort=-text"):
            seen: list[str] = []
            after = ""
            while True:
                answer = send(app(is_of(tenant)), "GET", f"/notes?limit=3{sort}{after}").json()
                seen += answer["texts"]
                if answer["next"] is None:
                    break
                after = f"&after={answer['next']}"
            assert sorted(seen) == sorted(filter(None, (expected(tenant, number) for number in range(30))))
    path = f"/notes?after={public_id(ONLY_THEIRS[0])}"
    unknown = send(app(is_of(OURS)), "GET", path)
    assert unknown.status_code == send(app(is_of(OURS)), "GET", f"/notes?after={public_id(99)}").status_code
    assert unknown.status_code in (400, 422)
    assert send(app(true()), "GET", f"/notes?after={public_id(OF_BOTH[0])}").status_code == 409
