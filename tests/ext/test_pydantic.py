"""Public ids as types of Pydantic fields, and response models that no integer key gets into."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from ipaddress import IPv4Address
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)
from sqlalchemy import Column, ForeignKey, Integer, String, cast
from sqlalchemy.ext.associationproxy import AssociationProxy, association_proxy
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    column_property,
    configure_mappers,
    mapped_column,
    relationship,
    synonym,
)
from support.strategies import any_text, formats, junk
from typing_extensions import TypeAliasType

from sqlalchemy_public_id import ConfigurationError, Format, NanoId, PublicIdMixin, TypedId, public_id_column
from sqlalchemy_public_id.ext.pydantic import NotAKey, PublicId, PublicModel
from sqlalchemy_public_id.formats import BASE36, JetifyTypeId, ObjectId, Snowflake, Ulid, Uuid4, Uuid7

FORMATS: list[Format] = [
    NanoId(),
    NanoId(length=255 - 4, prefix="cus"),
    NanoId(alphabet=BASE36.upper(), check_digit=True),
    NanoId(prefix="cus", separator="."),
    NanoId(length=16).accepting(NanoId(length=12), NanoId(prefix="old")),
    Uuid7(),
    Uuid7(prefix="evt", encoding="hyphenated"),
    Uuid4(),
    Uuid4(encoding="hex", storage="text"),
    JetifyTypeId("user"),
    JetifyTypeId(""),
    Ulid(prefix="evt"),
    Snowflake(machine_id=1),
    ObjectId(),
]


class PayeeId(TypedId, prefix="pydpayee"): ...


class BillId(TypedId, prefix="pydbill", format=NanoId(length=10), aliases=("pydinvoice",)): ...


class PartyId(TypedId): ...


class PersonId(PartyId, prefix="pydperson"): ...


class Base(DeclarativeBase): ...


class Payee(PublicIdMixin[PayeeId], Base):
    __tablename__ = "payee"
    name: Mapped[str] = mapped_column(String(50))


class Bill(PublicIdMixin[BillId], Base):
    __tablename__ = "bill"
    payee_id: Mapped[int] = mapped_column(ForeignKey("payee.id"))
    untyped = Column(ForeignKey("payee.id"))
    total: Mapped[Decimal]
    payee: Mapped[Payee] = relationship(foreign_keys=payee_id)
    number: Mapped[int] = synonym("id")
    payee_name: AssociationProxy[str] = association_proxy("payee", "name")
    payee_key: AssociationProxy[int] = association_proxy("payee", "id")

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


Bill.key_as_text = column_property(cast(Bill.__table__.c.id, String))
Bill.labelled = column_property(Bill.__table__.c.payee_id.label("other"))


class Line(Base):
    __tablename__ = "line"
    bill_id: Mapped[int] = mapped_column(ForeignKey("bill.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    code: Mapped[str] = public_id_column(NanoId(length=6))
    slug: Mapped[str] = public_id_column(NanoId(length=7))


class Country(Base):
    """Its key is a text, and no secret."""

    __tablename__ = "country"
    code: Mapped[str] = mapped_column(String(2), primary_key=True)
    capital_of: Mapped[str | None] = mapped_column(ForeignKey("country.code"))
    people: Mapped[int] = mapped_column(Integer)


TEXT = "pydpayee_izkpm55j334u"


def payee() -> Payee:
    return Payee(id=1, public_id=PayeeId(TEXT), name="Ada")


def bill() -> Bill:
    return Bill(id=2, public_id=BillId("pydbill_0123456789"), payee=payee(), payee_id=1, total=Decimal("1.50"))


def refusal(adapter: TypeAdapter[Any], value: object) -> dict[str, Any]:
    """The one error with which *value* is refused."""
    with pytest.raises(ValidationError) as raised:
        adapter.validate_python(value)
    (error,) = raised.value.errors(include_url=False, include_input=False)
    return dict(error)


# --- ids as types of fields


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_schema_of_a_format(format: Format) -> None:
    """The JSON schema of a format has its pattern, lengths, and an example that fits all of them; in both modes."""
    adapter: TypeAdapter[str] = TypeAdapter(Annotated[str, PublicId(format)])

    schema = adapter.json_schema()
    (example,) = schema["examples"]

    assert schema == adapter.json_schema(mode="serialization")
    assert (schema["type"], schema["format"]) == ("string", "public-id")
    assert schema["pattern"] == format.pattern
    assert format.pattern.startswith("^")
    assert format.pattern.endswith("$")
    assert schema["minLength"] <= len(example) <= schema["maxLength"] == format.max_length
    assert re.fullmatch(schema["pattern"], example)
    assert adapter.validate_python(example) == format.validate(example) == example


@pytest.mark.slow
def test_examples_stay() -> None:
    """The example of a format is the same in each process: a document does not change by itself."""
    program = (
        "from sqlalchemy_public_id.formats import *; from sqlalchemy_public_id.pydantic_schema import example_of; "
        f"print(*map(example_of, {FORMATS!r}))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert printed.split() == [PublicId(format).json_schema()["examples"][0] for format in FORMATS]


@given(formats())
def test_example_of_any_format(format: Format) -> None:
    """The example of any NanoId is one of its ids."""
    (example,) = TypeAdapter(Annotated[str, PublicId(format)]).json_schema()["examples"]

    assert format.is_valid(example)


@given(formats(), junk | any_text)
def test_validation_is_that_of_the_format(format: Format, value: object) -> None:
    """Pydantic accepts what the format accepts, and nothing else, strictly or not."""
    adapter: TypeAdapter[str] = TypeAdapter(Annotated[str, PublicId(format)])
    for strict in (False, True):
        try:
            adapter.validate_python(value, strict=strict)
        except ValidationError:
            assert not format.is_valid(value)
        else:
            assert format.is_valid(value)


@pytest.mark.parametrize("strict", [None, False, True])
def test_typed_id(strict: bool | None) -> None:
    """A typed id is a type of field: a text or an id becomes an id, also in strict mode."""
    adapter = TypeAdapter(PayeeId)

    for found in (
        adapter.validate_python(TEXT, strict=strict),
        adapter.validate_python(PayeeId(TEXT), strict=strict),
        adapter.validate_json(f'"{TEXT}"', strict=strict),
        adapter.validate_strings(TEXT, strict=strict),
    ):
        assert found == TEXT
        assert type(found) is PayeeId


def test_schema_of_a_typed_id() -> None:
    """The JSON schema of a typed id is that of its format, older prefixes included."""
    schema = TypeAdapter(BillId).json_schema()

    assert schema["pattern"] == "^(?:pydbill_[0-9a-z]{10}|pydinvoice_[0-9a-z]{10})$"
    assert (schema["minLength"], schema["maxLength"]) == (18, 21)
    assert BillId.id_format.is_valid(schema["examples"][0])


def test_serialization() -> None:
    """An id stays what it is in Python, and becomes a plain text in JSON; as a key of a dictionary too."""
    ids, found = TypeAdapter(PayeeId), PayeeId(TEXT)

    assert type(ids.dump_python(found)) is PayeeId
    assert type(ids.dump_python(found, mode="json")) is str
    assert ids.dump_json(found) == json.dumps(TEXT).encode()
    assert (
        TypeAdapter(dict[PayeeId, int]).dump_json({found: 1}) == json.dumps({TEXT: 1}, separators=(",", ":")).encode()
    )
    assert TypeAdapter(PayeeId | None).dump_json(None) == b"null"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("pydbill_0123456789", "the prefix is 'pydbill'"),
        (BillId("pydbill_0123456789"), "the prefix is 'pydbill'"),
        ("1", "it does not begin with 'pydpayee_'"),
        (TEXT + "\n", "it has 22 characters"),
        (TEXT.upper(), "the prefix is 'PYDPAYEE'"),
        ("", "it does not begin with 'pydpayee_'"),
        (1, "it is of type int"),
        (True, "it is of type bool"),
        (None, "it is of type NoneType"),
        (TEXT.encode(), "it is of type bytes"),
        ([TEXT], "it is of type list"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("type_", [PayeeId, Annotated[str, PublicId(PayeeId)], Annotated[str, PublicId(Payee)]])
def test_what_is_no_id(type_: Any, value: object, reason: str) -> None:
    """What is no id is an error of its own type, which says what is wrong and what was expected."""
    expected = "pydpayee_ and 12 of 0-9 a-z"

    assert refusal(TypeAdapter(type_), value) == {
        "type": "public_id",
        "loc": (),
        "msg": f"Input is not a public id: {reason} (expected {expected})",
        "ctx": {"reason": reason, "expected": expected},
    }


def test_text_of_ten_megabytes() -> None:
    """A huge text makes no huge message."""
    assert len(refusal(TypeAdapter(PayeeId), "a" * 10**7)["msg"]) < 200


def test_canonical_text() -> None:
    """What a format takes in several ways of writing arrives in one."""
    format = Ulid()
    text = format.generate()

    assert TypeAdapter(Annotated[str, PublicId(format)]).validate_python(text.lower()) == format.validate(text.lower())


def test_model_as_source() -> None:
    """A mapped class stands for its public id, a typed one as such; where there are several, one is named."""
    typed: TypeAdapter[str] = TypeAdapter(Annotated[str, PublicId(Payee)])
    named: TypeAdapter[str] = TypeAdapter(Annotated[str, PublicId(Line, attribute="slug")])

    assert type(typed.validate_python(TEXT)) is PayeeId
    assert named.json_schema()["pattern"] == "^[0-9a-z]{7}$"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (int, "<class 'int'> has no public ids; expected a format such as NanoId(length=12)"),
        (NanoId, "has no public ids; expected a format such as NanoId(length=12)"),
        (PartyId, "has no public ids"),
        (None, "None has no public ids"),
        (Country, "Country has no public id; add PublicIdMixin"),
        (Line, "Line has no public id 'public_id'; name one of code, slug with attribute=…"),
    ],
)
def test_source_without_ids(source: Any, message: str) -> None:
    """What has no public id cannot be the source of a type."""
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        PublicId(source)


def test_family_of_types() -> None:
    """A field of an abstract type takes the ids of the types below it, and no others."""
    adapter = TypeAdapter(PartyId)

    assert type(adapter.validate_python("pydperson_izkpm55j334u")) is PersonId
    assert adapter.json_schema() == {"type": "string", "format": "public-id"}
    assert "it is of type PayeeId" in refusal(adapter, TEXT)["msg"]


def test_union() -> None:
    """In a union, the prefix tells the type."""
    adapter: TypeAdapter[Any] = TypeAdapter(PayeeId | BillId | None)

    assert type(adapter.validate_python(TEXT)) is PayeeId
    assert type(adapter.validate_python("pydbill_0123456789")) is BillId
    assert adapter.validate_python(None) is None


@pytest.mark.parametrize("left", [BeforeValidator(str.strip), StringConstraints(strip_whitespace=True)], ids=repr)
def test_validators_on_the_left(left: Any) -> None:
    """What stands on the left is done before the id is checked."""
    adapter: TypeAdapter[str] = TypeAdapter(Annotated[str, left, PublicId(PayeeId)])

    assert type(adapter.validate_python(f" {TEXT} ")) is PayeeId
    assert adapter.json_schema() == TypeAdapter(PayeeId).json_schema()
    assert adapter.dump_json(PayeeId(TEXT)) == json.dumps(TEXT).encode()
    assert refusal(adapter, " 1 ")["type"] == "public_id"


@pytest.mark.parametrize("source", [int, Any, str | None, list[str], bytes], ids=str)
def test_note_on_what_is_no_text(source: Any) -> None:
    """Only a text can be a public id."""
    with pytest.raises(ConfigurationError, match="expected str or a typed id"):
        TypeAdapter(Annotated[source, PublicId(PayeeId)])


# --- response models


class PayeeOut(PublicModel, model=Payee):
    public_id: PayeeId
    name: str


class BillOut(PublicModel, model=Bill):
    public_id: BillId
    total: Decimal
    payee: PayeeOut
    payee_name: str
    words: str
    links: tuple[str, ...] = ()


T = TypeVar("T")


class Level(IntEnum):
    """An enumeration of numbers."""

    LOW = 1


class Page(PublicModel, Generic[T]):
    items: list[T]


def test_response() -> None:
    """An object becomes a response, with what it is related to."""
    assert BillOut.model_validate(bill()).model_dump(mode="json") == {
        "public_id": "pydbill_0123456789",
        "total": "1.50",
        "payee": {"public_id": TEXT, "name": "Ada"},
        "payee_name": "Ada",
        "words": "1.50 due",
        "links": [],
    }


def test_envelope() -> None:
    """A generic model without a mapped class of its own holds others."""
    assert Page[PayeeOut](items=[payee()]).model_dump() == {"items": [{"public_id": TEXT, "name": "Ada"}]}


def test_union_of_models() -> None:
    """In a union, the class of the object tells the model."""
    adapter: TypeAdapter[Any] = TypeAdapter(PayeeOut | BillOut)

    assert type(adapter.validate_python(bill())) is BillOut
    assert type(adapter.validate_python(payee())) is PayeeOut


def test_made_without_an_object() -> None:
    """A response may be made of values, too."""
    assert PayeeOut(public_id=TEXT, name="Ada") == PayeeOut.model_validate(payee())


def test_object_of_another_class() -> None:
    """A model does not show the objects of a class for which its fields were not checked."""
    with pytest.raises(ValidationError, match="Input should be of Payee, not Bill"):
        PayeeOut.model_validate(bill())
    with pytest.raises(ConfigurationError, match=r"write class Page\[Any\]\(PublicModel, model=Payee\)"):
        Page[Any].model_validate(payee())


LEAKS: dict[str, tuple[type[Any], Any, Any, str]] = {
    "key": (Bill, int, ..., "bill.id, an integer key of Bill; show public_id"),
    "foreign key": (
        Bill,
        int,
        Field(validation_alias="payee_id"),
        'show payee_public_id, which is public_ref("payee")',
    ),
    "untyped": (Bill, int, Field(validation_alias="untyped"), "bill.untyped, a foreign key of Bill"),
    "optional": (Bill, int | None, Field(None, validation_alias="payee_id"), "bill.payee_id"),
    "text": (Bill, str, Field(validation_alias="id"), "bill.id"),
    "alias": (Bill, int, Field(alias="id"), "bill.id"),
    "choices": (Bill, int, Field(validation_alias=AliasChoices("nothing", "payee_id")), "bill.payee_id"),
    "path": (Bill, int, Field(validation_alias=AliasPath("payee", "id")), "payee.id, an integer key of Payee"),
    "synonym": (Bill, int, Field(validation_alias="number"), "bill.id"),
    "part of a key": (Line, int, Field(validation_alias="position"), "line.position, an integer key of Line"),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_field_that_is_a_key(leak: str) -> None:
    """A field that would show an integer key is refused when the class is created, with what to write instead."""
    configure_mappers()
    model, type_, field, message = LEAKS[leak]
    body = {"__annotations__": {"id": type_}} | ({} if field is ... else {"id": field})

    with pytest.raises(ConfigurationError, match=re.escape(message)) as raised:
        type(PublicModel)("Leaky", (PublicModel,), {"__module__": __name__, **body}, model=model)

    assert str(raised.value).startswith("Leaky.id would show ")


def test_alias_generator_and_inherited_fields() -> None:
    """Aliases that are made, and fields that are inherited, are seen."""

    class Fields(PublicModel):
        model_config = ConfigDict(alias_generator=lambda name: f"payee_{name}")
        id: int

    with pytest.raises(ConfigurationError, match=r"Leaky.id would show bill.payee_id"):

        class Leaky(Fields, model=Bill): ...


def test_id_that_is_public() -> None:
    """A field may be called ``id`` where it shows the public id."""

    class Renamed(PublicModel, model=Payee):
        model_config = ConfigDict(populate_by_name=True)
        id: PayeeId = Field(validation_alias="public_id")
        again: PayeeId = Field(validation_alias=AliasChoices("public_id", "id"))

    assert Renamed.model_validate(payee()).model_dump() == {"id": TEXT, "again": TEXT}


@pytest.mark.parametrize("name", ["payee_number", "payee_key", "key_as_text", "labelled", "broken"])
@pytest.mark.parametrize(
    "type_",
    [int, int | None, float, Decimal, Any, list[int], dict[str, int], date, datetime, timedelta, IPv4Address],
    ids=str,
)
def test_number_that_is_no_column(name: str, type_: Any) -> None:
    """A field that can hold a number, and reads a hybrid, a proxy or an expression, is refused by its type alone."""
    with pytest.raises(ConfigurationError, match=rf"Leaky\.{name} may show a key: Bill\.{name} is no column, and"):
        type(PublicModel)("Leaky", (PublicModel,), {"__annotations__": {name: type_}}, model=Bill)


def test_number_that_is_said_to_be_no_key() -> None:
    """``NotAKey`` allows a field, or a part of its type, and changes nothing of what is shown."""

    class Out(PublicModel, model=Bill):
        payee_number: Annotated[int, NotAKey()]
        words: dict[Annotated[int, NotAKey], str] = Field({}, validation_alias="doubled")

    class LineOut(PublicModel, model=Line):
        position: Annotated[int, NotAKey()]

    assert Out.model_validate(bill()).model_dump() == {"payee_number": 1, "words": {2: "2"}}
    assert LineOut.model_validate(Line(position=7)).position == 7
    assert LineOut.model_json_schema()["properties"]["position"] == {"title": "Position", "type": "integer"}


def test_texts_and_truth_values_that_are_computed() -> None:
    """A text or a truth value that the application computes cannot hold an integer, and is shown."""

    class Out(PublicModel, model=Bill):
        words: str
        payee_name: str | None
        is_large: bool
        code: UUID | None = Field(None, validation_alias="nothing")
        secret: int = Field(0, validation_alias="payee_id", exclude=True)
        kind: Literal["bill", "note"] = "bill"

    assert Out.model_validate(bill()).model_dump(mode="json") == {
        "words": "1.50 due",
        "payee_name": "Ada",
        "is_large": False,
        "code": None,
        "kind": "bill",
    }


@pytest.mark.parametrize(
    "type_",
    [Annotated[str, BeforeValidator(str)], Annotated[str, Field(coerce_numbers_to_str=True)], Literal[1, "a"], Level],
    ids=["validator", "field", "literal", "enumeration"],
)
def test_text_that_is_made_of_a_number(type_: Any) -> None:
    """A text that Pydantic makes of a number, and a constant that is one, count as numbers."""
    with pytest.raises(ConfigurationError, match=r"Leaky\.words may show a key"):
        type(PublicModel)("Leaky", (PublicModel,), {"__annotations__": {"words": type_}}, model=Bill)
    with pytest.raises(ConfigurationError, match=r"Leaky\.words may show a key"):

        class Leaky(PublicModel, model=Bill):
            model_config = ConfigDict(coerce_numbers_to_str=True)
            words: str


def test_hybrid_that_does_not_work() -> None:
    """No hybrid is called to find out what it shows."""

    class Out(PublicModel, model=Bill):
        broken: str

    with pytest.raises(ValidationError, match="Error extracting attribute: RuntimeError"):
        Out.model_validate(bill())


def test_keys_that_are_no_integers() -> None:
    """A key that is a text is no secret, nor is an integer that is no key."""

    class CountryOut(PublicModel, model=Country):
        code: str
        capital_of: str | None
        people: int

    assert CountryOut.model_validate(Country(code="fr", people=1)).model_dump(exclude_none=True) == {
        "code": "fr",
        "people": 1,
    }


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [("Plain", "Plain"), ("Plain | None", "Plain"), ("Any", "Any"), ("list[dict[str, Plain]]", "Plain")],
)
def test_related_objects_in_another_model(annotation: str, shown: str) -> None:
    """A relationship is shown by a ``PublicModel``, because others may show keys."""

    class Plain(BaseModel):
        id: int

    found = eval(annotation, {"Plain": Plain, "Any": Any})
    with pytest.raises(ConfigurationError, match=rf"Leaky\.payee may show a key: .+, and {shown} can hold one"):
        type(PublicModel)("Leaky", (PublicModel,), {"__annotations__": {"payee": found}}, model=Bill)


class LaterPlain(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: int


def test_related_objects_in_a_model_declared_below() -> None:
    """A type that is declared below is checked with the first object."""
    configure_mappers()

    class Out(PublicModel, model=Bill):
        payee: Plain

    class Plain(BaseModel):
        model_config = ConfigDict(from_attributes=True)
        id: int

    Out.model_rebuild(_types_namespace={"Plain": Plain})
    with pytest.raises(ConfigurationError, match=r"Out\.payee may show a key: Bill\.payee is no column, and Plain can"):
        Out.model_validate(bill())


GivenAlias = TypeAliasType("GivenAlias", list[T] | None, type_params=(T,))


@pytest.mark.parametrize(
    "annotation",
    [TypeAliasType("Named", LaterPlain), TypeAliasType("Named", LaterPlain | None), GivenAlias[LaterPlain]],
)
def test_related_objects_in_a_model_with_another_name(annotation: Any) -> None:
    """A name for a type hides nothing."""
    with pytest.raises(ConfigurationError, match=r"Leaky\.payee may show a key: .+, and LaterPlain can"):
        type(PublicModel)("Leaky", (PublicModel,), {"__annotations__": {"payee": annotation}}, model=Bill)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (AliasChoices(AliasPath("payee", "name"), "payee_id"), "Leaky.number would show bill.payee_id"),
        (AliasChoices("nothing", "payee_id"), "Leaky.number would show bill.payee_id"),
        (AliasChoices("nothing", "payee"), "Leaky.number may show a key: Bill.payee is no column, and Any can"),
    ],
    ids=str,
)
def test_choice_that_is_not_the_first(choices: AliasChoices, message: str) -> None:
    """Each attribute that may be read is checked, since the first one may have nothing to read."""
    configure_mappers()
    with pytest.raises(ConfigurationError, match=message):

        class Leaky(PublicModel, model=Bill):
            number: Any = Field(validation_alias=choices)


def test_misspelt_field() -> None:
    """A field for which there is no attribute is refused, unless it has a default."""
    with pytest.raises(ConfigurationError, match=r"Out\.nmae reads 'nmae', which Payee does not have"):

        class Out(PublicModel, model=Payee):
            nmae: str


def test_extra_fields() -> None:
    """A model that takes all attributes would take the key."""
    with pytest.raises(ConfigurationError, match='Out has extra="allow"'):

        class Out(PublicModel, model=Payee):
            model_config = ConfigDict(extra="allow")


def test_model_that_is_not_mapped() -> None:
    """The class that is named has to be mapped."""
    with pytest.raises(ConfigurationError, match="Out: model is <class 'int'>, expected a mapped class"):

        class Out(PublicModel, model=int): ...


def test_mappers_are_not_configured_early() -> None:
    """A response model may come before what its class is related to; what is seen then is refused at first use."""

    class Base(DeclarativeBase): ...

    class Post(PublicIdMixin, Base):
        __tablename__ = "post"
        writer_id: Mapped[int] = mapped_column(ForeignKey("writer.id"))
        writer: Mapped[Any] = relationship("Writer")

    class PostOut(PublicModel, model=Post):
        public_id: Annotated[str, PublicId(Post)]
        number: int = Field(validation_alias=AliasPath("writer", "id"))

    class Writer(PublicIdMixin, Base):
        __tablename__ = "writer"

    with pytest.raises(ConfigurationError, match=r"PostOut.number would show writer.id, an integer key of Writer"):
        PostOut.model_validate(Post(writer=Writer(id=1)))


@given(st.integers())
def test_integer_is_no_public_id(number: int) -> None:
    """No integer gets into a field of public ids, even where the object has one there."""
    with pytest.raises(ValidationError):
        PayeeOut(public_id=number, name="Ada")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "package"), [("pydantic", "pydantic"), ("fastapi", "fastapi"), ("_lint", "fastapi")]
)
def test_missing_package(module: str, package: str) -> None:
    """Without the package that a module is for, the error says what to install."""
    program = f"import sys; sys.modules[{package!r}] = None; import sqlalchemy_public_id.ext.{module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (
        f"MissingExtra: {package} is not installed; run: pip install 'sqlalchemy-public-id[{package}]'" in done.stderr
    )
