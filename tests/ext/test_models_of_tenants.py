"""PublicModel, Flask's converter and SQLModel, with ids that two tenants share: the right row, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from flask import Flask
from pydantic import BaseModel
from sqlalchemy import Engine, ForeignKey, MetaData, select, true
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlmodel import Field, SQLModel
from support.shared_ids import (
    FORMAT,
    OF_BOTH,
    ONLY_OURS,
    ONLY_THEIRS,
    OURS,
    THEIRS,
    Base,
    Note,
    expected,
    fill,
    is_of,
    public_id,
)

from sqlalchemy_public_id import ConfigurationError, PublicIdNotFound, lookup
from sqlalchemy_public_id.errors import AmbiguousPublicId
from sqlalchemy_public_id.ext import flask
from sqlalchemy_public_id.ext.pydantic import Page, PublicId, PublicModel
from sqlalchemy_public_id.ext.sqlmodel import PublicIdSQLModel
from sqlalchemy_public_id.references import public_ref

pytestmark = pytest.mark.backend

SHARED = public_id(OF_BOTH[0])


class BaseOfReplies(DeclarativeBase):
    """Not that of the notes, on which other tests count the models."""


class Reply(BaseOfReplies):
    """Belongs to a tenant, and refers to one of its notes."""

    __tablename__ = "shared_reply"
    id: Mapped[int] = mapped_column(primary_key=True)
    tenant_id: Mapped[int]
    note_id: Mapped[int | None] = mapped_column(ForeignKey(Note.id))
    note: Mapped[Note | None] = relationship(Note)
    note_public_id: Mapped[str | None] = public_ref("note")


class NoteOut(PublicModel, model=Note):
    public_id: Annotated[str, PublicId(Note)]
    text: str


class ReplyOut(PublicModel, model=Reply):
    note_public_id: Annotated[str, PublicId(Note)]
    note: NoteOut


class ReplyIn(BaseModel):
    note_public_id: Annotated[str, PublicId(Note)]


@pytest.fixture
def notes(create: Callable[[MetaData], None], session: Session) -> None:
    create(Base.metadata)
    create(BaseOfReplies.metadata)
    fill(session)
    session.commit()


# --- PublicModel


@pytest.mark.parametrize("tenant", [OURS, THEIRS])
def test_response(session: Session, notes: None, tenant: int) -> None:
    """A response shows the row of the tenant that the lookup names, also a page of them."""
    found = lookup.get_one(session, Note, SHARED, where=is_of(tenant))
    page = lookup.page(session, Note, limit=100, where=is_of(tenant))

    assert NoteOut.of(session, found).model_dump() == {"public_id": SHARED, "text": expected(tenant, OF_BOTH[0])}
    shown = Page[NoteOut].of(session, page).items
    assert {each.text for each in shown} == {text for n in range(30) if (text := expected(tenant, n)) is not None}


def test_request_and_response(session: Session, notes: None) -> None:
    """An id of a request refers to the note of the tenant of the object, and the responses show it."""
    body = ReplyIn(note_public_id=SHARED)
    replies = [Reply(tenant_id=tenant, **body.model_dump()) for tenant in (THEIRS, OURS, THEIRS)]
    session.add_all(replies)
    session.commit()

    shown = ReplyOut.many(session, replies)

    assert [each.note_public_id for each in shown] == [SHARED] * 3
    assert [each.note.text for each in shown] == [expected(reply.tenant_id, OF_BOTH[0]) for reply in replies]
    session.add(Reply(tenant_id=OURS, note_public_id=ReplyIn(note_public_id=public_id(ONLY_THEIRS[0])).note_public_id))
    with pytest.raises(PublicIdNotFound):
        session.flush()


# --- Flask's converter


def answer(engine: Engine, number: int, **scope: Any) -> tuple[int, Any]:
    """Return the answer of a route with a converter, whose view looks the id up with *scope*."""
    app = Flask("notes")
    flask.install(app)
    flask.register(app, Note, name="note_id")

    @app.get("/notes/<note_id:id>")
    def show(id: str) -> Any:
        with Session(engine) as session:
            return {"text": flask.get_or_404(session, Note, id, **scope).text}

    found = app.test_client().get(f"/notes/{public_id(number)}")
    return found.status_code, found.json


@pytest.mark.parametrize("tenant", [OURS, THEIRS])
def test_converter(engine: Engine, notes: None, tenant: int) -> None:
    """A route with a converter answers with the row of the tenant, 404 without one, and 409 if it may be of any."""
    for number in (*ONLY_OURS, *OF_BOTH, *ONLY_THEIRS):
        text = expected(tenant, number)
        wanted = (404, {"detail": "no such Note"}) if text is None else (200, {"text": text})
        assert answer(engine, number, where=is_of(tenant)) == wanted
    status, content = answer(engine, OF_BOTH[0], where=true())
    assert (status, content["detail"]) == (409, "more than one Note has this public id")


def test_converter_without_a_tenant(engine: Engine, notes: None) -> None:
    """A view that names no tenant is answered with 500, whoever has the id."""
    for number in (ONLY_OURS[0], OF_BOTH[0], ONLY_THEIRS[0]):
        status, content = answer(engine, number)
        assert (status, content) == (500, None)


def test_url_of_a_row(engine: Engine, session: Session, notes: None) -> None:
    """The URL of a note contains its id, which leads back to it with the tenant alone."""
    app = Flask("notes")
    flask.register(app, Note, name="note_id")
    app.add_url_rule("/<int:tenant>/notes/<note_id:id>", "show")
    ours, theirs = (lookup.get_one(session, Note, SHARED, where=is_of(tenant)) for tenant in (OURS, THEIRS))

    with app.test_request_context():
        urls = [app.url_for("show", tenant=note.tenant_id, id=note) for note in (ours, theirs)]

    assert urls == [f"/{OURS}/notes/{SHARED}", f"/{THEIRS}/notes/{SHARED}"]


# --- SQLModel


class Memo(PublicIdSQLModel, table=True):
    __tablename__ = "shared_memo"
    __public_id__ = FORMAT
    __public_id_unique_with__ = ("tenant_id",)
    tenant_id: int
    text: str = Field(max_length=40)


@pytest.fixture
def memos(create: Callable[[MetaData], None], session: Session) -> None:
    only_memos = MetaData()
    SQLModel.metadata.tables["shared_memo"].to_metadata(only_memos)
    create(only_memos)
    for tenant in (THEIRS, OURS):
        for number in (*ONLY_OURS, *OF_BOTH, *ONLY_THEIRS):
            if (text := expected(tenant, number)) is not None:
                session.add(Memo(tenant_id=tenant, public_id=public_id(number), text=text))
    session.commit()


@pytest.mark.parametrize("tenant", [OURS, THEIRS])
def test_sqlmodel(session: Session, memos: None, tenant: int) -> None:
    """A table of SQLModel finds the row of the tenant, refuses to choose without it, and reports two rows."""
    ours = Memo.tenant_id == tenant
    for number in (*ONLY_OURS, *OF_BOTH, *ONLY_THEIRS):
        found = lookup.get(session, Memo, public_id(number), where=ours)
        assert (None if found is None else found.text) == expected(tenant, number)
    found = lookup.get_one(session, Memo, SHARED, where=ours)
    assert found.model_dump() == {"public_id": SHARED, "tenant_id": tenant, "text": expected(tenant, OF_BOTH[0])}
    with pytest.raises(ConfigurationError, match="tenant_id"):
        lookup.get(session, Memo, SHARED)
    with pytest.raises(AmbiguousPublicId):
        lookup.get(session, Memo, SHARED, where=true())


def test_sqlmodel_writes(session: Session, memos: None) -> None:
    """An id is taken for its tenant only."""
    session.add(Memo(tenant_id=OURS, public_id=public_id(ONLY_THEIRS[0]), text="new"))
    session.commit()
    texts = select(Memo.text).where(Memo.public_id == public_id(ONLY_THEIRS[0])).order_by(Memo.tenant_id)
    assert session.scalars(texts).all() == ["new", expected(THEIRS, ONLY_THEIRS[0])]

    session.add(Memo(tenant_id=OURS, public_id=SHARED, text="again"))
    with pytest.raises(IntegrityError):
        session.commit()
