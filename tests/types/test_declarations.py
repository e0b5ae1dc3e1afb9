"""Declarations that are refused, added late, or omit the public id."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import new_class
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Engine,
    FetchedValue,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    Session,
    configure_mappers,
    mapped_column,
    registry,
    relationship,
)
from support.marks import before_sqlalchemy

from sqlalchemy_public_id import (
    ConfigurationError,
    ImmutablePublicId,
    NanoId,
    PublicIdColumnMixin,
    PublicIdMixin,
    PublicIdMixinDataclass,
    PublicIdType,
    TypedId,
    bigint_key,
    lookup,
    public_id_column,
)
from sqlalchemy_public_id.errors import DuplicatePrefix
from sqlalchemy_public_id.ext.fastapi import by_public_id


class BadgeId(TypedId, prefix="rptbadge"): ...


def declare(base: Any, name: str, *mixins: Any, annotated: Any = None, **body: Any) -> Any:
    """Return a model that lives as long as *base*. *annotated* is the type in the annotation of ``public_id``."""
    body["__annotations__"] = {} if annotated is None else {"public_id": Mapped[annotated]}
    model = new_class(name, (*mixins, base), exec_body=lambda own: own.update(__tablename__=name.lower(), **body))
    base.kept = [*getattr(base, "kept", ()), model]
    return model


def key() -> Any:
    return mapped_column(Integer, primary_key=True)


# --- refused when mappers are configured


def prefix_of_two_columns(base: Any) -> Any:
    number = public_id_column(NanoId(length=5, prefix="rptinv"))
    return declare(base, "Invoice", PublicIdMixin, __public_id__=NanoId(prefix="rptinv"), number=number)


def prefix_of_two_models(base: Any) -> Any:
    declare(base, "Inventory", PublicIdMixin, __public_id__=NanoId(prefix="rptinv"))
    return declare(base, "Invoice", PublicIdMixin, __public_id__=NanoId(prefix="rptinv"))


def other_format_in_a_subclass(base: Any) -> Any:
    mapping = {"polymorphic_on": "kind", "polymorphic_identity": "document"}
    document = declare(base, "Document", PublicIdMixin, __mapper_args__=mapping, kind=mapped_column(String(9)))
    body = {"__mapper_args__": {"polymorphic_identity": "invoice"}, "__public_id__": NanoId(length=5)}
    return type("Invoice", (document,), body)


LATE: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "NoSuchModel": (
        lambda base: declare(base, "Invoice", id=key(), customer=relationship("NoSuchModel")),
        InvalidRequestError,
    ),
    "the prefix 'rptinv' of .*Invoice": (prefix_of_two_columns, DuplicatePrefix),
    "belongs to .*Inventory": (prefix_of_two_models, DuplicatePrefix),
    "cannot have another format": (other_format_in_a_subclass, ConfigurationError),
}


def query(model: type[Any]) -> None:
    with Session(create_engine("sqlite://")) as session:
        session.scalars(select(model)).all()


def add_and_flush(model: type[Any]) -> None:
    with Session(create_engine("sqlite://")) as session:
        session.add(model())
        session.flush()


USES: list[Callable[[type[Any]], object]] = [
    lambda model: configure_mappers(),
    query,
    lambda model: model(),
    add_and_flush,
]


@pytest.mark.parametrize("use", USES, ids=["configure", "query", "make an object", "flush"])
@pytest.mark.parametrize("message", LATE)
def test_refused_each_time(base: Any, message: str, use: Callable[[type[Any]], object]) -> None:
    """A refused declaration raises at each use of the models, like the errors that SQLAlchemy finds itself."""
    refused, error = LATE[message]
    model = refused(base)
    for _ in range(3):
        with pytest.raises(error, match=message):
            use(model)


def test_refused_model_of_another_base(base: Any, create: Callable[[MetaData], None], session: Session) -> None:
    """A refused declaration does not affect lookups in other bases."""
    create(Base.metadata)
    session.add(full := Full())
    session.flush()
    refused = prefix_of_two_models(base)
    with pytest.raises(DuplicatePrefix):
        refused()

    assert lookup.resolve(session, full.public_id) is full


# --- refused at once


def annotated_in_a_mixin(base: Any) -> None:
    class Badges:
        public_id: Mapped[BadgeId]

    declare(base, "Badge", Badges, PublicIdColumnMixin, id=bigint_key())


def annotated_in_a_dataclass(base: Any) -> None:
    class Badges(MappedAsDataclass, DeclarativeBase): ...

    class Badge(PublicIdMixinDataclass, Badges):
        __tablename__ = "badge"
        public_id: Mapped[BadgeId]


EARLY: dict[str, Callable[[Any], Any]] = {
    "a format is given as __public_id__": lambda base: declare(base, "Badge", PublicIdMixin[NanoId]),
    "without quotes": lambda base: declare(base, "Badge", PublicIdMixin["ModelId"]),
    "Badge has two formats": lambda base: declare(
        base, "Badge", PublicIdMixin[BadgeId], __public_id__=NanoId(length=5)
    ),
    r"'NanoId\(\)' is not a format": lambda base: declare(base, "Badge", PublicIdMixin, __public_id__="NanoId()"),
    "TypedId has no prefix": lambda base: declare(base, "Badge", PublicIdMixin, __public_id__=TypedId),
    "12 is not a format": lambda base: public_id_column(12),
    "no option args, max_retry; expected .* or one of active_history, autoincrement, comment, ": (
        lambda base: public_id_column(max_retry=5, args=8)
    ),
    "no option length.* Length and alphabet belong to the format": lambda base: public_id_column(length=9),
    "sets insert_default itself": lambda base: public_id_column(insert_default="x"),
    "sets nullable itself": lambda base: public_id_column(nullable=True),
    "sets primary_key itself": lambda base: public_id_column(primary_key=True),
    "takes no onupdate: the public id of a row never changes": lambda base: public_id_column(onupdate=lambda: "x"),
    "takes no server_onupdate": lambda base: public_id_column(server_onupdate=FetchedValue()),
    "max_retries is -1, expected": lambda base: public_id_column(max_retries=-1),
    "max_retries is True, expected": lambda base: public_id_column(max_retries=True),
    "belongs to .*BadgeId": lambda base: type("OtherId", (TypedId,), {}, prefix="rptbadge"),
}


@pytest.mark.parametrize("message", EARLY)
def test_no_declaration(base: Any, message: str) -> None:
    """An invalid declaration raises, the second time as well, and does not affect other models."""
    model = declare(base, "Ledger", PublicIdMixin)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=message):
            EARLY[message](base)

    assert len(model().public_id) == 12


def declare_with(base: Any, mixin: Any, **keywords: Any) -> None:
    new_class("Badge", (mixin, base), keywords, lambda own: own.update(__tablename__="badge"))


def test_format_after_the_bases(base: Any) -> None:
    """``class Badge(PublicIdMixin, Base, prefix="b")`` says where the format belongs; a base may take the keyword."""
    for mixin in (PublicIdMixin, PublicIdMixin[BadgeId]):
        with pytest.raises(
            ConfigurationError, match=r"Badge takes no prefix after .* __public_id__ = NanoId\(prefix=…\)"
        ):
            declare_with(base, mixin, other=1, prefix="b")
        base.metadata.clear()
        gc.collect()
    with pytest.raises(TypeError, match="takes no keyword arguments"):
        declare_with(base, PublicIdMixin, other=1)

    class Keywords:
        def __init_subclass__(cls, prefix: str = "", **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            cls.taken = prefix

    class Other(Keywords, DeclarativeBase): ...

    class Badge(PublicIdMixin, Other, prefix="b"):
        __tablename__ = "badge"

    assert Badge.taken == "b"


@pytest.mark.skipif(before_sqlalchemy(2, 1), reason="SQLAlchemy only warns")
@pytest.mark.parametrize("mixin", [PublicIdMixin, PublicIdColumnMixin])
def test_mixin_of_another_kind_of_base(mixin: Any) -> None:
    """A dataclass base needs the mixin for dataclasses, which the error names."""

    class DataBase(MappedAsDataclass, DeclarativeBase): ...

    with pytest.raises(ConfigurationError, match=rf"Badge is a dataclass: write {mixin.__name__}Dataclass"):
        declare_with(DataBase, mixin)


MAPPED: dict[str, Callable[[Any], Any]] = {
    "Badge declares public_id itself": lambda base: declare(
        base, "Badge", PublicIdMixin, public_id=mapped_column(String(12))
    ),
    "Badge declares public_id .*instead of the mixin": lambda base: declare(
        base, "Badge", PublicIdColumnMixin, annotated=str, id=key(), public_id=mapped_column(String(12))
    ),
    "no mixin that adds the column": lambda base: declare(base, "Badge", id=key(), __public_id__=NanoId()),
    r"Badge: .* write PublicIdMixin\[BadgeId\] and leave the annotation out": lambda base: declare(
        base, "Badge", PublicIdMixin, annotated=BadgeId
    ),
    r"Badge: .* write PublicIdColumnMixin\[BadgeId\]": annotated_in_a_mixin,
    r"Badge: .* write PublicIdMixinDataclass\[BadgeId\]": annotated_in_a_dataclass,
    "__public_ids__ has no effect": lambda base: declare(
        base, "Badge", PublicIdMixin, __public_ids__=NanoId(prefix="b")
    ),
    "__public_id_length__ has no effect; the format of the ids is __public_id__": lambda base: declare(
        base, "Badge", PublicIdMixin, __public_id_length__=8
    ),
    "__public_id_format__ has no effect": lambda base: declare(
        base, "Badge", id=key(), number=public_id_column(), __public_id_format__="cus"
    ),
    "Badge: __public_id has no effect": lambda base: declare(
        base, "Badge", PublicIdMixin, _Badge__public_id=NanoId(length=8)
    ),
}


@pytest.mark.parametrize("message", MAPPED)
def test_refused_when_mapped(base: Any, message: str) -> None:
    """A model with two ids or an unknown setting is refused where it is written, and leaves no table."""
    model = declare(base, "Ledger", PublicIdMixin)
    with pytest.raises(ConfigurationError, match=message):
        MAPPED[message](base)

    assert [*base.metadata.tables] == ["ledger"]
    assert len(model().public_id) == 12


@pytest.mark.filterwarnings("ignore:Implicitly combining column")
def test_declared_again_in_a_joined_table(base: Any) -> None:
    """A subclass with a table of its own cannot declare the public id again, under the same name."""
    badge = declare(base, "Badge", PublicIdMixin)
    joined = mapped_column(ForeignKey("badge.id"), primary_key=True)
    with pytest.raises(ConfigurationError, match="Medal declares public_id again, which Badge has"):
        declare(badge, "Medal", id=joined, public_id=public_id_column())

    assert [*base.metadata.tables] == ["badge"]


@pytest.mark.parametrize(
    ("mixin", "annotated", "body"),
    [
        (PublicIdMixin[BadgeId], BadgeId, {}),
        (PublicIdMixin, BadgeId, {"public_id": public_id_column(BadgeId)}),
        (PublicIdMixin[BadgeId], str, {}),
    ],
    ids=["repeated", "with a column", "str"],
)
def test_annotation_that_is_right(base: Any, mixin: Any, annotated: Any, body: dict[str, Any]) -> None:
    """An annotation may repeat the typed id of the mixin, and may accompany the model's own column."""
    assert type(declare(base, "Badge", mixin, annotated=annotated, **body)().public_id) is BadgeId


def test_typed_id_of_an_abstract_model(base: Any) -> None:
    """A model inherits the typed id of an abstract model's mixin."""
    parent = new_class("Abstract", (PublicIdMixin[BadgeId], base), exec_body=lambda own: own.update(__abstract__=True))

    assert type(declare(parent, "Badge")().public_id) is BadgeId


# --- attributes that are added to a configured class

BEFORE: dict[str, Callable[[type[Any]], object]] = {
    "nothing": lambda model: None,
    "a dependency": lambda model: by_public_id(model, session=Session),
    "configured": lambda model: configure_mappers(),
}


@pytest.mark.parametrize("before", BEFORE)
def test_added_to_a_configured_class(engine: Engine, base: Any, before: str) -> None:
    """A public id added to a class whose mapper is configured is immutable like any other."""
    model = declare(base, "Member", PublicIdMixin)
    BEFORE[before](model)
    model.second_id = public_id_column()
    base.metadata.create_all(engine)
    with Session(engine) as session:
        member = model()
        session.add(member)
        session.commit()
        with pytest.raises(ImmutablePublicId):
            member.second_id = "z" * 12
            session.flush()


# --- mappings that exclude the public id of the table


class Base(DeclarativeBase):
    metadata = MetaData()


class Full(PublicIdMixin, Base):
    __tablename__ = "guarded"
    __public_id__ = NanoId(prefix="rptfull")
    name: Mapped[str | None] = mapped_column(String(9))


class Included(Base):
    __table__ = Full.__table__
    __mapper_args__ = {"include_properties": ["id", "name"]}  # noqa: RUF012  read by SQLAlchemy


class Excluded(Base):
    __table__ = Full.__table__
    __mapper_args__ = {"exclude_properties": ["public_id"]}  # noqa: RUF012


FORMAT = NanoId()


class Imperative:
    def __init__(self, name: str) -> None:
        self.name = name


registry(metadata=Base.metadata).map_imperatively(
    Imperative,
    Table(
        "imperative",
        Base.metadata,
        Column("id", Integer, primary_key=True),
        Column("public_id", PublicIdType(FORMAT), default=FORMAT.generate, unique=True, nullable=False),
        Column("name", String(9)),
    ),
    exclude_properties=["public_id"],
)

WRITES: dict[str, Callable[[Session, Any], object]] = {
    "flush": lambda session, model: (session.add(model(name="x")), session.flush()),
    "bulk_save_objects": lambda session, model: session.bulk_save_objects([model(name="x")]),
    "execute": lambda session, model: session.execute(insert(model), [{"name": "x"}]),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("model", [Included, Excluded, Imperative])
def test_mapping_without_the_id(
    create: Callable[[MetaData], None], session: Session, write: str, model: type[Any]
) -> None:
    """A mapping that excludes the public id can insert rows, because the column default generates the id."""
    create(Base.metadata)
    WRITES[write](session, model)

    assert session.scalar(select(func.count(inspect(model).local_table.c.public_id))) == 1
