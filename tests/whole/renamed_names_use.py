"""What a program does with the library, step by step: imported by ``renamed_names.py``, after it has renamed names."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, ForeignKey, String, create_engine, delete, func, insert, inspect, literal, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, IntegrityError, InvalidRequestError, MissingGreenlet
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    configure_mappers,
    mapped_column,
    relationship,
    with_loader_criteria,
)

from sqlalchemy_public_id import (
    ConfigurationError,
    ImmutablePublicId,
    PublicIdMixin,
    Uuid7,
    bulk,
    lookup,
    public_ref,
    testing,
)
from sqlalchemy_public_id.asyncio import lookup as _  # noqa: F401  can be imported

A = "a" * 12


class Base(DeclarativeBase): ...


class User(PublicIdMixin, Base):
    __tablename__ = "renamed_user"
    name: Mapped[str] = mapped_column(String(20), unique=True)
    orders: Mapped[list["Order"]] = relationship(back_populates="user")


class Order(PublicIdMixin, Base):
    __tablename__ = "renamed_order"
    __public_id__ = Uuid7(prefix="order")
    user_id: Mapped[int] = mapped_column(ForeignKey("renamed_user.id"))
    user: Mapped[User] = relationship(back_populates="orders")
    user_public_id: Mapped[str] = public_ref("user")


configure_mappers()
Step = Callable[[], None]


def steps(url: str, warned: list[str]) -> Iterator[tuple[str, Step]]:
    """Give the name of each step, and the step. One fails if rows, objects or numbers are not what they should be."""
    engine = create_engine(url)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    use = Use(engine, warned)
    for name in [name for name in vars(Use) if not name.startswith("_")]:
        yield name.replace("_", " "), lambda name=name: use._run(name)  # type: ignore[misc]
    Base.metadata.drop_all(engine)
    engine.dispose()


class Use:
    """Each method is a step, in a session and with tables of its own."""

    def __init__(self, engine: Engine, warned: list[str]) -> None:
        self._engine, self._warned = engine, warned

    def _run(self, name: str) -> None:
        with Session(self._engine, expire_on_commit=False) as session:
            session.execute(delete(Order.__table__))
            session.execute(delete(User.__table__))
            session.connection().execute(insert(User.__table__), {"public_id": A, "name": "first"})
            session.commit()
            getattr(self, name)(session)

    @contextmanager
    def _collisions(self, *drawn: str) -> Iterator[None]:
        """Make *drawn* the next ids. Without the guard a collision is an IntegrityError, after a warning."""
        try:
            with testing.fixed_ids(User, *drawn):
                yield
        except IntegrityError:
            if not self._warned:
                raise

    def _rows(self, session: Session) -> dict[str, Any]:
        table = User.__table__
        rows = session.connection().execute(select(table.c.name, table.c.public_id, table.c.id)).all()
        return {row.name: (row.public_id, row.id) for row in rows}

    def _agree(self, session: Session, users: list[User]) -> None:
        rows = self._rows(session)
        for user in users:
            shown = (user.public_id, user.id)
            assert shown == rows.get(user.name), f"the object shows {shown}, and the row has {rows.get(user.name)}"
            assert inspect(user).persistent, "the object is not persistent"
            assert session.get(User, user.id) is user, "the object is not in the identity map"

    def flush(self, session: Session) -> None:
        session.add(user := User(name="one"))
        session.flush()
        self._agree(session, [user])

    def flush_of_many(self, session: Session) -> None:
        users = [User(name=f"many {number}") for number in range(60)]
        session.add_all(users)
        session.add_all(orders := [Order(user=user) for user in users[:3]])
        session.flush()
        self._agree(session, users)
        assert len({order.id for order in orders}) == 3

    def collision(self, session: Session) -> None:
        user = User(name="collided")
        with self._collisions(A, A):
            session.add(user)
            session.flush()
            self._agree(session, [user])

    def collisions_of_many(self, session: Session) -> None:
        users = [User(name=f"many {number}") for number in range(40)]
        with self._collisions(A, *["b" * 12] * 2, *[f"{number:012}" for number in range(30)], A):
            session.add_all(users)
            session.flush()
            self._agree(session, users)

    def collision_among_many(self, session: Session) -> None:
        users = [User(name=f"many {number}") for number in range(40)]
        with self._collisions(*[f"{number:012}" for number in range(30)], A):
            session.add_all(users)
            session.flush()
            self._agree(session, users)

    def collisions_of_core(self, session: Session) -> None:
        with self._collisions(A, *["b" * 12] * 2):
            rows = [{"name": f"core {number}"} for number in range(30)]
            result = session.connection().execute(insert(User.__table__), rows)
            assert result.rowcount in (30, -1), f"rowcount {result.rowcount}"
            assert len(self._rows(session)) == 31, f"{len(self._rows(session))} rows instead of 31"

    def collisions_of_values(self, session: Session) -> None:
        with self._collisions(*["b" * 12] * 2, A):
            session.execute(insert(User).values([{"name": f"value {number}"} for number in range(20)]))
            assert len(self._rows(session)) == 21, f"{len(self._rows(session))} rows instead of 21"

    def collisions_of_returning(self, session: Session) -> None:
        with self._collisions(A, *["b" * 12] * 2, *[f"{number:012}" for number in range(30)], A):
            names = [f"returned {number}" for number in range(40)]
            query = insert(User).returning(User.name, User.public_id, User.id, sort_by_parameter_order=True)
            returned = session.execute(query, [{"name": name} for name in names]).all()
            assert [row.name for row in returned] == names, "the rows have another order"
            rows = self._rows(session)
            assert all(rows[row.name] == (row.public_id, row.id) for row in returned), "returned rows are not stored"

    def violation_of_another_constraint(self, session: Session) -> None:
        session.add_all([User(name=f"many {number}") for number in range(30)] + [User(name="first")])
        try:
            session.flush()
        except IntegrityError:
            session.rollback()
        assert set(self._rows(session)) == {"first"}

    def _upsert(self, **values: Any) -> Any:
        table = User.__table__
        query = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[self._engine.name](table)
        return query.values(name="first").on_conflict_do_update(index_elements=["name"], set_=values)

    def upsert(self, session: Session) -> None:
        session.connection().execute(self._upsert(name="changed"))
        assert self._rows(session)["changed"][0] == A, "the upsert has changed a public id"

    def upsert_that_changes_the_id(self, session: Session) -> None:
        try:
            session.connection().execute(self._upsert(public_id="c" * 12))
        except (ImmutablePublicId, ConfigurationError):
            return
        assert self._warned, "an upsert that changes a public id is neither refused nor warned of"

    def insert_from_select(self, session: Session) -> None:
        refusal = ""
        try:
            session.execute(insert(User).from_select(["name"], select(literal("a")).union_all(select(literal("b")))))
        except Exception as error:
            refusal = str(error)
        assert "public_id" in refusal, "an INSERT from SELECT, which gives every row the same id, is not refused"

    def lookups(self, session: Session) -> None:
        first = lookup.get_one(session, User, A)
        assert lookup.get(session, User, A) is first
        assert lookup.get(session, User, "malformed") is None
        assert lookup.get_many(session, User, [A]) == {A: first}
        assert lookup.get(session, User, A, with_for_update=True) is first
        assert lookup.get_many(session, User, [A], with_for_update=True) == {A: first}
        assert lookup.get_many(session, select(User).where(User.name == "first"), [A]) == {A: first}
        assert lookup.get(session, select(User).where(User.name == "second"), A) is None
        for refused in (select(User).limit(3), select(User).offset(3), select(User).order_by(User.name)):
            try:
                lookup.get(session, refused, A)
            except ConfigurationError:
                continue
            raise AssertionError("a lookup in a sorted or limited statement is not refused")

    def pages(self, session: Session) -> None:
        session.connection().execute(
            insert(User.__table__), [{"name": f"page {number}", "public_id": f"{number:012}"} for number in range(9)]
        )
        pages = select(User).where(User.name.like("page%"))
        first = lookup.page(session, pages, limit=5, order_by=User.name, count=True)
        second = lookup.page(session, pages, limit=5, order_by=User.name, after=first.next)
        assert [user.name for user in (*first, *second)] == [f"page {number}" for number in range(9)]
        hidden = pages.options(with_loader_criteria(User, User.name == "page 4"))
        assert [user.name for user in lookup.page(session, hidden, limit=5)] == ["page 4"]
        repeated = pages.join(Order, Order.id > 0, isouter=True)
        for rows, total in ((pages, 9), (pages.with_for_update(of=User), 9), (hidden, 1), (repeated, 9)):
            counted = lookup.page(session, rows, limit=5, count=True).total
            assert counted == total, f"{counted} rows are counted instead of {total}"
        for refused in (pages.limit(3), pages.order_by(User.name)):
            try:
                lookup.page(session, refused, limit=5)
            except ConfigurationError:
                continue
            raise AssertionError("a page of a sorted or limited statement is not refused")

    def references(self, session: Session) -> None:
        session.add(order := Order(user_public_id=A))
        session.commit()
        session.expire_all()
        assert (order.user_public_id, order.user.public_id) == (A, A)
        order.user = another = User(name="another")
        assert order.user_public_id == another.public_id, "the reference does not follow the relationship"
        session.commit()
        order.user_public_id = A
        order.user = another  # set after it
        session.commit()
        assert order.user_public_id == another.public_id
        order.user_public_id = A
        session.commit()
        assert order.user.public_id == A

    def references_in_an_asynchronous_session(self, session: Session) -> None:
        async def read() -> None:
            engine = create_async_engine("sqlite+aiosqlite://")
            async with engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
            async with AsyncSession(engine) as session:
                session.add(order := Order(user=(user := User(name="first"))))
                await session.commit()
                await session.refresh(order, ["user_id"])
                public_id = await session.run_sync(lambda _: order.user_public_id)
                await session.refresh(user)
                assert public_id == user.public_id
                await session.commit()
                advice = ""
                try:
                    order.user_public_id  # noqa: B018  # outside of a greenlet
                except MissingGreenlet as error:
                    advice = str(error)
                assert "references.load" in advice, "an attribute that cannot wait for the database is not refused"
            await engine.dispose()

        asyncio.run(read())

    def declaration_beside_one_that_failed(self, session: Session) -> None:
        class Own(DeclarativeBase): ...

        failed: list[Exception] = []  # with tracebacks, which keep the class
        try:
            type("Failed", (Own,), {"__tablename__": "failed", "__table_args__": (1,)})
        except ArgumentError as error:
            failed.append(error)

        class Child(PublicIdMixin, Own):
            __tablename__ = "child"
            parent_id: Mapped[int | None] = mapped_column(ForeignKey("parent.id"))
            parent_public_id: Mapped[str | None] = public_ref("parent")

        class Parent(PublicIdMixin, Own):
            __tablename__ = "parent"
            children: Mapped[list[Child]] = relationship(backref="parent")

        Own.registry.configure()
        assert Child(parent=(parent := Parent())).parent_public_id == parent.public_id

    def bulk_insert(self, session: Session) -> None:
        bulk.insert(session, users := [User(name=f"bulk {number}") for number in range(60)])
        self._agree(session, users)
        session.commit()
        users[0].name = "changed"
        session.add(Order(user=users[1]))
        session.commit()
        assert "changed" in self._rows(session), "the change of an object is lost"
        assert len(users[1].orders) == 1, "a relationship of the object lacks a row"

    def bulk_insert_and_rollback(self, session: Session) -> None:
        bulk.insert(session, users := [User(name=f"bulk {number}") for number in range(30)])
        session.rollback()
        assert not any(inspect(user).persistent for user in users), "objects are persistent after the rollback"
        session.add_all(users)
        session.commit()
        self._agree(session, users)

    def bulk_insert_that_fails(self, session: Session) -> None:
        session.add(User(name="before"))
        session.flush()
        try:
            bulk.insert(session, [*(User(name=f"bulk {number}") for number in range(30)), User(name="first")])
        except IntegrityError:
            pass
        else:
            raise AssertionError("no IntegrityError")
        try:
            session.commit()
        except InvalidRequestError:
            session.rollback()
        assert set(self._rows(session)) in ({"first"}, {"first", "before"})

    def bulk_save_objects(self, session: Session) -> None:
        session.bulk_save_objects([User(name="saved")])
        assert "saved" in self._rows(session)

    def merge(self, session: Session) -> None:
        first = lookup.get_one(session, User, A)
        assert session.merge(User(id=first.id, name="merged", public_id=A)) is first
        merged = session.merge(User(name="fresh"))
        session.flush()
        self._agree(session, [first, merged])

    def savepoint(self, session: Session) -> None:
        user = User(name="again")
        with session.begin_nested() as savepoint:
            session.add(user)
            session.flush()
            savepoint.rollback()
        session.add(user)
        session.commit()
        self._agree(session, [user])
        assert session.scalar(select(func.count()).select_from(User)) == 2

    def change_of_an_id(self, session: Session) -> None:
        first = lookup.get_one(session, User, A)
        session.expire(first)
        try:
            first.public_id = "c" * 12
            session.flush()
        except ImmutablePublicId:
            return
        raise AssertionError("the change of a public id is not refused")
