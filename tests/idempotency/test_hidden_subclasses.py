"""``insert_once()`` in a session whose criteria name a subclass, which is the only class with the tenant's column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from sqlalchemy import ForeignKey, MetaData, String
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, ORMExecuteState, Session, mapped_column, with_loader_criteria
from support.async_sessions import tell

from conftest import Statements
from sqlalchemy_public_id import IdempotencyConflict, NanoId, PublicIdMixin, lookup
from sqlalchemy_public_id.asyncio import idempotency as awaited
from sqlalchemy_public_id.idempotency import insert_once


class Base(DeclarativeBase):
    metadata = MetaData()


class Document(PublicIdMixin, Base):
    __tablename__ = "ihs_document"
    __public_id__ = NanoId(prefix="ihsdoc")
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_on": "kind", "polymorphic_identity": "document"}
    kind: Mapped[str] = mapped_column(String(10))
    title: Mapped[str] = mapped_column(String(20))


class Invoice(Document):
    """A joined-table subclass."""

    __tablename__ = "ihs_invoice"
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "invoice"}
    id: Mapped[int] = mapped_column(ForeignKey(Document.id), primary_key=True)
    organization_id: Mapped[int]
    total: Mapped[int]


class Letter(Document):
    """A single-table subclass."""

    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "letter"}
    sender_id: Mapped[int | None]
    pages: Mapped[int | None]


THEIRS: dict[Any, str] = {
    Invoice: "ihsdoc_i00000000000",
    Letter: "ihsdoc_l00000000000",
    Document: "ihsdoc_d00000000000",
}
"""The ids of another tenant's rows, and of a document that belongs to nobody."""


def theirs(model: type[Any]) -> Any:
    """Return another tenant's row, or one with the same contents."""
    own = {Invoice: {"organization_id": 2, "total": 48_613}, Letter: {"sender_id": 2, "pages": 7}, Document: {}}[model]
    return model(public_id=THEIRS[model], title="secret", **own)


def guess(model: type[Any], public_id: str) -> Any:
    """Return our new row with another row's id and a right title."""
    own = {Invoice: {"organization_id": 1, "total": 1}, Letter: {"sender_id": 1, "pages": 1}}[model]
    return model(public_id=public_id, title="secret", **own)


def hide(listen: Callable[..., None], session: Session) -> None:
    def add(state: ORMExecuteState) -> None:
        if state.is_select and not state.is_column_load:
            state.statement = state.statement.options(
                with_loader_criteria(Invoice, Invoice.organization_id == 1, include_aliases=True),
                with_loader_criteria(Letter, Letter.sender_id == 1, include_aliases=True),
            )

    listen(session, "do_orm_execute", add)


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session, listen: Callable[..., None]) -> Session:
    create(Base.metadata)
    session.add_all(map(theirs, THEIRS))
    session.commit()
    session.expunge_all()
    hide(listen, session)
    return session


@pytest.mark.backend
@pytest.mark.parametrize("compare", [None, ["title"], []])
@pytest.mark.parametrize("of", [Invoice, Letter])
@pytest.mark.parametrize("model", [Invoice, Letter])
def test_row_of_a_stranger(db: Session, model: Any, of: Any, compare: Any) -> None:
    """The id of a hidden row, of the same class or of another subclass, is a conflict that names no attribute.

    Its object does not enter the session.
    """
    assert lookup.get(db, of, THEIRS[of]) is None
    with pytest.raises(IdempotencyConflict) as caught:
        insert_once(db, guess(model, THEIRS[of]), compare=compare)
    assert (caught.value.differing, caught.value.model) == ((), model.__name__)
    assert not [one for one in db if one.public_id == THEIRS[of]]
    db.commit()


@pytest.mark.backend
@pytest.mark.parametrize("model", [Invoice, Letter])
def test_visible_row_of_another_class(db: Session, model: Any) -> None:
    """The id of a visible row of another class is a conflict that names the discriminator; our row is found again."""
    ours = guess(model, "ihsdoc_o00000000000")
    assert insert_once(db, ours) == (ours, True)
    db.commit()
    assert insert_once(db, guess(model, "ihsdoc_o00000000000")) == (ours, False)
    other = Letter if model is Invoice else Invoice
    for new in (guess(other, "ihsdoc_o00000000000"), guess(model, THEIRS[Document])):
        with pytest.raises(IdempotencyConflict) as caught:
            insert_once(db, new)
        assert caught.value.differing == ("kind",)


@pytest.mark.backend
@pytest.mark.parametrize("model", [Invoice, Letter])
def test_class_that_is_read(db: Session, statements: Statements, model: Any) -> None:
    """Of a row that its own class does not show, only the class is read, and no other column."""
    statements.clear()
    with pytest.raises(IdempotencyConflict):
        insert_once(db, guess(model, THEIRS[model]))
    reading = [each for each in statements.starting("SELECT") if "title" in each]
    hidden = "organization_id = " if model is Invoice else "sender_id = "
    assert reading
    assert all(hidden in each for each in reading)


@pytest.mark.backend
def test_async(async_engine: AsyncEngine, listen: Callable[..., None]) -> None:
    """The asynchronous ``insert_once()`` returns no hidden row, either."""

    async def story(session: AsyncSession) -> None:
        session.add_all(map(theirs, THEIRS))
        await session.commit()
        session.expunge_all()
        hide(listen, session.sync_session)
        for model in (Invoice, Letter):
            with pytest.raises(IdempotencyConflict) as caught:
                await awaited.insert_once(session, guess(model, THEIRS[model]), compare=["title"])
            assert caught.value.differing == ()
            await session.rollback()

    tell(async_engine, Base.metadata, story)


@pytest.mark.backend
@pytest.mark.parametrize("model", [Invoice, Letter])
def test_class_of_a_row_beyond_the_condition(create: Callable[[MetaData], None], session: Session, model: Any) -> None:
    """``where=`` also hides the class of another tenant's row: its id is a conflict that names no attribute."""
    create(Base.metadata)
    session.add_all(map(theirs, THEIRS))
    session.commit()
    session.expunge_all()
    ours = {Invoice: Invoice.organization_id == 1, Letter: Letter.sender_id == 1}[model]
    for of in THEIRS:
        with pytest.raises(IdempotencyConflict) as caught:
            insert_once(session, guess(model, THEIRS[of]), where=ours)
        assert (caught.value.differing, caught.value.model) == ((), model.__name__)
