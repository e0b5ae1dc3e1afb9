"""Mistakes in declarations: formats, typed ids and models."""

import uuid
from typing import Any, NewType

import pytest
from mistakes.models import CustomerId, new_base
from mistakes.table import mistake
from sqlalchemy import String
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column
from support.marks import before_sqlalchemy

from sqlalchemy_public_id import JetifyTypeId, NanoId, PublicIdMixin, TypedId, Uuid7, lookup, public_id_column

Name = NewType("Name", str)
GUEST = {"polymorphic_identity": "guest"}

# --- formats and typed ids


@mistake('NanoId(12, "cus")', says=r"write NanoId\(12, prefix='cus'\)")
def test_prefix_as_second_argument() -> None:
    """The second argument is meant as the prefix; it would be the alphabet."""
    NanoId(12, "cus")


@mistake('NanoId(prefix="cus_")', says=r"write prefix='cus'")
def test_prefix_with_its_separator() -> None:
    """The ids should begin with ``cus_``, as Stripe writes them."""
    NanoId(prefix="cus_")


@mistake('Uuid7(prefix="cus_")', says=r"write prefix='cus'")
def test_prefix_of_uuids_with_its_separator() -> None:
    """The UUIDs should begin with ``cus_``."""
    Uuid7(prefix="cus_")


@mistake('class CustomerId(TypedId, prefix="cus_")', says=r"write prefix='mkcusx'")
def test_prefix_of_a_typed_id_with_its_separator() -> None:
    """The ids of the type should begin with ``cus_``."""
    type("CustomerId", (TypedId,), {}, prefix="mkcusx_")


@mistake('JetifyTypeId("cus_")', says=r"expected 1 to 63 of a-z and '_', beginning and ending with a letter")
def test_prefix_of_a_typeid_with_its_separator() -> None:
    """The TypeID should begin with ``cus_``."""
    JetifyTypeId("cus_")


@mistake("NanoId(size=8)", says=r"length=8|takes .*length|write length")
def test_size_of_a_nanoid() -> None:
    """The ids should have eight characters, which other libraries call their size."""
    NanoId(size=8)


@mistake('NanoId(length="12")', says=r"expected a whole number from 1 to 255")
def test_length_as_text() -> None:
    """The length comes from the environment, as text."""
    NanoId(length="12")


@mistake('NanoId(alphabet="abcdefabcdef")', says=r"it repeats a b c d e f")
def test_alphabet_with_repetitions() -> None:
    """Some characters should be more frequent than others."""
    NanoId(alphabet="abcdefabcdef")


@mistake('NanoId(prefix="my customer")', says=r"expected ASCII letters, digits and '_', beginning with a letter")
def test_prefix_with_a_blank() -> None:
    """The prefix is the name of the model, as people write it."""
    NanoId(prefix="my customer")


@mistake('CustomerId = TypedId("cus")', says=r'class CustomerId\(TypedId, prefix="cus"\)')
def test_typed_id_by_a_call() -> None:
    """A type for ids with the prefix is meant, declared as with ``NewType``."""
    TypedId("cus")


@mistake("class CustomerId(TypedId): ...", says=r'class CustomerId\(\w+, prefix="cus"\)')
def test_typed_id_without_prefix() -> None:
    """A type for the ids of customers is meant, with a default prefix."""
    type("PlainId", (TypedId,), {})()


@mistake('class CustomerId(TypedId, prefix="cus", length=8)', says=r"format=NanoId\(length=8\)")
def test_length_of_a_typed_id() -> None:
    """The ids of the type should have eight characters."""
    type("ShortId", (TypedId,), {}, prefix="mkshort", length=8)


@mistake('two types with prefix="cus"', says=r"belongs to .*CustomerId: .*choose another prefix")
def test_two_types_with_one_prefix() -> None:
    """The second type was copied from the first."""
    type("VendorId", (TypedId,), {}, prefix="mkcus")


# --- models


@mistake('class Customer(PublicIdMixin["cus"], Base)', says=r"declare the typed id before the model")
def test_prefix_in_brackets() -> None:
    """The text in brackets is meant as the prefix."""

    class Customer(PublicIdMixin["cus"], new_base()):
        __tablename__ = "customer"


@mistake("class Customer(PublicIdMixin[NanoId(length=8)], Base)", says=r"__public_id__ = NanoId\(\.\.\.\)")
def test_format_in_brackets() -> None:
    """The ids should have this format."""

    class Customer(PublicIdMixin[NanoId(length=8)], new_base()):
        __tablename__ = "customer"


@mistake('CustomerId = NewType("CustomerId", str)', says=r"is not a TypedId class")
def test_new_type_in_brackets() -> None:
    """Type checkers should tell the ids of customers from others."""

    class Customer(PublicIdMixin[Name], new_base()):
        __tablename__ = "customer"


@mistake('class Customer(PublicIdMixin["CustomerId"], Base)', says=r"write it without quotes")
def test_typed_id_in_quotes() -> None:
    """The ids should have the type, which is declared below the model."""

    class Customer(PublicIdMixin["CustomerId"], new_base()):
        __tablename__ = "customer"


@mistake('__public_id__ = "cus"', says=r"expected a format such as NanoId\(length=12\), or a TypedId class")
def test_prefix_as_format() -> None:
    """The text is meant as the prefix."""

    class Customer(PublicIdMixin, new_base()):
        __tablename__ = "customer"
        __public_id__ = "cus"


@mistake("__public_id__ = NanoId", says=r"expected a format such as NanoId\(length=12\)")
def test_class_as_format() -> None:
    """The default settings of the format are meant."""

    class Customer(PublicIdMixin, new_base()):
        __tablename__ = "customer"
        __public_id__ = NanoId


@mistake("__public_id__ = NanoId().generate", says=r"expected a format such as NanoId\(length=12\)")
def test_function_as_format() -> None:
    """The function should generate the ids, as a ``default=`` does."""

    class Customer(PublicIdMixin, new_base()):
        __tablename__ = "customer"
        __public_id__ = NanoId().generate


@mistake("__public_ids__ = NanoId(length=21)", says=r"the format of the ids is __public_id__")
def test_misspelled_setting() -> None:
    """The ids should have 21 characters; the setting is misspelled."""

    class Customer(PublicIdMixin, new_base()):
        __tablename__ = "customer"
        __public_ids__ = NanoId(length=21)


@mistake('__public_id_prefix__ = "cus"', says=r"__public_id__")
def test_misspelled_setting_of_text() -> None:
    """The prefix of the ids is meant, by a setting that does not exist."""

    class Customer(PublicIdMixin, new_base()):
        __tablename__ = "customer"
        __public_id_prefix__ = "cus"


@mistake("class Customer(PublicIdMixin[CustomerId], Base): __public_id__ = NanoId()", says=r"leave one out")
def test_two_formats() -> None:
    """The ids should have the type, and another length."""

    class Customer(PublicIdMixin[CustomerId], new_base()):
        __tablename__ = "customer"
        __public_id__ = NanoId(length=8)


@mistake("class Customer(Base): __public_id__ = NanoId()", says=r"write class Customer\(PublicIdMixin, …\)")
def test_format_without_mixin() -> None:
    """The model should have public ids; the mixin is forgotten."""

    class Customer(new_base()):
        __tablename__ = "customer"
        __public_id__ = NanoId()
        id: Mapped[int] = mapped_column(primary_key=True)


@mistake('class Customer(PublicIdMixin, Base, prefix="cus")', says=r"__public_id__")
def test_prefix_as_keyword_of_the_class() -> None:
    """The keyword is meant as the prefix of the model's ids, as in the class of a typed id."""

    class Customer(PublicIdMixin, new_base(), prefix="cus"):
        __tablename__ = "customer"


@mistake(
    "class Customer(PublicIdMixin): ...",
    documented=("errors", r"takes no arguments` \| .*inherits? from .*declarative base"),
)
def test_model_without_base() -> None:
    """A model is meant; the declarative base is forgotten. The class might be mapped by a decorator yet."""

    class Customer(PublicIdMixin):
        __tablename__ = "customer"

    with pytest.raises(TypeError, match=r"Customer\(\) takes no arguments"):
        Customer(name="Ada")


@mistake("class Customer(Base, PublicIdMixin)")
def test_mixin_after_the_base() -> None:
    """The mixin is meant, after the base."""

    class Customer(new_base(), PublicIdMixin):
        __tablename__ = "customer"

    assert NanoId().is_valid(Customer().public_id)


@pytest.mark.skipif(before_sqlalchemy(2, 1), reason="SQLAlchemy 2.0 warns of the mixin itself")
@mistake("PublicIdMixin with a base of dataclasses", says=r"PublicIdMixinDataclass")
def test_mixin_on_a_base_of_dataclasses() -> None:
    """The model is a dataclass, and should have public ids."""

    class Base(MappedAsDataclass, DeclarativeBase): ...

    class Customer(PublicIdMixin, Base):
        __tablename__ = "customer"
        name: Mapped[str]


@mistake("class Device(PublicIdMixin, Base): serial = …primary_key=True", says=r"use PublicIdColumnMixin")
def test_key_of_ones_own() -> None:
    """The model should keep its key, and have a public id."""

    class Device(PublicIdMixin, new_base()):
        __tablename__ = "device"
        serial: Mapped[int] = mapped_column(primary_key=True)


@mistake("public_id: Mapped[str] = mapped_column(unique=True)", says=r"remove it, or write public_id_column\(\)")
def test_id_declared_again() -> None:
    """The attribute should be visible in the class."""

    class Customer(PublicIdMixin, new_base()):
        __tablename__ = "customer"
        public_id: Mapped[str] = mapped_column(unique=True)


@mistake("public_id: Mapped[UUID]", says=r"annotated as .*UUID")
def test_annotated_as_uuid() -> None:
    """The ids should be UUIDs; they are strings of the default format."""

    class Customer(PublicIdMixin, new_base()):
        __tablename__ = "customer"
        public_id: Mapped[uuid.UUID]


@mistake("public_id_column(unique=False)", says=r"sets unique itself: .*unique and never null")
def test_id_that_is_not_unique() -> None:
    """The id should be unique with the tenant only."""
    public_id_column(unique=False)


@mistake("public_id_column(length=8)", says=r"Length and alphabet belong to the format")
def test_length_of_a_column() -> None:
    """The ids should have eight characters."""
    public_id_column(length=8)


@mistake('public_id_column("cus")', says=r"expected a format such as NanoId\(length=12\)")
def test_prefix_of_a_column() -> None:
    """The text is meant as the prefix, or as the name of the column."""
    public_id_column("cus")


@mistake("two models with one prefix", says=r"choose another prefix for one of them")
def test_two_models_with_one_prefix() -> None:
    """The second model was copied from the first."""
    base = new_base()
    for name in ("customer", "vendor"):
        format = NanoId(prefix="cus")
        type(name.title(), (PublicIdMixin, base), {"__tablename__": name, "__public_id__": format})
    base.registry.configure()


@mistake("two models with one typed id", says=r"choose another prefix for one of them")
def test_two_models_with_one_typed_id() -> None:
    """The ids of vendors should have the type of those of customers."""
    base = new_base()
    for name in ("customer", "vendor"):
        type(name.title(), (PublicIdMixin, base), {"__tablename__": name, "__public_id__": CustomerId})
    base.registry.configure()


def parent() -> type:
    """Return a model that shares its table with its subclasses."""

    class Account(PublicIdMixin, new_base()):
        __tablename__ = "account"
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "account"}  # noqa: RUF012
        kind: Mapped[str]

    return Account


@mistake('class Guest(Account): __public_id__ = NanoId(prefix="guest")', says=r"remove __public_id__")
def test_format_of_a_subclass() -> None:
    """The ids of guests should have a prefix of their own."""
    guest: Any = type("Guest", (parent(),), {"__public_id__": NanoId(prefix="gst"), "__mapper_args__": GUEST})
    guest.registry.configure()


@mistake(
    "class Guest(PublicIdMixin, Account)",
    documented=("guides/declaring-ids#inheritance", "the base table holds the public ids of all subclasses"),
)
def test_mixin_of_a_subclass() -> None:
    """The ids of guests should have a prefix of their own; Python refuses the order of the bases."""
    with pytest.raises(TypeError, match="method resolution"):
        type("Guest", (PublicIdMixin, parent()), {"__mapper_args__": GUEST})


@mistake('CustomerId("izkpm55j334u")', says=r"does not begin with 'mkcus_' \(expected mkcus_ and 12")
def test_id_without_its_prefix() -> None:
    """The prefix should be added."""
    CustomerId("izkpm55j334u")


@mistake("CustomerId.generate()", documented=("guides/declaring-ids#typed-ids", r"`CustomerId\(\)` generates an id"))
def test_generate_of_a_typed_id() -> None:
    """A new id is meant; Python says that there is no such attribute."""
    with pytest.raises(AttributeError):
        CustomerId.generate()


@mistake('class CustomerId(TypedId, prefix="")', says=r"expected ASCII letters, digits and '_'")
def test_empty_prefix() -> None:
    """The ids should have a type, and no prefix."""
    type("EmptyId", (TypedId,), {}, prefix="")


@mistake('isinstance("cus_izkpm55j334u", CustomerId)')
def test_text_is_no_typed_id() -> None:
    """The text should be recognized; only a checked text is a CustomerId."""
    assert not isinstance("mkcus_izkpm55j334u", CustomerId)
    assert isinstance(CustomerId("mkcus_izkpm55j334u"), CustomerId)


@mistake(
    "public_id: Mapped[CustomerId], without the mixin",
    says=r"Could not locate SQLAlchemy Core type.*CustomerId",
    documented=("guides/declaring-ids", r"`PublicIdMixin\[CustomerId\]` .* the usual choice"),
)
def test_annotation_alone() -> None:
    """The annotation should make the column."""

    class Client(new_base()):
        __tablename__ = "client"
        id: Mapped[int] = mapped_column(primary_key=True)
        public_id: Mapped[CustomerId]


@mistake(
    "public_id = mapped_column(String(30), default=CustomerId)", says=r"declare the column with public_id_column\(\)"
)
def test_default_of_ones_own(session: Session) -> None:
    """The column should be one that look-ups know."""

    class Client(new_base()):
        __tablename__ = "client"
        id: Mapped[int] = mapped_column(primary_key=True)
        public_id: Mapped[str] = mapped_column(String(30), default=CustomerId)

    lookup.get(session, Client, "mkcus_izkpm55j334u")


@mistake("public_id = public_id_column(NanoId(length=8)), beside the mixin")
def test_column_beside_the_mixin() -> None:
    """The ids should have eight characters."""

    class Client(PublicIdMixin, new_base()):
        __tablename__ = "client"
        public_id: Mapped[str] = public_id_column(NanoId(length=8))

    assert len(Client().public_id) == 8
