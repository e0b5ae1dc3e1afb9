"""Rows for path parameters in four frameworks, and old links with integer keys until a given day."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from flask import Flask
from sqlalchemy import Engine, Integer, MetaData, String, TypeDecorator, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, load_only, mapped_column
from sqlalchemy.pool import StaticPool
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Route
from support.web_requests import asked

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdMixin, public_id_column
from sqlalchemy_public_id.ext import fastapi, flask, starlette
from sqlalchemy_public_id.ext.fastapi import LegacyKeys

OPEN = LegacyKeys(up_to=20, until=date(9999, 6, 1), since=date(2026, 11, 1))
CLOSED = LegacyKeys(up_to=20, until=date(2020, 6, 1))


class Base(DeclarativeBase):
    metadata = MetaData()


class Sailor(PublicIdMixin, Base):
    """Has two public ids."""

    __tablename__ = "sailor"
    code: Mapped[str] = public_id_column(NanoId(length=6, prefix="pathcode"))
    name: Mapped[str] = mapped_column(String(50))
    ship: Mapped[str] = mapped_column(String(50), default="Argo")


class Buoy(PublicIdMixin, Base):
    """Its ids consist of digits, like keys."""

    __tablename__ = "buoy"
    __public_id__ = NanoId(length=1, alphabet="0123456789")


class Anchor(Base):
    """The column of its key has another name than the attribute."""

    __tablename__ = "anchor"
    id: Mapped[int] = mapped_column("number", primary_key=True)
    public_id: Mapped[str] = public_id_column()


class Flag(Base):
    """Its key is not an integer."""

    __tablename__ = "flag"
    code: Mapped[str] = mapped_column(String(5), primary_key=True)
    public_id: Mapped[str] = public_id_column()


class Number(TypeDecorator[int]):
    impl = Integer
    cache_ok = True


class Serial(TypeDecorator[int]):
    impl = Number
    cache_ok = True


class Wreck(Base):
    """The type of its key is a ``TypeDecorator`` of one of an integer."""

    __tablename__ = "wreck"
    number: Mapped[int] = mapped_column(Serial, primary_key=True)
    public_id: Mapped[str] = public_id_column()


Answer = tuple[int, Any, Any]
CODES = {5: "pathcode_000005", 20: "pathcode_000020", 21: "pathcode_000021"}


@pytest.fixture
def session() -> Iterator[Session]:
    """Yield a session with sailors that have the keys 5, 20 and 21, and three buoys whose ids are not their keys."""
    engine: Engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Sailor(id=key, code=code, name=f"s{key}") for key, code in CODES.items()])
        session.add_all([Buoy(id=5, public_id="7"), Buoy(id=7, public_id="5"), Buoy(id=9, public_id="8")])
        session.commit()
        yield session
    engine.dispose()


def shown(row: Any) -> dict[str, Any]:
    """Return the key of *row*, and its name and ship if they are loaded."""
    return {"id": row.id, **{name: value for name, value in vars(row).items() if name in ("name", "ship")}}


def asking(app: Any) -> Callable[[str], Answer]:
    def ask(text: str) -> Answer:
        (answer,) = asked(app, f"/rows/{text}")
        return answer.status_code, answer.json(), answer.headers

    return ask


def app_of_fastapi(session: Session, model: Any, scope: Any = None, **options: Any) -> FastAPI:
    app = FastAPI()
    fastapi.install(app)
    given = None if scope is None else lambda: scope
    row = fastapi.by_public_id(model, session=lambda: session, param="id", scope=given, **options)

    def show(row: Any) -> dict[str, Any]:
        return shown(row)

    show.__annotations__["row"] = Annotated[Any, Depends(row)]  # a postponed annotation could not refer to a local name
    app.get("/rows/{id}")(show)
    return app


def of_fastapi(session: Session, model: Any, **options: Any) -> Callable[[str], Answer]:
    return asking(app_of_fastapi(session, model, **options))


def of_starlette(session: Session, model: Any, scope: Any = None, **options: Any) -> Callable[[str], Answer]:
    find = starlette.by_public_id(model, param="id", **options)

    async def show(request: Request) -> JSONResponse:
        return JSONResponse(shown(await find(request, session, where=scope)))

    app = Starlette(routes=[Route("/rows/{id}", show)])
    starlette.install(app)
    return asking(app)


def of_flask(session: Session, model: Any, scope: Any = None, **options: Any) -> Callable[[str], Answer]:
    app = Flask("boats")
    names = {name: options[name] for name in ("attribute", "legacy_keys") if name in options}
    flask.register(app, model, name="row", **names)

    @app.get("/rows/<row:text>")
    def show(text: str) -> dict[str, Any]:
        return shown(flask.get_or_404(session, model, text, where=scope, **options))

    client = app.test_client()

    def ask(text: str) -> Answer:
        answer = client.get(f"/rows/{text}")
        return answer.status_code, answer.json, answer.headers

    return ask


def app_of_litestar(session: Session, model: Any, scope: Any = None, **options: Any) -> Any:
    pytest.importorskip("litestar")
    from litestar import Litestar, get
    from litestar.di import NamedDependency, Provide

    from sqlalchemy_public_id.ext import litestar

    async def show(row: Any) -> dict[str, Any]:
        return shown(row)

    dependency: Any = NamedDependency
    show.__annotations__["row"] = dependency[Any]
    handler: Any = get("/rows/{id:str}")(show)
    name = None if scope is None else "own"
    dependencies = {
        "row": litestar.by_public_id(model, param="id", scope=name, **options),
        "db_session": Provide(lambda: session, sync_to_thread=False),
        "own": Provide(lambda: scope, sync_to_thread=False),
    }
    return Litestar([handler], plugins=[litestar.PublicIdPlugin()], dependencies=dependencies, logging_config=None)


def of_litestar(session: Session, model: Any, **options: Any) -> Callable[[str], Answer]:
    return asking(app_of_litestar(session, model, **options))


services = pytest.mark.parametrize("service", [of_fastapi, of_starlette, of_flask, of_litestar])


@services
def test_row(session: Session, service: Any) -> None:
    """The row is the one with this id in ``attribute``; loader options apply, and outside the scope it is a 404."""
    ask = service(
        session, Sailor, attribute="code", options=[load_only(Sailor.name)], scope=Sailor.name.in_(["s5", "s21"])
    )
    public_id = session.get_one(Sailor, 5).public_id
    session.expunge_all()

    assert ask(CODES[5])[:2] == (200, {"id": 5, "name": "s5"})
    assert [ask(text)[0] for text in (CODES[20], "pathcode_unknwn", public_id)] == [404] * 3


@services
def test_old_link(session: Session, service: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A key up to ``up_to`` finds its row; headers tell the last day, and the log records each such request."""
    ask = service(session, Sailor, legacy_keys=OPEN)
    with caplog.at_level(logging.INFO, "sqlalchemy_public_id.ext"):
        found = [ask(text) for text in ("5", "20", "6")]

    assert [status for status, *_ in found] == [200, 200, 404]
    assert [row["id"] for _, row, _ in found[:2]] == [5, 20]
    assert {headers["Sunset"] for *_, headers in found[:2]} == {"Wed, 02 Jun 9999 00:00:00 GMT"}
    assert {headers["Deprecation"] for *_, headers in found[:2]} == {"@1793491200"}
    assert all(headers["Content-Type"].startswith("application/json") for *_, headers in found[:2])
    assert caplog.text.count("a row of Sailor was asked for by its key") == 2


@pytest.mark.parametrize("fails", [False, True], ids=["redirect", "error"])
def test_old_link_of_an_endpoint_that_builds_its_response(session: Session, fails: bool) -> None:
    """In FastAPI, the headers are also in a response that the endpoint returns itself, and in that of its error."""
    app = FastAPI()
    fastapi.install(app)
    row = fastapi.by_public_id(Sailor, session=lambda: session, param="id", legacy_keys=OPEN)

    def move(row: Any) -> RedirectResponse:
        if fails:
            raise HTTPException(410)
        return RedirectResponse("https://example.org", 301)

    move.__annotations__["row"] = Annotated[Any, Depends(row)]
    app.get("/rows/{id}")(move)
    old, new = asked(app, "/rows/5", f"/rows/{session.get_one(Sailor, 5).public_id}")

    assert {old.status_code, new.status_code} == {410 if fails else 301}
    assert old.headers.get_list("Sunset") == ["Wed, 02 Jun 9999 00:00:00 GMT"]
    assert old.headers.get_list("Deprecation") == ["@1793491200"]
    assert "Sunset" not in new.headers


@pytest.mark.parametrize("install", [fastapi.install, starlette.install])
def test_mounted_application_without_headers(install: Any) -> None:
    """An application that is mounted may answer without headers, which ASGI leaves out then."""

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    app = FastAPI() if install is fastapi.install else Starlette()
    app.mount("/mounted", mounted)
    install(app)

    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/mounted/", "root_path": "", "query_string": b"", "headers": []}
    asyncio.run(app(scope, receive, send))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


@services
def test_public_id(session: Session, service: Any) -> None:
    """A public id finds its row, and the response has no deprecation headers."""
    sailor = session.get_one(Sailor, 21)
    status, row, headers = service(session, Sailor, legacy_keys=OPEN)(sailor.public_id)

    assert (status, row["id"]) == (200, 21)
    assert "Sunset" not in headers
    assert "Deprecation" not in headers


@services
def test_no_old_link(session: Session, service: Any) -> None:
    """A later key, an invalid number, a row outside the scope, and any key after the last day are a 404."""
    ask = service(session, Sailor, legacy_keys=OPEN, scope=Sailor.name != "s20")
    texts = ["21", "20", "0", "05", "-5", "%D9%A5", "5.0", "9" * 5000, "5%0A", "+5", "5_0"]

    assert {text: ask(text)[0] for text in texts} == dict.fromkeys(texts, 404)
    assert service(session, Sailor, legacy_keys=CLOSED)("5")[0] == 404


@services
def test_key_column_of_another_name(session: Session, service: Any) -> None:
    """The key of an old link is an attribute of the model, whatever its column is called."""
    session.add(Anchor(id=3))
    session.commit()

    status, row, _ = service(session, Anchor, legacy_keys=OPEN)("3")

    assert (status, row["id"]) == (200, 3)


@services
def test_format_of_digits(session: Session, service: Any) -> None:
    """A value that the format accepts is a public id, even if it could be a key."""
    ask = service(session, Buoy, legacy_keys=OPEN)

    assert [(status, row["id"]) for status, row, _ in map(ask, ("7", "5"))] == [(200, 5), (200, 7)]
    assert ask("9")[0] == 404


def test_last_day() -> None:
    """Old links work until the end of the last day, in UTC."""
    today = datetime.now(timezone.utc).date()

    assert LegacyKeys(up_to=9, until=today).key_in("5") == 5
    assert LegacyKeys(up_to=9, until=today - timedelta(days=1)).key_in("5") is None


def test_old_links_for_ever() -> None:
    """With ``date.max``, old links always work, and no header announces an end."""
    keys = LegacyKeys(up_to=9, until=date.max)

    assert keys.key_in("5") == 5
    assert keys.headers == {"Deprecation": "@0"}


@pytest.mark.parametrize("options", [{"up_to": 0}, {"up_to": True}, {"until": "2027-06-01"}, {"since": 2026}], ids=str)
def test_mistakes(options: dict[str, Any]) -> None:
    """An invalid number or date raises an error that says what was expected."""
    with pytest.raises(ConfigurationError, match="expected a"):
        LegacyKeys(**{"up_to": 9, "until": date(2027, 6, 1), **options})


def test_other_keys() -> None:
    """A model without a single integer key, and ``malformed=422``, are rejected when the dependency is built."""
    assert fastapi.by_public_id(Wreck, session=lambda: None, legacy_keys=OPEN)
    with pytest.raises(ConfigurationError, match="a model with a single integer key"):
        fastapi.by_public_id(Flag, session=lambda: None, legacy_keys=OPEN)
    with pytest.raises(ConfigurationError, match="a model with a single integer key"):
        starlette.by_public_id(Flag, legacy_keys=OPEN)
    litestar = pytest.importorskip("sqlalchemy_public_id.ext.litestar")
    with pytest.raises(ConfigurationError, match="a model with a single integer key"):
        litestar.by_public_id(Flag, legacy_keys=OPEN)
    with pytest.raises(ConfigurationError, match="malformed=422"):
        fastapi.by_public_id(Sailor, session=lambda: None, malformed=422, legacy_keys=OPEN)


def test_documentation(session: Session) -> None:
    """OpenAPI has the pattern of keys, marked as deprecated, beside that of ids, and the 404."""
    operation = app_of_fastapi(session, Sailor, legacy_keys=OPEN).openapi()["paths"]["/rows/{id}"]["get"]
    schema = operation["parameters"][0]["schema"]

    assert [each["pattern"] for each in schema["anyOf"]] == ["^[0-9a-z]{12}$", "^[1-9][0-9]{0,1}$"]
    assert schema["anyOf"][1]["deprecated"] is True
    assert "404" in operation["responses"]


def test_documentation_of_litestar(session: Session) -> None:
    """The OpenAPI document of Litestar combines both patterns into one."""
    app: Any = app_of_litestar(session, Sailor, legacy_keys=OPEN)
    operation = app.openapi_schema.to_schema()["paths"]["/rows/{id}"]["get"]

    assert operation["parameters"][0]["schema"]["pattern"] == "^[0-9a-z]{12}$|^[1-9][0-9]{0,1}$"
