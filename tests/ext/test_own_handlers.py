"""Error handlers of the application take precedence over those of the library, in each place that a framework has."""
# annotations are not postponed: FastAPI and Litestar evaluate those of handlers

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from flask import Blueprint, Flask
from sqlalchemy.orm import Session
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from support.members import User
from support.web_requests import asked

from sqlalchemy_public_id import IdempotencyConflict, InvalidCursor, InvalidPublicId, PublicIdNotFound
from sqlalchemy_public_id.errors import AmbiguousPublicId, InvalidPage
from sqlalchemy_public_id.ext import fastapi as for_fastapi
from sqlalchemy_public_id.ext import flask as for_flask
from sqlalchemy_public_id.ext import starlette as for_starlette

ERRORS: dict[str, Exception] = {
    "row": PublicIdNotFound("1", model="User"),
    "unknown": PublicIdNotFound("1", model="User", field="Cat.user_public_id"),
    "cursor": InvalidCursor("1", model="User", field="after"),
    "malformed": InvalidPublicId("1", expected="12 of 0-9", reason="it is too short", field="user"),
    "page": InvalidPage("limit is 0", field="limit", reason="limit is less than 1"),
    "conflict": IdempotencyConflict("1", model="User", differing=("name",)),
    "ambiguous": AmbiguousPublicId(("1",), model="User"),
}
ROW = "/users/nonsense"
"""A path without a row, which ``by_public_id()`` finds out without a query."""


def answer(request: Any, error: Exception) -> PlainTextResponse:
    return PlainTextResponse("own", 418)


def get_session() -> Session:
    return Session()


def answer_of_flask(error: Exception) -> Any:
    return "own", 418


# --- each returns the answers of an application: to an error, and to the path of a missing row


def with_fastapi(error: Exception, handled: type[Exception], place: str) -> list[Any]:
    before = {handled: answer} if place == "before" else {}
    app = FastAPI(exception_handlers=before)

    @app.get("/error")
    def fail() -> None:
        raise error

    @app.get("/users/{user_id}")
    def show(user: Annotated[Any, Depends(for_fastapi.by_public_id(User, session=get_session))]) -> None: ...

    for_fastapi.install(app)
    if place == "after":
        app.add_exception_handler(handled, answer)
    return asked(app, "/error", ROW)


def with_starlette(error: Exception, handled: type[Exception], place: str) -> list[Any]:
    find = for_starlette.by_public_id(User)

    def fail(request: Request) -> PlainTextResponse:
        raise error

    async def show(request: Request) -> None:
        await find(request, Session())

    before: Any = {handled: answer} if place == "before" else {}
    app = Starlette(routes=[Route("/error", fail), Route("/users/{user_id}", show)], exception_handlers=before)
    for_starlette.install(app)
    if place == "after":
        app.add_exception_handler(handled, answer)
    return asked(app, "/error", ROW)


def with_flask(error: Exception, handled: type[Exception], place: str) -> list[Any]:
    app, blueprint = Flask("own"), Blueprint("own", "own")

    def fail() -> str:
        raise error

    blueprint.add_url_rule("/error", view_func=fail)
    blueprint.add_url_rule("/users/<text>", "show", lambda text: for_flask.get_or_404(Session(), User, text).name)
    order, _, part = place.partition(", ")
    own = blueprint if "blueprint" in place else app
    if order in ("before", "blueprint"):
        own.register_error_handler(handled, answer_of_flask)
    for_flask.install(blueprint if part else app)
    if order == "after":
        own.register_error_handler(handled, answer_of_flask)
    app.register_blueprint(blueprint)
    return [app.test_client().get(path) for path in ("/error", ROW)]


def with_litestar(error: Exception, handled: type[Exception], place: str) -> list[Any]:
    litestar = pytest.importorskip("litestar")
    from litestar.di import NamedDependency, Provide

    from sqlalchemy_public_id.ext.litestar import PublicIdPlugin, by_public_id

    def own(request: object, error: Exception) -> Any:
        return litestar.Response("own", status_code=418)

    def handlers(*places: str) -> dict[str, Any]:
        return {"exception_handlers": {handled: own}} if place in places else {}

    @litestar.get("/error", sync_to_thread=False, **handlers("route"))
    def fail() -> None:
        raise error

    @litestar.get("/users/{user_id:str}", sync_to_thread=False, **handlers("route"))
    def show(user: NamedDependency[User]) -> None: ...

    router = litestar.Router("/", route_handlers=[fail, show], **handlers("router"))
    dependencies = {"user": by_public_id(User), "db_session": Provide(get_session, sync_to_thread=False)}
    options = {"dependencies": dependencies, "logging_config": None, **handlers("application", "before")}
    return asked(litestar.Litestar([router], plugins=[PublicIdPlugin()], **options), "/error", ROW)


FRAMEWORKS: dict[str, Callable[..., list[Any]]] = {
    "fastapi": with_fastapi,
    "starlette": with_starlette,
    "flask": with_flask,
    "litestar": with_litestar,
}
PLACES = [
    ("fastapi", "before"),
    ("fastapi", "after"),
    ("starlette", "before"),
    ("starlette", "after"),
    ("flask", "before"),
    ("flask", "after"),
    ("flask", "before, in a blueprint"),
    ("flask", "after, in a blueprint"),
    ("flask", "blueprint"),
    ("litestar", "before"),
    ("litestar", "application"),
    ("litestar", "router"),
    ("litestar", "route"),
]
"""A framework, and where its handlers are: before or after ``install()``, or in a part of the application."""
INSTALLS: dict[str, tuple[Any, Any]] = {
    "fastapi": (FastAPI, for_fastapi.install),
    "starlette": (Starlette, for_starlette.install),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize(("framework", "place"), PLACES)
def test_handler_of_an_error(framework: str, place: str, name: str) -> None:
    """An application's handler of an error answers it, also a missing row in a path, and no other error."""
    error = ERRORS[name]
    own, row = FRAMEWORKS[framework](error, type(error), place)

    assert (own.status_code, own.text) == (418, "own")
    assert row.status_code == (418 if type(error) is PublicIdNotFound else 404)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_handler_of_a_subclass(framework: str) -> None:
    """An application's handler of a more specific error answers it, also if it was there before the library's."""
    own, row = FRAMEWORKS[framework](ERRORS["cursor"], InvalidCursor, "before")

    assert (own.status_code, own.text, row.status_code) == (418, "own", 404)


@pytest.mark.parametrize("framework", INSTALLS)
def test_second_install(framework: str) -> None:
    """A second ``install()`` replaces the handlers of the first one, which are not the application's own."""
    new_app, install = INSTALLS[framework]
    app = new_app()
    install(app)
    install(app, problem_details=True)

    def fail(request: Request) -> PlainTextResponse:
        raise ERRORS["cursor"]

    app.router.routes.append(Route("/error", fail))
    (failed,) = asked(app, "/error")
    assert failed.headers["content-type"] == "application/problem+json"
