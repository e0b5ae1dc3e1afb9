"""The rights that docs/databases.md names for applications are enough, on real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, ForeignKey, MetaData, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from support.marks import on
from support.rights import user_with

from sqlalchemy_public_id import PublicIdMixin, bulk, idempotency, lookup, public_ref, testing

pytestmark = pytest.mark.backend

A = "a" * 12


class Base(DeclarativeBase): ...


class Client(PublicIdMixin, Base):
    __tablename__ = "client"


class Invoice(PublicIdMixin, Base):
    __tablename__ = "invoice"
    client_id: Mapped[int | None] = mapped_column(ForeignKey("client.id"))
    client: Mapped[Client | None] = relationship()
    client_public_id: Mapped[str | None] = public_ref("client")


@pytest.fixture
def app(engine: Engine, create: Callable[[MetaData], None], new_engine: Callable[..., Engine]) -> Iterator[Engine]:
    """An engine for a user who may SELECT and INSERT, and nothing else."""
    create(Base.metadata)
    with engine.begin() as connection:
        connection.execute(insert(Invoice).values(public_id=A))
    with user_with(engine, "SELECT, INSERT", *Base.metadata.tables) as url:
        yield new_engine(engine.name, url)


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("rows", [1, 3, 30])
def test_select_and_insert(app: Engine, rows: int) -> None:
    """SELECT and INSERT are enough for collisions of each kind of INSERT, for references, repetitions and lookups."""
    with Session(app) as session:
        client = Client()
        session.add(client)
        with testing.collisions(Invoice, A):
            session.add_all([Invoice(client_public_id=client.public_id) for _ in range(rows)])
            session.flush()
        with testing.collisions(Invoice, A):
            bulk.insert(session, [Invoice(client_id=client.id) for _ in range(rows)])
        with testing.collisions(Invoice, A):
            session.execute(insert(Invoice), [{"client_id": client.id} for _ in range(rows)])
        session.commit()
        given = Invoice(public_id="b" * 12, client_id=client.id)
        created = [idempotency.insert_once(session, given)[1]]
        session.commit()
        created.append(idempotency.insert_once(session, Invoice(public_id="b" * 12, client_id=client.id))[1])

        invoices = list(lookup.page(session, Invoice, limit=100))
        assert created == [True, False]
        assert len(invoices) == 3 * rows + 2
        assert {invoice.client_public_id for invoice in invoices} == {None, client.public_id}
