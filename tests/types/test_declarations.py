"""Declarations that are refused, come late, or leave the public id out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, func, insert, inspect, select
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    configure_mappers,
    mapped_column,
    registry,
    relationship,
)

from sqlalchemy_public_id import (
    ConfigurationError,
    ImmutablePublicId,
    NanoId,
    PublicIdMixin,
    PublicIdType,
    TypedId,
    lookup,
    public_id_column,
)
from sqlalchemy_public_id.errors import DuplicatePrefix
from sqlalchemy_public_id.ext.fastapi import by_public_id

# --- refused declarations --------------------------------------------------------------------------------------------


def missing_relationship(base: Any) -> type[Any]:
    class Invoice(base):
        __tablename__ = "invoice"
        id = mapped_column(Integer, primary_key=True)
        customer = relationship("NoSuchModel")

    return Invoice


def duplicate_prefix(base: Any) -> type[Any]:
    class Invoice(PublicIdMixin, base):
        __tablename__ = "invoice"
        __public_id__ = NanoId(prefix="rptinv")

    class Inventory(PublicIdMixin, base):
        __tablename__ = "inventory"
        __public_id__ = NanoId(prefix="rptinv")

    base.kept = Invoice
    return Inventory


def prefix_in_other_case(base: Any) -> type[Any]:
    class Invoice(PublicIdMixin, base):
        __tablename__ = "invoice"
        __public_id__ = NanoId(prefix="rptinv")

    class Inventory(PublicIdMixin, base):
        __tablename__ = "inventory"
        __public_id__ = NanoId(prefix="RPTinv")

    base.kept = Invoice
    return Inventory


def ambiguous_prefix(base: Any) -> type[Any]:
    class Invoice(PublicIdMixin, base):
        __tablename__ = "invoice"
        __public_id__ = NanoId(prefix="rpt_inv", separator="~")

    class Report(PublicIdMixin, base):
        __tablename__ = "report"
        __public_id__ = NanoId(prefix="rpt")

    base.kept = Invoice
    return Report


def prefix_of_two_columns(base: Any) -> type[Any]:
    class Invoice(PublicIdMixin, base):
        __tablename__ = "invoice"
        __public_id__ = NanoId(prefix="rptinv")
        number: Mapped[str] = public_id_column(NanoId(length=5, prefix="rptinv"))

    return Invoice


def two_declarations(base: Any) -> type[Any]:
    class Invoice(PublicIdMixin, base):
        __tablename__ = "invoice"
        public_id: Mapped[str] = mapped_column(String(12))

    return Invoice


def no_mixin(base: Any) -> type[Any]:
    class Invoice(base):
        __tablename__ = "invoice"
        __public_id__ = NanoId(prefix="rptinv")
        id = mapped_column(Integer, primary_key=True)

    return Invoice


def two_keys(base: Any) -> type[Any]:
    class Invoice(PublicIdMixin, base):
        __tablename__ = "invoice"
        number = mapped_column(Integer, primary_key=True)

    return Invoice


def other_format_in_a_subclass(base: Any) -> type[Any]:
    class Document(PublicIdMixin, base):
        __tablename__ = "document"
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "document"}  # noqa: RUF012
        kind: Mapped[str] = mapped_column(String(9))

    class Invoice(Document):
        __mapper_args__ = {"polymorphic_identity": "invoice"}  # noqa: RUF012
        __public_id__ = NanoId(length=5)

    return Invoice


def configure(model: type[Any]) -> None:
    configure_mappers()


def query(model: type[Any]) -> None:
    with Session(create_engine("sqlite://")) as session:
        session.scalars(select(model)).all()


def instantiate(model: type[Any]) -> None:
    model()


def add_and_flush(model: type[Any]) -> None:
    with Session(create_engine("sqlite://")) as session:
        session.add(model())
        session.flush()


@pytest.mark.parametrize("use", [configure, query, instantiate, add_and_flush])
@pytest.mark.parametrize(
    ("declare", "error"),
    [
        (missing_relationship, InvalidRequestError),
        (duplicate_prefix, DuplicatePrefix),
        (prefix_in_other_case, DuplicatePrefix),
        (ambiguous_prefix, DuplicatePrefix),
        (prefix_of_two_columns, DuplicatePrefix),
        (two_declarations, ConfigurationError),
        (no_mixin, ConfigurationError),
        (two_keys, ConfigurationError),
        (other_format_in_a_subclass, ConfigurationError),
    ],
)
def test_refused_each_time(
    declare: Callable[[Any], type[Any]], error: type[Exception], use: Callable[[type[Any]], None]
) -> None:
    """A declaration that is refused is refused at each use, as the mistakes are that SQLAlchemy finds itself."""
    base = type("Base", (DeclarativeBase,), {})
    model = declare(base)
    try:
        for _ in range(3):
            with pytest.raises(error):
                use(model)
    finally:
        base.registry.dispose()


def invalid_max_retries(base: Any) -> None:
    public_id_column(max_retries=-1)


def no_format(base: Any) -> None:
    type("Invoice", (PublicIdMixin, base), {"__tablename__": "invoice", "__public_id__": "NanoId()"})


def typed_id_without_a_prefix(base: Any) -> None:
    type("Invoice", (PublicIdMixin, base), {"__tablename__": "invoice", "__public_id__": TypedId})


def two_formats(base: Any) -> None:
    class Invoice(PublicIdMixin[ReportId], base):  # type: ignore[misc]
        __tablename__ = "invoice"
        __public_id__ = NanoId(length=5)


def other_annotation(base: Any) -> None:
    class Invoice(PublicIdMixin, base):  # type: ignore[misc]
        __tablename__ = "invoice"
        public_id: Mapped[ReportId]


def prefix_of_another_type(base: Any) -> None:
    class OtherId(TypedId, prefix="rptreport"): ...


class ReportId(TypedId, prefix="rptreport"): ...


@pytest.mark.parametrize(
    ("declare", "error"),
    [
        (invalid_max_retries, ConfigurationError),
        (no_format, ConfigurationError),
        (typed_id_without_a_prefix, ConfigurationError),
        (two_formats, ConfigurationError),
        (other_annotation, ConfigurationError),
        (prefix_of_another_type, DuplicatePrefix),
    ],
)
def test_no_declaration_each_time(declare: Callable[[Any], None], error: type[Exception]) -> None:
    """A class that cannot be declared cannot be declared a second time, either, and does not stop the others."""
    base: Any = type("Base", (DeclarativeBase,), {})
    model = type("Ledger", (PublicIdMixin, base), {"__tablename__": "ledger"})
    try:
        for _ in range(3):
            with pytest.raises(error):
                declare(base)

        assert len(model().public_id) == 12
    finally:
        base.registry.dispose()


def test_refused_model_of_another_base(create: Callable[[MetaData], None], session: Session) -> None:
    """A declaration that is refused does not stop the lookups of other bases."""
    create(Base.metadata)
    session.add(full := Full())
    session.flush()
    other = type("Other", (DeclarativeBase,), {})
    refused = duplicate_prefix(other)
    try:
        with pytest.raises(DuplicatePrefix):
            refused()

        assert lookup.resolve(session, full.public_id) is full
    finally:
        other.registry.dispose()


# --- attributes that are added to a configured class -----------------------------------------------------------------


def build_dependency(model: type[Any]) -> None:
    by_public_id(model, session=Session)


def nothing(model: type[Any]) -> None:
    pass


@pytest.mark.parametrize("before", [nothing, build_dependency, configure])
def test_added_to_a_configured_class(engine: Engine, before: Callable[[type[Any]], None]) -> None:
    """A public id that is added to a class whose mapper is configured is immutable, as every other."""
    base = type("Base", (DeclarativeBase,), {})
    model: Any = type("Member", (PublicIdMixin, base), {"__tablename__": "member"})
    before(model)
    model.second_id = public_id_column()
    base.metadata.create_all(engine)
    with Session(engine) as session:
        member = model()
        session.add(member)
        session.commit()
        with pytest.raises(ImmutablePublicId):
            member.second_id = "z" * 12
            session.flush()


# --- mappings of a table that leave its public id out ----------------------------------------------------------------


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
IMPERATIVE = registry(metadata=Base.metadata)


class Imperative:
    def __init__(self, name: str) -> None:
        self.name = name


IMPERATIVE.map_imperatively(
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


class ByHand(Base):
    """A control: the table by hand, and a mapping that leaves its id out."""

    __table__ = Table(
        "by_hand",
        Base.metadata,
        Column("id", Integer, primary_key=True),
        Column("public_id", String(12), default=FORMAT.generate, unique=True, nullable=False),
        Column("name", String(9)),
    )
    __mapper_args__ = {"exclude_properties": ["public_id"]}  # noqa: RUF012


def flush(session: Session, model: type[Any]) -> None:
    session.add(model(name="x"))
    session.flush()


def save(session: Session, model: type[Any]) -> None:
    session.bulk_save_objects([model(name="x")])


def execute(session: Session, model: type[Any]) -> None:
    session.execute(insert(model), [{"name": "x"}])


@pytest.mark.parametrize("write", [flush, save, execute])
@pytest.mark.parametrize("model", [Included, Excluded, Imperative, ByHand])
def test_mapping_without_the_id(
    create: Callable[[MetaData], None],
    session: Session,
    write: Callable[[Session, type[Any]], None],
    model: type[Any],
) -> None:
    """A mapping that leaves the public id out inserts rows: the default of the column fills it in."""
    create(Base.metadata)
    write(session, model)

    assert session.scalar(select(func.count(inspect(model).local_table.c.public_id))) == 1
