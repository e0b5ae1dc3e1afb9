"""``__public_id_sql_type__ = "TEXT"``: every mixin declares a column of ids without a length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
from sqlalchemy import Column, MetaData, Text, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column
from sqlalchemy.schema import CreateTable
from sqlmodel import Field, SQLModel

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdColumnMixin,
    PublicIdColumnMixinDataclass,
    PublicIdMixin,
    PublicIdMixinDataclass,
    TypedId,
    Uuid7,
)
from sqlalchemy_public_id.ext.sqlmodel import PublicIdColumnSQLModel, PublicIdSQLModel
from sqlalchemy_public_id.references import AnyPublicIdType


class FolderId(TypedId, prefix="tfolder"): ...


def dialect_of(name: str) -> Any:
    return make_url(f"{name}://").get_dialect()()


def with_mixin() -> Any:
    class Base(DeclarativeBase): ...

    class Folder(PublicIdMixin, Base):
        __tablename__ = "folder"
        __public_id_sql_type__ = "TEXT"

    return Folder


def with_typed_id() -> Any:
    class Base(DeclarativeBase): ...

    class Folder(PublicIdColumnMixin[FolderId], Base):
        __tablename__ = "folder"
        __public_id_sql_type__ = "TEXT"
        id: Mapped[int] = mapped_column(primary_key=True)

    return Folder


def with_dataclass() -> Any:
    class Base(MappedAsDataclass, DeclarativeBase): ...

    class Folder(PublicIdMixinDataclass, Base):
        __tablename__ = "folder"
        __public_id_sql_type__ = "TEXT"

    return Folder


def with_column_of_a_dataclass() -> Any:
    class Base(DeclarativeBase): ...

    class Folder(PublicIdColumnMixinDataclass, Base):
        __tablename__ = "folder"
        __public_id_sql_type__ = "TEXT"
        id: Mapped[int] = mapped_column(primary_key=True, init=False)

    return Folder


def with_sqlmodel() -> Any:
    class Drawer(PublicIdSQLModel, table=True):
        __tablename__ = "text_drawer"
        metadata = MetaData()
        __public_id_sql_type__ = "TEXT"

    return Drawer


def with_column_of_sqlmodel() -> Any:
    class Cabinet(PublicIdColumnSQLModel, table=True):
        __tablename__ = "text_cabinet"
        metadata = MetaData()
        __public_id_sql_type__ = "TEXT"
        id: int = Field(primary_key=True)
        public_id: FolderId = Field(default=None)

    return Cabinet


def with_base() -> Any:
    class Base(DeclarativeBase):
        __public_id_sql_type__ = "TEXT"

    class Folder(PublicIdMixin, Base):
        __tablename__ = "folder"

    return Folder


def with_abstract_model() -> Any:
    class Base(DeclarativeBase): ...

    class Entity(PublicIdMixin, Base):
        __abstract__ = True
        __public_id_sql_type__: Literal["TEXT"] | None = "TEXT"

    class Folder(Entity):
        __tablename__ = "folder"

    return Folder


def with_base_of_sqlmodel() -> Any:
    class Entity(SQLModel):
        __public_id_sql_type__ = "TEXT"

    class Shelf(PublicIdSQLModel, Entity, table=True):
        __tablename__ = "text_shelf"
        metadata = MetaData()

    return Shelf


WAYS = [
    with_mixin,
    with_typed_id,
    with_dataclass,
    with_column_of_a_dataclass,
    with_sqlmodel,
    with_column_of_sqlmodel,
    with_base,
    with_abstract_model,
    with_base_of_sqlmodel,
]


@pytest.mark.parametrize("declare", WAYS)
def test_declared(declare: Callable[[], Any]) -> None:
    """The column is TEXT where it can have an index, and is refused with the VARCHAR where it cannot."""
    model = declare()
    table = model.__table__

    assert 'public_id TEXT COLLATE "C" NOT NULL' in str(
        CreateTable(table).compile(dialect=dialect_of("postgresql+psycopg"))
    )
    assert "public_id TEXT NOT NULL" in str(CreateTable(table).compile(dialect=dialect_of("sqlite")))
    with pytest.raises(ConfigurationError, match=r"leave sql_type out, so that the column is VARCHAR\(\d\d\)$"):
        str(CreateTable(table).compile(dialect=dialect_of("mysql+pymysql")))
    assert len(model().public_id) in {12, 20}


def test_one_model_differs() -> None:
    """``None`` gives one model a column with a length, although its base declares TEXT."""

    class Base(DeclarativeBase):
        __public_id_sql_type__: Literal["TEXT"] | None = "TEXT"

    class Event(PublicIdMixin, Base):
        __tablename__ = "event"
        __public_id__ = Uuid7()
        __public_id_sql_type__ = None

    class Folder(PublicIdMixin, Base):
        __tablename__ = "folder"

    assert "TEXT" not in str(CreateTable(Event.__table__).compile(dialect=dialect_of("sqlite")))
    assert "public_id TEXT" in str(CreateTable(Folder.__table__).compile(dialect=dialect_of("sqlite")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"__public_id_sql_type__": "CLOB"}, r'^sql_type is \'CLOB\', expected "TEXT"'),
        ({"__public_id_sql_type__": Text()}, r'^sql_type is Text\(\), expected "TEXT"'),
        ({"__public_id_sql_type__": "TEXT", "__public_id__": Uuid7()}, r'stores numbers; add storage="text" to'),
        ({"__public_id_type__": "TEXT"}, r"^Folder: __public_id_type__ has no effect"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    """Another type, a format that stores numbers and a misspelled setting are refused where the model is declared."""

    class Base(DeclarativeBase): ...

    with pytest.raises(ConfigurationError, match=message):
        type("Folder", (PublicIdMixin, Base), {"__tablename__": "folder", **settings})

    assert not Base.metadata.tables


def test_ids_of_any_model() -> None:
    """A column for the ids of any model can be TEXT, and is refused with the VARCHAR where it needs a length."""
    column = Column("subject", AnyPublicIdType(80, "TEXT"), index=True)

    assert column.type.compile(dialect_of("sqlite")) == "TEXT"
    assert column.type.compile(dialect_of("postgresql+psycopg")) == 'TEXT COLLATE "C"'
    with pytest.raises(ConfigurationError, match=r"leave sql_type out, so that the column is VARCHAR\(80\)$"):
        column.type.compile(dialect_of("mariadb+pymysql"))
    with pytest.raises(ConfigurationError, match=r'^sql_type is \'CLOB\', expected "TEXT"'):
        AnyPublicIdType(sql_type="CLOB")  # type: ignore[arg-type]
    assert repr(AnyPublicIdType(sql_type="TEXT")) == "AnyPublicIdType(64, sql_type='TEXT')"


def test_formats_stay_apart() -> None:
    """The setting leaves the length of the ids to the format."""

    class Base(DeclarativeBase):
        __public_id_sql_type__ = "TEXT"

    class Folder(PublicIdMixin, Base):
        __tablename__ = "folder"
        __public_id__ = NanoId(length=30)

    assert len(Folder().public_id) == 30
