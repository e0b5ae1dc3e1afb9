"""``insert_once()`` in a session whose criteria hide the row that has the id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, with_loader_criteria

from sqlalchemy_public_id import IdempotencyConflict, PublicIdMixin
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = pytest.mark.backend

THE_ID = "izkpm55j334u"


class Base(DeclarativeBase):
    metadata = MetaData()


class Payment(PublicIdMixin, Base):
    __tablename__ = "payment"
    tenant: Mapped[int]
    amount: Mapped[int]


class SessionOfTenant(Session):
    """Shows the rows of ``info["tenant"]`` alone."""


@pytest.fixture(autouse=True)
def _criteria(listen: Callable[..., None]) -> None:
    def add_criteria(state: Any) -> None:
        if state.is_select and not state.is_column_load:
            of_tenant = Payment.tenant == state.session.info["tenant"]
            state.statement = state.statement.options(with_loader_criteria(Payment, of_tenant, include_aliases=True))

    listen(SessionOfTenant, "do_orm_execute", add_criteria)


@pytest.mark.parametrize("where", [None, Payment.tenant == 2], ids=["", "where"])
@pytest.mark.parametrize("make_session", [SessionOfTenant, Session])
def test_id_of_another_tenant(
    engine: Engine, create: Callable[[MetaData], None], make_session: type[Session], where: Any
) -> None:
    """The id of a row that the session does not show is a conflict, as that of a row with other contents is."""
    create(Base.metadata)
    with make_session(engine, info={"tenant": 1}) as session:
        insert_once(session, Payment(public_id=THE_ID, tenant=1, amount=5))
        session.commit()

    with make_session(engine, info={"tenant": 2}) as session, pytest.raises(IdempotencyConflict):
        insert_once(session, Payment(public_id=THE_ID, tenant=2, amount=5), where=where)


def test_same_contents(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """Who guesses the id and the contents of a row that the session does not show does not get the row."""
    create(Base.metadata)
    with SessionOfTenant(engine, info={"tenant": 1}) as session:
        insert_once(session, Payment(public_id=THE_ID, tenant=1, amount=5))
        session.commit()

    with SessionOfTenant(engine, info={"tenant": 2}) as session, pytest.raises(IdempotencyConflict) as caught:
        insert_once(session, Payment(public_id=THE_ID, tenant=1, amount=5))
    assert caught.value.differing == ()
