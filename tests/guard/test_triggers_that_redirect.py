"""BEFORE INSERT triggers of PostgreSQL that store the row in another table, and return NULL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import BigInteger, Engine, MetaData, String, insert, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on

from sqlalchemy_public_id import NanoId, PublicIdColumnMixin

pytestmark = [pytest.mark.backend, on("postgresql")]


class Base(DeclarativeBase):
    metadata = MetaData()


class Event(PublicIdColumnMixin, Base):
    """Its keys are of the program, because a trigger that returns NULL returns no key."""

    __tablename__ = "event"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(String(9))


class ByHand(Base):
    """A control without the library."""

    __tablename__ = "by_hand"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    public_id: Mapped[str] = mapped_column(String(12), default=NanoId().generate)
    name: Mapped[str] = mapped_column(String(9))


REDIRECT = """
CREATE TABLE {table}_2026 (UNIQUE ({unique})) INHERITS ({table});
CREATE FUNCTION {table}_redirect() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO {table}_2026 VALUES (NEW.*); RETURN NULL; END $$;
CREATE TRIGGER redirect BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_redirect();
"""


@pytest.fixture
def redirect(engine: Engine) -> Iterator[Callable[[str], None]]:
    """Create the tables, and triggers that store each row in a child whose column of this name is unique."""

    def create(unique: str) -> None:
        Base.metadata.create_all(engine)
        with engine.begin() as connection:
            for table in Base.metadata.tables:
                connection.exec_driver_sql(REDIRECT.format(table=table, unique=unique))

    yield create
    with engine.begin() as connection:
        for table in Base.metadata.tables:
            connection.exec_driver_sql(f"DROP TABLE {table} CASCADE; DROP FUNCTION {table}_redirect")


def flush(session: Session, model: type[Any]) -> None:
    session.add(model(id=1, name="a"))
    session.flush()


def flush_two(session: Session, model: type[Any]) -> None:
    session.add_all([model(id=1, name="a"), model(id=2, name="b")])
    session.flush()


def execute(session: Session, model: type[Any]) -> None:
    session.execute(insert(model.__table__).values(id=1, name="a"))


def execute_many(session: Session, model: type[Any]) -> None:
    session.execute(insert(model), [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])


def names(session: Session, model: type[Any]) -> list[str]:
    return list(session.scalars(text(f"SELECT name FROM {model.__tablename__} ORDER BY id, name")))


def redirected(model: type[Any]) -> list[Any]:
    """Give each way to write to *model*, and the names that it stores."""
    return [(model, way, ["a"]) for way in (flush, execute)] + [
        (model, way, ["a", "b"]) for way in (flush_two, execute_many)
    ]


@pytest.mark.parametrize(
    ("model", "write", "expected"),
    [*redirected(ByHand), *redirected(Event)],
)
def test_unique_ids_in_the_child(
    redirect: Callable[[str], None], session: Session, model: type[Any], write: Callable[..., None], expected: list[str]
) -> None:
    """Each row is stored once if the child has a unique index of public ids."""
    redirect("public_id")
    write(session, model)

    assert expected == names(session, model)


@pytest.mark.parametrize(
    ("model", "write", "expected"),
    [*redirected(ByHand), *redirected(Event)],
)
def test_another_unique_column_in_the_child(
    redirect: Callable[[str], None], session: Session, model: type[Any], write: Callable[..., None], expected: list[str]
) -> None:
    """Each row is stored once if another column of the child is unique."""
    redirect("name")
    write(session, model)

    assert expected == names(session, model)
