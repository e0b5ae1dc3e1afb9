"""``bulk.insert``: many objects, with key and public id, on every database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import JSON, Computed, Engine, ForeignKey, MetaData, String, func, insert, inspect, select, text
from sqlalchemy.exc import IntegrityError, PendingRollbackError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from support.marks import fast_ways, on
from support.rows import agree, stored

from sqlalchemy_public_id import (
    InvalidPublicId,
    NanoId,
    PublicIdCollision,
    PublicIdMixin,
    TypedId,
    bulk,
    public_id_column,
    testing,
)


class Base(DeclarativeBase):
    metadata = MetaData()


class Team(PublicIdMixin, Base):
    __tablename__ = "team"
    name: Mapped[str | None] = mapped_column(String(50))


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    __public_id__ = NanoId(prefix="usr")
    name: Mapped[str | None] = mapped_column(String(50))
    email: Mapped[str | None] = mapped_column(String(50), unique=True)
    team_id: Mapped[int | None] = mapped_column(ForeignKey("team.id"))


class Tiny(PublicIdMixin, Base):
    """Thirty-six ids in all."""

    __tablename__ = "tiny"
    __public_id__ = NanoId(length=1)
    number: Mapped[int | None]


class Wide(PublicIdMixin, Base):
    """A column of each kind that a flush treats in a way of its own."""

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
    """Defaults that are SQL expressions with parameters of their own, and a key of its own name."""

    __tablename__ = "computing"
    name: Mapped[str | None] = mapped_column("na me%", String(50), key="another key")
    computed: Mapped[int] = mapped_column(default=func.abs(-5))


A = "usr_aaaaaaaaaaaa"
pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("tables")]


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def names(session: Session, model: type[Any]) -> dict[int, str]:
    table = model.__table__
    return dict(session.connection().execute(select(table.c.id, table.c.name)).all())


def test_objects_get_key_and_id(session: Session) -> None:
    """Each object has the key and the id of the row with its values."""
    users = [User(name=f"user {number}") for number in range(5)]
    bulk.insert(session, users)

    agree(session, users)
    assert names(session, User) == {user.id: user.name for user in users}


def test_keys_are_in_the_order_of_the_objects(session: Session) -> None:
    """The first object has the lowest key."""
    users = [User(name=str(number)) for number in range(50)]
    bulk.insert(session, users)

    assert users == sorted(users, key=lambda user: user.id)


SCATTER = {
    "mysql": "CREATE TRIGGER scatter BEFORE INSERT ON team FOR EACH ROW SET NEW.id = 1 + FLOOR(RAND() * 1000000000)",
    "sqlite": "CREATE TRIGGER scatter AFTER INSERT ON team "
    "BEGIN UPDATE team SET id = abs(random()) % 1000000000 WHERE id = NEW.id; END",
}


@fast_ways
@on("mysql", "sqlite")
def test_keys_that_do_not_lie_together(session: Session, database: str) -> None:
    """Rows whose keys a trigger scatters, in any order, are found; the rows between them are passed over."""
    session.connection().execute(insert(Team), [{"id": 10_000_000 * at, "name": "between"} for at in range(1, 100)])
    session.connection().execute(text(SCATTER[database]))
    teams = [Team(name=str(number)) for number in range(40)]
    bulk.insert(session, teams)

    agree(session, teams)
    assert names(session, Team).items() >= {team.id: team.name for team in teams}.items()


@on("mysql")
def test_keys_with_gaps(session: Session) -> None:
    """Where the server counts in steps, each object still has the key of its row."""
    session.connection().execute(text("SET SESSION auto_increment_increment = 3"))
    teams = [Team(name=str(number)) for number in range(40)]
    bulk.insert(session, teams)
    session.connection().execute(text("SET SESSION auto_increment_increment = 1"))

    agree(session, teams)
    assert teams[-1].id - teams[0].id == 3 * 39


def test_five_thousand(session: Session) -> None:
    """A large number of objects is as good as a small one."""
    users = [User(name=str(number)) for number in range(5000)]
    bulk.insert(session, users)

    agree(session, users)
    assert names(session, User) == {user.id: user.name for user in users}


def test_given_ids_are_kept(session: Session) -> None:
    """Among made ids, those that the caller gave stay."""
    users = [User(name="made"), User(name="given", public_id=A), User(name="made")]
    bulk.insert(session, users)

    assert users[1].public_id == A
    agree(session, users)


def test_objects_are_persistent_and_clean(session: Session) -> None:
    """Afterwards the objects are in the session, unmodified, and found in it by key."""
    users = [User(name=str(number)) for number in range(3)]
    bulk.insert(session, users)

    assert all(inspect(user).persistent for user in users)
    assert not session.dirty
    assert not session.new
    assert [session.get(User, user.id) for user in users] == users


@fast_ways
def test_nothing_is_loaded_afterwards(session: Session, statements: list[str]) -> None:
    """Key, ids and values can be read without another statement."""
    wide = [Wide(text=str(number)) for number in range(3)]
    bulk.insert(session, wide)
    del statements[:]
    for each in wide:
        assert each.id
        assert (each.public_id, each.slug) != (None, None)
        assert (each.made, each.served, each.flag) == ("made", "served", None)

    assert not statements


def test_objects_can_be_changed_and_deleted(session: Session) -> None:
    """The objects go on as persistent ones do."""
    users = [User(name=str(number)) for number in range(3)]
    bulk.insert(session, users)
    users[0].name = "changed"
    session.delete(users[1])
    session.commit()

    assert names(session, User) == {users[0].id: "changed", users[2].id: "2"}


WIDE: list[dict[str, Any]] = [
    {},
    {"text": "x", "made": "given", "served": "given", "flag": True, "late": "late", "number": 4},
    {"made": None, "served": None, "text": None, "document": None},
    {"document": {"a": [1, None]}, "number": 3, "flag": False},
    {"text": "y"},
]


def test_rows_are_those_of_a_flush(session: Session) -> None:
    """Defaults, NULLs, JSON, renamed, deferred and computed columns: the same rows as with a flush."""
    columns = [column for column in Wide.__table__.c if column.name not in ("id", "public_id", "slug_text")]
    query = select(*columns).order_by(Wide.__table__.c.id)
    session.add_all([Wide(**values) for values in WIDE])
    session.flush()
    flushed = session.connection().execute(query).all()
    bulk.insert(session, [Wide(**values) for values in WIDE])

    assert session.connection().execute(query).all() == flushed * 2


def test_default_that_looks_at_the_row(session: Session) -> None:
    """A default function sees all columns, as in a flush, those that are not set as ``None``."""
    objects = [Shown(name="ada"), Shown(), Shown(name="grace")]
    bulk.insert(session, objects)

    assert [each.shown for each in objects] == ["Ada", "Nobody", "Grace"]


@pytest.mark.parametrize("count", [2, 40])
def test_defaults_that_are_expressions(session: Session, count: int) -> None:
    """The database evaluates them; odd names of columns are no obstacle."""
    objects = [Computing(name=str(number)) for number in range(count)]
    bulk.insert(session, objects)

    assert [each.computed for each in objects] == [5] * count
    session.expire_all()
    assert [each.name for each in objects] == [str(number) for number in range(count)]
    agree(session, objects)


def test_objects_show_their_rows(session: Session) -> None:
    """What the database and the defaults made is on the objects, attribute by attribute."""
    objects = [Wide(**values) for values in WIDE]
    bulk.insert(session, objects)
    keys = [each.key for each in inspect(Wide).column_attrs]
    shown = [[getattr(each, key) for key in keys] for each in objects]
    session.expire_all()

    assert shown == [[getattr(each, key) for key in keys] for each in objects]


# --- collisions


def test_collision_with_a_stored_row(session: Session) -> None:
    """A made id that is taken is replaced, on the object too."""
    session.add(User(name="first", public_id=A))
    session.commit()
    users = [User(name=str(number)) for number in range(4)]
    with testing.collisions(User, A, times=3):
        bulk.insert(session, users)

    assert A not in {user.public_id for user in users}
    agree(session, users)


def test_collisions_within_the_batch(session: Session) -> None:
    """Equal made ids are told apart, and each object finds its own row."""
    with testing.fixed_ids(User, *[A] * 4):
        users = [User(name=str(number)) for number in range(4)]
        bulk.insert(session, users)

    agree(session, users)
    assert names(session, User) == {user.id: user.name for user in users}


def test_nearly_full_space(session: Session) -> None:
    """Two batches of eighteen find all thirty-six ids."""
    tiny = [Tiny(number=number) for number in range(36)]
    bulk.insert(session, tiny[:18])
    bulk.insert(session, tiny[18:])

    agree(session, tiny)


def test_full_space(session: Session) -> None:
    """A batch that cannot fit is told so, and the transaction can go on after its savepoint."""
    bulk.insert(session, [Tiny(number=number) for number in range(35)])
    tiny = [Tiny(number=number) for number in range(2)]
    with pytest.raises(PublicIdCollision), session.begin_nested():
        bulk.insert(session, tiny)
    bulk.insert(session, [User(name="a"), User(name="b")])
    session.commit()

    assert len(stored(session, Tiny)) == 35
    assert len(stored(session, User)) == 2


def test_given_duplicate_is_an_integrity_error(session: Session) -> None:
    """An id that the caller gave is not replaced; the objects are not in the session then."""
    session.add(User(name="first", public_id=A))
    session.commit()
    users = [User(name="made"), User(name="given", public_id=A)]
    with pytest.raises(IntegrityError):
        bulk.insert(session, users)
    session.rollback()

    assert not any(user in session for user in users)
    assert len(stored(session, User)) == 1


def test_other_constraint_is_an_integrity_error(session: Session) -> None:
    """A duplicate in another column is the error it always was."""
    users = [User(name=str(number), email="same@example.org") for number in range(3)]
    with pytest.raises(IntegrityError, match="email"):
        bulk.insert(session, users)


@pytest.mark.parametrize("rows", [3, 30])
def test_failure_requires_a_rollback(session: Session, rows: int) -> None:
    """After a failure, nothing can be committed before a rollback, as after a flush: earlier rows would be missing."""
    session.add(User(name="earlier"))
    session.flush()
    with pytest.raises(IntegrityError):
        bulk.insert(session, [User(email="same@example.org") for _ in range(rows)])
    with pytest.raises(PendingRollbackError):
        session.commit()
    session.rollback()

    assert stored(session, User) == {}


def test_failure_in_a_savepoint(session: Session) -> None:
    """A savepoint around it keeps what was written before, and the session goes on."""
    session.add(User(name="earlier"))
    with pytest.raises(IntegrityError), session.begin_nested():
        bulk.insert(session, [User(email="same@example.org") for _ in range(30)])
    session.add(User(name="later"))
    session.commit()

    assert len(stored(session, User)) == 2


def test_malformed_id_is_refused(session: Session) -> None:
    """An id that reached the object past its attribute is checked on the way to the database."""
    user = User(name="bad")
    user.__dict__["public_id"] = "nonsense"

    with pytest.raises(InvalidPublicId):
        bulk.insert(session, [User(name="good"), user])


# --- transactions


def test_rollback(session: Session) -> None:
    """After a rollback the rows are gone and the objects are out of the session, ready to be added."""
    users = [User(name=str(number)) for number in range(3)]
    bulk.insert(session, users)
    session.rollback()

    assert not any(user in session for user in users)
    assert stored(session, User) == {}
    session.add_all(users)
    session.commit()
    agree(session, users)


def test_inserted_again_after_a_rollback(session: Session) -> None:
    """The same objects can be inserted once more."""
    users = [User(name=str(number)) for number in range(3)]
    bulk.insert(session, users)
    session.rollback()
    bulk.insert(session, users)
    session.commit()

    agree(session, users)


def test_rollback_of_a_savepoint(session: Session) -> None:
    """A savepoint takes away what was inserted in it, and nothing else."""
    kept, lost = [[User(name=f"{name} {number}") for number in range(3)] for name in ("kept", "lost")]
    bulk.insert(session, kept)
    savepoint = session.begin_nested()
    bulk.insert(session, lost)
    savepoint.rollback()
    session.commit()

    assert not any(user in session for user in lost)
    agree(session, kept)
    assert len(stored(session, User)) == 3


def test_commit_expires_the_objects(session: Session) -> None:
    """After a commit the objects are read anew, as all persistent ones are."""
    users = [User(name=str(number)) for number in range(2)]
    bulk.insert(session, users)
    key = users[0].id
    session.commit()
    with Session(session.get_bind()) as other:
        other.get_one(User, key).name = "changed"
        other.commit()

    assert users[0].name == "changed"


# --- what is given


def test_what_is_pending_is_written_first(session: Session) -> None:
    """Rows that the new ones refer to are there in time."""
    session.add(Team(id=7))
    bulk.insert(session, [User(name=str(number), team_id=7) for number in range(2)])

    assert session.scalars(select(User.team_id)).all() == [7, 7]


@pytest.mark.parametrize("count", [0, 1])
def test_few_objects(session: Session, count: int) -> None:
    """None is no error, and one is written like many."""
    users = [User(name="only") for _ in range(count)]
    bulk.insert(session, iter(users))

    assert {user.id: user.public_id for user in users} == stored(session, User)


@pytest.mark.parametrize("count", [1, 2, 300])
def test_generator(session: Session, count: int) -> None:
    """Objects that nobody but the iterator holds are written like others."""
    bulk.insert(session, (User(name=str(number)) for number in range(count)))

    assert sorted(names(session, User).values(), key=int) == [str(number) for number in range(count)]


def test_scoped_session(session: Session, engine: Engine) -> None:
    """A ``scoped_session`` stands for the session that it has."""
    scoped = scoped_session(sessionmaker(engine))
    users = [User(name=str(number)) for number in range(3)]
    try:
        bulk.insert(scoped, users)
        assert all(user in scoped for user in users)
        written = {user.id: user.name for user in users}
        scoped.commit()
    finally:
        scoped.remove()

    assert names(session, User) == written


def test_pending_persistent_and_repeated_objects(session: Session) -> None:
    """Each object is written once, whatever state it is in and however often it is given."""
    pending, stored_before, new, other = (User(name=name) for name in ("pending", "stored", "new", "other"))
    session.add(stored_before)
    session.commit()
    session.add(pending)
    bulk.insert(session, [pending, new, stored_before, other, new])

    agree(session, [pending, new, stored_before, other])
    assert len(stored(session, User)) == 4


def test_objects_of_several_models(session: Session) -> None:
    """Models may be mixed."""
    mixed = [Team(name="t"), User(name="u"), User(name="v"), Team(name="w"), Tiny(number=1), Tiny(number=2)]
    bulk.insert(session, mixed)

    assert [len(stored(session, model)) for model in (Team, User, Tiny)] == [2, 2, 2]
    assert all(inspect(each).persistent for each in mixed)


class PlayerId(TypedId, prefix="bulkplayer"): ...


class Player(PublicIdMixin[PlayerId], Base):
    __tablename__ = "player"


@on("sqlite")
def test_typed_ids(session: Session) -> None:
    """Each object shows its generated id in the type of the model."""
    players = [Player() for _ in range(3)]
    bulk.insert(session, players)

    assert {type(player.public_id) for player in players} == {PlayerId}
