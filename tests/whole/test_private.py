"""The internals of SQLAlchemy that this library uses: each does in this release what the library takes it to do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import (
    LABEL_STYLE_TABLENAME_PLUS_COL,
    Column,
    Engine,
    Identity,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    bindparam,
    create_engine,
    event,
    func,
    insert,
    or_,
    select,
    text,
    true,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import ArgumentError, InvalidRequestError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    aliased,
    configure_mappers,
    load_only,
    mapped_column,
    orm_insert_sentinel,
    raiseload,
    with_loader_criteria,
)
from sqlalchemy.orm.exc import UnmappedClassError
from sqlalchemy.orm.interfaces import UserDefinedOption
from sqlalchemy.util import greenlet_spawn
from support.marks import fast_ways

from sqlalchemy_public_id import ImmutablePublicId, PublicIdMixin, _private, bulk
from sqlalchemy_public_id._private import Places
from sqlalchemy_public_id.guard.checks import clauses_after_values, refuse_mistakes
from sqlalchemy_public_id.orm.inspection import is_in_greenlet, mapped_classes

table = Table(
    "thing",
    MetaData(),
    Column("id", Integer, Identity(), primary_key=True),
    Column("public_id", String(12)),
    Column("name", String(9), default="-"),
)


class Base(DeclarativeBase): ...


class Thing(PublicIdMixin, Base):
    __tablename__ = "thing_of_a_model"
    name: Mapped[str | None] = mapped_column()


@pytest.fixture
def engine() -> Engine:
    engine = create_engine("sqlite://")
    table.create(engine)
    Base.metadata.create_all(engine)
    return engine


@pytest.mark.parametrize("dialect", [postgresql, sqlite], ids=["postgresql", "sqlite"])
def test_clause_on_conflict(dialect: Any) -> None:
    """The clause of ``Insert`` after its VALUES is found, with the columns that it sets."""
    statement = dialect.insert(table)

    assert clauses_after_values(statement) == []
    assert len(clauses_after_values(statement.on_conflict_do_nothing())) == 1
    upsert = statement.on_conflict_do_update(index_elements=["id"], set_={"name": "x"})
    (clause,) = clauses_after_values(upsert)
    assert _private.updated_columns(clause) == {"name"}


def test_clause_on_duplicate_key() -> None:
    """The same for MySQL and MariaDB."""
    (clause,) = clauses_after_values(mysql.insert(table).on_duplicate_key_update(public_id="x"))

    assert _private.updated_columns(clause) == {"public_id"}


def test_clauses_after_the_values() -> None:
    """Where SQLite has several ON CONFLICT clauses, as from SQLAlchemy 2.1 on, each of them is looked at."""
    one = sqlite.insert(table).on_conflict_do_nothing(index_elements=["id"])
    try:
        two = one.on_conflict_do_update(index_elements=["name"], set_={"public_id": "x"})
    except InvalidRequestError:
        assert sqlalchemy.__version__ < "2.1"
    else:
        assert [_private.updated_columns(clause) for clause in clauses_after_values(two)] == [
            set(),
            {"public_id"},
        ]


def test_later_clause_that_changes_ids() -> None:
    """An upsert that would change the id of a row in its second clause is refused as in its first."""
    statement = sqlite.insert(Thing).on_conflict_do_nothing(index_elements=["id"])
    change: dict[str, Any] = {"index_elements": ["name"], "set_": {"public_id": "x"}}
    try:
        statement = statement.on_conflict_do_update(**change)
    except InvalidRequestError:  # before SQLAlchemy 2.1 there is one clause
        statement = sqlite.insert(Thing).on_conflict_do_update(**change)

    with pytest.raises(ImmutablePublicId):
        refuse_mistakes(statement.compile(dialect=sqlite.dialect()))


def test_columns_that_are_set_by_any_name() -> None:
    """The columns of an upsert may be given as strings, columns or attributes of a model."""
    upserts = [
        sqlite.insert(Thing).on_conflict_do_update(index_elements=["id"], set_={key: "x"})
        for key in ("public_id", Thing.__table__.c.public_id, Thing.public_id)
    ]
    clauses = [clause for upsert in upserts for clause in clauses_after_values(upsert)]

    assert [_private.updated_columns(clause) for clause in clauses] == [{"public_id"}] * 3


def test_values_of_an_insert() -> None:
    """An INSERT has values of its own, or takes them from its parameters."""
    assert [_private.has_own_values(each) for each in (insert(table), insert(table).values(name="x"))] == [False, True]


# --- the execution of an INSERT


def places_of(engine: Engine, statement: Any, rows: Any) -> tuple[Places, list[Any]]:
    """Return the places of *statement* in an execution with *rows*, and the parameters of each call to the driver."""
    found: list[Places | None] = []
    calls: list[Any] = []

    def read(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        found.append(_private.read_places(context))
        calls.append(parameters)

    event.listen(engine, "before_cursor_execute", read)
    with engine.begin() as connection:
        connection.execute(statement, rows)
    event.remove(engine, "before_cursor_execute", read)
    assert found[0] is not None
    return found[0], calls


def test_places_of_a_row(engine: Engine) -> None:
    """The columns that defaults fill, and the positions of all parameters, are known before the execution."""
    places, (parameters,) = places_of(engine, insert(table), {"public_id": "a"})

    assert places.defaults == {"name": table.c.name}
    assert {name: parameters[at] for name, at in (places.positions or {}).items()} == {"public_id": "a", "name": "-"}
    assert (places.width, places.returned, places.sentinel) == (0, (), ())


def test_places_of_rows_in_one_statement(engine: Engine) -> None:
    """Each row of ``insert().values([…])`` has a parameter of its own for a default."""
    places, _ = places_of(engine, insert(table).values([{"public_id": "a"}, {"public_id": "b"}]), {})

    assert places.defaults == {"name": table.c.name, "name_m1": table.c.name}


def test_places_of_a_batch(engine: Engine) -> None:
    """The parameters of a row of a batch are counted without those that the statement has once."""
    statement = insert(table).returning(table.c.id + bindparam("lowest", 3))
    paged = statement.execution_options(insertmanyvalues_page_size=2)
    places, calls = places_of(engine, paged, [{"public_id": str(number)} for number in range(5)])

    assert (places.width, len(places.positions or {}), [len(call) for call in calls]) == (2, 3, [5, 5, 3])


@fast_ways
def test_sentinel_of_a_batch(engine: Engine) -> None:
    """The public id of a model is the sentinel of its table, after the columns that are returned."""
    configure_mappers()
    thing: Any = Thing.__table__
    statement = insert(thing).returning(thing.c.name, sort_by_parameter_order=True)
    places, _ = places_of(engine, statement, [{"name": "a"}, {"name": "b"}])

    assert (places.returned, places.sentinel, places.sort_column) == ((thing.c.name,), (thing.c.public_id,), None)


def test_sentinel_of_the_application(engine: Engine) -> None:
    """A table that has a sentinel keeps it."""

    class Other(PublicIdMixin, Base):
        __tablename__ = "other_sentinel"
        name: Mapped[str]
        _sentinel: Mapped[int] = orm_insert_sentinel()

    configure_mappers()
    Base.metadata.create_all(engine)
    other: Any = Other.__table__
    statement = insert(other).returning(other.c.name, sort_by_parameter_order=True)
    places, _ = places_of(engine, statement, [{"name": "a"}, {"name": "b"}])

    assert places.sentinel == (other.c._sentinel,)


def test_rows_of_a_batch(engine: Engine) -> None:
    """The rows of one batch can be changed before SQLAlchemy sees them; the next batch returns its own."""

    def change(rows: Sequence[Any]) -> list[Any]:
        return [(name.upper(), *others) for name, *others in rows]

    changes = iter([change])

    def give(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        for each in changes:
            _private.change_returned_rows(context, each)

    event.listen(engine, "after_cursor_execute", give)
    statement = insert(table).returning(table.c.name).execution_options(insertmanyvalues_page_size=2)
    with engine.begin() as connection:
        returned = connection.execute(statement, [{"public_id": str(number), "name": "own"} for number in range(4)])

        assert [row[0] for row in returned] == ["OWN", "OWN", "own", "own"]


# --- lookups


@pytest.fixture(params=[pytest.param("with the names", marks=fast_ways), "without a name"])
def names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True if SQLAlchemy has the names that it does not document, False if it has none of them."""
    if request.param == "without a name":
        monkeypatch.setattr(_private, "available", lambda owner, name: False)
    return bool(request.param == "with the names")


def test_lock_of_a_statement(names: bool) -> None:
    """A SELECT loses its lock and nothing else; without the name, it keeps its lock in a subquery."""
    plain = select(table).where(table.c.id > 1)
    locked = plain.with_for_update()
    expected = plain if names else select(locked.subquery("anon_1"))
    assert str(_private.without_lock(locked)) == str(expected)
    assert "FOR UPDATE" in str(locked)


def test_criteria_of_a_statement(names: bool) -> None:
    """The criteria of a SELECT are told apart from other options, and None is returned if they cannot be."""

    class Base(DeclarativeBase): ...

    criteria = with_loader_criteria(Base, lambda _: true())
    found = _private.loader_criteria(select(table).options(criteria, raiseload("*")))
    assert found == ([criteria] if names else None)


class Unhashable(UserDefinedOption):
    __hash__ = None  # type: ignore[assignment]


def statements() -> list[Select[Any]]:
    """SELECTs of every kind, without an order or a limit of their own."""
    other, inner = aliased(Thing), select(Thing.id).order_by(Thing.id).limit(1)
    return [
        select(table).where(table.c.id > 1).with_for_update(),
        select(Thing),
        select(other).join(Thing, Thing.id == other.id).where(other.name.in_(["a", "b"]), or_(other.id > 1, true())),
        select(Thing).where(Thing.id.in_(inner)).add_cte(select(Thing.id).cte("other")),
        select(Thing).group_by(Thing.id).having(func.count() > 1).distinct().prefix_with("ALL").with_hint(Thing, "x"),
        select(Thing).options(load_only(Thing.name), with_loader_criteria(Thing, lambda cls: cls.id > 1), Unhashable()),
        select(Thing).execution_options(populate_existing=True).set_label_style(LABEL_STYLE_TABLENAME_PLUS_COL),
        select(Thing).where(text("id > :least")),
        select(Thing).order_by("name").limit(1).offset(2).order_by(None).limit(None).offset(None),
        select(Thing).fetch(1, percent=True).fetch(None),
    ]


@pytest.mark.parametrize("statement", statements(), ids=range(len(statements())))
def test_sorted_or_limited(names: bool, statement: Select[Any]) -> None:
    """An ORDER BY, LIMIT, OFFSET and FETCH are recognized, and are gone when they are reset."""
    assert not _private.is_sorted_or_limited(statement)
    for changed in (
        statement.order_by("name"),
        statement.order_by(table.c.id.desc()),
        statement.limit(1),
        statement.limit(bindparam("most")),
        statement.offset(1),
        statement.fetch(1),
        statement.fetch(10, with_ties=True),
        statement.slice(1, 2),
    ):
        assert _private.is_sorted_or_limited(changed)


# --- the ORM


@pytest.mark.parametrize(
    "name", ["before_flush", "after_flush", "pending_to_persistent", "before_attach", "before_insert", "after_insert"]
)
def test_listeners_of_the_application(engine: Engine, name: str) -> None:
    """A listener of the application to a session or a mapper is seen beside those of the library."""

    def look(*_: Any) -> None: ...

    with Session(engine) as session:
        target = Thing if name.endswith("insert") else session
        before = _private.has_listeners(session, Thing.__mapper__, besides="sqlalchemy_public_id")
        event.listen(target, name, look)
        after = _private.has_listeners(session, Thing.__mapper__, besides="sqlalchemy_public_id")
        event.remove(target, name, look)

    assert (before, after) == (False, True)


def test_states_without_a_flush(engine: Engine) -> None:
    """``bulk.insert()`` makes objects pending and persistent without a flush; a rollback makes them transient again."""
    things = [Thing(name=str(number)) for number in range(3)]
    with Session(engine) as session:
        bulk.insert(session, things)
        states: list[Any] = [thing._sa_instance_state for thing in things]  # type: ignore[attr-defined]  # of SQLAlchemy
        stored = [state.persistent for state in states]
        session.rollback()

    assert stored == [True] * 3
    assert [state.transient for state in states] == [True] * 3


@fast_ways
def test_states_are_those_of_a_flush(engine: Engine) -> None:
    """What ``bulk.insert()`` writes into states and into the session is what a flush writes."""

    def left(by_flush: bool) -> tuple[Any, ...]:
        things = [Thing(name=str(number)) for number in range(3)]
        for thing in things:
            thing._sa_instance_state._orphaned_outside_of_session = True  # type: ignore[attr-defined]  # of SQLAlchemy
        with Session(engine) as session:
            if by_flush:
                session.add_all(things)
                session.flush()
            else:
                bulk.insert(session, things)
            transaction: Any = session.get_transaction()
            states: list[Any] = [thing._sa_instance_state for thing in things]  # type: ignore[attr-defined]  # of SQLAlchemy
            values = [dict(vars(state)) for state in states]
            for state, value in zip(states, values, strict=True):
                assert value.pop("session_id") == session.hash_key
                assert state._instance_dict is session.identity_map._wr
                assert state.insert_order is None or by_flush  # of pending objects
            facts = (
                [(state.modified, state.expired, state._strong_obj, state.expired_attributes) for state in states],
                [state._orphaned_outside_of_session for state in states],
                {*values[0]} - {"insert_order", "_orphaned_outside_of_session"},
                [state.key[1:] == ((thing.id,), None) for state, thing in zip(states, things, strict=True)],
                [state.committed_state for state in states],
                [session.identity_map[state.key] is thing for state, thing in zip(states, things, strict=True)],
                set(transaction._new) == set(states),
                len(session.new),
                len(session.dirty),
            )
            session.rollback()
        return facts

    assert left(by_flush=False) == left(by_flush=True)


def test_greenlet() -> None:
    """Only code that ``greenlet_spawn()`` runs is inside of a greenlet of SQLAlchemy."""
    inside = asyncio.run(greenlet_spawn(is_in_greenlet))

    assert (inside, is_in_greenlet()) == (True, False)


def test_mappers_beside_a_class_that_failed() -> None:
    """``registry.mappers`` raises if one declaration failed before its class had a mapper; the others are mapped."""

    class Other(DeclarativeBase): ...

    class Whole(Other):
        __tablename__ = "whole"
        id: Mapped[int] = mapped_column(primary_key=True)

    with pytest.raises(ArgumentError) as keyless:
        type("Keyless", (Other,), {"__tablename__": "keyless"})
    with pytest.raises(ArgumentError) as without_table:
        type("WithoutTable", (Other,), {"__tablename__": "without_table", "__table_args__": (1,)})

    class Again(Other):
        __tablename__ = "again"
        id: Mapped[int] = mapped_column(primary_key=True)

    assert [mapper.class_ for mapper in mapped_classes(Other.registry)] == [Again, Whole]
    with pytest.raises(UnmappedClassError):
        list(Other.registry.mappers)
    del keyless, without_table  # their tracebacks keep the classes
