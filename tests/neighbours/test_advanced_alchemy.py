"""advanced-alchemy: its bases beside our mixin, repositories and services by public id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from advanced_alchemy.base import BigIntAuditBase
from advanced_alchemy.exceptions import IntegrityError, NotFoundError
from advanced_alchemy.repository import SQLAlchemyAsyncRepository, SQLAlchemySyncRepository
from advanced_alchemy.service import ModelDictT, SQLAlchemySyncRepositoryService
from neighbours.models import ADA, FIRST, MALFORMED, Base, Customer, Order
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Mapped, Session

from sqlalchemy_public_id import PublicIdColumnMixin, TypedId


class Orders(SQLAlchemySyncRepository[Order]):
    model_type = Order


class OrderService(SQLAlchemySyncRepositoryService[Order, Orders]):
    repository_type = Orders


class CarefulService(OrderService):
    """The service of the documentation, which creates the object itself, because the package leaves out references."""

    def to_model_on_create(self, data: ModelDictT[Order]) -> ModelDictT[Order]:
        return Order(**data) if isinstance(data, dict) else data


class Customers(SQLAlchemySyncRepository[Customer]):
    model_type = Customer


class AsyncCustomers(SQLAlchemyAsyncRepository[Customer]):
    model_type = Customer


class CustomerService(SQLAlchemySyncRepositoryService[Customer, Customers]):
    repository_type = Customers


class NoteId(TypedId, prefix="nbnote"): ...


class Note(PublicIdColumnMixin[NoteId], BigIntAuditBase):
    __tablename__ = "note"
    text: Mapped[str]


def test_base_of_the_package(engine: Engine, session: Session) -> None:
    """A model on a base of the package has a public id beside its key, and collisions are retried."""
    Note.metadata.create_all(engine)
    note = Note(text="first")
    session.add(note)
    session.flush()
    session.add(Note(text="second", public_id=NoteId("nbnote_000000000two")))
    session.flush()
    assert NoteId(note.public_id)


@pytest.mark.parametrize("text", [MALFORMED, "nbord_000000nobody"])
def test_get(session: Session, text: str) -> None:
    """``id_attribute`` finds a row; an unknown or malformed id is not found."""
    service = OrderService(session=session)
    assert service.get(FIRST, id_attribute="public_id").total == 950
    assert service.get_one_or_none(public_id=text) is None
    with pytest.raises(NotFoundError):
        service.get(text, id_attribute="public_id")


def test_write(session: Session) -> None:
    """Objects with references are created, changed by dictionaries, filtered, and written again by public id."""
    service = OrderService(session=session)
    order = service.create(Order(total=1, customer_public_id=ADA))
    assert order.customer_public_id == ADA
    changed: Any = {"total": 2, "customer_public_id": ADA}
    assert service.update(changed, item_id=order.id).total == 2
    assert len(service.list(customer_public_id=ADA)) == 2
    again: Any = {"total": 3, "public_id": order.public_id}
    assert service.upsert(again, match_fields=["public_id"]).total == 3


def test_references_in_dictionaries(session: Session) -> None:
    """A dictionary with a reference needs the method of the documentation, because the package leaves it out."""
    data: Any = {"total": 1, "customer_public_id": ADA}
    assert CarefulService(session=session).create(data).customer_public_id == ADA
    with pytest.raises(IntegrityError):
        OrderService(session=session).create(data)


PATCHES: dict[str, Callable[[Session, int], Any]] = {
    "repository.update": lambda session, key: Customers(session=session).update(Customer(id=key, name="Grace")),
    "repository.update_many": lambda session, key: Customers(session=session).update_many(
        [Customer(id=key, name="Grace")]
    ),
    "repository.upsert": lambda session, key: Customers(session=session).upsert(Customer(id=key, name="Grace")),
    "service.update": lambda session, key: CustomerService(session=session).update({"id": key, "name": "Grace"}),
    "service.upsert": lambda session, key: CustomerService(session=session).upsert({"id": key, "name": "Grace"}),
}


@pytest.mark.parametrize("call", PATCHES)
def test_objects_with_the_key(session: Session, call: str) -> None:
    """A row that is updated by an object, or by a dictionary, with its key keeps its public id."""
    [ada] = Customers(session=session).get_many()
    PATCHES[call](session, ada.id)
    session.commit()

    assert (ada.public_id, ada.name) == (ADA, "Grace")


def test_objects_with_the_key_in_an_async_repository(tmp_path: Path) -> None:
    """The asynchronous repository keeps the public id, too."""

    async def update() -> tuple[str, str]:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'async.db'}")
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with AsyncSession(engine) as session:
            session.add(Customer(public_id=ADA, name="Ada"))
            await session.commit()
            repository = AsyncCustomers(session=session)
            [key] = [customer.id for customer in await repository.get_many()]
            await session.commit()
            changed = await repository.update(Customer(id=key, name="Grace"))
            await session.commit()
            await session.refresh(changed)
            shown = changed.public_id, changed.name
        await engine.dispose()
        return shown

    assert asyncio.run(update()) == (ADA, "Grace")
