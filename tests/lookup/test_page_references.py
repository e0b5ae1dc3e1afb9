"""``lookup.page(references=…)``: the statement of the page also selects what the references show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, String, create_engine, delete, event, select
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    aliased,
    defer,
    joinedload,
    mapped_column,
    relationship,
    with_loader_criteria,
)
from support.marks import on

from conftest import Statements
from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdMixin, ReferenceNotReadable, TypedId, Uuid7, lookup
from sqlalchemy_public_id.references import public_ref

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class AuthorId(TypedId, format=Uuid7(prefix="pgraut")): ...


class Author(PublicIdMixin[AuthorId], Base):
    __tablename__ = "author"
    name: Mapped[str] = mapped_column(String(20))


class Shelf(PublicIdMixin, Base):
    __tablename__ = "shelf"
    __public_id__ = NanoId(prefix="pgrshelf")
    code: Mapped[str] = mapped_column(String(8), unique=True)


class Book(PublicIdMixin, Base):
    __tablename__ = "book"
    __public_id__ = NanoId(prefix="pgrbook")
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "book"}  # noqa: RUF012  # as SQLAlchemy has it
    kind: Mapped[str] = mapped_column(String(10))
    title: Mapped[str] = mapped_column(String(20))
    author_id: Mapped[int] = mapped_column(ForeignKey(Author.id))
    author: Mapped[Author] = relationship(foreign_keys=author_id)
    author_public_id: Mapped[AuthorId] = public_ref("author")
    editor_id: Mapped[int | None] = mapped_column(ForeignKey(Author.id))
    editor: Mapped[Author | None] = relationship(foreign_keys=editor_id)
    editor_public_id: Mapped[AuthorId | None] = public_ref("editor")
    shelf_code: Mapped[str | None] = mapped_column(ForeignKey(Shelf.code))
    shelf: Mapped[Shelf | None] = relationship()
    shelf_public_id: Mapped[str | None] = public_ref("shelf")
    sequel_of_id: Mapped[int | None] = mapped_column(ForeignKey("book.id"))
    sequel_of: Mapped[Book | None] = relationship(remote_side="Book.id", foreign_keys=sequel_of_id)
    sequel_of_public_id: Mapped[str | None] = public_ref("sequel_of")


class Translation(Book):
    __mapper_args__ = {"polymorphic_identity": "translated"}  # noqa: RUF012  # as SQLAlchemy has it
    translator_id: Mapped[int | None] = mapped_column(ForeignKey(Author.id))
    translator: Mapped[Author | None] = relationship(foreign_keys=translator_id)
    translator_public_id: Mapped[AuthorId | None] = public_ref("translator")


REFERENCES = ["author_public_id", "editor_public_id", "shelf_public_id", "sequel_of_public_id"]
ROWS = 12


def filled() -> list[Any]:
    ada, grace = Author(name="Ada"), Author(name="Grace")
    shelves = [Shelf(code="A1"), Shelf(code="B2"), None]
    books: list[Book] = []
    for number in range(ROWS):
        book = Book(title=f"book {number}", author=(ada, grace)[number % 2], shelf=shelves[number % 3])
        book.editor = None if number % 3 else ada
        book.sequel_of = books[-1] if number % 4 else None
        books.append(book)
    return [ada, grace, *books]


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    create(Base.metadata)
    session.add_all(filled())
    session.commit()
    session.expunge_all()
    return session


def every(entity: Any = Book) -> list[Any]:
    return [getattr(entity, name) for name in REFERENCES]


def shown(book: Book) -> list[Any]:
    return [getattr(book, name) for name in REFERENCES]


def expected(db: Session) -> dict[str, list[Any]]:
    """Return the public ids that the relationships of each book lead to."""
    with Session(db.get_bind()) as other:
        return {
            book.public_id: [row and row.public_id for row in (book.author, book.editor, book.shelf, book.sequel_of)]
            for book in other.scalars(select(Book))
        }


def test_one_statement(db: Session, statements: Statements) -> None:
    """A page and all its references take one statement, forwards and backwards."""
    stored = expected(db)
    lookup.page(db, Book, limit=5, references=[Book.editor_public_id])  # its statement is cached separately
    db.expunge_all()
    statements.clear()
    first = lookup.page(db, Book, limit=5, references=every())
    second = lookup.page(db, Book, limit=5, after=first.next, references=every())
    back = lookup.page(db, Book, limit=5, before=second.previous, references=every())
    newest = lookup.page(db, Book, limit=2, newest_first=True, references=every())
    pages = {book.public_id: shown(book) for page in (first, second, newest) for book in page}

    assert list(back) == list(first)
    assert pages == stored
    assert all(type(book.author_public_id) is AuthorId for book in first)
    assert len(statements) == 4


ALIAS = aliased(Book)
PAGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "alias": (select(ALIAS).where(ALIAS.id > 0), {"references": every(ALIAS)}),
    "alias, with the attributes of the model": (select(ALIAS), {}),
    "condition": (Book, {"where": Book.title != ""}),
    "order": (Book, {"order_by": [Book.editor_id.desc(), Book.author_public_id]}),
    "lock": (select(Book).with_for_update(), {}),
    "join": (select(Book).join(Book.author), {}),
    "deferred": (select(Book).options(defer(Book.editor_id)), {"references": [Book.author_public_id]}),
    "objects": (select(Book).options(joinedload(Book.author)), {}),
    "hidden rows": (select(Book).options(with_loader_criteria(Author, Author.name == "Grace")), {}),
}


@pytest.mark.parametrize("name", PAGES)
def test_other_pages(db: Session, statements: Statements, name: str) -> None:
    """Pages of an alias, with a condition, with a nullable order, or with locked rows also take one statement.

    Conditions that the application adds to a model do not hide the public id of a foreign key.
    """
    stored = expected(db)
    rows, options = PAGES[name]
    statements.clear()
    references = options.get("references", every())
    page = lookup.page(db, rows, limit=ROWS, **{**options, "references": iter(references)})

    assert [book.author_public_id for book in page] == [stored[book.public_id][0] for book in page]
    assert len(page) == ROWS
    assert len(statements) == 1
    if name != "deferred":
        assert {book.public_id: shown(book) for book in page} == stored
        assert len(statements) == 1


def test_objects_of_the_session(db: Session) -> None:
    """An object with unflushed changes shows its own reference, and not that of its row."""
    ada, grace = db.scalars(select(Author).order_by(Author.id))
    book = db.scalars(select(Book).where(Book.author_id == ada.id)).first()
    assert book is not None
    with db.no_autoflush:
        book.author_id = grace.id
        page = lookup.page(db, Book, limit=ROWS, references=every())
        assert book in page
        assert book.author_public_id == grace.public_id
        book.author_id = ada.id
        assert book.author_public_id == ada.public_id


@on("sqlite")
def test_row_that_is_missing(db: Session, statements: Statements) -> None:
    """A foreign key without a row, which SQLite allows, raises an error when its reference is read."""
    ada = db.scalars(select(Author.id).where(Author.name == "Ada")).one()
    db.execute(delete(Author).where(Author.id == ada).execution_options(synchronize_session=False))
    page = lookup.page(db, Book, limit=ROWS, references=every())
    statements.clear()
    for book in page:
        if book.author_id == ada:
            with pytest.raises(ReferenceNotReadable, match=r"Book\.author_public_id"):
                book.author_public_id  # noqa: B018
        else:
            assert book.author_public_id
    assert len(statements.starting("SELECT")) <= ROWS / 2


def test_subclasses(db: Session, statements: Statements) -> None:
    """A page of a subclass can have its references; a page of the base class can have only those of the base."""
    ada = db.scalars(select(Author)).first()
    db.add(Translation(title="translated", author=ada, translator=ada))
    db.commit()
    assert ada is not None
    public_id = ada.public_id
    db.expunge_all()
    statements.clear()
    references = [Translation.translator_public_id, Book.author_public_id]
    (book,) = lookup.page(db, Translation, limit=5, references=references)
    assert (book.translator_public_id, book.author_public_id) == (public_id, public_id)
    assert len(statements) == 1
    with pytest.raises(ConfigurationError, match=r"expected references of Book, which are Book\.author_public_id"):
        lookup.page(db, Book, limit=5, references=[Translation.translator_public_id])


@pytest.mark.parametrize("wrong", [Book.author, Book.author_id, Author.public_id, "author_public_id", None], ids=str)
def test_no_reference(db: Session, statements: Statements, wrong: Any) -> None:
    """Anything but a list of references of the model is rejected before a statement is sent."""
    statements.clear()
    with pytest.raises(ConfigurationError, match=r"references has .*, expected references of Book"):
        lookup.page(db, Book, limit=5, references=[wrong])
    with pytest.raises(TypeError, match=r"expected a list of references.*\[Book.author_public_id\]"):
        lookup.page(db, Book, limit=5, references=Book.author_public_id)  # not in a list
    assert not statements
    assert lookup.page(db, Book, limit=5, references=())


def test_another_database() -> None:
    """References to rows in another database are fetched from there, by one more statement."""
    here, there = create_engine("sqlite://"), create_engine("sqlite://")
    sent: list[str] = []
    for engine, name in ((here, "here"), (there, "there")):
        Base.metadata.create_all(engine)
        event.listen(engine, "before_cursor_execute", lambda *given, name=name: sent.append(name))
    with Session(binds={Book: here, Shelf: here, Author: there}) as session:
        session.add_all(filled())
        session.commit()
        session.expunge_all()
        sent.clear()
        page = lookup.page(session, Book, limit=ROWS, references=every())
        assert sent == ["here", "there"]
        assert len({book.author_public_id for book in page}) == 2
        assert sum(book.shelf_public_id is not None for book in page) == ROWS * 2 / 3
        assert sent == ["here", "there"]
        session.expunge_all()
        sent.clear()
        lookup.page(session, Book, limit=ROWS, references=[Book.author_public_id])  # and none to this database
        assert sent.count("there") == 1
    here.dispose()
    there.dispose()
