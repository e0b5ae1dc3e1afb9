"""Models of other libraries in the same process, and models that are not mapped to a table of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    Table,
    UniqueConstraint,
    column,
    func,
    insert,
    inspect,
    select,
    table,
    text,
)
from sqlalchemy.ext.declarative import AbstractConcreteBase, ConcreteBase
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, configure_mappers
from support.marks import before_sqlalchemy, on
from support.shapes import SHAPES, new_base
from support.ways import flush

from sqlalchemy_public_id import (
    ConfigurationError,
    ImmutablePublicId,
    NanoId,
    PublicIdMixin,
    Uuid7,
    bigint_key,
    lookup,
    public_id_column,
)
from sqlalchemy_public_id.columns import public_id_columns
from sqlalchemy_public_id.keys import cluster_key

pytestmark = on("sqlite")


def test_key_of_a_joined_table(session: Session) -> None:
    """If the key of a joined table refers to the ids of its base, they are protected in both classes."""
    crate, _ = SHAPES["joined tables whose key is the id"]()
    crate.metadata.create_all(session.get_bind())
    new = crate(name="first")
    shown = new.public_id
    session.add(new)
    session.commit()

    with pytest.raises(ImmutablePublicId):
        new.public_id = type(shown)()
        session.flush()
    session.rollback()
    assert lookup.get(session, crate, shown) is new


# --- models that are not mapped to a table

SELECTABLES: dict[str, Callable[[Table], Any]] = {
    "labelled expression": lambda sale: select(func.coalesce(sale.c.year, 0).label("key")).group_by("key").subquery(),
    "text": lambda sale: text("SELECT year AS key FROM sale").columns(column("key", Integer)).subquery("t"),
    "lightweight table": lambda sale: table("sale", column("id", Integer)),
}


@pytest.mark.parametrize("way", SELECTABLES)
def test_model_on_a_query(session: Session, way: str) -> None:
    """A model without a public id may be mapped to a query, a textual SELECT or a lightweight table."""
    base = new_base()
    sale = Table("sale", base.metadata, Column("id", Integer, primary_key=True), Column("year", Integer))
    base.metadata.create_all(session.get_bind())
    session.execute(insert(sale), [{"year": 2025}, {"year": 2026}])
    selectable = SELECTABLES[way](sale)
    options = {"__table__": selectable, "__mapper_args__": {"primary_key": list(selectable.c)}}
    report = type("Report", (base,), options)

    assert len(session.scalars(select(report)).all()) == 2


def test_model_on_a_query_of_a_model_with_a_public_id(session: Session) -> None:
    """A model mapped to a query of another model reads its ids and generates none."""

    class Base(DeclarativeBase): ...

    class User(PublicIdMixin, Base):
        __tablename__ = "user"
        __public_id__ = NanoId(prefix="queried")

    class Report(Base):
        __table__ = select(User.__table__).subquery()
        __mapper_args__ = {"primary_key": [__table__.c.id]}  # noqa: RUF012

    Base.metadata.create_all(session.get_bind())
    [user] = flush(session, User, [{}])

    assert session.scalars(select(Report)).one().public_id == user.public_id
    assert lookup.resolve(session, user.public_id) is user


# --- concrete tables


not_on_2_0 = pytest.mark.skipif(
    before_sqlalchemy(2, 1), reason="SQLAlchemy 2.0 configures no model of the process after a concrete one was refused"
)


class Base(DeclarativeBase):
    metadata = MetaData()


class Employee(PublicIdMixin, AbstractConcreteBase, Base):
    __public_id__ = NanoId(prefix="concrete_emp")


class Manager(Employee):
    __tablename__ = "manager"
    __mapper_args__ = {"polymorphic_identity": "manager", "concrete": True}  # noqa: RUF012


class Engineer(Employee):
    __tablename__ = "engineer"
    __mapper_args__ = {"polymorphic_identity": "engineer", "concrete": True}  # noqa: RUF012


def test_abstract_concrete_base(session: Session) -> None:
    """Models below an ``AbstractConcreteBase`` share a prefix, and are found through it or their own class."""
    Base.metadata.create_all(session.get_bind())
    staff = [Manager(), Engineer()]
    session.add_all(staff)
    session.commit()
    ids = [each.public_id for each in staff]

    assert {each.public_id for each in session.scalars(select(Employee))} == {*ids}
    assert [lookup.get(session, Employee, each) for each in ids] == staff
    assert [lookup.resolve(session, each) for each in ids] == staff
    assert lookup.get(session, Manager, ids[0]) is staff[0]
    assert lookup.get(session, Manager, ids[1]) is None
    assert lookup.get_many(session, Employee, ids) == dict(zip(ids, staff, strict=True))


@pytest.mark.backend
@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_of_concrete_tables(session: Session, create: Callable[[MetaData], None], newest_first: bool) -> None:
    """Pages of the union contain each row once, although rows of different tables have equal keys."""
    create(Base.metadata)
    session.add_all([Manager() for _ in range(3)] + [Engineer() for _ in range(3)])
    session.commit()
    found, page = [], lookup.page(session, Employee, limit=1, newest_first=newest_first)
    while found.extend(page) or page.next:
        page = lookup.page(session, Employee, limit=1, newest_first=newest_first, after=page.next)

    assert len(found) == len(set(found)) == 6
    keys = [each.id for each in found]
    assert keys == sorted(keys, reverse=newest_first)


def test_id_of_a_concrete_table(session: Session) -> None:
    """An id assigned while it is not loaded is compared with the row in the table of the object's class."""
    Base.metadata.create_all(session.get_bind())
    staff = flush(session, Manager, [{"id": 1}]) + flush(session, Engineer, [{"id": 1}])
    ids = [each.public_id for each in staff]
    session.commit()
    for each, public_id in zip(staff, ids, strict=True):
        each.public_id = public_id
        session.flush()

    assert [each.public_id for each in staff] == ids


CONCRETE: Any = {"concrete": True}


def concrete_models(one: Any, other: Any) -> Any:
    """Return a base and its two concrete subclasses, with ids of these formats."""

    class Apart(DeclarativeBase):
        metadata = MetaData()

    class Post(PublicIdMixin, AbstractConcreteBase, Apart):
        strict_attrs = True

    class Question(Post):
        __tablename__ = "question"
        __public_id__ = one
        __mapper_args__ = CONCRETE | {"polymorphic_identity": "question"}

    class Answer(Post):
        __tablename__ = "answer"
        __public_id__ = other
        __mapper_args__ = CONCRETE | {"polymorphic_identity": "answer"}

    return Post, Question, Answer


@pytest.mark.backend
def test_concrete_tables_with_several_prefixes(session: Session, create: Callable[[MetaData], None]) -> None:
    """Rows of concrete tables, whose ids are text of several formats, are found through their base."""
    models = concrete_models(NanoId(prefix="qst"), Uuid7(prefix="longer", storage="text"))
    post, *below = models
    configure_mappers()
    create(post.metadata)
    rows = [model() for model in below]
    session.add_all(rows)
    session.commit()
    ids = [row.public_id for row in rows]

    assert {each.public_id for each in session.scalars(select(post))} == {*ids}
    assert [lookup.get(session, post, each) for each in ids] == rows
    assert [lookup.resolve(session, each) for each in ids] == rows
    assert lookup.get_many(session, post, ids) == dict(zip(ids, rows, strict=True))
    page = lookup.page(session, post, limit=1)
    following = lookup.page(session, post, limit=1, after=page.next)
    assert {*page, *following} == {*rows}


@not_on_2_0
def test_concrete_tables_with_several_formats_of_numbers(database: str) -> None:
    """A union would show the numbers of all tables in one format: it is refused when the mappers are configured."""
    post, *_ = concrete_models(Uuid7(prefix="qsn"), Uuid7(prefix="asn"))
    with pytest.raises(ConfigurationError, match=r"Post reads tables with ids of two formats.*storage=\"text\""):
        configure_mappers()
    post.registry.dispose()


def test_concrete_tables_with_one_format_of_numbers(database: str) -> None:
    """A union whose tables have ids of one format shows ids of this format."""
    alike, *_ = concrete_models(Uuid7(prefix="alike"), Uuid7(prefix="alike"))
    configure_mappers()
    assert alike.public_id.type.id_format == Uuid7(prefix="alike")


@pytest.mark.parametrize(
    "format", [pytest.param(NanoId(prefix="boss"), marks=not_on_2_0), NanoId(prefix="staff")], ids=repr
)
def test_concrete_base_with_a_table(session: Session, format: Any) -> None:
    """A base that has a table of its own finds the rows of the tables below, which have ids of its format."""

    class Apart(DeclarativeBase):
        metadata = MetaData()

    class Staff(PublicIdMixin, ConcreteBase, Apart):
        __tablename__ = "staff"
        __public_id__ = NanoId(prefix="staff")
        __mapper_args__ = CONCRETE | {"polymorphic_identity": "staff"}

    class Boss(Staff):
        __tablename__ = "boss"
        id: Mapped[int] = bigint_key()
        public_id: Mapped[str] = public_id_column(format)
        __mapper_args__ = CONCRETE | {"polymorphic_identity": "boss"}

    if format.prefix == "boss":
        with pytest.raises(ConfigurationError, match=r"Staff reads tables with ids of two formats.*one format for all"):
            configure_mappers()
        Apart.registry.dispose()
        return
    Apart.metadata.create_all(session.get_bind())
    rows = [Staff(), Boss()]
    session.add_all(rows)
    session.flush()

    assert [lookup.get(session, Staff, row.public_id) for row in rows] == rows
    assert [lookup.resolve(session, row.public_id) for row in rows] == rows


# --- copied tables


class User(PublicIdMixin, Base):
    __tablename__ = "user_"
    __public_id__ = NanoId(prefix="original")


HISTORY = User.__table__.to_metadata(Base.metadata, name="user_history")
HISTORY.append_column(Column("version", Integer, primary_key=True))
HISTORY.c.id.autoincrement = False
HISTORY.indexes.clear()


class UserHistory(PublicIdMixin):
    """Earlier versions of a row, with the mixin of the model, as in SQLAlchemy's example of versioned objects."""

    __init__ = Base.__init__


Base.registry.map_imperatively(UserHistory, HISTORY)

COPY = User.__table__.to_metadata(Base.metadata, name="user_elsewhere")
COPY.indexes.clear()
COPY.append_constraint(UniqueConstraint("public_id"))


class UserElsewhere(Base):
    """A copy of the table, such as one for a tenant."""

    __table__ = COPY


@pytest.fixture
def user(session: Session) -> User:
    HISTORY.c.public_id.nullable = True
    Base.metadata.create_all(session.get_bind())
    return flush(session, User, [{}])[0]


def test_copied_table_claims_no_prefix(session: Session, user: User) -> None:
    """A model on a copied table does not claim the prefix of the original model."""
    assert lookup.resolve(session, user.public_id) is user


def test_history_has_no_ids_of_its_own(session: Session, user: User) -> None:
    """A row of a version table keeps the id it was given, and several versions may share an id."""
    given = [{"id": user.id, "version": number, "public_id": user.public_id} for number in (1, 2)]
    versions = flush(session, UserHistory, given)

    assert [each.public_id for each in versions] == [user.public_id] * 2
    assert UserHistory().public_id is None


def test_default_of_a_history_column_is_none(session: Session, user: User) -> None:
    """The copied column default generates no ids for rows of the version table."""
    session.connection().execute(insert(HISTORY), [{"id": 1, "version": 1}, {"id": 1, "version": 2}])
    flush(session, UserHistory, [{"id": 2, "version": 1}])

    assert session.scalars(select(HISTORY.c.public_id)).all() == [None] * 3


def test_unique_copy_makes_ids(session: Session, user: User) -> None:
    """A copied column that is unique generates ids like the original."""
    [row] = flush(session, UserElsewhere, [{}])
    session.connection().execute(insert(COPY), [{}, {}])

    ids = session.scalars(select(COPY.c.public_id)).all()
    assert row.public_id in ids
    assert len(set(ids)) == 3


def test_copy_of_a_cluster_key(session: Session) -> None:
    """A cluster key that is copied to a version table does not autoincrement, so it gets no counter."""

    class Own(DeclarativeBase): ...

    class Event(Own):
        __tablename__ = "event"
        id: Mapped[int] = cluster_key(cluster=10)

    key = Event.__table__.c.id._copy()
    key.autoincrement = False
    Table("event_version", Own.metadata, key, Column("version", Integer, primary_key=True, autoincrement=False))
    Own.metadata.create_all(session.get_bind())

    assert inspect(session.connection()).has_table("event_version")


def test_history_that_is_unique_with_the_version(session: Session) -> None:
    """A copied column that is unique only together with another column generates no ids."""

    class Own(DeclarativeBase): ...

    class Draft(PublicIdMixin, Own):
        __tablename__ = "draft"

    history = Draft.__table__.to_metadata(Own.metadata, name="draft_history")
    history.indexes.clear()
    history.append_column(Column("version", Integer))
    history.append_constraint(UniqueConstraint("public_id", "version"))
    history.c.public_id.nullable = True
    Own.metadata.create_all(session.get_bind())
    session.connection().execute(insert(history), {"version": 1})

    assert public_id_columns(history) == []
    assert session.scalars(select(history.c.public_id)).all() == [None]
