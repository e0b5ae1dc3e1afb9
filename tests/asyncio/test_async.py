"""The ``AsyncSession`` versions of ``lookup``, ``bulk`` and other modules, with every asynchronous driver."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, String, select
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, scoped_session
from support.async_sessions import tell

from sqlalchemy_public_id import PublicIdMixin, TypedId, bigint_key, public_ref, testing
from sqlalchemy_public_id import bulk as sync_bulk
from sqlalchemy_public_id import idempotency as sync_idempotency
from sqlalchemy_public_id import lookup as sync_lookup
from sqlalchemy_public_id.asyncio import bulk, idempotency, lookup, references, tokens
from sqlalchemy_public_id.errors import PublicIdWarning
from sqlalchemy_public_id.tokens import Token, token_column

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class WriterId(TypedId, prefix="aswriter"): ...


class Writer(PublicIdMixin[WriterId], Base):
    __tablename__ = "writer"
    name: Mapped[str] = mapped_column(String(50))


class Book(PublicIdMixin, Base):
    __tablename__ = "book"
    writer_id: Mapped[int | None] = mapped_column(ForeignKey(Writer.id))
    writer: Mapped[Writer | None] = relationship()
    writer_public_id: Mapped[str | None] = public_ref("writer")


TICKET = Token(prefix="asticket")


class Ticket(Base):
    __tablename__ = "ticket"
    id: Mapped[int] = bigint_key()
    token: Mapped[bytes] = token_column(TICKET)


ADA, UNKNOWN = (f"aswriter_{name:0>12}" for name in ("ada", "unknown"))
BOOKS = ["book00000000", "book00000001"]

Story = Callable[[AsyncSession], Awaitable[None]]


@pytest.fixture
def run(async_engine: AsyncEngine) -> Callable[[Story], None]:
    """Return a function that runs a story with a session, on a database with one writer of two books."""

    async def with_rows(session: AsyncSession, story: Story) -> None:
        ada = Writer(name="Ada", public_id=ADA)
        session.add_all(Book(public_id=each, writer=ada) for each in BOOKS)
        await session.commit()
        session.expunge_all()
        await story(session)

    return lambda story: tell(async_engine, Base.metadata, lambda session: with_rows(session, story))


@pytest.mark.parametrize(
    ("twin", "original"),
    [(bulk, sync_bulk), (idempotency, sync_idempotency), (lookup, sync_lookup)],
    ids=["bulk", "idempotency", "lookup"],
)
def test_same_names(twin: Any, original: Any) -> None:
    """Each function has an asynchronous version with the same parameters."""
    functions = {name for name in original.__all__ if inspect.isfunction(getattr(original, name))}

    assert functions
    assert functions == {name for name in twin.__all__ if inspect.iscoroutinefunction(getattr(twin, name))}
    taken = {name: [inspect.signature(getattr(module, name)) for module in (twin, original)] for name in functions}
    assert {name: pair for name, pair in taken.items() if pair[0].parameters.keys() != pair[1].parameters.keys()} == {}


def test_a_key_instead_of_an_id(run: Callable[[Story], None]) -> None:
    """The functions warn of an integer, which is no public id, as the synchronous ones do."""

    async def story(session: AsyncSession) -> None:
        with pytest.warns(PublicIdWarning, match="looked up as a public id"):
            assert await lookup.get(session, Writer, 1) is None

    run(story)


def test_scoped_session(run: Callable[[Story], None], async_engine: AsyncEngine) -> None:
    """Every function accepts an ``async_scoped_session`` and uses its current session."""

    async def story(session: AsyncSession) -> None:
        scoped: Any = async_scoped_session(async_sessionmaker(async_engine), scopefunc=asyncio.current_task)
        try:
            ada = await lookup.get_one(scoped, Writer, ADA)
            assert ada in scoped
            assert (ada.name, type(ada.public_id)) == ("Ada", WriterId)
            assert await lookup.get(scoped, Writer, ADA) is await lookup.resolve(scoped, ADA) is ada
            assert await lookup.get_many(scoped, Writer, [ADA]) == {ADA: ada}
            assert await lookup.resolve_many(scoped, [UNKNOWN, ADA]) == {ADA: ada}
            assert await lookup.keys_of(scoped, Writer, [ADA]) == {ADA: ada.id}
            assert await lookup.public_ids_of(scoped, Writer, [ada.id]) == {ada.id: ADA}
            scoped.expunge_all()
            page = await lookup.page(scoped, Book, limit=2**31 - 2, references=[Book.writer_public_id])
            assert [(book.public_id, book.writer_public_id) for book in page] == [(each, ADA) for each in BOOKS]
            books = [Book(writer_public_id=ADA) for _ in range(3)]
            await bulk.insert(scoped, books)
            await scoped.commit()
            await references.load(scoped, books)
            assert {book.writer_public_id for book in books} == {ADA}
            issued = TICKET.issue()
            scoped.add(Ticket(token=issued.digest))
            assert (await tokens.get(scoped, Ticket, issued.reveal())) in scoped
            once, created = await idempotency.insert_once(scoped, Book(public_id="once00000000"))
            assert (once in scoped, created) == (True, True)
        finally:
            await scoped.remove()

    run(story)


AWAITED: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "get": lambda session: lookup.get(session, Writer, ADA),
    "get_one": lambda session: lookup.get_one(session, Writer, ADA),
    "resolve": lambda session: lookup.resolve(session, ADA),
    "get_many": lambda session: lookup.get_many(session, Writer, [ADA]),
    "keys_of": lambda session: lookup.keys_of(session, Writer, [ADA]),
    "public_ids_of": lambda session: lookup.public_ids_of(session, Writer, [1]),
    "page": lambda session: lookup.page(session, Writer, limit=1),
    "insert": lambda session: bulk.insert(session, [Book()]),
    "insert_once": lambda session: idempotency.insert_once(session, Book(public_id=BOOKS[0])),
    "load": lambda session: references.load(session, []),
    "tokens.get": lambda session: tokens.get(session, Ticket, "text"),
}


@pytest.mark.parametrize("name", AWAITED)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "not NoneType: pass an AsyncSession"),
        (Session(), "not Session: use the function of this name in sqlalchemy_public_id$"),
        (scoped_session(Session), "not scoped_session: use the function of this name in sqlalchemy_public_id$"),
        (AsyncConnection(create_async_engine("sqlite+aiosqlite://")), "not AsyncConnection: pass an AsyncSession"),
    ],
    ids=["None", "Session", "scoped_session", "AsyncConnection"],
)
def test_what_is_no_asynchronous_session(name: str, wrong: Any, message: str) -> None:
    """Every asynchronous function rejects other sessions with an error that says what to pass."""

    async def wait() -> None:
        await AWAITED[name](wrong)

    with pytest.raises(TypeError, match=f"expected an AsyncSession, {message}"):
        asyncio.run(wait())


def test_more_ids_than_parameters(run: Callable[[Story], None]) -> None:
    """Lookups accept 40,000 ids, more than most drivers accept as parameters."""

    async def story(session: AsyncSession) -> None:
        asked = [f"{number:012}" for number in range(40_000)] + BOOKS
        assert list(await lookup.get_many(session, Book, asked)) == BOOKS
        keys = await lookup.keys_of(session, Book, asked)
        assert await lookup.public_ids_of(session, Book, range(40_000)) == {key: each for each, key in keys.items()}

    run(story)


@pytest.mark.parametrize("rows", [1, 300])
def test_bulk_insert(run: Callable[[Story], None], rows: int) -> None:
    """Inserted objects get their keys and ids, even after collisions; objects that were pending are flushed, too."""

    async def story(session: AsyncSession) -> None:
        pending = Writer(name="pending")
        session.add(pending)
        books = [Book() for _ in range(rows)]
        with testing.collisions(Book, BOOKS[0], times=rows // 2 + 1):
            await bulk.insert(session, books)
        assert pending.id
        assert all(book in session for book in books)
        await session.commit()
        stored = {row.id: row.public_id for row in await session.execute(select(Book.id, Book.public_id))}
        assert {book.id: book.public_id for book in books}.items() <= stored.items()
        assert len(set(stored.values())) == len(stored) == rows + 2

    run(story)


def test_insert_many(run: Callable[[Story], None]) -> None:
    """``insert_many()`` reads an asynchronous iterable in batches, awaits ``progress``, and rejects a non-function."""

    async def story(session: AsyncSession) -> None:
        taken: list[Book] = []

        async def books() -> AsyncIterator[Book]:
            for _ in range(4):
                taken.append(Book())
                yield taken[-1]

        told: list[tuple[int, int]] = []

        async def progress(count: int) -> None:
            told.append((count, len(taken)))

        assert await bulk.insert_many(session, books(), batch=2, progress=progress) == 4
        assert told == [(2, 2), (4, 4)]
        wrong: Any = 5
        with pytest.raises(TypeError, match="progress"):
            await bulk.insert_many(session, [Book()], progress=wrong)

    run(story)
