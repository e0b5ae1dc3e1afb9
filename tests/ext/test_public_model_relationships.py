"""Response models refuse every type that would let a related object through as it is, with its keys."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Generic, NewType, Protocol, TypeVar, runtime_checkable

import pytest
from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, SkipValidation
from sqlalchemy import ForeignKey
from sqlalchemy.ext.associationproxy import AssociationProxy, association_proxy
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    configure_mappers,
    mapped_column,
    relationship,
    synonym,
)

from sqlalchemy_public_id import ConfigurationError, PublicIdMixinDataclass, TypedId
from sqlalchemy_public_id.ext.pydantic import NotAKey, PublicModel


class Base(MappedAsDataclass, DeclarativeBase): ...


class LessorId(TypedId, prefix="pmrlessor"): ...


class Owned:
    """Something that mapped classes inherit from, and that is not mapped."""


class Region(PublicIdMixinDataclass, Base):
    __tablename__ = "region"


class Lessor(PublicIdMixinDataclass[LessorId], Owned, Base):
    __tablename__ = "lessor"
    name: Mapped[str]
    region_id: Mapped[int] = mapped_column(ForeignKey("region.id"), init=False)
    region: Mapped[Region] = relationship(default=None)


class Lease(PublicIdMixinDataclass, Base):
    __tablename__ = "lease"
    lessor_id: Mapped[int] = mapped_column(ForeignKey("lessor.id"), init=False)
    lessor: Mapped[Lessor] = relationship(default=None)
    landlord: Mapped[Lessor] = synonym("lessor", init=False)
    region: AssociationProxy[Region] = association_proxy("lessor", "region", init=False)
    rooms: Mapped[list[Room]] = relationship(default_factory=list)


class Room(PublicIdMixinDataclass, Base):
    __tablename__ = "room"
    lease_id: Mapped[int] = mapped_column(ForeignKey("lease.id"), init=False)


@runtime_checkable
class HasName(Protocol):
    name: str


class LessorOut(PublicModel, model=Lessor):
    name: str


class RoomOut(PublicModel, model=Room):
    public_id: str


T = TypeVar("T")
TBound = TypeVar("TBound", bound=PublicModel)
TObject = TypeVar("TObject", bound=object)
TOne = TypeVar("TOne", LessorOut, Lessor)
NewLessor = NewType("NewLessor", Lessor)


def declared(name: str, annotation: Any, **options: Any) -> Any:
    """A response model of a lease with this field, which takes any class as a type."""
    body = {"__annotations__": {name: annotation}, "__module__": __name__} | options
    body["model_config"] = ConfigDict(arbitrary_types_allowed=True)
    return type(PublicModel)("Leaky", (PublicModel,), body, model=Lease)


@pytest.mark.parametrize(
    ("name", "annotation", "shown"),
    [
        ("lessor", object, "object"),
        ("lessor", object | None, "object"),
        ("lessor", Hashable, "Hashable"),
        ("lessor", Any, "Any"),
        ("lessor", T, "Any"),
        ("lessor", TObject, "object"),
        ("lessor", TOne, "Lessor"),
        ("lessor", Lessor, "Lessor"),
        ("lessor", Base, "Base"),
        ("lessor", Owned, "Owned"),
        ("lessor", HasName, "HasName"),
        ("lessor", NewLessor, "Lessor"),
        ("lessor", Annotated[Lessor, "a note"], "Lessor"),
        ("lessor", InstanceOf[Lessor], "Lessor"),
        ("lessor", InstanceOf[Base], "Base"),
        ("lessor", SkipValidation[LessorOut], "what is not validated"),
        ("lessor", SkipValidation[str], "what is not validated"),
        ("lessor", Annotated[str, SkipValidation], "what is not validated"),
        ("rooms", list, "list"),
        ("rooms", tuple, "tuple"),
        ("rooms", Sequence, "Sequence"),
        ("rooms", Iterable, "Iterable"),
        ("rooms", Collection, "Collection"),
        ("rooms", dict, "dict"),
        ("rooms", Mapping, "Mapping"),
        ("rooms", list[object], "object"),
        ("rooms", Annotated[int, BeforeValidator(len)], "int"),
        ("rooms", dict[int, RoomOut], "int"),
        ("rooms", Iterable[int], "int"),
        ("rooms", list[SkipValidation[RoomOut]], "what is not validated"),
        ("rooms", list[InstanceOf[Room]] | None, "Room"),
        ("landlord", object, "object"),
        ("region", object, "object"),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_type_that_lets_objects_through(name: str, annotation: Any, shown: str) -> None:
    """A type that takes an object of the model as it is, is refused when the class is created."""
    configure_mappers()

    with pytest.raises(ConfigurationError, match=rf"Leaky\.{name} may show a key: .+ is no column, and {shown} can"):
        declared(name, annotation)


def test_related_object_behind_a_path() -> None:
    """A path to a relationship of a related object, too."""
    configure_mappers()

    with pytest.raises(ConfigurationError, match=r"Lease\.lessor\.region is no column, and object can"):
        declared("it", object, it=Field(validation_alias=AliasPath("lessor", "region")))


@pytest.mark.parametrize(
    ("step", "message"),
    [("lessor", "would show lessor.id"), ("landlord", "would show lessor.id"), ("region", "may show a key")],
)
def test_key_behind_a_path(step: str, message: str) -> None:
    """A path to a key is seen through a relationship and its synonym; what a proxy leads to is not known."""
    configure_mappers()

    with pytest.raises(ConfigurationError, match=f"Leaky.it {message}"):
        declared("it", int, it=Field(validation_alias=AliasPath(step, "id")))


@pytest.mark.parametrize("annotation", [object, InstanceOf[Lessor], T, list])
def test_before_mappers_are_configured(annotation: Any) -> None:
    """What the type alone tells is refused while models are still missing."""

    class Fresh(DeclarativeBase): ...

    class Visit(Fresh):
        __tablename__ = "visit"
        id: Mapped[int] = mapped_column(primary_key=True)
        lessor_id: Mapped[int] = mapped_column(ForeignKey("later.id"))
        lessor: Mapped[Any] = relationship("Later")

    try:
        with pytest.raises(ConfigurationError, match=r"Early\.lessor may show a key: Visit\.lessor is no column"):
            type(PublicModel)("Early", (PublicModel,), {"__annotations__": {"lessor": annotation}}, model=Visit)
    finally:
        Fresh.registry.dispose()  # other tests configure all mappers there are


@pytest.mark.parametrize(
    ("name", "annotation"),
    [
        ("lessor", LessorOut),
        ("lessor", LessorOut | None),
        ("lessor", Annotated[LessorOut, "a note"]),
        ("lessor", TBound),
        ("lessor", Annotated[str, BeforeValidator(lambda lessor: lessor.name)]),
        ("rooms", list[RoomOut]),
        ("rooms", tuple[RoomOut, ...]),
        ("rooms", Sequence[RoomOut]),
        ("rooms", Annotated[int, BeforeValidator(len), NotAKey()]),
        ("lessor", Annotated[Any, NotAKey()]),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_type_that_shows_what_was_checked(name: str, annotation: Any) -> None:
    """A relationship is shown by a ``PublicModel``, alone or in a container, or by what a validator makes of it."""
    configure_mappers()

    assert declared(name, annotation).model_fields[name]


def test_bound_type_variable() -> None:
    """A generic model says that its parameter is a ``PublicModel``, and shows what it is given."""

    class Envelope(PublicModel, Generic[TBound], model=Lease):
        lessor: TBound

    lease = Lease(lessor=Lessor(name="Ada"))

    assert Envelope[LessorOut].model_validate(lease).model_dump() == {"lessor": {"name": "Ada"}}


def test_other_attributes() -> None:
    """What is no relationship may be of any type."""

    class Out(PublicModel, model=Lessor):
        name: object

    class Plain(BaseModel):
        lessors: list[Out]

    assert Plain(lessors=[Lessor(name="Ada")]).model_dump() == {"lessors": [{"name": "Ada"}]}
