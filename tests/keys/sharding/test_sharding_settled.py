"""With a hash, the id of an object is settled before its shard is chosen, and stays."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, MetaData, String, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, make_transient, mapped_column
from support.marks import on
from support.shard_files import tables_in

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, lookup, testing
from sqlalchemy_public_id.keys import ShardRouter

pytestmark = on("sqlite")


class Base(DeclarativeBase):
    metadata = MetaData()


class Task(PublicIdMixin, Base):
    __tablename__ = "task"
    name: Mapped[str | None] = mapped_column(String(20))


@pytest.fixture
def engines(database: str, new_engine: Callable[..., Engine]) -> Iterator[dict[str, Engine]]:
    with tables_in({name: new_engine(database) for name in "abc"}, Base.metadata) as found:
        yield found


@pytest.fixture
def router(engines: dict[str, Engine]) -> ShardRouter:
    return ShardRouter(engines, by="hash")


def shards_of(engines: dict[str, Engine]) -> dict[str, str]:
    """Public id → the shard in which its row is."""
    rows: dict[str, str] = {}
    for name, engine in engines.items():
        with Session(engine) as session:
            rows |= dict.fromkeys(session.scalars(select(Task.public_id)), name)
    return rows


def agree(router: ShardRouter, engines: dict[str, Engine], count: int) -> None:
    """Each row is in the shard that its id names, where a lookup finds it."""
    rows = shards_of(engines)

    assert len(rows) == count
    assert {public_id: router.shard_of_id(Task, public_id) for public_id in rows} == rows
    with router.session() as session:
        assert all(lookup.get(session, Task, public_id) for public_id in rows)


COPIES: dict[str, Callable[[Task], Task]] = {
    "pickle": lambda task: pickle.loads(pickle.dumps(task)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", COPIES)
def test_object_that_is_delivered_twice(router: ShardRouter, engines: dict[str, Engine], way: str) -> None:
    """The second copy of an object whose id was read is refused, and stored nowhere."""
    task = Task(name="first")
    assert task.public_id
    for number in range(2):
        delivered = COPIES[way](task)
        with router.session() as session:
            session.add(delivered)
            if number == 0:
                session.commit()
            else:
                with pytest.raises(IntegrityError):
                    session.commit()

    agree(router, engines, 1)
    assert list(shards_of(engines)) == [task.public_id]


@pytest.mark.parametrize("read", [True, False])
def test_two_objects_that_drew_one_id(router: ShardRouter, engines: dict[str, Engine], read: bool) -> None:
    """Two pending objects with one id are refused together."""
    with testing.fixed_ids(Task, "a" * 12, "a" * 12), router.session() as session:
        tasks = [Task(), Task()]
        if read:
            assert tasks[0].public_id == tasks[1].public_id
        session.add_all(tasks)
        with pytest.raises(IntegrityError):
            session.flush()

    assert shards_of(engines) == {}


def test_merged_object_is_found(router: ShardRouter, engines: dict[str, Engine]) -> None:
    """Copies by ``merge()`` are in the shards of their ids."""
    task = Task()
    with router.session() as session:
        merged = [session.merge(task), session.merge(task)]
        session.commit()
        ids = [each.public_id for each in merged]

    assert ids[0] != ids[1]
    agree(router, engines, 2)


def test_object_that_was_rolled_back_is_found(router: ShardRouter, engines: dict[str, Engine]) -> None:
    """After a rollback the object goes to the same shard, with the same id."""
    task = Task()
    with router.session() as session:
        session.add(task)
        session.flush()
        settled = task.public_id
        session.rollback()
        session.add(task)
        session.commit()

        assert task.public_id == settled
    agree(router, engines, 1)


def test_clone_of_a_stored_object_is_refused(router: ShardRouter, engines: dict[str, Engine]) -> None:
    """``make_transient()`` leaves an object the id of its row, which is taken."""
    task = Task()
    assert task.public_id
    with router.session(expire_on_commit=False) as session:
        session.add(task)
        session.commit()
        session.expunge(task)
        make_transient(task)
        task.id = None  # type: ignore[assignment]
        session.add(task)
        with pytest.raises(IntegrityError):
            session.flush()

    agree(router, engines, 1)


def test_expression_tells_no_shard(router: ShardRouter, engines: dict[str, Engine]) -> None:
    """An SQL expression as id is refused, as its value is not known before the row is stored."""
    with router.session() as session:
        session.add(Task(public_id=func.lower("A" * 12)))
        with pytest.raises(ConfigurationError, match="SQL expression"):
            session.flush()

    assert shards_of(engines) == {}
