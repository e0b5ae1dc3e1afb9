"""Columns in ``Annotated``: SQLAlchemy merges them into a ``mapped_column()``, and drops their listeners."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import new_class
from typing import Annotated, Any

import pytest
from sqlalchemy import Column, Engine, Identity, Integer, MetaData, String, Table, create_engine, create_mock_engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column
from support.marks import before_sqlalchemy
from support.places_of_columns import PLACES

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdType,
    TypedId,
    bigint_key,
    lookup,
    public_id_column,
)
from sqlalchemy_public_id._private import IS_FAST
from sqlalchemy_public_id.keys import BlockAllocator, block_key, cluster_key
from sqlalchemy_public_id.keys.blocks.key import allocator_of
from sqlalchemy_public_id.tokens import Token, token_column

ALLOCATOR = BlockAllocator(create_engine("sqlite:///never_opened.db"), "annotated")
CODE = NanoId(prefix="annotated")


def model(declare: Callable[[], Any], beside: dict[str, Any] | None, *parts: Any, metadata: MetaData) -> Any:
    """Return a model whose ``code`` is the column of *declare* in ``Annotated``, with *beside* in a mapped_column()."""
    base = new_class("Base", (*parts, DeclarativeBase), exec_body=lambda own: own.update(metadata=metadata))
    members: dict[str, Any] = {
        "__tablename__": "seat",
        "__annotations__": {"code": Mapped[Annotated[Any, declare()]]},
        "tenant": mapped_column(Integer, nullable=False),
    }
    if not declare().column.primary_key:
        members["id"] = mapped_column(Integer, primary_key=True)
    if beside is not None:
        members["code"] = mapped_column(**beside)
    return new_class("Seat", (base,), exec_body=lambda own: own.update(members))


COLUMNS: dict[str, Callable[[], Any]] = {
    "public_id_column()": partial(public_id_column, CODE),
    "public_id_column() with others": partial(public_id_column, CODE, unique_with=["tenant"]),
    "token_column()": partial(token_column, Token("annotated")),
    "bigint_key()": bigint_key,
    "block_key()": partial(block_key, ALLOCATOR),
    "cluster_key()": partial(cluster_key, cluster=3),
}
CHANGES: dict[str, dict[str, Any]] = {
    "type": {"type_": String(99)},
    "type of ids": {"type_": PublicIdType(NanoId(length=20))},
    "default": {"default": "A"},
    "no default": {"default": None},
    "insert_default": {"insert_default": lambda: "A"},
    "nullable": {"nullable": True},
    "unique": {"unique": False},
    "index": {"index": False},
    "server_default": {"server_default": "1"},
    "onupdate": {"onupdate": lambda: "A"},
}
OF_IDS = ["type", "type of ids", "default", "no default", "insert_default", "nullable", "unique", "index", "onupdate"]
REFUSED = {
    "public_id_column()": OF_IDS,
    "public_id_column() with others": OF_IDS,
    "token_column()": ["type", "type of ids", "default", "insert_default", "nullable", "unique", "index"],
    "bigint_key()": ["type", "type of ids", "server_default"],
    "block_key()": ["type", "type of ids", "default", "no default", "insert_default"],
    # SQLAlchemy itself refuses autoincrement=False beside an identity
    "cluster_key()": ["type", "default", "insert_default", "nullable", "server_default"],
}


def settings(column: Any) -> list[Any]:
    """Return what a function of the library sets for its column; functions as their classes."""
    default = type(getattr(column.default, "arg", None))
    return [repr(column.type), default, column.nullable, column.unique, column.index, column.primary_key]


@pytest.mark.parametrize(("function", "change"), [(name, each) for name, some in REFUSED.items() for each in some])
def test_what_stands_beside_it(function: str, change: str) -> None:
    """A ``mapped_column()`` beside ``Annotated`` cannot change what the function sets; no table remains.

    SQLAlchemy 2.0 leaves out some of these options without a word, so that the function's own ones stay.
    """
    metadata, name = MetaData(), function.partition(" ")[0]
    try:
        made = model(COLUMNS[function], CHANGES[change], metadata=metadata)
    except ConfigurationError as error:
        start, _, end = str(error).partition(" itself; leave it out of the mapped_column() beside it")
        assert start.startswith(f"seat.code: {name} in Annotated sets ")
        assert end in ("", ", or write init=False in a dataclass")
        assert not metadata.tables
    else:
        assert before_sqlalchemy(2, 1)
        alone = model(COLUMNS[function], None, metadata=MetaData())
        assert settings(made.__table__.c.code) == settings(alone.__table__.c.code)


def test_other_columns() -> None:
    """No dictionary ``info`` is made for the columns of others, each of which is looked at."""
    model(COLUMNS["cluster_key()"], None, metadata=MetaData())
    columns = Table("theirs", MetaData(), Column("id", Integer, primary_key=True), Column("name", String)).columns

    assert ["info" in vars(column) for column in columns] == [False, False] or not IS_FAST


@pytest.mark.parametrize("function", COLUMNS)
@pytest.mark.parametrize("beside", [{}, {"info": {"seen": True}}, {"comment": "A"}, {"name": "c"}], ids=str)
def test_what_may_stand_beside_it(beside: dict[str, Any], function: str) -> None:
    """Other options of the ``mapped_column()`` are those of the column."""
    column = model(COLUMNS[function], beside, metadata=MetaData()).__mapper__.columns["code"]

    assert [getattr(column, name) for name in beside if name != "info"] == [
        each for each in beside.values() if each in ("A", "c")
    ]
    assert column.info.get("seen") is beside.get("info", {}).get("seen")
    assert repr(column.type) == repr(COLUMNS[function]().column.type)


def test_dataclass() -> None:
    """An id that is not an argument of the constructor is generated."""
    parts = (MappedAsDataclass,)
    seat = model(COLUMNS["public_id_column()"], {"init": False}, *parts, metadata=MetaData())
    assert CODE.is_valid(seat.code.type.next_id())
    assert seat.__table__.c.code.default is not None
    if before_sqlalchemy(2, 1):  # it keeps the default of the function
        return
    with pytest.raises(ConfigurationError, match=r"write init=False in a dataclass$"):
        model(COLUMNS["public_id_column()"], {"default": None}, *parts, metadata=MetaData())


@pytest.mark.parametrize("place", PLACES)
def test_cluster_key_of_every_place(place: str) -> None:
    """A cluster key begins inside the range of its cluster, wherever a model declares it."""
    sent: list[str] = []
    engine: Any = create_mock_engine("postgresql+psycopg://", lambda ddl, *_: sent.append(str(ddl)))
    PLACES[place](COLUMNS["cluster_key()"]).metadata.create_all(engine, checkfirst=False)

    assert [text for text in sent if str(3 << 48) in text or str((3 << 48) + 1) in text]


@pytest.mark.parametrize("place", PLACES)
def test_block_key_of_every_place(place: str) -> None:
    """A key from blocks has its allocator, wherever a model declares it."""
    column = PLACES[place](COLUMNS["block_key()"]).c.code

    assert allocator_of(column) is ALLOCATOR
    assert column.default.is_callable


@pytest.mark.parametrize("place", PLACES)
def test_bigint_key_of_every_place(place: str) -> None:
    """A key of 64 bits is an identity, wherever a model declares it."""
    column = PLACES[place](bigint_key).c.code

    assert (repr(column.type), type(column.server_default)) == ("BigIntegerKey()", Identity)


class SeatId(TypedId, prefix="annotatedseat"): ...


@pytest.mark.backend
def test_equal_ids_of_a_tenant(create: Callable[[MetaData], None], engine: Engine) -> None:
    """An id in ``Annotated`` is generated, found, and unique with the columns that it names."""

    class Base(DeclarativeBase): ...

    Base.__annotations__ = {}
    members = {
        "__tablename__": "annotated_seat",
        "__annotations__": {
            "id": Mapped[Annotated[int, bigint_key()]],
            "code": Mapped[Annotated[SeatId, public_id_column(SeatId, unique_with=["tenant"])]],
        },
        "tenant": mapped_column(Integer, nullable=False),
    }
    seat: Any = new_class("AnnotatedSeat", (Base,), exec_body=lambda own: own.update(members))
    create(Base.metadata)
    with Session(engine) as session:
        session.add_all(seat(tenant=tenant, code=SeatId("annotatedseat_000000000000")) for tenant in (1, 2))
        session.add(generated := seat(tenant=1))
        session.commit()
        found = lookup.get(session, seat, generated.code, where=seat.tenant == 1)
        assert (found, type(generated.code)) == (generated, SeatId)
        session.add(seat(tenant=1, code=SeatId("annotatedseat_000000000000")))
        with pytest.raises(IntegrityError):
            session.commit()
