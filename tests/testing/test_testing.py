"""``sqlalchemy_public_id.testing``: fixed ids, and collisions on demand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import MetaData
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session
from support.marks import on

from sqlalchemy_public_id import (
    ConfigurationError,
    Format,
    InvalidPublicId,
    NanoId,
    PublicIdMixin,
    TypedId,
    Ulid,
    Uuid4,
    Uuid7,
    bulk,
    public_id_column,
    testing,
)


class Base(DeclarativeBase):
    metadata = MetaData()


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    __public_id__ = NanoId()
    slug: Mapped[str] = public_id_column(NanoId(length=5))


class GadgetId(TypedId, prefix="testing_gadget"): ...


class Gadget(PublicIdMixin[GadgetId], Base):
    __tablename__ = "gadget"


A, B, C = "a" * 12, "b" * 12, "c" * 12
GADGET = f"testing_gadget_{A}"


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


@pytest.mark.parametrize(
    "format", [NanoId(), Ulid(), Uuid4(encoding="hyphenated"), Uuid7(encoding="hyphenated")], ids=repr
)
def test_ids_come_in_their_order(format: Format) -> None:
    """The fixed ids are generated in their order, singly or at once, and random ids follow."""
    fixed = format.generate_many(2)[::-1]
    with testing.fixed_ids(format, *fixed):
        one_by_one = [format.generate() for _ in range(4)]
    with testing.fixed_ids(format, *fixed):
        at_once = format.generate_many(4)

    assert one_by_one[:2] == at_once[:2] == fixed
    assert len({*one_by_one, *at_once}) == 6


def test_unused_ids_are_forgotten() -> None:
    """Unused fixed ids are discarded at the end of the block, even after an error; pooled ids are kept."""
    format = NanoId()
    format.generate()
    waiting = format._pool[-1]
    with pytest.raises(ZeroDivisionError), testing.fixed_ids(format, A, B, C):
        assert format.generate() == A
        raise ZeroDivisionError

    assert format.generate() == waiting
    assert {B, C}.isdisjoint(format.generate_many(1000))


def test_nested() -> None:
    """The inner ids are generated first, and the rest of the outer ids after the inner block."""
    format = NanoId()
    with testing.fixed_ids(format, A):
        with testing.fixed_ids(format, B, C):
            assert format.generate() == B
        assert format.generate() == A


def test_equal_formats_are_told_apart() -> None:
    """Another format object with the same settings keeps generating random ids."""
    with testing.fixed_ids(NanoId(), A):
        assert NanoId().generate() != A


def test_model() -> None:
    """A model selects the format of its ``public_id``, or of the named attribute; other formats stay random."""
    with testing.fixed_ids(User, A), testing.fixed_ids(User, "slug1", attribute="slug"):
        user = User()
        assert (user.public_id, user.slug) == (A, "slug1")
    with testing.collisions(User, "slug2", attribute="slug"):
        assert (User().slug, User().public_id != A) == ("slug2", True)


@pytest.mark.parametrize("target", [GadgetId, Gadget], ids=["type", "model"])
def test_typed_id(target: type) -> None:
    """A typed id class and its model share the fixed ids, which keep their type."""
    with testing.fixed_ids(target, GADGET, GADGET):
        assert GadgetId() == GADGET
        assert type(Gadget().public_id) is GadgetId
    with testing.fixed_ids(target, GadgetId(GADGET)):
        assert type(GadgetId.id_format.generate()) is str


def test_malformed_id_is_refused() -> None:
    """A fixed id that the format would never generate raises."""
    with pytest.raises(InvalidPublicId), testing.fixed_ids(User, "nonsense"):
        pass


@pytest.mark.parametrize(("target", "message"), [(User, "'name'"), (int, "'int'"), ("User", "'User'")])
def test_wrong_target_is_refused(target: object, message: str) -> None:
    """The error names a target that has no such public id."""
    with pytest.raises(ConfigurationError, match=message), testing.fixed_ids(target, A, attribute="name"):
        pass


def test_collisions_are_what_they_say() -> None:
    """The taken id is generated as often as requested, and then other ids."""
    with testing.collisions(User, A, times=2):
        made = [User().public_id for _ in range(4)]

    assert made.count(A) == 2
    assert made[:2] == [A, A]


@pytest.mark.backend
@pytest.mark.usefixtures("tables")
def test_forced_collision_is_retried(session: Session) -> None:
    """A forced collision is retried by the program under test."""
    session.add(User(public_id=A))
    session.commit()
    with testing.collisions(User, A, times=3):
        users = [User(), User()]
        bulk.insert(session, users)

    assert A not in {user.public_id for user in users}


@on("sqlite")
@pytest.mark.usefixtures("tables")
def test_forced_id_of_the_caller_is_an_error(session: Session) -> None:
    """A duplicate of a given id is a real IntegrityError of the database."""
    session.add_all([User(public_id=A), User(public_id=A)])

    with pytest.raises(IntegrityError):
        session.flush()


PROGRAM = """
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session
from sqlalchemy_public_id import PublicIdMixin, public_id_column

class Base(DeclarativeBase): ...

class User(PublicIdMixin, Base):
    __tablename__ = "user"
    slug: Mapped[str] = public_id_column()

engine = create_engine("sqlite://")
Base.metadata.create_all(engine)

def add(session, user):
    session.add(user)
    session.flush()
    return user.public_id

def test_fixed(fixed_public_ids):
    fixed_public_ids(User, "a" * 12, "b" * 12)
    with Session(engine) as session:
        assert [add(session, User()) for _ in range(2)] == ["a" * 12, "b" * 12]

def test_unused(fixed_public_ids):
    fixed_public_ids(User, "c" * 12)
    fixed_public_ids(User, "d" * 12, attribute="slug")
    assert User().slug == "d" * 12

def test_forced(forced_collisions):
    with Session(engine) as session:
        taken = add(session, User())
        assert taken != "c" * 12
        forced_collisions(User, taken, times=3)
        assert [User().public_id, User().public_id] == [taken, taken]
        assert add(session, User()) != taken
"""


@pytest.mark.slow
def test_pytest_fixtures(tmp_path: Path) -> None:
    """The fixtures work in a project that loads the plugin, and their fixed ids end with the test."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["sqlalchemy_public_id.testing.fixtures"]\n')
    (tmp_path / "test_program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "."]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    assert "3 passed" in run.stdout, run.stdout + run.stderr
