"""Public ids as types of Pydantic fields."""

from __future__ import annotations

import copy
import json
import pickle
import re
import subprocess
import sys
from typing import Annotated, Any, Union

import pytest
from hypothesis import given
from pydantic import BaseModel, BeforeValidator, StringConstraints, TypeAdapter, ValidationError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from support.every_format import one_of_each
from support.strategies import any_text, formats, junk

from sqlalchemy_public_id import ConfigurationError, Format, NanoId, PublicIdMixin, TypedId, public_id_column
from sqlalchemy_public_id.ext.pydantic import PublicId
from sqlalchemy_public_id.formats import BASE36, JetifyTypeId, Ulid, Uuid4, Uuid7

FORMATS: list[Format] = [
    NanoId(length=255 - 4, prefix="cus", separator="."),
    NanoId(alphabet=BASE36.upper(), check_digit=True),
    NanoId(length=16).accepting(NanoId(length=12), NanoId(prefix="old")),
    Uuid7(prefix="evt", encoding="hyphenated"),
    Uuid4(encoding="hex", storage="text"),
    JetifyTypeId(""),
    Ulid(prefix="evt"),
    *one_of_each(),
]


class PayeeId(TypedId, prefix="pydpayee"): ...


class BillId(TypedId, prefix="pydbill", format=NanoId(length=10), aliases=("pydinvoice",)): ...


class PartyId(TypedId): ...


class PersonId(PartyId, prefix="pydperson"): ...


class Base(DeclarativeBase): ...


class Payee(PublicIdMixin[PayeeId], Base):
    __tablename__ = "payee"


class Country(Base):
    __tablename__ = "country"
    id: Mapped[int] = mapped_column(primary_key=True)


class Line(Base):
    """Has two public ids."""

    __tablename__ = "line"
    id: Mapped[int] = mapped_column(primary_key=True)
    code: Mapped[str] = public_id_column(NanoId(length=6))
    slug: Mapped[str] = public_id_column(NanoId(length=7))


TEXT = "pydpayee_izkpm55j334u"


def refusal(adapter: TypeAdapter[Any], value: object) -> dict[str, Any]:
    """Return the only error that validating *value* raises."""
    with pytest.raises(ValidationError) as raised:
        adapter.validate_python(value)
    (error,) = raised.value.errors(include_url=False, include_input=False)
    return dict(error)


# --- ids as types of fields


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_schema_of_a_format(format: Format) -> None:
    """The JSON schema of a format has its pattern, its lengths, and an example that fits both, in both modes."""
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
    """The example of a format is the same in every process, so that a document does not change by itself."""
    program = (
        "from sqlalchemy_public_id.formats import *; from sqlalchemy_public_id.typed.schema import example_of; "
        f"print(*map(example_of, {FORMATS!r}))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert printed.split() == [PublicId(format).json_schema()["examples"][0] for format in FORMATS]


@given(formats(), junk | any_text)
def test_validation_is_that_of_the_format(format: Format, value: object) -> None:
    """Pydantic accepts what the format accepts and nothing else, and returns the canonical text, strictly or not."""
    adapter: TypeAdapter[str] = TypeAdapter(Annotated[str, PublicId(format)])
    for strict in (False, True):
        try:
            found = adapter.validate_python(value, strict=strict)
        except ValidationError:
            assert not format.is_valid(value)
        else:
            assert found == format.validate(value)


@pytest.mark.parametrize("strict", [None, False, True])
def test_typed_id(strict: bool | None) -> None:
    """A typed id can be the type of a field: text or an id becomes an id, in strict mode, too."""
    adapter = TypeAdapter(PayeeId)

    found = [
        adapter.validate_python(TEXT, strict=strict),
        adapter.validate_python(PayeeId(TEXT), strict=strict),
        adapter.validate_json(f'"{TEXT}"', strict=strict),
        adapter.validate_strings(TEXT, strict=strict),
    ]
    assert [(type(each), each) for each in found] == [(PayeeId, TEXT)] * 4


def test_schema_of_a_typed_id() -> None:
    """The JSON schema of a typed id is that of its format, and includes its aliases."""
    schema = TypeAdapter(BillId).json_schema()

    assert schema["pattern"] == "^(?:pydbill_[0-9a-z]{10}|pydinvoice_[0-9a-z]{10})$"
    assert (schema["minLength"], schema["maxLength"]) == (18, 21)
    assert BillId.id_format.is_valid(schema["examples"][0])


def test_serialization() -> None:
    """``dump_python()`` keeps a typed id, and JSON contains plain text, also for keys of a dictionary."""
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
    """An invalid id raises an error of type ``public_id``, which says what is wrong and what was expected."""
    expected = "pydpayee_ and 12 of 0-9 a-z"

    assert refusal(TypeAdapter(type_), value) == {
        "type": "public_id",
        "loc": (),
        "msg": f"Input is not a public id: {reason} (expected {expected})",
        "ctx": {"reason": reason, "expected": expected},
    }


def test_canonical_text() -> None:
    """Text in any spelling that a format accepts becomes the canonical spelling."""
    text = Ulid().generate()

    assert TypeAdapter(Annotated[str, PublicId(Ulid())]).validate_python(text.lower()) == text


def test_model_as_source() -> None:
    """A mapped class stands for its public id, typed or not; ``attribute`` chooses one of several."""
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
    """``PublicId()`` rejects a source that has no public id, or several."""
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        PublicId(source)


def test_family_of_types() -> None:
    """A field of an abstract type accepts the ids of its subclasses, and no others."""
    adapter = TypeAdapter(PartyId)

    assert type(adapter.validate_python("pydperson_izkpm55j334u")) is PersonId
    assert adapter.json_schema() == {"type": "string", "format": "public-id"}
    assert "it is of type PayeeId" in refusal(adapter, TEXT)["msg"]


def test_union() -> None:
    """In a union, the prefix selects the type."""
    adapter: TypeAdapter[Any] = TypeAdapter(PayeeId | BillId | None)

    assert type(adapter.validate_python(TEXT)) is PayeeId
    assert type(adapter.validate_python("pydbill_0123456789")) is BillId
    assert adapter.validate_python(None) is None


def test_names_of_a_union() -> None:
    """The errors of a union name each of its types, formats by their prefix or class."""
    sources: list[Any] = [NanoId(prefix="pydfmt"), NanoId()]
    kinds = [PayeeId, *(Annotated[str, PublicId(source)] for source in sources)]
    adapter: TypeAdapter[Any] = TypeAdapter(Union[tuple(kinds)])  # noqa: UP007
    with pytest.raises(ValidationError) as refused:
        adapter.validate_python("x")

    places = [error["loc"] for error in refused.value.errors()]
    assert places == [(f"function-plain[{name}()]",) for name in ("PayeeId", "pydfmt", "NanoId")]


def test_field_is_not_part_of_an_id() -> None:
    """The id that a field has parsed differs from no other id; its pickles and copies do not know the field."""

    class Payment(BaseModel):
        payee: PayeeId

    parsed, made = Payment.model_validate({"payee": TEXT}).payee, PayeeId(TEXT)
    clones = [pickle.loads(pickle.dumps(parsed)), copy.copy(parsed), copy.deepcopy(parsed), made]

    assert [(clone, hash(clone), repr(clone)) for clone in clones] == [(parsed, hash(parsed), repr(parsed))] * 4
    assert pickle.dumps(parsed) == pickle.dumps(made)
    assert Payment(payee=made).payee is made


@pytest.mark.parametrize("left", [BeforeValidator(str.strip), StringConstraints(strip_whitespace=True)], ids=repr)
def test_validators_on_the_left(left: Any) -> None:
    """Validators to the left of ``PublicId`` run before the id is checked."""
    adapter: TypeAdapter[str] = TypeAdapter(Annotated[str, left, PublicId(PayeeId)])

    assert type(adapter.validate_python(f" {TEXT} ")) is PayeeId
    assert adapter.json_schema() == TypeAdapter(PayeeId).json_schema()
    assert adapter.dump_json(PayeeId(TEXT)) == json.dumps(TEXT).encode()
    assert refusal(adapter, " 1 ")["type"] == "public_id"


@pytest.mark.parametrize("source", [int, Any, str | None, list[str], bytes], ids=str)
def test_note_on_what_is_no_text(source: Any) -> None:
    """``PublicId`` can annotate only ``str`` or a typed id."""
    with pytest.raises(ConfigurationError, match="expected str or a typed id"):
        TypeAdapter(Annotated[source, PublicId(PayeeId)])


@pytest.mark.slow
@pytest.mark.parametrize("module", ["pydantic", "fastapi", "_lint", "flask", "sqlmodel"])
def test_missing_package(module: str) -> None:
    """Importing a module without the package that it needs raises an error that says what to install."""
    package = {"_lint": "fastapi"}.get(module, module)
    program = f"import sys; sys.modules[{package!r}] = None; import sqlalchemy_public_id.ext.{module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (
        f"MissingExtra: {package} is not installed; run: pip install 'sqlalchemy-public-id[{package}]'" in done.stderr
    )
