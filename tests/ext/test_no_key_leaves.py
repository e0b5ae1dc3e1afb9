"""From the outside: of hundreds of generated response models, none shows a key.

The keys are numbers that nothing else has. A shape is one way to show one attribute of a parcel or of its depot. Either
it is refused, or its answer has no such number in it. The few that are missed are said to be, and so are the harmless
ones that are refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, create_model
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


def of_columns(column: Any, other: Any) -> dict[str, Any]:
    """Expressions that show *column*; *other* is the same of an alias."""
    return {
        "labelled": column.label("labelled"),
        "arithmetic": column * 1,
        "function": func.coalesce(column, 0),
        "text": literal("#") + cast(column, String),
        "case": case((COLUMNS.weight > 0, column), else_=0),
        "words": literal_column(f"parcel.{column.name} * 1", Integer),
        "largest": select(func.max(other)).scalar_subquery(),
        "subquery": select(select(other.label("it")).subquery().c.it).limit(1).scalar_subquery(),
    }


def of_comparisons(column: Any, other: Any) -> dict[str, Any]:
    """Expressions that do not show *column*."""
    return {
        "counted": select(func.count(other)).scalar_subquery(),
        "compared": column > 5,
        "chosen": case((column > 5, "many"), else_="few"),
        "elsewhere": select(func.max(other.table.c.weight)).where(other == column).scalar_subquery(),
    }


SHOWN: dict[str, Callable[[str], Any]] = {
    "synonym": synonym,
    "proxy": partial(association_proxy, "same"),
    "hybrid": lambda key: hybrid_property(lambda self: getattr(self, key)),
    "hybrid_arithmetic": lambda key: hybrid_property(lambda self: getattr(self, key) * 1),
    "hybrid_text": lambda key: hybrid_property(lambda self: f"#{getattr(self, key)}"),
    "hybrid_of_another": lambda key: hybrid_property(
        lambda self: getattr(self, key), expr=lambda cls: literal(0, Integer)
    ),
    "pair": lambda key: composite(Place, COLUMNS[key], COLUMNS.name),
}
NOT_SHOWN: dict[str, Callable[[str], Any]] = {
    "hybrid_comparison": lambda key: hybrid_property(lambda self: getattr(self, key) > 5),
    "hybrid_of_name": lambda key: hybrid_property(lambda self: self.name),
}
TEXTS = {"name", "public_id", "hybrid_text", "text", "chosen", "hybrid_of_name"}
TRUTHS = {"compared", "hybrid_comparison"}
COLUMNS_SHOWN = ["name", "weight", "public_id"]
LEAKY, HARMLESS = [*KEYS], [*COLUMNS_SHOWN]
for key in KEYS:
    made = {name: make(key) for name, make in (SHOWN | NOT_SHOWN).items()}
    made |= {name: column_property(each) for name, each in of_columns(COLUMNS[key], OTHERS[key]).items()}
    made |= {name: column_property(each) for name, each in of_comparisons(COLUMNS[key], OTHERS[key]).items()}
    for name, attribute in made.items():
        setattr(Parcel, f"{name}_of_{key}", attribute)
        is_harmless = name in NOT_SHOWN or name in of_comparisons(COLUMNS[key], OTHERS[key])
        (HARMLESS if is_harmless else LEAKY).append(f"{name}_of_{key}")

DICTIONARIES: dict[str, Callable[[str], Any]] = {
    "by_attribute": attribute_keyed_dict,
    "by_synonym": lambda key: attribute_keyed_dict(f"synonym_of_{key}"),
    "by_column": lambda key: column_keyed_dict(COLUMNS[key]),
    "by_function": lambda key: keyfunc_mapping(lambda parcel: getattr(parcel, key) + 0),
    "by_text": lambda key: keyfunc_mapping(lambda parcel: f"#{getattr(parcel, key)}"),
}
HELD: Any = {"primaryjoin": "Depot.id == foreign(Parcel.depot_id)", "viewonly": True}
for key in KEYS:
    for name, make in DICTIONARIES.items():
        setattr(Depot, f"{name}_of_{key}", relationship(Parcel, collection_class=make(key), **HELD))
    setattr(Depot, f"names_of_{key}", association_proxy(f"by_attribute_of_{key}", "name"))
    setattr(Depot, f"keys_of_{key}", association_proxy("parcels", key))
Depot.parcels = relationship(Parcel, **HELD)
Depot.by_name = relationship(Parcel, collection_class=attribute_keyed_dict("name"), **HELD)
Depot.by_public_id = relationship(Parcel, collection_class=attribute_keyed_dict("public_id"), **HELD)


class ParcelOut(PublicModel, model=Parcel):
    name: str


class ParcelRow(BaseModel):
    """What nobody should show a parcel by."""

    model_config = ConfigDict(from_attributes=True)
    id: int
    name: str


@dataclasses.dataclass(frozen=True)
class Shape:
    """One way to show an attribute."""

    name: str
    declare: Callable[[], type[BaseModel]]
    """Makes the response model."""
    bare: Callable[[], type[BaseModel]]
    """Makes it without the help of this library."""
    leaks: bool
    """Whether the answer would have a key in it."""
    of_depot: bool = False
    is_missed: bool = False
    """Whether the key leaves, as the documentation says: the application has made a text of it."""
    allowed: Callable[[], type[BaseModel]] | None = None
    """Makes the response model with a ``NotAKey``, where it is harmless, and refused without."""


def fields(model: type[Any], **given: Any) -> dict[str, Callable[[], Any]]:
    """The response model of these fields, a ``PublicModel`` and a plain one."""
    made = {name: each if isinstance(each, tuple) else (each, ...) for name, each in given.items()}
    return {
        "declare": lambda: create_model("Out", __base__=PublicModel, __cls_kwargs__={"model": model}, **made),
        "bare": lambda: create_model("Bare", __config__=ConfigDict(from_attributes=True), **made),
    }


def type_of(name: str) -> Any:
    """The type that an author would declare for this attribute of a parcel."""
    kind = name.partition("_of_")[0] if not name.startswith("hybrid_of_") else name.rpartition("_of_")[0]
    return Place if kind == "pair" else str if kind in TEXTS else bool if kind in TRUTHS else int


def shapes_of_attributes() -> Iterator[Shape]:
    """Each attribute of a parcel: by its name, and by an alias, as the second choice or through a relationship."""
    for place, name in enumerate(LEAKY + HARMLESS):
        leaks, type_ = name in LEAKY, type_of(name)
        alias = [name, AliasPath("same", name), AliasChoices(AliasPath("name", 9), name)][place % 3]
        refused = not leaks and type_ is int and name not in COLUMNS_SHOWN
        for way, field, note in (("name", name, ...), (str(alias), "field", Field(validation_alias=alias))):
            yield Shape(
                f"{name} by {way}",
                leaks=leaks,
                is_missed=leaks and type_ is str,
                allowed=fields(Parcel, **{field: (Annotated[type_, NotAKey()], note)})["declare"] if refused else None,
                **fields(Parcel, **{field: (type_, note)}),
            )


def shapes_of_relationships() -> Iterator[Shape]:
    """Dictionaries and lists of a relationship, and proxies of them."""
    shape = partial(Shape, of_depot=True)
    for key in KEYS:
        for name in DICTIONARIES:
            attribute, key_type = f"{name}_of_{key}", str if name == "by_text" else int
            made = fields(Depot, **{attribute: dict[key_type, ParcelOut]})  # type: ignore[valid-type]
            yield shape(attribute, leaks=True, is_missed=name == "by_text", **made)
        yield shape(f"names of {key}", leaks=True, **fields(Depot, **{f"names_of_{key}": dict[int, str]}))
        yield shape(f"keys of {key}", leaks=True, **fields(Depot, **{f"keys_of_{key}": list[int]}))
        path = Field(validation_alias=AliasPath("by_name", "seven", key))
        yield shape(f"path to {key}", leaks=True, **fields(Depot, field=(int, path)))
    for name in ("by_name", "by_public_id"):
        yield shape(name, leaks=False, **fields(Depot, **{name: dict[str, ParcelOut]}))
    yield shape("parcels", leaks=False, **fields(Depot, parcels=list[ParcelOut]))
    yield shape("parcels as rows", leaks=True, **fields(Depot, parcels=list[ParcelRow]))


SHAPES = [*shapes_of_attributes(), *shapes_of_relationships()]
assert len(SHAPES) > 200


@pytest.fixture(scope="module")
def parcel() -> Iterator[Parcel]:
    Base.registry.configure()
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(Depot(id=number, name="d") for number in KEYS.values())
        session.flush()
        session.execute(Parcel.__table__.insert(), {**KEYS, "name": "seven", "weight": 1, "public_id": "a" * 12})
        yield session.get_one(Parcel, KEYS["id"])
    engine.dispose()


def shown(model: type[BaseModel], shape: Shape, parcel: Parcel) -> str:
    return model.model_validate(parcel.depot if shape.of_depot else parcel).model_dump_json()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_no_key_leaves(parcel: Parcel, shape: Shape) -> None:
    """A shape that would show a key, as it does without this library, is refused, and no harmless one but numbers."""
    assert (DIGITS in shown(shape.bare(), shape, parcel)) == shape.leaks

    if shape.is_missed or not (shape.leaks or shape.allowed):
        assert (DIGITS in shown(shape.declare(), shape, parcel)) == shape.is_missed
        return
    with pytest.raises(ConfigurationError):
        shown(shape.declare(), shape, parcel)
    if shape.allowed is not None:
        assert DIGITS not in shown(shape.allowed(), shape, parcel)
