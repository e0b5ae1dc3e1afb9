"""Triggers and deferrable constraints: what a trigger wrote for a rejected row is undone, and rows are retried."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, MetaData, insert, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session
from support.marks import fast_ways, known_defect, on
from support.members import A
from support.rights import user_with
from support.rows import agree
from support.ways import Rows, Way, each_way, execute, execute_values, flush, insert_in_bulk, numbers

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdCollision, PublicIdMixin, guard, testing

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class Item(PublicIdMixin, Base):
    __tablename__ = "item"
    number: Mapped[int | None]


class Small(PublicIdMixin, Base):
    """A table with only two possible ids."""

    __tablename__ = "small"
    __public_id__ = NanoId(length=1, alphabet="AB")
    number: Mapped[int]


ROWS = numbers(3, first=1)
WRITES = "INSERT INTO journal VALUES (NEW.public_id, NEW.number)"


def flush_one(session: Session, model: Any, rows: Rows) -> list[Any]:
    return flush(session, model, rows[:1])


each_flush = each_way(flush_one, flush)


def make_trigger(connection: Connection, when: str = "BEFORE INSERT", what: str = WRITES, table: str = "item") -> None:
    """Create a trigger on *table* that executes *what*."""
    if connection.dialect.name != "postgresql":
        connection.exec_driver_sql(f"CREATE TRIGGER noting {when} ON {table} FOR EACH ROW {_block(connection, what)}")
        return
    each = "STATEMENT" if "STATEMENT" in when else "ROW"
    name = f"note_{table}"
    connection.exec_driver_sql(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {what}; RETURN NEW; END $$"
    )
    connection.exec_driver_sql(
        f"CREATE TRIGGER noting {when.removesuffix(' STATEMENT')} ON {table} FOR EACH {each} EXECUTE FUNCTION {name}()"
    )


def _block(connection: Connection, what: str) -> str:
    return f"BEGIN {what}; END" if connection.dialect.name == "sqlite" else what


@pytest.fixture(autouse=True)
def journal(create: Callable[[MetaData], None], engine: Engine) -> Iterator[None]:
    """Create the table that the triggers write to, and the tables that have the triggers."""
    create(Base.metadata)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE journal (public_id varchar(20), number int)")
    yield
    with engine.begin() as connection:
        Base.metadata.drop_all(connection)
        connection.exec_driver_sql("DROP TABLE journal")
        if connection.dialect.name == "postgresql":
            for table in ("item", "small"):
                connection.exec_driver_sql(f"DROP FUNCTION IF EXISTS note_{table}()")


def store(session: Session) -> None:
    session.add(Item(public_id=A, number=0))
    session.commit()
    session.execute(text("DELETE FROM journal"))
    session.commit()


def journaled(session: Session) -> list[tuple[Any, ...]]:
    query = "SELECT public_id, number FROM journal ORDER BY number"
    return [tuple(row) for row in session.execute(text(query))]


def collide(session: Session, write: Way) -> list[Any]:
    with testing.fixed_ids(Item, A):
        return write(session, Item, ROWS)


@each_way(flush_one, flush, execute, execute_values)
def test_triggers_write_for_stored_rows_only(engine: Engine, session: Session, write: Way) -> None:
    """What triggers wrote for a rejected row is undone, from the first collision of a table on."""
    with engine.begin() as connection:
        make_trigger(connection)
    store(session)
    for _ in range(2):
        objects = collide(session, write)
        stored = session.execute(text("SELECT public_id, number FROM item WHERE number > 0 ORDER BY number")).all()

        assert journaled(session) == [tuple(row) for row in stored]
        agree(session, objects or flush_one(session, Item, ROWS))
        session.rollback()


@on("postgresql")
@each_flush
@pytest.mark.parametrize("when", ["BEFORE INSERT STATEMENT", "AFTER INSERT STATEMENT"])
def test_triggers_of_the_statement(engine: Engine, session: Session, write: Way, when: str) -> None:
    """A statement-level trigger fires as often with a collision as without one."""
    with engine.begin() as connection:
        make_trigger(connection, when, "INSERT INTO journal VALUES (NULL, 1)")
    store(session)
    write(session, Item, ROWS)
    written = len(journaled(session))
    session.rollback()
    collide(session, write)

    assert len(journaled(session)) == written


@on("postgresql")
def test_triggers_of_a_partition(engine: Engine, session: Session) -> None:
    """A trigger on a partition counts as a trigger on the table."""
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE item")
        connection.exec_driver_sql(
            "CREATE TABLE item (id bigserial, public_id varchar(12) NOT NULL, number int) PARTITION BY HASH (public_id)"
        )
        connection.exec_driver_sql("CREATE TABLE item_0 PARTITION OF item FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
        connection.exec_driver_sql("CREATE UNIQUE INDEX uq_item_public_id ON item (public_id)")
        make_trigger(connection, table="item_0")
    try:
        store(session)
        collide(session, flush_one)
        assert len(journaled(session)) == 1
    finally:
        session.rollback()
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE item")
            connection.exec_driver_sql("DROP FUNCTION note_item_0()")


@on("postgresql")
@pytest.mark.parametrize("rows", [1, 2])
@each_way(flush, execute)
def test_trigger_that_stores_the_row_elsewhere(engine: Engine, session: Session, write: Way, rows: int) -> None:
    """A row that a trigger redirects to a child table, away from the table itself, is stored once."""
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE item_2026 () INHERITS (item)")
        make_trigger(connection, what="INSERT INTO item_2026 VALUES (NEW.*); RETURN NULL")
    try:
        # with explicit keys, because the INSERT returns no key if the trigger returns NULL
        write(session, Item, [{"id": number, "number": number} for number in range(rows)])
        assert list(session.scalars(text("SELECT number FROM item ORDER BY number"))) == list(range(rows))
    finally:
        session.rollback()
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE item_2026")


@on("postgresql")
@pytest.mark.parametrize(
    ("write", "rows"),
    [
        (flush, 1),
        pytest.param(flush, 3, marks=fast_ways),
        (execute, 1),
        pytest.param(insert_in_bulk, 50, marks=fast_ways),
    ],
)
def test_trigger_that_comes_later(engine: Engine, session: Session, write: Way, rows: int) -> None:
    """A row that a new trigger stores elsewhere is not stored twice: the first INSERT is refused, others are not."""
    alone = [{"id": 1, "number": 1}]  # with its key, because the INSERT returns none if the trigger returns NULL
    write(session, Item, numbers(1, first=10))
    session.commit()
    with engine.begin() as connection:
        make_trigger(connection, what=f"{WRITES}; RETURN NULL")
    with pytest.raises(ConfigurationError, match="item has a trigger now"):
        write(session, Item, alone if rows == 1 else numbers(rows))
    session.rollback()
    write(session, Item, alone)

    assert [number for _, number in journaled(session)] == [1]
    session.rollback()


@on("postgresql")
@pytest.mark.parametrize(
    "write", [flush_one, pytest.param(flush, marks=fast_ways), pytest.param(insert_in_bulk, marks=fast_ways)]
)
def test_deferrable_constraint_that_comes_later(engine: Engine, session: Session, write: Way) -> None:
    """PostgreSQL refuses the first INSERT after a deferrable constraint was added, and none that follows."""
    write(session, Item, numbers(2, first=10))
    session.commit()
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE item ADD UNIQUE (number) DEFERRABLE")
    with pytest.raises(DBAPIError, match="ON CONFLICT does not support deferrable"):
        write(session, Item, ROWS)
    session.rollback()

    agree(session, collide(session, write))
    session.rollback()


@on("postgresql")
def test_no_id_left(engine: Engine) -> None:
    """If no free id is found for a row, nothing that its triggers wrote remains, and the transaction goes on."""
    guard.install(engine)
    with engine.begin() as connection:
        make_trigger(connection, table="small")
        connection.execute(insert(Small.__table__), [{"number": 1, "public_id": "A"}, {"number": 2, "public_id": "B"}])
        with pytest.raises(PublicIdCollision):
            connection.execute(insert(Small.__table__).values(number=3))

        numbers = connection.exec_driver_sql("SELECT number FROM journal ORDER BY number").scalars().all()
    assert numbers == [1, 2]


@on("postgresql")
def test_role_that_may_not_read_the_catalog(
    engine: Engine, session: Session, new_engine: Callable[..., Engine]
) -> None:
    """If the role may not read the catalog of triggers, collisions are still retried."""
    store(session)
    with user_with(engine, "ALL", "item") as url:
        with engine.begin() as connection:
            connection.exec_driver_sql("REVOKE SELECT ON pg_catalog.pg_trigger FROM PUBLIC")
        try:
            for write in (flush_one, flush):
                with Session(new_engine("postgresql", url)) as other:
                    agree(other, collide(other, write))
        finally:
            with engine.begin() as connection:
                connection.exec_driver_sql("GRANT SELECT ON pg_catalog.pg_trigger TO PUBLIC")


@on("postgresql")
def test_triggers_of_the_table_that_is_written(engine: Engine, session: Session) -> None:
    """Triggers are looked up for the table that the statement writes to, not for its namesake in another schema."""
    name = f"public_id_other_{os.getpid()}"
    there = engine.execution_options(schema_translate_map={None: name})
    with engine.begin() as connection:
        connection.exec_driver_sql(f'CREATE SCHEMA "{name}"')
    try:
        Base.metadata.create_all(there)
        with engine.begin() as connection:
            connection.exec_driver_sql(f'SET LOCAL search_path = "{name}"')
            make_trigger(connection)
        store(session)
        collide(session, flush_one)
        session.rollback()
        with Session(there) as other:
            store(other)
            collide(other, flush_one)
            assert len(journaled(other)) == 1
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f'DROP SCHEMA "{name}" CASCADE')


# --- triggers that write to a table with a unique index, and triggers that change ids


@pytest.fixture
def unique_journal(engine: Engine, request: pytest.FixtureRequest) -> None:
    """Create a trigger whose INSERT always violates the journal's unique index, which has the given name."""
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE UNIQUE INDEX {request.param} ON journal (public_id)")
        connection.exec_driver_sql("INSERT INTO journal VALUES ('x', 0)")
        make_trigger(connection, "AFTER INSERT", "INSERT INTO journal VALUES ('x', 1)")


@pytest.mark.parametrize("unique_journal", ["uq_journal_public_id"], indirect=True)
@each_flush
def test_trigger_that_violates_the_constraint_of_another_table(
    session: Session, unique_journal: None, write: Way
) -> None:
    """If a trigger violates the unique index of another table, the error is not taken for a collision."""
    with pytest.raises(IntegrityError):
        write(session, Item, ROWS)
    session.rollback()

    assert session.execute(text("SELECT count(*) FROM item")).scalar() == 0


@pytest.mark.slow
@on("mysql", "mariadb")
@pytest.mark.parametrize("unique_journal", ["uq_item_public_id"], indirect=True)
def test_index_of_the_same_name_in_another_table(
    session: Session, unique_journal: None, request: pytest.FixtureRequest
) -> None:
    """On MySQL and MariaDB, a violation of another table's index of the same name is no collision."""
    if session.get_bind().dialect.name == "mariadb":  # its error message does not name the table
        defect = known_defect("edge", "a violation of the other table is taken for ours", raises=PublicIdCollision)
        request.applymarker(defect)
    with pytest.raises(IntegrityError):
        flush_one(session, Item, ROWS)
    session.rollback()


@fast_ways
@on("postgresql")
@pytest.mark.parametrize(
    ("write", "rows", "problem"), [(flush, 3, "has a trigger now"), (insert_in_bulk, 50, "by a trigger")]
)
def test_trigger_that_changes_ids(engine: Engine, session: Session, write: Way, rows: int, problem: str) -> None:
    """Rows whose ids a new trigger changes are not stored twice when another row of the statement collides."""
    [taken] = flush_one(session, Item, ROWS)  # the triggers of a table are looked up only once
    session.commit()
    with engine.begin() as connection:
        own = "NEW.public_id := md5(random()::text)::char(12)"
        make_trigger(connection, what=f"IF NEW.number > 1 THEN {own}; END IF")
    with testing.fixed_ids(Item, taken.public_id), pytest.raises(ConfigurationError, match=problem):
        write(session, Item, numbers(rows, first=1))
    session.rollback()

    assert session.execute(text("SELECT count(*) FROM item")).scalar() == 1


# --- deferrable constraints of PostgreSQL

DEFERRABLE = {
    "key": "CREATE TABLE item (id serial, {}, UNIQUE (public_id), PRIMARY KEY (id) DEFERRABLE)",
    "constraint": "CREATE TABLE item (id serial PRIMARY KEY, {}, UNIQUE (public_id), UNIQUE (number) DEFERRABLE)",
    "partition": (
        "CREATE TABLE item (id serial, {}) PARTITION BY RANGE (id);"
        "CREATE TABLE item_1 PARTITION OF item FOR VALUES FROM (0) TO (1000);"
        "ALTER TABLE item_1 ADD UNIQUE (public_id), ADD UNIQUE (number) DEFERRABLE"
    ),
}


@on("postgresql")
@each_flush
@pytest.mark.parametrize("definition", DEFERRABLE)
def test_deferrable_constraint(engine: Engine, session: Session, write: Way, definition: str) -> None:
    """Deferrable constraints, which ON CONFLICT does not support, are detected without a declaration in the model."""
    columns = 'public_id varchar(12) COLLATE "C" NOT NULL, number int'
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP TABLE item; {DEFERRABLE[definition].format(columns)}")
    store(session)
    objects = collide(session, write)

    agree(session, objects)
    assert A not in {each.public_id for each in objects}
    session.rollback()
