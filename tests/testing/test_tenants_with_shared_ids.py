"""``assert_tenants_are_apart()`` with ids that are unique in their tenant: two tenants share half of their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, event, select
from sqlalchemy.orm import Session, with_loader_criteria
from support.shared_ids import OF_BOTH, OURS, THEIRS, Base, Note, fill, is_of, public_id

from sqlalchemy_public_id.testing import TenantsNotApart, assert_tenants_are_apart

pytestmark = pytest.mark.backend


@pytest.fixture(autouse=True)
def notes(create: Callable[[MetaData], None], engine: Engine) -> None:
    create(Base.metadata)
    with Session(engine) as session:
        fill(session)
        session.commit()


@contextmanager
def session_of(engine: Engine, tenant: int | None) -> Iterator[Session]:
    """Yield a session that sees the rows of one tenant; with ``None``, those of all."""

    def add_criteria(state: Any) -> None:
        if state.is_select and not state.is_column_load:
            option = with_loader_criteria(Note, is_of(tenant or 0), include_aliases=True)
            state.statement = state.statement.options(option)

    with Session(engine) as session:
        if tenant is not None:
            event.listen(session, "do_orm_execute", add_criteria)
        yield session


def test_the_tenants_of_the_fixture(session: Session) -> None:
    """Each tenant has 20 rows of its own, and ten of its ids are those of ten rows of the other."""
    rows = {tenant: session.scalars(select(Note).where(is_of(tenant))).all() for tenant in (OURS, THEIRS)}
    ids = [{note.public_id for note in rows[tenant]} for tenant in rows]

    assert [len(each) for each in ids] == [20, 20]
    assert ids[0] & ids[1] == {public_id(number) for number in OF_BOTH}
    assert not {note.id for note in rows[OURS]} & {note.id for note in rows[THEIRS]}
    assert not {note.text for note in rows[OURS]} & {note.text for note in rows[THEIRS]}


def test_sessions_that_are_apart(engine: Engine) -> None:
    """Sessions that see the rows of their tenants only are apart, although they have ids in common."""
    with session_of(engine, OURS) as ours, session_of(engine, THEIRS) as theirs:
        assert_tenants_are_apart(Base, ours, theirs)


@pytest.mark.parametrize("other", [None, THEIRS], ids=["both", "one"])
def test_sessions_that_see_everything(engine: Engine, other: int | None) -> None:
    """A session that hides nothing is found with every function, whoever else has the ids."""
    with (
        session_of(engine, None) as ours,
        session_of(engine, other) as theirs,
        pytest.raises(TenantsNotApart) as caught,
    ):
        assert_tenants_are_apart(Base, ours, theirs)
    functions = {leak.function for leak in caught.value.leaks}
    assert functions >= {
        "select()",
        "lookup.get",
        "lookup.get_one",
        "lookup.get_many",
        "lookup.keys_of",
        "lookup.public_ids_of",
        "lookup.resolve",
        "lookup.resolve_many",
        "lookup.page",
        "lookup.page(after=)",
        "lookup.page(before=)",
        "LegacyKeys",
    }


def test_rows_with_shared_ids_only(engine: Engine) -> None:
    """Rows whose ids both tenants have are tried by their keys."""
    with Session(engine) as session:
        for note in session.scalars(select(Note).where(Note.public_id.not_in([public_id(n) for n in OF_BOTH]))):
            session.delete(note)
        session.commit()
    with session_of(engine, None) as ours, session_of(engine, THEIRS) as theirs, pytest.raises(TenantsNotApart):
        assert_tenants_are_apart(Base, ours, theirs)
    with session_of(engine, OURS) as ours, session_of(engine, THEIRS) as theirs:
        assert_tenants_are_apart(Base, ours, theirs)
