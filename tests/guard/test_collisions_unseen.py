"""Collisions with rows that the user cannot see, and INSERTs whose outcome the driver does not report at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, MetaData, String, event, func, insert, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.async_sessions import session_on
from support.marks import on, on_async
from support.members import A, B, Tiny
from support.rights import user_with
from support.rows import agree
from support.shapes import new_base
from support.ways import Way, each_way, execute, execute_returning, execute_values, flush, insert_in_bulk, numbers

from sqlalchemy_public_id import NanoId, ObjectId, PublicIdMixin, Uuid4, bigint_key, guard, public_id_column, testing

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class Member(PublicIdMixin, Base):
    __tablename__ = "member"
    __public_id__ = NanoId()
    tenant: Mapped[str | None] = mapped_column(String(50))
    email: Mapped[str | None] = mapped_column(String(50), unique=True)


member = Member.__table__

ALL_WAYS = each_way(flush, insert_in_bulk, execute, execute_returning)


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


@pytest.fixture
def tenant(engine: Engine, new_engine: Callable[..., Engine], tables: None) -> Iterator[Engine]:
    """Yield an engine of the tenant "me", who cannot see the row of the other tenant, whose id is A."""
    with engine.begin() as connection:
        connection.execute(insert(member).values(tenant="other", public_id=A))
        connection.execute(text("ALTER TABLE member ENABLE ROW LEVEL SECURITY"))
        connection.execute(text("CREATE POLICY own ON member USING (tenant = 'me')"))
    with user_with(engine, "ALL", "member") as url:
        yield new_engine(engine.name, url)


@on("postgresql")
@ALL_WAYS
@pytest.mark.parametrize("rows", [1, 3])
def test_row_of_another_tenant(tenant: Engine, write: Way, rows: int) -> None:
    """A collision with a row that row-level security hides is retried like any other."""
    with Session(tenant) as session:
        with testing.collisions(Member, A):
            objects = write(session, Member, [{"tenant": "me"}] * rows)

        assert session.scalar(select(func.count()).select_from(member)) == rows
        if objects:
            agree(session, objects)


@on("postgresql")
@each_way(flush, execute_values)
def test_given_id_of_another_tenant(tenant: Engine, write: Way) -> None:
    """A given id that collides with a hidden row is not replaced, and neither is a generated one next to it."""
    with Session(tenant) as session, pytest.raises(IntegrityError, match="public_id"):
        write(session, Member, [{"tenant": "me"}, {"tenant": "me", "public_id": A}])


@pytest.fixture
def writer(
    request: pytest.FixtureRequest, engine: Engine, new_engine: Callable[..., Engine], tables: None
) -> Iterator[Engine]:
    """Yield a guarded engine of a user who may insert, but not read the ids."""
    with user_with(engine, getattr(request, "param", "INSERT"), "member") as url:
        own = new_engine(engine.name, url)
        guard.install(own)
        yield own


def add_members(connection: Connection, rows: int, **more: str) -> None:
    statement = insert(member).inline()
    if rows == 1:
        connection.execute(statement.values(tenant="me", **more))
    else:
        connection.execute(statement, [{"tenant": "me", **more} for _ in range(rows)])


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("writer", ["INSERT", "INSERT, SELECT (tenant)"], indirect=True)
@pytest.mark.parametrize("rows", [1, 3])
def test_collision_without_the_right_to_read(engine: Engine, writer: Engine, rows: int) -> None:
    """For a user who may not read the ids, collisions are retried, and violations of other constraints raise."""
    with engine.begin() as connection:
        connection.execute(insert(member).values(public_id=A, email="a@example.org"))
    with writer.begin() as connection:
        with testing.collisions(Member, A):
            add_members(connection, rows)
        add_members(connection, rows)
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(member)) == 1 + 2 * rows
    with writer.connect() as connection, pytest.raises(IntegrityError, match="email"):
        add_members(connection, rows, email="a@example.org")


@pytest.fixture
def strict(request: pytest.FixtureRequest, new_engine: Callable[..., Engine], engine: Engine, members: None) -> Engine:
    """Return an engine whose transactions see a snapshot from their beginning."""
    level = getattr(request, "param", "REPEATABLE READ")
    if level == "default of the server":
        options = {"options": r"-c default_transaction_isolation=repeatable\ read"}
        return new_engine(engine.dialect.name, engine.url, connect_args=options)
    return new_engine(engine.dialect.name, engine.url, isolation_level=level)


def begun(session: Session, engine: Engine, *rows: Any) -> None:
    """Begin the transaction of *session*, then commit *rows* in another transaction."""
    session.execute(select(func.count()).select_from(Tiny)).all()
    with Session(engine) as other:
        other.add_all(rows)
        other.commit()


@on("postgresql", "mysql", "mariadb")
@ALL_WAYS
def test_ids_taken_since_the_snapshot(engine: Engine, strict: Engine, write: Way) -> None:
    """Although the snapshot hides twenty taken ids, the retries find free ones."""
    taken = list("0123456789abcdefghij")
    with Session(strict) as session:
        begun(session, engine, *(Tiny(public_id=each) for each in taken))
        for _ in range(3):
            write(session, Tiny, numbers(4))

        assert len(session.scalars(select(Tiny.public_id).where(Tiny.public_id.not_in(taken))).all()) == 12


@on("postgresql")
@pytest.mark.parametrize("strict", ["REPEATABLE READ", "SERIALIZABLE", "default of the server"], indirect=True)
@pytest.mark.parametrize("rows", [1, 3])
@ALL_WAYS
def test_only_the_collided_row_gets_another_id(engine: Engine, strict: Engine, write: Way, rows: int) -> None:
    """The error names the collided id, so the other rows keep theirs, at each isolation level with a snapshot."""
    with Session(strict) as session:
        begun(session, engine, Tiny(public_id="a"))
        with testing.fixed_ids(Tiny, *["x", "y"][: rows - 1], "a", "z"):
            write(session, Tiny, numbers(rows))

        assert set(session.scalars(select(Tiny.public_id))) == {*["x", "y"][: rows - 1], "z"}


@on("postgresql")
def test_given_ids_are_no_hindrance(engine: Engine, strict: Engine) -> None:
    """A batch with a free given id is retried if a generated one collides; a given id that is taken raises."""
    with Session(strict) as session:
        begun(session, engine, Tiny(public_id="a"))
        with testing.fixed_ids(Tiny, "a", "b"):
            objects = flush(session, Tiny, [{"public_id": "z"}, {}])

        assert [each.public_id for each in objects] == ["z", "b"]
        agree(session, objects)
        with pytest.raises(IntegrityError, match="public_id"):
            flush(session, Tiny, [{"public_id": "a"}, {}])


@on("postgresql")
def test_missing_id_is_no_hindrance(engine: Engine, strict: Engine) -> None:
    """If a row has NULL as its id, the database's own error is raised."""
    with Session(strict) as session:
        begun(session, engine, Tiny(public_id="a"))
        with pytest.raises(IntegrityError, match="null value"), testing.fixed_ids(Tiny, "x"):
            session.connection().execute(insert(Tiny.__table__), [{"public_id": "b"}, {"public_id": None}])
        session.rollback()
        with pytest.raises(IntegrityError, match="already exists"):
            session.connection().execute(insert(Tiny.__table__), [{"public_id": "a"}, {"public_id": None}])


@on("postgresql")
@pytest.mark.parametrize(
    ("format", "name"),
    [(Uuid4(), "code"), (ObjectId(), "code"), (NanoId(), "The code, (short)")],
    ids=["number", "bytes", "quoted name"],
)
def test_ids_are_recognised(
    create: Callable[[MetaData], None], engine: Engine, strict: Engine, format: Any, name: str
) -> None:
    """The id in the error is recognized as a number, as bytes, and in a column whose name must be quoted."""

    class Coded(new_base()):
        __tablename__ = "coded"
        id: Mapped[int] = bigint_key()
        code: Mapped[str] = public_id_column(format, name=name)
        number: Mapped[int | None]

    create(Coded.metadata)
    taken, *others = format.generate_many(4)
    with Session(strict) as session:
        begun(session, engine, Coded(code=taken))
        with testing.fixed_ids(Coded, others[0], taken, others[1], others[2], attribute="code"):
            execute(session, Coded, numbers(3))

        assert set(session.scalars(select(Coded.code))) == {*others}


@on_async("postgresql")
def test_each_driver_names_the_id(async_engine: AsyncEngine) -> None:
    """The errors of the asynchronous drivers name the collided id, too."""
    strict_engine = async_engine.execution_options(isolation_level="REPEATABLE READ")

    async def story() -> None:
        async with session_on(async_engine, Tiny.metadata) as session, AsyncSession(strict_engine) as own:
            await own.scalar(select(func.count()).select_from(Tiny))
            session.add(Tiny(public_id="a"))
            await session.commit()
            with testing.fixed_ids(Tiny, "x", "a", "y", "z"):
                await own.run_sync(flush, Tiny, numbers(3))

            assert set(await own.scalars(select(Tiny.public_id))) == {"x", "y", "z"}
            await own.rollback()

    asyncio.run(story())


@on("postgresql")
@pytest.mark.parametrize("rows", [2, 100])
def test_few_collisions_read_nothing(
    new_engine: Callable[..., Engine], engine: Engine, tables: None, rows: int
) -> None:
    """Under SERIALIZABLE, a read can make the transaction fail, so the table is read only for many collisions."""
    taken = NanoId().generate_many(rows // 2)
    with Session(engine) as session:
        session.add_all([Member(public_id=each) for each in taken])
        session.commit()
    sent: list[str] = []
    own = new_engine(engine.dialect.name, engine.url, isolation_level="SERIALIZABLE")
    event.listen(own, "before_cursor_execute", lambda *args: sent.append(args[2].split()[0]))
    with Session(own) as session, testing.fixed_ids(Member, *taken):
        session.add_all([Member() for _ in range(rows)])
        session.flush()
        session.rollback()

    assert sent == (["INSERT"] if rows == 2 else ["INSERT", "SELECT"])


@on_async("postgresql")
@pytest.mark.parametrize("email", ["a@example.org", "b@example.org"], ids=["another column", "public id"])
@pytest.mark.parametrize("rows", [1, 3])
def test_streamed_insert_loses_nothing(async_engine: AsyncEngine, email: str, rows: int) -> None:
    """A streamed INSERT is not retried, and any violation raises."""

    async def story() -> None:
        async with session_on(async_engine, Base.metadata) as session:
            session.add(Member(email="a@example.org", public_id=A))
            await session.flush()
            statement = insert(Member).returning(Member.public_id)
            values = [{"email": email if not number else f"{number}"} for number in range(rows)]
            with testing.fixed_ids(Member, A if email[0] == "b" else B), pytest.raises(Exception) as caught:
                await (await session.stream(statement, values)).all()

            assert any(word in str(caught.value) for word in ("email", "public_id", 'near "INSERT"'))

    asyncio.run(story())


@on("postgresql")
@pytest.mark.parametrize("public_id", [A, B], ids=["collision", "another column"])
def test_pipeline_loses_nothing(engine: Engine, tables: None, public_id: str) -> None:
    """In a psycopg pipeline an INSERT is not retried, and its violation is raised at the end of the pipeline."""
    guard.install(engine)
    with engine.connect() as connection:
        connection.execute(insert(member).values(public_id=A, email="a@example.org"))
        driver: Any = connection.connection.driver_connection
        email = "a@example.org" if public_id == B else "b@example.org"
        with testing.fixed_ids(Member, public_id), pytest.raises(Exception, match="duplicate key"), driver.pipeline():
            connection.execute(insert(member).inline().values(email=email))
