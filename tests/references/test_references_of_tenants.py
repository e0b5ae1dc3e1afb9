"""References to rows whose ids are unique in their tenant: the tenant of the object decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, configure_mappers, mapped_column, relationship

from sqlalchemy_public_id import NanoId, PublicIdMixin, PublicIdNotFound
from sqlalchemy_public_id.errors import AmbiguousPublicId, ConfigurationError
from sqlalchemy_public_id.references import public_ref, public_refs

pytestmark = pytest.mark.backend

FORMAT = NanoId(2, alphabet="0123456789", prefix="cu")
BOTH, OURS_ALONE, THEIRS_ALONE = "cu_00", "cu_01", "cu_02"


class Base(DeclarativeBase): ...


class Client(PublicIdMixin, Base):
    __tablename__ = "client_of_tenant"
    __public_id__ = FORMAT
    __public_id_unique_with__ = ("tenant_id",)
    tenant_id: Mapped[int]


class Purchase(PublicIdMixin, Base):
    __tablename__ = "purchase_of_tenant"
    tenant_id: Mapped[int]
    client_id: Mapped[int | None] = mapped_column(ForeignKey(Client.id))
    client: Mapped[Client | None] = relationship()
    client_public_id: Mapped[str | None] = public_ref("client")
    any_client_public_id: Mapped[str | None] = public_ref("client", scope=lambda session: session.info["clients"])


@pytest.fixture
def clients(create: Callable[[MetaData], None], session: Session) -> dict[tuple[int, str], int]:
    """Return tenant and public id → the key of the client."""
    create(Base.metadata)
    every = [(1, BOTH), (1, OURS_ALONE), (2, BOTH), (2, THEIRS_ALONE)]
    session.add_all(Client(tenant_id=tenant, public_id=text) for tenant, text in every)
    session.commit()
    rows = session.execute(select(Client.tenant_id, Client.public_id, Client.id))
    return {(tenant, text): key for tenant, text, key in rows}


def test_assigned_in_one_flush(session: Session, clients: dict[tuple[int, str], int]) -> None:
    """Objects of two tenants with one id refer to the rows of their own tenants, in one SELECT."""
    purchases = [Purchase(tenant_id=tenant, client_public_id=BOTH) for tenant in (1, 2, 1)]
    session.add_all(purchases)
    session.flush()
    assert [purchase.client_id for purchase in purchases] == [clients[each.tenant_id, BOTH] for each in purchases]
    session.expire_all()
    assert [purchase.client_public_id for purchase in purchases] == [BOTH] * 3
    found = select(Purchase.tenant_id).where(Purchase.client_public_id == BOTH)
    assert sorted(session.scalars(found)) == [1, 1, 2]


def test_tenant_that_is_set_later(session: Session, clients: dict[tuple[int, str], int]) -> None:
    """The tenant of the object counts when it is flushed, not when the id is assigned."""
    purchase = Purchase(client_public_id=BOTH)
    session.add(purchase)
    purchase.tenant_id = 2
    session.flush()
    assert purchase.client_id == clients[2, BOTH]
    purchase.tenant_id, purchase.client_public_id = 1, OURS_ALONE
    session.flush()
    assert purchase.client_id == clients[1, OURS_ALONE]


@pytest.mark.parametrize("order", ["tenant first", "id first"])
@pytest.mark.parametrize("is_expired", [False, True])
def test_moved_to_another_tenant(
    session: Session, clients: dict[tuple[int, str], int], order: str, is_expired: bool
) -> None:
    """The id that an object shows leads to the row of its new tenant if it is assigned again when the object moves."""
    session.add(purchase := Purchase(tenant_id=1, client_public_id=BOTH))
    session.commit()
    if not is_expired:
        assert (purchase.tenant_id, purchase.client_public_id, purchase.client.tenant_id) == (1, BOTH, 1)
    if order == "tenant first":
        purchase.tenant_id = 2
    purchase.client_public_id = BOTH
    purchase.tenant_id = 2
    session.commit()
    assert purchase.client_id == clients[2, BOTH]
    assert (purchase.client_public_id, purchase.client.tenant_id) == (BOTH, 2)


@pytest.mark.parametrize("order", ["tenant first", "id first"])
@pytest.mark.parametrize("is_expired", [False, True])
def test_moved_to_a_tenant_without_the_id(
    session: Session, clients: dict[tuple[int, str], int], order: str, is_expired: bool
) -> None:
    """An object that moves does not keep the row of its former tenant if the id of that row is assigned again."""
    session.add(purchase := Purchase(tenant_id=1, client_public_id=OURS_ALONE))
    session.commit()
    if not is_expired:
        assert (purchase.tenant_id, purchase.client_public_id) == (1, OURS_ALONE)
    if order == "tenant first":
        purchase.tenant_id = 2
    purchase.client_public_id = OURS_ALONE
    purchase.tenant_id = 2
    with pytest.raises(PublicIdNotFound):
        session.flush()


@pytest.mark.parametrize("tenant", [1, 3])
def test_id_of_another_tenant(session: Session, clients: dict[tuple[int, str], int], tenant: int) -> None:
    """An id that only another tenant has is unknown."""
    session.add(Purchase(tenant_id=tenant, client_public_id=THEIRS_ALONE))
    with pytest.raises(PublicIdNotFound) as caught:
        session.flush()
    assert caught.value.field == "Purchase.client_public_id"


def test_new_objects(session: Session, clients: dict[tuple[int, str], int]) -> None:
    """A new client of another tenant does not take the place of a stored one, nor of a new one."""
    session.add_all([Client(tenant_id=3, public_id=BOTH), Client(tenant_id=3, public_id="cu_07")])
    session.add(Client(tenant_id=1, public_id="cu_07"))
    stored = Purchase(tenant_id=1, client_public_id=BOTH)
    new = Purchase(tenant_id=1, client_public_id="cu_07")
    session.add_all([stored, new])
    session.flush()
    assert stored.client_id == clients[1, BOTH]
    assert session.get_one(Client, new.client_id).tenant_id == 1


def test_rows_of_a_statement(session: Session, clients: dict[tuple[int, str], int]) -> None:
    """Each row of insert(Model) refers to the row of its tenant."""
    rows: list[dict[str, Any]] = [{"tenant_id": tenant, "client_public_id": BOTH} for tenant in (1, 2)]
    session.execute(insert(Purchase), rows)
    found = session.execute(select(Purchase.tenant_id, Purchase.client_id)).all()
    assert sorted(map(tuple, found)) == [(tenant, clients[tenant, BOTH]) for tenant in (1, 2)]
    with pytest.raises(PublicIdNotFound):
        session.execute(insert(Purchase), [{"tenant_id": 3, "client_public_id": BOTH}])


def test_scope_that_leaves_the_tenant_open(session: Session, clients: dict[tuple[int, str], int]) -> None:
    """A function as scope decides instead of the tenant; if it leaves several rows, none of them is taken."""
    session.info["clients"] = Client.tenant_id == 2
    purchase = Purchase(tenant_id=1, any_client_public_id=BOTH)
    session.add(purchase)
    session.flush()
    assert purchase.client_id == clients[2, BOTH]
    session.info["clients"] = Client.tenant_id > 0
    purchase.any_client_public_id = None
    session.flush()
    purchase.any_client_public_id = BOTH
    with pytest.raises(AmbiguousPublicId, match=r"unique only with Client\.tenant_id"):
        session.flush()


def test_no_tenant_to_compare() -> None:
    """A model without the column of the tenant is refused when its mapper is configured."""

    class Own(DeclarativeBase): ...

    class Shelf(PublicIdMixin, Own):
        __tablename__ = "shelf"
        __public_id_unique_with__ = ("tenant_id",)
        tenant_id: Mapped[int]

    class Book(PublicIdMixin, Own):
        __tablename__ = "book"
        shelf_id: Mapped[int] = mapped_column(ForeignKey("shelf.id"))
        shelf: Mapped[Shelf] = relationship(Shelf)
        shelf_public_id: Mapped[str] = public_ref("shelf")

    with pytest.raises(
        ConfigurationError, match=r"Book has no attribute 'tenant_id' to compare; add it, or pass scope="
    ):
        configure_mappers()
    Own.registry.dispose()


def test_shared_attributes() -> None:
    """The reference shows that the tenant is its scope."""
    assert public_refs(Purchase)["client_public_id"].shared == ("tenant_id",)
