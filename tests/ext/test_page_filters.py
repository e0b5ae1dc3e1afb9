"""``page_of(filter=…)``: the fields of a filter, whatever their names, aliases and defaults are."""
# FastAPI reads the annotations of routes, which name what is local to a function: they must not be put off

import itertools
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from pydantic import AfterValidator, AliasChoices, AliasPath, BaseModel, ConfigDict, Field, field_validator
from sqlalchemy import Engine, MetaData, String, true
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin
from sqlalchemy_public_id.ext.fastapi import Matches, Page, install, page_of


class Base(DeclarativeBase):
    metadata = MetaData()


class Item(PublicIdMixin, Base):
    __tablename__ = "item"
    name: Mapped[str] = mapped_column(String(20))
    number: Mapped[int]
    state: Mapped[str] = mapped_column(String(20))
    condition: Mapped[str] = mapped_column(String(20))
    session: Mapped[str] = mapped_column(String(20))


class ItemOut(BaseModel):
    name: str


class ByState(BaseModel):
    state: str | None = None


class ByCondition(BaseModel):
    condition: str | None = None


class BySession(BaseModel):
    session: str | None = None


class ByFunction(BaseModel):
    func: Annotated[str | None, Matches(lambda state: Item.state == state)] = None


class ByWord(BaseModel):
    state: Annotated[str | None, AfterValidator(lambda word: word and f"{word}d")] = None


class ByAliasOfCursor(BaseModel):
    above: Annotated[int | None, Matches(lambda above: Item.number > above)] = Field(None, alias="after")


class ByAliasOfLimit(BaseModel):
    number: int | None = Field(None, alias="limit")


class ByWords(BaseModel):
    state: Annotated[str | None, AfterValidator(lambda words: words and words.split(","))] = None


class ByTwoNames(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    state: str | None = Field(None, alias="theState")


class ByChoices(BaseModel):
    state: str = Field(validation_alias=AliasChoices("status", "state"))


class ByFirst(BaseModel):
    state: str | None = Field(None, validation_alias=AliasPath("states", 0))


class ByNumbers(BaseModel):
    number: list[int] = Field([], examples=[[1, 2]])

    @field_validator("number", mode="before")
    @classmethod
    def split(cls, texts: list[str]) -> list[str]:
        return [number for text in texts for number in text.split(",")]


class BySet(BaseModel):
    state: set[str] = Field(default_factory=set)


class OfNoOther(BaseModel):
    model_config = ConfigDict(extra="forbid")
    state: str | None = None


def every_row() -> Any:
    return true()


Get = Callable[..., httpx.Response]


@pytest.fixture
def get(engine: Engine, create: Callable[[MetaData], None], send: Get) -> Get:
    """Declare a route with a filter on two items, the new "a" and the used "b", and send a request, or several."""
    create(Base.metadata)
    with Session(engine) as session:
        for number, (name, state) in enumerate({"a": "new", "b": "used"}.items(), 1):
            session.add(Item(name=name, number=number, state=state, condition=state, session=state))
        session.commit()

    def open_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    def get(filter: type[BaseModel], query: str, times: int = 1, **options: Any) -> httpx.Response:
        app = FastAPI()
        install(app)
        page_of_items = page_of(Item, session=open_session, filter=filter, **options)

        @app.get("/items", response_model=Page[ItemOut])
        def items(page: Annotated[Any, Depends(page_of_items)]) -> Any:
            return page

        return [send(app, "GET", f"/items?{query}") for _ in range(times)][-1]

    return get


def names_in(response: httpx.Response) -> tuple[int, list[str]]:
    """Return the status of the answer, and the names of its items."""
    body = response.json() if response.status_code == 200 else {"items": []}
    return response.status_code, [item["name"] for item in body["items"]]


@pytest.mark.parametrize(
    ("filter", "field"),
    [(ByState, "state"), (ByCondition, "condition"), (BySession, "session"), (ByFunction, "func")],
)
@pytest.mark.parametrize("options", [{}, {"scope": every_row}], ids=["no scope", "scope"])
def test_names_of_fields(get: Get, filter: type[BaseModel], field: str, options: dict[str, Any]) -> None:
    """A filter selects rows, whatever the name of its field is."""
    assert names_in(get(filter, f"{field}=used", **options)) == (200, ["b"])


@pytest.mark.parametrize(
    ("filter", "query"),
    [
        (ByTwoNames, "theState=used"),
        (ByTwoNames, "state=used"),
        (ByChoices, "status=used"),
        (ByChoices, "state=used"),
        (ByFirst, "states=used"),
        (BySet, "state=used&state=old"),
        (OfNoOther, "state=used&limit=5"),
    ],
)
def test_names_that_a_filter_accepts(get: Get, filter: type[BaseModel], query: str) -> None:
    """A filter selects rows by each name of a field that its model accepts."""
    assert names_in(get(filter, query)) == (200, ["b"])


def test_name_that_a_filter_refuses(get: Get) -> None:
    """A filter that forbids other names than its own refuses them, and a page does not return every row."""
    response = get(OfNoOther, "sate=used")

    assert (response.status_code, response.json()["detail"][0]["loc"]) == (422, ["query", "sate"])


@pytest.mark.parametrize("filter", [BySet, ByNumbers])
def test_nothing_to_choose(get: Get, filter: type[BaseModel]) -> None:
    """A collection without a value selects every row."""
    assert names_in(get(filter, "")) == (200, ["a", "b"])


def test_description_of_a_field() -> None:
    """The document describes a field as its model does."""
    app = FastAPI()
    app.get("/items")(page_of(Item, session=every_row, filter=ByNumbers))

    parameter = app.openapi()["paths"]["/items"]["get"]["parameters"][-1]

    assert parameter["name"] == "number"
    assert parameter["schema"]["items"] == {"type": "integer"}
    assert parameter["schema"]["examples"] == [[1, 2]]


@pytest.mark.parametrize(
    ("filter", "query"), [(ByWord, "state=use"), (ByWords, "state=old,used"), (ByNumbers, "number=2,3")]
)
def test_validators_of_fields(get: Get, filter: type[BaseModel], query: str) -> None:
    """The validator of a field is applied once to what the request has."""
    assert names_in(get(filter, query)) == (200, ["b"])


@pytest.mark.parametrize("filter", [ByAliasOfCursor, ByAliasOfLimit])
def test_aliases_of_fields(get: Get, filter: type[BaseModel]) -> None:
    """A filter field whose alias is a parameter of every page is refused when the dependency is made."""
    with pytest.raises(ConfigurationError):
        get(filter, "")


def test_default_factory(get: Get) -> None:
    """A filter field that a request leaves out gets a new default for each request."""
    clock = itertools.count(1)
    used: list[int] = []

    def at_least(number: int) -> Any:
        used.append(number)
        return Item.number >= number

    class Since(BaseModel):
        since: Annotated[int, Matches(at_least)] = Field(default_factory=lambda: next(clock))

    get(Since, "", times=3)

    assert used == [1, 2, 3]
