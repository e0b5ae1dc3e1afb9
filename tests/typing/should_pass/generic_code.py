"""Generic code works with every model of a mixin, and keeps the model."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from models import Country, Customer, User
from sqlalchemy.orm import Session
from typing_extensions import assert_type

from sqlalchemy_public_id import PublicIdColumnMixin, lookup

M = TypeVar("M", bound=PublicIdColumnMixin[Any])


class Repository(Generic[M]):
    def __init__(self, session: Session, model: type[M]) -> None:
        self.session, self.model = session, model

    def find(self, public_id: str) -> M | None:
        return lookup.get(self.session, self.model, public_id)

    def page(self, after: str | None) -> lookup.Page[M]:
        return lookup.page(self.session, self.model, limit=20, after=after)

    def path_of(self, row: M) -> str:
        return f"/{row.public_id}"


def show(session: Session) -> None:
    assert_type(Repository(session, Customer).find("cus_izkpm55j334u"), Customer | None)
    assert_type(Repository(session, User).page(None), lookup.Page[User])
    assert_type(Repository(session, Country).page(None), lookup.Page[Country])
