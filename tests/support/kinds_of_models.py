"""Models of many kinds, whose rows belong to the tenants 1 and 2."""

from __future__ import annotations

import enum
from typing import Any, ClassVar

from sqlalchemy import JSON, Column, ForeignKey, MetaData, String, Table, UniqueConstraint
from sqlalchemy.ext.declarative import AbstractConcreteBase
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    column_property,
    mapped_column,
    relationship,
    synonym,
    validates,
    with_loader_criteria,
)

from sqlalchemy_public_id import (
    NanoId,
    PublicIdColumnMixin,
    PublicIdMixin,
    PublicIdMixinDataclass,
    TypedId,
    Uuid7,
)
from sqlalchemy_public_id.references import public_ref


class Base(DeclarativeBase):
    metadata = MetaData()


class OfTenant:
    tenant_id: Mapped[int] = mapped_column()


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class NodeId(TypedId, prefix="kindnode", format=Uuid7()):
    """Stored as a number."""


link = Table(
    "kind_link",
    Base.metadata,
    Column("node_id", ForeignKey("kind_node.id"), primary_key=True),
    Column("tag_id", ForeignKey("kind_tag.id"), primary_key=True),
)


class Tag(OfTenant, PublicIdMixin, Base):
    """A model without a prefix, with a unique name and a counter of versions."""

    __tablename__ = "kind_tag"
    __table_args__ = (UniqueConstraint("tenant_id", "name"),)
    name: Mapped[str] = mapped_column(String(20))
    version: Mapped[int] = mapped_column()
    __mapper_args__: ClassVar[dict[str, Any]] = {"version_id_col": version}


class Node(OfTenant, PublicIdMixin[NodeId], Base):
    """A model that refers to itself, with columns of every sort."""

    __tablename__ = "kind_node"
    name: Mapped[str] = mapped_column(String(20), deferred=True)
    title = synonym("name")
    color: Mapped[Color | None]
    data: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("kind_node.id"))
    parent: Mapped[Node | None] = relationship(remote_side="Node.id", lazy="joined", join_depth=2)
    parent_public_id: Mapped[NodeId | None] = public_ref("parent", scope="tenant_id")
    children: Mapped[list[Node]] = relationship(viewonly=True)
    tags: Mapped[list[Tag]] = relationship(secondary=link, lazy="joined")

    @validates("name")
    def _check(self, key: str, value: str) -> str:
        assert value
        return value


Node.twice = column_property(Node.__table__.c.tenant_id * 2)


class Country(OfTenant, PublicIdColumnMixin, Base):
    """A model whose key is text."""

    __tablename__ = "kind_country"
    __public_id__ = NanoId(prefix="kindcountry")
    code: Mapped[str] = mapped_column(String(2), primary_key=True)


class City(OfTenant, PublicIdColumnMixin, Base):
    """A model with a composite key, which refers to a country by its text."""

    __tablename__ = "kind_city"
    __public_id__ = NanoId(prefix="kindcity")
    country_code: Mapped[str] = mapped_column(ForeignKey(Country.code), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    country: Mapped[Country] = relationship()
    country_public_id: Mapped[str] = public_ref("country")


class Point(PublicIdMixinDataclass, Base, kw_only=True):
    """A model that is a dataclass."""

    __tablename__ = "kind_point"
    __public_id__ = NanoId(prefix="kindpoint")
    tenant_id: Mapped[int] = mapped_column()
    x: Mapped[int | None] = mapped_column(default=None)


class Shape(AbstractConcreteBase, OfTenant, PublicIdMixin, Base):
    """A model that is selected from the union of the tables of its subclasses."""

    strict_attrs = True
    __public_id__ = NanoId(prefix="kindshape")


class Circle(Shape):
    """A concrete subclass with a table of its own."""

    __tablename__ = "kind_circle"
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "circle", "concrete": True}


class Square(Shape):
    """Another concrete subclass with a table of its own."""

    __tablename__ = "kind_square"
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "square", "concrete": True}


def rows_of(tenant: int) -> list[Base]:
    """Return rows of each model for a tenant."""
    tag = Tag(tenant_id=tenant, name="tag")
    root = Node(tenant_id=tenant, name="root", color=Color.RED, data={"a": 1}, tags=[tag])
    country = Country(tenant_id=tenant, code="xy"[tenant - 1] * 2)
    return [
        tag,
        root,
        Node(tenant_id=tenant, name="leaf", parent=root, tags=[tag]),
        country,
        City(tenant_id=tenant, country=country, number=7),
        Point(tenant_id=tenant, x=1),
        Circle(tenant_id=tenant),
        Square(tenant_id=tenant),
    ]


def criteria(tenant: int) -> list[Any]:
    """Return criteria for all models; a dataclass cannot have the mixin."""
    return [
        with_loader_criteria(OfTenant, lambda model: model.tenant_id == tenant, include_aliases=True),
        with_loader_criteria(Point, Point.tenant_id == tenant, include_aliases=True),
    ]
