"""What others pay: a program of which a part has public ids, in the parts that have none.

Each sample is a new process, which measures with the library or without it. With it, the process has a model with
public ids, and the engine is guarded; what is measured uses neither. CPU time on SQLite in memory is the strictest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.databases import Bench
from benchmarks.measure import Comparison

__all__ = ["run"]

_GOAL = 1.01
_PROGRAM = """
import gc, json, time
from sqlalchemy import ForeignKey, String, create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlalchemy.pool import StaticPool

class Base(DeclarativeBase):
    pass

class Account(Base):
    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(50))

engine = create_engine("sqlite://", poolclass=StaticPool)
{library}
Base.metadata.create_all(engine)

def flush(session):
    session.add_all(Account(name="Ada") for _ in range({rows}))
    session.flush()

def load(session):
    session.expunge_all()
    assert len(session.query(Account).all()) == {rows}

def connect(_):
    for _ in range({rows}):
        with Session(engine) as session:
            session.connection()

def drop(_):
    for _ in range({rows} // 10):
        session = Session(engine)
        session.add_all([Account(name="Ada") for _ in range(10)])
        session.close()

def execute(session):
    for _ in range({rows}):
        session.execute(query)

query = text("SELECT 1")
taken = {{}}
for turn in range({turns}):
    for name, work in dict(flush=flush, load=load, connect=connect, drop=drop, execute=execute).items():
        with Session(engine) as session:
            session.connection()
            if name == "load":
                flush(session)
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            work(session)
            sample = time.perf_counter() - wall, time.process_time() - cpu
            if turn:
                taken.setdefault(name, []).append(sample)
print(json.dumps({{name: [min(each) for each in zip(*samples)] for name, samples in taken.items()}}))
"""
_LIBRARY = """
from sqlalchemy_public_id import PublicIdMixin
class User(PublicIdMixin, Base):
    __tablename__ = "user"
Base.metadata.create_all(engine)
with Session(engine) as session:
    session.add(User())
    session.commit()
"""
_WHAT = {
    "flush": "a flush of a model without public ids, per row",
    "load": "loading a model without public ids, per row",
    "connect": "a session that only connects",
    "drop": "a pending object that close() drops",
    "execute": "a statement that is no INSERT",
}


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the two processes, µs; of each process, the fastest of its samples counts."""
    rows, turns = bench.times(2_000, 200), bench.times(12, 3)
    programs = {
        name: _PROGRAM.format(library=library, rows=rows, turns=turns)
        for name, library in (("with the library", _LIBRARY), ("without", ""))
    }
    taken: dict[str, dict[str, list[list[float]]]] = {name: {} for name in programs}
    for turn in range(bench.times(24, 2)):
        for name in sorted(programs, reverse=bool(turn % 2)):
            done = subprocess.run([sys.executable, "-c", programs[name]], capture_output=True, text=True, check=True)
            for what, sample in json.loads(done.stdout).items():
                taken[name].setdefault(what, []).append([value * 1e6 / rows for value in sample])
    for what, title in _WHAT.items():
        (our_wall, our_cpu), (rival_wall, rival_cpu) = (
            map(list, zip(*taken[name][what], strict=True)) for name in taken
        )
        names = "with the library", "without"
        goal = None if what == "execute" else _GOAL
        yield Comparison(title, *names, "µs", our_wall, rival_wall, goal, cpu=(our_cpu, rival_cpu))
