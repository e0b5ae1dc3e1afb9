"""Ids that two tenants share: each lookup returns the row of the tenant it names, or refuses to choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, Index, MetaData, UniqueConstraint, and_, create_engine, event, func, or_, select, true
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column, with_loader_criteria
from support.shared_ids import (
    OF_BOTH,
    ONLY_OURS,
    ONLY_THEIRS,
    OURS,
    THEIRS,
    Base,
    Note,
    expected,
    fill,
    is_of,
    public_id,
)

from sqlalchemy_public_id import ConfigurationError, InvalidCursor, NanoId, PublicIdNotFound, lookup, public_id_column
from sqlalchemy_public_id.errors import AmbiguousPublicId

pytestmark = pytest.mark.backend


@pytest.fixture
def notes(create: Callable[[MetaData], None], session: Session) -> None:
    create(Base.metadata)
    fill(session)
    session.commit()


def one(found: dict[str, Any]) -> Any:
    return next(iter(found.values()), None)


def text_of_page(session: Session, rows: Any, id: str, where: Any, **order: Any) -> str | None:
    """Return the text of the row at a cursor: the one before the first row of the page after it, backwards."""
    try:
        after = lookup.page(session, rows, limit=100, after=id, **order, **where)
        before = lookup.page(session, rows, limit=100, before=id, **order, **where)
    except InvalidCursor:
        return None
    every = lookup.page(session, rows, limit=100, **order, **where)
    (left,) = [note for note in every if note not in [*after, *before]]
    return left.text


def text_by_key(session: Session, rows: Any, id: str, where: Any) -> str | None:
    key = one(lookup.keys_of(session, rows, [id], **where))
    return session.scalar(select(Note.text).where(Note.id == key).execution_options(seen=True))


def text(note: Any) -> str | None:
    return None if note is None else note.text


def get_one(session: Session, rows: Any, id: str, where: Any) -> str | None:
    try:
        return text(lookup.get_one(session, rows, id, **where))
    except PublicIdNotFound:
        return None


LOOKUPS: dict[str, Callable[[Session, Any, str, dict[str, Any]], str | None]] = {
    "get": lambda session, rows, text_id, where: text(lookup.get(session, rows, text_id, **where)),
    "get options": lambda session, rows, text_id, where: text(
        lookup.get(session, rows, text_id, populate_existing=True, with_for_update=True, **where)
    ),
    "get_one": get_one,
    "get_many": lambda session, rows, text_id, where: text(one(lookup.get_many(session, rows, [text_id], **where))),
    "keys_of": text_by_key,
    "page": text_of_page,
    "page, sorted": lambda *given: text_of_page(*given, order_by=Note.tenant_id),
    "page, newest first": lambda *given: text_of_page(*given, newest_first=True),
    "page, by a value that may be NULL": lambda *given: text_of_page(*given, order_by=[Note.text.desc()]),
    "page, with options of the cursor": lambda *given: text_of_page(*given, cursor_execution_options={"seen": True}),
}
RESOLVED = {
    "resolve": lambda session, rows, text_id, where: text(lookup.resolve(session, text_id, base=Base, **where)),
    "resolve_many": lambda session, rows, text_id, where: text(
        one(lookup.resolve_many(session, [text_id], models=[Note], **where))
    ),
}
ROWS = {
    "condition": lambda tenant: (Note, {"where": is_of(tenant)}),
    "function": lambda tenant: (Note, {"where": lambda note: and_(note.tenant_id == tenant, note.id > 0)}),
    "in": lambda tenant: (select(Note), {"where": Note.tenant_id.in_([tenant])}),
    "subquery": lambda tenant: (Note, {"where": Note.id.in_(select(Note.id).where(is_of(tenant)))}),
}


@pytest.mark.parametrize("name", [*LOOKUPS, *RESOLVED])
@pytest.mark.parametrize("form", ROWS)
def test_where_names_the_tenant(session: Session, notes: None, name: str, form: str) -> None:
    """With the tenant in where=, each lookup finds the row of this tenant, and no row of the other one."""
    find = (LOOKUPS | RESOLVED)[name]
    for tenant in (OURS, THEIRS):
        for number in (ONLY_OURS[3], OF_BOTH[0], OF_BOTH[-1], ONLY_THEIRS[4], 99):
            rows, where = ROWS[form](tenant)
            session.expunge_all()
            assert find(session, rows, public_id(number), where) == expected(tenant, number)


def add_criteria(state: Any, tenant: int) -> None:
    if state.is_select and not state.execution_options.get("other"):
        state.statement = state.statement.options(with_loader_criteria(Note, is_of(tenant), include_aliases=True))


def add_condition(state: Any, tenant: int) -> None:
    if state.is_select:
        state.statement = state.statement.where(is_of(tenant))


def run_another(state: Any, tenant: int) -> Any:
    """A listener that sends the statement itself, with criteria, and other statements before it."""
    if state.is_select and not state.execution_options.get("other"):
        state.session.execute(select(Note.id).limit(1), execution_options={"other": True})
        option = with_loader_criteria(Note, lambda cls: cls.tenant_id == tenant, include_aliases=True)
        return state.invoke_statement(statement=state.statement.options(option))
    return None


@contextmanager
def listening(session: Session, listener: Callable[[Any, int], Any], tenant: int) -> Iterator[None]:
    def do_orm_execute(state: Any) -> Any:
        return listener(state, tenant)

    event.listen(session, "do_orm_execute", do_orm_execute)
    try:
        yield
    finally:
        event.remove(session, "do_orm_execute", do_orm_execute)


@pytest.mark.parametrize("name", [*LOOKUPS, *RESOLVED])
@pytest.mark.parametrize("listener", [add_criteria, add_condition, run_another])
def test_session_names_the_tenant(session: Session, notes: None, name: str, listener: Any) -> None:
    """Criteria that the session adds name the tenant, so the lookup needs no where=."""
    find = (LOOKUPS | RESOLVED)[name]
    for tenant in (OURS, THEIRS):
        for number in (ONLY_OURS[3], OF_BOTH[0], ONLY_THEIRS[4], 99):
            session.expunge_all()
            with listening(session, listener, tenant):
                assert find(session, Note, public_id(number), {}) == expected(tenant, number)
    with pytest.raises(ConfigurationError, match=r"does not name Note\.tenant_id"):
        find(session, Note, public_id(OF_BOTH[0]), {})


@pytest.mark.parametrize("name", [name for name in LOOKUPS if not name.startswith("page")])
def test_statement_names_the_tenant(session: Session, notes: None, name: str) -> None:
    """The conditions and criteria of select(Note), or of an alias, name the tenant as well."""
    note = aliased(Note)
    for tenant in (OURS, THEIRS):
        for rows in (
            select(Note).where(is_of(tenant)),
            select(note).where(note.tenant_id == tenant),
            select(Note).options(with_loader_criteria(Note, is_of(tenant))),
        ):
            session.expunge_all()
            assert LOOKUPS[name](session, rows, public_id(OF_BOTH[0]), {}) == expected(tenant, OF_BOTH[0])


WITHOUT = {
    "nothing": (Note, {}),
    "another column": (Note, {"where": Note.id > 0}),
    "a statement": (select(Note).where(Note.id > 0), {}),
    "an alias": (select(aliased(Note)), {}),
    "other criteria": (select(Note).options(with_loader_criteria(Note, Note.id > 0)), {}),
    "criteria that do not apply": (select(aliased(Note)).options(with_loader_criteria(Note, is_of(OURS))), {}),
    "any of another": (Note, {"where": or_(true(), Note.id > 0) & (Note.id > 0)}),
}


@pytest.mark.parametrize("name", [*LOOKUPS, *RESOLVED])
@pytest.mark.parametrize("form", WITHOUT)
def test_no_tenant(session: Session, notes: None, statements: list[str], name: str, form: str) -> None:
    """A lookup that does not name the tenant is refused before any SQL, whoever has the id."""
    rows, where = WITHOUT[form]
    if name in RESOLVED and rows is not Note:
        return
    session.commit()
    statements.clear()
    for number in (ONLY_OURS[3], OF_BOTH[0], 99):
        with pytest.raises(ConfigurationError, match=r"Note\.tenant_id.*where=Note\.tenant_id == "):
            (LOOKUPS | RESOLVED)[name](session, rows, public_id(number), where)
    assert statements == []


def test_page_does_not_take_the_tenant_from_its_filter(session: Session, notes: None) -> None:
    """The conditions of a page's statement are a filter, which does not apply to the cursor."""
    with pytest.raises(ConfigurationError, match=r"page\(\) does not name"):
        lookup.page(session, select(Note).where(is_of(OURS)), limit=5, after=public_id(OF_BOTH[0]))


@pytest.mark.parametrize("name", [*LOOKUPS, *RESOLVED])
def test_any_tenant(session: Session, notes: None, name: str) -> None:
    """where=true() accepts any tenant: a row that alone has the id is found; two of them are an error with facts."""
    find, where = (LOOKUPS | RESOLVED)[name], {"where": true()}
    assert find(session, Note, public_id(ONLY_OURS[3]), where) == expected(OURS, ONLY_OURS[3])
    assert find(session, Note, public_id(99), where) is None
    for condition in (true(), Note.tenant_id > 0, lambda note: true()):
        with pytest.raises(AmbiguousPublicId, match="several rows of Note have the public id 'nt_10': it is") as caught:
            find(session, Note, public_id(OF_BOTH[0]), {"where": condition})
        error = caught.value
        assert (error.public_ids, error.model, error.columns) == (("nt_10",), "Note", ("tenant_id",))


def test_ambiguous_ids_of_many(session: Session, notes: None) -> None:
    """The error of a lookup of many ids has those that are ambiguous."""
    wanted = [public_id(number) for number in (ONLY_OURS[3], OF_BOTH[0], ONLY_THEIRS[0], OF_BOTH[1])]
    with pytest.raises(AmbiguousPublicId) as caught:
        lookup.get_many(session, Note, wanted, where=true())
    assert {*caught.value.public_ids} == {public_id(OF_BOTH[0]), public_id(OF_BOTH[1])}
    # a join that repeats a row is no second row
    other = aliased(Note)
    joined = select(Note).join(other, other.tenant_id == Note.tenant_id).where(is_of(OURS))
    assert [*lookup.keys_of(session, joined, wanted)] == [wanted[0], wanted[1], wanted[3]]
    assert [*lookup.get_many(session, joined, wanted)] == [wanted[0], wanted[1], wanted[3]]


def test_keys_need_no_tenant(session: Session, notes: None) -> None:
    """public_ids_of() looks rows up by their keys, which are unique."""
    keys = session.scalars(select(Note.id).where(Note.public_id == public_id(OF_BOTH[0]))).all()
    assert lookup.public_ids_of(session, Note, keys) == dict.fromkeys(keys, public_id(OF_BOTH[0]))


def test_malformed_ids_send_nothing(session: Session, notes: None, statements: list[str]) -> None:
    """A malformed id is unknown without a statement, with a tenant or without."""
    session.commit()
    statements.clear()
    assert lookup.get(session, Note, "nt_x") is None
    assert lookup.get_many(session, Note, ["nt_x"], where=is_of(OURS)) == {}
    assert statements == []


def test_every_page(session: Session, notes: None) -> None:
    """Pages of one tenant contain its rows, each once, in both directions."""
    for order in ({}, {"order_by": Note.text}, {"order_by": func.length(Note.public_id)}):
        for tenant in (OURS, THEIRS):
            seen, after = [], None
            while True:
                page = lookup.page(session, Note, limit=3, after=after, where=is_of(tenant), **order)
                seen += page.items
                after = page.next
                if after is None:
                    break
            assert len(seen) == 20
            assert {note.text for note in seen} == {expected(tenant, number) for number in range(30)} - {None}
            back = (
                lookup.page(session, Note, limit=3, before=seen[9].public_id, where=is_of(tenant))
                if not order
                else None
            )
            assert back is None or [*back] == seen[6:9]


def test_statements_of_a_page(session: Session, notes: None, statements: list[str]) -> None:
    """The row of a cursor is found by its key in a statement of its own; the first page takes one statement."""
    session.commit()
    statements.clear()
    lookup.page(session, Note, limit=3, where=is_of(OURS))
    assert len(statements) == 1
    statements.clear()
    lookup.page(session, Note, limit=3, where=is_of(OURS), after=public_id(OF_BOTH[0]))
    assert len(statements) == 2


def test_declared_by_hand(create: Callable[[MetaData], None], engine: Engine) -> None:
    """A composite unique key that a project declares itself has the same effect."""

    class Own(DeclarativeBase): ...

    class Part(Own):
        __tablename__ = "part_of_day"
        id: Mapped[int] = mapped_column(primary_key=True)
        day: Mapped[int]
        shelf: Mapped[int]
        code: Mapped[str] = public_id_column(NanoId(length=6), unique_with=("day", "shelf"))
        serial: Mapped[str] = public_id_column(NanoId(length=8))
        __table_args__ = (UniqueConstraint("serial", "day"),)

    create(Own.metadata)
    with Session(engine) as session:
        session.add_all([part := Part(day=1, shelf=1, code="aaaaaa"), Part(day=1, shelf=2, code="aaaaaa")])
        session.commit()
        with pytest.raises(ConfigurationError, match=r"and_\(Part.day == …, Part.shelf == …\)"):
            lookup.get(session, Part, "aaaaaa", attribute="code", where=Part.day == 1)
        where = and_(Part.day == 1, Part.shelf == 1)
        assert lookup.get(session, Part, "aaaaaa", attribute="code", where=where) is part
        assert lookup.get(session, Part, part.serial, attribute="serial") is part


def test_unique_index_of_some_rows() -> None:
    """A unique index of some rows does not make an id unique alone, so a lookup has to name the tenant."""

    class Own(DeclarativeBase): ...

    class Draft(Own):
        __tablename__ = "draft"
        id: Mapped[int] = mapped_column(primary_key=True)
        tenant_id: Mapped[int]
        is_open: Mapped[bool]
        public_id: Mapped[str] = public_id_column(NanoId(), unique_with=["tenant_id"])

    is_open = {"sqlite_where": Draft.is_open, "postgresql_where": Draft.is_open}
    Index("uq_draft_open", Draft.public_id, unique=True, **is_open)
    engine = create_engine("sqlite://")
    Own.metadata.create_all(engine)

    with Session(engine) as session, pytest.raises(ConfigurationError, match=r"where=Draft\.tenant_id == "):
        lookup.get(session, Draft, NanoId().generate())
