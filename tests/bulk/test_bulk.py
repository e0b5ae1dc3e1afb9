"""``bulk.insert`` of many objects, with key and public id, on every database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import JSON, Computed, Engine, MetaData, String, func, insert, inspect, select, text
from sqlalchemy.exc import IntegrityError, PendingRollbackError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from support.interrupt import interrupted
from support.marks import fast_ways, on
from support.members import A, B, Team, TeamId, Tiny, User
from support.rows import agree, stored
from support.ways import Rows, Way, each_way, flush, insert_in_bulk

from sqlalchemy_public_id import InvalidPublicId, NanoId, PublicIdMixin, bulk, public_id_column, testing


class Base(DeclarativeBase):
    metadata = MetaData()


class Wide(PublicIdMixin, Base):
    """A column of each kind that a flush treats differently."""

    __tablename__ = "wide"
    slug: Mapped[str] = public_id_column(NanoId(length=5), name="slug_text")
    text: Mapped[str | None] = mapped_column("renamed", String(50))
    made: Mapped[str | None] = mapped_column(String(50), default=lambda: "made")
    served: Mapped[str | None] = mapped_column(String(50), server_default="served")
    document: Mapped[Any | None] = mapped_column(JSON)
    flag: Mapped[bool | None]
    late: Mapped[str | None] = mapped_column(String(50), deferred=True)
    doubled: Mapped[int | None] = mapped_column(Computed("number * 2", persisted=True))
    number: Mapped[int | None]


def title(context: Any) -> str:
    return (context.get_current_parameters()["name"] or "nobody").title()


class Shown(PublicIdMixin, Base):
    __tablename__ = "shown"
    name: Mapped[str | None] = mapped_column(String(50))
    shown: Mapped[str] = mapped_column(String(50), default=title)


class Computing(PublicIdMixin, Base):
    """Defaults that are SQL expressions with parameters, and a column whose key differs from its name."""

    __tablename__ = "computing"
    name: Mapped[str | None] = mapped_column("na me%", String(50), key="another key")
    computed: Mapped[int] = mapped_column(default=func.abs(-5))


pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("members")]


@pytest.fixture
def others(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def named(count: int) -> Rows:
    return [{"name": str(number)} for number in range(count)]


def names(session: Session, model: type[Any]) -> dict[int, str]:
    """Return key → name of the rows, bypassing the identity map."""
    table = model.__table__
    return dict(session.connection().execute(select(table.c.id, table.c.name)).all())


@pytest.mark.parametrize("count", [5, 3000])
def test_objects_get_key_and_id(session: Session, count: int) -> None:
    """Each object gets the key and the id of its own row, and keys ascend in the order of the objects."""
    users = insert_in_bulk(session, User, named(count))

    agree(session, users)
    assert names(session, User) == {user.id: user.name for user in users}
    assert users == sorted(users, key=lambda user: user.id)


SCATTER = {
    "mysql": "CREATE TRIGGER scatter BEFORE INSERT ON team FOR EACH ROW SET NEW.id = 1 + FLOOR(RAND() * 1000000000)",
    "sqlite": "CREATE TRIGGER scatter AFTER INSERT ON team "
    "BEGIN UPDATE team SET id = abs(random()) % 1000000000 WHERE id = NEW.id; END",
}


@fast_ways
@on("mysql", "sqlite")
def test_keys_that_do_not_lie_together(session: Session, database: str) -> None:
    """Rows with random keys from a trigger are matched to their objects, and other rows are ignored."""
    session.connection().execute(insert(Team), [{"id": 10_000_000 * at, "name": "between"} for at in range(1, 100)])
    session.connection().execute(text(SCATTER[database]))
    teams = insert_in_bulk(session, Team, named(40))

    agree(session, teams)
    assert names(session, Team).items() >= {team.id: team.name for team in teams}.items()


def test_given_ids_are_kept(session: Session) -> None:
    """Given ids are kept in a batch with generated ones."""
    users = insert_in_bulk(session, User, [{}, {"public_id": A}, {}])

    assert users[1].public_id == A
    agree(session, users)


def test_objects_are_persistent_and_clean(session: Session) -> None:
    """The inserted objects are persistent and unmodified, and can be changed, deleted and expired."""
    users = insert_in_bulk(session, User, named(3))
    assert all(inspect(user).persistent for user in users)
    assert not session.dirty
    assert not session.new
    assert [session.get(User, user.id) for user in users] == users
    users[0].name = "changed"
    session.delete(users[1])
    session.commit()

    assert inspect(users[2]).expired_attributes
    assert names(session, User) == {users[0].id: "changed", users[2].id: "2"}


@fast_ways
def test_nothing_is_loaded_afterwards(session: Session, others: None, statements: list[str]) -> None:
    """Keys, ids and values can be read without another statement."""
    wide = insert_in_bulk(session, Wide, [{"text": str(number)} for number in range(3)])
    del statements[:]
    assert [each for each in wide if None in (each.id, each.public_id, each.slug)] == []
    assert [(each.made, each.served, each.flag) for each in wide] == [("made", "served", None)] * 3
    assert not statements


@on("sqlite")
@each_way(flush, insert_in_bulk)
def test_listeners_see_what_was_filled_in(
    session: Session, others: None, listen: Callable[..., None], write: Way
) -> None:
    """``refresh_flush`` listeners are called for each object whose columns the INSERT has filled in."""
    seen: list[Any] = []
    listen(Shown, "refresh_flush", lambda target, context, attributes: seen.append(target.shown))
    write(session, Shown, [{}, {}])

    assert seen == ["Nobody", "Nobody"]


WIDE: list[dict[str, Any]] = [
    {},
    {"text": "x", "made": "given", "served": "given", "flag": True, "late": "late", "number": 4},
    {"made": None, "served": None, "text": None, "document": None},
    {"document": {"a": [1, None]}, "number": 3, "flag": False},
    {"text": "y"},
]


def test_rows_are_those_of_a_flush(session: Session, others: None) -> None:
    """Defaults, NULLs, JSON and its ``null``, renamed, deferred and computed columns are stored as by a flush.

    The objects show the stored values.
    """
    columns = [column for column in Wide.__table__.c if column.name not in ("id", "public_id", "slug_text")]
    query = select(*columns, Wide.document.is_(text("NULL"))).order_by(Wide.__table__.c.id)
    flush(session, Wide, WIDE)
    flushed = session.connection().execute(query).all()
    objects = insert_in_bulk(session, Wide, WIDE)
    assert session.connection().execute(query).all() == flushed * 2

    keys = [each.key for each in inspect(Wide).column_attrs]
    shown = [[getattr(each, key) for key in keys] for each in objects]
    session.expire_all()
    assert shown == [[getattr(each, key) for key in keys] for each in objects]


def test_default_that_looks_at_the_row(session: Session, others: None) -> None:
    """A default function sees all columns, as in a flush; columns that are not set are ``None``."""
    objects = insert_in_bulk(session, Shown, [{"name": "ada"}, {}, {"name": "grace"}])

    assert [each.shown for each in objects] == ["Ada", "Nobody", "Grace"]


@pytest.mark.parametrize("count", [2, 40])
def test_defaults_that_are_expressions(session: Session, others: None, count: int) -> None:
    """The database evaluates defaults that are SQL expressions, even in tables with unusual column names."""
    objects = insert_in_bulk(session, Computing, named(count))

    assert [each.computed for each in objects] == [5] * count
    session.expire_all()
    assert [each.name for each in objects] == [str(number) for number in range(count)]
    agree(session, objects)


# --- collisions and other errors


def test_collisions(session: Session) -> None:
    """Generated ids that are taken or equal are replaced, and each object shows the id of its own row."""
    flush(session, User, [{"name": "first", "public_id": A}])
    session.commit()
    with testing.fixed_ids(User, B, A, B, A):
        users = insert_in_bulk(session, User, named(4))

    agree(session, users)
    assert A not in {user.public_id for user in users}
    assert names(session, User).items() >= {user.id: user.name for user in users}.items()


@pytest.mark.parametrize("rows", [3, 30])
@pytest.mark.parametrize("value", [{"email": "same@example.org"}, {"public_id": A}], ids=["email", "given id"])
def test_failure_requires_a_rollback(session: Session, rows: int, value: dict[str, str]) -> None:
    """A duplicate in another column or of a given id raises, and the session requires a rollback.

    A flush requires one, too. The objects are not in the session afterwards.
    """
    flush(session, User, [{"name": "earlier"}])
    users = [User(name=str(number), **value) for number in range(rows)]
    with pytest.raises(IntegrityError, match=next(iter(value))):
        bulk.insert(session, users)
    with pytest.raises(PendingRollbackError):
        session.commit()
    session.rollback()

    assert stored(session, User) == {}
    assert not any(user in session for user in users)


@on("sqlite")
def test_interrupt(session: Session, engine: Engine) -> None:
    """After a KeyboardInterrupt the objects have no ids, so another attempt generates new ones."""
    users = [User(name=str(number)) for number in range(3)]
    session.connection()
    with interrupted(engine, 1, only=("INSERT",)), pytest.raises(KeyboardInterrupt):
        bulk.insert(session, users)

    assert not any("public_id" in vars(user) for user in users)


def test_malformed_id_is_refused(session: Session) -> None:
    """A malformed id that bypassed the attribute raises when it is sent to the database."""
    users = [User(name="good"), User(name="bad")]
    vars(users[1])["public_id"] = "nonsense"
    with pytest.raises(InvalidPublicId):
        bulk.insert(session, users)


@pytest.mark.parametrize("insert_again", [Session.add_all, bulk.insert])
def test_rollback(session: Session, insert_again: Callable[[Session, list[Any]], None]) -> None:
    """After a rollback the rows are gone, and the objects are transient and can be inserted again."""
    users = insert_in_bulk(session, User, named(3))
    session.rollback()
    assert not any(user in session for user in users)
    assert stored(session, User) == {}
    insert_again(session, users)
    session.commit()

    agree(session, users)


def test_rollback_of_a_savepoint(session: Session) -> None:
    """Rolling back a savepoint removes only the rows that were inserted in it."""
    kept = insert_in_bulk(session, User, named(3))
    savepoint = session.begin_nested()
    lost = insert_in_bulk(session, User, named(3))
    savepoint.rollback()
    session.commit()

    assert not any(user in session for user in lost)
    agree(session, kept)
    assert len(stored(session, User)) == 3


# --- arguments


def test_what_is_pending_is_written_first(session: Session) -> None:
    """Pending objects are flushed first, so the new rows may refer to them."""
    session.add(first := User(team=Team(id=7)))
    users = insert_in_bulk(session, User, [{"team_id": 7}] * 2)

    assert [first, *users] == session.scalars(select(User).where(User.team_id == 7).order_by(User.id)).all()


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_generator(session: Session, count: int) -> None:
    """Objects from a generator, which nothing else references, are inserted, be they none, one or many."""
    bulk.insert(session, (User(**row) for row in named(count)))

    assert sorted(names(session, User).values(), key=int) == [str(number) for number in range(count)]


def test_scoped_session(session: Session, engine: Engine) -> None:
    """A ``scoped_session`` can be passed in place of its session."""
    scoped = scoped_session(sessionmaker(engine))
    try:
        users = insert_in_bulk(scoped, User, named(3))
        assert all(user in scoped for user in users)
        written = {user.id: user.name for user in users}
        scoped.commit()
    finally:
        scoped.remove()

    assert names(session, User) == written


def test_pending_persistent_and_repeated_objects(session: Session) -> None:
    """Each object is inserted once, whatever its state and however often it is passed."""
    pending, persistent, new, other = (User(name=name) for name in ("pending", "stored", "new", "other"))
    session.add(persistent)
    session.commit()
    session.add(pending)
    bulk.insert(session, [pending, new, persistent, other, new])

    agree(session, [pending, new, persistent, other])
    twice, beside = User(name="twice"), User(name="beside")
    bulk.insert(session, [twice, beside, twice])

    agree(session, [twice, beside])
    assert len(stored(session, User)) == 6


def test_objects_of_several_models(session: Session) -> None:
    """Objects of several models may be mixed, and typed ids have the type of their model."""
    mixed: list[Any] = [Team(), User(), User(), Team(), Tiny(), Tiny()]
    bulk.insert(session, mixed)
    teams = insert_in_bulk(session, Team, [{}, {}])

    assert [len(stored(session, model)) for model in (Team, User, Tiny)] == [4, 2, 2]
    assert all(inspect(each).persistent for each in mixed)
    assert {type(team.public_id) for team in teams} == {TeamId}
