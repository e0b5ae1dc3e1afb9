"""Each way in which an attribute can show an integer key: a ``PublicModel`` refuses it, or shows no number of a key.

The keys are numbers that nothing else has. What is missed is said to be, and so is what is harmless and refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import AliasChoices, AliasPath, Field, create_model
from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Integer,
    String,
    case,
    cast,
    create_engine,
    func,
    literal,
    literal_column,
    select,
)
from sqlalchemy.ext.associationproxy import association_proxy
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    attribute_keyed_dict,
    column_keyed_dict,
    column_property,
    composite,
    keyfunc_mapping,
    mapped_column,
    relationship,
    synonym,
)

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin
from sqlalchemy_public_id.ext.pydantic import NotAKey, PublicModel

DIGITS = "777"
KEYS = {"id": 777001, "depot_id": 777002, "soft_id": 777003, "untyped_id": 777004}
"""The integer keys of a parcel: its own, a foreign key, one without a constraint, and one without a type."""


class Base(DeclarativeBase): ...


class Depot(PublicIdMixin, Base):
    __tablename__ = "depot"
    name: Mapped[str] = mapped_column(String(20))


@dataclasses.dataclass
class Place:
    key: int
    name: str


class Parcel(PublicIdMixin, Base):
    __tablename__ = "parcel"
    depot_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("depot.id"))
    soft_id: Mapped[int]
    untyped_id = Column(ForeignKey("depot.id"))
    name: Mapped[str] = mapped_column(String(20))
    weight: Mapped[int]
    depot: Mapped[Depot] = relationship(foreign_keys=depot_id)
    soft: Mapped[Depot] = relationship(primaryjoin="foreign(Parcel.soft_id) == Depot.id", viewonly=True)
    untyped: Mapped[Depot] = relationship(foreign_keys=untyped_id)
    same: Mapped[Parcel] = relationship(
        primaryjoin="foreign(Parcel.id) == remote(Parcel.id)", viewonly=True, uselist=False
    )


COLUMNS: Any = Parcel.__table__.c
OTHERS: Any = Parcel.__table__.alias("others").c
Make = Callable[[str], Any]


def expression(make: Callable[[Any, Any], Any]) -> Make:
    """A column property of the column of a key, and of that of an alias of the table."""
    return lambda key: column_property(make(COLUMNS[key], OTHERS[key]))


SHOWN: dict[str, Make] = {
    "itself": lambda key: None,
    "synonym": synonym,
    "proxy": partial(association_proxy, "same"),
    "hybrid": lambda key: hybrid_property(lambda self: getattr(self, key)),
    "hybrid_of_another": lambda key: hybrid_property(lambda self: getattr(self, key), expr=lambda cls: literal(0)),
    "pair": lambda key: composite(Place, COLUMNS[key], COLUMNS.name),
    "labelled": expression(lambda column, _: column.label("labelled")),
    "arithmetic": expression(lambda column, _: column * 1),
    "function": expression(lambda column, _: func.coalesce(column, 0)),
    "case": expression(lambda column, _: case((COLUMNS.weight > 0, column), else_=0)),
    "words": expression(lambda column, _: literal_column(f"parcel.{column.name} * 1", Integer)),
    "subquery": expression(
        lambda _, other: select(select(other.label("it")).subquery().c.it).limit(1).scalar_subquery()
    ),
}
"""Attributes that show a key."""
MISSED: dict[str, Make] = {
    "hybrid_text": lambda key: hybrid_property(lambda self: f"#{getattr(self, key)}"),
    "text": expression(lambda column, _: literal("#") + cast(column, String)),
}
"""Texts that the application makes of a key."""
REFUSED: dict[str, Make] = {
    "counted": expression(lambda _, other: select(func.count(other)).scalar_subquery()),
    "elsewhere": expression(lambda key, o: select(func.max(o.table.c.weight)).where(o == key).scalar_subquery()),
}
"""Numbers that are computed, and are no keys."""
HARMLESS: dict[str, tuple[type, Make]] = {
    "compared": (bool, expression(lambda column, _: column > 5)),
    "chosen": (str, expression(lambda column, _: case((column > 5, "many"), else_="few"))),
    "hybrid_comparison": (bool, lambda key: hybrid_property(lambda self: getattr(self, key) > 5)),
    "hybrid_of_name": (str, lambda key: hybrid_property(lambda self: self.name)),
}
DICTIONARIES: dict[str, Make] = {
    "by_attribute": attribute_keyed_dict,
    "by_synonym": lambda key: attribute_keyed_dict(f"synonym_of_{key}"),
    "by_column": lambda key: column_keyed_dict(COLUMNS[key]),
    "by_function": lambda key: keyfunc_mapping(lambda parcel: getattr(parcel, key) + 0),
}
for key in KEYS:
    for name, make in (SHOWN | MISSED | REFUSED | {name: make for name, (_, make) in HARMLESS.items()}).items():
        if name != "itself":
            setattr(Parcel, f"{name}_of_{key}", make(key))
    for name, make in DICTIONARIES.items():
        held = relationship(
            Parcel, primaryjoin="Depot.id == foreign(Parcel.depot_id)", viewonly=True, collection_class=make(key)
        )
        setattr(Depot, f"{name}_of_{key}", held)
    setattr(Depot, f"names_of_{key}", association_proxy(f"by_attribute_of_{key}", "name"))
Base.registry.configure()


@pytest.fixture(scope="module")
def parcel() -> Iterator[Parcel]:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(Depot(id=number, name="d") for number in KEYS.values())
        session.flush()
        session.execute(Parcel.__table__.insert(), {**KEYS, "name": "seven", "weight": 1, "public_id": "a" * 12})
        yield session.get_one(Parcel, KEYS["id"])
    engine.dispose()


def declared(model: type[Any], field: Any, type_: Any) -> Any:
    return create_model("Out", __base__=PublicModel, __cls_kwargs__={"model": model}, field=(type_, field))


def fields(attribute: str) -> list[Any]:
    """Fields that read an attribute by an alias, through a relationship, and as a second choice."""
    paths = [attribute, AliasPath("same", attribute), AliasChoices(AliasPath("name", 9), attribute)]
    return [Field(validation_alias=path) for path in paths]


by_key = pytest.mark.parametrize("key", KEYS)


@by_key
@pytest.mark.parametrize("name", SHOWN)
def test_no_key_leaves(name: str, key: str) -> None:
    """An attribute that shows a key is refused, however it is read."""
    for field in fields(key if name == "itself" else f"{name}_of_{key}"):
        with pytest.raises(ConfigurationError):
            declared(Parcel, field, Place if name == "pair" else int)


@by_key
@pytest.mark.parametrize("name", MISSED)
def test_key_that_is_missed(parcel: Parcel, name: str, key: str) -> None:
    """A text that the application has made of a key is shown: nothing tells it from another text."""
    for field in fields(f"{name}_of_{key}"):
        assert DIGITS in declared(Parcel, field, str).model_validate(parcel).model_dump_json()


@by_key
@pytest.mark.parametrize("name", REFUSED)
def test_harmless_number_that_is_refused(parcel: Parcel, name: str, key: str) -> None:
    """A number that is computed is refused, and shown with ``NotAKey``."""
    for field in fields(f"{name}_of_{key}"):
        with pytest.raises(ConfigurationError):
            declared(Parcel, field, int)
        allowed = declared(Parcel, field, Annotated[int, NotAKey()])
        assert DIGITS not in allowed.model_validate(parcel).model_dump_json()


@by_key
@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_attribute(parcel: Parcel, name: str, key: str) -> None:
    """A text or a truth value that has no key in it is shown."""
    for field in fields(f"{name}_of_{key}"):
        assert DIGITS not in declared(Parcel, field, HARMLESS[name][0]).model_validate(parcel).model_dump_json()


class ParcelOut(PublicModel, model=Parcel):
    name: str


@by_key
@pytest.mark.parametrize("name", [*DICTIONARIES, "names"])
def test_keys_of_dictionaries(name: str, key: str) -> None:
    """A dictionary whose keys are those of the rows is refused, whatever its values are."""
    values = str if name == "names" else ParcelOut
    with pytest.raises(ConfigurationError):
        declared(Depot, Field(validation_alias=f"{name}_of_{key}"), dict[int, values])  # type: ignore[valid-type]
