"""Flask: public ids in URLs, and the row of a public id or a 404."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Blueprint, Flask, jsonify, url_for
from flask.testing import FlaskClient
from sqlalchemy import Engine, MetaData, String
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

from sqlalchemy_public_id import (
    ConfigurationError,
    InvalidPublicId,
    NanoId,
    PublicIdMixin,
    PublicIdNotFound,
    TypedId,
    Uuid7,
    bigint_key,
    lookup,
    public_id_column,
)
from sqlalchemy_public_id.ext.flask import get_or_404, install, register
from sqlalchemy_public_id.formats import BASE36


class Base(DeclarativeBase):
    metadata = MetaData()


class PilotId(TypedId, prefix="flpilot"): ...


class Pilot(PublicIdMixin[PilotId], Base):
    __tablename__ = "pilot"
    name: Mapped[str] = mapped_column(String(50))


class Plane(PublicIdMixin, Base):
    """Its ids are stored as numbers."""

    __tablename__ = "plane"
    __public_id__ = Uuid7(prefix="flplane")


class Badge(Base):
    """Has two public ids."""

    __tablename__ = "badge"
    id: Mapped[int] = bigint_key()
    front: Mapped[str] = public_id_column(NanoId(prefix="front"))
    back: Mapped[str] = public_id_column(NanoId(prefix="back"))


ADA, UNKNOWN = "flpilot_0000000000ad", "flpilot_zzzzzzzzzzzz"

MALFORMED = [
    *("1", "flpilot_", "flpilot_0000000000AD", f"{ADA}0", f"{ADA}%0A", f"%20{ADA}", "%00", "flpilot_0000000000a%2F"),
    "a" * 5000,
]


@pytest.fixture
def app() -> Flask:
    """Return an application whose views return their argument and its type."""
    app = Flask("airport")
    register(app, Pilot, name="pilot_id")
    register(app, Plane, name="plane_id")

    @app.get("/<pilot_id:pilot>")
    def show_pilot(pilot: str) -> dict[str, str]:
        return {"kind": type(pilot).__name__, "id": pilot}

    @app.get("/<plane_id:plane>")
    def show_plane(plane: str) -> dict[str, str]:
        return {"kind": type(plane).__name__, "id": plane}

    return app


@pytest.fixture
def client(app: Flask) -> Iterator[FlaskClient]:
    with app.test_client() as client:
        yield client


# --- the converter


def test_two_rules_of_one_form(client: FlaskClient) -> None:
    """The prefix of an id selects the view, which gets the id as text or as a typed id."""
    plane = Plane.__public_id__.generate()

    assert client.get(f"/{ADA}").json == {"kind": "PilotId", "id": ADA}
    assert client.get(f"/{plane}").json == {"kind": "str", "id": plane}


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_ids_are_not_found(client: FlaskClient, text: str) -> None:
    """A malformed id is a 404, and no view is called."""
    assert client.get(f"/{text}").status_code == 404


def test_url_for(app: Flask) -> None:
    """``url_for()`` accepts an id, as text or typed, and an object of the model."""
    pilot = Pilot(name="Ada", public_id=ADA)
    with app.test_request_context():
        urls = {url_for("show_pilot", pilot=value) for value in (ADA, PilotId(ADA), pilot)}

    assert urls == {f"/{ADA}"}


@pytest.mark.parametrize("value", [1, "1", "flplane_1", b"flpilot_0000000000ad", Plane(), Pilot])
def test_url_for_refuses_what_is_no_id(app: Flask, value: Any) -> None:
    """``url_for()`` raises for an integer key, and for any other value that is not an id of the model."""
    with app.test_request_context(), pytest.raises(InvalidPublicId):
        url_for("show_pilot", pilot=value)


def test_a_wrong_check_digit_is_not_found() -> None:
    """An id that matches the pattern but has a wrong check digit is a 404."""
    app, format = Flask("airport"), NanoId(check_digit=True)
    register(app, format, name="ticket")
    app.add_url_rule("/<ticket:public_id>", view_func=lambda public_id: public_id, endpoint="show")
    text = format.generate()
    wrong = text[:-1] + BASE36[BASE36.index(text[-1]) - 1]

    assert app.test_client().get(f"/{text}").text == text
    assert app.test_client().get(f"/{wrong}").status_code == 404


@pytest.mark.parametrize(
    ("source", "accepted"),
    [
        (NanoId(length=5).accepting(NanoId(length=3), NanoId(prefix="old", length=2)), ["abcde", "abc", "old_ab"]),
        (NanoId(alphabet="a/b", length=3), ["a/b", "bbb"]),
        (NanoId(alphabet="^$?+*()[]{}|\\-", length=2), ["^$", "[]", "()", "|\\", "?+", "-]"]),
        (PilotId, [ADA]),
    ],
    ids=repr,
)
def test_every_source(source: Any, accepted: list[str]) -> None:
    """Formats with any alphabet or with older formats, and typed ids, are accepted; a URL leads back to its id."""
    app = Flask("airport")
    register(app, source, name="thing")
    app.add_url_rule("/things/<thing:public_id>/edit", view_func=lambda public_id: jsonify(public_id), endpoint="edit")
    with app.test_request_context():
        urls = [url_for("edit", public_id=text) for text in accepted]

    assert [app.test_client().get(url).json for url in urls] == accepted
    assert app.test_client().get("/things/nonsense-/edit").status_code == 404


def test_several_public_ids() -> None:
    """If a model has several public ids, ``attribute`` names one, which ``url_for()`` reads from an object."""
    app, badge = Flask("airport"), Badge(front="front_000000000000", back="back_000000000000")
    register(app, Badge, name="badge", attribute="back")
    app.add_url_rule("/<badge:public_id>", view_func=lambda public_id: public_id, endpoint="show")
    with app.test_request_context():
        assert url_for("show", public_id=badge) == "/back_000000000000"
    with pytest.raises(ConfigurationError, match="name one of front, back"):
        register(app, Badge, name="other")


def test_blueprints() -> None:
    """A blueprint uses the converters of the application that registers it."""
    app, blueprint = Flask("airport"), Blueprint("pilots", "airport", url_prefix="/pilots")
    blueprint.add_url_rule("/<pilot_id:public_id>", view_func=lambda public_id: public_id, endpoint="show")
    register(app, Pilot, name="pilot_id")
    app.register_blueprint(blueprint)

    assert app.test_client().get(f"/pilots/{ADA}").text == ADA


def test_mistaken_registrations(app: Flask) -> None:
    """``register()`` rejects an invalid or taken name, a source without public ids, and anything but an application."""
    for name in ("int", "pilot_id", "", "pilot id", None):
        with pytest.raises(ConfigurationError, match="name"):
            register(app, Pilot, name=name)
    for source in (str, TypedId, "pilot", None, Base):
        with pytest.raises(ConfigurationError):
            register(app, source, name="new")
    with pytest.raises(TypeError, match="expected a Flask application, not Blueprint"):
        register(Blueprint("pilots", "airport"), Pilot, name="new")


# --- rows


def test_rows(engine: Engine, create: Callable[[MetaData], None], statements: list[str]) -> None:
    """``get_or_404()`` finds a row, or responds with a 404, with one statement; a malformed id takes none.

    A connection, which would return a key, is rejected.
    """
    create(Base.metadata)
    db = scoped_session(sessionmaker(engine))
    db.add(Pilot(name="Ada", public_id=ADA))
    db.commit()
    db.remove()
    app = Flask("airport")
    app.add_url_rule("/<path:text>", "show", lambda text: get_or_404(db, Pilot, text).name)
    client, counts = app.test_client(), []
    for text in (ADA, UNKNOWN, "1", "a/b", "%00", "x" * 5000):
        statements.clear()
        counts.append((client.get(f"/{text}").status_code, len(statements)))
    db.remove()

    assert counts == [(200, 1), (404, 1), *[(404, 0)] * 4]
    with engine.connect() as connection, pytest.raises(TypeError, match="expected a Session"):
        get_or_404(connection, Pilot, ADA)


# --- errors


@pytest.fixture
def airport(engine: Engine, create: Callable[[MetaData], None]) -> Flask:
    """Return an application whose views raise the errors of the library."""
    create(Base.metadata)
    app = Flask("airport")
    db = scoped_session(sessionmaker(engine))
    app.teardown_appcontext(lambda error: db.remove())
    app.add_url_rule("/row/<text>", "row", lambda text: get_or_404(db, Pilot, text).name)
    app.add_url_rule("/one/<text>", "one", lambda text: lookup.get_one(db, Pilot, text).name)
    app.add_url_rule("/page/<int:limit>", "page", lambda limit: [*lookup.page(db, Pilot, limit=limit)])
    return app


def test_answers_of_install(airport: Flask) -> None:
    """``install()`` answers a missing row with 404 and a wrong limit with 422, as JSON, without the id."""
    install(airport)
    client = airport.test_client()
    rows = [client.get(f"/{way}/{text}") for way in ("row", "one") for text in (UNKNOWN, "nonsense")]

    assert [(row.status_code, row.json) for row in rows] == [(404, {"detail": "no such Pilot"})] * 4
    limit = client.get("/page/0")
    expected = "expected a whole number from 1 to 2147483646"
    assert (limit.status_code, limit.json) == (
        422,
        {"detail": [{"type": "page_invalid", "loc": ["query", "limit"], "msg": expected}]},
    )


def test_row_without_install(airport: Flask) -> None:
    """Without ``install()``, ``get_or_404()`` answers 404 with Flask's own page, and other errors are a 500."""
    client = airport.test_client()
    row = client.get(f"/row/{UNKNOWN}")

    assert (row.status_code, row.mimetype) == (404, "text/html")
    assert "no such Pilot" in row.text
    assert client.get(f"/one/{UNKNOWN}").status_code == 500


def test_handler_of_the_application(airport: Flask) -> None:
    """A handler of the application for the status 404 answers what ``get_or_404()`` does not find."""
    install(airport)
    airport.register_error_handler(404, lambda error: (f"own: {error.description}", 404))

    assert airport.test_client().get(f"/row/{UNKNOWN}").text == "own: no such Pilot"


def test_install_on_a_blueprint() -> None:
    """On a blueprint, the answers are those of its own views alone."""
    app, api = Flask("airport"), Blueprint("api", "airport", url_prefix="/api")

    def missing() -> str:
        raise PublicIdNotFound("x", model="Pilot")

    with Session() as session:
        for each in (app, api):
            each.add_url_rule("/missing", view_func=missing)
            each.add_url_rule("/row", view_func=lambda: get_or_404(session, Pilot, "x").name, endpoint="row")
        install(api)
        app.register_blueprint(api)
        app.register_error_handler(404, lambda error: ("a page of the site", 404))
        client = app.test_client()

        assert client.get("/api/missing").json == client.get("/api/row").json == {"detail": "no such Pilot"}
        assert client.get("/missing").status_code == 500
        assert client.get("/row").text == "a page of the site"
