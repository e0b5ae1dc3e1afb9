"""The twins of lookup, bulk and others for ``AsyncSession``, with every asynchronous driver."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, String, event, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, scoped_session, selectinload

from sqlalchemy_public_id import (
    NanoId,
    PublicIdCollision,
    PublicIdMixin,
    PublicIdNotFound,
    TypedId,
    bigint_key,
    testing,
)
from sqlalchemy_public_id import bulk as sync_bulk
from sqlalchemy_public_id import idempotency as sync_idempotency
from sqlalchemy_public_id import lookup as sync_lookup
from sqlalchemy_public_id.asyncio import bulk, idempotency, lookup, references, tokens
from sqlalchemy_public_id.tokens import Token, token_column

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class WriterId(TypedId, prefix="aswriter"): ...


class Writer(PublicIdMixin[WriterId], Base):
    __tablename__ = "writer"
    name: Mapped[str | None] = mapped_column(String(50), unique=True)
    books: Mapped[list[Book]] = relationship(order_by="Book.id")


class Book(PublicIdMixin, Base):
    __tablename__ = "book"
    writer_id: Mapped[int | None] = mapped_column(ForeignKey(Writer.id))


class Tiny(PublicIdMixin, Base):
    """Thirty-six ids in all."""

    __tablename__ = "tiny"
    __public_id__ = NanoId(length=1)


TICKET = Token(prefix="asticket")


class Ticket(Base):
    __tablename__ = "ticket"
    id: Mapped[int] = bigint_key()
    token: Mapped[bytes] = token_column(TICKET)


ADA, GRACE, UNKNOWN = (f"aswriter_{name:0>12}" for name in ("ada", "grace", "unknown"))
BOOKS = ["book00000000", "book00000001"]
IMPOSSIBLE: list[Any] = [None, 1, "", BOOKS[0], ADA.upper(), ADA.encode(), "\0", "\ud800", "a" * 10**7]

Story = Callable[[AsyncSession], Awaitable[None]]


@pytest.fixture
def run(async_engine: AsyncEngine) -> Callable[[Story], None]:
    """Run a story with a session, on a database with two writers, of whom Ada has two books."""

    async def tell(story: Story) -> None:
        try:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
            async with AsyncSession(async_engine, expire_on_commit=False) as session:
                ada = Writer(name="Ada", public_id=ADA, books=[Book(public_id=BOOKS[0]), Book(public_id=BOOKS[1])])
                session.add_all([ada, Writer(name="Grace", public_id=GRACE)])
                await session.commit()
                session.expunge_all()
                await story(session)
        finally:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)
            await async_engine.dispose()

    return lambda story: asyncio.run(tell(story))


@pytest.fixture
def sent(async_engine: AsyncEngine) -> list[str]:
    """The SELECTs that were sent."""
    texts: list[str] = []

    def listen(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("SELECT"):
            texts.append(statement)

    event.listen(async_engine.sync_engine, "before_cursor_execute", listen)
    return texts


@pytest.mark.parametrize(
    ("twin", "original"),
    [(bulk, sync_bulk), (idempotency, sync_idempotency), (lookup, sync_lookup)],
    ids=["bulk", "idempotency", "lookup"],
)
def test_same_names(twin: Any, original: Any) -> None:
    """Each function has its twin, which takes what it takes."""
    functions = {name for name in original.__all__ if inspect.isfunction(getattr(original, name))}

    assert functions
    assert functions == {name for name in twin.__all__ if inspect.iscoroutinefunction(getattr(twin, name))}
    for name in functions:
        parameters = [inspect.signature(getattr(module, name)).parameters for module in (twin, original)]
        assert parameters[0].keys() == parameters[1].keys()


def test_scoped_session(run: Callable[[Story], None], async_engine: AsyncEngine) -> None:
    """An ``async_scoped_session`` stands for the session that it has, in every function."""

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
            assert list(await lookup.page(scoped, Book, limit=1))
            books = [Book() for _ in range(3)]
            await bulk.insert(scoped, books)
            await references.load(scoped, books)
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
        (Session(), "not Session: import it from sqlalchemy_public_id$"),
        (scoped_session(Session), "not scoped_session: import it from sqlalchemy_public_id$"),
        (AsyncConnection(create_async_engine("sqlite+aiosqlite://")), "not AsyncConnection: pass an AsyncSession"),
    ],
    ids=["None", "Session", "scoped_session", "AsyncConnection"],
)
def test_what_is_no_asynchronous_session(name: str, wrong: Any, message: str) -> None:
    """What is awaited takes asynchronous sessions, and says so of everything else."""

    async def wait() -> None:
        await AWAITED[name](wrong)

    with pytest.raises(TypeError, match=f"expected an AsyncSession, {message}"):
        asyncio.run(wait())


def test_many_rows(run: Callable[[Story], None], sent: list[str]) -> None:
    """``get_many``, ``keys_of`` and ``public_ids_of`` need one statement each and keep the order."""

    async def story(session: AsyncSession) -> None:
        sent.clear()
        asked = [GRACE, UNKNOWN, ADA, GRACE]
        keys = await lookup.keys_of(session, Writer, asked)
        assert await lookup.public_ids_of(session, Writer, keys.values()) == {key: each for each, key in keys.items()}
        found = await lookup.get_many(session, Writer, asked)
        assert [(each, writer.name) for each, writer in found.items()] == [(GRACE, "Grace"), (ADA, "Ada")]
        assert {each: writer.id for each, writer in found.items()} == keys
        assert len(sent) == 3

    run(story)


def test_ids_that_are_not_found(run: Callable[[Story], None], sent: list[str]) -> None:
    """An id that no row has is not found; for what cannot be an id, the database is not asked."""

    async def story(session: AsyncSession) -> None:
        sent.clear()
        for value in (*IMPOSSIBLE, UNKNOWN):
            assert not sent
            assert await lookup.get(session, Writer, value) is await lookup.resolve(session, value) is None
            with pytest.raises(PublicIdNotFound, match=r"^writer: "):
                await lookup.get_one(session, Writer, value, field="writer")
        sent.clear()
        assert await lookup.get_many(session, Writer, IMPOSSIBLE) == {}
        assert await lookup.keys_of(session, Writer, IMPOSSIBLE) == {}
        assert not sent

    run(story)


def test_more_ids_than_parameters(run: Callable[[Story], None]) -> None:
    """Forty thousand ids are more than most drivers take as parameters."""

    async def story(session: AsyncSession) -> None:
        asked = [f"{number:012}" for number in range(40_000)] + BOOKS
        assert list(await lookup.get_many(session, Book, asked)) == BOOKS
        keys = await lookup.keys_of(session, Book, asked)
        assert await lookup.public_ids_of(session, Book, range(40_000)) == {key: each for each, key in keys.items()}

    run(story)


ONE: dict[str, Callable[..., Awaitable[Any]]] = {
    "get": lambda session, **how: lookup.get(session, Writer, ADA, **how),
    "get_one": lambda session, **how: lookup.get_one(session, Writer, ADA, **how),
    "resolve": lambda session, **how: lookup.resolve(session, ADA, **how),
    "get_many": lambda session, **how: lookup.get_many(session, Writer, [ADA], **how),
}


@pytest.mark.parametrize("name", ONE)
def test_options(run: Callable[[Story], None], name: str) -> None:
    """Loader options, ``populate_existing`` and ``execution_options`` are passed on."""

    async def ask(session: AsyncSession, **how: Any) -> Any:
        found = await ONE[name](session, **how)
        return found[ADA] if isinstance(found, dict) else found

    async def story(session: AsyncSession) -> None:
        for how in ({"execution_options": {"populate_existing": True}}, {"populate_existing": True}):
            kept = await ask(session)
            await (await session.connection()).execute(update(Writer.__table__).values(name=None))
            assert (await ask(session)).name == kept.name == "Ada"
            found = await ask(session, options=[selectinload(Writer.books)], **how)
            assert (found.name, [book.public_id for book in found.books]) == (None, BOOKS)
            await session.rollback()
            session.expunge_all()

    run(story)


def test_execution_options(run: Callable[[Story], None]) -> None:
    """``execution_options`` reach the statements that load no rows, too."""

    async def story(session: AsyncSession) -> None:
        seen: list[Any] = []
        event.listen(
            session.sync_session, "do_orm_execute", lambda state: seen.append(state.execution_options.get("mine"))
        )
        keys = await lookup.keys_of(session, Writer, [ADA], execution_options={"mine": 1})
        await lookup.public_ids_of(session, Writer, keys.values(), execution_options={"mine": 2})
        assert seen == [1, 2]

    run(story)


def agree(objects: list[Any], rows: Any) -> None:
    assert {each.id: each.public_id for each in objects}.items() <= {row.id: row.public_id for row in rows}.items()
    assert len({each.public_id for each in objects}) == len(objects)


@pytest.mark.parametrize("rows", [1, 300])
def test_bulk_insert(run: Callable[[Story], None], rows: int) -> None:
    """Objects get their keys and ids, also where the ids collide, and what was pending before is written first."""

    async def story(session: AsyncSession) -> None:
        pending = Writer(name="pending")
        session.add(pending)
        books = [Book() for _ in range(rows)]
        with testing.collisions(Book, BOOKS[0], times=rows // 2 + 1):
            await bulk.insert(session, books)
        assert pending.id
        assert all(book in session for book in books)
        await session.commit()
        agree(books, await session.execute(select(Book.id, Book.public_id)))
        assert await session.scalar(select(func.count()).select_from(Book)) == rows + 2

    run(story)


def test_bulk_insert_into_a_small_space(run: Callable[[Story], None]) -> None:
    """Thirty-six objects find thirty-six ids; for one more there is an error, after which the session goes on."""

    async def story(session: AsyncSession) -> None:
        objects = [Tiny() for _ in range(36)]
        for part in (objects[:20], objects[20:]):
            await bulk.insert(session, part)
        agree(objects, (await session.execute(select(Tiny.id, Tiny.public_id))).all())
        await session.commit()
        with pytest.raises(PublicIdCollision):
            await bulk.insert(session, [Tiny()])
        await session.rollback()
        assert await session.scalar(select(func.count()).select_from(Tiny)) == 36

    run(story)


@pytest.mark.parametrize("names", [["Ada"], ["new", "Ada"], ["new", "new"]], ids=", ".join)
def test_bulk_insert_and_other_constraints(run: Callable[[Story], None], names: list[str]) -> None:
    """A duplicate of another kind is the error that it always was."""

    async def story(session: AsyncSession) -> None:
        with pytest.raises(IntegrityError):
            await bulk.insert(session, [Writer(name=name) for name in names])
        await session.rollback()
        assert await session.scalar(select(func.count()).select_from(Writer)) == 2

    run(story)
