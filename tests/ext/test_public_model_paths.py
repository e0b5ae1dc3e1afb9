"""The ways from a response model to a column: composites, paths, dictionaries, subclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import AliasChoices, AliasPath, Field
from sqlalchemy import JSON, ForeignKey, String
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    attribute_keyed_dict,
    column_property,
    composite,
    configure_mappers,
    mapped_column,
    relationship,
    synonym,
)

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin
from sqlalchemy_public_id.ext.pydantic import PublicModel


class Base(DeclarativeBase): ...


@dataclass
class Place:
    """A composite of a key and a name."""

    crate_id: int
    name: str


@dataclass
class Size:
    """A composite of numbers that are no keys."""

    width: int
    height: int


class Crate(PublicIdMixin, Base):
    __tablename__ = "crate"
    by_name: Mapped[dict[str, Item]] = relationship(collection_class=attribute_keyed_dict("name"), viewonly=True)
    items: Mapped[list[Item]] = relationship(viewonly=True)


class Item(PublicIdMixin, Base):
    __tablename__ = "item"
    crate_id: Mapped[int] = mapped_column(ForeignKey("crate.id"))
    crate: Mapped[Crate] = relationship(viewonly=True)
    soft_id: Mapped[int]
    soft: Mapped[Crate] = relationship(primaryjoin="foreign(Item.soft_id) == Crate.id", viewonly=True)
    name: Mapped[str] = mapped_column(String(50))
    count: Mapped[int]
    settings: Mapped[dict[str, Any]] = mapped_column(JSON)
    crate_number: Mapped[int] = synonym("crate_id")
    place: Mapped[Place] = composite("crate_id", "name")
    size: Mapped[Size] = composite(mapped_column("width"), mapped_column("height"))


Item.again = column_property(Item.__table__.c.count)
Item.twice = column_property(Item.__table__.c.count * 2)


def declared(model: type[Any], name: str, annotation: Any, **options: Any) -> Any:
    configure_mappers()
    body = {"__annotations__": {name: annotation}, "__module__": __name__} | options
    return type(PublicModel)("Out", (PublicModel,), body, model=model)


@pytest.mark.parametrize(
    "path", [("place",), ("place", "crate_id"), ("id", "real"), ("crate_number",), ("soft_id",), ("crate", "id")]
)
def test_path_to_a_key(path: tuple[str, ...]) -> None:
    """A composite of a key, and a path to a key or behind one, are refused, whatever the type of the field."""
    for annotation in (Any, str):
        with pytest.raises(ConfigurationError, match=r"Out.it would show (item\.(id|crate_id|soft_id)|crate\.id)"):
            declared(Item, "it", annotation, it=Field(None, validation_alias=AliasPath(*path)))


@pytest.mark.parametrize("path", [("items", 0, "crate_id"), ("items", 0, "crate", "items", 1, "id")])
def test_path_through_a_list(path: tuple[str | int, ...]) -> None:
    """A path is followed through the elements of a list."""
    with pytest.raises(ConfigurationError, match=r"Out.it would show item\.(id|crate_id)"):
        declared(Crate, "it", int, it=Field(None, validation_alias=AliasPath(*path)))


@pytest.mark.parametrize("path", [("__dict__", "id"), ("_sa_instance_state", "key"), ("by_name", "x", "id")])
def test_path_that_cannot_be_followed(path: tuple[str, ...]) -> None:
    """What a dictionary has, or the state of the object, is no column."""
    model = Crate if path[0] == "by_name" else Item
    with pytest.raises(ConfigurationError, match=rf"Out.it may show a key: {model.__name__}.{'.'.join(path)} is no"):
        declared(model, "it", int, it=Field(None, validation_alias=AliasPath(*path)))


@pytest.mark.parametrize(
    ("name", "annotation"),
    [("count", int), ("count", Any), ("size", Size), ("settings", dict[str, Any]), ("again", int), ("name", object)],
    ids=str,
)
def test_column_that_is_no_key(name: str, annotation: Any) -> None:
    """A column that is no key is shown as whatever it is declared."""
    assert declared(Item, name, annotation)
    assert declared(Item, "it", annotation, it=Field(validation_alias=AliasPath("soft", "items", 0, name)))


def test_path_into_a_column() -> None:
    """A path that goes on behind a column leads into its value."""
    out = declared(Item, "it", int, it=Field(validation_alias=AliasPath("settings", "size")))

    assert out.model_validate(Item(settings={"size": 3})).it == 3


def test_expression() -> None:
    """An expression is no column, also if it is computed from columns that are no keys."""
    with pytest.raises(ConfigurationError, match=r"Out.twice may show a key: Item.twice is no column, and int can"):
        declared(Item, "twice", int)


def test_choice_behind_a_place_in_a_text() -> None:
    """A path to a place, which may not be there, does not hide the choice behind it."""
    choices = AliasChoices(AliasPath("name", 99), "crate_id")

    with pytest.raises(ConfigurationError, match=r"Out.it would show item.crate_id"):
        declared(Item, "it", int, it=Field(validation_alias=choices))


def test_subclass_that_has_a_key_there() -> None:
    """An object of a subclass is shown only if the attribute is no key in the subclass either."""

    class Special(Item):
        label = synonym("crate_id")

    class Out(PublicModel, model=Item):
        label: int = 0

    assert Out.model_validate(Item(name="a")).label == 0
    with pytest.raises(
        ConfigurationError, match=r"Out.label would show item.crate_id, a foreign key of (Item|Special)"
    ):
        Out.model_validate(Special(name="a", crate_id=1))
