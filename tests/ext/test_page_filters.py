"""``page_of(filter=…)``: filter fields with all kinds of names, aliases and defaults."""
# annotations are not postponed: FastAPI evaluates those of routes, which use names that are local to a function

import itertools
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
)
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


def by(name: str, type_: Any, default: Any = None, **options: Any) -> type[BaseModel]:
    """Return a filter with one field."""
    return create_model("Filter", __config__=ConfigDict(**options), **{name: (type_, default)})


Text = str | None
by_state = by("state", Text)
by_two_names = by("state", Text, Field(None, alias="theState"), populate_by_name=True)
by_choices = by("state", str, Field(validation_alias=AliasChoices("status", "state")))
by_first = by("state", Text, Field(None, validation_alias=AliasPath("states", 0)))
by_set = by("state", set[str], Field(default_factory=set))
by_list_or_none = by("state", list[str] | None)
of_no_other = by("state", Text, extra="forbid")
by_function = by("func", Annotated[Text, Matches(lambda state: Item.state == state)])
by_word = by("state", Annotated[Text, AfterValidator(lambda word: word and f"{word}d")])
by_words = by("state", Annotated[Text, AfterValidator(lambda words: words and words.split(","))])
by_numbers = by(
    "number",
    Annotated[list[int], BeforeValidator(lambda texts: [number for text in texts for number in text.split(",")])],
    Field([], title="Numbers", description="Some of them.", examples=[[1, 2]], deprecated=True),
)


def every_row() -> Any:
    return true()


Get = Callable[..., httpx.Response]


@pytest.fixture
def get(engine: Engine, create: Callable[[MetaData], None], send: Get) -> Get:
    """Return a function that sends one or more requests to a route with a filter on two items, new "a" and used "b"."""
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
    """Return the status of the response, and the names of its items."""
    body = response.json() if response.status_code == 200 else {"items": []}
    return response.status_code, [item["name"] for item in body["items"]]


@pytest.mark.parametrize(
    ("filter", "field"),
    [
        (by_state, "state"),
        (by("condition", Text), "condition"),
        (by("session", Text), "session"),
        (by_function, "func"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"scope": every_row}], ids=["no scope", "scope"])
def test_names_of_fields(get: Get, filter: type[BaseModel], field: str, options: dict[str, Any]) -> None:
    """A filter selects rows whatever its field is named."""
    assert names_in(get(filter, f"{field}=used", **options)) == (200, ["b"])


@pytest.mark.parametrize(
    ("filter", "query"),
    [
        (by_two_names, "theState=used"),
        (by_two_names, "state=used"),
        (by_choices, "status=used"),
        (by_choices, "state=used"),
        (by_first, "states=used"),
        (by_set, "state=used&state=old"),
        (by_list_or_none, "state=used&state=old"),
        (of_no_other, "state=used&limit=5"),
    ],
)
def test_names_that_a_filter_accepts(get: Get, filter: type[BaseModel], query: str) -> None:
    """A filter selects rows by every name of a field that its model accepts."""
    assert names_in(get(filter, query)) == (200, ["b"])


def test_name_beside_an_alias(get: Get) -> None:
    """If a field has an alias, its own name is an unknown parameter, which filters nothing."""
    assert names_in(get(by("state", Text, Field(None, validation_alias="what")), "state=used")) == (200, ["a", "b"])


def test_name_that_a_filter_refuses(get: Get) -> None:
    """A filter that forbids extra fields rejects an unknown parameter; the page does not return every row."""
    response = get(of_no_other, "sate=used")

    assert (response.status_code, response.json()["detail"][0]["loc"]) == (422, ["query", "sate"])


@pytest.mark.parametrize("filter", [by_set, by_numbers])
def test_nothing_to_choose(get: Get, filter: type[BaseModel]) -> None:
    """An empty collection filters nothing."""
    assert names_in(get(filter, "")) == (200, ["a", "b"])


def test_description_of_a_field() -> None:
    """The document describes a field as the filter's model does."""
    app = FastAPI()
    app.get("/items", response_model=None)(page_of(Item, session=every_row, filter=by_numbers))

    parameter = app.openapi()["paths"]["/items"]["get"]["parameters"][-1]

    assert (parameter["name"], parameter["description"]) == ("number", "Some of them.")
    assert parameter["deprecated"]
    assert parameter["schema"]["items"] == {"type": "integer"}
    assert (parameter["schema"]["title"], parameter["schema"]["examples"]) == ("Numbers", [[1, 2]])


@pytest.mark.parametrize(
    ("filter", "query"), [(by_word, "state=use"), (by_words, "state=old,used"), (by_numbers, "number=2,3")]
)
def test_validators_of_fields(get: Get, filter: type[BaseModel], query: str) -> None:
    """The validator of a field runs once, on the value in the request."""
    assert names_in(get(filter, query)) == (200, ["b"])


@pytest.mark.parametrize("alias", ["after", "limit"])
def test_aliases_of_fields(alias: str) -> None:
    """A filter field whose alias is a parameter of every page is rejected when the dependency is built."""
    with pytest.raises(ConfigurationError, match=f"Filter.{alias} is also a parameter of every page"):
        page_of(Item, session=every_row, filter=by("number", int, Field(None, alias=alias)))


def test_default_factory(get: Get) -> None:
    """A filter field that a request leaves out gets a new default for each request."""
    clock = itertools.count(1)
    used: list[int] = []

    def at_least(number: int) -> Any:
        used.append(number)
        return Item.number >= number

    get(by("since", Annotated[int, Matches(at_least)], Field(default_factory=lambda: next(clock))), "", times=3)

    assert used == [1, 2, 3]
