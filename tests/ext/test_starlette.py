"""Starlette without FastAPI: the row in a path, from either kind of session, and answers to errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, MetaData, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from sqlalchemy.pool import StaticPool
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from support.async_sessions import tell
from support.web_requests import asked, asking

from sqlalchemy_public_id import (
    ConfigurationError,
    IdempotencyConflict,
    InvalidCursor,
    InvalidPublicId,
    NanoId,
    PublicIdMixin,
    PublicIdNotFound,
)
from sqlalchemy_public_id.errors import InvalidPage
from sqlalchemy_public_id.ext import fastapi
from sqlalchemy_public_id.ext.starlette import by_public_id, install

ADA, UNKNOWN = "stpilot_0000000000ad", "stpilot_000000000000"


class Base(DeclarativeBase):
    metadata = MetaData()


class Pilot(PublicIdMixin, Base):
    __tablename__ = "pilot"
    __public_id__ = NanoId(prefix="stpilot")
    rank: Mapped[int] = mapped_column(default=1)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Pilot(public_id=ADA))
        session.commit()
    yield engine
    engine.dispose()


def showing(session: Any, find: Any, path: str = "/pilots/{pilot_id}", **options: Any) -> Starlette:
    """Return an application that shows the pilot in *path*, without :func:`install`."""

    async def show(request: Request) -> JSONResponse:
        return JSONResponse({"id": (await find(request, session, **options)).public_id})

    return Starlette(routes=[Route(path, show)])


def raising(app: Any, error: Exception) -> Any:
    async def fail(request: Request) -> None:
        raise error

    app.add_route("/it", fail, methods=["GET", "POST"])
    return app


# --- the row in a path


def test_row(engine: Engine) -> None:
    """The row has the id in the path; an unknown, a malformed id and a key are a 404 without ``install()``, too."""
    with Session(engine) as session:
        app = showing(session, by_public_id(Pilot))
        found, *missing = asked(app, *(f"/pilots/{text}" for text in (ADA, UNKNOWN, "nonsense", "1")))

    assert found.json() == {"id": ADA}
    assert [(each.status_code, each.text) for each in missing] == [(404, "no such Pilot")] * 3


def test_asynchronous_session(async_engine: AsyncEngine) -> None:
    """An ``AsyncSession`` loads the row as a ``Session`` does."""

    async def story(session: Any) -> None:
        session.add(Pilot(public_id=ADA))
        await session.commit()
        app = showing(session, by_public_id(Pilot))
        found, missing = await asking(app, f"/pilots/{ADA}", f"/pilots/{UNKNOWN}")
        assert (found.json(), missing.status_code) == ({"id": ADA}, 404)

    tell(async_engine, Base.metadata, story)


def test_condition(engine: Engine) -> None:
    """A row outside of ``where=`` is a 404, and what is no condition is an error of the program."""
    with Session(engine) as session:
        find = by_public_id(Pilot)
        answers = [asked(showing(session, find, where=Pilot.rank == rank), f"/pilots/{ADA}")[0] for rank in (1, 2)]
        with pytest.raises(ConfigurationError, match="expected a condition"):
            asked(showing(session, find, where=True), f"/pilots/{ADA}")

    assert [each.status_code for each in answers] == [200, 404]


def test_path_without_the_parameter(engine: Engine) -> None:
    """A path without the parameter raises an error that says what to write; ``param=`` names another one."""
    with Session(engine) as session:
        with pytest.raises(ConfigurationError, match=r"has no parameter pilot_id, .*write \{pilot_id\} in the path"):
            asked(showing(session, by_public_id(Pilot), "/p/{id}"), f"/p/{ADA}")
        (found,) = asked(showing(session, by_public_id(Pilot, param="id"), "/p/{id}"), f"/p/{ADA}")

    assert found.status_code == 200


def test_mistakes(engine: Engine) -> None:
    """A model without the public id is refused at once, and a ``scoped_session`` of threads by the first request."""
    with pytest.raises(ConfigurationError, match="has no public id 'code'"):
        by_public_id(Pilot, attribute="code")
    with pytest.raises(ConfigurationError, match="this scoped_session has a session for each thread"):
        asked(showing(scoped_session(sessionmaker(engine)), by_public_id(Pilot)), f"/pilots/{ADA}")


# --- answers to errors


@pytest.mark.parametrize("problem_details", [False, True])
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "error",
    [
        PublicIdNotFound(4711, model="Pilot"),
        PublicIdNotFound(4711, model="Pilot", field="Flight.pilot_public_id"),
        InvalidCursor(4711, model="Pilot", field="after"),
        InvalidPage("limit is 0", field="limit", reason="limit is less than 1"),
        InvalidPublicId(4711, expected="12 of 0-9", reason="it is of type int", field="pilot"),
        IdempotencyConflict("4711", model="Pilot", differing=("rank",)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_answers_are_those_of_fastapi(error: Exception, method: str, problem_details: bool) -> None:
    """Each error has the answer that FastAPI's ``install()`` gives, in either format."""
    answers: list[Any] = []
    installs: list[tuple[Any, Callable[..., None]]] = [(Starlette(), install), (FastAPI(), fastapi.install)]
    for app, install_in in installs:
        install_in(app, problem_details=problem_details)
        answers += asked(raising(app, error), "/it", method=method)
    ours, theirs = answers

    assert ours.status_code in (404, 409, 422)
    assert (ours.status_code, ours.json()) == (theirs.status_code, theirs.json())
    assert ours.headers["content-type"] == theirs.headers["content-type"]


def test_mounted_application() -> None:
    """In a mounted application with ``install()``, errors of its routes are answered; those around it are not."""
    error = PublicIdNotFound(ADA, model="Pilot")
    inner = raising(Starlette(), error)
    install(inner)
    outer = raising(Starlette(routes=[Mount("/inner", inner)]), error)

    assert asked(outer, "/inner/it")[0].json() == {"detail": "no such Pilot"}
    with pytest.raises(PublicIdNotFound):
        asked(outer, "/it")
