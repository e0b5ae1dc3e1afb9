"""``insert_once()`` in a session whose criteria hide the row with the id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session, with_loader_criteria
from support.tenants import UNKNOWN, Tenants, User

from sqlalchemy_public_id import ConfigurationError, IdempotencyConflict
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = pytest.mark.backend


class SessionOfTenant(Session):
    """Shows only the rows of the tenant in ``info["tenant"]``."""


@pytest.fixture(autouse=True)
def _criteria(listen: Callable[..., None]) -> None:
    def add_criteria(state: Any) -> None:
        if state.is_select and not state.is_column_load:
            of_tenant = User.organization_id == state.session.info["tenant"]
            state.statement = state.statement.options(with_loader_criteria(User, of_tenant, include_aliases=True))

    listen(SessionOfTenant, "do_orm_execute", add_criteria)


@pytest.mark.parametrize("is_first", [True, False], ids=["first in its transaction", "after other work"])
@pytest.mark.parametrize("has_condition", [True, False])
@pytest.mark.parametrize("make_session", [SessionOfTenant, Session])
@pytest.mark.parametrize("organization", ["ours", "theirs"])
def test_row_of_another_tenant(
    engine: Engine,
    tenants: Tenants,
    make_session: type[Session],
    has_condition: bool,
    organization: str,
    is_first: bool,
) -> None:
    """The id of a row that the session hides is a conflict, like the id of a row with different contents.

    A client that guesses the contents does not get the row, either. The transaction continues.
    """
    ours, theirs, public_id = tenants.ours.id, tenants.theirs.id, tenants.eve.public_id
    where = User.organization_id == ours if has_condition else None
    is_hidden = has_condition or make_session is SessionOfTenant
    of = ours if organization == "ours" else theirs
    with make_session(engine, info={"tenant": ours}) as session:
        if not is_first:
            session.add(User(organization_id=ours, name="before"))
            session.flush()
        eve = User(public_id=public_id, organization_id=of, name="Eve")
        if is_hidden or organization == "ours":
            with pytest.raises(IdempotencyConflict) as caught:
                insert_once(session, eve, where=where)
            assert caught.value.differing == (() if is_hidden else ("organization_id",))
        else:
            assert insert_once(session, eve, where=where)[1] is False
        session.commit()

    names = ["Ada", "Eve"] if is_first else ["Ada", "Eve", "before"]
    with Session(engine) as session:
        assert session.scalars(select(User.name).order_by(User.id)).all() == names


@pytest.mark.parametrize("as_function", [False, True], ids=["condition", "function"])
@pytest.mark.parametrize("name", ["Eve", "another"])
def test_repeated_insert_of_their_row(session: Session, tenants: Tenants, as_function: bool, name: str) -> None:
    """The error for the id of another tenant's row does not depend on the contents, which are not compared."""
    our_id, ours, theirs = tenants.ours.id, tenants.ada.public_id, tenants.eve.public_id
    where: Any = (lambda model: model.organization_id == our_id) if as_function else tenants.where
    with pytest.raises(IdempotencyConflict, match="does not meet the condition") as caught:
        insert_once(session, User(public_id=theirs, organization_id=our_id, name=name), where=where)
    assert (caught.value.public_id, caught.value.model, caught.value.differing) == (theirs, "User", ())
    again = User(public_id=ours, organization_id=our_id, name="Ada")
    assert insert_once(session, again, where=where) == (tenants.ada, False)
    with pytest.raises(IdempotencyConflict) as caught:
        insert_once(session, User(public_id=ours, organization_id=our_id, name="Bob"), where=where)
    assert caught.value.differing == ("name",)
    bob, is_new = insert_once(session, User(public_id=UNKNOWN, organization_id=our_id, name="Bob"), where=where)
    assert (bob.name, is_new) == ("Bob", True)
    session.commit()
    assert session.scalars(select(User.name).order_by(User.id)).all() == ["Ada", "Eve", "Bob"]


def test_condition_of_a_repeated_insert(session: Session, tenants: Tenants) -> None:
    """A ``where`` that is not a condition is rejected before anything is sent, even if the row would be new."""
    new = User(public_id=UNKNOWN, organization_id=tenants.ours.id, name="Bob")
    with pytest.raises(ConfigurationError, match="expected a condition such as User"):
        insert_once(session, new, where=True)
    assert new not in session
