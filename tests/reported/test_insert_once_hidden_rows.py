"""``insert_once()`` in a session whose criteria hide the row that has the id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from marks import known_defect
from sqlalchemy import Engine, MetaData
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, with_loader_criteria

from sqlalchemy_public_id import PublicIdConflict, PublicIdMixin
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


RAISED = known_defect(
    "edge", "insert_once() raises IntegrityError if criteria of the session hide the row", raises=IntegrityError
)


@pytest.mark.parametrize("where", [None, Payment.tenant == 2], ids=["", "where"])
@pytest.mark.parametrize("make_session", [pytest.param(SessionOfTenant, marks=RAISED), Session])
def test_id_of_another_tenant(
    engine: Engine, create: Callable[[MetaData], None], make_session: type[Session], where: Any
) -> None:
    """The id of a row that the session does not show is a conflict, as that of a row with other contents is."""
    create(Base.metadata)
    with make_session(engine, info={"tenant": 1}) as session:
        insert_once(session, Payment(public_id=THE_ID, tenant=1, amount=5))
        session.commit()

    with make_session(engine, info={"tenant": 2}) as session, pytest.raises(PublicIdConflict):
        insert_once(session, Payment(public_id=THE_ID, tenant=2, amount=5), where=where)
