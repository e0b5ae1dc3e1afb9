"""From the outside: of hundreds of generated response models, none answers with a key that was not named before.

The keys are numbers that nothing else has. A shape is one way to show one attribute. Either declaring it is a
``ConfigurationError``, or ``lint_app`` has a finding for its route, or its answer has no such number in it. The few
that are missed are said to be, and so are the harmless ones that are refused.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import IntEnum
from functools import partial
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import httpx
import pytest
from fastapi import FastAPI
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    SerializeAsAny,
    computed_field,
    create_model,
    field_serializer,
    model_serializer,
)
from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Integer,
    String,
    case,
    cast,
    create_engine,
    func,
    literal,
    literal_column,
    select,
)
from sqlalchemy.ext.associationproxy import association_proxy
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    attribute_keyed_dict,
    column_keyed_dict,
    column_property,
    composite,
    keyfunc_mapping,
    mapped_column,
    relationship,
    synonym,
)
from sqlalchemy.pool import StaticPool
from typing_extensions import TypeAliasType, TypedDict

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin
from sqlalchemy_public_id.ext.fastapi import lint_app
from sqlalchemy_public_id.ext.pydantic import NotAKey, PublicModel

DIGITS = "777"
KEYS = {"id": 777001, "depot_id": 777002, "soft_id": 777003, "untyped_id": 777004}
"""The integer keys of a parcel: its own, a foreign key, one without a constraint, and one without a type."""


class Base(DeclarativeBase): ...


class Depot(PublicIdMixin, Base):
    __tablename__ = "depot"
    name: Mapped[str] = mapped_column(String(20))


@dataclasses.dataclass
class Place:
    key: int
    name: str


class Parcel(PublicIdMixin, Base):
    __tablename__ = "parcel"
    depot_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("depot.id"))
    soft_id: Mapped[int]
    untyped_id = Column(ForeignKey("depot.id"))
    name: Mapped[str] = mapped_column(String(20))
    weight: Mapped[int]
    depot: Mapped[Depot] = relationship(foreign_keys=depot_id)
    soft: Mapped[Depot] = relationship(primaryjoin="foreign(Parcel.soft_id) == Depot.id", viewonly=True)
    untyped: Mapped[Depot] = relationship(foreign_keys=untyped_id)
    same: Mapped[Parcel] = relationship(
        primaryjoin="foreign(Parcel.id) == remote(Parcel.id)", viewonly=True, uselist=False
    )


COLUMNS: Any = Parcel.__table__.c
OTHERS: Any = Parcel.__table__.alias("others").c


def of_columns(column: Any, other: Any) -> dict[str, Any]:
    """Expressions that show *column*; *other* is the same of an alias."""
    return {
        "labelled": column.label("labelled"),
        "arithmetic": column * 1,
        "function": func.coalesce(column, 0),
        "text": literal("#") + cast(column, String),
        "case": case((COLUMNS.weight > 0, column), else_=0),
        "words": literal_column(f"parcel.{column.name} * 1", Integer),
        "largest": select(func.max(other)).scalar_subquery(),
        "subquery": select(select(other.label("it")).subquery().c.it).limit(1).scalar_subquery(),
    }


def of_comparisons(column: Any, other: Any) -> dict[str, Any]:
    """Expressions that do not show *column*."""
    return {
        "counted": select(func.count(other)).scalar_subquery(),
        "compared": column > 5,
        "chosen": case((column > 5, "many"), else_="few"),
        "elsewhere": select(func.max(other.table.c.weight)).where(other == column).scalar_subquery(),
    }


SHOWN: dict[str, Callable[[str], Any]] = {
    "synonym": synonym,
    "proxy": partial(association_proxy, "same"),
    "hybrid": lambda key: hybrid_property(lambda self: getattr(self, key)),
    "hybrid_arithmetic": lambda key: hybrid_property(lambda self: getattr(self, key) * 1),
    "hybrid_text": lambda key: hybrid_property(lambda self: f"#{getattr(self, key)}"),
    "hybrid_of_another": lambda key: hybrid_property(
        lambda self: getattr(self, key), expr=lambda cls: literal(0, Integer)
    ),
    "pair": lambda key: composite(Place, COLUMNS[key], COLUMNS.name),
}
NOT_SHOWN: dict[str, Callable[[str], Any]] = {
    "hybrid_comparison": lambda key: hybrid_property(lambda self: getattr(self, key) > 5),
    "hybrid_of_name": lambda key: hybrid_property(lambda self: self.name),
}
TEXTS = {"name", "public_id", "hybrid_text", "text", "chosen", "hybrid_of_name"}
TRUTHS = {"compared", "hybrid_comparison"}
COLUMNS_SHOWN = ["name", "weight", "public_id"]
LEAKY, HARMLESS = [*KEYS], [*COLUMNS_SHOWN]
for key in KEYS:
    made = {name: make(key) for name, make in (SHOWN | NOT_SHOWN).items()}
    made |= {name: column_property(each) for name, each in of_columns(COLUMNS[key], OTHERS[key]).items()}
    made |= {name: column_property(each) for name, each in of_comparisons(COLUMNS[key], OTHERS[key]).items()}
    for name, attribute in made.items():
        setattr(Parcel, f"{name}_of_{key}", attribute)
        is_harmless = name in NOT_SHOWN or name in of_comparisons(COLUMNS[key], OTHERS[key])
        (HARMLESS if is_harmless else LEAKY).append(f"{name}_of_{key}")

DICTIONARIES: dict[str, Callable[[str], Any]] = {
    "by_attribute": attribute_keyed_dict,
    "by_synonym": lambda key: attribute_keyed_dict(f"synonym_of_{key}"),
    "by_column": lambda key: column_keyed_dict(COLUMNS[key]),
    "by_function": lambda key: keyfunc_mapping(lambda parcel: getattr(parcel, key) + 0),
    "by_text": lambda key: keyfunc_mapping(lambda parcel: f"#{getattr(parcel, key)}"),
}
HELD: Any = {"primaryjoin": "Depot.id == foreign(Parcel.depot_id)", "viewonly": True}
for key in KEYS:
    for name, make in DICTIONARIES.items():
        setattr(Depot, f"{name}_of_{key}", relationship(Parcel, collection_class=make(key), **HELD))
    setattr(Depot, f"names_of_{key}", association_proxy(f"by_attribute_of_{key}", "name"))
    setattr(Depot, f"keys_of_{key}", association_proxy("parcels", key))
Depot.parcels = relationship(Parcel, **HELD)
Depot.by_name = relationship(Parcel, collection_class=attribute_keyed_dict("name"), **HELD)
Depot.by_public_id = relationship(Parcel, collection_class=attribute_keyed_dict("public_id"), **HELD)


class ParcelOut(PublicModel, model=Parcel):
    name: str


class ParcelRow(BaseModel):
    """What nobody should show a parcel by."""

    model_config = ConfigDict(from_attributes=True)
    id: int
    name: str


@dataclasses.dataclass(frozen=True)
class Shape:
    """One way to answer."""

    name: str
    declare: Callable[[], Any]
    """Makes the response model."""
    answer: Callable[[Parcel], Any]
    """Makes what the route returns of a parcel."""
    leaks: bool
    """Whether the answer would have a key in it."""
    bare: Callable[[], Any] | None = None
    """Makes the response model without the help of this library, where that refuses it."""
    is_missed: bool = False
    """Whether the key leaves, as the documentation says: the application has made a text of it, or has hidden it."""
    allowed: Callable[[], Any] | None = None
    """Makes the response model with a ``NotAKey``, where it is harmless, and refused without."""


def it(parcel: Parcel) -> Any:
    return parcel


def its_depot(parcel: Parcel) -> Any:
    return parcel.depot


def fields(model: type[Any], **given: Any) -> dict[str, Callable[[], Any]]:
    """The response model of these fields, a ``PublicModel`` and a plain one."""
    loose = ConfigDict(from_attributes=True)
    made = {name: each if isinstance(each, tuple) else (each, ...) for name, each in given.items()}
    return {
        "declare": lambda: create_model("Out", __base__=PublicModel, __cls_kwargs__={"model": model}, **made),
        "bare": lambda: create_model("Bare", __config__=loose, **made),
    }


def type_of(name: str) -> Any:
    """The type that an author would declare for this attribute of a parcel."""
    kind = name.partition("_of_")[0] if not name.startswith("hybrid_of_") else name.rpartition("_of_")[0]
    return Place if kind == "pair" else str if kind in TEXTS else bool if kind in TRUTHS else int


def shapes_of_attributes() -> Iterator[Shape]:
    """Each attribute of a parcel: by its name, and by an alias, as the second choice or through a relationship."""
    for place, name in enumerate(LEAKY + HARMLESS):
        leaks, type_ = name in LEAKY, type_of(name)
        alias = [name, AliasPath("same", name), AliasChoices(AliasPath("name", 9), name)][place % 3]
        for shape, field in ((f"{name} by name", {name: type_}), (f"{name} by {alias}", {"field": (type_, alias)})):
            declared = {each: (type_, Field(validation_alias=alias) if each == "field" else ...) for each in field}
            marked = {each: (Annotated[type_, NotAKey()], note) for each, (_, note) in declared.items()}
            refused = not leaks and type_ is int and name not in COLUMNS_SHOWN
            yield Shape(
                shape,
                answer=it,
                leaks=leaks,
                is_missed=leaks and type_ is str,
                allowed=fields(Parcel, **marked)["declare"] if refused else None,
                **fields(Parcel, **declared),
            )


def shapes_of_relationships() -> Iterator[Shape]:
    """Dictionaries, lists and other types of a relationship, and proxies of them."""
    for key in KEYS:
        for name in DICTIONARIES:
            attribute, key_type = f"{name}_of_{key}", str if name == "by_text" else int
            made = fields(Depot, **{attribute: dict[key_type, ParcelOut]})  # type: ignore[valid-type]
            yield Shape(f"{attribute}", answer=its_depot, leaks=True, is_missed=name == "by_text", **made)
        made = fields(Depot, **{f"names_of_{key}": dict[int, str]})
        yield Shape(f"names of {key}", answer=its_depot, leaks=True, **made)
        made = fields(Depot, **{f"keys_of_{key}": list[int]})
        yield Shape(f"keys of {key}", answer=its_depot, leaks=True, **made)
        path = AliasPath("by_name", "seven", key)
        yield Shape(
            f"path to {key}", answer=its_depot, leaks=True, **fields(Depot, field=(int, Field(validation_alias=path)))
        )
    for name in ("by_name", "by_public_id"):
        made = fields(Depot, **{name: dict[str, ParcelOut]})
        yield Shape(name, answer=its_depot, leaks=False, **made)
    for type_ in (list[ParcelOut], tuple[ParcelOut, ...], Annotated[list[ParcelOut], "a note"]):
        yield Shape(f"parcels as {type_}", answer=its_depot, leaks=False, **fields(Depot, parcels=type_))
    for type_ in (list[ParcelRow], list[ParcelRow] | None, TypeAliasType("Rows", list[ParcelRow])):
        yield Shape(f"parcels as {type_}", answer=its_depot, leaks=True, **fields(Depot, parcels=type_))


T = TypeVar("T")
TRow = TypeVar("TRow", bound=BaseModel)


class Kind(IntEnum):
    """An enumeration of the keys of few rows."""

    SEVENTH = KEYS["id"]


class Box(BaseModel, Generic[T]):
    it: T


class BoundBox(BaseModel, Generic[TRow]):
    it: TRow


class Rooted(RootModel[list[ParcelRow]]): ...


class RootedNumber(RootModel[int]): ...


class Pair(NamedTuple):
    id: int
    name: str


class Typed(TypedDict):
    id: int


@dataclasses.dataclass
class Data:
    id: int


class Computed(BaseModel):
    name: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def id(self) -> int:
        return KEYS["id"]


class Serialized(BaseModel):
    name: str

    @field_serializer("name")
    def _as(self, name: str) -> Any:
        return KEYS["id"]


class WhollySerialized(BaseModel):
    name: str

    @model_serializer
    def _as(self) -> dict[str, int]:
        return {"it": KEYS["id"]}


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    parcel_id: int


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")


class AsText(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)
    id: str


def row(parcel: Parcel) -> Any:
    return ParcelRow.model_validate(parcel)


def key_of(parcel: Parcel) -> Any:
    return parcel.id


def named(type_: Any) -> Any:
    """A model with a field of this type that is called like the key."""
    return create_model("Named", id=(type_, ...))


def holding(type_: Any) -> Any:
    """A model with a field of this type that is called like nothing."""
    return create_model("Holding", it=(type_, ...))


def with_id(parcel: Parcel) -> Any:
    return {"id": parcel.id, "name": parcel.name}


def with_it(make: Callable[[Parcel], Any]) -> Callable[[Parcel], Any]:
    return lambda parcel: {"it": make(parcel)}


TYPES: dict[str, tuple[Any, Callable[[Parcel], Any]]] = {
    "model": (ParcelRow, it),
    "list": (list[ParcelRow], lambda parcel: [parcel]),
    "tuple": (tuple[ParcelRow, ...], lambda parcel: [parcel]),
    "dictionary by name": (dict[str, ParcelRow], lambda parcel: {"a": parcel}),
    "dictionary by key": (dict[int, ParcelOut], lambda parcel: {parcel.id: parcel}),
    "dictionary of numbers": (dict[str, int], lambda parcel: {"a": parcel.id}),
    "union": (ParcelRow | None, it),
    "generic": (Box[ParcelRow], with_it(it)),
    "generic of anything": (Box, with_it(row)),
    "bound generic": (BoundBox, with_it(row)),
    "root": (Rooted, lambda parcel: [parcel]),
    "field that is a root": (named(RootedNumber), with_id),
    "named tuple": (Pair, lambda parcel: Pair(parcel.id, parcel.name)),
    "typed dict": (Typed, with_id),
    "dataclass": (Data, lambda parcel: Data(parcel.id)),
    "tuple of values": (tuple[int, str], lambda parcel: (parcel.id, parcel.name)),
    "number": (int, key_of),
    "numbers": (list[int], lambda parcel: [parcel.id]),
    "any": (Any, with_id),
    "bare dictionary": (dict, with_id),
    "dictionary of anything": (dict[str, Any], with_id),
    "no model": (None, with_id),
    "extra": (Loose, with_id),
    "computed": (Computed, it),
    "serializer": (Serialized, it),
    "serializer of the model": (WhollySerialized, it),
    "discriminated union": (
        holding(Annotated[Dog | Cat, Field(discriminator="kind")]),
        lambda parcel: {"it": {"kind": "dog", "parcel_id": parcel.id}},
    ),
    "SerializeAsAny": (holding(SerializeAsAny[BaseModel]), with_it(row)),
    "SerializeAsAny of a base": (
        holding(SerializeAsAny[Cat]),
        with_it(lambda p: type("C", (Cat,), {"__annotations__": {"n": int}})(n=p.id)),
    ),
    "list of SerializeAsAny": (holding(list[SerializeAsAny[BaseModel]]), lambda parcel: {"it": [row(parcel)]}),
    "BaseModel": (holding(BaseModel), with_it(row)),
    "object": (holding(object), with_it(row)),
    "as text": (AsText, with_id),
    "alias of a type": (named(TypeAliasType("Number", int)), with_id),
    "serializer of a note": (named(Annotated[str, BeforeValidator(str), PlainSerializer(int)]), with_id),
}
NUMBERS: dict[str, Any] = {
    "integer": int,
    "integer or nothing": int | None,
    "float": float,
    "decimal": Decimal,
    "literal": Literal[777001],
    "literal or text": Literal["x", 777001],
    "enumeration": Kind,
    "text of a number": Annotated[str, BeforeValidator(str)],
    "text by a field": Annotated[str, Field(coerce_numbers_to_str=True)],
    "annotated": Annotated[int, Field(ge=0)],
    "list": Annotated[list[int], BeforeValidator(lambda key: [key])],
    "any": Any,
}


MISSED = {"dictionary by key", "SerializeAsAny of a base", "as text", "decimal", "text of a number", "text by a field"}
"""What OpenAPI does not tell from what is harmless."""


def shapes_of_types() -> Iterator[Shape]:
    """Plain types and models, of which the lint is to say something."""
    for name, (type_, answer) in TYPES.items():
        leaks, is_missed = name != "BaseModel", name in MISSED
        yield Shape(f"type {name}", declare=lambda type_=type_: type_, answer=answer, leaks=leaks, is_missed=is_missed)
    for name, type_ in NUMBERS.items():
        yield Shape(
            f"field {name}", declare=partial(named, type_), answer=with_id, leaks=True, is_missed=name in MISSED
        )
    loose = ConfigDict(from_attributes=True)
    for name in [*KEYS, "hybrid_of_id"]:
        plain = partial(create_model, "Row", __config__=loose, **{name: (int | str, ...)})
        yield Shape(f"plain {name}", declare=plain, answer=it, leaks=True, is_missed=name not in KEYS)
    yield Shape("type text", declare=lambda: str, answer=lambda parcel: parcel.name, leaks=False)
    yield Shape("type public model", declare=lambda: list[ParcelOut], answer=lambda parcel: [parcel], leaks=False)
    yield Shape("type public model in a box", declare=lambda: Box[ParcelOut], answer=with_it(it), leaks=False)


SHAPES = [*shapes_of_attributes(), *shapes_of_relationships(), *shapes_of_types()]
ROOMS = 40
"""The shapes in one application; there are several, because looking for a route takes as long as there are routes."""


@dataclasses.dataclass
class Service:
    """All shapes, served."""

    app: FastAPI = dataclasses.field(default_factory=FastAPI)
    refused: set[str] = dataclasses.field(default_factory=set)

    def __post_init__(self) -> None:
        self._parts = [FastAPI() for _ in range(len(SHAPES) // ROOMS + 1)]
        for number, part in enumerate(self._parts):
            self.app.mount(f"/{number}", part)

    def add(self, number: int, parcel: Parcel) -> None:
        """Have the shape of this number answer."""
        shape = SHAPES[number]

        async def show() -> Any:
            return shape.answer(parcel)

        try:
            self._parts[number // ROOMS].get(f"/{number}", response_model=shape.declare())(show)
        except ConfigurationError:
            self.refused.add(shape.name)

    def found(self) -> set[str]:
        """The shapes that the lint has named."""
        return {SHAPES[int(each.route.split("/")[-1])].name for each in lint_app(self.app, bases=[Base])}

    async def answers(self) -> dict[str, tuple[int, str]]:
        """Status and text of each answer."""
        transport, texts = httpx.ASGITransport(self.app, raise_app_exceptions=False), {}
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            for number, shape in enumerate(SHAPES):
                response = await client.get(f"/{number // ROOMS}/{number}")
                texts[shape.name] = response.status_code, response.text
        return texts


@dataclasses.dataclass
class Outcome:
    named: set[str]
    refused: set[str]
    answers: dict[str, tuple[int, str]]
    bare: dict[str, str]
    """The answers without the help of this library."""
    parcel: Parcel


@pytest.fixture(scope="module")
def outcome() -> Iterator[Outcome]:
    Base.registry.configure()
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    Base.metadata.create_all(engine)
    service, bare = Service(), {}
    with Session(engine) as session:
        session.add_all(Depot(id=number, name="d") for number in KEYS.values())
        session.flush()
        session.execute(Parcel.__table__.insert(), {**KEYS, "name": "seven", "weight": 1, "public_id": "a" * 12})
        session.commit()
        parcel = session.get_one(Parcel, KEYS["id"])
        for number, shape in enumerate(SHAPES):
            service.add(number, parcel)
            if shape.leaks and shape.bare is not None:
                bare[shape.name] = shape.bare().model_validate(shape.answer(parcel)).model_dump_json()
        answers = asyncio.run(service.answers())
        bare = {name: text for name, (_, text) in answers.items()} | bare
        yield Outcome(service.found() | service.refused, service.refused, answers, bare, parcel)
    engine.dispose()


def test_shapes_differ() -> None:
    """There are hundreds of shapes."""
    assert len({shape.name for shape in SHAPES}) == len(SHAPES) >= 200


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if not shape.is_missed], ids=lambda shape: shape.name)
def test_no_key_leaves(outcome: Outcome, shape: Shape) -> None:
    """A key is in no answer, unless its shape was refused or the lint has named it; harmless shapes are served."""
    status, text = outcome.answers[shape.name]

    assert shape.name in outcome.named or (status == 200 and DIGITS not in text)
    assert shape.leaks or (shape.name in outcome.refused) == (shape.allowed is not None)
    assert shape.leaks or DIGITS not in text


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.is_missed], ids=lambda shape: shape.name)
def test_key_that_is_missed(outcome: Outcome, shape: Shape) -> None:
    """What is said to be missed is: a text that the application makes of a key, and what OpenAPI does not show."""
    assert shape.name not in outcome.named
    assert DIGITS in outcome.answers[shape.name][1]


def test_harmless_shapes_that_are_refused(outcome: Outcome) -> None:
    """Of the harmless attributes, the numbers that are computed are refused, and ``NotAKey`` allows each of them."""
    refused = [shape for shape in SHAPES if shape.allowed is not None]

    assert (len(refused), sum(not shape.leaks for shape in SHAPES)) == (16, 63)
    for shape in refused:
        assert shape.allowed is not None
        assert DIGITS not in shape.allowed().model_validate(outcome.parcel).model_dump_json()


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.leaks], ids=lambda shape: shape.name)
def test_key_would_leave(outcome: Outcome, shape: Shape) -> None:
    """The shapes are no straw men: without this library, the key is in the answer."""
    assert DIGITS in outcome.bare[shape.name]
