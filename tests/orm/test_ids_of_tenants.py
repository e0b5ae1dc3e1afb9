"""Rows of two tenants may have equal ids: they are written together, and only ids of one tenant collide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, ForeignKeyConstraint, MetaData, UniqueConstraint, func, insert, inspect, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.shared_ids import (
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
    text_of,
)

from sqlalchemy_public_id import (
    IdempotencyConflict,
    NanoId,
    PublicIdCollision,
    PublicIdMixin,
    PublicIdType,
    bulk,
    testing,
)
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = pytest.mark.backend


@pytest.fixture(autouse=True)
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def pairs() -> list[Note]:
    """Return two notes of each tenant with each of five ids, and one whose id is made."""
    numbers = [(tenant, number) for number in range(5) for tenant in (OURS, THEIRS)]
    notes = [
        Note(tenant_id=tenant, public_id=public_id(number), text=text_of(tenant, number)) for tenant, number in numbers
    ]
    return [*notes[:5], Note(tenant_id=OURS, text="made"), *notes[5:]]


@pytest.mark.parametrize("write", [lambda session, notes: session.add_all(notes), bulk.insert])
@pytest.mark.parametrize("is_filled", [False, True])
def test_equal_ids_in_one_flush(session: Session, write: Any, is_filled: bool) -> None:
    """Each object gets the key of its own row, in the order of the objects, and shows its id without a query."""
    if is_filled:  # the ids that are read back belong to rows of others, too
        session.add_all([Note(tenant_id=3, public_id=public_id(number)) for number in range(5)])
        session.flush()
    notes = pairs()
    with testing.fixed_ids(Note, public_id(77)):  # a random one of the 100 ids could be one that is given later
        write(session, notes)
        session.flush()
    ids = [note.__dict__["public_id"] for note in notes]
    assert ids == [*(public_id(number) for number in (0, 0, 1, 1, 2)), ids[5], *(public_id(n) for n in (2, 3, 3, 4, 4))]
    keys, texts = [note.id for note in notes], [note.__dict__["text"] for note in notes]
    assert write is bulk.insert or keys == sorted(keys)
    session.expire_all()
    assert [note.text for note in notes] == texts
    assert [note.public_id for note in notes] == ids


def test_statements_of_a_flush(session: Session, statements: list[str]) -> None:
    """Only a row whose id another row of the flush has is sent alone: rows with different ids are one INSERT."""
    session.add_all(
        [Note(tenant_id=tenant, public_id=public_id(number)) for number in range(20) for tenant in [number % 2]]
    )
    session.flush()
    inserts = [statement for statement in statements if statement.startswith("INSERT")]
    assert len(inserts) in (1, 20)  # MySQL returns no keys, so SQLAlchemy sends each row alone
    statements.clear()
    session.add_all([Note(tenant_id=3, public_id=public_id(1)), Note(tenant_id=4, public_id=public_id(1))])
    session.flush()
    assert len([statement for statement in statements if statement.startswith("INSERT")]) == 2


def test_failed_flush(session: Session) -> None:
    """After a flush in which the ids of one tenant are equal, the objects show their ids, and can be flushed again."""
    notes = [Note(tenant_id=tenant, public_id=public_id(1)) for tenant in (OURS, THEIRS, THEIRS)]
    session.add_all(notes)
    with pytest.raises(IntegrityError):
        session.flush()
    assert [note.public_id for note in notes] == [public_id(1)] * 3
    session.rollback()
    assert [note.__dict__["public_id"] for note in notes] == [public_id(1)] * 3
    session.add_all(notes[:2])
    session.commit()
    assert sorted(session.scalars(select(Note.tenant_id))) == [OURS, THEIRS]


def test_equal_ids_in_one_statement(session: Session, engine: Engine) -> None:
    """An INSERT of rows with equal ids returns them in the order of the parameters."""
    rows = [
        {"tenant_id": tenant, "public_id": public_id(number), "text": text_of(tenant, number)}
        for number in range(5)
        for tenant in (OURS, THEIRS)
    ]
    if engine.dialect.insert_executemany_returning:
        stored = session.scalars(insert(Note).returning(Note, sort_by_parameter_order=True), rows).all()
        assert [note.text for note in stored] == [row["text"] for row in rows]
        session.rollback()
    session.execute(insert(Note).values(rows))
    session.rollback()
    session.execute(insert(Note), rows)
    found = {note.text for note in session.scalars(select(Note))}
    assert found == {row["text"] for row in rows}


def in_halves(insert_45: Callable[[Session, int], object]) -> Callable[[Session, int], None]:
    def write(session: Session, tenant: int) -> None:
        insert_45(session, tenant)
        insert_45(session, tenant)

    return write


def rows_of(tenant: int, count: int = 45) -> list[dict[str, Any]]:
    return [{"tenant_id": tenant} for _ in range(count)]


def notes_of(tenant: int, count: int = 45) -> list[Note]:
    return [Note(tenant_id=tenant) for _ in range(count)]


def one_by_one(session: Session, tenant: int) -> None:
    for note in notes_of(tenant, 90):
        session.add(note)
        session.flush()


FILLINGS: dict[str, Callable[[Session, int], Any]] = {
    "flush": lambda session, tenant: (session.add_all(notes_of(tenant, 90)), session.flush()),
    "flushes of one row": one_by_one,
    "bulk": in_halves(lambda session, tenant: bulk.insert(session, notes_of(tenant))),
    "core": in_halves(lambda session, tenant: session.execute(insert(Note.__table__), rows_of(tenant))),
    "orm": in_halves(lambda session, tenant: session.execute(insert(Note), rows_of(tenant))),
    "values": in_halves(lambda session, tenant: session.execute(insert(Note).values(rows_of(tenant)))),
}


@pytest.mark.parametrize("way", FILLINGS)
def test_nearly_full_spaces(session: Session, way: str) -> None:
    """Two tenants get 90 of the 100 ids each: those of the other are not taken."""
    for tenant in (OURS, THEIRS):
        FILLINGS[way](session, tenant)
    counts = select(Note.tenant_id, func.count(), func.count(Note.public_id.distinct())).group_by(Note.tenant_id)
    assert sorted(map(tuple, session.execute(counts))) == [(OURS, 90, 90), (THEIRS, 90, 90)]


def test_full_space(session: Session) -> None:
    """A tenant that has all ids gets no other one."""
    session.add_all([Note(tenant_id=OURS, public_id=public_id(number)) for number in range(100)])
    session.flush()
    session.add(Note(tenant_id=THEIRS))
    session.flush()
    session.add(Note(tenant_id=OURS))
    with pytest.raises(PublicIdCollision):
        session.flush()


# --- insert_once


def test_repeated_inserts(session: Session) -> None:
    """A repetition finds the row of its own tenant: the tenant of the object is compared, without where=."""
    fill(session)
    session.commit()
    for tenant in (OURS, THEIRS):
        for number in (ONLY_OURS[0], OF_BOTH[0], ONLY_THEIRS[0]):
            text = text_of(tenant, number)
            for where in ({}, {"where": is_of(tenant)}):
                note, created = insert_once(
                    session, Note(tenant_id=tenant, public_id=public_id(number), text=text), **where
                )
                assert (note.tenant_id, note.text) == (tenant, text)
                assert created == (expected(tenant, number) is None and where == {})
    with pytest.raises(IdempotencyConflict) as caught:
        insert_once(session, Note(tenant_id=OURS, public_id=public_id(OF_BOTH[0]), text="other"))
    assert caught.value.differing == ("text",)


def test_insert_once_is_refused_another_tenants_row(session: Session) -> None:
    """A condition that excludes the tenant of the object reveals nothing of the row, as without unique_with."""
    fill(session)
    note = Note(tenant_id=THEIRS, public_id=public_id(OF_BOTH[0]), text="other")
    with pytest.raises(IdempotencyConflict) as caught:
        insert_once(session, note, where=is_of(OURS))
    assert caught.value.differing == ()


def test_statements_of_a_collision(session: Session, statements: list[str]) -> None:
    """A collision in a flush of many tenants does not read the ids of each tenant by a statement of its own."""
    session.add(Note(tenant_id=10, public_id=public_id(5)))
    session.flush()
    statements.clear()
    notes = [Note(tenant_id=10 + number) for number in range(30)]
    session.add_all(notes)
    with testing.fixed_ids(Note, public_id(5)):
        session.flush()

    assert notes[0].public_id != public_id(5)
    assert len([statement for statement in statements if statement.startswith("SELECT")]) <= 3


# --- a table that refers to its own ids

DIGITS = NanoId(2, alphabet="0123456789")


class Own(DeclarativeBase): ...


class Branch(PublicIdMixin, Own):
    """A branch of a tree, whose id is unique only with its tenant."""

    __tablename__ = "branch_of_tenant"
    __public_id__ = DIGITS
    __public_id_unique_with__ = ("tenant_id",)
    tenant_id: Mapped[int]
    parent: Mapped[str | None] = mapped_column(PublicIdType(DIGITS))
    __table_args__ = (
        ForeignKeyConstraint(["parent", "tenant_id"], ["branch_of_tenant.public_id", "branch_of_tenant.tenant_id"]),
    )


class Twig(PublicIdMixin, Own):
    """A branch whose id is unique only with its tenant and its year."""

    __tablename__ = "twig_of_tenant"
    __public_id__ = DIGITS
    __public_id_unique_with__ = ("tenant_id", "year")
    tenant_id: Mapped[int]
    year: Mapped[int] = mapped_column(default=1)
    parent: Mapped[str | None] = mapped_column(PublicIdType(DIGITS))
    __table_args__ = (
        ForeignKeyConstraint(
            ["parent", "tenant_id", "year"],
            ["twig_of_tenant.public_id", "twig_of_tenant.tenant_id", "twig_of_tenant.year"],
        ),
    )


@pytest.fixture
def trees(create: Callable[[MetaData], None]) -> None:
    create(Own.metadata)


both = pytest.mark.parametrize("model", [Branch, Twig])


@both
def test_constraint_of_a_tree(engine: Engine, trees: None, model: Any) -> None:
    """In place of the index, a table and its copies have a constraint of all columns, which CREATE TABLE contains."""
    table, names = model.__table__, ["public_id", *model.__public_id_unique_with__]
    for each in (table, table.to_metadata(MetaData(), name="copied")):
        assert not each.indexes
        assert [it.columns.keys() for it in each.constraints if isinstance(it, UniqueConstraint)] == [names]
    stored = inspect(engine).get_unique_constraints(table.name)
    assert [(each["name"], each["column_names"]) for each in stored] == [(f"uq_{table.name}_public_id", names)]


@both
@pytest.mark.parametrize("write", [lambda session, rows: session.add_all(rows), bulk.insert])
def test_ids_of_a_tree(session: Session, trees: None, model: Any, write: Any) -> None:
    """Rows of two tenants may have equal ids, to which their own rows refer; a second row of a tenant may not."""
    years = [{"year": 1}, {"year": 2}] if model is Twig else [{}]
    places = [{"tenant_id": tenant, **year} for tenant in (OURS, THEIRS) for year in years]
    write(session, [model(public_id="01", **place) for place in places])
    session.flush()
    leaves = [model(parent="01", **place) for place in places]
    with testing.fixed_ids(model, "01"):
        write(session, leaves)
        session.flush()
    assert "01" not in [leaf.public_id for leaf in leaves]

    session.add(model(public_id="01", **places[-1]))
    with pytest.raises(IntegrityError):
        session.flush()
