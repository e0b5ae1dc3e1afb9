"""Cursors of pages whose rows are hidden by the session, by the database or by ``where=``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from sqlalchemy import Engine, ForeignKey, MetaData, String, func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    ORMExecuteState,
    Session,
    aliased,
    mapped_column,
    relationship,
    with_loader_criteria,
)
from support.async_sessions import tell
from support.marks import on
from support.shard_files import tables_in

from conftest import Statements
from sqlalchemy_public_id import ConfigurationError, InvalidCursor, NanoId, PublicIdMixin, lookup
from sqlalchemy_public_id._private import IS_FAST
from sqlalchemy_public_id.asyncio import lookup as awaited
from sqlalchemy_public_id.keys import ShardRouter


class Base(DeclarativeBase):
    metadata = MetaData()


class Organization(PublicIdMixin, Base):
    __tablename__ = "hc_organization"


class OfTenant:
    organization_id: Mapped[int] = mapped_column(ForeignKey(Organization.id))
    deleted: Mapped[bool] = mapped_column(default=False)


class Document(OfTenant, PublicIdMixin, Base):
    __tablename__ = "hc_document"
    __public_id__ = NanoId(prefix="hcdoc")
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_on": "kind", "polymorphic_identity": "document"}
    organization: Mapped[Organization] = relationship()
    kind: Mapped[str] = mapped_column(String(10))
    salary: Mapped[int]
    title: Mapped[str | None] = mapped_column(String(20))
    rate: Mapped[float]


class Report(Document):
    """A joined-table subclass, which repeats the tenant."""

    __tablename__ = "hc_report"
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "report"}
    id: Mapped[int] = mapped_column(ForeignKey(Document.id), primary_key=True)
    tenant: Mapped[int]


class Letter(Document):
    """A single-table subclass."""

    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "letter"}


UNKNOWN = "hcdoc_zzzzzzzzzzzz"
OURS = {kind: [f"hcdoc_{letter}{at:011}" for at in range(4)] for letter, kind in (("r", Report), ("l", Letter))}
"""The ids of our reports and letters."""
THEIRS = {Report: "hcdoc_rtheirs00000", Letter: "hcdoc_ltheirs00000"}


def fill(session: Session) -> None:
    """Store documents of two organizations, whose keys are 1 and 2; the stranger's is in the middle of every order."""
    session.add_all([Organization(id=1), Organization(id=2)])
    session.flush()
    for kind, ids in OURS.items():
        own: Any = {"tenant": 1} if kind is Report else {}
        theirs: Any = {"tenant": 2} if kind is Report else {}
        for at, id in enumerate([*ids[:2], THEIRS[kind], *ids[2:]]):
            of = theirs if id == THEIRS[kind] else own
            organization = 2 if id == THEIRS[kind] else 1
            values = {"salary": 100 * at, "title": f"title {at}" if at else None, "rate": at / 3}
            session.add(kind(public_id=id, organization_id=organization, **values, **of))
            session.flush()
    session.commit()


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    create(Base.metadata)
    fill(session)
    return session


def criteria(entity: Any, condition: Any) -> Callable[[Any], Any]:
    option = with_loader_criteria(entity, condition, include_aliases=True)
    return lambda statement: statement.options(option)


WAYS: dict[str, Callable[[Any], Any]] = {
    "criteria on the class": criteria(Letter, Letter.organization_id == 1),
    "criteria on the base": criteria(Document, Document.organization_id == 1),
    "criteria on the mixin": criteria(OfTenant, lambda model: model.organization_id == 1),
    "criteria on the subclass": criteria(Report, Report.tenant == 1),
    "where()": lambda statement: statement.where(statement.column_descriptions[0]["entity"].organization_id == 1),
    "filter_by()": lambda statement: statement.filter_by(organization_id=1),
    "join()": lambda statement: statement.join(Document.organization.and_(Organization.id == 1)),
}
"""How a program hides the rows of other tenants: what its listener does with each SELECT."""
MODELS: dict[str, list[Any]] = {
    "criteria on the class": [Letter],
    "criteria on the base": [Report, Letter, Document],
    "criteria on the mixin": [Report, Letter, Document],
    "criteria on the subclass": [Report],
    "where()": [Report, Letter],
    "filter_by()": [Report, Letter],
    "join()": [Report, Letter],
}
ORDERS: dict[str, Callable[[Any], Any]] = {
    "key": lambda model: None,
    "NOT NULL": lambda model: model.salary.desc(),
    "NULL": lambda model: model.title.nulls_first(),
    "expression": lambda model: func.abs(model.salary),
    "several": lambda model: [model.rate, model.salary.desc()],
}


def hide(listen: Callable[..., None], session: Session, way: str) -> None:
    """Hide other tenants in *session*, in one of :data:`WAYS`."""

    def add(state: ORMExecuteState) -> None:
        if state.is_select and not state.is_column_load and not state.is_relationship_load:
            descriptions = state.statement.column_descriptions
            is_ours = descriptions and isinstance(descriptions[0].get("entity"), type)
            state.statement = WAYS[way](state.statement) if is_ours else state.statement

    listen(session, "do_orm_execute", add)


def refusal(
    session: Session, statements: list[str], rows: Any, cursor: str, field: str = "after", **options: Any
) -> tuple[str, list[str]]:
    """Return the words of the error for *cursor*, without its id, and the statements that were sent before it."""
    session.expire_all()
    session.connection()
    statements.clear()
    with pytest.raises(InvalidCursor) as caught:
        lookup.page(session, rows, limit=9, **{field: cursor}, **options)
    assert caught.value.field == field
    words = f"{caught.value} {caught.value.reason}".replace(cursor, "…")
    # without private names of SQLAlchemy, a page that has found no rows checks the cursor in other words of SQL
    return words, [*statements] if IS_FAST else [""] * len(statements)


@pytest.mark.backend
@pytest.mark.parametrize(("way", "model"), [(way, model) for way, models in MODELS.items() for model in models])
def test_hidden_by_the_session(
    db: Session, listen: Callable[..., None], statements: Statements, way: str, model: Any
) -> None:
    """A stranger's row is an invalid cursor, in the words and the statements of one that does not exist, in any order.

    So its values cannot be read by bisection. Pages of our rows take no statement more than without criteria.
    """
    theirs = THEIRS[Letter if model is Document else model]
    ours = sorted([*OURS[Report], *OURS[Letter]]) if model is Document else OURS[model]
    hide(listen, db, way)
    for name, order in ORDERS.items():
        if way == "filter_by()" and name in ("NULL", "expression"):
            continue  # SQLAlchemy 2.1 refuses filter_by() on a statement with an expression: the name is ambiguous
        for where in (None, model.id > 0):
            for field, rows in (("after", model), ("before", model), ("after", select(model))):
                options = {"order_by": order(model), "where": where, "field": field}
                known = refusal(db, statements, rows, theirs, **options)
                assert known == refusal(db, statements, rows, UNKNOWN, **options)
                if IS_FAST:
                    assert len(known[1]) == (1 if name in ("NULL", "expression") else 2)
        seen: list[str] = []
        for direction in ("after", "before"):
            page, sent = lookup.page(db, model, limit=2, order_by=order(model), newest_first=direction == "before"), []
            seen += [row.public_id for row in page]
            while page.next is not None:
                statements.clear()
                page = lookup.page(
                    db, model, limit=2, after=page.next, order_by=order(model), newest_first=direction == "before"
                )
                sent.append(len(statements.starting("SELECT")))
                seen += [row.public_id for row in page]
            assert {*sent} == {2 if name in ("NULL", "expression") else 1}
        assert sorted(seen) == sorted(ours * 2)


@pytest.mark.backend
@pytest.mark.parametrize("model", [Report, Letter])
def test_hidden_by_the_statement(db: Session, statements: Statements, model: Any) -> None:
    """Criteria among the options of a statement hide the row of a cursor as well; its conditions do not."""
    theirs, ours = THEIRS[model], OURS[model]
    visible = with_loader_criteria(model, model.organization_id == 1)
    for order in ORDERS.values():
        options = {"order_by": order(model)}
        rows = select(model).options(visible)
        assert refusal(db, statements, rows, theirs, **options) == refusal(db, statements, rows, UNKNOWN, **options)
        filtered = select(model).where(model.organization_id == 1)
        assert len(lookup.page(db, filtered, limit=9, after=theirs, **options)) == 2
    alias = aliased(model)
    hiding = with_loader_criteria(model, model.organization_id == 1, include_aliases=True)
    with pytest.raises(InvalidCursor):
        lookup.page(db, select(alias).options(hiding), limit=9, after=theirs)
    assert [row.public_id for row in lookup.page(db, select(alias).options(hiding), limit=1, after=ours[1])] == [
        ours[2]
    ]


@pytest.mark.backend
@pytest.mark.parametrize("model", [Report, Letter])
def test_value_of_a_stranger(db: Session, listen: Callable[..., None], model: Any) -> None:
    """No page of a sorted list tells on which side of a stranger's value the caller's own rows are."""
    hide(listen, db, "criteria on the mixin")
    told = set()
    for salary in (0, 199, 200, 201, 10_000):
        own: Any = {"tenant": 1} if model is Report else {}
        db.add(model(organization_id=1, salary=salary, rate=0.5, **own))
        db.flush()
        for field in ("after", "before"):
            try:
                told.add(len(lookup.page(db, model, limit=100, order_by=model.salary, **{field: THEIRS[model]})))
            except InvalidCursor as error:
                told.add(f"{error.field} {error.reason}")
    assert told == {f"{field} no {model.__name__} has this public id" for field in ("after", "before")}


@pytest.mark.backend
@on("postgresql")
@pytest.mark.parametrize("model", [Report, Letter])
def test_hidden_by_the_database(role: str, db: Session, statements: Statements, model: Any) -> None:
    """A row that row-level security hides is an invalid cursor, whatever the execution options."""
    db.execute(text(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"))
    db.execute(text("ALTER TABLE hc_document ENABLE ROW LEVEL SECURITY"))
    db.execute(text("CREATE POLICY ours ON hc_document USING (organization_id = 1)"))
    db.commit()
    db.execute(text(f"SET LOCAL ROLE {role}"))
    for order in ORDERS.values():
        for extra in ({}, {"cursor_execution_options": {"include_deleted": True}}):
            options = {"order_by": order(model), **extra}
            known = refusal(db, statements, model, THEIRS[model], **options)
            assert known == refusal(db, statements, model, UNKNOWN, **options)
        assert len(lookup.page(db, model, limit=9, after=OURS[model][1], order_by=order(model)))
    db.rollback()


# --- criteria that may be left out for a cursor


def hide_deleted(listen: Callable[..., None], session: Any, by: str = "criteria") -> None:
    """Hide other tenants always, and deleted rows unless the execution option ``include_deleted`` is set."""

    def add(state: ORMExecuteState) -> None:
        if not state.is_select or state.is_column_load or state.is_relationship_load:
            return
        conditions = [lambda model: model.organization_id == 1]
        if not state.execution_options.get("include_deleted"):
            conditions.append(lambda model: model.deleted.is_(False))
        for condition in conditions:
            if by == "criteria":
                option = with_loader_criteria(OfTenant, condition, include_aliases=True)
                state.statement = state.statement.options(option)
            else:
                state.statement = state.statement.where(condition(state.statement.column_descriptions[0]["entity"]))

    listen(session, "do_orm_execute", add)


@pytest.mark.backend
@pytest.mark.parametrize("by", ["criteria", "where"])
@pytest.mark.parametrize("model", [Report, Letter])
def test_deleted_cursor(db: Session, listen: Callable[..., None], statements: Statements, model: Any, by: str) -> None:
    """Without the criteria that the program names, a deleted row is a valid cursor, and a stranger's row is not.

    Deleted rows are not on the page. The row of the cursor is read in a statement of its own.
    """
    ours, keep = OURS[model], {"cursor_execution_options": {"include_deleted": True}}
    lookup.get_one(db, model, ours[1]).deleted = True
    db.commit()
    hide_deleted(listen, db, by)
    rest = {
        "key": ([ours[2], ours[3]], [ours[0]]),
        "NOT NULL": ([ours[0]], [ours[3], ours[2]]),
        "NULL": ([ours[2], ours[3]], [ours[0]]),
        "expression": ([ours[2], ours[3]], [ours[0]]),
        "several": ([ours[2], ours[3]], [ours[0]]),
    }
    for name, order in ORDERS.items():
        options = {"order_by": order(model)}
        for where in (None, model.salary >= 0):
            refused = refusal(db, statements, model, ours[1], where=where, **options)
            assert refused == refusal(db, statements, model, UNKNOWN, where=where, **options)
            for direction, expected in zip(("after", "before"), rest[name], strict=True):
                statements.clear()
                page = lookup.page(db, model, limit=9, where=where, **{direction: ours[1]}, **options, **keep)
                assert [row.public_id for row in page] == expected
                assert len(statements.starting("SELECT")) == 2
            refused = refusal(db, statements, model, THEIRS[model], where=where, **options, **keep)
            assert refused == refusal(db, statements, model, UNKNOWN, where=where, **options, **keep)
            assert len(refused[1]) == 1 or not IS_FAST
        with pytest.raises(InvalidCursor):
            lookup.page(db, model, limit=9, after=ours[1], where=model.salary > 10**6, **options, **keep)


@pytest.mark.parametrize("options", [True, "include_deleted", ["include_deleted"]])
def test_options_that_are_none(options: Any) -> None:
    """Execution options that are no mapping are refused, before anything is sent."""
    with (
        Session() as session,
        pytest.raises(ConfigurationError, match=r"cursor_execution_options is .*include_deleted"),
    ):
        lookup.page(session, Letter, limit=9, cursor_execution_options=options)


@pytest.mark.backend
def test_rows_of_a_filter(db: Session, listen: Callable[..., None], statements: Statements) -> None:
    """With a listener, a cursor whose row no longer meets the filter is valid, for one statement more."""
    hide(listen, db, "where()")
    ours, filtered = OURS[Letter], select(Letter).where(Letter.deleted.is_(False))
    page = lookup.page(db, filtered, limit=2)
    page[-1].deleted = True
    db.flush()
    db.connection()
    for limit, expected in ((1, ours[2:3]), (2, ours[2:]), (9, ours[2:])):
        statements.clear()
        following = lookup.page(db, filtered, limit=limit, after=page.next)
        assert [row.public_id for row in following] == expected
        assert following.has_more is (limit == 1)
        assert len(statements) == 2


@pytest.mark.backend
def test_join_that_repeats_the_row_of_the_cursor(db: Session, listen: Callable[..., None]) -> None:
    """With a listener, a join that repeats each row loses none of the rows after the cursor."""
    hide(listen, db, "criteria on the mixin")
    other = aliased(Organization)
    rows = select(Letter).join(other, other.id > 0)
    db.add_all(Organization(id=number) for number in range(11, 16))  # the keys of the others were given, too
    db.flush()
    for limit in (1, 2, 3, 9, 20):
        seen, cursor = [], None
        while True:
            page = lookup.page(db, rows, limit=limit, after=cursor)
            seen += [row.public_id for row in page]
            cursor = page.next
            if cursor is None:
                break
        assert seen == OURS[Letter]


@pytest.mark.backend
def test_condition_on_a_joined_table(db: Session, statements: Statements) -> None:
    """If ``where`` names a table that the statement joins, a stranger's row is an invalid cursor as well."""
    rows = select(Letter).join(Letter.organization)
    for order in ORDERS.values():
        options = {"where": Organization.id == 1, "order_by": order(Letter)}
        known = refusal(db, statements, rows, THEIRS[Letter], **options)
        assert known == refusal(db, statements, rows, UNKNOWN, **options)
        first = lookup.page(db, rows, limit=3, **options)
        assert len(first) == 3
        assert len(lookup.page(db, rows, limit=3, after=first.next, **options)) == 1


# --- other sessions


def test_shards(new_engine: Callable[..., Engine], listen: Callable[..., None]) -> None:
    """In a sharded session, a hidden row is an invalid cursor, unless its criteria are left out."""
    engines = {name: new_engine("sqlite") for name in ("north", "south")}
    with tables_in(engines, Base.metadata):
        with Session(engines["south"]) as session:
            fill(session)
            lookup.get_one(session, Letter, OURS[Letter][1]).deleted = True
            session.commit()
        with ShardRouter(engines).session() as session:
            hide_deleted(listen, session)
            keep = {"cursor_execution_options": {"include_deleted": True}}
            for cursor in (UNKNOWN, THEIRS[Letter], OURS[Letter][1]):
                for options in ({}, {"where": Letter.salary >= 0}):
                    with pytest.raises(InvalidCursor, match="after: no Letter has the public id"):
                        lookup.page(session, Letter, limit=9, after=cursor, **options)
            with pytest.raises(InvalidCursor):
                lookup.page(session, Letter, limit=9, after=THEIRS[Letter], **keep)
            page = lookup.page(session, Letter, limit=9, after=OURS[Letter][1], **keep)
            assert [row.public_id for row in page] == OURS[Letter][2:]


@pytest.mark.backend
def test_async(async_engine: AsyncEngine, listen: Callable[..., None]) -> None:
    """The asynchronous ``page()`` refuses hidden cursors, too, and accepts those whose criteria are left out."""

    async def story(session: AsyncSession) -> None:
        await session.run_sync(fill)
        (await awaited.get_one(session, Report, OURS[Report][1])).deleted = True
        await session.commit()
        hide_deleted(listen, session.sync_session)
        keep = {"cursor_execution_options": {"include_deleted": True}}
        for order in ORDERS.values():
            for cursor in (UNKNOWN, THEIRS[Report], OURS[Report][1]):
                with pytest.raises(InvalidCursor, match="after: no Report has the public id"):
                    await awaited.page(session, Report, limit=9, after=cursor, order_by=order(Report))
            with pytest.raises(InvalidCursor):
                await awaited.page(session, Report, limit=9, after=THEIRS[Report], order_by=order(Report), **keep)
            page: awaited.Page[Report] = await awaited.page(
                session, Report, limit=1, after=OURS[Report][1], order_by=order(Report), **keep
            )
            assert len(page) == 1

    tell(async_engine, Base.metadata, story)
