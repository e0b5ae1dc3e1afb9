"""Annotations that contradict the ids, which only type checkers would believe, are refused."""

from __future__ import annotations

import uuid
from types import new_class
from typing import Annotated, Any, NewType

import pytest
from sqlalchemy import ForeignKey, Integer, TypeDecorator
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column, relationship

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdMixin,
    PublicIdMixinDataclass,
    TypedId,
    Uuid7,
    bigint_key,
    public_id_column,
    public_ref,
)


class GuestId(TypedId, prefix="angst"): ...


class RoomId(TypedId, prefix="anroom"): ...


class OwnText(str): ...


Name = NewType("Name", str)


class Base(DeclarativeBase): ...


class Guest(PublicIdMixin[GuestId], Base):
    __tablename__ = "guest"


class Plain(PublicIdMixin, Base):
    __tablename__ = "plain"


def stay(base: Any, ref: Any, target: Any, *, nullable: bool = False, **names: Any) -> Any:
    """Declare a model with a reference to *target*, whose annotation is *ref*."""
    body: dict[str, Any] = {
        "__module__": __name__,
        "__tablename__": "stay",
        "__annotations__": {"target_public_id": ref},
        "target_id": mapped_column(ForeignKey(target.id), nullable=nullable),
        "target": relationship(target),
        "target_public_id": public_ref("target"),
    }
    return new_class("Stay", (PublicIdMixin, base), exec_body=lambda own: own.update(body, **names))


@pytest.mark.parametrize(
    ("annotation", "target", "nullable", "right"),
    [
        (Mapped[RoomId], Guest, False, r"Mapped\[GuestId\]$"),
        (Mapped[RoomId | None], Guest, True, r"Mapped\[GuestId \| None\]"),
        ("Mapped[RoomId]", Guest, False, r"Mapped\[GuestId\]$"),
        (Mapped[int], Plain, False, r"Mapped\[str\]"),
        (Mapped[uuid.UUID], Plain, False, r"Mapped\[str\]"),
        (Mapped[GuestId], Plain, False, r"Mapped\[str\]"),
        (Mapped[OwnText], Plain, False, r"Mapped\[str\]"),
    ],
)
def test_wrong_annotation_of_a_reference(base: Any, annotation: Any, target: Any, nullable: bool, right: str) -> None:
    """A reference with the type of other ids is refused when mappers are configured, and whenever it is used."""
    model = stay(base, annotation, target, nullable=nullable)
    with pytest.raises(ConfigurationError, match=rf"Stay\.target_public_id is annotated as \w+, .*write {right}"):
        base.registry.configure(cascade=True)
    with pytest.raises(ConfigurationError, match="is annotated as"):
        model(target_public_id="angst_000000000000")


@pytest.mark.parametrize(
    "annotation",
    [
        Mapped[GuestId],
        Mapped[str],
        Mapped[str | None],
        Mapped[GuestId | RoomId],
        Mapped[TypedId],
        Mapped[Annotated[GuestId, "a note"]],
        Mapped[Any],
        Mapped[object],
        Mapped[Name],
        Mapped["NoSuchName"],
        "Mapped[NoSuchName]",
    ],
)
def test_annotation_of_a_reference_that_is_not_wrong(base: Any, annotation: Any) -> None:
    """A wider type, one without a class, and one that cannot be evaluated are accepted, nullable or not."""
    for nullable in (True, False):
        model = stay(base, annotation, Guest, nullable=nullable)
        base.registry.configure(cascade=True)
        assert type(model(target_public_id="angst_000000000000").target_public_id) is GuestId
        base.metadata.clear()
        base.registry.dispose()


def test_wrong_annotation_in_a_mixin_and_a_dataclass(base: Any) -> None:
    """The annotation may stand in a mixin, or be that of a dataclass."""

    class Visits:
        target_public_id: Mapped[RoomId] = public_ref("target")

    names = {
        "__tablename__": "stay",
        "target_id": mapped_column(ForeignKey(Guest.id)),
        "target": relationship(Guest),
    }
    made = new_class("Stay", (Visits, PublicIdMixin, base), exec_body=lambda own: own.update(names))
    with pytest.raises(ConfigurationError, match=r"Stay\.target_public_id is annotated as RoomId"):
        base.registry.configure(cascade=True)
    del made

    class DataBase(MappedAsDataclass, DeclarativeBase): ...

    class Stay(PublicIdMixinDataclass, DataBase):
        __tablename__ = "stay"
        target_id: Mapped[int] = mapped_column(ForeignKey(Guest.id), init=False)
        target: Mapped[Guest] = relationship(Guest, init=False)
        target_public_id: Mapped[RoomId] = public_ref("target")

    with pytest.raises(ConfigurationError, match=r"Stay\.target_public_id is annotated as RoomId"):
        DataBase.registry.configure(cascade=True)
    DataBase.registry.dispose()


@pytest.mark.parametrize(
    ("annotation", "column", "remedy"),
    [
        (Mapped[uuid.UUID], lambda: public_id_column(NanoId()), r"write Mapped\[str\]"),
        (Mapped[uuid.UUID], lambda: public_id_column(Uuid7()), r"write Mapped\[str\]"),
        (Mapped[int | None], lambda: public_id_column(), r"write Mapped\[str\]"),
        (Mapped[bytes], lambda: public_id_column(GuestId), r"write Mapped\[GuestId\]"),
        (Mapped[RoomId], lambda: public_id_column(GuestId), r"write public_id_column\(RoomId\)"),
    ],
)
def test_wrong_annotation_of_a_column(base: Any, annotation: Any, column: Any, remedy: str) -> None:
    """A column of ids that is annotated with another type is refused where it is declared, and leaves no table."""
    body = {"__tablename__": "stay", "__annotations__": {"number": annotation}, "id": bigint_key(), "number": column()}
    with pytest.raises(ConfigurationError, match=f"Stay: number is annotated as .*{remedy}"):
        new_class("Stay", (base,), exec_body=lambda own: own.update(body))
    assert not base.metadata.tables


def test_wrong_annotation_beside_the_mixin(base: Any) -> None:
    """The annotation of the mixin's column is checked, too: ``public_id: Mapped[uuid.UUID]``."""
    body = {"__tablename__": "stay", "__annotations__": {"public_id": Mapped[uuid.UUID]}, "__public_id__": Uuid7()}
    with pytest.raises(ConfigurationError, match=r"Stay: public_id is annotated as UUID, .*write Mapped\[str\]"):
        new_class("Stay", (PublicIdMixin, base), exec_body=lambda own: own.update(body))


@pytest.mark.parametrize("annotation", [Mapped[str], Mapped[str | None], Mapped[Name], Mapped[Any]])
def test_annotation_of_a_column_that_is_not_wrong(base: Any, annotation: Any) -> None:
    """A column may be annotated with ``str``, with a ``NewType``, and as nullable."""
    body = {
        "__tablename__": "stay",
        "__annotations__": {"number": annotation},
        "id": bigint_key(),
        "number": public_id_column(),
    }
    model: Any = new_class("Stay", (base,), exec_body=lambda own: own.update(body))

    assert len(model().number) == 12


# --- keys


def visit(base: Any, *mixins: Any, annotation: Any = None, **names: Any) -> Any:
    """Declare a model with a foreign key, whose annotation is *annotation*, to a guest."""
    body = {"__tablename__": "visit", "__annotations__": {"guest_id": annotation}} if annotation else {}
    target = {"guest_id": mapped_column(ForeignKey(Guest.id))}
    return new_class("Visit", (*mixins, base), exec_body=lambda own: own.update(body | target, **names))


@pytest.mark.parametrize("annotation", [Mapped[GuestId], Mapped[GuestId | None], "Mapped[GuestId]", Mapped[RoomId]])
@pytest.mark.parametrize("mixin", [True, False], ids=["with a public id", "without"])
def test_key_as_an_id(base: Any, annotation: Any, mixin: bool) -> None:
    """A foreign key of integers with the type of ids is refused when mappers are configured, with what shows ids."""
    names = {"__module__": __name__} | ({} if mixin else {"id": mapped_column(Integer, primary_key=True)})
    visit(base, *([PublicIdMixin] if mixin else []), annotation=annotation, **names)
    for _ in range(2):
        with pytest.raises(
            ConfigurationError,
            match=r"Visit: guest_id is annotated as \w+Id, but is an integer key.*guest_public_id: .* = public_ref\(",
        ):
            base.registry.configure(cascade=True)


def test_primary_key_as_an_id(base: Any) -> None:
    """A primary key is refused, too, in a mixin and a dataclass as well."""

    class Numbered:
        id: Mapped[GuestId] = mapped_column(Integer, primary_key=True)

    new_class("Visit", (Numbered, base), exec_body=lambda own: own.update({"__tablename__": "visit"}))
    with pytest.raises(ConfigurationError, match=r"Visit: id is annotated as GuestId.*a column of its own"):
        base.registry.configure(cascade=True)

    class DataBase(MappedAsDataclass, DeclarativeBase): ...

    class Stay(DataBase):
        __tablename__ = "stay"
        id: Mapped[GuestId] = mapped_column(bigint_key().column.type, primary_key=True, init=False)

    with pytest.raises(ConfigurationError, match=r"Stay: id is annotated as GuestId"):
        DataBase.registry.configure(cascade=True)
    DataBase.registry.dispose()


def test_annotations_of_keys_that_are_not_wrong(base: Any) -> None:
    """A key may be annotated as a number, among others; a foreign key to public ids, and another type, as an id."""

    class Number(TypeDecorator[Any]):
        impl = Integer
        cache_ok = True

    class Visit(PublicIdMixin, base):  # type: ignore[misc]
        __tablename__ = "visit"
        number: Mapped[int] = mapped_column(ForeignKey(Guest.id))
        either: Mapped[int | GuestId] = mapped_column(ForeignKey(Guest.id))
        text: Mapped[GuestId] = mapped_column(ForeignKey(Guest.public_id))
        own: Mapped[GuestId] = mapped_column(Number, ForeignKey(Guest.id))
        name: Mapped[Name] = mapped_column(ForeignKey(Guest.id))

    base.registry.configure(cascade=True)
