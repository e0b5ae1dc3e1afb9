"""BEFORE INSERT triggers of PostgreSQL that store the row in another table, and return NULL."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import BigInteger, Engine, MetaData, String, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on
from support.ways import Way, each_way, execute, execute_core, flush

from sqlalchemy_public_id import PublicIdColumnMixin

pytestmark = [pytest.mark.backend, on("postgresql")]


class Base(DeclarativeBase):
    metadata = MetaData()


class Event(PublicIdColumnMixin, Base):
    """Its keys are of the program, because a trigger that returns NULL returns no key."""

    __tablename__ = "event"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(String(9))


REDIRECT = """
CREATE TABLE event_2026 (UNIQUE ({unique})) INHERITS (event);
CREATE FUNCTION event_redirect() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO event_2026 VALUES (NEW.*); RETURN NULL; END $$;
CREATE TRIGGER redirect BEFORE INSERT ON event FOR EACH ROW EXECUTE FUNCTION event_redirect();
"""


@pytest.fixture
def redirect(engine: Engine) -> Iterator[Callable[[str], None]]:
    """Create the table, and a trigger that stores each row in a child whose column of this name is unique."""

    def create(unique: str) -> None:
        Base.metadata.create_all(engine)
        with engine.begin() as connection:
            connection.exec_driver_sql(REDIRECT.format(unique=unique))

    yield create
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE event CASCADE; DROP FUNCTION event_redirect")


@pytest.mark.parametrize("unique", ["public_id", "name"])
@pytest.mark.parametrize("names", ["a", "ab"], ids=["one row", "two rows"])
@each_way(flush, execute, execute_core)
def test_row_in_a_child(redirect: Callable[[str], None], session: Session, write: Way, names: str, unique: str) -> None:
    """Each row is stored once, whichever column of the child is unique."""
    redirect(unique)
    write(session, Event, [{"id": at, "name": name} for at, name in enumerate(names)])

    assert list(session.scalars(text("SELECT name FROM event ORDER BY id, name"))) == list(names)
