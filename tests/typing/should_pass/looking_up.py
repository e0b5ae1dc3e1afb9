"""A lookup returns objects of the model that it was called with."""

from __future__ import annotations

from typing import Any

from models import Card, Customer, CustomerId, User
from sqlalchemy.orm import Session, load_only
from typing_extensions import assert_type

from sqlalchemy_public_id import lookup


def look_up(session: Session, public_id: str, customer_id: CustomerId) -> User:
    assert_type(lookup.get(session, User, public_id), User | None)
    assert_type(lookup.get(session, Customer, customer_id, populate_existing=True), Customer | None)
    assert_type(lookup.get(session, Card, public_id, attribute="slug", with_for_update={"nowait": True}), Card | None)
    assert_type(lookup.get(session, User, None, options=[load_only(User.name)]), User | None)
    assert_type(lookup.get_one(session, User, public_id, with_for_update=True), User)
    assert_type(lookup.get_many(session, User, [public_id, None]), dict[str, User])
    assert_type(lookup.get_many(session, User, [public_id], with_for_update=True), dict[str, User])
    assert_type(lookup.get_many(session, Customer, [customer_id], populate_existing=True), dict[str, Customer])
    assert_type(lookup.resolve(session, public_id), Any | None)
    assert_type(lookup.keys_of(session, User, {public_id}), dict[str, Any])
    assert_type(lookup.keys_of(session, User, {public_id}, execution_options={"mine": 1}), dict[str, Any])
    assert_type(lookup.public_ids_of(session, User, (1, 2)), dict[Any, str])

    found = lookup.get(session, User, public_id)
    return found if found is not None else lookup.get_one(session, User, public_id)
