"""The turns that connections take on MySQL and MariaDB before they insert the same row."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
from sqlalchemy import Engine, MetaData, text
from sqlalchemy.orm import Session
from support.marks import on
from support.strangers import Base, Document, Invoice, Memo, Organization

from sqlalchemy_public_id import IdempotencyConflict
from sqlalchemy_public_id.idempotency import insert_once


@pytest.mark.backend
@on("mysql", "mariadb")
@pytest.mark.parametrize("stored", [Document, Invoice, Memo])
def test_turn_is_over(create: Callable[[MetaData], None], engine: Engine, stored: type[Document]) -> None:
    """A repetition gives up its turn, also if it finds the row of another class."""
    create(Base.metadata)
    with Session(engine) as session:
        session.add(row := stored(organization=Organization(name="ours"), title="one"))
        session.commit()
        memo = Memo(public_id=row.public_id, organization_id=row.organization_id, title="one")
        conflict = pytest.raises(IdempotencyConflict, match="different kind") if stored is not Memo else nullcontext()
        with conflict:
            assert insert_once(session, memo, compare=()) == (row, False)

        assert session.scalar(text("SELECT RELEASE_ALL_LOCKS()")) == 0
