"""Models whose key or format differs from what their mixin adds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import new_class
from typing import Any

import pytest
from sqlalchemy import BigInteger, ForeignKey, Integer, MetaData, SmallInteger, String, Uuid
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, configure_mappers, mapped_column

from sqlalchemy_public_id import (
    ConfigurationError,
    PublicIdColumnMixin,
    PublicIdColumnMixinDataclass,
    PublicIdMixin,
    PublicIdMixinDataclass,
    TypedId,
    bigint_key,
)
from sqlalchemy_public_id.errors import PublicIdWarning


class CrateId(TypedId, prefix="owncrate"): ...


class BoxId(TypedId, prefix="ownbox"): ...


def declare(name: str, bases: tuple[Any, ...], **members: Any) -> Any:
    return new_class(name, bases, exec_body=lambda own: own.update(members))


def new_base(*bases: type[Any], **members: Any) -> Any:
    return declare("Base", (*bases, DeclarativeBase), metadata=MetaData(), **members)


@pytest.mark.parametrize("type_", [Integer, BigInteger, SmallInteger], ids=lambda type_: type_.__name__)
@pytest.mark.parametrize("mixin", [PublicIdMixin, PublicIdMixin[CrateId]], ids=["plain", "typed"])
def test_key_beside_the_mixin(mixin: Any, type_: Any) -> None:
    """A key of integers that a model declares beside the mixin takes any text on MySQL, which a warning says."""
    with pytest.warns(PublicIdWarning, match=r"Crate declares its key id itself.* write bigint_key\(\)"):
        declare("Crate", (mixin, new_base()), __tablename__="crate", id=mapped_column(type_, primary_key=True))


def test_key_of_the_base_before_the_mixin() -> None:
    """The key of a base that stands before the mixin is used, so there is a warning as well."""
    with pytest.warns(PublicIdWarning, match="Crate declares its key id itself"):
        declare("Crate", (new_base(id=mapped_column(Integer, primary_key=True)), PublicIdMixin), __tablename__="crate")


def test_key_of_a_dataclass_beside_the_mixin() -> None:
    """The mixin for dataclasses warns as well, and names the one for dataclasses without a key."""
    key = mapped_column(Integer, primary_key=True, init=False)
    with pytest.warns(PublicIdWarning, match="declares its key id itself.* or use PublicIdColumnMixinDataclass to"):
        declare("Crate", (PublicIdMixinDataclass, new_base(MappedAsDataclass)), __tablename__="crate", id=key)


TABLE = {"__tablename__": "crate"}
PLACES: dict[str, Callable[..., Any]] = {
    "the model": lambda mixin, parts, key: declare("Crate", (mixin, new_base(*parts)), **key, **TABLE),
    "a mixin before": lambda mixin, parts, key: declare(
        "Crate", (declare("Numbered", parts, **key), mixin, new_base(*parts)), **TABLE
    ),
    "a mixin after": lambda mixin, parts, key: declare(
        "Crate", (mixin, declare("Numbered", parts, **key), new_base(*parts)), **TABLE
    ),
    "an abstract model": lambda mixin, parts, key: declare(
        "Crate", (declare("Abstract", (mixin, new_base(*parts)), __abstract__=True, **key),), **TABLE
    ),
    "the base": lambda mixin, parts, key: declare("Crate", (mixin, new_base(*parts, **key)), **TABLE),
}
"""Where a key is declared → a function that declares a model, with a mixin and the other classes of its base."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("typed", [False, True], ids=["plain", "typed"])
@pytest.mark.parametrize(
    ("mixin", "without_key", "parts"),
    [
        (PublicIdMixin, PublicIdColumnMixin, ()),
        (PublicIdMixinDataclass, PublicIdColumnMixinDataclass, (MappedAsDataclass,)),
    ],
    ids=["plain", "dataclass"],
)
def test_two_keys(mixin: Any, without_key: Any, parts: Any, typed: bool, place: str) -> None:
    """A key of another name than the mixin's is refused wherever it stands, and the error names the mixin that fits."""

    def declared(mixin: Any) -> Any:
        key = {"number": mapped_column(Integer, primary_key=True), "__annotations__": {"number": Mapped[int]}}
        return PLACES[place](mixin[CrateId] if typed else mixin, parts, key)

    with pytest.raises(ConfigurationError) as caught:
        declared(mixin)

    names = f"{mixin.__name__} adds another one; use {without_key.__name__}"
    assert str(caught.value) == f"Crate has a key of its own, number, and {names}"
    assert [each.name for each in declared(without_key).__table__.primary_key] == ["number"]


HARMLESS: dict[str, Any] = {
    "a checked key": (PublicIdMixin, bigint_key),
    "a key of texts": (PublicIdMixin, lambda: mapped_column(String(9), primary_key=True)),
    "a key of UUIDs": (PublicIdMixin, lambda: mapped_column(Uuid, primary_key=True)),
    "the mixin for own keys": (PublicIdColumnMixin, lambda: mapped_column(Integer, primary_key=True)),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_key_that_is_meant(name: str) -> None:
    """Another key is used without a warning."""
    mixin, key = HARMLESS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        declare("Crate", (mixin, new_base()), __tablename__="crate", id=key())


def test_keys_of_subclasses() -> None:
    """The key of a joined table refers to that of the base, and a base's own key may stand after the mixin."""
    base = new_base(id=mapped_column(Integer, primary_key=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kinds = {"polymorphic_on": "kind", "polymorphic_identity": "crate"}
        kind = mapped_column(String(9))
        crate = declare("Crate", (PublicIdMixin, base), __tablename__="crate", kind=kind, __mapper_args__=kinds)
        for type_ in ((), (Integer,)):
            key = mapped_column(*type_, ForeignKey("crate.id"), primary_key=True)
            name = f"box{len(type_)}"
            declare(name, (crate,), __tablename__=name, id=key, __mapper_args__={"polymorphic_identity": name})


@pytest.mark.parametrize("table", [{}, {"__tablename__": "box"}], ids=["single", "joined"])
def test_typed_id_of_a_subclass(table: dict[str, str]) -> None:
    """A subclass whose ids are in the table of its base cannot have another type, and is refused as with a format."""
    kind = {"polymorphic_on": "kind", "polymorphic_identity": "crate"}
    members = {"__tablename__": "crate", "kind": mapped_column(String(9)), "__mapper_args__": kind}
    crate = declare("Crate", (PublicIdMixin[CrateId], new_base()), **members)
    key = {"id": mapped_column(ForeignKey("crate.id"), primary_key=True)} if table else {}
    members = {**table, **key, "__mapper_args__": {"polymorphic_identity": "box"}}
    declare("Box", (crate, PublicIdMixin[BoxId]), **members)
    with pytest.raises(ConfigurationError, match=r"Box inherits its public id.*remove PublicIdMixin\[BoxId\]"):
        configure_mappers()
    crate.registry.dispose()


def test_typed_id_of_the_base_is_repeated() -> None:
    """The subclass may repeat the type of its base."""
    kind = {"polymorphic_on": "kind", "polymorphic_identity": "crate"}
    members = {"__tablename__": "crate", "kind": mapped_column(String(9)), "__mapper_args__": kind}
    crate = declare("Crate", (PublicIdMixin[CrateId], new_base()), **members)
    box = declare("Box", (crate, PublicIdMixin[CrateId]), __mapper_args__={"polymorphic_identity": "box"})
    assert type(box().public_id) is CrateId
