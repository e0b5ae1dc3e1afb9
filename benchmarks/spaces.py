"""What a collision costs, and what it costs to write into a space of ids that is almost full.

The space has 36³ ids. Its rows are written before, and stay; the rows that are measured are rolled back. The rival by
hand asks for each id whether it is free, as PlanetScale's ``before_create`` does, or sets a savepoint and tries again.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import product
from statistics import mean
from typing import Any, TypeAlias

import fastnanoid
from sqlalchemy import Engine, exists, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from benchmarks.databases import ALL, Bench, Database
from benchmarks.measure import Comparison, Samples, Subject, together
from benchmarks.models import PlainUser, User, bigint
from benchmarks.rival_models import fast
from benchmarks.statements import recorded
from sqlalchemy_public_id import NanoId, bigint_key, bulk, public_id_column
from sqlalchemy_public_id.formats import BASE36
from sqlalchemy_public_id.testing import collisions

__all__ = ["run"]

_LENGTH = 3
_FULL = 0, 50, 90, 99
"""Percent of the space that is taken."""
_RETRIES = 10_000
"""Of a hundred ids, 99 are taken: a row in 20 000 finds none in a thousand."""

Write: TypeAlias = Callable[[Session, list[Any]], None]


class Base(DeclarativeBase):
    """The table with a narrow format."""


class Narrow(Base):
    """A model with 46 656 ids."""

    __tablename__ = "narrow"
    id: Mapped[int] = bigint_key()
    public_id: Mapped[str] = public_id_column(NanoId(_LENGTH), max_retries=_RETRIES)
    number: Mapped[int]


class PlainBase(DeclarativeBase):
    """The same table without the library."""


class PlainNarrow(PlainBase):
    """The same model by hand."""

    __tablename__ = "narrow"
    id: Mapped[int] = bigint()
    public_id: Mapped[str] = mapped_column()
    number: Mapped[int]


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the time and the statements of a row: with one collision, and in spaces that are more and more full."""
    for database in bench.on(*ALL):
        yield from _one_collision(bench, database)
        yield from _full_spaces(bench, database)


# --- one collision


def _one_collision(bench: Bench, database: Database) -> Iterator[Comparison]:
    with database.engines() as (guarded, plain):
        with Session(guarded) as session, session.begin():
            session.add(ada := User(name="Ada", email="ada@example.org"))
            session.flush()
            taken = ada.public_id
        counts = {engine: recorded(engine) for engine in (guarded, plain)}
        for rows in 1, 100:
            ways = {
                "flush, one collision": (guarded, _flush, True),
                "flush": (guarded, _flush, False),
                "by hand: savepoint, and once more": (plain, _try_again, True),
            }
            if rows > 1:
                ways["bulk.insert(), one collision"] = guarded, _bulk, True
                ways["bulk.insert()"] = guarded, _bulk, False
            sent: dict[str, list[int]] = {name: [] for name in ways}
            subjects = {
                name: _collided(engine, write, rows, taken if collided else None, counts[engine], sent[name])
                for name, (engine, write, collided) in ways.items()
            }
            times = together(subjects, bench.times(30, 2))
            pairs = [("flush, one collision", "flush"), ("flush, one collision", "by hand: savepoint, and once more")]
            pairs += [("bulk.insert(), one collision", "bulk.insert()")] if rows > 1 else []
            for names in pairs:
                what = f"one collision among {rows}, {database.name}"
                yield Comparison.of_times(what, names, (times[names[0]], times[names[1]]), 1)
                yield _statements(what, names, sent, 1)


def _collided(engine: Engine, write: Write, rows: int, taken: str | None, count: list[str], sent: list[int]) -> Subject:
    """Write objects, the first of which collides with the row that has the id *taken*."""

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        with Session(engine) as session:
            session.connection()
            if write is _try_again:
                users: list[Any] = [
                    PlainUser(name="Grace", email="g@example.org", public_id=fast()) for _ in range(rows)
                ]
                users[0].public_id = taken
            else:
                users = [User(name="Grace", email="g@example.org") for _ in range(rows)]
            with collisions(User, taken) if taken and write is not _try_again else nullcontext():
                count.clear()
                yield lambda: write(session, users)
                sent.append(len(count))
            ids = {user.public_id for user in users}
            assert len(ids) == rows
            assert taken not in ids
            model = type(users[0])
            assert set(session.scalars(select(model.public_id).where(model.name == "Grace"))) == ids

    return subject


def _try_again(session: Session, users: list[Any]) -> None:
    """Flush in a savepoint; after an error, make all ids anew."""
    while True:
        try:
            with session.begin_nested():
                session.add_all(users)
                session.flush()
        except IntegrityError:
            for user in users:
                user.public_id = fast()
        else:
            return


# --- full spaces


def _full_spaces(bench: Bench, database: Database) -> Iterator[Comparison]:
    rows = bench.times(100, 10)
    with database.engines() as (guarded, plain):
        counts = {engine: recorded(engine) for engine in (guarded, plain)}
        try:
            ways = {
                "flush": (guarded, Narrow, _flush),
                "bulk.insert()": (guarded, Narrow, _bulk),
                "a SELECT before each INSERT": (plain, PlainNarrow, _ask),
            }
            before: dict[str, Any] = {}
            for percent in _FULL:
                _fill(plain, percent)
                sent: dict[str, list[int]] = {name: [] for name in ways}
                subjects = {
                    name: _written(engine, model, write, rows, counts[engine], sent[name])
                    for name, (engine, model, write) in ways.items()
                }
                times = together(subjects, bench.times(8 if percent < 99 else 4, 1))
                if not percent:
                    before = {"times": times, "sent": sent}
                    continue
                rounds = len(times["flush"].wall)
                empty = {
                    name: Samples(taken.wall[:rounds], taken.cpu[:rounds]) for name, taken in before["times"].items()
                }
                what = f"{rows} rows, {percent} % of 36³ ids taken, {database.name}"
                for name in "flush", "bulk.insert()":
                    names = name, "a SELECT before each INSERT"
                    yield Comparison.of_times(what, names, (times[name], times[names[1]]), rows)
                    yield _statements(what, names, sent, rows)
                    names = name, f"{name}, empty table"
                    yield Comparison.of_times(what, names, (times[name], empty[name]), rows)
                    yield _statements(what, names, sent | {names[1]: before["sent"][name]}, rows)
        finally:
            Base.metadata.drop_all(plain)


def _fill(engine: Engine, percent: int) -> None:
    """Write so much of the space, the same ids on every run."""
    ids = ["".join(letters) for letters in product(BASE36, repeat=_LENGTH)]
    random.Random(percent).shuffle(ids)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    rows = [{"public_id": each, "number": 0} for each in ids[: len(ids) * percent // 100]]
    with engine.begin() as connection:
        for at in range(0, len(rows), 5_000):
            connection.execute(insert(PlainNarrow), rows[at : at + 5_000])


def _written(engine: Engine, model: type[Any], write: Write, rows: int, count: list[str], sent: list[int]) -> Subject:
    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        with Session(engine) as session:
            session.connection()
            objects = [model(number=number) for number in range(1, rows + 1)]
            count.clear()
            yield lambda: write(session, objects)
            sent.append(len(count))
            stored = session.execute(select(model.id, model.public_id).where(model.number > 0)).tuples().all()
            assert {(each.id, each.public_id) for each in objects} == set(stored)
            assert len(stored) == rows

    return subject


def _flush(session: Session, objects: list[Any]) -> None:
    session.add_all(objects)
    session.flush()


def _bulk(session: Session, objects: list[Any]) -> None:
    bulk.insert(session, objects)


def _ask(session: Session, objects: list[Any]) -> None:
    """Look for a free id before each row, and remember those of this flush."""
    chosen: set[str] = set()
    for each in objects:
        ids = (fastnanoid.generate(BASE36, _LENGTH) for _ in itertools.count())
        each.public_id = next(
            public_id
            for public_id in ids
            if public_id not in chosen
            and not session.scalar(select(exists().where(PlainNarrow.public_id == public_id)))
        )
        chosen.add(each.public_id)
    _flush(session, objects)


def _statements(what: str, names: tuple[str, str], sent: dict[str, list[int]], per: int) -> Comparison:
    """Return the statements of a row; their mean, because few rows need very many."""
    ours, rival = ([mean(sent[name]) / per] for name in names)
    return Comparison(f"statements, {what}", *names, "sent", ours, rival, difference=True)
