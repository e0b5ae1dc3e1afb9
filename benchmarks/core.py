"""The cost of the guard for Core: ``executemany`` on a guarded engine, compared with an unguarded one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, Table, insert

from benchmarks.databases import ALL, Bench, empty
from benchmarks.measure import Comparison, Subject, interleaved
from benchmarks.models import Base

__all__ = ["run"]

_ROWS = 1000


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare one executemany, µs per row; on both sides the column default generates the ids."""
    for database in bench.on(*ALL):
        with database.engines() as (guarded, plain):
            taken = interleaved(_executemany(guarded), _executemany(plain), bench.times(60, 5))
            names = "guard.install(engine)", "no guard"
            yield Comparison.of_times(f"executemany of {_ROWS} rows, {database.name}", names, taken, _ROWS)


def _executemany(engine: Engine) -> Subject:
    table = Base.metadata.tables["user"]
    assert isinstance(table, Table)

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        empty(engine)
        rows = [{"name": f"name {number}", "email": f"{number}@example.org"} for number in range(_ROWS)]
        with engine.connect() as connection:
            connection.begin()
            yield lambda: connection.execute(insert(table), rows)

    return subject
