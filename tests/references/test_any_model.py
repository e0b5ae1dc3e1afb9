"""``AnyPublicIdType``: a column for the public id of a row of any model."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, MetaData, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from support.marks import on

from sqlalchemy_public_id import ConfigurationError, InvalidPublicId, NanoId, PublicIdMixin, TypedId, Ulid, lookup
from sqlalchemy_public_id.formats import BASE62
from sqlalchemy_public_id.references import AnyPublicIdType

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class DocumentId(TypedId, prefix="anydoc", format=NanoId(alphabet=BASE62)): ...


class FormerId(TypedId, prefix="anyformer"):
    """The ids of a model that no longer exists."""


class Document(PublicIdMixin[DocumentId], Base):
    __tablename__ = "any_document"


class Picture(PublicIdMixin, Base):
    __tablename__ = "any_picture"
    __public_id__ = Ulid(prefix="anypic")


class Entry(PublicIdMixin, Base):
    __tablename__ = "any_entry"
    subject: Mapped[str | None] = mapped_column(AnyPublicIdType(48), index=True)


@pytest.fixture
def session(create: Callable[[MetaData], None], session: Session) -> Session:
    create(Base.metadata)
    return session


def test_rows_of_several_models(session: Session, statements: list[str]) -> None:
    """A log resolves its ids with one statement per model, and keeps the ids of removed models as plain text."""
    document, picture = Document(), Picture()
    session.add_all([document, picture])
    session.flush()
    session.add_all(Entry(subject=row.public_id) for row in (picture, document, picture))
    session.add(Entry(subject=FormerId()))
    session.commit()

    subjects = session.scalars(select(Entry.subject).order_by(Entry.id)).all()
    statements.clear()
    rows = lookup.resolve_many(session, subjects)

    assert subjects[:-1] == [picture.public_id, document.public_id, picture.public_id]
    assert {*map(type, subjects)} == {str}
    assert rows == {picture.public_id: picture, document.public_id: document}
    assert len(statements) == 2


@pytest.mark.parametrize("wrong", ["1", "", "anydoc_x", "nothing_" + "a" * 12, "anydoc_" + "a" * 12 + "\n", 7])
def test_what_is_no_id_of_a_model(session: Session, wrong: Any) -> None:
    """An id that is malformed, or has no prefix of a model, is rejected in the flush and in a statement."""
    with pytest.raises(InvalidPublicId, match=r"no model has such ids \(expected an id of a model with a prefix"):
        session.execute(insert(Entry).values(subject=wrong))
    session.rollback()
    session.add(Entry(subject=wrong))
    with pytest.raises(InvalidPublicId) as caught:
        session.flush()

    assert caught.value.value == wrong
    assert pickle.loads(pickle.dumps(caught.value)).value == wrong


@on("sqlite")
def test_model_that_is_not_configured_yet(session: Session) -> None:
    """An id is accepted once its model is declared; a broken model does not change the error for other ids."""

    class Own(DeclarativeBase): ...

    class Poster(PublicIdMixin, Own):
        __tablename__ = "any_poster"
        __public_id__ = NanoId(prefix="anyposter")

    session.add(Entry(subject="anyposter_" + "a" * 12))
    session.flush()

    class Broken(PublicIdMixin, Own):
        __tablename__ = "any_broken"
        missing: Mapped[Any] = relationship("Missing")

    with pytest.raises(InvalidPublicId):
        session.execute(insert(Entry).values(subject="nothing_" + "a" * 12))
    Own.registry.dispose()


def test_id_that_is_too_long(session: Session) -> None:
    """An id that is longer than the column is rejected, even if the database would truncate it."""

    class LongId(TypedId, prefix="anylong", format=NanoId(length=60)): ...

    with pytest.raises(InvalidPublicId, match="it has 68 characters"):
        session.execute(insert(Entry).values(subject=LongId()))


@pytest.mark.parametrize("compared", ["", "x" * 1000, "\0", "ä", "anydoc_" + "a" * 12 + " ", "\ud800", 7])
def test_comparison_with_what_is_no_id(session: Session, compared: Any) -> None:
    """A comparison with a value that is not an id finds no row, and raises no database error."""
    session.add(Entry(subject="anydoc_" + "a" * 12))
    session.commit()

    assert session.scalars(select(Entry).where(Entry.subject == compared)).all() == []
    assert session.scalars(select(Entry).where(Entry.subject.in_([compared]))).all() == []
    assert len(session.scalars(select(Entry).where(Entry.subject.startswith("anydoc_"))).all()) == 1


def test_autogenerate(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """Alembic finds no difference for a table that was created from the model."""
    create(Base.metadata)
    with engine.connect() as connection:
        tables = {"include_name": lambda name, kind, _: kind != "table" or name.startswith("any_")}
        context = MigrationContext.configure(connection, opts={"compare_type": True, **tables})

        assert compare_metadata(context, Base.metadata) == []


def test_comparison_with_ids_that_are_numbers(session: Session) -> None:
    """A join with ids stored as numbers would find no row, and is rejected; a join with ids stored as text works."""
    session.add(document := Document())
    session.flush()
    session.add(Entry(subject=document.public_id))
    session.commit()

    joined = select(Document).join(Entry, Entry.subject == Document.public_id)
    assert session.scalars(joined).all() == [document]
    assert len(session.scalars(select(Entry).where(Entry.subject.in_(select(Document.public_id)))).all()) == 1
    for compare in (lambda: Entry.subject == Picture.public_id, lambda: Entry.subject.in_(select(Picture.public_id))):
        with pytest.raises(ConfigurationError, match="cannot be compared with ids that are stored as numbers"):
            compare()


def test_spelling(session: Session) -> None:
    """A new id is stored in its canonical spelling, and compared byte for byte; another spelling finds its row.

    Expressions other than comparisons accept text of any length. The column can be updated.
    """
    picture, document = Picture.__public_id__.generate(), "anydoc_" + "aB" * 6
    session.add_all([Entry(subject=picture.lower()), other := Entry(subject=None)])
    session.commit()
    other.subject = document
    session.commit()

    assert session.scalars(select(Entry.subject).order_by(Entry.id)).all() == [picture, document]
    assert session.scalar(select(Entry.subject).where(Entry.subject == picture.lower())) == picture
    assert session.scalar(select(Entry).where(Entry.subject == "anydoc_" + "Ab" * 6)) is None
    assert session.scalar(select(Entry).where(Entry.subject == document)) is other
    assert session.scalar(select(Entry.subject + "!" * 70).order_by(Entry.id)) == picture + "!" * 70
    assert len(session.scalars(select(Entry).where(Entry.subject.like("%" * 60))).all()) == 2


@pytest.mark.parametrize("length", [0, 256, True, "48", NanoId()], ids=repr)
def test_length(length: Any) -> None:
    """The length must be a number of characters that every database can index."""
    with pytest.raises(ConfigurationError, match="expected a whole number from 1 to 255"):
        AnyPublicIdType(length)
