"""``lint_app()`` finds the endpoints that get a row and do not declare what they return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.exceptions import FastAPIError
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, create_model
from sqlalchemy import ForeignKey, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column, relationship
from sqlalchemy.pool import StaticPool
from sqlmodel import Field as SQLModelField
from sqlmodel import SQLModel
from support.web_requests import asked
from typing_extensions import TypeAliasType

from sqlalchemy_public_id import (
    PublicIdColumnMixin,
    PublicIdColumnMixinDataclass,
    PublicIdMixin,
    PublicIdMixinDataclass,
    bigint_key,
)
from sqlalchemy_public_id.ext.fastapi import Finding, Page, by_public_id, lint_app, page_of
from sqlalchemy_public_id.ext.pydantic import PublicModel
from sqlalchemy_public_id.ext.sqlmodel import PublicIdSQLModel
from sqlalchemy_public_id.lookup import Page as Rows

KEY, REFERENCE = 777001, 777002


class Base(DeclarativeBase): ...


class DataclassBase(MappedAsDataclass, DeclarativeBase): ...


class Owner(PublicIdMixin, Base):
    __tablename__ = "shown_owner"


class Boat(PublicIdMixin, Base):
    __tablename__ = "shown_boat"
    owner_id: Mapped[int] = mapped_column(ForeignKey(Owner.id))
    owner: Mapped[Owner] = relationship()


class Tool(PublicIdColumnMixinDataclass, DataclassBase):
    __tablename__ = "shown_tool"
    id: Mapped[int] = bigint_key(init=False)
    name: Mapped[str]


class Nail(PublicIdMixinDataclass, DataclassBase):
    """Its key is no field of the dataclass, so that nothing shows it."""

    __tablename__ = "shown_nail"


class Word(PublicIdColumnMixin, Base):
    """Has no integer key."""

    __tablename__ = "shown_word"
    text: Mapped[str] = mapped_column(primary_key=True)


class Group(PublicIdSQLModel, table=True):
    """SQLModel shows no key of it, because the mixin excludes the only one."""

    __tablename__ = "shown_group"
    name: str


class Song(PublicIdSQLModel, table=True):
    __tablename__ = "shown_song"
    name: str
    group_id: int | None = SQLModelField(default=None, foreign_key="shown_group.id")


class BoatOut(PublicModel, model=Boat):
    public_id: str


BASES: list[Any] = [Base, DataclassBase, Song]


@pytest.fixture(scope="module")
def get_session() -> Iterator[Callable[[], Iterator[Session]]]:
    """Yield a dependency whose session has a row of each class."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    for base in (Base, DataclassBase):
        base.metadata.create_all(engine)
    SQLModel.metadata.create_all(engine, [Group.__table__, Song.__table__])
    with Session(engine) as session:
        session.add_all(
            [Boat(id=KEY, public_id="0" * 12, owner=Owner(id=REFERENCE)), Word(text="a", public_id="0" * 12)]
        )
        session.add(Group(id=REFERENCE, public_id="0" * 12, name="g"))
        session.flush()
        session.add(Song(id=KEY, public_id="0" * 12, name="s", group_id=REFERENCE))
        tool, nail = Tool(name="saw"), Nail()
        for row in (tool, nail):
            row.id, row.public_id = KEY, "0" * 12
        session.add_all([tool, nail])
        session.commit()

    def session_of_a_request() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    yield session_of_a_request
    engine.dispose()


def app_of(row: Any, returned: Any = None, value: Callable[[Any], Any] = lambda row: row, **options: Any) -> FastAPI:
    """Return an application whose endpoint gets *row* and returns *value* of it; *returned* is its annotation."""
    app = FastAPI()

    def show(row: Any) -> Any:
        return value(row)

    show.__annotations__ = {"row": row} | ({} if returned is None else {"return": returned})
    app.get("/rows/{id}", **options)(show)
    return app


def found(app: FastAPI, bases: Any = BASES) -> list[tuple[str, str | None, str | None]]:
    return [(one.field, one.column, one.row) for one in lint_app(app, bases=bases)]


def shows_keys(app: FastAPI) -> bool:
    """Return True if the answer of *app* has a key."""
    (answer,) = asked(app, f"/rows/{'0' * 12}")
    assert answer.status_code == 200
    return str(KEY) in answer.text or str(REFERENCE) in answer.text


def row_of(model: Any, session: Any) -> Any:
    return Annotated[model, Depends(by_public_id(model, session=session, param="id"))]


@pytest.mark.parametrize(
    ("model", "column"),
    [(Boat, "shown_boat.id"), (Song, "shown_song.group_id"), (Tool, "shown_tool.id")],
    ids=["row", "SQLModel", "dataclass"],
)
@pytest.mark.parametrize("response_class", [None, JSONResponse], ids=["default", "JSONResponse"])
def test_row_without_response_model(get_session: Any, model: Any, column: str, response_class: Any) -> None:
    """A row that is returned as it is shows a key, so the endpoint that gets it must declare what it returns."""
    app = app_of(row_of(model, get_session), **({} if response_class is None else {"response_class": response_class}))

    assert shows_keys(app)
    assert found(app) == [("", column, model.__name__)]


def test_finding_of_a_row(get_session: Any) -> None:
    """The finding is a leak, and says which row may be shown, and what to write."""
    (finding,) = lint_app(app_of(row_of(Boat, get_session)), bases=BASES)

    advice = "declare a response model, or response_class="
    assert finding == Finding("GET", "/rows/{id}", "response 200", "", "shown_boat.id", advice, "Boat")
    assert finding.is_leak
    assert str(finding) == (
        f"GET /rows/{{id}}: response 200 as a whole may be a row of Boat, and show shown_boat.id; {advice}"
    )


def test_page_without_response_model(get_session: Any) -> None:
    """A page that is returned as it is shows the keys of its rows, and is a leak, however the page is annotated."""
    pages = page_of(Boat, session=get_session)
    for annotation in (Annotated[Rows[Boat], Depends(pages)], Annotated[Any, Depends(pages)]):
        app = app_of(annotation)
        assert shows_keys(app)
        assert found(app) == [("", "shown_boat.id", "Boat")]


@pytest.mark.parametrize("returned", [Boat, Boat | None, list[Boat], Response | Boat, Rows[Boat]], ids=str)
def test_annotation_that_names_a_row(get_session: Any, returned: Any) -> None:
    """FastAPI refuses the annotation of a row; with ``response_model=None``, it is a leak, wherever the row is from."""

    def from_session(session: Session) -> Any:
        return session.scalars(select(Boat)).one()

    with pytest.raises(FastAPIError):
        app_of(row_of(Boat, get_session), returned)
    app = app_of(Annotated[Session, Depends(get_session)], returned, from_session, response_model=None)
    assert shows_keys(app)
    assert found(app) == [("", "shown_boat.id", "Boat")]


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        (Any, lambda row: row),
        (list, lambda row: [row]),
        (dict[str, Any], lambda row: {"row": row}),
        (Iterator[Any], lambda row: (each for each in [row])),
        (Response | dict[str, object], lambda row: {"row": row}),
    ],
    ids=["Any", "list", "dict", "Iterator", "Response or dict"],
)
def test_annotation_that_allows_anything(get_session: Any, returned: Any, value: Any) -> None:
    """With ``response_model=None``, an annotation that allows a row is no declaration; one that excludes it is."""
    app = app_of(row_of(Boat, get_session), returned, value, response_model=None)
    declared = app_of(row_of(Boat, get_session), dict[str, str], response_model=None)

    assert shows_keys(app)
    assert found(app) == [("", "shown_boat.id", "Boat")]
    assert found(declared) == [("", None, None)]


def test_stream_of_rows(get_session: Any) -> None:
    """An endpoint that yields rows shows their keys, and is a leak, whether it gets them or names them."""

    def stream(row: Any) -> Any:
        yield row

    can_stream = "is_json_stream" in getattr(APIRoute, "__annotations__", ())  # since FastAPI 0.134
    cases = (
        (row_of(Boat, get_session), None, {}),
        (row_of(Boat, get_session), Iterator[Boat], {"response_model": None}),
        (row_of(Song, get_session), Iterator[Song], {}),
    )
    for row, returned, options in cases[: 3 if can_stream else 2]:
        app = FastAPI()
        stream.__annotations__ = {"row": row} | ({} if returned is None else {"return": returned})
        app.get("/rows/{id}", **options)(stream)
        assert [each.is_leak for each in lint_app(app, bases=BASES)] == [True]
        assert shows_keys(app)


@pytest.mark.parametrize(
    ("model", "returned", "value", "field"),
    [
        (Song, Any, lambda row: row, ""),
        (Tool, Any, lambda row: row, ""),
        (Song, dict[str, Any], lambda row: {"song": row}, "[]"),
        (Song, list, lambda row: [row], "[]"),
        (Song, create_model("Loose", song=(Any, ...)), lambda row: {"song": row}, "song"),
    ],
    ids=["SQLModel", "dataclass", "dict", "list", "field"],
)
def test_undeclared_part(get_session: Any, model: Any, returned: Any, value: Any, field: str) -> None:
    """Pydantic shows the keys of a table of SQLModel, and of a dataclass, where a response model allows anything."""
    app = app_of(row_of(model, get_session), returned, value)

    assert shows_keys(app)
    assert [(each, row) for each, _, row in found(app)] == [(field, model.__name__)]


@pytest.mark.parametrize("returned", [Song, Song | str, list[Song], Page[Song]], ids=str)
def test_table_as_response_model(get_session: Any, returned: Any) -> None:
    """A table of SQLModel as a response model shows its foreign keys, and is a leak without ``bases``, too."""

    class Envelope(BaseModel):
        items: list[Song]

    shapes = {list[Song]: lambda row: [row], Page[Song]: lambda row: {"items": [row]}}
    app = app_of(row_of(Song, get_session), returned, shapes.get(returned, lambda row: row))

    assert shows_keys(app)
    assert [finding.column for finding in lint_app(app)] == ["shown_song.group_id"]
    assert [one.column for one in lint_app(app_of(row_of(Song, get_session), Envelope))] == ["shown_song.group_id"]


def get_boat() -> Boat: ...


def yield_boat() -> Iterator[Boat]: ...


class Finder:
    def __call__(self) -> list[Boat]: ...


@pytest.mark.parametrize("dependency", [get_boat, yield_boat, Finder()], ids=["function", "generator", "object"])
def test_return_type_of_a_dependency(dependency: Any) -> None:
    """A dependency of the application tells by its return type that it returns a row, also as a default value."""

    def show(row: Any = Depends(dependency)) -> Any: ...  # noqa: B008  # as its documentation wrote it once

    app = FastAPI()
    app.get("/default")(show)
    routes = [one.route for one in lint_app(app, bases=BASES) if one.row == "Boat"]

    assert routes == []  # "-> Any" is a response model, for which Pydantic refuses the row
    del show.__annotations__["return"]
    app.get("/undeclared")(show)
    app.get("/annotated")(app_of(Annotated[Any, Depends(dependency)]).routes[-1].endpoint)
    routes = [one.route for one in lint_app(app, bases=BASES) if one.row == "Boat"]
    assert routes == ["/undeclared", "/annotated"]


def test_type_of_a_parameter() -> None:
    """The type of a parameter tells that it is a row, if the dependency does not; without types, it gets a note."""
    assert found(app_of(Annotated[Boat, Depends(lambda: None)])) == [("", "shown_boat.id", "Boat")]
    assert found(app_of(Annotated[Any, Depends(lambda: None)])) == [("", None, None)]
    assert found(app_of(Annotated[TypeAliasType("Boats", list[Boat]), Depends(lambda: None)]))[0][2] == "Boat"


def test_included_routers_and_mounts(get_session: Any) -> None:
    """A row is found in routers inside routers, with prefixes, and in applications that are mounted."""
    inner, outer, app, mounted = APIRouter(prefix="/b"), APIRouter(prefix="/a"), FastAPI(), FastAPI()

    def show(row: Any) -> Any: ...

    show.__annotations__ = {"row": row_of(Boat, get_session)}
    inner.api_route("/{id}", methods=["GET", "POST"])(show)
    mounted.get("/{id}")(show)
    outer.include_router(inner)
    app.include_router(outer, prefix="/v1")
    app.mount("/m", mounted)

    places = {(one.method, one.route, one.row) for one in lint_app(app, bases=BASES)}
    assert places == {("GET", "/v1/a/b/{id}", "Boat"), ("POST", "/v1/a/b/{id}", "Boat"), ("GET", "/m/{id}", "Boat")}


def test_dependency_as_endpoint(get_session: Any) -> None:
    """``by_public_id`` and ``page_of`` cannot be endpoints themselves, unless a response model is declared."""
    app = FastAPI()
    row, page = by_public_id(Boat, session=get_session, param="id"), page_of(Boat, session=get_session)
    with pytest.raises(FastAPIError):
        app.get("/rows/{id}")(row)
    with pytest.raises(FastAPIError):
        app.get("/rows")(page)
    app.get("/rows/{id}", response_model=BoatOut)(row)
    app.get("/rows", response_model=Page[BoatOut])(page)

    assert not shows_keys(app)
    assert found(app) == []


@pytest.mark.parametrize(
    ("returned", "options"),
    [
        (BoatOut, {}),
        (Any, {"response_model": BoatOut}),
        (str, {}),
        (type(None), {}),
        (dict[str, str], {}),
        (None, {"response_class": HTMLResponse}),
        (None, {"status_code": 204}),
    ],
    ids=str,
)
def test_row_and_declared_response(get_session: Any, returned: Any, options: Any) -> None:
    """An endpoint that gets a row and declares its response, or has none, is not reported."""
    assert found(app_of(row_of(Boat, get_session), returned, **options)) == []


@pytest.mark.parametrize("returned", [Response, StreamingResponse, dict, Any], ids=str)
def test_row_and_response_made_by_hand(get_session: Any, returned: Any) -> None:
    """An endpoint that says it returns a ``Response``, or what Pydantic refuses as a row, gets a note."""
    assert [column for _, column, _ in found(app_of(row_of(Boat, get_session), returned))] == [None]


@pytest.mark.parametrize("model", [Word, Group, Nail], ids=["text", "excluded", "no field"])
def test_row_without_keys(get_session: Any, model: Any) -> None:
    """A row whose columns show no integer key gets a note."""
    app = app_of(row_of(model, get_session))

    assert not shows_keys(app)
    assert found(app) == [("", None, None)]


def test_row_of_another_base(get_session: Any) -> None:
    """With ``bases``, a row of another base gets a note; without, it is a leak."""
    app = app_of(row_of(Boat, get_session))

    assert found(app, [Song]) == [("", None, None)]
    assert found(app, None) == [("", "shown_boat.id", "Boat")]


def test_row_that_the_endpoint_does_not_get(get_session: Any) -> None:
    """A dependency that only checks a row gives the endpoint nothing to show, so that it gets a note."""
    app = FastAPI()
    dependencies = [Depends(by_public_id(Boat, session=get_session, param="id"))]
    app.get("/rows/{id}", dependencies=dependencies)(lambda: {"ok": True})

    assert found(app) == [("", None, None)]
