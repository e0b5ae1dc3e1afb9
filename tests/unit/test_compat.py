"""The internals of SQLAlchemy that this library uses: each does in this release what the library takes it to do."""

from __future__ import annotations

import asyncio
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
from sqlalchemy.engine.default import DefaultExecutionContext
from sqlalchemy.exc import ArgumentError, InvalidRequestError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    aliased,
    configure_mappers,
    load_only,
    mapped_column,
    raiseload,
    with_loader_criteria,
)
from sqlalchemy.orm.exc import UnmappedClassError
from sqlalchemy.orm.interfaces import UserDefinedOption
from sqlalchemy.util import greenlet_spawn

from sqlalchemy_public_id import ImmutablePublicId, PublicIdMixin, _compat, bulk
from sqlalchemy_public_id.events import LISTENERS
from sqlalchemy_public_id.guard.refusals import refuse_mistakes

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

    assert _compat.post_values_clauses(statement) == []
    assert len(_compat.post_values_clauses(statement.on_conflict_do_nothing())) == 1
    (clause,) = _compat.post_values_clauses(statement.on_conflict_do_update(index_elements=["id"], set_={"name": "x"}))
    assert _compat.updated_columns(clause) == {"name"}


def test_clause_on_duplicate_key() -> None:
    """The same for MySQL and MariaDB."""
    (clause,) = _compat.post_values_clauses(mysql.insert(table).on_duplicate_key_update(public_id="x"))

    assert _compat.updated_columns(clause) == {"public_id"}


def test_clauses_after_the_values() -> None:
    """Where SQLite has several ON CONFLICT clauses, as from SQLAlchemy 2.1 on, each of them is looked at."""
    one = sqlite.insert(table).on_conflict_do_nothing(index_elements=["id"])
    try:
        two = one.on_conflict_do_update(index_elements=["name"], set_={"public_id": "x"})
    except InvalidRequestError:
        assert sqlalchemy.__version__ < "2.1"
    else:
        assert [_compat.updated_columns(clause) for clause in _compat.post_values_clauses(two)] == [
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
    clauses = [clause for upsert in upserts for clause in _compat.post_values_clauses(upsert)]

    assert [_compat.updated_columns(clause) for clause in clauses] == [{"public_id"}] * 3


def test_values_of_an_insert() -> None:
    """An INSERT has values of its own, for one row or for many, or takes those of a SELECT."""
    plain, one, many = insert(table), insert(table).values(name="x"), insert(table).values([{"name": "x"}])
    from_select = insert(table).from_select(["name"], select(table.c.name))

    assert [_compat.has_own_values(each) for each in (plain, one)] == [False, True]
    assert [_compat.has_many_rows(each) for each in (plain, one, many)] == [False, False, True]
    assert (_compat.selected_names(plain), _compat.selected_names(from_select)) == (set(), {"name"})


def test_table_without_annotations() -> None:
    """``insert(Model)`` has an annotated copy of the table; the table itself comes back."""
    assert insert(Thing).table is not Thing.__table__
    assert _compat.plain_table(insert(Thing).table) is Thing.__table__


# --- batches of "insertmanyvalues"

SENT = bindparam("lowest", 3)


@pytest.mark.parametrize("dialect", [sqlite.dialect(), postgresql.asyncpg.dialect()], ids=["qmark", "numeric"])
def test_positional_parameters_per_row(dialect: Any) -> None:
    """``num_positional_params_counted`` counts the parameters of a row, and not those of the rest of the statement."""
    statement = insert(table).returning(table.c.id, table.c.id + SENT)
    compiled: Any = statement.compile(dialect=dialect, column_keys=["public_id", "name"], for_executemany=True)

    assert _compat.parameters_per_row(compiled, ("a", "-", 3)) == (2, 1)
    positions = _compat.parameter_positions(compiled) or {}
    assert positions.keys() == {"public_id", "name", "lowest"}
    assert positions["name"] == positions["public_id"] + 1


def test_named_parameters_per_row() -> None:
    """Named parameters of a row carry its number: ``public_id__0``; those of the rest of the statement do not."""
    statement = insert(table).returning(table.c.id, table.c.id + SENT)
    compiled: Any = statement.compile(dialect=postgresql.psycopg.dialect(), column_keys=["public_id", "name"])
    rows = {"public_id__0": "a", "name__0": "-", "public_id__1": "b", "name__1": "-", "lowest": 3}

    assert _compat.parameters_per_row(compiled, rows) == (2, 1)
    assert _compat.parameters_per_row(compiled, {"public_id": "a", "name": "-", "lowest": 3}) == (0, 3)
    assert _compat.parameter_positions(compiled) is None


def test_batches_that_are_sent(engine: Engine) -> None:
    """The number of parameters of each batch agrees with what SQLAlchemy sends, also for the last, shorter one."""
    rows: list[int] = []

    def count(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        width, once = _compat.parameters_per_row(context.compiled, parameters)
        rows.append((len(parameters) - once) // width)

    event.listen(engine, "before_cursor_execute", count)
    statement = insert(table).returning(table.c.id + SENT).execution_options(insertmanyvalues_page_size=2)
    with engine.begin() as connection:
        connection.execute(statement, [{"public_id": str(number)} for number in range(5)])

    assert rows == [2, 2, 1]


@pytest.fixture(params=["with the names", "without a name"])
def names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True if SQLAlchemy has the names that it does not document, False if it has none of them."""
    if request.param == "without a name":
        monkeypatch.setattr(_compat, "available", lambda owner, name: False)
    return bool(request.param == "with the names")


def test_lock_of_a_statement(names: bool) -> None:
    """A SELECT loses its lock and nothing else; without the name, it keeps its lock in a subquery."""
    plain = select(table).where(table.c.id > 1)
    locked = plain.with_for_update()
    expected = plain if names else select(locked.subquery("anon_1"))
    assert str(_compat.without_lock(locked)) == str(expected)
    assert "FOR UPDATE" in str(locked)


def test_criteria_of_a_statement(names: bool) -> None:
    """The criteria of a SELECT are told apart from other options, and None is returned if they cannot be."""

    class Base(DeclarativeBase): ...

    criteria = with_loader_criteria(Base, lambda _: true())
    found = _compat.loader_criteria(select(table).options(criteria, raiseload("*")))
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
    assert not _compat.is_sorted_or_limited(statement)
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
        assert _compat.is_sorted_or_limited(changed)


def test_sentinel_and_returning() -> None:
    """A flush sorts the returned rows by the key, the last column of RETURNING."""
    statement = insert(table).returning(table.c.name, sort_by_parameter_order=True)
    compiled: Any = statement.compile(dialect=postgresql.psycopg.dialect(), column_keys=["name"], for_executemany=True)
    plain: Any = insert(table).compile(dialect=postgresql.psycopg.dialect(), column_keys=["name"])

    assert _compat.sentinel_key(compiled) is table.c.id
    assert _compat.returned_columns(compiled) == [table.c.name]
    assert _compat.sentinel_key(plain) is None


def test_rows_of_a_batch(engine: Engine) -> None:
    """The rows that are given to the execution stand for those of one batch, sorted by their last column."""
    given = iter([[("second", 1), ("first", 0)]])

    def give(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        for rows in given:
            _compat.return_rows(context, rows)

    event.listen(engine, "after_cursor_execute", give)
    statement = insert(table).returning(table.c.name).execution_options(insertmanyvalues_page_size=2)
    with engine.begin() as connection:
        returned = connection.execute(statement, [{"public_id": str(number), "name": "own"} for number in range(4)])

        assert [row[0] for row in returned] == ["second", "first", "own", "own"]


def test_rows_of_an_asynchronous_cursor() -> None:
    """SQLAlchemy's cursor for asynchronous connections of psycopg has that of the driver, and the rows it has read."""
    from sqlalchemy.dialects.postgresql.psycopg import AsyncAdapt_psycopg_cursor

    assert {"_cursor", "_rows"} <= set(dir(AsyncAdapt_psycopg_cursor))


def test_columns_with_a_default() -> None:
    """The columns that a default fills are those of the table, for every row of ``values([…])``."""
    one: Any = insert(table).compile(column_keys=["public_id"])
    many: Any = insert(table).values([{"public_id": "a"}, {"public_id": "b"}]).compile()

    assert _compat.default_columns(one) == {"name": table.c.name}
    assert set(_compat.default_columns(many)) == {"name", "name_m1"}
    assert all(column is table.c.name for column in _compat.default_columns(many).values())


def test_names_without_documentation() -> None:
    """The attributes without an underscore that the guard reads, and SQLAlchemy does not document, are there."""
    compiled = insert(table).compile()
    of_compiled = {"binds", "bind_names", "escaped_bind_names", "positional", "positiontup", "insert_prefetch", "ctes"}
    of_context = {"compiled", "compiled_parameters", "execute_style", "isinsert", "root_connection"}
    annotated = {name for cls in DefaultExecutionContext.__mro__ for name in getattr(cls, "__annotations__", ())}

    assert of_compiled | {"effective_returning", "statement"} <= set(dir(compiled))
    assert of_context <= annotated | set(dir(DefaultExecutionContext))


# --- the ORM


def test_listeners_of_the_application(engine: Engine) -> None:
    """A listener of the application is seen among those of its mapper and its session."""

    def look(*_: Any) -> None: ...

    with Session(engine) as session:
        before = len(_compat.flush_listeners(session)), len(_compat.insert_listeners(Thing.__mapper__))
        event.listen(session, "before_flush", look)
        event.listen(Thing, "before_insert", look)
        after = len(_compat.flush_listeners(session)), len(_compat.insert_listeners(Thing.__mapper__))
        event.remove(Thing, "before_insert", look)

    assert after == (before[0] + 1, before[1] + 1)


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


def test_objects_that_are_new(engine: Engine) -> None:
    """An object with a row or a session is not, and one whose session is gone is."""
    thing, other = Thing(), Thing()
    states: list[Any] = [each._sa_instance_state for each in (thing, other)]  # type: ignore[attr-defined]  # of SQLAlchemy
    new = _compat.are_transient(states)
    with Session(engine) as session:
        session.add(other)
        pending = _compat.are_transient(states)
        session.flush()
        persistent = _compat.are_transient(states)
        session.rollback()
        rolled_back = _compat.are_transient(states)
    session = Session(engine)
    session.add(other)
    del session

    assert (new, pending, persistent, rolled_back) == (True, False, False, True)
    assert _compat.attributes_of([thing]) == [vars(thing)]
    assert _compat.attributes_of([thing])[0] is vars(thing)


def test_listeners_to_the_states_of_a_session(engine: Engine) -> None:
    """A session is watched as soon as something listens to objects that enter it."""
    with Session(engine) as session:
        before = _compat.is_watched(session)
        event.listen(session, "pending_to_persistent", lambda *_: None)
        assert (before, _compat.is_watched(session)) == (False, True)


def test_listeners_are_installed_again(engine: Engine) -> None:
    """A model that is declared after the listeners were removed and installed again gets its ids, as any other."""
    configure_mappers()  # those of other tests, which need the listeners
    LISTENERS.uninstall()
    try:

        class Without(PublicIdMixin, Base):
            __tablename__ = "without"

        configure_mappers()
        assert not _compat.insert_listeners(Without.__mapper__)
        assert Without().public_id is None
    finally:
        LISTENERS.install()

    class Again(PublicIdMixin, Base):
        __tablename__ = "again"

    Base.metadata.create_all(engine)
    thing = Again()
    early = thing.public_id
    with Session(engine) as session:
        session.add(thing)
        session.flush()

        assert (early, thing.public_id) == (thing.public_id, session.scalar(select(Again.public_id)))
        session.rollback()


def test_greenlet() -> None:
    """Only code that ``greenlet_spawn()`` runs is inside of a greenlet of SQLAlchemy."""
    inside = asyncio.run(greenlet_spawn(_compat.is_in_greenlet))

    assert (inside, _compat.is_in_greenlet()) == (True, False)


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

    assert [mapper.class_ for mapper in _compat.mapped_classes(Other.registry)] == [Again, Whole]
    with pytest.raises(UnmappedClassError):
        list(Other.registry.mappers)
    del keyless, without_table  # their tracebacks keep the classes


@pytest.mark.parametrize("name", ["sqlite", "postgresql"])
def test_match_flushed_rows(name: str) -> None:
    """The INSERT of a flush returns the public id on SQLite, to match its rows; other INSERTs and databases do not."""
    configure_mappers()
    dialect = {"sqlite": sqlite, "postgresql": postgresql}[name].dialect(insert_returning=True)
    of_flush = Thing.__mapper__._memo(("insert", Thing.__table__), Thing.__table__.insert)
    returned = []
    for statement in (of_flush, insert(Thing.__table__)):
        ordered = statement.return_defaults(Thing.__table__.c.id, sort_by_parameter_order=True)
        compiled = ordered.compile(dialect=dialect, column_keys=["public_id", "name"], for_executemany=True)
        returned.append("public_id" in str(compiled).partition("RETURNING")[2])

    assert returned == [name == "sqlite", False]
