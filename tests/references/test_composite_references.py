"""References by a composite foreign key, the only one that a table allows whose keys and ids belong to a tenant."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import BigInteger, ForeignKeyConstraint, MetaData, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, configure_mappers, mapped_column, relationship
from support.async_sessions import tell

from sqlalchemy_public_id import NanoId, PublicIdColumnMixin, PublicIdMixin, PublicIdNotFound, references
from sqlalchemy_public_id.asyncio import references as async_references
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.references import public_ref, public_refs

FORMAT = NanoId(2, alphabet="0123456789", prefix="ca")
KEY = 7  # of a row of each tenant


class Base(DeclarativeBase): ...


class Card(PublicIdColumnMixin, Base):
    __tablename__ = "card_of_tenant"
    __public_id__ = FORMAT
    __public_id_unique_with__ = ("tenant_id",)
    tenant_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)


class Payment(PublicIdMixin, Base):
    __tablename__ = "payment_of_tenant"
    owner: Mapped[int] = mapped_column(BigInteger)
    card_id: Mapped[int | None] = mapped_column(BigInteger)
    card: Mapped[Card | None] = relationship()
    card_public_id: Mapped[str | None] = public_ref("card")
    __table_args__ = (ForeignKeyConstraint(["owner", "card_id"], ["card_of_tenant.tenant_id", "card_of_tenant.id"]),)


@pytest.fixture
def cards(create: Callable[[MetaData], None], session: Session) -> None:
    """Two tenants: the keys 7 and 8, of ids 10 and 20 for the first one, and 20 and 10 for the other."""
    create(Base.metadata)
    for tenant, ids in ((1, ("10", "20")), (2, ("20", "10"))):
        session.add_all(Card(tenant_id=tenant, id=KEY + at, public_id=f"ca_{text}") for at, text in enumerate(ids))
    session.add(Card(tenant_id=2, id=9, public_id="ca_99"))
    session.commit()


@pytest.mark.backend
def test_written_and_read(session: Session, cards: None, statements: list[str]) -> None:
    """An assigned id leads to the key of its tenant's row; it is read with one SELECT for each tenant."""
    payments = [Payment(owner=owner, card_public_id=text) for owner in (1, 2) for text in ("ca_10", "ca_20", "ca_10")]
    session.add_all([*payments, Payment(owner=1)])
    session.commit()
    assert [payment.card_id for payment in payments] == [7, 8, 7, 8, 7, 8]
    session.expire_all()
    every = session.scalars(select(Payment).order_by(Payment.id)).all()
    statements.clear()
    assert [payment.card_public_id for payment in every] == ["ca_10", "ca_20", "ca_10"] * 2 + [None]
    assert len(statements) == 2
    session.expunge_all()
    every = session.scalars(select(Payment).order_by(Payment.id)).all()
    references.load(session, every)
    assert [payment.card_public_id for payment in every] == ["ca_10", "ca_20", "ca_10"] * 2 + [None]
    session.expunge_all()
    eager = select(Payment).options(references.eager(Payment.card_public_id)).order_by(Payment.id)
    every = session.scalars(eager).all()
    statements.clear()
    assert [payment.card_public_id for payment in every] == ["ca_10", "ca_20", "ca_10"] * 2 + [None]
    assert statements == []


@pytest.mark.backend
def test_expired_column(session: Session, cards: None, statements: list[str]) -> None:
    """If the other column of the foreign key is expired in several objects, one SELECT reads it for all of them."""
    session.add_all([Payment(owner=1, card_public_id=text) for text in ("ca_10", "ca_20", "ca_10")])
    session.commit()
    every = session.scalars(select(Payment).order_by(Payment.id)).all()
    for payment in every:
        session.expire(payment, ["owner"])
    statements.clear()

    assert [payment.card_public_id for payment in every] == ["ca_10", "ca_20", "ca_10"]
    assert len(statements) == 2


@pytest.mark.backend
def test_in_sql(session: Session, cards: None) -> None:
    """Comparisons, sorting and columns show the id of the tenant's own row."""
    session.add_all([Payment(owner=owner, card_id=key) for owner in (1, 2) for key in (7, 8)])
    session.add(Payment(owner=1))
    session.commit()
    shown = select(Payment.owner, Payment.card_id, Payment.card_public_id).order_by(Payment.id)
    rows = [(1, 7, "ca_10"), (1, 8, "ca_20"), (2, 7, "ca_20"), (2, 8, "ca_10"), (1, None, None)]
    assert [tuple(row) for row in session.execute(shown)] == rows
    found = {
        "==": select(Payment).where(Payment.card_public_id == "ca_10"),
        "in": select(Payment).where(Payment.card_public_id.in_(["ca_10", "ca_99"])),
        "!=": select(Payment).where(Payment.card_public_id != "ca_20"),
        "not in": select(Payment).where(Payment.card_public_id.not_in(["ca_20"])),
    }
    for statement in found.values():
        assert sorted((each.owner, each.card_id) for each in session.scalars(statement)) == [(1, 7), (2, 8)]
    assert session.scalars(select(Payment).where(Payment.card_public_id.is_(None))).one().card_id is None
    session.execute(update(Payment).where(Payment.card_public_id == "ca_10").values(card_id=None))
    assert sorted(session.scalars(select(Payment.card_id).where(Payment.card_id.is_not(None)))) == [7, 8]


@pytest.mark.backend
def test_other_tenants(session: Session, cards: None) -> None:
    """The id of another tenant's card is unknown; a payment that moves to another tenant shows the card there."""
    session.add(Payment(owner=1, card_public_id="ca_99"))
    with pytest.raises(PublicIdNotFound):
        session.flush()
    session.rollback()
    payment = Payment(card_public_id="ca_10")
    session.add(payment)
    payment.owner = 2  # set after the id was assigned
    session.commit()
    assert (payment.card_id, payment.card_public_id) == (8, "ca_10")
    payment.owner = 1
    assert payment.card_public_id == "ca_20"
    session.flush()
    payment.card_public_id = "ca_10"
    session.flush()
    assert payment.card_id == 7
    payment.card = session.get_one(Card, (1, 8))
    assert payment.card_public_id == "ca_20"
    session.commit()
    assert (payment.card_id, payment.owner) == (8, 1)


@pytest.mark.backend
def test_statements(session: Session, cards: None) -> None:
    """The rows of insert(Model) are translated; each needs its tenant."""
    session.execute(insert(Payment), [{"owner": owner, "card_public_id": "ca_10"} for owner in (1, 2)])
    assert sorted(map(tuple, session.execute(select(Payment.owner, Payment.card_id)))) == [(1, 7), (2, 8)]
    with pytest.raises(PublicIdNotFound):
        session.execute(insert(Payment), [{"owner": 1, "card_public_id": "ca_99"}])


@pytest.mark.backend
def test_async(async_engine: AsyncEngine) -> None:
    """The asynchronous load() reads them as well."""

    async def story(session: AsyncSession) -> None:
        session.add_all([Card(tenant_id=tenant, id=KEY, public_id=f"ca_{tenant}0") for tenant in (1, 2)])
        await session.flush()
        session.add_all([Payment(owner=owner, card_public_id=f"ca_{owner}0") for owner in (1, 2)])
        await session.commit()
        payments = (await session.scalars(select(Payment).order_by(Payment.owner))).all()
        await async_references.load(session, payments)
        assert [payment.card_public_id for payment in payments] == ["ca_10", "ca_20"]

    tell(async_engine, Base.metadata, story)


def test_declared() -> None:
    """The reference has the key, and compares the other column of the foreign key."""
    ref = public_refs(Payment)["card_public_id"]
    assert (ref.key, ref.target_key, ref.also, ref.shared) == ("card_id", "id", (("owner", "tenant_id"),), ("owner",))


def test_composite_key_of_ids_that_are_unique_alone() -> None:
    """A composite foreign key to a model whose ids are unique alone is refused, as before."""

    class Own(DeclarativeBase): ...

    class Shelf(PublicIdColumnMixin, Own):
        __tablename__ = "shelf"
        hall: Mapped[int] = mapped_column(primary_key=True)
        number: Mapped[int] = mapped_column(primary_key=True)

    class Book(PublicIdMixin, Own):
        __tablename__ = "book"
        hall: Mapped[int]
        number: Mapped[int]
        shelf: Mapped[Shelf] = relationship(Shelf)
        shelf_public_id: Mapped[str] = public_ref("shelf")
        __table_args__ = (ForeignKeyConstraint(["hall", "number"], ["shelf.hall", "shelf.number"]),)

    with pytest.raises(ConfigurationError, match="has a composite foreign key"):
        configure_mappers()
    Own.registry.dispose()
