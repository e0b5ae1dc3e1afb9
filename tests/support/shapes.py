"""Models mapped in every possible way. Each has an attribute ``name``, and one or more public ids."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import sqlalchemy
import sqlmodel
from packaging.version import Version
from sqlalchemy import Column, ForeignKey, Integer, MetaData, String, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column, registry

from sqlalchemy_public_id import (
    NanoId,
    PublicIdColumnMixin,
    PublicIdColumnMixinDataclass,
    PublicIdMixin,
    PublicIdMixinDataclass,
    PublicIdType,
    TypedId,
    bigint_key,
    public_id_column,
)


class BoxId(TypedId, prefix="box"): ...


class CrateId(TypedId, prefix="crate", format=NanoId(length=8)): ...


Shape = Callable[[], tuple[Any, dict[str, type[str]]]]
"""A function that declares a model with an attribute ``name``, and returns it with its public ids and their types."""

SHAPES: dict[str, Shape] = {}


def shape(declare: Shape) -> Shape:
    SHAPES[declare.__name__.replace("_", " ")] = declare
    return declare


class Named:
    name: Mapped[str] = mapped_column(String(50))


def new_base() -> Any:
    return type("Base", (DeclarativeBase,), {})


@shape
def mixin() -> Any:
    class Box(Named, PublicIdMixin, new_base()):
        __tablename__ = "box"

    return Box, {"public_id": str}


@shape
def mixin_with_a_format() -> Any:
    class Box(Named, PublicIdMixin, new_base()):
        __tablename__ = "box"
        __public_id__ = NanoId(length=9, prefix="crate")

    return Box, {"public_id": str}


@shape
def mixin_with_a_typed_id() -> Any:
    class Box(Named, PublicIdMixin, new_base()):
        __tablename__ = "box"
        __public_id__ = BoxId

    return Box, {"public_id": BoxId}


@shape
def generic_mixin() -> Any:
    class Box(Named, PublicIdMixin[BoxId], new_base()):
        __tablename__ = "box"

    return Box, {"public_id": BoxId}


AnyId = TypeVar("AnyId", bound=TypedId)


class Entity(PublicIdMixin[AnyId], Generic[AnyId]):
    """An application's mixin that extends ours."""

    name: Mapped[str] = mapped_column(String(50))


@shape
def generic_mixin_of_the_program() -> Any:
    class Box(Entity[BoxId], new_base()):
        __tablename__ = "box"

    return Box, {"public_id": BoxId}


@shape
def abstract_base() -> Any:
    class Record(Named, PublicIdMixin, new_base()):
        __abstract__ = True
        __public_id__ = NanoId(length=10)

    class Crate(Record):
        __tablename__ = "crate"

    class Box(Record):
        __tablename__ = "box"
        __public_id__ = BoxId

    return Box, {"public_id": BoxId}


BOX = {"polymorphic_on": "kind", "polymorphic_identity": "box"}
CRATE = {"polymorphic_identity": "crate"}
CONCRETE = {"concrete": True}


@shape
def joined_tables() -> Any:
    class Box(Named, PublicIdMixin, new_base()):
        __tablename__ = "box"
        kind: Mapped[str] = mapped_column(String(10))
        __mapper_args__ = BOX

    class Crate(Box):
        __tablename__ = "crate"
        id: Mapped[int] = mapped_column(ForeignKey("box.id"), primary_key=True)
        slats: Mapped[int] = mapped_column(default=4)
        label: Mapped[str] = public_id_column(CrateId)
        __mapper_args__ = CRATE

    return Crate, {"public_id": str, "label": CrateId}


@shape
def joined_tables_with_the_id_below() -> Any:
    class Box(Named, new_base()):
        __tablename__ = "box"
        id: Mapped[int] = mapped_column(primary_key=True)

    class Crate(PublicIdColumnMixin[CrateId], Box):
        __tablename__ = "crate"
        id: Mapped[int] = mapped_column(ForeignKey("box.id"), primary_key=True)

    return Crate, {"public_id": CrateId}


@shape
def joined_tables_whose_key_is_the_id() -> Any:
    class Box(Named, new_base()):
        __tablename__ = "box"
        public_id: Mapped[BoxId] = mapped_column(PublicIdType(BoxId), default=BoxId, primary_key=True)

    class Crate(Box):
        __tablename__ = "crate"
        public_id: Mapped[BoxId] = mapped_column(ForeignKey("box.public_id"), primary_key=True)
        slats: Mapped[int] = mapped_column(default=4)

    return Crate, {"public_id": BoxId}


@shape
def single_table() -> Any:
    class Box(Named, PublicIdMixin, new_base()):
        __tablename__ = "box"
        kind: Mapped[str] = mapped_column(String(10))
        __mapper_args__ = BOX

    class Crate(Box):
        __mapper_args__ = CRATE

    return Crate, {"public_id": str}


@shape
def concrete_tables() -> Any:
    class Box(Named, PublicIdMixin, new_base()):
        __tablename__ = "box"

    class Crate(Box):
        __tablename__ = "crate"
        id: Mapped[int] = bigint_key()
        public_id: Mapped[CrateId] = public_id_column(CrateId)
        name: Mapped[str] = mapped_column(String(50))
        __mapper_args__ = CONCRETE

    return Crate, {"public_id": CrateId}


@shape
def imperative() -> Any:
    format = NanoId()
    table = Table(
        "box",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("public_id", PublicIdType(format), default=format.generate, unique=True, nullable=False),
        Column("name", String(50)),
    )

    class Box:
        def __init__(self, name: str) -> None:
            self.name = name

    registry().map_imperatively(Box, table)
    return Box, {"public_id": str}


@shape
def dataclass_mixin() -> Any:
    class Base(MappedAsDataclass, DeclarativeBase): ...

    class Box(PublicIdMixinDataclass[BoxId], Base):
        __tablename__ = "box"
        name: Mapped[str] = mapped_column(String(50))

    return Box, {"public_id": BoxId}


@shape
def dataclass_column_mixin() -> Any:
    class Base(MappedAsDataclass, DeclarativeBase): ...

    class Box(PublicIdColumnMixinDataclass, Base, kw_only=True):
        __tablename__ = "box"
        number: Mapped[int] = mapped_column(primary_key=True, init=False)
        name: Mapped[str] = mapped_column(String(50))
        label: Mapped[str] = public_id_column(CrateId, init=False)

    return Box, {"public_id": str, "label": CrateId}


@shape
def sqlmodel_table() -> Any:
    class Own(sqlmodel.SQLModel, registry=registry()): ...

    class Box(Own, table=True):
        id: int | None = sqlmodel.Field(default=None, sa_column=bigint_key().column)
        public_id: str = sqlmodel.Field(default=None, sa_column=public_id_column(NanoId()).column)
        name: str = sqlmodel.Field(max_length=50)

    return Box, {"public_id": str}


@shape
def renamed_attribute() -> Any:
    class Box(Named, new_base()):
        __tablename__ = "box"
        id: Mapped[int] = bigint_key()
        slug: Mapped[str] = public_id_column(NanoId(length=10), max_retries=20)

    return Box, {"slug": str}


@shape
def renamed_column() -> Any:
    class Box(Named, new_base()):
        __tablename__ = "box"
        id: Mapped[int] = bigint_key()
        public_id: Mapped[BoxId] = public_id_column(BoxId, name="external_id")

    return Box, {"public_id": BoxId}


@shape
def column_with_another_key() -> Any:
    class Box(Named, new_base()):
        __tablename__ = "box"
        id: Mapped[int] = bigint_key()
        public_id: Mapped[str] = public_id_column(name="external_id", key="shown")

    return Box, {"public_id": str}


@shape
def column_with_a_weird_name() -> Any:
    class Box(Named, new_base()):
        __tablename__ = "box of wood"
        id: Mapped[int] = bigint_key()
        public_id: Mapped[str] = public_id_column(name="public id:x")

    return Box, {"public_id": str}


PLACEHOLDER = "%(id)s, [0]" if Version(sqlalchemy.__version__) >= Version("2.0.55") else "%(id), [0]"
"""Looks like a placeholder, and before SQLAlchemy 2.0.55 was taken for one in any INSERT on SQLite."""


@shape
def columns_with_weirder_names() -> Any:
    class Box(Named, new_base()):
        __tablename__ = "box's.100%"
        id: Mapped[int] = bigint_key()
        a: Mapped[str] = public_id_column(name="Public.Id")
        b: Mapped[str] = public_id_column(name=PLACEHOLDER)
        c: Mapped[str] = public_id_column(name="id_m1")
        d: Mapped[str] = public_id_column(name="select")
        e: Mapped[str] = public_id_column(name="a\"b`c'd")
        f: Mapped[str] = public_id_column(name="ïd")

    return Box, dict.fromkeys("abcdef", str)


@shape
def several_public_ids() -> Any:
    class Box(Named, PublicIdMixin[BoxId], new_base()):
        __tablename__ = "box"
        label: Mapped[CrateId] = public_id_column(CrateId)
        code: Mapped[str] = public_id_column(NanoId(length=6))

    return Box, {"public_id": BoxId, "label": CrateId, "code": str}


@shape
def composite_key() -> Any:
    numbers = itertools.count(1)

    class Box(Named, PublicIdColumnMixin, new_base()):
        __tablename__ = "box"
        shelf: Mapped[str] = mapped_column(String(5), primary_key=True, default="left")
        place: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, default=lambda: next(numbers))

    return Box, {"public_id": str}


@shape
def key_that_was_there_before() -> Any:
    class Box(Named, PublicIdColumnMixin, new_base()):
        __tablename__ = "box"
        number: Mapped[int] = mapped_column(primary_key=True)

    return Box, {"public_id": str}


FOR_SERVERS = [
    "joined tables",
    "joined tables whose key is the id",
    "columns with weirder names",
    "several public ids",
    "composite key",
]
"""The shapes whose SQL differs between databases: several tables, quoted names, several indexes and keys."""

assert SHAPES.keys() >= set(FOR_SERVERS)
