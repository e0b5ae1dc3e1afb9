"""``PublicModel``: response models that contain no integer key, for one object or a page of objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import IntEnum
from ipaddress import IPv4Address
from typing import Annotated, Any, Generic, Literal, NewType, Protocol, TypeVar, runtime_checkable
from uuid import UUID

import pydantic
import pytest
from packaging.version import Version
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainValidator,
    SkipValidation,
    TypeAdapter,
    ValidationError,
)
from sqlalchemy import JSON, Column, ForeignKey, Integer, MetaData, String, TypeDecorator, event, select
from sqlalchemy.ext.associationproxy import AssociationProxy, association_proxy
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    attribute_keyed_dict,
    column_property,
    composite,
    configure_mappers,
    mapped_column,
    relationship,
    selectinload,
    synonym,
)
from support.async_sessions import session_on
from typing_extensions import TypeAliasType

from conftest import Statements
from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdColumnMixin,
    PublicIdMixin,
    TypedId,
    public_id_column,
)
from sqlalchemy_public_id.ext.pydantic import NotAKey, PublicId, PublicModel
from sqlalchemy_public_id.references import public_ref


class Base(DeclarativeBase):
    metadata = MetaData()


class PayeeId(TypedId, prefix="pmpayee"): ...


class BillId(TypedId, prefix="pmbill"): ...


class Owned:
    """An unmapped class that mapped classes inherit from."""


@dataclass
class Place:
    """A composite of a key and a name."""

    payee_id: int
    name: str


@dataclass
class Size:
    """A composite of numbers that are not keys."""

    width: int
    height: int


class Region(PublicIdMixin, Base):
    __tablename__ = "region"


class Payee(PublicIdMixin[PayeeId], Owned, Base):
    __tablename__ = "payee"
    name: Mapped[str] = mapped_column(String(50))
    region_id: Mapped[int | None] = mapped_column(ForeignKey(Region.id))
    region: Mapped[Region | None] = relationship()


class Bill(PublicIdMixin[BillId], Base):
    __tablename__ = "bill"
    payee_id: Mapped[int] = mapped_column(ForeignKey(Payee.id))
    payee: Mapped[Payee] = relationship(foreign_keys=payee_id)
    payee_public_id: Mapped[PayeeId] = public_ref("payee")
    previous_id: Mapped[int | None] = mapped_column(ForeignKey("bill.id"))
    previous: Mapped[Bill | None] = relationship(remote_side="Bill.id")
    previous_public_id: Mapped[BillId | None] = public_ref("previous")
    untyped = Column(ForeignKey("payee.id"))
    total: Mapped[Decimal] = mapped_column(default=Decimal("1.50"))
    name: Mapped[str] = mapped_column(String(50), default="")
    settings: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    soft_id: Mapped[int | None]
    soft: Mapped[Payee] = relationship(primaryjoin="foreign(Bill.soft_id) == Payee.id", viewonly=True)
    place: Mapped[Place] = composite("payee_id", "name")
    size: Mapped[Size] = composite(mapped_column("width", default=0), mapped_column("height", default=0))
    landlord: Mapped[Payee] = synonym("payee")
    region: AssociationProxy[Region] = association_proxy("payee", "region")
    items: Mapped[list[Item]] = relationship(order_by="Item.id", back_populates="bill")
    by_name: Mapped[dict[str, Item]] = relationship(collection_class=attribute_keyed_dict("name"), viewonly=True)

    @hybrid_property
    def payee_number(self) -> int:
        return self.payee_id

    @hybrid_property
    def broken(self) -> int:
        raise RuntimeError

    @property
    def words(self) -> str:
        return f"{self.total} due"

    @property
    def doubled(self) -> dict[int, str]:
        return {2: "2"}

    @property
    def is_large(self) -> bool:
        return self.total > 1000


Bill.again = column_property(Bill.__table__.c.total)


class Item(PublicIdMixin, Base):
    __tablename__ = "item"
    bill_id: Mapped[int] = mapped_column(ForeignKey(Bill.id))
    bill: Mapped[Bill] = relationship(back_populates="items")
    payer_id: Mapped[int] = mapped_column(ForeignKey(Payee.id))
    payer: Mapped[Payee] = relationship()
    payer_public_id: Mapped[PayeeId] = public_ref("payer")
    name: Mapped[str] = mapped_column(String(50), default="")


class Line(Base):
    __tablename__ = "line"
    bill_id: Mapped[int] = mapped_column(ForeignKey(Bill.id), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    code: Mapped[str] = public_id_column(NanoId(length=6))


class Country(Base):
    """Its key is text, which may be shown."""

    __tablename__ = "country"
    code: Mapped[str] = mapped_column(String(2), primary_key=True)
    capital_of: Mapped[str | None] = mapped_column(ForeignKey("country.code"))
    people: Mapped[int]


class Agent(Payee):
    """A joined subclass of ``Payee``, with the same key."""

    __tablename__ = "agent"
    id: Mapped[int] = mapped_column(ForeignKey(Payee.id), primary_key=True)


class Number(TypeDecorator[int]):
    impl = Integer
    cache_ok = True


class Apart(DeclarativeBase): ...


class Ghost(PublicIdColumnMixin, Apart):
    """Refers to a table that is not declared."""

    __tablename__ = "ghost"
    number: Mapped[int] = mapped_column(Number, primary_key=True)
    owner_id = Column(ForeignKey("nowhere.id"))


configure_mappers()

TEXT = "pmpayee_izkpm55j334u"


def payee() -> Payee:
    return Payee(id=1, public_id=PayeeId(TEXT), name="Ada")


def bill() -> Bill:
    return Bill(id=2, public_id=BillId("pmbill_000000000000"), payee=payee(), payee_id=1, total=Decimal("1.50"))


class PayeeOut(PublicModel, model=Payee):
    public_id: PayeeId
    name: str


class BillOut(PublicModel, model=Bill):
    public_id: BillId
    total: Decimal
    payee: PayeeOut
    words: str
    links: tuple[str, ...] = ()


class ItemOut(PublicModel, model=Item):
    payer_public_id: PayeeId


class ReferencesOut(PublicModel, model=Bill):
    payee_public_id: PayeeId
    previous_public_id: BillId | None


class ReferencesAndItemsOut(ReferencesOut):
    items: list[ItemOut]


class Plain(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    id: int


@runtime_checkable
class HasName(Protocol):
    name: str


class Level(IntEnum):
    """An enumeration of integers."""

    LOW = 1


T = TypeVar("T")
TBound = TypeVar("TBound", bound=PublicModel)
TOne = TypeVar("TOne", PayeeOut, Payee)
NewPayee = NewType("NewPayee", Payee)
GivenAlias = TypeAliasType("GivenAlias", list[T] | None, type_params=(T,))
SameAlias = TypeAliasType("SameAlias", T, type_params=(T,))


class Envelope(PublicModel, Generic[T]):
    items: list[T]


def declared(model: type[Any], name: str, annotation: Any, field: Any = None) -> Any:
    """Declare a response model with this field, whose type may be any class."""
    body = {"__annotations__": {name: annotation}, "__module__": __name__} | ({} if field is None else {name: field})
    body["model_config"] = ConfigDict(arbitrary_types_allowed=True)
    return type(PublicModel)("Leaky", (PublicModel,), body, model=model)


def reading(*path: str | int) -> Any:
    """Return a field that reads this path."""
    return Field(None, validation_alias=AliasPath(*path))


# --- responses


def test_response() -> None:
    """A response can be built from an object and its related objects, or from values."""
    shown = {"public_id": TEXT, "name": "Ada"}
    assert BillOut.model_validate(bill()).model_dump(mode="json") == {
        "public_id": "pmbill_000000000000",
        "total": "1.50",
        "payee": shown,
        "words": "1.50 due",
        "links": [],
    }
    assert PayeeOut(public_id=TEXT, name="Ada") == PayeeOut.model_validate(payee())
    assert Envelope[PayeeOut](items=[payee()]).model_dump() == {"items": [shown]}


def test_union_of_models() -> None:
    """In a union, the class of the object selects the model."""
    adapter: TypeAdapter[Any] = TypeAdapter(PayeeOut | BillOut)

    assert type(adapter.validate_python(bill())) is BillOut
    assert type(adapter.validate_python(payee())) is PayeeOut


def test_object_of_another_class() -> None:
    """A model rejects objects of a class for which its fields were not checked."""
    with pytest.raises(ValidationError, match="Input should be of Payee, not Bill"):
        PayeeOut.model_validate(bill())
    with pytest.raises(ConfigurationError, match=r"write class Envelope\[Any\]\(PublicModel, model=Payee\)"):
        Envelope[Any].model_validate(payee())


def test_subclass_that_has_a_key_there() -> None:
    """An object of a subclass is rejected if the attribute is a key in the subclass."""

    class Special(Bill):
        label = synonym("payee_id")

    class Out(PublicModel, model=Bill):
        label: int = 0

    assert Out.model_validate(bill()).label == 0

    class Fewer(PublicModel, model=Bill):
        words: str

    assert Fewer.model_validate(Special(payee_id=1, total=Decimal(2))).words == "2 due"

    class More(Fewer):
        label: int = 0

    for out in (Out, More):
        with pytest.raises(
            ConfigurationError, match=r"label would show bill.payee_id, a foreign key of (Bill|Special)"
        ):
            out.model_validate(Special(payee_id=1, total=Decimal(2)))


def test_bound_type_variable() -> None:
    """A generic model whose parameter is bound to ``PublicModel`` shows the model that it is given."""

    class Out(PublicModel, Generic[TBound], model=Bill):
        payee: TBound

    assert Out[PayeeOut].model_validate(bill()).model_dump() == {"payee": {"public_id": TEXT, "name": "Ada"}}


def test_id_that_is_public() -> None:
    """A field may be named ``id`` if it shows the public id."""

    class Renamed(PublicModel, model=Payee):
        model_config = ConfigDict(populate_by_name=True)
        id: PayeeId = Field(validation_alias="public_id")
        again: PayeeId = Field(validation_alias=AliasChoices("public_id", "id"))

    assert Renamed.model_validate(payee()).model_dump() == {"id": TEXT, "again": TEXT}


# --- keys


@pytest.mark.parametrize(
    ("model", "type_", "field", "message"),
    [
        (Bill, int, None, r"bill.id, an integer key .*; show public_id, with Field\(validation_alias='public_id'\)"),
        (Bill, int, Field(alias="payee_id"), r'show payee_public_id, which is public_ref\("payee"\)'),
        (Bill, int | None, Field(None, validation_alias="untyped"), "bill.untyped, a foreign key of Bill"),
        (Bill, str, Field(validation_alias="id"), "bill.id"),
        (Agent, int, None, "agent.id, an integer key of Agent; show public_id"),
        (Ghost, int, Field(validation_alias="number"), "ghost.number, an integer key of Ghost"),
        (Ghost, int, Field(validation_alias="owner_id"), "ghost.owner_id, a foreign key of Ghost"),
        (Bill, Any, Field(validation_alias=AliasChoices("nothing", "payee_id")), "bill.payee_id"),
        (Bill, Any, Field(validation_alias=AliasChoices(AliasPath("payee", "name"), "payee_id")), "bill.payee_id"),
        (Line, int, Field(validation_alias="position"), "line.position, an integer key of Line"),
        (Bill, str, reading("place"), "bill.payee_id"),
        (Bill, Any, reading("place", "payee_id"), "bill.payee_id"),
        (Bill, str, reading("id", "real"), "bill.id"),
        (Bill, Any, reading("soft_id"), "bill.soft_id"),
        (Bill, int, reading("landlord", "id"), "payee.id, an integer key of Payee"),
        (Bill, int, reading("items", 0, "bill_id"), "item.bill_id"),
        (Bill, int, reading("items", 0, "bill", "items", 1, "id"), "item.id"),
    ],
    ids=repr,
)
def test_field_that_is_a_key(model: type[Any], type_: Any, field: Any, message: str) -> None:
    """A field that would show an integer key is rejected when the class is created; the error says what to write."""
    with pytest.raises(ConfigurationError, match=rf"^Leaky\.id would show .*{message}"):
        declared(model, "id", type_, field)


def test_alias_generator_and_inherited_fields() -> None:
    """Generated aliases and inherited fields are checked."""

    class Fields(PublicModel):
        model_config = ConfigDict(alias_generator=lambda name: f"payee_{name}")
        id: int

    with pytest.raises(ConfigurationError, match=r"Leaky.id would show bill.payee_id"):

        class Leaky(Fields, model=Bill): ...


@pytest.mark.parametrize("option", ["populate_by_name", "validate_by_name"])
def test_field_that_would_be_a_key_by_its_name(option: str) -> None:
    """If a field can be populated by name, its name is checked as well as its alias."""
    with pytest.raises(ConfigurationError, match=r"Leaky.id would show payee.id"):

        class Leaky(PublicModel, model=Payee):
            model_config = ConfigDict(**{option: True})
            id: Any = Field(validation_alias="nothing")


@pytest.mark.skipif(Version(pydantic.VERSION) < Version("2.11"), reason="older ones have no validate_by_alias")
def test_alias_of_a_key_that_is_not_read() -> None:
    """A field that is populated by name only may have the name of a key as its alias."""

    class Out(PublicModel, model=Payee):
        model_config = ConfigDict(validate_by_alias=False, validate_by_name=True)
        name: str = Field(validation_alias="region_id")

    assert Out.model_validate(payee()).name == "Ada"


@pytest.mark.parametrize(
    ("name", "annotation"),
    [("total", Decimal), ("name", object), ("size", Size), ("settings", dict[str, Any]), ("again", Any)],
    ids=str,
)
def test_column_that_is_no_key(name: str, annotation: Any) -> None:
    """A column that is not a key can be shown as any type, by its name and by a path."""
    assert declared(Bill, name, annotation)
    assert declared(Bill, "it", annotation, reading("items", 0, "bill", name))


def test_path_into_a_column() -> None:
    """A path that continues after a column leads into the value of the column."""
    out = declared(Bill, "it", int, reading("settings", "size"))

    assert out.model_validate(Bill(settings={"size": 3})).it == 3


def test_keys_that_are_no_integers() -> None:
    """A text key may be shown, and so may an integer that is not a key."""

    class CountryOut(PublicModel, model=Country):
        code: str
        capital_of: str | None
        people: int

    shown = CountryOut.model_validate(Country(code="fr", people=1)).model_dump(exclude_none=True)
    assert shown == {"code": "fr", "people": 1}


# --- attributes that are not columns


@pytest.mark.parametrize(
    "type_",
    [
        *(int, int | None, float, Decimal, Any, list[int], dict[str, int], date, timedelta, IPv4Address),
        *(Literal[1, "a"], Level, Annotated[str, BeforeValidator(str)], Annotated[str, PlainValidator(str)]),
        Annotated[str, Field(coerce_numbers_to_str=True)],
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["payee_number", "words"])
def test_number_that_is_no_column(name: str, type_: Any) -> None:
    """A field that reads a hybrid or a property is rejected if its type can hold a number."""
    with pytest.raises(ConfigurationError, match=rf"Leaky\.{name} may show a key: Bill\.{name} is not a column, and"):
        declared(Bill, name, type_)


def test_text_that_is_made_of_a_number() -> None:
    """Text that Pydantic coerces from a number counts as a number."""
    with pytest.raises(ConfigurationError, match=r"Leaky\.words may show a key"):

        class Leaky(PublicModel, model=Bill):
            model_config = ConfigDict(coerce_numbers_to_str=True)
            words: str


def test_number_that_is_said_to_be_no_key() -> None:
    """``NotAKey`` allows a field, or a part of its type, and does not change the output."""

    class Out(PublicModel, model=Bill):
        payee_number: Annotated[int, NotAKey()]
        words: dict[Annotated[int, NotAKey], str] = Field({}, validation_alias="doubled")

    class LineOut(PublicModel, model=Line):
        position: Annotated[int, NotAKey()]

    assert Out.model_validate(bill()).model_dump() == {"payee_number": 1, "words": {2: "2"}}
    assert LineOut.model_validate(Line(position=7)).position == 7
    assert LineOut.model_json_schema()["properties"]["position"] == {"title": "Position", "type": "integer"}


def test_texts_and_truth_values_that_are_computed() -> None:
    """Computed text and booleans are allowed, and excluded fields may read a key."""

    class Out(PublicModel, model=Bill):
        words: str | None
        is_large: bool
        code: UUID | None = Field(None, validation_alias="nothing")
        secret: int = Field(0, validation_alias="payee_id", exclude=True)
        kind: Literal["bill", "note"] = "bill"

    expected = {"words": "1.50 due", "is_large": False, "code": None, "kind": "bill"}
    assert Out.model_validate(bill()).model_dump(mode="json") == expected


def test_hybrid_that_does_not_work() -> None:
    """Declaring a model does not call a hybrid to find out what it returns."""
    with pytest.raises(ValidationError, match="Error extracting attribute: RuntimeError"):
        declared(Bill, "broken", str).model_validate(bill())


@pytest.mark.parametrize(
    ("name", "annotation", "shown"),
    [
        *(("payee", each, "object") for each in (object, object | None)),
        *(("payee", each, "Any") for each in (Any, T)),
        *(("payee", each, "Payee") for each in (TOne, Payee, NewPayee, Annotated[Payee, "a"], InstanceOf[Payee])),
        *(("payee", Base, "Base"), ("payee", Owned, "Owned"), ("payee", HasName, "HasName")),
        *(
            ("payee", each, "what is not validated")
            for each in (SkipValidation[str], Annotated[PayeeOut, SkipValidation])
        ),
        *(("payee", each, "Plain") for each in (Plain, TypeAliasType("Named", Plain | None), GivenAlias[Plain])),
        *(("items", each, each.__name__) for each in (list, tuple, dict, Sequence, Iterable)),
        *(("items", each, "int") for each in (Annotated[int, BeforeValidator(len)], dict[int, ItemOut], Iterable[int])),
        ("items", list[dict[str, object]], "object"),
        ("items", list[SkipValidation[ItemOut]], "what is not validated"),
        ("items", list[InstanceOf[Item]] | None, "Item"),
        ("landlord", object, "object"),
        ("region", object, "object"),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_type_that_lets_objects_through(name: str, annotation: Any, shown: str) -> None:
    """A type that accepts a related object unchanged, with its key, is rejected when the class is created."""
    with pytest.raises(ConfigurationError, match=rf"Leaky\.{name} may show a key: .+ is not a column, and {shown} can"):
        declared(Bill, name, annotation)


@pytest.mark.parametrize(
    "path",
    [("payee", "region"), ("region", "id"), ("__dict__", "id"), ("_sa_instance_state", "key"), ("by_name", "x", "id")],
)
def test_path_that_cannot_be_followed(path: tuple[str, ...]) -> None:
    """A path to a relationship, or through a proxy, a dictionary or the state of the object, is rejected."""
    with pytest.raises(ConfigurationError, match=rf"Leaky.it may show a key: Bill.{'.'.join(path)} is not a column"):
        declared(Bill, "it", object, reading(*path))


def test_related_object_as_the_second_choice() -> None:
    """Each attribute that may be read is checked, because an object may lack the first one."""
    with pytest.raises(ConfigurationError, match=r"Leaky.it may show a key: Bill.payee is not a column, and Any"):
        declared(Bill, "it", Any, Field(validation_alias=AliasChoices("nothing", "payee")))


@pytest.mark.parametrize(
    ("name", "annotation"),
    [
        ("payee", PayeeOut | None),
        ("payee", Annotated[PayeeOut, "a note"]),
        ("payee", TBound),
        ("payee", SameAlias[PayeeOut]),
        ("payee", Annotated[str, BeforeValidator(lambda payee: payee.name)]),
        ("items", tuple[ItemOut, ...]),
        ("items", Sequence[ItemOut]),
        ("items", Annotated[int, BeforeValidator(len), NotAKey()]),
        ("payee", Annotated[Any, NotAKey()]),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_type_that_shows_what_was_checked(name: str, annotation: Any) -> None:
    """A relationship can be shown as a ``PublicModel``, alone or in a container, or as the result of a validator."""
    assert declared(Bill, name, annotation).model_fields[name]


# --- models that are not complete yet, and invalid declarations


@pytest.mark.parametrize("annotation", [InstanceOf[Payee], list])
def test_before_mappers_are_configured(annotation: Any) -> None:
    """A type that lets objects through is rejected even before all models are declared."""

    class Fresh(DeclarativeBase): ...

    class Visit(Fresh):
        __tablename__ = "visit"
        id: Mapped[int] = mapped_column(primary_key=True)
        payee_id: Mapped[int] = mapped_column(ForeignKey("later.id"))
        payee: Mapped[Any] = relationship("Later")

    try:
        with pytest.raises(ConfigurationError, match=r"Leaky\.payee may show a key: Visit\.payee is not a column"):
            declared(Visit, "payee", annotation)
    finally:
        Fresh.registry.dispose()  # other tests configure all mappers


def test_mappers_are_not_configured_early() -> None:
    """A response model may precede the related classes; a key that is found only then is rejected at first use."""

    class Fresh(DeclarativeBase): ...

    class Post(PublicIdMixin, Fresh):
        __tablename__ = "post"
        writer_id: Mapped[int] = mapped_column(ForeignKey("writer.id"))
        writer: Mapped[Any] = relationship("Writer")

    class PostOut(PublicModel, model=Post):
        public_id: Annotated[str, PublicId(Post)]
        number: int = Field(validation_alias=AliasPath("writer", "id"))

    class Writer(PublicIdMixin, Fresh):
        __tablename__ = "writer"

    with pytest.raises(ConfigurationError, match=r"PostOut.number would show writer.id, an integer key of Writer"):
        PostOut.model_validate(Post(writer=Writer(id=1)))


def test_related_objects_in_a_model_declared_below() -> None:
    """A field type that is declared later is checked with the first object."""

    class Out(PublicModel, model=Bill):
        payee: Below

    class Below(Plain): ...

    Out.model_rebuild(_types_namespace={"Below": Below})
    with pytest.raises(
        ConfigurationError, match=r"Out\.payee may show a key: Bill\.payee is not a column, and Below can"
    ):
        Out.model_validate(bill())


def test_declarations_that_cannot_work() -> None:
    """A field without an attribute, ``extra="allow"``, and a class that is not mapped are rejected."""
    with pytest.raises(ConfigurationError, match=r"Leaky\.nmae reads 'nmae', which Payee does not have"):
        declared(Payee, "nmae", str)
    with pytest.raises(ConfigurationError, match='Out has extra="allow"'):

        class Out(PublicModel, model=Payee):
            model_config = ConfigDict(extra="allow")

    with pytest.raises(ConfigurationError, match="Leaky: model is <class 'int'>, expected a mapped class"):
        declared(int, "it", str)


# --- pages with references

PAYEES = [f"pmpayee_{number:012}" for number in range(7)]
BILLS = [f"pmbill_{number:012}" for number in range(100)]
PAGE = select(Bill).order_by(Bill.id)


def fill(session: Session) -> None:
    """Store a hundred bills with two items each; every bill but the first has a previous bill."""
    payees = [Payee(public_id=PayeeId(text), name=text) for text in PAYEES]
    bills: list[Bill] = []
    for number, text in enumerate(BILLS):
        items = [Item(payer=payees[(number + 1) % 7]), Item(payer=payees[(number + 2) % 7])]
        previous = bills[-1] if bills else None
        bills.append(Bill(public_id=BillId(text), payee=payees[number % 7], previous=previous, items=items))
    session.add_all(bills)
    session.commit()
    session.expunge_all()


def expected() -> list[ReferencesOut]:
    previous = [None, *map(BillId, BILLS)]
    return [
        ReferencesOut(payee_public_id=PayeeId(PAYEES[number % 7]), previous_public_id=previous[number])
        for number in range(100)
    ]


def one_by_one(session: Session, bills: Sequence[Bill]) -> list[ReferencesOut]:
    return [ReferencesOut.of(session, each) for each in bills]


@pytest.mark.backend
@pytest.mark.parametrize("responses_of", [ReferencesOut.many, one_by_one], ids=["many", "of"])
def test_page(
    create: Callable[[MetaData], None],
    session: Session,
    statements: Statements,
    responses_of: Callable[[Session, Sequence[Bill]], list[ReferencesOut]],
) -> None:
    """A hundred responses with references take one statement for each related model, even if built one by one."""
    create(Base.metadata)
    fill(session)
    bills = session.scalars(PAGE).all()
    statements.clear()

    assert responses_of(session, bills) == expected()
    assert len(statements) <= 2  # one for the payees; the session holds the previous bills


def test_object_without_a_session(create: Callable[[MetaData], None], session: Session) -> None:
    """The references of a detached object are read in the session that is passed."""
    create(Base.metadata)
    fill(session)
    bills = session.scalars(PAGE).all()
    session.expunge(bills[0])

    assert ReferencesOut.of(session, bills[0]) == expected()[0]


def test_related_objects(create: Callable[[MetaData], None], session: Session, statements: Statements) -> None:
    """The references of all related objects take one statement."""
    create(Base.metadata)
    fill(session)
    bills = session.scalars(PAGE.options(selectinload(Bill.items))).all()
    statements.clear()

    found = ReferencesAndItemsOut.many(session, bills)

    assert [item.payer_public_id for item in found[0].items] == [PAYEES[1], PAYEES[2]]
    assert len(statements) <= 3


@pytest.mark.backend
def test_async_session(async_engine: AsyncEngine) -> None:
    """Awaiting ``many()`` builds a page of responses in an ``AsyncSession``, with as few statements."""
    sent: list[str] = []

    async def story() -> None:
        async with session_on(async_engine, Base.metadata) as session:
            await session.run_sync(fill)
            bills = (await session.scalars(PAGE)).all()
            event.listen(async_engine.sync_engine, "before_cursor_execute", lambda *seen: sent.append(seen[2]))
            found = await ReferencesOut.many(session, bills)
            assert await ReferencesOut.of(session, bills[0]) == found[0]
            assert found == expected()
            assert len(sent) <= 2

    asyncio.run(story())
