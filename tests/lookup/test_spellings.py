"""One row, found by each spelling of its id: by UUID objects, and in another case."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, String, bindparam, delete, insert, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from sqlalchemy_public_id import (
    ImmutablePublicId,
    InvalidPublicId,
    NanoId,
    PublicIdMixin,
    TypedId,
    Uuid4,
    Uuid7,
    bulk,
    idempotency,
    lookup,
    public_ref,
)
from sqlalchemy_public_id.formats import CROCKFORD32, UNAMBIGUOUS
from sqlalchemy_public_id.references import AnyPublicIdType

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class DeedId(TypedId, prefix="spdeed", format=Uuid4()): ...


class Doc(PublicIdMixin, Base):
    __tablename__ = "spelled_doc"
    __public_id__ = Uuid4(encoding="hyphenated")
    name: Mapped[str | None] = mapped_column(String(20))


class Text(PublicIdMixin, Base):
    __tablename__ = "spelled_text"
    __public_id__ = Uuid4(prefix="sptext", storage="text")
    name: Mapped[str | None] = mapped_column(String(20))


class Deed(PublicIdMixin[DeedId], Base):
    __tablename__ = "spelled_deed"
    name: Mapped[str | None] = mapped_column(String(20))


class Order(PublicIdMixin, Base):
    __tablename__ = "spelled_order"
    doc_id: Mapped[int | None] = mapped_column(ForeignKey(Doc.id))
    doc: Mapped[Doc | None] = relationship()
    doc_public_id: Mapped[str | None] = public_ref("doc")


class Code(PublicIdMixin, Base):
    __tablename__ = "spelled_code"
    __public_id__ = NanoId(6, alphabet=UNAMBIGUOUS, prefix="spcode", ignore_case=True)
    name: Mapped[str | None] = mapped_column(String(20))


class Serial(PublicIdMixin, Base):
    __tablename__ = "spelled_serial"
    __public_id__ = NanoId(alphabet=CROCKFORD32, ignore_case=True)
    name: Mapped[str | None] = mapped_column(String(20))


class Entry(PublicIdMixin, Base):
    __tablename__ = "spelled_entry"
    subject: Mapped[str] = mapped_column(AnyPublicIdType())


VALUE, OTHER = uuid.UUID("919108f7-52d1-4320-9bac-f847db4148a8"), uuid.UUID("017f22e2-79b0-4cc3-98c4-dc0c0c07398f")
OF_VERSION_7 = uuid.UUID("017f22e2-79b0-7cc3-98c4-dc0c0c07398f")
models = pytest.mark.parametrize("model", [Doc, Text, Deed])


@pytest.fixture(autouse=True)
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def of(model: Any, value: uuid.UUID) -> str:
    return str(model.public_id.type.id_format.from_int(value.int))


# --- UUID objects


@models
def test_lookups_by_uuid(session: Session, model: Any) -> None:
    """Every lookup takes a UUID in place of its text, and shows the text."""
    row, later = model(public_id=VALUE), model(public_id=OTHER)
    session.add_all([row, later])
    session.commit()
    text = of(model, VALUE)

    assert (row.public_id, type(row.public_id)) == (text, DeedId if model is Deed else str)
    assert lookup.get(session, model, VALUE) is lookup.get_one(session, model, VALUE) is row
    assert lookup.get(session, select(model), VALUE) is row
    assert lookup.get_many(session, model, [VALUE, text, OF_VERSION_7, uuid.uuid4()]) == {text: row}
    assert lookup.keys_of(session, model, [VALUE]) == {text: row.id}
    assert [*lookup.page(session, model, limit=1, after=VALUE)] == [later]
    assert lookup.get(session, model, OF_VERSION_7) is None
    assert lookup.resolve(session, VALUE) is None  # it has no prefix


@models
def test_comparisons_with_uuids(session: Session, model: Any) -> None:
    """Comparisons take UUIDs, in objects of the session, too; one of another version equals no row."""
    row = model(public_id=VALUE)
    session.add(row)
    session.commit()
    column, name = model.public_id, bindparam("value")

    assert session.scalars(select(model).where(column == VALUE)).one() is row
    assert session.scalars(select(model).where(column.in_([VALUE, OTHER, OF_VERSION_7]))).one() is row
    assert session.scalars(select(model).where(column == name), {"value": VALUE}).one() is row
    assert session.scalars(select(model).where((column != VALUE) | (column == OF_VERSION_7))).all() == []
    session.execute(update(model).where(column == VALUE).values(name="new"))
    assert row.name == "new"
    session.execute(delete(model).where(column.in_([VALUE])), execution_options={"synchronize_session": "evaluate"})
    assert row not in session


@models
def test_writing_uuids(session: Session, model: Any) -> None:
    """Objects, rows of statements and bulk inserts take UUIDs; an id that is stored cannot become another one."""
    values = [uuid.uuid4() for _ in range(5)]
    bulk.insert(session, [model(public_id=values[0]), model()])
    session.execute(insert(model), [{"public_id": values[1]}, {"public_id": values[2]}])
    session.connection().execute(insert(model.__table__).values(public_id=values[3]))
    row, created = idempotency.insert_once(session, model(public_id=values[4]))
    again = idempotency.insert_once(session, model(public_id=values[4]))
    found = lookup.get_many(session, model, values)

    assert [*found] == [of(model, value) for value in values]
    assert ((row, created), again) == ((found[of(model, values[4])], True), (row, False))
    row.public_id = values[4]
    with pytest.raises(ImmutablePublicId):
        row.public_id = values[3]
    with pytest.raises(InvalidPublicId, match="it is not a UUID of version 4"):
        model(public_id=OF_VERSION_7)


def test_typed_ids_of_uuids() -> None:
    """A typed id is made of a UUID."""
    assert DeedId(VALUE) == of(Deed, VALUE)
    assert type(DeedId(VALUE)) is DeedId


def test_references_by_uuid(session: Session) -> None:
    """References take UUIDs where they are assigned and compared."""
    order = Order(doc_public_id=VALUE)
    session.add_all([Doc(public_id=VALUE), order])
    session.commit()

    assert order.doc_public_id == str(VALUE)
    assert session.scalars(select(Order).where(Order.doc_public_id == VALUE)).one() is order
    assert session.scalars(select(Order).where(Order.doc_public_id.in_([VALUE, OTHER]))).one() is order
    assert session.scalars(select(Order).where(Order.doc_public_id == OF_VERSION_7)).all() == []


def test_uuid_of_another_format(session: Session) -> None:
    """A UUID is malformed for a format that is not of UUIDs."""
    assert lookup.get(session, Code, VALUE) is None
    assert Uuid7().canonical(VALUE) is None
    with pytest.raises(InvalidPublicId, match="it is of type UUID"):
        Code(public_id=VALUE)


# --- another case


@pytest.mark.parametrize("model", [Code, Serial])
def test_lookups_in_another_case(session: Session, model: Any) -> None:
    """With ``ignore_case=True``, every lookup and comparison finds a row by its id in any case, and shows one."""
    rows = [model(), model()]
    session.add_all(rows)
    session.commit()
    row, later = rows
    for text in (row.public_id, row.public_id.upper(), row.public_id.lower(), row.public_id.swapcase()):
        assert lookup.get(session, model, text) is row
        assert lookup.get_many(session, model, [text, row.public_id]) == {text: row, row.public_id: row}
        assert lookup.get_many(session, model, [text], field="codes") == {text: row}
        assert lookup.keys_of(session, model, [text]) == {text: row.id}
        assert [*lookup.page(session, model, limit=1, after=text)] == [later]
        assert session.scalars(select(model).where(model.public_id == text)).one() is row
        assert session.scalars(select(model).where(model.public_id.in_([text]))).one() is row
        assert lookup.resolve(session, text) is (row if model is Code else None)
        row.public_id = text  # no change
    assert row not in session.dirty or not session.is_modified(row)
    given = model(public_id=model.public_id.type.id_format.generate().swapcase())
    assert model.public_id.type.id_format.quick_check(given.public_id)


def test_ids_of_any_model_in_another_case(session: Session) -> None:
    """A column of ids of any model stores and compares the one spelling; a dict of rows has the one that was passed."""
    code = Code()
    session.add(code)
    session.flush()
    other = code.public_id.upper()
    session.add(Entry(subject=other))
    session.commit()

    assert session.scalars(select(Entry.subject).where(Entry.subject == other)).one() == code.public_id
    assert lookup.resolve_many(session, [other]) == {other: code}
