"""Where the library meets other features: foreign keys, triggers, isolation levels, copies, row counts."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import JSON, Engine, ForeignKey, MetaData, PrimaryKeyConstraint, String, event, insert, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, load_only, make_transient, mapped_column
from support.marks import fast_ways, known_defect, on

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdCollision,
    PublicIdColumnMixin,
    PublicIdMixin,
    bulk,
    guard,
    lookup,
    public_id_column,
    testing,
)


class Base(DeclarativeBase):
    metadata = MetaData()


class Owner(PublicIdMixin, Base):
    __tablename__ = "owner"
    __public_id__ = NanoId()
    name: Mapped[str | None] = mapped_column(String(200))


class Pet(PublicIdMixin, Base):
    """Refers to its owner by public id."""

    __tablename__ = "pet"
    __public_id__ = NanoId()
    owner_public_id: Mapped[str | None] = mapped_column(ForeignKey("owner.public_id"))


class Note(PublicIdMixin, Base):
    __tablename__ = "note"
    data: Mapped[Any] = mapped_column(JSON, nullable=True)


class Late(PublicIdColumnMixin, Base):
    """A key that PostgreSQL checks at the end of the transaction."""

    __tablename__ = "late"
    __table_args__ = (PrimaryKeyConstraint("id", deferrable=True),)
    id: Mapped[int] = mapped_column(autoincrement=False)


class Shy(Base):
    """A public id that is loaded only when it is asked for."""

    __tablename__ = "shy"
    id: Mapped[int] = mapped_column(primary_key=True)
    public_id: Mapped[str] = public_id_column(NanoId(), deferred=True)


pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("tables")]
A = "a" * 12


@pytest.fixture
def tables(create: Callable[[MetaData], None], database: str) -> None:
    metadata = Base.metadata
    if database != "postgresql":  # the others have no deferrable keys
        metadata = MetaData()
        for table in Base.metadata.sorted_tables:
            if table is not Late.__table__:
                table.to_metadata(metadata)
    create(metadata)


def owners(session: Session) -> dict[int, str]:
    table = Owner.__table__
    return {row.id: row.public_id for row in session.connection().execute(select(table.c.id, table.c.public_id))}


@on("postgresql")
def test_foreign_key_to_a_public_id(session: Session) -> None:
    """A column that refers to a public id is no public id of its own row: it stays empty, and may change."""
    first, second = Owner(), Owner()
    session.add_all([first, second])
    session.flush()
    pet, stray = Pet(owner_public_id=first.public_id), Pet()
    session.add_all([pet, stray])
    session.commit()
    assert stray.owner_public_id is None

    pet.owner_public_id = second.public_id
    with testing.collisions(Pet, stray.public_id, times=2):
        session.add(Pet(owner_public_id=second.public_id))
        session.commit()

    assert len(session.scalars(select(Pet)).all()) == 3


@on("postgresql")
def test_trigger_that_keeps_rows_out(session: Session, engine: Engine) -> None:
    """A trigger that stores the row elsewhere runs once."""
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE elsewhere (public_id text)")
        connection.exec_driver_sql(
            "CREATE FUNCTION elsewhere() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN INSERT INTO elsewhere VALUES (NEW.public_id); RETURN NULL; END$$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER elsewhere BEFORE INSERT ON owner FOR EACH ROW EXECUTE FUNCTION elsewhere()"
        )
    try:
        session.execute(insert(Owner.__table__).values(name="once"))

        assert session.scalar(text("SELECT count(*) FROM elsewhere")) == 1
        session.rollback()
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE elsewhere; DROP FUNCTION elsewhere CASCADE")


TRIGGER = {
    "sqlite": ["CREATE TRIGGER log_it AFTER INSERT ON owner BEGIN INSERT INTO log VALUES ('x'); END"],
    "postgresql": [
        (
            "CREATE FUNCTION log_it() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN INSERT INTO log VALUES ('x'); RETURN NULL; END$$"
        ),
        "CREATE TRIGGER log_it AFTER INSERT ON owner FOR EACH ROW EXECUTE FUNCTION log_it()",
    ],
}
BY_MYSQL = ["CREATE TRIGGER log_it AFTER INSERT ON owner FOR EACH ROW INSERT INTO log VALUES ('x')"]


@contextmanager
def violating_trigger(engine: Engine, index: str = "uq_log_public_id") -> Iterator[None]:
    """A trigger of ``owner`` that inserts the same id into another table, which has a unique *index*, each time."""
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE log (public_id varchar(12))")
        connection.exec_driver_sql(f"CREATE UNIQUE INDEX {index} ON log (public_id)")
        connection.exec_driver_sql("INSERT INTO log VALUES ('x')")
        for statement in TRIGGER.get(engine.name, BY_MYSQL):
            connection.exec_driver_sql(statement)
    try:
        yield
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TRIGGER log_it" + " ON owner" * (engine.name == "postgresql"))
            connection.exec_driver_sql("DROP TABLE log")
            if engine.name == "postgresql":
                connection.exec_driver_sql("DROP FUNCTION log_it")


@pytest.mark.parametrize("rows", [1, 3])
def test_trigger_that_violates_the_constraint_of_another_table(session: Session, engine: Engine, rows: int) -> None:
    """A trigger's row that repeats the public id of its own table is no collision of the row that has fired it."""
    with violating_trigger(engine):
        session.add_all([Owner() for _ in range(rows)])
        with pytest.raises(IntegrityError):
            session.flush()
        session.rollback()

    assert owners(session) == {}


@pytest.mark.slow
@on("mysql", "mariadb")
def test_index_of_the_same_name_in_another_table(
    session: Session, engine: Engine, request: pytest.FixtureRequest
) -> None:
    """On MySQL and MariaDB, two tables may have indexes of one name: that of the other table is no collision."""
    if engine.name == "mariadb":  # whose message does not name the table
        defect = known_defect("edge", "a violation of the other table is taken for ours", raises=PublicIdCollision)
        request.applymarker(defect)
    with violating_trigger(engine, "uq_owner_public_id"):
        session.add(Owner())
        with pytest.raises(IntegrityError):
            session.flush()
        session.rollback()


@fast_ways
@on("postgresql")
def test_trigger_that_changes_ids(session: Session, engine: Engine) -> None:
    """Rows whose ids a trigger changes are not written twice when another row of the flush collides."""
    taken = Owner()
    session.add(taken)
    session.commit()
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION own_id() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN IF NEW.name = 'own' THEN NEW.public_id := md5(random()::text)::char(12); END IF; RETURN NEW; END$$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER own_id BEFORE INSERT ON owner FOR EACH ROW EXECUTE FUNCTION own_id()"
        )
    try:
        with testing.fixed_ids(Owner, taken.public_id), pytest.raises(ConfigurationError, match="by a trigger"):
            session.add_all([Owner(name="collides"), Owner(name="own"), Owner(name="own")])
            session.flush()
        session.rollback()

        assert len(owners(session)) == 1
    finally:
        session.rollback()
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP FUNCTION own_id CASCADE")


@on("postgresql")
def test_deferrable_key(session: Session) -> None:
    """PostgreSQL refuses ON CONFLICT for such a table, so a savepoint does it."""
    first = Late(id=1)
    session.add(first)
    session.commit()
    with testing.collisions(Late, first.public_id):
        session.add(Late(id=2))
        session.commit()

    assert len(session.scalars(select(Late)).all()) == 2


@on("postgresql")
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("of_partition", [False, True])
def test_deferrable_constraint_that_only_the_database_has(
    engine: Engine, session: Session, rows: int, of_partition: bool
) -> None:
    """The database is asked for such a constraint, so that no model has to declare it."""

    class OtherBase(DeclarativeBase):
        metadata = MetaData()

    class Listed(PublicIdColumnMixin, OtherBase):
        __tablename__ = "listed"
        id: Mapped[int] = mapped_column(primary_key=True)
        position: Mapped[int | None]

    with engine.begin() as connection:
        connection.exec_driver_sql(
            'CREATE TABLE listed (id SERIAL, public_id VARCHAR(12) COLLATE "C" NOT NULL, position INT)'
            + " PARTITION BY RANGE (id)" * of_partition
        )
        if of_partition:
            connection.exec_driver_sql("CREATE TABLE listed_1 PARTITION OF listed FOR VALUES FROM (0) TO (1000)")
        table = "listed_1" if of_partition else "listed"
        connection.exec_driver_sql(f"ALTER TABLE {table} ADD UNIQUE (public_id), ADD UNIQUE (position) DEFERRABLE")
    try:
        session.add(taken := Listed(position=0))
        session.flush()
        session.add_all(objects := [Listed(position=number) for number in range(1, rows + 1)])
        with testing.collisions(Listed, taken.public_id):
            session.flush()

        assert len({one.public_id for one in [taken, *objects]}) == rows + 1
    finally:
        session.rollback()
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE listed")


@on("postgresql")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("rows", [1, 3])
def test_row_that_the_snapshot_does_not_show(
    engine: Engine, new_engine: Callable[..., Engine], level: str, rows: int
) -> None:
    """A collision with a row that was committed after the transaction began is retried at every isolation level."""
    other = new_engine("postgresql", engine.url, isolation_level=level)
    with Session(other) as session:
        owners(session)
        with Session(engine) as first:
            first.add(Owner(public_id=A))
            first.commit()
        with testing.fixed_ids(Owner, A):
            mine = [Owner(name=str(number)) for number in range(rows)]
            session.add_all(mine)
            session.flush()
        with testing.fixed_ids(Owner, A):
            session.execute(insert(Owner), [{"name": str(number)} for number in range(rows)])
        session.commit()

        assert len(owners(session)) == 1 + 2 * rows
        assert {each.id: each.public_id for each in mine}.items() <= owners(session).items()


def test_copy_of_a_loaded_object(session: Session) -> None:
    """An object that was loaded and made transient brings its id: it is not replaced."""
    session.add(Owner(public_id=A))
    session.commit()
    copy = session.scalars(select(Owner)).one()
    session.expunge(copy)
    make_transient(copy)
    copy.id = None  # type: ignore[assignment]
    session.add(copy)

    with pytest.raises(IntegrityError):
        session.flush()


def test_object_that_is_named_twice(session: Session) -> None:
    """``bulk.insert`` writes one row for one object."""
    first, second = Owner(), Owner()
    bulk.insert(session, [first, second, first])

    assert owners(session) == {first.id: first.public_id, second.id: second.public_id}


def test_json_null(session: Session) -> None:
    """``bulk.insert`` tells an empty column from a JSON ``null``, as a flush does."""
    bulk.insert(session, [Note(), Note(data=None), Note(data={"a": 1})])
    session.add_all([Note(), Note(data=None), Note(data={"a": 1})])
    session.flush()
    nulls = session.scalars(select(Note.data.is_(text("NULL"))).order_by(Note.id)).all()

    assert list(map(bool, nulls)) == [True, False, False] * 2


def test_deferred_public_id(session: Session, statements: list[str]) -> None:
    """``get_many`` is one statement, whatever is loaded with the rows."""
    session.add_all([Shy() for _ in range(5)])
    session.commit()
    ids = session.scalars(select(Shy.public_id)).all()
    session.expunge_all()
    statements.clear()

    assert list(lookup.get_many(session, Shy, ids)) == ids
    assert list(lookup.get_many(session, Shy, ids, options=[load_only(Shy.id)])) == ids
    assert len(statements) == 2


@on("sqlite", "mysql", "mariadb")
def test_row_count_of_many_rows(session: Session) -> None:
    """``result.rowcount`` counts all rows, in how many pieces they ever went and whatever collided."""
    first = Owner()
    session.add(first)
    session.commit()
    with testing.fixed_ids(Owner, "b" * 12, first.public_id):
        rows = [{"name": "z" * 150} for _ in range(9000)]
        result = session.connection().execute(insert(Owner.__table__), rows)

    assert result.rowcount == 9000


def test_flush_inside_a_flush(session: Session) -> None:
    """Another session on the same connection, as audit logs have it, does not disturb the retry."""
    first = Owner()
    session.add(first)
    session.commit()

    def log(mapper: Any, connection: Any, target: Any) -> None:
        with Session(connection) as other:
            other.add(Note(data="log"))
            other.flush()

    event.listen(Owner, "before_insert", log)
    try:
        with testing.collisions(Owner, first.public_id):
            session.add(Owner(name="second"))
            session.flush()
    finally:
        event.remove(Owner, "before_insert", log)

    assert len(owners(session)) == 2


@on("sqlite")
def test_metadata_can_be_pickled(session: Session) -> None:
    """The tables of models survive pickling, and their copies make ids."""
    copy = pickle.loads(pickle.dumps(Owner.metadata)).tables["owner"]
    guard.install(session.get_bind())  # type: ignore[arg-type]
    session.connection().execute(insert(copy), [{"name": "x"}, {"name": "y"}])

    assert len(owners(session)) == 2


@on("sqlite")
def test_id_of_a_row_that_has_none(session: Session) -> None:
    """A row from before the column was filled can be given an id, once."""
    session.add(Owner(name="old"))
    session.commit()
    session.execute(text("CREATE TABLE unfilled AS SELECT id, NULL AS public_id, name FROM owner"))

    class Unfilled(PublicIdMixin, Base):
        __tablename__ = "unfilled"
        __table_args__ = {"extend_existing": True}  # noqa: RUF012
        name: Mapped[str | None]

    row = session.scalars(select(Unfilled)).one()
    row.public_id = A
    session.flush()

    assert session.scalar(text("SELECT public_id FROM unfilled")) == A
    Base.metadata.remove(Unfilled.__table__)  # type: ignore[arg-type]
