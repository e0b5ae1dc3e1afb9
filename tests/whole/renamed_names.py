"""Use the library with a SQLAlchemy in which a private name is renamed; ``test_private_names.py`` runs this program.

``python renamed_names.py '[["\\\\b_values\\\\b", "_renamed", ""]]' sqlite://`` rewrites the source of SQLAlchemy while
it is imported, uses the library, and prints the failures as JSON: ``{"failures": ["flush: AttributeError: …"]}``.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

os.environ["DISABLE_SQLALCHEMY_CEXT_RUNTIME"] = "1"  # compiled modules cannot be rewritten
RULES = [(re.compile(old), new, re.compile(files)) for old, new, files in json.loads(sys.argv[1])]
"""A regular expression, its replacement, and the files in which to replace it."""


class RewritingLoader(importlib.machinery.SourceFileLoader):
    """Compiles the source with changed names; an unchanged module is loaded from its cache."""

    rewritten = 0

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        source = original = Path(path).read_text(encoding="utf-8")
        for pattern, replacement, files in RULES:
            if files.search(path):
                source, count = pattern.subn(replacement, source)
                RewritingLoader.rewritten += count
        return super().get_code(fullname) if source == original else compile(source, path, "exec", dont_inherit=True)


class RewritingFinder(importlib.machinery.PathFinder):
    """Finds the modules of SQLAlchemy like Python, but loads them with :class:`RewritingLoader`."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = super().find_spec(fullname, path, target) if fullname.partition(".")[0] == "sqlalchemy" else None
        if spec is None or spec.origin is None:
            return None
        file = spec.origin
        if not file.endswith(".py"):  # a compiled module, with its source in the same folder
            file = str(Path(file).with_name(f"{fullname.rpartition('.')[2]}.py"))
        folders = spec.submodule_search_locations
        return spec_from_file_location(
            fullname, file, loader=RewritingLoader(fullname, file), submodule_search_locations=folders
        )


sys.meta_path.insert(0, RewritingFinder)

from sqlalchemy import ForeignKey, create_engine, delete, insert, inspect, select  # noqa: E402
from sqlalchemy.dialects import postgresql, sqlite  # noqa: E402
from sqlalchemy.exc import IntegrityError, InvalidRequestError  # noqa: E402
from sqlalchemy.orm import (  # noqa: E402
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    relationship,
    with_loader_criteria,
)

from sqlalchemy_public_id import ConfigurationError, ImmutablePublicId, PublicIdMixin, bulk, lookup, testing  # noqa: E402

A, B = "a" * 12, "b" * 12


class Base(DeclarativeBase): ...


class User(PublicIdMixin, Base):
    __tablename__ = "renamed_user"
    name: Mapped[str] = mapped_column(unique=True)
    orders: Mapped[list[Order]] = relationship(back_populates="user")


class Order(PublicIdMixin, Base):
    __tablename__ = "renamed_order"
    user_id: Mapped[int] = mapped_column(ForeignKey(User.id))
    user: Mapped[User] = relationship(back_populates="orders")


table: Any = User.__table__
warned: list[str] = []


@contextmanager
def drawing(*ids: str) -> Iterator[None]:
    """Make *ids* the next ids. Without the guard, a collision warns and raises an IntegrityError."""
    try:
        with testing.fixed_ids(User, *ids):
            yield
    except IntegrityError:
        assert warned


@contextmanager
def refused(*errors: type[Exception]) -> Iterator[None]:
    try:
        yield
    except errors:
        return
    raise AssertionError("it is not refused")


def users(count: int) -> list[User]:
    return [User(name=f"user {number}") for number in range(count)]


def rows(session: Session) -> dict[str, Any]:
    found = session.connection().execute(select(table.c.name, table.c.public_id, table.c.id))
    return {row.name: (row.public_id, row.id) for row in found}


def agree(session: Session, objects: list[User]) -> None:
    stored = rows(session)
    for each in objects:
        assert stored.get(each.name) == (each.public_id, each.id), "the object shows another id than its row"
        assert inspect(each).persistent, "the object is not persistent"
        assert session.get(User, each.id) is each, "the object is not in the identity map"


class Steps:
    """Each method is a step, with its own session and row."""

    def flush(self, session: Session) -> None:
        session.add_all(objects := users(1))
        session.flush()
        agree(session, objects)

    def flush_of_many(self, session: Session) -> None:
        session.add_all(objects := users(60))
        session.add_all(Order(user=user) for user in objects[:3])
        session.flush()
        agree(session, objects)

    def collision(self, session: Session) -> None:
        with drawing(A, A):
            self.flush(session)

    def collisions_of_many(self, session: Session) -> None:
        with drawing(A, B, B, *[f"{number:012}" for number in range(30)], A):
            self.flush_of_many(session)

    def collisions_of_core(self, session: Session) -> None:
        with drawing(A, B, B):
            given = [{"name": f"core {number}"} for number in range(30)]
            assert session.connection().execute(insert(table), given).rowcount in (30, -1)
            assert len(rows(session)) == 31

    def collisions_of_values(self, session: Session) -> None:
        with drawing(B, B, A):
            session.execute(insert(User).values([{"name": f"value {number}"} for number in range(20)]))
            assert len(rows(session)) == 21

    def collisions_of_returning(self, session: Session) -> None:
        with drawing(A, B, B, *[f"{number:012}" for number in range(30)], A):
            names = [f"returned {number}" for number in range(40)]
            query = insert(User).returning(User.name, User.public_id, User.id, sort_by_parameter_order=True)
            returned = session.execute(query, [{"name": name} for name in names]).all()
            assert [row.name for row in returned] == names, "the rows have another order"
            stored = rows(session)
            assert all(stored[row.name] == (row.public_id, row.id) for row in returned), "they are not stored"

    def violation_of_another_constraint(self, session: Session) -> None:
        session.add_all([*users(30), User(name="first")])
        with refused(IntegrityError):
            session.flush()
        session.rollback()
        assert set(rows(session)) == {"first"}

    def upserts(self, session: Session) -> None:
        make: Any = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[session.get_bind().dialect.name]
        upsert = make(table).values(name="first")
        session.connection().execute(upsert.on_conflict_do_update(index_elements=["name"], set_={"name": "changed"}))
        assert rows(session)["changed"][0] == A
        try:
            change = make(table).values(name="changed")
            change = change.on_conflict_do_update(index_elements=["name"], set_={"public_id": B})
            session.connection().execute(change)
        except ImmutablePublicId:
            return
        assert warned, "an upsert that changes a public id is neither refused nor warned of"

    def lookups(self, session: Session) -> None:
        first = lookup.get_one(session, User, A)
        assert lookup.get(session, User, A, with_for_update=True) is first
        assert lookup.get_many(session, select(User).where(User.name == "first"), [A]) == {A: first}
        for statement in (select(User).limit(3), select(User).offset(3), select(User).order_by(User.name)):
            with refused(ConfigurationError):
                lookup.get(session, statement, A)

    def pages(self, session: Session) -> None:
        session.add_all(users(9))
        session.flush()
        pages = select(User).where(User.name.like("user%"))
        first = lookup.page(session, pages, limit=5, order_by=User.name)
        second = lookup.page(session, pages, limit=5, order_by=User.name, after=first.next)
        assert [user.name for user in (*first, *second)] == [f"user {number}" for number in range(9)]
        hidden = pages.options(with_loader_criteria(User, User.name == "user 4"))
        repeated = pages.join(Order, Order.id > 0, isouter=True)
        for query, total in ((pages, 9), (pages.with_for_update(of=User), 9), (hidden, 1), (repeated, 9)):
            assert lookup.page(session, query, limit=5, count=True).total == total
        for statement in (pages.limit(3), pages.order_by(User.name)):
            with refused(ConfigurationError):
                lookup.page(session, statement, limit=5)

    def bulk_insert(self, session: Session) -> None:
        bulk.insert(session, objects := users(60))
        agree(session, objects)
        session.commit()
        objects[0].name = "changed"
        session.add(Order(user=objects[1]))
        session.commit()
        assert "changed" in rows(session), "the change of an object is lost"
        assert len(objects[1].orders) == 1, "a relationship of the object lacks a row"

    def bulk_insert_and_rollback(self, session: Session) -> None:
        bulk.insert(session, objects := users(30))
        session.rollback()
        assert not any(inspect(user).persistent for user in objects), "objects are persistent after the rollback"
        session.add_all(objects)
        session.commit()
        agree(session, objects)

    def bulk_insert_that_fails(self, session: Session) -> None:
        session.add(User(name="before"))
        session.flush()
        with refused(IntegrityError):
            bulk.insert(session, [*users(30), User(name="first")])
        try:
            session.commit()
        except InvalidRequestError:
            session.rollback()
        assert set(rows(session)) in ({"first"}, {"first", "before"})


def failures_of(url: str) -> Iterator[str]:
    engine = create_engine(url)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    for name in [name for name in vars(Steps) if not name.startswith("_")]:
        with Session(engine, expire_on_commit=False) as session:
            session.execute(delete(Order.__table__))
            session.execute(delete(table))
            session.connection().execute(insert(table), {"public_id": A, "name": "first"})
            session.commit()
            try:
                getattr(Steps(), name)(session)
            except Exception as error:
                yield f"{name}: {type(error).__name__}: {error}"
    Base.metadata.drop_all(engine)
    engine.dispose()


if __name__ == "__main__":
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, *_: warned.append(str(message))
    failures = list(failures_of(sys.argv[2]))
    sys.stdout.write(json.dumps({"rewritten": RewritingLoader.rewritten, "failures": failures, "warned": warned}))
