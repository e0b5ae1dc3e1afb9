"""Several tenants in one table: another tenant's row is treated like a row that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import func, select, true
from sqlalchemy.orm import Session, aliased, with_loader_criteria
from support.tenants import UNKNOWN, Tenants, User

from sqlalchemy_public_id import ConfigurationError, InvalidCursor, PublicIdNotFound, lookup

pytestmark = pytest.mark.backend


LOOKUPS: dict[str, Callable[..., Any]] = {
    "get": lambda session, model, one, where: lookup.get(session, model, one.public_id, **where),
    "get_many": lambda session, model, one, where: lookup.get_many(session, model, [one.public_id], **where),
    "keys_of": lambda session, model, one, where: lookup.keys_of(session, model, [one.public_id], **where),
    "public_ids_of": lambda session, model, one, where: lookup.public_ids_of(session, model, [one.id], **where),
    "page": lambda session, model, one, where: list(lookup.page(session, model, limit=9, **where)),
}


@pytest.mark.parametrize("name", LOOKUPS)
@pytest.mark.parametrize("form", ["condition", "function", "statement", "criteria"])
def test_lookups(session: Session, tenants: Tenants, statements: list[str], name: str, form: str) -> None:
    """Each lookup finds our row, and treats another tenant's row like an unknown one, in as many statements."""
    our_id, ours, find = tenants.ours.id, tenants.ada.public_id, LOOKUPS[name]
    rows, where = {
        "condition": (User, {"where": tenants.where}),
        "function": (User, {"where": lambda model: model.organization_id == our_id}),
        "statement": (select(User).where(tenants.where), {}),
        "criteria": (select(User).options(with_loader_criteria(User, tenants.where)), {}),
    }[form]
    ada, eve = (SimpleNamespace(id=user.id, public_id=user.public_id) for user in (tenants.ada, tenants.eve))
    assert find(session, rows, ada, where)
    session.expunge_all()
    session.connection()
    found = []
    for one in (eve, SimpleNamespace(id=10**6, public_id=UNKNOWN)):
        statements.clear()
        users = find(session, rows, one, where) or []
        found.append(([user.public_id for user in users], len(statements)))
    assert found == [([ours] if name == "page" else [], 1)] * 2


def test_get_one_and_resolve(session: Session, tenants: Tenants) -> None:
    """The error for another tenant's row names the model and the requested id, as for an unknown id."""
    with pytest.raises(PublicIdNotFound, match="no User has the public id 'tnu_") as caught:
        lookup.get_one(session, User, tenants.eve.public_id, where=tenants.where)
    assert caught.value.model == "User"
    with pytest.raises(PublicIdNotFound, match="no User has"):
        lookup.get_one(session, select(User).where(tenants.where), tenants.eve.public_id)
    assert lookup.get_one(session, select(User).where(tenants.where), tenants.ada.public_id) is tenants.ada
    ours = lambda model: model.organization_id == tenants.ours.id  # noqa: E731  # as an application writes it
    assert lookup.resolve(session, tenants.eve.public_id, where=ours) is None
    assert lookup.resolve(session, tenants.ada.public_id, where=ours) is tenants.ada


@pytest.mark.parametrize("order_by", [None, User.name, func.nullif(User.name, "Ada")])
def test_cursors(session: Session, tenants: Tenants, statements: list[str], order_by: Any) -> None:
    """Another tenant's id as a cursor raises the error of an unknown id, after as many statements.

    One statement selects the rows after the cursor and checks it; with a nullable order, there are two.
    """
    where, ours, theirs = tenants.where, tenants.ada.public_id, tenants.eve.public_id
    session.add(bob := User(organization=tenants.ours, name="Bob"))
    session.commit()
    bob.public_id  # noqa: B018  loaded
    sent = []
    for cursor in (theirs, UNKNOWN):
        statements.clear()
        with pytest.raises(InvalidCursor, match="after: no User has the public id"):
            lookup.page(session, User, limit=9, after=cursor, where=where, order_by=order_by)
        sent.append(len(statements))
    assert sent[0] == sent[1] <= 2
    if order_by is not User.name and order_by is not None:
        return
    statements.clear()
    assert list(lookup.page(session, User, limit=1, after=ours, where=where, order_by=order_by)) == [bob]
    assert len(statements) == 1


@pytest.mark.parametrize("find", LOOKUPS)
def test_condition_of_the_model_for_an_alias(session: Session, tenants: Tenants, find: str) -> None:
    """A condition on the model is rejected for an alias, because it would apply to another row of the table."""
    user = aliased(User)
    with pytest.raises(ConfigurationError, match=r"names User, but the statement selects an alias of it"):
        LOOKUPS[find](session, select(user), tenants.eve, {"where": tenants.where})
    own = {"where": lambda entity: entity.organization_id == tenants.ours.id}
    ours = [tenants.ada] if find == "page" else None  # a page does not name a row
    assert (LOOKUPS[find](session, select(user), tenants.eve, own) or None) == ours
    assert LOOKUPS[find](session, select(user), tenants.ada, own)
    # allowed in a subquery, and if the statement itself selects from the model
    nested = {"where": user.id.in_(select(User.id).where(tenants.where))}
    assert (LOOKUPS[find](session, select(user), tenants.eve, nested) or None) == ours
    joined = select(user).join(User, User.id == user.id)
    assert (LOOKUPS[find](session, joined, tenants.eve, {"where": tenants.where}) or None) == ours


@pytest.mark.parametrize("where", [True, "organization_id = 1", User.organization, User])
def test_conditions_that_are_none(session: Session, tenants: Tenants, where: Any) -> None:
    """A value that is not a SQL condition, such as a bool, is rejected."""
    for find in LOOKUPS.values():
        with pytest.raises(ConfigurationError, match="expected a condition such as User"):
            find(session, User, tenants.ada, {"where": where})
    with pytest.raises(ConfigurationError, match="expected a condition such as User"):
        lookup.get(session, User, "malformed", where=where)
    assert lookup.get(session, User, tenants.eve.public_id, where=true()) is tenants.eve


def test_statements_with_a_limit(session: Session, tenants: Tenants) -> None:
    """A statement with ORDER BY or LIMIT is rejected with the reason."""
    with pytest.raises(ConfigurationError, match="at most one row"):
        lookup.get(session, select(User).limit(1), tenants.ada.public_id)
    with pytest.raises(ConfigurationError, match="in the order of the ids"):
        lookup.get_many(session, select(User).order_by(User.id), [tenants.ada.public_id])
