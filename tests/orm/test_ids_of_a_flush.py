"""The ids of a flush are drawn in ``before_insert``, wait outside of their objects, and belong to this flush alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import (
    Connection,
    ForeignKey,
    Insert,
    MetaData,
    String,
    select,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, configure_mappers, mapped_column
from support.marks import on
from support.recorded import Base, Note, Recorded, ids_by_name, notes, rows
from support.ways import (
    Way,
    each_way,
    execute,
    execute_core,
    execute_values,
    flush,
    insert_in_bulk,
    insert_mappings,
    save_in_bulk,
)

from sqlalchemy_public_id import NanoId, PublicIdCollision, PublicIdMixin, Uuid7, public_id_column, testing

pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("tables")]

A, B, C, D = (letter * 8 for letter in "abcd")


class Tiny(PublicIdMixin, Base):
    """A table with only two possible ids."""

    __tablename__ = "tiny"
    __public_id__ = NanoId(length=1, alphabet="ab")
    name: Mapped[str | None] = mapped_column(String(20))


class Timed(PublicIdMixin, Base):
    __tablename__ = "timed"
    __public_id__ = Uuid7()
    name: Mapped[str] = mapped_column(String(20))


class Page(PublicIdMixin, Base):
    __tablename__ = "page"
    __public_id__ = NanoId(length=8)
    kind: Mapped[str] = mapped_column(String(20))
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "page"}  # noqa: RUF012


class Article(Page):
    """Has a public id of its own beside the inherited one."""

    __tablename__ = "article"
    id: Mapped[int] = mapped_column(ForeignKey("page.id"), primary_key=True)
    slug: Mapped[str] = public_id_column(NanoId(length=8))
    __mapper_args__ = {"polymorphic_identity": "article"}  # noqa: RUF012


class Versioned(PublicIdMixin, Base):
    __tablename__ = "versioned"
    __public_id__ = NanoId(length=8)
    version: Mapped[int] = mapped_column(nullable=False)
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)
    Recorded.drawn.clear()


# --- who draws


def test_event_draws(session: Session, listen: Callable[..., None]) -> None:
    """When a flush sends its INSERT, the event has drawn the id of each object, and nothing is drawn afterwards."""
    at_insert: list[int] = []

    def before_execute(connection: Connection, statement: Any, *rest: Any) -> None:
        if isinstance(statement, Insert):
            at_insert.append(len(Recorded.drawn))

    listen(session.connection(), "before_execute", before_execute)
    objects = flush(session, Note, [{"name": str(number)} for number in range(30)])

    assert set(at_insert) == {30}
    assert [each.public_id for each in objects] == Recorded.drawn


@each_way(flush, insert_in_bulk, save_in_bulk, insert_mappings, execute, execute_values, execute_core)
@pytest.mark.parametrize("count", [1, 2, 30])
def test_as_many_as_rows(session: Session, write: Way, count: int) -> None:
    """Each way to write draws as many ids as it has rows, and all of them are stored."""
    write(session, Note, [{"name": str(number)} for number in range(count)])

    assert sorted(rows(session, Note).values()) == sorted(Recorded.drawn)
    assert len(Recorded.drawn) == count


@each_way(flush, insert_in_bulk, execute, execute_values, execute_core)
def test_bound(session: Session, statements: list[str], write: Way) -> None:
    """Three rows of a format with two ids raise PublicIdCollision itself, before an INSERT is sent."""
    session.connection()
    with pytest.raises(PublicIdCollision) as error:
        write(session, Tiny, [{"name": str(number)} for number in range(3)])

    assert (error.value.attempts, error.value.capacity) == (1000, 2)
    assert not [each for each in statements if "INSERT" in each]
    session.rollback()
    assert sorted(each.public_id for each in flush(session, Tiny, [{}, {}])) == ["a", "b"]


@pytest.mark.parametrize("reads", ["nothing", "own", "all"])
def test_order_of_objects(session: Session, listen: Callable[..., None], reads: str) -> None:
    """Time-ordered ids are in the order of the objects, although listeners have read some of them."""
    objects = [Timed(name=f"{number:02}") for number in range(30)]

    def read(mapper: object, connection: object, target: Timed) -> None:
        if target.name in {"05", "17"} and reads != "nothing":
            assert all(each.public_id for each in ([target] if reads == "own" else objects[: int(target.name)]))

    listen(Timed, "before_insert", read)
    session.add_all(objects)
    session.flush()

    assert [each.public_id for each in objects] == sorted(each.public_id for each in objects)
    assert rows(session, Timed) == ids_by_name(objects)


# --- what listeners see


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_read_in_a_listener(session: Session, listen: Callable[..., None], is_before: bool) -> None:
    """A listener that reads the id, before or after it is drawn, sees the stored one, and no other one is drawn."""
    read: dict[str, str] = {}

    def look(mapper: object, connection: object, target: Note) -> None:
        read.update(ids_by_name([target]))

    listen(Note, "before_insert", look, insert=is_before)
    objects = notes("a", "b", "c")
    session.add_all(objects)
    session.flush()

    assert read == ids_by_name(objects) == rows(session, Note)
    assert len(Recorded.drawn) == 3


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_read_ids_fit_into_a_small_space(session: Session, listen: Callable[..., None], is_before: bool) -> None:
    """Ids that a listener reads during a flush differ from those of its other objects."""
    read: list[str] = []

    def look(mapper: object, connection: object, target: Tiny) -> None:
        if target.name == "read":
            read.append(target.public_id)

    listen(Tiny, "before_insert", look, insert=is_before)
    for _ in range(5):
        objects = flush(session, Tiny, [{"name": "made"}, {"name": "read"}])
        assert sorted(each.public_id for each in objects) == ["a", "b"]
        assert objects[1].public_id == read[-1]
        session.rollback()


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_assigned_in_a_listener(session: Session, listen: Callable[..., None], is_before: bool) -> None:
    """An id that a listener assigns is stored, and the one that was drawn for the object is given to no other row."""

    def give(mapper: object, connection: object, target: Note) -> None:
        if target.name == "given":
            target.public_id = D

    listen(Note, "before_insert", give, insert=is_before)
    with testing.fixed_ids(Note, A, B, C):
        given, first, second = objects = notes("given", "first", "second")
        session.add_all(objects)
        session.flush()
        [later] = flush(session, Note, [{"name": "later"}])

    assert given.public_id == D
    assert [first.public_id, second.public_id] == ([A, B] if is_before else [B, C])
    assert (later.public_id == C) is is_before
    assert rows(session, Note) == ids_by_name([*objects, later])


def test_discarded_in_a_listener(session: Session, listen: Callable[..., None]) -> None:
    """An object from which a listener removes the id that it has read gets another one, as every object without one."""
    read: list[str] = []

    def discard(mapper: object, connection: object, target: Any) -> None:
        if target.name == "b":
            read.append(target.public_id)
            target.public_id = None

    listen(Note, "before_insert", discard)
    objects = notes("a", "b", "c")
    session.add_all(objects)
    session.flush()

    assert rows(session, Note) == ids_by_name(objects)
    assert read[0] not in rows(session, Note).values()


# --- other mappings


def test_two_ids_of_an_object(session: Session, listen: Callable[..., None]) -> None:
    """An object with an inherited public id and one of its own gets both, and a listener that reads one keeps both."""
    read: list[str] = []

    def look(mapper: object, connection: object, target: Article) -> None:
        read.append(target.slug)

    listen(Article, "before_insert", look)
    with testing.fixed_ids(Page, A, B), testing.fixed_ids(Article, C, D, attribute="slug"):
        articles = [Article(), Article()]
        session.add_all(articles)
        session.flush()

    assert read == [C, D]
    assert [(each.public_id, each.slug) for each in articles] == [(A, C), (B, D)]
    found = session.execute(select(Article.public_id, Article.slug).order_by(Article.id)).all()
    assert list(found) == [(A, C), (B, D)]


def test_versioned_rows(session: Session) -> None:
    """Objects of a model with a version column show the ids of their rows, after a collision, too."""
    with testing.fixed_ids(Versioned, A):
        session.add(Versioned())
        session.flush()
    with testing.fixed_ids(Versioned, A, B, C):
        objects = [Versioned(), Versioned()]
        session.add_all(objects)
        session.flush()

    shown = {each.id: each.public_id for each in objects}
    assert shown == dict(
        session.execute(select(Versioned.id, Versioned.public_id).where(Versioned.id.in_(shown))).all()
    )


@on("sqlite")
def test_id_added_later(session: Session, listen: Callable[..., None]) -> None:
    """The event draws the ids of an attribute that is added to a model after its mapper was configured, too."""

    class Own(DeclarativeBase): ...

    class Late(Own):
        __tablename__ = "late"
        id: Mapped[int] = mapped_column(primary_key=True)

    configure_mappers()
    Late.slug = public_id_column(Recorded(length=8))
    Own.metadata.create_all(session.connection())
    at_insert: list[int] = []

    def look(mapper: object, connection: object, target: object) -> None:
        at_insert.append(len(Recorded.drawn))

    listen(Late, "before_insert", look)
    late: list[Any] = [Late(), Late()]
    session.add_all(late)
    session.flush()

    assert at_insert == [1, 2]
    assert [each.slug for each in late] == Recorded.drawn
    session.rollback()
