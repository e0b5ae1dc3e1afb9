"""``bulk.insert_many``: any number of objects from an iterable, batch by batch, in constant memory."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event, inspect, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session
from support.async_sessions import session_on
from support.marks import on
from support.members import Base, User

from sqlalchemy_public_id import bulk
from sqlalchemy_public_id.asyncio import bulk as asynchronous

pytestmark = pytest.mark.backend


def users(count: int, first: int = 0) -> Iterator[User]:
    return (User(email=str(number)) for number in range(first, first + count))


def numbers(session: Session) -> list[int]:
    """Return the numbers of the stored users."""
    return [int(email) for email in session.scalars(select(User.email).order_by(User.id)) if email]


def notes(error: pytest.ExceptionInfo[Any]) -> list[str]:
    return list(getattr(error.value, "__notes__", ()))


@pytest.mark.usefixtures("members")
@pytest.mark.parametrize("count", [0, 20, 23])
def test_all_objects_are_inserted_in_their_order(session: Session, count: int) -> None:
    """All objects are inserted in their order; after each batch, including the last, *progress* is called.

    The function returns the number of objects.
    """
    seen: list[tuple[int, int]] = []

    def progress(count: int) -> None:
        seen.append((count, len(numbers(session))))

    assert bulk.insert_many(session, users(count), batch=10, progress=progress) == count
    assert seen == [(at, at) for at in (10, 20, 23) if at <= count]
    assert numbers(session) == list(range(count))


@pytest.mark.usefixtures("members")
@pytest.mark.parametrize("is_flushed", [False, True])
def test_constant_memory(session: Session, is_flushed: bool) -> None:
    """Objects of earlier batches are freed before the next object is taken, and the session holds none."""
    if is_flushed:  # a listener to flushes makes the unit of work insert the objects
        event.listen(session, "before_flush", lambda *_: None)
    alive: weakref.WeakSet[User] = weakref.WeakSet()
    most = 0

    def watched() -> Iterator[User]:
        nonlocal most
        for each in users(250):
            alive.add(each)
            yield each
            del each
            most = max(most, len(alive))

    gc.disable()  # the objects must be freed by reference counts alone
    try:
        bulk.insert_many(session, watched(), batch=25)
        left = len(alive)
    finally:
        gc.enable()

    assert most <= 26
    assert left <= 1
    assert len(session.identity_map) == left


# --- errors


@pytest.mark.usefixtures("members")
def test_a_batch_that_the_database_refuses(session: Session) -> None:
    """The error is the database's own with a note; the transaction is rolled back, as in a flush."""
    kept = [*users(25), *users(5)]
    with pytest.raises(IntegrityError) as error:
        bulk.insert_many(session, kept, batch=10)
    session.rollback()

    assert notes(error) == [
        "bulk.insert_many(): 20 objects were inserted before, and these of the batch were not: 21 to 30"
    ]
    assert numbers(session) == []
    assert all(inspect(each).transient for each in kept)


@pytest.mark.usefixtures("members")
def test_a_generator_that_raises(session: Session) -> None:
    """If the iterable raises, earlier batches stay in the transaction, the last is discarded, and a note is added."""

    def broken() -> Iterator[User]:
        yield from users(25)
        raise ValueError("line 26")

    with pytest.raises(ValueError, match="line 26") as error:
        bulk.insert_many(session, broken(), batch=10)
    session.commit()

    assert notes(error) == ["bulk.insert_many(): 20 objects were inserted before"]
    assert numbers(session) == list(range(20))


@pytest.mark.usefixtures("members")
def test_progress_that_raises(session: Session) -> None:
    """If *progress* raises, the batch is already inserted, and no further object is taken."""
    source = users(30)

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bulk.insert_many(session, source, batch=10, progress=stop)

    assert numbers(session) == list(range(10))
    assert next(source).email == "10"


@pytest.mark.usefixtures("members")
@pytest.mark.parametrize("wrong", [None, {"name": "Ada"}, User])
def test_something_else_in_the_middle(session: Session, wrong: Any) -> None:
    """Anything but a mapped object raises: its batch is not sent, and earlier batches stay."""
    with pytest.raises(TypeError, match="expected mapped objects, not ") as error:
        bulk.insert_many(session, itertools.chain(users(15), [wrong], users(5, first=15)), batch=10)
    session.commit()

    assert "10 objects were inserted before" in notes(error)[0]
    assert numbers(session) == list(range(10))


async def arriving(count: int) -> AsyncIterator[User]:
    for each in users(count):
        await asyncio.sleep(0)
        yield each
        del each


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (lambda: None, "expected an iterable of mapped objects, not None"),
        (lambda: "text", "expected an iterable of mapped objects, not 'text'"),
        (lambda: b"text", "expected an iterable of mapped objects, not b'text'"),
        (lambda: {"name": "Ada"}, "expected an iterable of mapped objects, not {'name': 'Ada'}"),
        (User, "expected an iterable of mapped objects, not <.*User"),
        (lambda: arriving(1), r"sqlalchemy_public_id\.asyncio\.bulk\.insert_many"),
    ],
    ids=["none", "text", "bytes", "dictionary", "object", "asynchronous"],
)
@pytest.mark.parametrize("function", [bulk.insert, bulk.insert_many])
@on("sqlite")
def test_what_is_no_iterable_of_objects(session: Session, function: Any, wrong: Any, expected: str) -> None:
    """The error says what was expected, or which function to call instead."""
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
    ids=["zero", "text", "fraction", "boolean", "number", "async function"],
)
@on("sqlite")
def test_options_that_are_refused(
    session: Session, options: dict[str, Any], error: type[Exception], expected: str
) -> None:
    """Invalid options raise before an object is taken, and the error says what was expected."""
    source = users(3)
    with pytest.raises(error, match=expected):
        bulk.insert_many(session, source, **options)

    assert next(source).email == "0"


# --- the asynchronous twin


@pytest.fixture
def run(async_engine: AsyncEngine) -> Callable[[Callable[[AsyncSession], Any]], None]:
    """Return a function that runs a coroutine with a session, on a database with the tables."""

    async def tell(story: Callable[[AsyncSession], Any]) -> None:
        async with session_on(async_engine, Base.metadata) as session:
            await story(session)

    return lambda story: asyncio.run(tell(story))


@pytest.mark.parametrize("source", [users, arriving])
@pytest.mark.parametrize("is_awaited", [False, True], ids=["progress", "awaited progress"])
def test_both_kinds_of_iterables(run: Callable[[Any], None], source: Callable[[int], Any], is_awaited: bool) -> None:
    """Objects may come from a sync or async iterable; an async *progress* is awaited, so it may commit."""

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
    """If an async generator raises, earlier batches stay in the transaction, and a note is added."""

    async def broken() -> AsyncIterator[User]:
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
    """Objects of earlier batches are freed before the next one is taken."""
    alive: weakref.WeakSet[User] = weakref.WeakSet()
    most = 0

    async def watched() -> AsyncIterator[User]:
        nonlocal most
        for each in users(150):
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
    """Invalid arguments raise as in the synchronous function; a synchronous session is refused."""

    async def story() -> None:
        own: Any = AsyncSession()
        for options, error, message in (
            ({"objects": users(3), "batch": 0}, ValueError, "batch is 0, expected a whole number of 1 or more"),
            ({"objects": None}, TypeError, "expected an iterable of mapped objects, not None"),
            ({"objects": users(3), "session": session}, TypeError, "expected an AsyncSession"),
        ):
            with pytest.raises(error, match=message):
                await asynchronous.insert_many(**{"session": own, **options})

    asyncio.run(story())
