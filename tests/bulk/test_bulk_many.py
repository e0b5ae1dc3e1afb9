"""``bulk.insert_many``: any number of objects from an iterable, batch by batch, in constant memory."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, String, event, inspect, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on

from sqlalchemy_public_id import PublicIdMixin, bulk
from sqlalchemy_public_id.asyncio import bulk as asynchronous

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class Item(PublicIdMixin, Base):
    __tablename__ = "item"
    number: Mapped[int] = mapped_column(unique=True)
    name: Mapped[str | None] = mapped_column(String(50))


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def items(count: int, first: int = 0) -> Iterator[Item]:
    return (Item(number=first + at, name=f"item {first + at}") for at in range(count))


def numbers(session: Session) -> list[int]:
    return list(session.scalars(select(Item.number).order_by(Item.id)))


def notes(error: pytest.ExceptionInfo[Any]) -> list[str]:
    return list(getattr(error.value, "__notes__", ()))


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("count", [0, 20, 23])
def test_all_objects_are_inserted_in_their_order(session: Session, count: int) -> None:
    """Every object is a row, in the order of the iterable; each batch, also the last one, is reported when it is there.

    The number of objects is returned.
    """
    seen: list[tuple[int, int]] = []

    def progress(count: int) -> None:
        seen.append((count, len(numbers(session))))

    assert bulk.insert_many(session, items(count), batch=10, progress=progress) == count
    assert seen == [(at, at) for at in (10, 20, 23) if at <= count]
    assert numbers(session) == list(range(count))


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("is_flushed", [False, True])
def test_constant_memory(session: Session, is_flushed: bool) -> None:
    """No object of an earlier batch is alive when the next one is taken, and the session holds none."""
    if is_flushed:  # a listener to flushes makes the unit of work insert the objects
        event.listen(session, "before_flush", lambda *_: None)
    alive: weakref.WeakSet[Item] = weakref.WeakSet()
    most = 0

    def watched() -> Iterator[Item]:
        nonlocal most
        for each in items(250):
            alive.add(each)
            yield each
            del each
            most = max(most, len(alive))

    gc.disable()  # reference counts alone free the objects
    try:
        bulk.insert_many(session, watched(), batch=25)
        left = len(alive)
    finally:
        gc.enable()

    assert most <= 26
    assert left <= 1
    assert len(session.identity_map) == left


@pytest.mark.usefixtures("tables")
def test_commit_after_each_batch(session: Session, engine: Engine) -> None:
    """The progress function may commit: what was inserted before an error stays then."""

    def broken() -> Iterator[Item]:
        yield from items(20)
        raise OSError("the file is gone")

    with pytest.raises(OSError, match="the file is gone"):
        bulk.insert_many(session, broken(), batch=10, progress=lambda _: session.commit())
    session.rollback()
    with Session(engine) as other:
        assert numbers(other) == list(range(20))


# --- errors


@pytest.mark.usefixtures("tables")
def test_a_batch_that_the_database_refuses(session: Session) -> None:
    """The error is that of the database, with a note; the transaction is rolled back, as by a flush."""
    kept = [*items(25), *items(5)]
    with pytest.raises(IntegrityError) as error:
        bulk.insert_many(session, kept, batch=10)
    session.rollback()

    assert notes(error) == [
        "bulk.insert_many(): 20 objects were inserted before, and these of the batch were not: 21 to 30"
    ]
    assert numbers(session) == []
    assert all(inspect(each).transient for each in kept)


@pytest.mark.usefixtures("tables")
def test_a_generator_that_raises(session: Session) -> None:
    """Earlier batches stay in the transaction, the unfinished one is not inserted, and the error has a note."""

    def broken() -> Iterator[Item]:
        yield from items(25)
        raise ValueError("line 26")

    with pytest.raises(ValueError, match="line 26") as error:
        bulk.insert_many(session, broken(), batch=10)
    session.commit()

    assert notes(error) == ["bulk.insert_many(): 20 objects were inserted before"]
    assert numbers(session) == list(range(20))


@pytest.mark.usefixtures("tables")
def test_progress_that_raises(session: Session) -> None:
    """A program can stop: the batch is inserted, and no further object is taken."""
    source = items(30)

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bulk.insert_many(session, source, batch=10, progress=stop)

    assert numbers(session) == list(range(10))
    assert next(source).number == 10


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("wrong", [None, {"number": 1}, Item])
def test_something_else_in_the_middle(session: Session, wrong: Any) -> None:
    """The error names it; nothing of its batch is sent, and earlier batches stay in the transaction."""
    with pytest.raises(TypeError, match="expected mapped objects, not ") as error:
        bulk.insert_many(session, itertools.chain(items(15), [wrong], items(5, first=15)), batch=10)
    session.commit()

    assert "10 objects were inserted before" in notes(error)[0]
    assert numbers(session) == list(range(10))


async def arriving(count: int) -> AsyncIterator[Item]:
    for each in items(count):
        await asyncio.sleep(0)
        yield each
        del each


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (lambda: None, "expected an iterable of mapped objects, not None"),
        (lambda: "text", "expected an iterable of mapped objects, not 'text'"),
        (lambda: b"text", "expected an iterable of mapped objects, not b'text'"),
        (lambda: {"number": 1}, "expected an iterable of mapped objects, not {'number': 1}"),
        (lambda: Item(number=1), "expected an iterable of mapped objects, not <.*Item"),
        (lambda: arriving(1), r"sqlalchemy_public_id\.asyncio\.bulk\.insert_many"),
    ],
    ids=["none", "text", "bytes", "dictionary", "object", "asynchronous"],
)
@pytest.mark.parametrize("function", [bulk.insert, bulk.insert_many])
@on("sqlite")
def test_what_is_no_iterable_of_objects(session: Session, function: Any, wrong: Any, expected: str) -> None:
    """The error says what was expected, or which function takes it."""
    with pytest.raises(TypeError, match=expected):
        function(session, wrong())


async def awaited(count: int) -> None: ...


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        *[({"batch": size}, ValueError, "batch is .*, expected a whole number") for size in (0, "10", 1.5, True)],
        ({"progress": 100}, TypeError, "progress is 100, expected a function"),
        ({"progress": awaited}, TypeError, r"asyncio\.bulk\.insert_many"),
    ],
    ids=str,
)
@on("sqlite")
def test_options_that_are_refused(
    session: Session, options: dict[str, Any], error: type[Exception], expected: str
) -> None:
    """The error says what was expected, before an object is taken."""
    source = items(3)
    with pytest.raises(error, match=expected):
        bulk.insert_many(session, source, **options)

    assert next(source).number == 0


# --- the asynchronous twin


@pytest.fixture
def run(async_engine: AsyncEngine) -> Callable[[Callable[[AsyncSession], Any]], None]:
    """Run a story with a session, on a database with the tables."""

    async def tell(story: Callable[[AsyncSession], Any]) -> None:
        try:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)
                await connection.run_sync(Base.metadata.create_all)
            async with AsyncSession(async_engine) as session:
                await story(session)
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)
        finally:
            await async_engine.dispose()

    return lambda story: asyncio.run(tell(story))


@pytest.mark.parametrize("source", [items, arriving])
@pytest.mark.parametrize("is_awaited", [False, True], ids=["progress", "awaited progress"])
def test_both_kinds_of_iterables(run: Callable[[Any], None], source: Callable[[int], Any], is_awaited: bool) -> None:
    """Objects come from either, and the progress of both is reported: an ``async def`` is awaited, so it may commit."""

    async def story(session: AsyncSession) -> None:
        seen: list[int] = []

        async def commit(count: int) -> None:
            seen.append(count)
            await session.commit()

        progress = commit if is_awaited else seen.append
        assert await asynchronous.insert_many(session, source(53), batch=25, progress=progress) == 53
        assert seen == [25, 50, 53]
        if is_awaited:
            await session.rollback()
        assert await session.run_sync(numbers) == list(range(53))
        assert await asynchronous.insert_many(session, source(0)) == 0

    run(story)


def test_an_asynchronous_generator_that_raises(run: Callable[[Any], None]) -> None:
    """Earlier batches stay in the transaction, and the error has a note."""

    async def broken() -> AsyncIterator[Item]:
        async for each in arriving(25):
            yield each
        raise ValueError("line 26")

    async def story(session: AsyncSession) -> None:
        with pytest.raises(ValueError, match="line 26") as error:
            await asynchronous.insert_many(session, broken(), batch=10)
        assert notes(error) == ["bulk.insert_many(): 20 objects were inserted before"]
        assert await session.run_sync(numbers) == list(range(20))

    run(story)


def test_memory_of_an_asynchronous_generator(run: Callable[[Any], None]) -> None:
    """No object of an earlier batch is alive when the next one is taken."""
    alive: weakref.WeakSet[Item] = weakref.WeakSet()
    most = 0

    async def watched() -> AsyncIterator[Item]:
        nonlocal most
        for each in items(150):
            alive.add(each)
            yield each
            del each
            most = max(most, len(alive))

    async def story(session: AsyncSession) -> None:
        assert await asynchronous.insert_many(session, watched(), batch=25) == 150

    run(story)
    assert most <= 30


@on("sqlite")
def test_mistakes_with_an_asynchronous_session(session: Session) -> None:
    """The errors are those of the synchronous twin; a synchronous session is refused."""

    async def story() -> None:
        own: Any = AsyncSession()
        for options, error, message in (
            ({"objects": items(3), "batch": 0}, ValueError, "batch is 0, expected a whole number of 1 or more"),
            ({"objects": None}, TypeError, "expected an iterable of mapped objects, not None"),
            ({"objects": items(3), "session": session}, TypeError, "expected an AsyncSession"),
        ):
            with pytest.raises(error, match=message):
                await asynchronous.insert_many(**{"session": own, **options})

    asyncio.run(story())
