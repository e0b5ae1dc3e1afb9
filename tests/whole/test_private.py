"""The internals of SQLAlchemy that this library uses behave in this release as the library expects."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Engine,
    ForeignKey,
    create_engine,
    event,
    insert,
    literal,
    select,
    true,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    configure_mappers,
    mapped_column,
    orm_insert_sentinel,
    raiseload,
    relationship,
    with_loader_criteria,
)
from sqlalchemy.orm.exc import UnmappedClassError
from sqlalchemy.util import greenlet_spawn
from support.marks import before_sqlalchemy, fast_ways

from sqlalchemy_public_id import (
    ImmutablePublicId,
    PublicIdColumnMixin,
    PublicIdMixin,
    _private,
    bulk,
    public_id_column,
    testing,
)
from sqlalchemy_public_id._private import IS_FAST
from sqlalchemy_public_id.guard.checks import refuse_mistakes
from sqlalchemy_public_id.keys import BlockAllocator, block_key
from sqlalchemy_public_id.orm.inspection import is_in_greenlet, mapped_classes
from sqlalchemy_public_id.references import public_ref


class Base(DeclarativeBase): ...


class Thing(PublicIdMixin, Base):
    __tablename__ = "thing_of_a_model"
    name: Mapped[str | None] = mapped_column()


table: Any = Thing.__table__


@pytest.fixture
def engine() -> Engine:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    return engine


def upserts() -> dict[str, Any]:
    """Return upserts that would change public ids."""
    on_conflict: dict[str, Any] = {"index_elements": ["name"]}
    found: dict[str, Any] = {
        "on duplicate key": mysql.insert(Thing).on_duplicate_key_update(public_id="x"),
        "on conflict": postgresql.insert(Thing).on_conflict_do_update(**on_conflict, set_={"public_id": "x"}),
        "column": sqlite.insert(Thing).on_conflict_do_update(**on_conflict, set_={table.c.public_id: "x"}),
        "attribute": sqlite.insert(Thing).on_conflict_do_update(**on_conflict, set_={Thing.public_id: "x"}),
    }
    if not before_sqlalchemy(2, 1):  # before 2.1, SQLite has one clause
        one = sqlite.insert(Thing).on_conflict_do_nothing(index_elements=["id"])
        found["second clause"] = one.on_conflict_do_update(**on_conflict, set_={"public_id": "x"})
    return found


@pytest.mark.parametrize("name", upserts())
def test_upsert_that_changes_ids(name: str) -> None:
    """The columns that an upsert sets are found in the clauses of each database, however they are named."""
    dialect = {"on duplicate key": mysql, "on conflict": postgresql}.get(name, sqlite).dialect()

    with pytest.raises(ImmutablePublicId):
        refuse_mistakes(upserts()[name].compile(dialect=dialect))


# --- the execution of an INSERT


def test_sentinel_of_the_application() -> None:
    """The public id is the sentinel column of a table, unless the table has another one."""

    class Other(PublicIdMixin, Base):
        __tablename__ = "other_sentinel"
        name: Mapped[str]
        _sentinel: Mapped[int] = orm_insert_sentinel()

    configure_mappers()
    sentinels = [model.__table__._sentinel_column for model in (Thing, Other)]

    is_made = IS_FAST and not before_sqlalchemy(2, 0, 29)
    assert sentinels == [table.c.public_id if is_made else None, Other.__table__.c._sentinel]


def test_parameters_of_a_whole_statement(engine: Engine) -> None:
    """The parameters of the rows in a batch are distinguished from those of the whole statement."""
    taken = "a" * 12
    query = insert(Thing).returning(Thing.name, Thing.public_id, literal(3) + Thing.id)
    with Session(engine) as session:
        session.add(Thing(public_id=taken))
        session.flush()
        with testing.fixed_ids(Thing, "b" * 12, taken, "c" * 12, taken, "d" * 12):
            paged = query.execution_options(insertmanyvalues_page_size=2)
            returned = session.execute(paged, [{"name": str(number)} for number in range(5)]).all()

        stored = session.execute(select(Thing.name, Thing.public_id).where(Thing.name.is_not(None))).all()
        assert sorted(stored) == sorted((name, public_id) for name, public_id, _ in returned)
        assert len({public_id for _, public_id in stored} - {taken}) == 5


def test_rows_of_a_batch(engine: Engine) -> None:
    """The returned rows of one batch can be replaced before SQLAlchemy sees them, without effect on the next batch."""
    changes = iter([lambda rows: [(name.upper(), *others) for name, *others in rows]])

    def give(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        for change in changes:
            _private.change_returned_rows(context, change)

    event.listen(engine, "after_cursor_execute", give)
    statement = insert(table).returning(table.c.name).execution_options(insertmanyvalues_page_size=2)
    with engine.begin() as connection:
        returned = connection.execute(statement, [{"name": "own"}] * 4)

        assert [row[0] for row in returned] == ["OWN", "OWN", "own", "own"]


# --- lookups


@pytest.fixture(params=[pytest.param("with the names", marks=fast_ways), "without a name"])
def names(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the test with and without the undocumented names of SQLAlchemy; return True with them."""
    if request.param == "without a name":
        monkeypatch.setattr(_private, "available", lambda owner, name: False)
    return bool(request.param == "with the names")


def test_lock_of_a_statement(names: bool) -> None:
    """A SELECT loses only its lock; without the private name, it keeps its lock in a subquery."""
    plain = select(table).where(table.c.id > 1)
    locked = plain.with_for_update()
    expected = plain if names else select(locked.subquery("anon_1"))
    assert str(_private.without_lock(locked)) == str(expected)
    assert "FOR UPDATE" in str(locked)


def test_criteria_of_a_statement(names: bool) -> None:
    """The criteria of a SELECT are distinguished from other options; if this is impossible, None is returned."""

    class Base(DeclarativeBase): ...

    criteria = with_loader_criteria(Base, lambda _: true())
    found = _private.loader_criteria(select(table).options(criteria, raiseload("*")))
    assert found == ([criteria] if names else None)


# --- the ORM


@pytest.mark.parametrize(
    "name",
    [
        *("before_flush", "after_flush", "pending_to_persistent", "before_attach"),
        *("before_insert", "after_insert", "refresh_flush"),
    ],
)
def test_listeners_of_the_application(engine: Engine, name: str) -> None:
    """A listener of the application on a session or a mapper is distinguished from those of the library."""

    def look(*_: Any) -> None: ...

    with Session(engine) as session:
        target = Thing if name.endswith("insert") or name == "refresh_flush" else session
        before = _private.has_listeners(session, Thing.__mapper__, besides="sqlalchemy_public_id")
        event.listen(target, name, look)
        after = _private.has_listeners(session, Thing.__mapper__, besides="sqlalchemy_public_id")
        event.remove(target, name, look)

    assert (before, after) == (False, True)


def test_listeners_of_the_library(engine: Engine, tmp_path: Path) -> None:
    """No feature of the library has listeners that are taken for those of the application, such as keys from blocks."""

    class Own(DeclarativeBase): ...

    class Event(PublicIdColumnMixin, Own):
        __tablename__ = "event"
        id = block_key(BlockAllocator(create_engine(f"sqlite:///{tmp_path}/blocks.db"), "event"))
        place_id: Mapped[int] = mapped_column(ForeignKey("place.id"))
        place: Mapped[Any] = relationship("Place")
        place_public_id: Mapped[str] = public_ref("place")

    class Place(PublicIdMixin, Own):
        __tablename__ = "place"
        token: Mapped[str] = public_id_column()

    configure_mappers()
    with Session(engine) as session:
        mappers = [Event.__mapper__, Place.__mapper__]
        found = [_private.has_listeners(session, mapper, besides="sqlalchemy_public_id") for mapper in mappers]

    assert found == [False, False]


@fast_ways
def test_states_are_those_of_a_flush(engine: Engine) -> None:
    """``bulk.insert()`` leaves instance states and the session as a flush does."""

    def left(by_flush: bool) -> tuple[Any, ...]:
        things = [Thing(name=str(number)) for number in range(3)]
        for thing in things:
            thing._sa_instance_state._orphaned_outside_of_session = True
        with Session(engine) as session:
            if by_flush:
                session.add_all(things)
                session.flush()
            else:
                bulk.insert(session, things)
            transaction: Any = session.get_transaction()
            states: list[Any] = [thing._sa_instance_state for thing in things]
            values = [dict(vars(state)) for state in states]
            assert [value.pop("session_id") for value in values] == [session.hash_key] * 3
            assert [state._instance_dict is session.identity_map._wr for state in states] == [True] * 3
            assert [state.insert_order is None for state in states] == [not by_flush] * 3  # of pending objects
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
    """Only code that ``greenlet_spawn()`` runs is inside a greenlet of SQLAlchemy."""
    inside = asyncio.run(greenlet_spawn(is_in_greenlet))

    assert (inside, is_in_greenlet()) == (True, False)


def test_mappers_beside_a_class_that_failed() -> None:
    """If a declaration fails before its class has a mapper, ``registry.mappers`` raises; other classes are found."""

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
    del keyless, without_table  # their tracebacks keep the classes alive


def test_mappers_beside_a_class_that_cannot_be_compared() -> None:
    """Mapped classes are found beside those of other packages, whatever their metaclasses refuse."""

    class Refusing(type):
        def __eq__(cls, other: object) -> bool:
            raise TypeError("not comparable")

        def __hash__(cls) -> int:
            raise TypeError("not hashable")

    class Foreign(metaclass=Refusing): ...

    class Other(DeclarativeBase): ...

    class Whole(Other):
        __tablename__ = "whole"
        id: Mapped[int] = mapped_column(primary_key=True)

    with pytest.raises(ArgumentError) as failed:
        type("WithoutTable", (Other,), {"__tablename__": "without_table", "__table_args__": (1,)})

    assert [mapper.class_ for mapper in mapped_classes(Other.registry)] == [Whole]
    del failed  # its traceback keeps the class alive
    assert Foreign.__subclasses__() == []  # it has lived until here
