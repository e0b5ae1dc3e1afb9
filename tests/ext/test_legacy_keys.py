"""Old links with integer keys, which web services accept until a day."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from flask import Flask
from sqlalchemy import Engine, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.asking import asked

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdMixin, public_id_column
from sqlalchemy_public_id.ext import fastapi, flask
from sqlalchemy_public_id.ext.fastapi import LegacyKeys

pytestmark = pytest.mark.backend

OPEN = LegacyKeys(up_to=20, until=date(9999, 6, 1), since=date(2026, 11, 1))
CLOSED = LegacyKeys(up_to=20, until=date(2020, 6, 1))


class Base(DeclarativeBase):
    metadata = MetaData()


class Sailor(PublicIdMixin, Base):
    __tablename__ = "sailor"
    name: Mapped[str] = mapped_column(String(50))


class Buoy(PublicIdMixin, Base):
    """Its ids are digits, as keys are."""

    __tablename__ = "buoy"
    __public_id__ = NanoId(length=1, alphabet="0123456789")


class Flag(Base):
    """Its key is no integer."""

    __tablename__ = "flag"
    code: Mapped[str] = mapped_column(String(5), primary_key=True)
    public_id: Mapped[str] = public_id_column()


Answer = tuple[int, Any, Any]


@pytest.fixture
def session(engine: Engine, create: Callable[[MetaData], None]) -> Iterator[Session]:
    """Three sailors with the keys 5, 20 and 21, and three buoys, whose ids are not their keys."""
    create(Base.metadata)
    with Session(engine) as session:
        session.add_all([Sailor(id=key, name=f"s{key}") for key in (5, 20, 21)])
        session.add_all([Buoy(id=5, public_id="7"), Buoy(id=7, public_id="5"), Buoy(id=9, public_id="8")])
        session.commit()
        yield session


def asked_of(app: Any) -> Callable[[str], Answer]:
    def ask(text: str) -> Answer:
        (answer,) = asked(app, f"/rows/{text}")
        return answer.status_code, answer.json(), answer.headers

    return ask


def app_of_fastapi(session: Session, model: Any, keys: LegacyKeys) -> FastAPI:
    app = FastAPI()
    fastapi.install(app)
    row = fastapi.by_public_id(model, session=lambda: session, param="id", legacy_keys=keys)

    def show(found: Any) -> int:
        return int(found.id)

    show.__annotations__["found"] = Annotated[Any, Depends(row)]  # as strings, names of this function are not found
    app.get("/rows/{id}")(show)
    return app


def of_fastapi(session: Session, model: Any, keys: LegacyKeys) -> Callable[[str], Answer]:
    return asked_of(app_of_fastapi(session, model, keys))


def of_flask(session: Session, model: Any, keys: LegacyKeys) -> Callable[[str], Answer]:
    app = Flask("boats")
    flask.register(app, model, name="row", legacy_keys=keys)

    @app.get("/rows/<row:text>")
    def show(text: str) -> dict[str, int]:
        return {"id": flask.get_or_404(session, model, text, legacy_keys=keys).id}

    client = app.test_client()

    def ask(text: str) -> Answer:
        answer = client.get(f"/rows/{text}")
        return answer.status_code, (answer.json or {}).get("id"), answer.headers

    return ask


def of_litestar(session: Session, model: Any, keys: LegacyKeys) -> Callable[[str], Answer]:
    pytest.importorskip("litestar")
    from litestar import Litestar, get
    from litestar.di import NamedDependency, Provide

    from sqlalchemy_public_id.ext import litestar

    async def show(found: Any) -> int:
        return int(found.id)

    dependency: Any = NamedDependency
    show.__annotations__["found"] = dependency[Any]
    handler: Any = get("/rows/{id:str}")(show)
    row = litestar.by_public_id(model, param="id", legacy_keys=keys)
    sessions = Provide(lambda: session, sync_to_thread=False)
    dependencies = {"found": row, "db_session": sessions}
    app = Litestar([handler], plugins=[litestar.PublicIdPlugin()], dependencies=dependencies, logging_config=None)
    return asked_of(app)


SERVICES = pytest.mark.parametrize("service", [of_fastapi, of_flask, of_litestar])


@SERVICES
def test_old_link(session: Session, service: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A key of a row from before finds the row; the answer says until when, and the log counts such links."""
    ask = service(session, Sailor, OPEN)
    with caplog.at_level(logging.INFO, "sqlalchemy_public_id.ext"):
        found = [ask(text) for text in ("5", "20")]

    assert [(status, key) for status, key, _ in found] == [(200, 5), (200, 20)]
    assert {headers["Sunset"] for *_, headers in found} == {"Wed, 02 Jun 9999 00:00:00 GMT"}
    assert {headers["Deprecation"] for *_, headers in found} == {"@1793491200"}
    assert "a row of Sailor was asked for by its key" in caplog.text


@SERVICES
def test_public_id(session: Session, service: Any) -> None:
    """A public id finds its row, and its answer says nothing of old links."""
    sailor = session.get_one(Sailor, 21)
    status, key, headers = service(session, Sailor, OPEN)(sailor.public_id)

    assert (status, key) == (200, 21)
    assert "Sunset" not in headers
    assert "Deprecation" not in headers


@SERVICES
def test_no_old_link(session: Session, service: Any) -> None:
    """A later key, one without a row, what is no number, and after the last day every key, is 404."""
    ask = service(session, Sailor, OPEN)
    texts = ["21", "6", "0", "05", "-5", "%D9%A5", "5.0", "9" * 5000, "5%0A", "+5", "5_0"]

    assert {text: ask(text)[0] for text in texts} == dict.fromkeys(texts, 404)
    assert service(session, Sailor, CLOSED)("5")[0] == 404


@SERVICES
def test_format_of_digits(session: Session, service: Any) -> None:
    """What the format accepts is a public id, also if it has the digits of a key."""
    ask = service(session, Buoy, OPEN)

    assert [ask(text)[:2] for text in ("7", "5")] == [(200, 5), (200, 7)]
    assert ask("9")[0] == 404


def test_last_day() -> None:
    """The last day counts, in UTC."""
    today = date.today()

    assert LegacyKeys(up_to=9, until=today + timedelta(days=1)).key_in("5") == 5
    assert LegacyKeys(up_to=9, until=today - timedelta(days=2)).key_in("5") is None


@pytest.mark.parametrize("options", [{"up_to": 0}, {"up_to": True}, {"until": "2027-06-01"}, {"since": 2026}], ids=str)
def test_mistakes(options: dict[str, Any]) -> None:
    """What is no number, or no day, is an error that says what was expected."""
    with pytest.raises(ConfigurationError, match="expected a"):
        LegacyKeys(**{"up_to": 9, "until": date(2027, 6, 1), **options})


def test_other_keys() -> None:
    """A model whose key is no integer, and a status that refuses old links, are errors when the dependency is built."""
    with pytest.raises(ConfigurationError, match="a model with a single integer key"):
        fastapi.by_public_id(Flag, session=lambda: None, legacy_keys=OPEN)
    with pytest.raises(ConfigurationError, match="malformed=422"):
        fastapi.by_public_id(Sailor, session=lambda: None, malformed=422, legacy_keys=OPEN)


def test_documentation(session: Session) -> None:
    """OpenAPI has the pattern of the keys beside that of the ids, as deprecated, and the 404."""
    app = app_of_fastapi(session, Sailor, OPEN)
    operation = app.openapi()["paths"]["/rows/{id}"]["get"]
    schema = operation["parameters"][0]["schema"]

    assert [each["pattern"] for each in schema["anyOf"]] == ["^[0-9a-z]{12}$", "^[1-9][0-9]{0,1}$"]
    assert schema["anyOf"][1]["deprecated"] is True
    assert "404" in operation["responses"]
