"""Response models refuse every SQL expression, hybrid and dictionary that an integer key can be read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any

import pytest
from pydantic import AliasChoices, AliasPath, BeforeValidator, Field
from sqlalchemy import (
    Boolean,
    Float,
    ForeignKey,
    Integer,
    String,
    case,
    cast,
    column,
    exists,
    func,
    literal,
    literal_column,
    select,
    table,
    text,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.associationproxy import AssociationProxy, association_proxy
from sqlalchemy.ext.hybrid import Comparator, hybrid_property
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    aliased,
    attribute_keyed_dict,
    column_keyed_dict,
    column_property,
    composite,
    configure_mappers,
    keyfunc_mapping,
    mapped_column,
    relationship,
    synonym,
)
from sqlalchemy.sql.expression import ColumnElement

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdMixin, TypedId
from sqlalchemy_public_id.ext.pydantic import PublicId, PublicModel


class Base(DeclarativeBase): ...


class ItemId(TypedId, prefix="pmeitem"): ...


@dataclass
class Place:
    """A composite of a key and a name."""

    crate_id: int
    name: str


class Crate(PublicIdMixin, Base):
    __tablename__ = "crate"
    label: Mapped[str] = mapped_column(String(50))
    by_key: Mapped[dict[int, Item]] = relationship(collection_class=attribute_keyed_dict("id"), viewonly=True)
    by_reference: Mapped[dict[int, Item]] = relationship(
        collection_class=attribute_keyed_dict("crate_number"), viewonly=True
    )
    by_column: Mapped[dict[int, Item]] = relationship(
        collection_class=lambda: column_keyed_dict(Item.__table__.c.id)(), viewonly=True
    )
    by_text: Mapped[dict[str, Item]] = relationship(
        collection_class=keyfunc_mapping(lambda item: f"#{item.id}"), viewonly=True
    )
    by_trouble: Mapped[dict[str, Item]] = relationship(
        collection_class=keyfunc_mapping(lambda item: item.crate.label), viewonly=True
    )
    by_name: Mapped[dict[str, Item]] = relationship(collection_class=attribute_keyed_dict("name"), viewonly=True)
    by_public_id: Mapped[dict[str, Item]] = relationship(
        collection_class=attribute_keyed_dict("public_id"), viewonly=True
    )
    names: AssociationProxy[dict[int, str]] = association_proxy("by_key", "name")
    keys: AssociationProxy[dict[str, int]] = association_proxy("by_name", "id")
    crates_of_items: AssociationProxy[dict[str, int]] = association_proxy("by_name", "crate_number")
    again: Mapped[dict[int, Item]] = synonym("by_key")


class ItemNumber(Comparator[int]):
    """A comparator as SQLAlchemy's documentation writes it."""


class Item(PublicIdMixin[ItemId], Base):
    __tablename__ = "item"
    crate_id: Mapped[int] = mapped_column(ForeignKey("crate.id"))
    crate: Mapped[Crate] = relationship(viewonly=True)
    soft_id: Mapped[int]
    soft: Mapped[Crate] = relationship(primaryjoin="foreign(Item.soft_id) == Crate.id", viewonly=True)
    name: Mapped[str] = mapped_column(String(50))
    count: Mapped[int]
    paid: Mapped[bool]
    crate_number: Mapped[int] = synonym("crate_id")
    place: Mapped[Place] = composite("crate_id", "name")

    @hybrid_property
    def arithmetic(self) -> int:
        return self.crate_id * 1

    @hybrid_property
    def words(self) -> str:
        return f"Item {self.id}"

    @hybrid_property
    def number(self) -> int:
        return int(self.id)

    @hybrid_property
    def pretends(self) -> int:
        return self.id

    @pretends.inplace.expression
    @classmethod
    def _pretends(cls) -> ColumnElement[int]:
        return literal(0)

    @hybrid_property
    def compared(self) -> int:
        return self.id

    @compared.inplace.comparator
    @classmethod
    def _compared(cls) -> ItemNumber:
        return ItemNumber(cls.id)

    @hybrid_property
    def its_crate(self) -> Crate:
        return self.crate

    @hybrid_property
    def is_first(self) -> bool:
        return self.id == 1

    @hybrid_property
    def greeting(self) -> str:
        return "Hello " + self.name

    @hybrid_property
    def shouted(self) -> str:
        return self.name.upper()


class greatest_of(ColumnElement[int]):  # noqa: N801  # as functions of SQL are called
    """An element of a program's own, which shows no children."""

    inherit_cache = False
    type = Integer()

    def __init__(self, first: ColumnElement[int]) -> None:
        self.first = first


other = aliased(Item)
newest = select(func.max(Item.id).label("it")).subquery()
bare = table("item", column("id"), column("name"))
worded = text("SELECT max(id) AS it FROM item").columns(column("it", Integer)).subquery()
both = select(Item.count.label("it")).union_all(select(Item.crate_id)).subquery()

LEAKS: dict[str, tuple[ColumnElement[Any], str]] = {
    "max": (select(func.max(Item.id)).scalar_subquery(), "item.id, an integer key of Item"),
    "sum": (select(func.sum(Item.crate_id)).scalar_subquery(), "item.crate_id, a foreign key of Item"),
    "scalar subquery": (select(Item.id).limit(1).scalar_subquery(), "item.id"),
    "coalesce": (func.coalesce(Item.crate_id, 0), "item.crate_id"),
    "arithmetic": (Item.count + Item.crate_id * 2, "item.crate_id"),
    "negative": (-Item.id, "item.id"),
    "text": (cast(Item.id, String), "item.id"),
    "concatenation": (literal("#") + cast(Item.id, String), "item.id"),
    "coerced": (type_coerce(Item.id, String), "item.id"),
    "float": (cast(Item.id, Float), "item.id"),
    "case": (case((Item.paid, Item.id), else_=0), "item.id"),
    "else": (case((Item.paid, 0), else_=Item.id), "item.id"),
    "label": (Item.__table__.c.crate_id.label("it"), "item.crate_id"),
    "alias": (select(func.max(other.id)).scalar_subquery(), "item.id"),
    "subquery": (select(newest.c.it).scalar_subquery(), "item.id"),
    "union": (select(func.max(both.c.it)).scalar_subquery(), "item.crate_id"),
    "cte": (select(select(Item.id.label("it")).cte().c.it).limit(1).scalar_subquery(), "item.id"),
    "window": (func.lag(Item.id).over(order_by=Item.name), "item.id"),
    "filter": (func.max(Item.id).filter(Item.paid), "item.id"),
    "within group": (func.percentile_disc(0.5).within_group(Item.id), "item.id"),
    "json": (func.json_build_object("key", Item.id), "item.id"),
    "flag or key": (cast(func.coalesce(cast(None, Boolean), Item.id), Integer), "item.id"),
    "no foreign key constraint": (func.abs(Item.soft_id), "item.soft_id"),
    "literal column": (literal_column("item.crate_id * 1", Integer), "item.crate_id"),
    "light table": (select(func.max(bare.c.id)).scalar_subquery(), "item.id"),
    "statement in words": (select(worded.c.it).scalar_subquery(), "(crate|item).id"),
    "column in words": (select(text("max(id) FROM item")).scalar_subquery(), "(crate|item).id"),
    "table function": (select(func.generate_series(1, Item.id).table_valued("n").c.n).scalar_subquery(), "item.id"),
    "element of its own": (greatest_of(Item.id), "item.id"),
}

HARMLESS: dict[str, ColumnElement[Any]] = {
    "count": select(func.count(Item.id)).where(Item.crate_id == Crate.id).scalar_subquery(),
    "count or nothing": func.coalesce(select(func.COUNT(Item.crate_id.distinct())).scalar_subquery(), 0),
    "comparison": Item.id == Item.crate_id,
    "any": exists().where(Item.crate_id == Crate.id),
    "case of a comparison": case((Item.id > 5, 1), else_=0),
    "case of a value": case({1: "first"}, value=Item.id, else_="other"),
    "number of a comparison": cast((Item.id > 5) & (Item.crate_id != 1), Integer),
    "another column": select(func.max(Item.count)).where(Item.crate_id == Crate.id).scalar_subquery(),
    "order": select(func.max(Item.name)).where(Item.id > 5).order_by(Item.id).scalar_subquery(),
    "window": func.row_number().over(partition_by=Item.crate_id, order_by=Item.id),
    "aggregate in order": func.array_agg(aggregate_order_by(Item.name, Item.id)),
    "literal": literal_column("'id'"),
    "filter": func.count().filter(Item.id > 5),
}


NUMBERS = count()


def declared(model: type[Any], name: str, annotation: Any, **options: Any) -> Any:
    configure_mappers()
    body = {"__annotations__": {name: annotation}, "__module__": __name__} | options
    return type(PublicModel)("Out", (PublicModel,), body, model=model)


def mapped_with(expression: ColumnElement[Any]) -> type[Any]:
    """A model of the table of crates with a column property of this expression."""
    model = type(f"Shown{next(NUMBERS)}", (), {})
    Base.registry.map_imperatively(model, Crate.__table__, properties={"it": column_property(expression)})
    return model


@pytest.mark.parametrize("name", LEAKS)
def test_expression_of_a_key(name: str) -> None:
    """An expression that a key can be read from is refused, with the name of the key."""
    expression, key = LEAKS[name]

    with pytest.raises(ConfigurationError, match=f"Out.it would show {key}"):
        declared(mapped_with(expression), "it", Any)


@pytest.mark.parametrize("name", HARMLESS)
def test_expression_without_a_key(name: str) -> None:
    """Counts, comparisons, and what is only filtered or sorted by a key, show none."""
    assert declared(mapped_with(HARMLESS[name]), "it", Any)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("arithmetic", "item.crate_id, a foreign key of Item"),
        ("words", "item.id, an integer key of Item"),
        ("number", "item.id"),
        ("pretends", "item.id"),
        ("compared", "item.id"),
        ("soft_id", "item.soft_id, a foreign key of Item; show soft_public_id"),
    ],
)
def test_hybrid_of_a_key(name: str, key: str) -> None:
    """A hybrid is refused if its expression has a key, or if what an object shows changes with its key."""
    with pytest.raises(ConfigurationError, match=f"Out.{name} would show {key}"):
        declared(Item, name, Any)


@pytest.mark.parametrize("name", ["is_first", "greeting", "shouted"])
def test_hybrid_without_a_key(name: str) -> None:
    """A hybrid that compares a key, or has nothing to do with one, is shown."""
    assert declared(Item, name, Any)


def test_hybrid_that_is_a_relationship() -> None:
    """A hybrid that returns a related object is a relationship."""
    with pytest.raises(ConfigurationError, match=r"Out.its_crate shows related objects as Any"):
        declared(Item, "its_crate", Any)


@pytest.mark.parametrize("path", [("place",), ("place", "crate_id"), ("id", "real"), ("__dict__", "id")])
def test_path_to_a_key(path: tuple[str, ...]) -> None:
    """A composite of a key, and a path that goes on behind a key or into the state of the object, are refused."""
    with pytest.raises(ConfigurationError, match=r"Out.it would show item\.(id|crate_id)"):
        declared(Item, "it", Any, it=Field(None, validation_alias=AliasPath(*path)))


def test_choice_behind_a_place_in_a_text() -> None:
    """A path to a place, which may not be there, does not hide the choice behind it."""
    choices = AliasChoices(AliasPath("name", 99), "crate_id")

    with pytest.raises(ConfigurationError, match=r"Out.it would show item.crate_id"):
        declared(Item, "it", int, it=Field(validation_alias=choices))


class ItemOut(PublicModel, model=Item):
    name: str


@pytest.mark.parametrize(
    ("name", "annotation", "message"),
    [
        ("by_key", dict[int, ItemOut], "would show item.id, an integer key of Item"),
        ("by_key", dict[str, ItemOut] | None, "would show item.id"),
        ("by_key", Mapping[float, ItemOut], "would show item.id"),
        ("by_key", Annotated[dict[int, ItemOut], "a note"], "would show item.id"),
        ("by_key", Iterable[int], "would show item.id"),
        ("by_reference", dict[int, ItemOut], "would show item.crate_id, a foreign key of Item"),
        ("by_column", dict[int, ItemOut], "would show item.id"),
        ("by_text", dict[str, ItemOut], "would show item.id"),
        ("by_trouble", dict[str, ItemOut], "shows a dictionary whose keys cannot be checked"),
        ("again", dict[int, ItemOut], "would show item.id"),
        ("names", dict[int, str], "would show item.id"),
        ("keys", dict[str, int], "would show item.id"),
        ("crates_of_items", dict[str, int], "would show item.crate_id"),
    ],
    ids=str,
)
def test_dictionary_of_keys(name: str, annotation: Any, message: str) -> None:
    """A dictionary whose keys are integer keys, or are made of them, is refused."""
    with pytest.raises(ConfigurationError, match=f"Out.{name} {message}"):
        declared(Crate, name, annotation)


@pytest.mark.parametrize("path", [("by_name", "x", "id"), ("by_name", 0, "id"), ("keys", "x")])
def test_path_through_a_dictionary(path: tuple[str | int, ...]) -> None:
    """A path to a key may lead through a dictionary."""
    with pytest.raises(ConfigurationError, match=r"Out.it would show item.id"):
        declared(Crate, "it", Any, it=Field(None, validation_alias=AliasPath(*path)))


@pytest.mark.parametrize(
    ("name", "annotation"),
    [
        ("by_name", dict[str, ItemOut]),
        ("by_public_id", dict[ItemId, ItemOut]),
        ("by_trouble", dict[ItemId, ItemOut]),
        ("by_trouble", dict[Annotated[str, PublicId(NanoId())], ItemOut]),
        ("by_key", Annotated[list[ItemOut], BeforeValidator(lambda items: list(items.values()))]),
    ],
    ids=["text", "typed ids", "ids of trouble", "annotated ids", "values"],
)
def test_dictionary_of_something_else(name: str, annotation: Any) -> None:
    """A dictionary may be keyed by public ids, by texts that are no keys, or be made a list of."""
    assert declared(Crate, name, annotation)


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
