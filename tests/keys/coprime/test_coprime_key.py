"""Ids that the database counts, written through a step: every way to write them, and what happens at the end."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Engine, MetaData, String, Table, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.async_tables import session_on
from support.forks import in_threads
from support.people import people
from support.rows import agree

from sqlalchemy_public_id import PublicIdMixin, PublicIdType, TypedId, bulk, lookup
from sqlalchemy_public_id.errors import KeySpaceExhausted
from sqlalchemy_public_id.formats import BASE36
from sqlalchemy_public_id.keys.blocks import BlockAllocator
from sqlalchemy_public_id.keys.coprime.format import CoprimeKey
from sqlalchemy_public_id.keys.coprime.keyed import KeyedStep
from sqlalchemy_public_id.keys.coprime.step import CoprimeStep

pytestmark = pytest.mark.backend

STEP = CoprimeStep(BASE36, 6)
SECRET = bytes(range(32))


@pytest.fixture
def allocator(engine: Engine, create: Callable[[MetaData], None]) -> Iterator[BlockAllocator]:
    """A sequence of its own for each test; blocks are large enough for one lease to do."""
    with BlockAllocator(engine, "order", block=1000, start=0, timeout=20) as allocator:
        create(allocator.table.metadata)
        yield allocator


@pytest.fixture
def declare(create: Callable[[MetaData], None]) -> Iterator[Callable[..., Any]]:
    """Make a model with these ids, and its table, unless another model has made it."""
    bases: list[Any] = []

    def make(declared: Any, *, is_there: bool = False) -> Any:
        class Base(DeclarativeBase):
            metadata = MetaData()

        class Row(PublicIdMixin, Base):
            __tablename__ = "counted_row"
            __public_id__ = declared
            name: Mapped[str | None] = mapped_column(String(50))

        bases.append(Base)
        if not is_there:
            create(Base.metadata)
        return Row

    yield make
    for base in bases:
        base.registry.dispose()


def stored(session: Session, model: Any) -> list[str]:
    return list(session.scalars(select(model.public_id).order_by(model.id)))


def test_every_way_to_write(
    allocator: BlockAllocator, declare: Callable[..., Any], session: Session, engine: Engine
) -> None:
    """Flush, bulk insert, Core and early ids all take the next numbers, and no other."""
    model = declare(CoprimeKey(allocator, STEP, prefix="ord"))
    early = model(name="early")
    assert early.public_id == "ord_" + STEP.key(0)
    session.add_all([early, model(name="flushed"), model(name="flushed")])
    session.flush()
    many = [model(name="many") for _ in range(5)]
    bulk.insert(session, many)
    agree(session, many)
    session.execute(insert(model), [{"name": "core"}, {"name": "core"}])
    session.execute(insert(model).values(name="one"))
    session.execute(insert(model).values([{"name": "several"}, {"name": "several"}]))
    session.commit()
    ids = stored(session, model)

    assert sorted(ids) == sorted("ord_" + key for key in STEP.keys(0, 13))
    assert sorted(map(model.public_id.type.id_format.number, ids)) == list(range(13))
    assert lookup.get_one(session, model, "ord_" + STEP.key(0)).name == "early"
    assert lookup.get(session, model, "ord_" + STEP.key(13)) is None
    assert lookup.get(session, model, "ord_UPPER!") is None


def test_rows_that_came_another_way(allocator: BlockAllocator, declare: Callable[..., Any], session: Session) -> None:
    """An id that a row has already is passed over, like any collision: the unique index knows."""
    model = declare(CoprimeKey(allocator, STEP))
    allocator.reserve(10)  # on SQLite, nobody can lease once this transaction has written
    session.add_all([model(public_id=STEP.key(index), name="given") for index in (0, 1, 2, 5)])
    session.flush()
    session.add(model(name="made"))
    session.flush()
    session.add_all([model(name="made") for _ in range(3)])
    session.commit()
    made = session.scalars(select(model.public_id).where(model.name == "made"))

    assert sorted(map(STEP.index, made)) == [3, 4, 6, 7]


def test_the_end_and_beyond(allocator: BlockAllocator, declare: Callable[..., Any], session: Session) -> None:
    """When the keys are used up, writing fails; with longer keys it goes on, and the old rows are found."""
    short = CoprimeStep("abc", 2)
    after = declare(  # whose column is wide enough
        CoprimeKey(allocator, CoprimeStep("abc", 3), prefix="o").accepting(CoprimeKey("order", short, prefix="o"))
    )
    before = declare(CoprimeKey(allocator, short, prefix="o"), is_there=True)
    session.execute(insert(before), [{"name": "short"}] * 9)
    session.commit()
    with pytest.raises(KeySpaceExhausted, match=r"has 9 keys, so there is none with the index 9"):
        session.execute(insert(before), [{"name": "none"}])
    session.rollback()
    session.add(before(name="none"))
    with pytest.raises(KeySpaceExhausted, match="none with the index 10"):
        session.flush()
    session.rollback()
    session.add_all([after(name="long") for _ in range(3)])
    session.commit()
    ids = stored(session, after)

    assert sorted(ids[:9]) == sorted("o_" + key for key in short.keys(0, 9))
    assert sorted(ids[9:]) == sorted("o_" + key for key in CoprimeStep("abc", 3).keys(11, 3))
    assert lookup.get_one(session, after, "o_" + short.key(4)).name == "short"
    assert lookup.get_one(session, after, ids[-1]).name == "long"
    assert lookup.get(session, before, ids[-1]) is None


def test_keyed_and_typed(allocator: BlockAllocator, declare: Callable[..., Any], session: Session) -> None:
    """A typed id with a keyed step: the texts are those of the secret, and come back as the type."""
    pytest.importorskip("ffx")
    step = KeyedStep(BASE36, 8, SECRET, b"order")
    typed: Any = type("CountedId", (TypedId,), {}, prefix="cpord", format=CoprimeKey(allocator, step))
    model = declare(typed)
    session.add_all([model() for _ in range(4)])
    session.commit()
    session.expire_all()
    ids = [row.public_id for row in session.scalars(select(model))]

    assert sorted(ids) == sorted("cpord_" + step.key(index) for index in range(4))
    assert {type(id) for id in ids} == {typed}


def test_threads(allocator: BlockAllocator, declare: Callable[..., Any], engine: Engine) -> None:
    """Threads that insert at the same time get ids of their own, and all of them."""
    model = declare(CoprimeKey(allocator, STEP))
    allocator.reserve(160)

    def work() -> list[str]:
        rows = [model() for _ in range(20)]
        for at in range(0, 20, 5):
            with Session(engine, expire_on_commit=False) as session:
                session.add_all(rows[at : at + 5])
                session.commit()
        return [row.public_id for row in rows]

    made = in_threads(8, work)

    assert sorted(id for ids in made for id in ids) == sorted(STEP.keys(0, 160))
    with Session(engine) as session:
        assert sorted(stored(session, model)) == sorted(STEP.keys(0, 160))


def test_rows_that_were_there_before(allocator: BlockAllocator, engine: Engine) -> None:
    """A migration gives existing rows the next numbers, and takes 2000 for a batch; on SQLite, it has to have them."""
    format = CoprimeKey(allocator, STEP, prefix="ord")
    allocator.reserve(5_000)
    with people(engine, rows=100, format=format, server_default="none") as table:
        table.add()
        table.check_complete(rows=100)
        ids = table.ids()

    assert sorted(map(format.number, ids)) == list(range(100))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork(allocator: BlockAllocator, tmp_path: Path) -> None:
    """A child does not go on with the numbers of its parent."""
    format = CoprimeKey(allocator, STEP)
    before = format.generate_many(10)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            (tmp_path / "ids").write_text("\n".join([format.generate(), *format.generate_many(19)]))
            code = 0
        finally:
            os._exit(code)
    after = format.generate_many(20)
    assert os.waitpid(child, 0)[1] == 0
    childs = (tmp_path / "ids").read_text().split()

    assert len({*before, *after, *childs}) == 50
    assert sorted(map(STEP.index, before + after)) == list(range(30))
    assert min(map(STEP.index, childs)) >= 1000


def test_core_table(allocator: BlockAllocator, engine: Engine, create: Callable[[MetaData], None]) -> None:
    """A plain table takes such ids as it takes any, and its metadata can be pickled: the copy knows the name."""
    format = CoprimeKey(allocator, STEP)
    metadata = MetaData()
    public_id = Column("public_id", PublicIdType(format), default=format.generate, unique=True, nullable=False)
    table = Table("counted_core", metadata, public_id)
    create(metadata)
    with engine.begin() as connection:
        connection.execute(insert(table), [{}, {}])
        found = set(connection.scalars(select(table.c.public_id)))
    copied = pickle.loads(pickle.dumps(table.c.public_id.type))

    assert found == set(STEP.keys(0, 2))
    assert copied.id_format == format
    assert copied.id_format.allocator == "order"


def test_async(async_engine: AsyncEngine) -> None:
    """With an AsyncSession, ids are leased inside the flush."""
    allocator = BlockAllocator(async_engine, "order", block=1000, start=0, timeout=20)

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Row(PublicIdMixin, Base):
        __tablename__ = "counted_async"
        __public_id__ = CoprimeKey(allocator, STEP)

    allocator.table.to_metadata(Base.metadata)

    async def story() -> list[str]:
        async with session_on(async_engine, Base.metadata) as session, allocator:
            session.add_all([Row() for _ in range(3)])
            await session.commit()
            return list(await session.scalars(select(Row.public_id)))

    assert sorted(asyncio.run(story())) == sorted(STEP.keys(0, 3))
