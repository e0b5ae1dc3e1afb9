"""Pages in a FastAPI application: what clients may sort and filter by, and which parameters are rejected."""
# annotations are not postponed: FastAPI evaluates those of routes, which use names that are local to a test

import asyncio
import enum
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, ClassVar

import httpx
import pytest
from fastapi import Depends, FastAPI, Header
from pydantic import BaseModel, Field, model_validator
from sqlalchemy import Engine, ForeignKey, MetaData, String
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    joinedload,
    mapped_column,
    relationship,
    with_loader_criteria,
)
from support.async_sessions import session_on
from support.web_requests import asked, asking

from conftest import Statements
from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, TypedId, lookup
from sqlalchemy_public_id.ext.fastapi import Matches, Page, install, lint_app, page_of
from sqlalchemy_public_id.ext.pydantic import PublicModel
from sqlalchemy_public_id.references import public_ref


class Base(DeclarativeBase):
    metadata = MetaData()


class KeeperId(TypedId, prefix="fpkeep"): ...


class AnimalId(TypedId, prefix="fpanim"): ...


class Keeper(PublicIdMixin[KeeperId], Base):
    __tablename__ = "keeper"
    name: Mapped[str] = mapped_column(String(20))


class Kind(enum.Enum):
    BIRD = "bird"
    FISH = "fish"


class Animal(PublicIdMixin[AnimalId], Base):
    __tablename__ = "animal"
    name: Mapped[str] = mapped_column(String(20))
    kind: Mapped[Kind]
    weight: Mapped[int | None]
    keeper_id: Mapped[int] = mapped_column(ForeignKey(Keeper.id))
    keeper: Mapped[Keeper] = relationship()
    keeper_public_id: Mapped[KeeperId] = public_ref("keeper")


class Visit(PublicIdMixin, Base):
    __tablename__ = "visit"
    sort: Mapped[str] = mapped_column(String(10))
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_on": "sort", "polymorphic_identity": "visit"}


class Tour(Visit):
    guide_id: Mapped[int | None] = mapped_column(ForeignKey(Keeper.id))
    guide: Mapped[Keeper | None] = relationship()
    guide_public_id: Mapped[KeeperId | None] = public_ref("guide")
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "tour", "polymorphic_load": "inline"}


class AnimalOut(PublicModel, model=Animal):
    public_id: AnimalId
    name: str
    keeper_public_id: KeeperId


class AnimalFilter(BaseModel):
    kind: Kind | None = None
    name: list[str] = []
    keeper_public_id: KeeperId | None = None
    above: Annotated[int | None, Field(ge=0, le=1000), Matches(lambda weight: Animal.weight > weight)] = None

    @model_validator(mode="after")
    def one_of_two(self) -> "AnimalFilter":
        if self.kind is not None and self.above is not None:
            raise ValueError("kind and above are both given")
        return self


ANIMALS = {"auk": 4, "bass": None, "crow": 2, "dory": 4, "emu": 40}
ADA, GRACE = "fpkeep_000000000ada", "fpkeep_0000000grace"


def fill(session: Session) -> None:
    ada, grace = Keeper(public_id=ADA, name="Ada"), Keeper(public_id=GRACE, name="Grace")
    session.add_all([ada, grace])
    session.flush()
    for number, (name, weight) in enumerate(ANIMALS.items()):
        kind = Kind.FISH if name in ("bass", "dory") else Kind.BIRD
        session.add(Animal(name=name, kind=kind, weight=weight, keeper=grace if number % 2 else ada))
        session.flush()
    session.commit()


def own(keeper: Annotated[str, Header()]) -> Any:
    return Animal.keeper_public_id == keeper


def zoo(get_session: Any, **options: Any) -> FastAPI:
    app = FastAPI()
    install(app)
    options = {"filter": AnimalFilter} | options
    every = page_of(Animal, session=get_session, sort=["name", "weight"], max_limit=4, **options)

    @app.get("/animals", response_model=Page[AnimalOut])
    def animals(page: Annotated[lookup.Page[Animal], Depends(every)]) -> Any:
        return page

    return app


@pytest.fixture
def get_session(engine: Engine, create: Callable[[MetaData], None]) -> Callable[[], Iterator[Session]]:
    """Return a dependency that yields a session on a database with five animals."""
    create(Base.metadata)
    with Session(engine) as session:
        fill(session)

    def get_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    return get_session


def nowhere() -> Iterator[Session]:
    yield Session()


def fetch(app: FastAPI, query: str = "", **headers: str) -> httpx.Response:
    return asked(app, f"/animals?{query}", headers=headers)[0]


def names(app: FastAPI, query: str = "", **headers: str) -> list[str]:
    response = fetch(app, query, **headers)
    assert response.status_code == 200, response.text
    return [item["name"] for item in response.json()["items"]]


def refusal(app: FastAPI, query: str, **headers: str) -> tuple[str, list[Any]]:
    response = fetch(app, query, **headers)
    assert response.status_code == 422, response.text
    (detail,) = response.json()["detail"]
    return detail["type"], detail["loc"]


@pytest.mark.backend
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["auk", "bass", "crow", "dory"]),
        ("sort=-name&limit=2", ["emu", "dory"]),
        ("sort=-weight&sort=-name&above=0", ["emu", "dory", "auk", "crow"]),
        ("sort=weight&sort=name&above=0&limit=2", ["crow", "auk"]),
        ("kind=fish", ["bass", "dory"]),
        ("name=emu&name=crow&name=yak", ["crow", "emu"]),
        (f"keeper_public_id={GRACE}", ["bass", "dory"]),
        ("keeper_public_id=fpkeep_000000nobody", []),
        ("above=4", ["emu"]),
    ],
)
def test_sort_and_filter(get_session: Any, query: str, expected: list[str]) -> None:
    """A page has the rows that match every filter field that is set, sorted by all names in ``sort``."""
    assert names(zoo(get_session), query) == expected


def test_order_of_the_application(get_session: Any) -> None:
    """Without ``sort``, rows are in the ``default`` order, or sorted by key, the newest first if so declared."""
    assert names(zoo(get_session, default=["-name"])) == ["emu", "dory", "crow", "bass"]
    assert names(zoo(get_session, newest_first=True), "kind=bird") == ["emu", "crow", "auk"]


@pytest.mark.backend
def test_there_and_back(get_session: Any) -> None:
    """The cursors of a page lead to the next page and the previous one."""
    app = zoo(get_session)
    first = fetch(app, "sort=-name&limit=3").json()
    assert first["previous"] is None
    second = fetch(app, f"sort=-name&limit=3&after={first['next']}").json()
    assert [item["name"] for item in second["items"]] == ["bass", "auk"]
    assert second["next"] is None
    assert fetch(app, f"sort=-name&limit=3&before={second['previous']}").json()["items"] == first["items"]


def test_options_of_a_page(get_session: Any, statements: Statements) -> None:
    """``options=`` are those of the SELECT: here, they load the keepers together with the animals."""
    statements.clear()
    app = zoo(get_session, options=[joinedload(Animal.keeper)])

    assert names(app)
    (select,) = statements.starting("SELECT")
    assert " JOIN " in select


def test_statements_of_a_page(get_session: Any, statements: Statements) -> None:
    """A page with its references takes one statement, and the count of all rows one more."""
    statements.clear()
    names(zoo(get_session))
    assert len(statements.starting("SELECT")) == 1
    statements.clear()
    assert fetch(zoo(get_session, count=True), "kind=bird&limit=1").json()["total"] == 3
    assert len(statements.starting("SELECT")) == 2
    assert fetch(zoo(get_session, count=2), "kind=bird&limit=1").json()["total"] == 2


@pytest.mark.parametrize(
    ("query", "kind", "location"),
    [
        ("limit=0", "greater_than_equal", ["limit"]),
        ("limit=5", "less_than_equal", ["limit"]),
        ("sort=keeper_id", "literal_error", ["sort", 0]),
        ("sort=name&sort=name&sort=name", "too_long", ["sort"]),
        ("after=1", "cursor_invalid", ["after"]),
        ("after=%00", "cursor_invalid", ["after"]),
        ("before=fpanim_000000nobody", "cursor_invalid", ["before"]),
        ("after=fpanim_000000nobody&before=fpanim_000000nobody", "page_ambiguous", ["before"]),
        ("kind=cat", "enum", ["kind"]),
        ("above=-1", "greater_than_equal", ["above"]),
        ("keeper_public_id=7", "public_id", ["keeper_public_id"]),
        ("kind=bird&above=3", "value_error", []),
    ],
)
def test_refused(get_session: Any, query: str, kind: str, location: list[Any]) -> None:
    """An invalid parameter is a 422 with its location."""
    assert refusal(zoo(get_session), query) == (kind, ["query", *location])


def test_cursor_of_another_order(get_session: Any) -> None:
    """A cursor is rejected if the request sorts in another order than the page it comes from."""
    app = zoo(get_session)
    cursor = fetch(app, "sort=name&limit=2").json()["next"]
    assert refusal(app, f"sort=-name&after={cursor}") == ("cursor_invalid", ["query", "after"])


@pytest.mark.backend
def test_scope(get_session: Any) -> None:
    """Rows outside the scope are left out, and their ids are unknown as cursors."""
    app = zoo(get_session, scope=own, count=True)
    assert names(app, keeper=GRACE) == ["bass", "dory"]
    assert fetch(app, keeper=GRACE).json()["total"] == 2
    foreign = fetch(app, keeper=ADA).json()["items"][0]["public_id"]
    assert refusal(app, f"after={foreign}", keeper=GRACE) == refusal(app, "after=fpanim_000000nobody", keeper=GRACE)


@pytest.mark.backend
def test_rows_that_the_session_hides(get_session: Any, listen: Callable[..., None]) -> None:
    """The id of a row that the session hides is refused like an unknown one, unless its criteria are left out."""

    def hide(state: Any) -> None:
        if state.is_select and not state.is_column_load and not state.execution_options.get("include_bass"):
            visible = with_loader_criteria(Animal, Animal.name != "bass", include_aliases=True)
            state.statement = state.statement.options(visible)

    app = zoo(get_session)
    every = fetch(app, "sort=name&limit=4").json()["items"]
    bass = next(one["public_id"] for one in every if one["name"] == "bass")
    after_bass = names(app, f"sort=name&limit=4&after={bass}")
    listen(Session, "do_orm_execute", hide)
    for sort in ("", "&sort=name", "&sort=weight"):
        for field in ("after", "before"):
            unknown = refusal(app, f"{field}=fpanim_000000nobody{sort}")
            assert refusal(app, f"{field}={bass}{sort}") == unknown == ("cursor_invalid", ["query", field])
    app = zoo(get_session, cursor_execution_options={"include_bass": True})
    assert names(app, f"sort=name&limit=4&after={bass}") == after_bass
    assert "bass" not in names(app, "sort=name&limit=4")


@pytest.mark.backend
def test_expressions_to_sort_by(get_session: Any) -> None:
    """A name can stand for an expression; its NULLS LAST applies in both directions."""
    app = FastAPI()
    sort = {"mass": Animal.weight.desc().nulls_last()}

    @app.get("/animals", response_model=Page[AnimalOut])
    def animals(page: Annotated[Any, Depends(page_of(Animal, session=get_session, sort=sort))]) -> Any:
        return page

    assert names(app, "sort=mass") == ["emu", "auk", "dory", "crow", "bass"]
    assert names(app, "sort=-mass") == ["crow", "auk", "dory", "emu", "bass"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sort": ["colour"]}, "sort has 'colour', which is not an attribute of Animal"),
        ({"sort": ["keeper"]}, "sort has 'keeper', a relationship"),
        ({"sort": "name"}, r"sort is the string 'name', expected a list: \['name'\]"),
        ({"sort": ["name"], "default": "-name"}, r"default is the string '-name', expected a list"),
        ({"default": ["name"]}, "default has 'name', expected names of sort=, which is empty"),
        ({"limit": 0}, "limit is 0, expected a whole number from 1"),
        ({"count": 0}, "count is 0, expected True, False, or the number of rows"),
        ({"cursor_execution_options": True}, "cursor_execution_options is True, expected execution options"),
        ({"max_limit": "5"}, "max_limit is '5', expected a whole number"),
        ({"scope": Animal.id > 1}, "scope is .*, expected a dependency"),
        ({"sort": {"by": "name"}}, "order_by has 'name', expected attributes"),
        ({"sort": ["name"], "default": ["weight"]}, "default has 'weight', expected some of name, -name"),
        (
            {"filter": type("F", (BaseModel,), {"__annotations__": {"after": str}})},
            "F.after is also a parameter of every",
        ),
        ({"filter": type("F", (BaseModel,), {"__annotations__": {"colour": str}})}, "F has 'colour', which is no"),
    ],
)
def test_declarations_that_cannot_work(options: Any, message: str) -> None:
    """Invalid arguments raise an error when the dependency is built."""
    with pytest.raises(ConfigurationError, match=message):
        page_of(Animal, session=nowhere, **options)


def test_document() -> None:
    """The document lists the names to sort by and the types of the filter fields, and exposes no key."""
    app = zoo(nowhere)
    document = app.openapi()
    operation = document["paths"]["/animals"]["get"]
    schemas = {one["name"]: one["schema"] for one in operation["parameters"]}
    assert list(schemas) == ["limit", "after", "before", "sort", "kind", "name", "keeper_public_id", "above"]
    assert schemas["sort"]["items"]["enum"] == ["name", "-name", "weight", "-weight"]
    assert schemas["keeper_public_id"]["anyOf"][0]["pattern"] == "^fpkeep_[0-9a-z]{12}$"
    response = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert response == {"$ref": "#/components/schemas/Page_AnimalOut_"}
    assert lint_app(app, bases=[Base]) == []


@pytest.mark.backend
def test_async_session(async_engine: AsyncEngine) -> None:
    """An ``AsyncSession`` returns the same page, whose references need no lazy load."""

    async def get_session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(async_engine) as session:
            yield session

    async def story() -> tuple[httpx.Response, Page[AnimalOut]]:
        async with session_on(async_engine, Base.metadata) as session:
            await session.run_sync(fill)
            (response,) = await asking(zoo(get_session), "/animals?sort=-name&limit=1")
            page = await session.run_sync(lookup.page, Animal, limit=2)
            return response, await Page[AnimalOut].of(session, page)

    response, built = asyncio.run(story())
    assert [(item["name"], item["keeper_public_id"]) for item in response.json()["items"]] == [("emu", ADA)]
    assert [item.keeper_public_id for item in built.items] == [ADA, GRACE]


def test_references_of_a_subclass(async_engine: AsyncEngine) -> None:
    """A page of a base class loads the references of subclasses, too, which an ``AsyncSession`` cannot load later."""

    async def get_session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(async_engine) as session:
            yield session

    app = FastAPI()

    @app.get("/guides")
    async def guides(visits: Annotated[Any, Depends(page_of(Visit, session=get_session))]) -> list[str]:
        return [visit.guide_public_id for visit in visits]

    async def story() -> httpx.Response:
        async with session_on(async_engine, Base.metadata) as session:
            session.add(Tour(guide=Keeper(public_id=ADA, name="Ada")))
            await session.commit()
            return (await asking(app, "/guides"))[0]

    assert asyncio.run(story()).json() == [ADA]
