"""How many statements each way of writing and looking up sends, per database: as many as without the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import (
    BigInteger,
    Engine,
    Identity,
    Integer,
    MetaData,
    String,
    UniqueConstraint,
    event,
    insert,
    select,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import fast_ways, on

from sqlalchemy_public_id import NanoId, PublicIdColumnMixin, PublicIdMixin, bulk, lookup, testing

pytestmark = pytest.mark.backend

STATEMENTS = {
    #                                             sqlite postgresql mysql mariadb
    "add and flush, 1 object":                   (1,     1,         1,    1),
    "add_all and flush, 3 objects":              (1,     1,         3,    1),
    "add_all and flush, 1000 objects":           (1,     1,         1000, 1),
    "bulk.insert, 1000 objects":                 (2,     1,         2,    2),
    "bulk_save_objects, 1000 objects":           (1,     1,         1,    1),
    "bulk_insert_mappings, 1000 rows":           (1,     1,         1,    1),
    "execute(insert(Model), 1000 rows)":         (1,     1,         1,    1),
    "execute(insert(table), 1000 rows)":         (1,     1,         1,    1),
    "execute(insert(table).values(1000 rows))":  (1,     1,         1,    1),
    "merge and flush, a new object":             (1,     1,         1,    1),
    "update of another column":                  (1,     1,         1,    1),
    "delete":                                    (1,     1,         1,    1),
    "lookup.get":                                (1,     1,         1,    1),
    "lookup.get_many, 1000 ids":                 (1,     1,         1,    1),
    "lookup.keys_of, 1000 ids":                  (1,     1,         1,    1),
    "lookup.public_ids_of, 1000 keys":           (1,     1,         1,    1),
}  # fmt: skip
"""What SQLAlchemy sends, while nothing collides. BEGIN and COMMIT come on top."""

FEWER_ON_SQLITE = {"add_all and flush, 3 objects", "add_all and flush, 1000 objects"}
"""Where a model without the library needs a statement for each row."""

SAVEPOINTS = {
    "bulk_save_objects, 1000 objects",
    "bulk_insert_mappings, 1000 rows",
    "execute(insert(Model), 1000 rows)",
    "execute(insert(table), 1000 rows)",
    "execute(insert(table).values(1000 rows))",
}
"""What is sent with SAVEPOINT before and RELEASE after it, on PostgreSQL only."""

COLLISION = {
    "add and flush, 1 object": 5,
    "add_all and flush, 1000 objects": 6,
    "bulk.insert, 1000 objects": 6,
    "execute(insert(Model), 1000 rows)": 3,
    "execute(insert(table), 1000 rows)": 3,
    "execute(insert(table).values(1000 rows))": 3,
}
"""How many statements more one collision costs, on PostgreSQL."""

DATABASES = ("sqlite", "postgresql", "mysql", "mariadb")


class Base(DeclarativeBase):
    metadata = MetaData()


class PlainBase(DeclarativeBase):
    metadata = MetaData()


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    __public_id__ = NanoId()
    name: Mapped[str | None] = mapped_column(String(50))


class Keyed(PublicIdColumnMixin, Base):
    """A key that the program makes."""

    __tablename__ = "keyed"
    __public_id__ = NanoId()
    key: Mapped[str] = mapped_column(String(36), primary_key=True, default=lambda: str(uuid4()))


class Deferrable(PublicIdMixin, Base):
    """PostgreSQL takes no ON CONFLICT there."""

    __tablename__ = "deferrable"
    __public_id__ = NanoId()
    name: Mapped[str | None] = mapped_column(String(50))
    __table_args__ = (UniqueConstraint("name", deferrable=True).ddl_if(dialect="postgresql"),)


class Plain(PlainBase):
    """The same table as it is mapped without the library."""

    __tablename__ = "user"
    id: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer(), "sqlite").with_variant(mysql.BIGINT(unsigned=True), "mysql", "mariadb"),
        Identity(),
        primary_key=True,
    )
    public_id: Mapped[str] = mapped_column(String(12), default=NanoId().generate)
    name: Mapped[str | None] = mapped_column(String(50))


Model = Any
ROWS: Any = [{"name": str(number)} for number in range(1000)]
IDS = NanoId().generate_many(1000)


def flush(session: Session, model: Model, count: int) -> None:
    session.add_all([model() for _ in range(count)])
    session.flush()


def merge(session: Session, model: Model) -> None:
    session.merge(model(name="new"))
    session.flush()


def update(session: Session, model: Model) -> None:
    session.identity_map.values()[0].name = "changed"
    session.flush()


def delete(session: Session, model: Model) -> None:
    session.delete(session.identity_map.values()[0])
    session.flush()


WAYS: dict[str, Callable[[Session, Model], Any]] = {
    "add and flush, 1 object": lambda session, model: flush(session, model, 1),
    "add_all and flush, 3 objects": lambda session, model: flush(session, model, 3),
    "add_all and flush, 1000 objects": lambda session, model: flush(session, model, 1000),
    "bulk_save_objects, 1000 objects": lambda session, model: session.bulk_save_objects([model(**row) for row in ROWS]),
    "bulk_insert_mappings, 1000 rows": lambda session, model: session.bulk_insert_mappings(model, ROWS),
    "execute(insert(Model), 1000 rows)": lambda session, model: session.execute(insert(model), ROWS),
    "execute(insert(table), 1000 rows)": lambda session, model: session.execute(insert(model.__table__), ROWS),
    "execute(insert(table).values(1000 rows))": lambda session, model: session.execute(
        insert(model.__table__).values(ROWS)
    ),
    "merge and flush, a new object": merge,
    "update of another column": update,
    "delete": delete,
}
"""What can be done without the library as well."""

OURS: dict[str, Callable[[Session, Model], Any]] = {
    "bulk.insert, 1000 objects": lambda session, model: bulk.insert(session, [model(**row) for row in ROWS]),
    "lookup.get": lambda session, model: lookup.get(session, model, IDS[0]),
    "lookup.get_many, 1000 ids": lambda session, model: lookup.get_many(session, model, IDS),
    "lookup.keys_of, 1000 ids": lambda session, model: lookup.keys_of(session, model, IDS),
    "lookup.public_ids_of, 1000 keys": lambda session, model: lookup.public_ids_of(session, model, range(1000)),
}


@pytest.fixture(autouse=True)
def tables(create: Callable[[MetaData], None], engine: Engine) -> None:
    create(Base.metadata)
    with Session(engine) as session:
        session.add(User(name="stored"))
        session.commit()


def sent(statements: list[str], engine: Engine, model: Model, way: Callable[[Session, Model], Any]) -> list[str]:
    """What is sent to do something in one *way* with *model*, in a session that holds one stored object."""
    with Session(engine) as session:
        held = session.scalars(select(model)).one()
        del statements[:]
        way(session, model)
        assert held is not None
        return list(statements)


def test_table_is_complete() -> None:
    """Every way that is counted stands in the table, and the other way round."""
    assert STATEMENTS.keys() == (WAYS | OURS).keys()
    assert STATEMENTS.keys() >= SAVEPOINTS


@fast_ways
@pytest.mark.parametrize("way", STATEMENTS)
def test_number_of_statements(statements: list[str], engine: Engine, database: str, way: str) -> None:
    """The table above is what happens."""
    expected = dict(zip(DATABASES, STATEMENTS[way], strict=True))[database]

    assert len(sent(statements, engine, User, (WAYS | OURS)[way])) == expected


@fast_ways
@pytest.mark.parametrize("way", WAYS)
def test_same_number_without_the_library(statements: list[str], engine: Engine, way: str) -> None:
    """A model without the library needs as many, and more for a flush on SQLite."""
    plain = sent(statements, engine, Plain, WAYS[way])
    ours = sent(statements, engine, User, WAYS[way])

    if engine.name == "sqlite" and way in FEWER_ON_SQLITE:
        assert (len(ours), len(plain)) == (1, 3 if "3" in way else 1000)
    else:
        assert len(ours) == len(plain) > 0


@fast_ways
@on("postgresql")
@pytest.mark.parametrize("way", STATEMENTS)
def test_savepoints_on_postgresql(statements: list[str], engine: Engine, way: str) -> None:
    """What the driver gets beyond what SQLAlchemy's events show: a savepoint around some INSERTs of several rows."""
    driven: list[str] = []
    record_driver(engine, driven)
    with engine.connect():
        driven.clear()
    shown = sent(statements, engine, User, (WAYS | OURS)[way])
    del driven[0]  # the SELECT of the object that is held
    around = [f"{word} sqlalchemy_public_id" for word in ("SAVEPOINT", "RELEASE SAVEPOINT")]

    assert len(driven) == len(shown) + 2 * (way in SAVEPOINTS)
    assert driven[:: len(driven) - 1] == around if way in SAVEPOINTS else "SAVEPOINT" not in " ".join(driven)


@fast_ways
@on("postgresql")
@pytest.mark.parametrize("way", COLLISION)
def test_collision_on_postgresql(engine: Engine, way: str) -> None:
    """What a collision costs is what the guide says."""
    driven: list[str] = []
    record_driver(engine, driven)
    taken = IDS[0]
    with Session(engine) as session:
        session.add(User(public_id=taken))
        session.commit()
    counts = []
    for times in (0, 1):
        with Session(engine) as session, testing.collisions(User, taken, times=times):
            session.connection()
            driven.clear()
            (WAYS | OURS)[way](session, User)
            counts.append(len(driven))

    assert counts[1] - counts[0] == COLLISION[way]


@fast_ways
@on("sqlite")
def test_collision_on_sqlite(engine: Engine) -> None:
    """A collision among 1 000 rows costs a SELECT, which finds it, and another INSERT."""
    with Session(engine) as session:
        session.add(User(public_id=IDS[0]))
        session.commit()
    with Session(engine) as session, testing.collisions(User, IDS[0], times=1):
        driven: list[str] = []
        driver_connection: Any = session.connection().connection.driver_connection
        driver_connection.set_trace_callback(driven.append)
        flush(session, User, 1000)
        driver_connection.set_trace_callback(None)

    assert [statement.split()[0] for statement in driven] == ["BEGIN", "INSERT", "SELECT", "INSERT"]


@fast_ways
@on("postgresql")
@pytest.mark.parametrize(
    ("level", "model", "rows", "saved"),
    [
        pytest.param("READ COMMITTED", User, 3, False, id="keys of the database"),
        pytest.param("READ COMMITTED", Keyed, 1, False, id="one key of the program"),
        pytest.param("READ COMMITTED", Keyed, 3, True, id="keys of the program"),
        pytest.param("READ COMMITTED", Deferrable, 1, True, id="a deferrable constraint"),
        pytest.param("REPEATABLE READ", User, 1, True, id="repeatable read"),
        pytest.param("SERIALIZABLE", User, 3, True, id="serializable"),
        pytest.param("AUTOCOMMIT", User, 3, False, id="autocommit"),
    ],
)
def test_flushes_with_a_savepoint(
    new_engine: Callable[..., Engine], engine: Engine, level: str, model: Any, rows: int, saved: bool
) -> None:
    """The flushes of PostgreSQL that send two short statements more, and those that do not."""
    own = new_engine(engine.dialect.name, engine.url, isolation_level=level)
    driven: list[str] = []
    record_driver(own, driven)
    for _ in range(2):  # the first flush looks for triggers
        with Session(own) as session:
            session.connection()
            driven.clear()
            session.add_all([model() for _ in range(rows)])
            session.flush()
            session.rollback()

    words = [statement.split()[0] for statement in driven]
    assert words == (["SAVEPOINT", "INSERT", "RELEASE"] if saved else ["INSERT"])


def record_driver(engine: Engine, driven: list[str]) -> None:
    """Note every statement that psycopg is given on new connections of *engine*."""
    engine.dispose()

    @event.listens_for(engine, "connect")
    def recording(connection: Any, record: Any) -> None:
        class Recording(connection.cursor_factory):  # type: ignore[misc]
            def execute(self, query: Any, *rest: Any, **options: Any) -> Any:
                driven.append(str(query))
                return super().execute(query, *rest, **options)

            def executemany(self, query: Any, *rest: Any, **options: Any) -> Any:
                driven.append(str(query))
                return super().executemany(query, *rest, **options)

        connection.cursor_factory = Recording
