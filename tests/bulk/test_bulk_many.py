"""``bulk.insert_many``: any number of objects from an iterable, batch by batch, in constant memory."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, String, event, func, inspect, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on
from support.rows import agree

from sqlalchemy_public_id import PublicIdMixin, bulk, testing
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
class TestInsertMany:
    @pytest.mark.parametrize("count", [0, 25, 26, 103])
    def test_all_objects_are_inserted_in_their_order(self, session: Session, count: int) -> None:
        """Every object is a row, in the order of the iterable, and their number is returned."""
        assert bulk.insert_many(session, items(count), batch=25) == count
        assert numbers(session) == list(range(count))

    @pytest.mark.parametrize("batch", [1, 7, 1000])
    def test_objects_that_the_caller_keeps(self, session: Session, batch: int) -> None:
        """They have key and public id, and are persistent in the session."""
        kept = list(items(45))
        bulk.insert_many(session, kept, batch=batch)

        agree(session, kept)
        assert all(inspect(each).persistent for each in kept)
        assert not session.new
        assert not session.dirty
        kept[3].name = "changed"
        session.commit()
        assert session.scalar(select(Item.name).where(Item.number == 3)) == "changed"

    @pytest.mark.parametrize("is_flushed", [False, True])
    def test_constant_memory(self, session: Session, is_flushed: bool) -> None:
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
        assert session.scalar(select(func.count()).select_from(Item)) == 250

    def test_progress(self, session: Session) -> None:
        """The function is called after each batch, also the last one, with the number of objects so far."""
        seen: list[tuple[int, int]] = []

        def progress(count: int) -> None:
            seen.append((count, len(numbers(session))))

        bulk.insert_many(session, items(23), batch=10, progress=progress)

        assert seen == [(10, 10), (20, 20), (23, 23)]
        session.commit()
        assert bulk.insert_many(session, [], progress=lambda _: pytest.fail("called")) == 0
        assert not session.in_transaction()

    def test_the_transaction_of_the_caller(self, session: Session) -> None:
        """Nothing is committed: a rollback takes all batches away, and kept objects are transient again."""
        kept = list(items(30))
        bulk.insert_many(session, kept, batch=10)
        session.rollback()

        assert numbers(session) == []
        assert all(inspect(each).transient for each in kept)
        bulk.insert_many(session, kept, batch=7)
        session.commit()
        agree(session, kept)

    def test_commit_after_each_batch(self, session: Session, engine: Engine) -> None:
        """The progress function may commit: what was inserted before an error stays then."""

        def broken() -> Iterator[Item]:
            yield from items(20)
            raise OSError("the file is gone")

        with pytest.raises(OSError, match="the file is gone"):
            bulk.insert_many(session, broken(), batch=10, progress=lambda _: session.commit())
        session.rollback()
        with Session(engine) as other:
            assert numbers(other) == list(range(20))

    def test_an_object_that_comes_again(self, session: Session) -> None:
        """It is one row, in one batch or in two."""
        first, *rest = items(5)
        bulk.insert_many(session, [first, first, *rest, first], batch=3)

        assert numbers(session) == [0, 1, 2, 3, 4]

    def test_a_generator_that_reads_from_the_session(self, session: Session) -> None:
        """Objects may be made from rows of the same session."""
        session.add_all(items(12))
        session.flush()
        source = (Item(number=100 + number) for number in session.scalars(select(Item.number).order_by(Item.id)))

        assert bulk.insert_many(session, source, batch=5) == 12
        assert numbers(session) == [*range(12), *range(100, 112)]

    def test_collisions_in_later_batches(self, session: Session) -> None:
        """Ids that earlier batches have taken are replaced."""
        kept = list(items(6))
        with testing.fixed_ids(Item, *["aaaaaaaaaaaa"] * 6):
            bulk.insert_many(session, kept, batch=2)

        agree(session, kept)

    # --- errors

    def test_a_batch_that_the_database_refuses(self, session: Session) -> None:
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

    def test_a_generator_that_raises(self, session: Session) -> None:
        """Earlier batches stay in the transaction, the unfinished one is not inserted, and the error has a note."""

        def broken() -> Iterator[Item]:
            yield from items(25)
            raise ValueError("line 26")

        with pytest.raises(ValueError, match="line 26") as error:
            bulk.insert_many(session, broken(), batch=10)
        session.commit()

        assert notes(error) == ["bulk.insert_many(): 20 objects were inserted before"]
        assert numbers(session) == list(range(20))

    def test_progress_that_raises(self, session: Session) -> None:
        """A program can stop: the batch is inserted, and no further object is taken."""
        source = items(30)

        def stop(count: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            bulk.insert_many(session, source, batch=10, progress=stop)

        assert numbers(session) == list(range(10))
        assert next(source).number == 10

    @pytest.mark.parametrize("wrong", [None, {"number": 1}, Item])
    def test_something_else_in_the_middle(self, session: Session, wrong: Any) -> None:
        """The error names it; nothing of its batch is sent, and earlier batches stay in the transaction."""
        with pytest.raises(TypeError, match="expected mapped objects, not ") as error:
            bulk.insert_many(session, itertools.chain(items(15), [wrong], items(5, first=15)), batch=10)
        session.commit()

        assert "10 objects were inserted before" in notes(error)[0]
        assert numbers(session) == list(range(10))


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (None, "expected an iterable of mapped objects, not None"),
        ("text", "expected an iterable of mapped objects, not 'text'"),
        (b"text", "expected an iterable of mapped objects, not b'text'"),
        ({"number": 1}, "expected an iterable of mapped objects, not {'number': 1}"),
        (7, "expected an iterable of mapped objects, not 7"),
        (Item(number=1), "expected an iterable of mapped objects, not <.*Item"),
    ],
    ids=["none", "text", "bytes", "dictionary", "number", "object"],
)
@on("sqlite")
def test_what_is_no_iterable_of_objects(session: Session, wrong: Any, expected: str) -> None:
    """The error says what was expected, for both functions."""
    for function in (bulk.insert, bulk.insert_many):
        with pytest.raises(TypeError, match=expected):
            function(session, wrong)


@on("sqlite")
def test_an_asynchronous_iterable(session: Session) -> None:
    """The error says which function takes it."""

    async def produced() -> AsyncIterator[Item]:
        yield Item(number=1)

    for function in (bulk.insert, bulk.insert_many):
        with pytest.raises(TypeError, match=r"sqlalchemy_public_id\.asyncio\.bulk\.insert_many"):
            function(session, produced())  # type: ignore[arg-type]  # an asynchronous generator


@pytest.mark.parametrize("batch", [0, "10", 1.5, True])
@on("sqlite")
def test_batch_that_is_no_size(session: Session, batch: Any) -> None:
    """The error says what was expected, before an object is taken."""
    source = items(3)
    with pytest.raises(ValueError, match=r"batch is .*, expected a whole number of 1 or more"):
        bulk.insert_many(session, source, batch=batch)

    assert next(source).number == 0


@on("sqlite")
def test_progress_that_is_no_function(session: Session) -> None:
    """The error says what was expected; an ``async def`` is one for the asynchronous twin."""

    async def progress(count: int) -> None: ...

    with pytest.raises(TypeError, match="progress is 100, expected a function"):
        bulk.insert_many(session, items(3), progress=100)  # type: ignore[arg-type]  # no function
    with pytest.raises(TypeError, match=r"asyncio\.bulk\.insert_many"):
        bulk.insert_many(session, items(3), progress=progress)


# --- the asynchronous twin


async def arriving(count: int, first: int = 0) -> AsyncIterator[Item]:
    for each in items(count, first):
        await asyncio.sleep(0)
        yield each
        del each


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


async def stored_numbers(session: AsyncSession) -> list[int]:
    return list(await session.scalars(select(Item.number).order_by(Item.id)))


@pytest.mark.parametrize("source", [items, arriving])
def test_both_kinds_of_iterables(run: Callable[[Any], None], source: Callable[[int], Any]) -> None:
    """Objects come from either, and the progress of both is reported."""

    async def story(session: AsyncSession) -> None:
        seen: list[int] = []
        assert await asynchronous.insert_many(session, source(53), batch=25, progress=seen.append) == 53
        assert seen == [25, 50, 53]
        assert await stored_numbers(session) == list(range(53))
        assert await asynchronous.insert_many(session, source(0)) == 0

    run(story)


@pytest.mark.parametrize("source", [items, arriving])
def test_progress_that_is_awaited(run: Callable[[Any], None], source: Callable[[int], Any]) -> None:
    """An ``async def`` is awaited, so it may commit."""

    async def story(session: AsyncSession) -> None:
        async def commit(count: int) -> None:
            await session.commit()

        await asynchronous.insert_many(session, source(53), batch=25, progress=commit)
        await session.rollback()
        assert await stored_numbers(session) == list(range(53))

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
        assert await stored_numbers(session) == list(range(20))

    run(story)


@pytest.mark.parametrize("source", [items, arriving])
def test_a_refused_batch_of_either_kind(run: Callable[[Any], None], source: Callable[[int, int], Any]) -> None:
    """The error is that of the database, with a note."""

    async def story(session: AsyncSession) -> None:
        session.add(Item(number=25))
        await session.flush()
        with pytest.raises(IntegrityError) as error:
            await asynchronous.insert_many(session, source(30, 0), batch=10)
        assert "20 objects were inserted before" in notes(error)[0]
        await session.rollback()
        assert await stored_numbers(session) == []

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


def test_mistakes_with_an_asynchronous_session(run: Callable[[Any], None]) -> None:
    """The errors are those of the synchronous twin."""

    async def story(session: AsyncSession) -> None:
        with pytest.raises(ValueError, match="batch is 0, expected a whole number of 1 or more"):
            await asynchronous.insert_many(session, items(3), batch=0)
        with pytest.raises(TypeError, match="expected an iterable of mapped objects, not None"):
            await asynchronous.insert_many(session, None)  # type: ignore[arg-type]  # no iterable
        with pytest.raises(TypeError, match="expected mapped objects, not 'wrong'"):
            await asynchronous.insert_many(session, ["wrong"])
        with pytest.raises(TypeError, match="expected an AsyncSession"):
            await asynchronous.insert_many(session.sync_session, items(3))  # type: ignore[arg-type]  # a synchronous session

    run(story)
