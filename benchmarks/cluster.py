"""INSERTs with cluster keys, against a plain identity: a flush of objects, and rows of Core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import BigInteger, Engine, Identity, Integer, String, create_engine, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedColumn, Session, mapped_column

from benchmarks.databases import Bench
from benchmarks.measure import Comparison, Subject, interleaved
from sqlalchemy_public_id.keys import cluster_key, cluster_of

__all__ = ["run"]

_GOAL = 1.03
_CLUSTER = 10


def _plain_key() -> MappedColumn[int]:
    type_ = BigInteger().with_variant(Integer(), "sqlite")
    return mapped_column(type_, Identity(), primary_key=True, autoincrement=True)


_WAYS: dict[str, tuple[Callable[[], MappedColumn[int]], float | None]] = {
    "identity": (lambda: cluster_key(cluster=_CLUSTER), _GOAL),
    "enforce_range": (lambda: cluster_key(cluster=_CLUSTER, enforce_range=True), None),
    "function": (lambda: cluster_key(cluster=_CLUSTER, strategy="function"), None),
}
_LEFT_OUT = {("sqlite", "function"), ("postgresql", "enforce_range")}
"""Combinations that do not exist, or are equal to another one."""


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare INSERTs with each kind of cluster key, µs a row, with those of a plain identity."""
    for database in bench.on("sqlite", "postgresql", "mariadb", "mysql"):
        slow = database.name == "mysql"
        engine = create_engine(database.url)
        try:
            for way, (key, goal) in _WAYS.items():
                if (database.name, way) in _LEFT_OUT:
                    continue
                for what, write, rows in (
                    ("flush", _flush, bench.times(1_000 if slow else 5_000, 200)),
                    ("Core", _core, bench.times(10_000, 500)),
                ):
                    ours = _subject(engine, _model(key(), "ours"), write, rows, _CLUSTER)
                    rival = _subject(engine, _model(_plain_key(), "plain"), write, rows, 0)
                    taken = interleaved(ours, rival, bench.times(40 if goal else 10, 1))
                    names = f"cluster_key(), {way}", "Identity()"
                    yield Comparison.of_times(f"{what} of {rows} rows, {database.name}", names, taken, rows, goal)
        finally:
            engine.dispose()


def _model(key: MappedColumn[int], table: str) -> Any:
    class Base(DeclarativeBase): ...

    class Row(Base):
        __tablename__ = f"bench_{table}"
        id: Mapped[int] = key
        name: Mapped[str] = mapped_column(String(50))

    return Row


def _flush(session: Session, model: Any, rows: int) -> Callable[[], object]:
    objects = [model(name=f"name {number}") for number in range(rows)]

    def work() -> None:
        session.add_all(objects)
        session.flush()

    return work


def _core(session: Session, model: Any, rows: int) -> Callable[[], object]:
    values = [{"name": f"name {number}"} for number in range(rows)]
    connection = session.connection()
    return lambda: connection.execute(insert(model.__table__), values)


def _subject(
    engine: Engine, model: Any, write: Callable[[Session, Any, int], Callable[[], object]], rows: int, cluster: int
) -> Subject:
    """INSERTs into an empty table, in a transaction that has begun; it is rolled back afterwards."""

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        model.metadata.drop_all(engine)
        model.metadata.create_all(engine)
        with Session(engine) as session:
            session.connection()
            yield write(session, model, rows)
            made = session.scalars(select(cluster_of(model.id))).all()
            assert list(made) == [cluster] * rows
            session.rollback()
        model.metadata.drop_all(engine)

    return subject
