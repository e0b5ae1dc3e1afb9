"""Random programs of listeners, and what each of their objects may show."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from sqlalchemy import Connection, MetaData, delete, insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from support.recorded import Base, Note, Recorded, notes, rows, table

from sqlalchemy_public_id import testing

pytestmark = pytest.mark.backend


class Refused(Exception):
    """Raised by a listener."""


class Program:
    """Two listeners, before and after the library's, that do something with random objects of a flush.

    It keeps what the application has seen: an id that was read or assigned never changes.
    """

    def __init__(self, random: random.Random, taken: str) -> None:
        self.random = random
        self.taken = taken
        self.objects: list[Note] = []
        self.seen: dict[str, str] = {}
        self.core: set[str] = set()
        self.given_a_taken_id = False
        self.serial = 0

    def names(self, count: int, kind: str) -> list[str]:
        self.serial += count
        return [f"{kind} {self.serial - at}" for at in range(count)]

    def read(self, connection: Connection, target: Any) -> None:
        if target.public_id is not None:  # the attribute shows None after it was assigned, until the INSERT
            assert self.seen.setdefault(target.name, target.public_id) == target.public_id

    def read_another(self, connection: Connection, target: Note) -> None:
        self.read(connection, self.random.choice(self.objects))

    def assign(self, connection: Connection, target: Note) -> None:
        self.seen[target.name] = target.public_id = Recorded(length=8).generate()

    def assign_a_taken_id(self, connection: Connection, target: Note) -> None:
        self.given_a_taken_id = True
        target.public_id = self.taken

    def discard(self, connection: Connection, target: Any) -> None:
        target.public_id = None
        self.seen.pop(target.name, None)

    def write_by_core(self, connection: Connection, target: Note) -> None:
        new = self.names(self.random.randint(1, 3), "core")
        connection.execute(insert(table), [{"name": name} for name in new])
        self.core.update(new)

    def fail_by_core(self, connection: Connection, target: Note) -> None:
        with suppress(IntegrityError), connection.begin_nested():
            connection.execute(insert(table), [{"name": "stored"}])

    def flush_another_session(self, connection: Connection, target: Note) -> None:
        if not target.name.startswith("inner"):
            new = self.names(2, "inner")
            with Session(connection, join_transaction_mode="create_savepoint") as inner:
                objects = notes(*new)
                inner.add_all(objects)
                self.seen.update({each.name: each.public_id for each in objects if self.random.random() < 0.3})
                inner.flush()
                inner.commit()
            self.core.update(new)

    def fail(self, connection: Connection, target: Note) -> None:
        if self.random.random() < 0.1:
            raise Refused

    def listener(self) -> Callable[..., None]:
        steps = [
            self.read,
            self.read,
            self.read_another,
            self.assign,
            self.discard,
            self.write_by_core,
            self.fail_by_core,
            self.flush_another_session,
        ]
        rare = [self.assign_a_taken_id, self.fail]

        def before_insert(mapper: object, connection: Connection, target: Note) -> None:
            if target.name.startswith("inner") or self.random.random() > 0.4:
                return
            self.random.choice(rare if self.random.random() < 0.05 else steps)(connection, target)

        return before_insert


def commit(session: Session) -> Exception | None:
    """Commit, and return the error of the flush, after which the session is rolled back."""
    try:
        session.commit()
    except (Refused, IntegrityError) as error:
        session.rollback()
        return error
    return None


@pytest.mark.parametrize("seed", range(12))
def test_random_listeners(
    session: Session, create: Callable[[MetaData], None], listen: Callable[..., None], seed: int
) -> None:
    """After each flush, objects show the ids of their rows, and every id that was seen before is unchanged.

    Drawn ids collide at random. A flush fails only if a listener fails, or has given an object an id that is taken or
    that collides; then nothing of it is stored. A flush without listeners afterwards draws as many ids as objects.
    """
    create(Base.metadata)
    chosen = random.Random(seed)
    with session.begin():
        [stored] = notes("stored")
        session.add(stored)
        session.flush()
        taken = stored.public_id
    program = Program(chosen, taken)
    listen(Note, "before_insert", program.listener(), insert=True)
    listen(Note, "before_insert", program.listener())
    expected = {"stored": taken}
    for _ in range(8):
        program.objects = notes(*program.names(chosen.choice([1, 2, 7]), "object"))
        program.seen, program.core, program.given_a_taken_id = {}, set(), False
        collides = chosen.random() < 0.3
        session.execute(delete(Note).where(Note.name == "nobody"))  # SQLite begins a transaction with the first write
        session.add_all(program.objects)
        with testing.collisions(Note, taken, times=chosen.randint(1, 3)) if collides else nullcontext():
            error = commit(session)
        if error is not None:
            assert isinstance(error, Refused) or program.given_a_taken_id or collides
            assert rows(session) == expected
            continue
        found = rows(session)
        own = {each.name: each.public_id for each in program.objects}
        assert own.items() <= found.items()
        assert program.seen.items() <= found.items()
        assert found.keys() == expected.keys() | own.keys() | program.core
        assert len({*found.values()}) == len(found)
        assert expected.items() <= found.items()
        expected = found
        session.rollback()

    program.random = _Never()  # type: ignore[assignment]
    Recorded.drawn.clear()
    objects = notes("last 1", "last 2", "last 3")
    session.add_all(objects)
    session.flush()
    assert [each.public_id for each in objects] == Recorded.drawn


class _Never:
    """Chooses nothing: the listeners do nothing."""

    def random(self) -> float:
        return 1.0

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)
