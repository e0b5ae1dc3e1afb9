"""The arguments of each lookup reach its statement: condition, lock, loader options."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, String, create_engine, event, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    ORMExecuteState,
    Session,
    load_only,
    mapped_column,
    relationship,
)
from sqlalchemy.pool import NullPool
from werkzeug.exceptions import NotFound

from sqlalchemy_public_id import (
    IdempotencyConflict,
    NanoId,
    PublicIdMixin,
    PublicIdNotFound,
    idempotency,
    lookup,
    public_id_column,
)
from sqlalchemy_public_id.asyncio import idempotency as async_idempotency
from sqlalchemy_public_id.asyncio import lookup as async_lookup
from sqlalchemy_public_id.ext import flask
from sqlalchemy_public_id.references import public_ref


class Base(DeclarativeBase):
    metadata = MetaData()


class Book(PublicIdMixin, Base):
    """Has two public ids."""

    __tablename__ = "book"
    __public_id__ = NanoId(prefix="passed")
    code: Mapped[str] = public_id_column(NanoId(length=6, prefix="passedcode"))
    owner: Mapped[str] = mapped_column(String(10))
    title: Mapped[str] = mapped_column(String(10))

    book_id: Mapped[int | None] = mapped_column(ForeignKey("book.id"))
    next_public_id = public_ref("next")
    sequels: Mapped[list[Book]] = relationship(back_populates="next")
    next: Mapped[Book | None] = relationship(back_populates="sequels", remote_side=lambda: Book.id)


OURS, THEIRS = "passed_aaaaaaaaaaaa", "passed_bbbbbbbbbbbb"
CODES = {OURS: "passedcode_aaaaaa", THEIRS: "passedcode_bbbbbb"}
KEYS = {OURS: 1, THEIRS: 2}
CALLS: dict[str, Callable[[str], tuple[Any, ...]]] = {
    "get": lambda given: (Book, given),
    "get_one": lambda given: (Book, given),
    "get_many": lambda given: (Book, [given]),
    "get_or_404": lambda given: (Book, given),
    "resolve": lambda given: (given,),
    "resolve_many": lambda given: ([given],),
    "keys_of": lambda given: (Book, [given]),
    "public_ids_of": lambda given: (Book, [KEYS[given]]),
    "page": lambda given: (Book,),
}
"""Function → its positional arguments for a public id, after the session."""
LOADING = ["get", "get_one", "get_many", "get_or_404", "resolve", "resolve_many"]
"""The functions that load objects by one id, or by several."""


class Books:
    """Two books, and methods that call a function on them."""

    def __init__(self, file: Path) -> None:
        self.url = f"sqlite:///{file}"
        self.seen: list[ORMExecuteState] = []
        """The statements of the last call."""
        engine = self.engine = create_engine(self.url)
        Base.metadata.create_all(engine)
        with Session(engine) as session, session.begin():
            for id, owner in ((OURS, "ours"), (THEIRS, "theirs")):
                session.add(Book(public_id=id, code=CODES[id], owner=owner, title=f"{owner} one"))
                session.flush()

    def call(self, way: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call *function* with a session, or with an AsyncSession."""
        self.seen.clear()
        if way == "asyncio":
            return asyncio.run(self._awaited(function, *arguments, **options))
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            event.listen(session, "do_orm_execute", self.seen.append)
            return function(session, *arguments, **options)

    async def _awaited(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        engine = create_async_engine(self.url.replace("sqlite", "sqlite+aiosqlite"), poolclass=NullPool)
        async with AsyncSession(engine, expire_on_commit=False) as session, session.begin():
            event.listen(session.sync_session, "do_orm_execute", self.seen.append)
            return await function(session, *arguments, **options)

    def find(self, way: str, name: str, id: str, **options: Any) -> Any:
        """Return what the function *name* finds for *id*; ``None`` for a row that does not exist."""
        module: Any = async_lookup if way == "asyncio" else flask if name == "get_or_404" else lookup
        if name == "page":
            options.setdefault("limit", 9)
        try:
            return self.call(way, getattr(module, name), *CALLS[name](id), **options) or None
        except (PublicIdNotFound, NotFound):
            return None


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path / "books.db")


def each_way(*names: str) -> pytest.MarkDecorator:
    pairs = [(way, name) for name in names for way in ("sync", "asyncio") if (way, name) != ("asyncio", "get_or_404")]
    return pytest.mark.parametrize(("way", "name"), pairs, ids=map("-".join, pairs))


@each_way(*CALLS)
def test_where(books: Books, way: str, name: str) -> None:
    """No function finds a row that does not meet the condition."""
    found = {owner: books.find(way, name, OURS, where=Book.owner == owner) for owner in ("ours", "nobody")}

    assert found["ours"] is not None
    assert found["nobody"] is None


@each_way(*(name for name in CALLS if not name.startswith("resolve")))
def test_attribute(books: Books, way: str, name: str) -> None:
    """The public id is looked up in ``attribute``."""
    if name == "page":
        (first,) = books.find(way, name, OURS, attribute="code", after=CODES[OURS])
        assert first.public_id == THEIRS
    elif name == "public_ids_of":
        assert books.find(way, name, OURS, attribute="code") == {1: CODES[OURS]}
    else:
        assert books.find(way, name, CODES[OURS], attribute="code") is not None
        assert books.find(way, name, OURS, attribute="code") is None


@each_way(*LOADING)
def test_load_options(books: Books, way: str, name: str) -> None:
    """Loader options decide what is loaded; the statement locks the row, if the database can, and refreshes objects."""
    lock, options = {"skip_locked": True}, {"mark": 7}
    how: Any = {"with_for_update": lock, "populate_existing": True, "execution_options": options}
    found = books.find(way, name, OURS, options=[load_only(Book.owner)], **how)

    assert vars(found[OURS] if isinstance(found, dict) else found).keys() & {"owner", "title"} == {"owner"}
    (state,) = books.seen
    assert str(state.statement.compile(dialect=postgresql.dialect())).endswith("FOR UPDATE SKIP LOCKED")
    assert [state.execution_options.get(name) for name in ("populate_existing", "mark")] == [True, 7]
    assert (lock, options) == ({"skip_locked": True}, {"mark": 7})


@each_way("keys_of", "public_ids_of")
def test_execution_options(books: Books, way: str, name: str) -> None:
    """The statement gets the execution options."""
    books.find(way, name, OURS, execution_options={"mark": 7})

    assert [state.execution_options.get("mark") for state in books.seen] == [7]


@each_way("get_one", "get_many")
def test_field(books: Books, way: str, name: str) -> None:
    """The error names the field of the input."""
    module = lookup if way == "sync" else async_lookup
    with pytest.raises(PublicIdNotFound) as caught:
        books.call(way, getattr(module, name), *CALLS[name]("passed_cccccccccccc"), field="book_id")

    assert caught.value.field == "book_id"


@each_way("resolve", "resolve_many")
def test_base(books: Books, way: str, name: str) -> None:
    """``base`` restricts the lookup to models of that base."""

    class Other(DeclarativeBase): ...

    assert books.find(way, name, OURS, base=Base) is not None
    assert books.find(way, name, OURS, base=Other) is None


@each_way("resolve", "resolve_many")
def test_models(books: Books, way: str, name: str) -> None:
    """``models`` restricts the lookup to these models."""

    class Other(DeclarativeBase): ...

    class Film(PublicIdMixin, Other):
        __tablename__ = "film"
        __public_id__ = NanoId(prefix="passedfilm")

    assert books.find(way, name, OURS, models=[Book, Film]) is not None
    assert books.find(way, name, OURS, models=[Film]) is None
    Other.registry.dispose()


@pytest.mark.parametrize("way", ["sync", "asyncio"])
def test_options_for_the_cursor(books: Books, way: str) -> None:
    """Only the statement that reads the row of the cursor gets its execution options."""
    books.find(way, "page", OURS, after=OURS, cursor_execution_options={"mark": 7})

    assert [state.execution_options.get("mark") for state in books.seen] == [7, None]


PAGES: list[dict[str, Any]] = [
    {"limit": 1},
    {"after": OURS},
    {"before": THEIRS},
    {"newest_first": True},
    {"order_by": Book.title.desc()},
    {"count": True},
    {"count": 1},
]


@pytest.mark.parametrize("options", PAGES, ids=lambda options: next(iter(options)))
def test_arguments_of_a_page(books: Books, options: dict[str, Any]) -> None:
    """The asynchronous ``page()`` accepts the arguments of the synchronous one, and each has an effect."""

    def shown(way: str, **options: Any) -> tuple[Any, ...]:
        page = books.find(way, "page", OURS, **options)
        return [book.title for book in page], page.total, page.next, page.previous

    assert shown("sync", **options) == shown("asyncio", **options) != shown("sync")


NESTED: list[dict[str, Any]] = [
    {"limit": 1},
    {"after": THEIRS},
    {"newest_first": True},
    {"order_by": Book.title.desc()},
    {"attribute": "code"},
    {"where": Book.owner == "theirs"},
    {"options": [load_only(Book.owner)]},
    {"references": [Book.next_public_id]},
]


@pytest.mark.parametrize("options", NESTED, ids=lambda options: next(iter(options)))
def test_arguments_of_nested_pages(books: Books, options: dict[str, Any]) -> None:
    """The asynchronous ``pages()`` accepts the arguments of the synchronous one, and each has an effect."""
    with Session(books.engine) as session, session.begin():
        parent = lookup.get_one(session, Book, OURS)
        session.execute(update(Book).values(book_id=parent.id))

    def shown(way: str, after: str | None = None, **options: Any) -> tuple[Any, ...]:
        parent = books.find("sync", "get", OURS)
        options.setdefault("limit", 9)
        found = books.call(
            way,
            (async_lookup if way == "asyncio" else lookup).pages,
            Book.sequels,
            of=[parent],
            after=None if after is None else {parent: after},
            **options,
        )
        page = found[parent]
        columns = [len(state.statement.selected_columns) for state in books.seen]
        return [vars(book).get("title") for book in page], page.next, columns

    plain = {"limit": 1} if "attribute" in options else {}
    assert shown("sync", **plain, **options) == shown("asyncio", **plain, **options) != shown("sync", **plain)


@pytest.mark.parametrize("way", ["sync", "asyncio"])
def test_insert_once(books: Books, way: str) -> None:
    """A repetition finds the row by ``attribute``, and does not compare a row that does not meet the condition."""
    insert_once = (async_idempotency if way == "asyncio" else idempotency).insert_once
    code = CODES[OURS]

    def repeat(**options: Any) -> Any:
        book = Book(code=code, owner="ours", title=options.pop("title", "ours one"))
        return books.call(way, insert_once, book, attribute="code", **options)

    row, created = repeat(where=Book.owner == "ours")
    assert (row.public_id, created) == (OURS, False)
    assert repeat(title="another", compare={"owner"})[1] is False
    with pytest.raises(IdempotencyConflict) as caught:
        repeat(title="another")
    assert caught.value.differing == ("title",)
    with pytest.raises(IdempotencyConflict) as caught:
        repeat(title="another", where=Book.owner == "theirs")
    assert caught.value.differing == ()
