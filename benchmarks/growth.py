"""Tables that outgrow the memory of the server: rows a second, bytes a row, and how full the pages are.

Each kind of key gets the same two tables with five secondary indexes. They take turns: each writes the same number of
rows, then the next one does, so that all have the same size at any time and share the load of the machine. A turn is
the time of the server and of the driver; ids and statements are made before. Afterwards rows are looked up by what is
shown of them, in the order in which they were drawn.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from sqlalchemy import Engine, create_engine

from benchmarks import writing
from benchmarks.databases import Bench, Database
from benchmarks.kinds import KINDS, NANOID, Tables
from benchmarks.measure import Comparison, Samples, Subject, together
from benchmarks.page_fill import sizes
from benchmarks.small_servers import small

__all__ = ["run"]

_ROWS = 20_000_000
_TURNS = 200
_LARGEST_TURN = 20_000
_RIVALS = [kind.name for kind in KINDS if kind.format is None]
_OURS = [kind.name for kind in KINDS if kind.format is not None]


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the time of a row, and its bytes; fill ``details`` for the picture and the tables."""
    databases = bench.on("postgresql", "mariadb", "mysql")
    for database in databases:
        with small(database) as (url, settings):
            engine = create_engine(url)
            tables = {kind.name: Tables(kind) for kind in KINDS}
            try:
                for each in tables.values():
                    each.metadata.drop_all(engine)
                    each.metadata.create_all(engine)
                seconds = bench.times(int(bench.minutes * 60), 20) / len(databases)
                turns = _grow(engine, tables, bench.rows or bench.times(_ROWS, 4_000), seconds)
                yield from _compared(bench, database, engine, tables, turns, settings)
            finally:
                for each in tables.values():
                    each.metadata.drop_all(engine)
                engine.dispose()


def _grow(engine: Engine, tables: dict[str, Tables], rows: int, seconds: float) -> dict[str, Samples]:
    """Write turn by turn until each kind has so many rows, or the time is over."""
    step = max(min(rows // _TURNS, _LARGEST_TURN), 1_000)
    taken = {name: Samples() for name in tables}
    ends = time.monotonic() + seconds
    connection = engine.raw_connection()
    try:
        while time.monotonic() < ends and tables[NANOID].written < rows and _disk_has_room():
            turn = len(taken[NANOID].wall)
            names = list(tables)[turn % len(tables) :] + list(tables)[: turn % len(tables)]
            for name in names:
                transactions = writing.prepared(engine, tables[name], step)
                cpu, wall = time.process_time(), time.perf_counter()
                writing.write(connection.driver_connection, transactions)
                taken[name].wall.append(time.perf_counter() - wall)
                taken[name].cpu.append(time.process_time() - cpu)
    finally:
        connection.close()
    return taken


def _disk_has_room() -> bool:
    """Tell whether a disk of this machine, on which the servers probably are, will survive another turn."""
    return shutil.disk_usage(tempfile.gettempdir()).free > 10 * 2**30


def _compared(
    bench: Bench,
    database: Database,
    engine: Engine,
    tables: dict[str, Tables],
    turns: dict[str, Samples],
    settings: dict[str, str],
) -> Iterator[Comparison]:
    rows = tables[NANOID].written
    step = rows // len(turns[NANOID].wall)
    last = {name: Samples(taken.wall[-_fifth(taken) :], taken.cpu[-_fifth(taken) :]) for name, taken in turns.items()}
    for ours in _OURS:
        for rival in _RIVALS:
            pair = ours, rival
            yield Comparison.of_times(
                f"writing a row of each table, {database.name}", pair, (turns[ours], turns[rival]), step
            )
            yield Comparison.of_times(
                f"writing the last fifth of all rows, {database.name}", pair, (last[ours], last[rival]), step
            )
    measured = {name: _measured(engine, each) for name, each in tables.items()}
    for ours in _OURS:
        for rival in _RIVALS:
            both = [
                sum(size["bytes_a_row"] for part in measured[name].values() for size in part) for name in (ours, rival)
            ]
            what = f"an account and an entry with their indexes, {database.name}"
            yield Comparison(what, ours, rival, "bytes", [both[0]], [both[1]])
    yield from _lookups(bench, engine, tables, database.name)
    bench.details.setdefault("growth", {})[database.name] = {
        "settings": settings,
        "rows": rows,
        "step": step,
        "seconds": {name: [round(value, 4) for value in taken.wall] for name, taken in turns.items()},
        "sizes": measured,
    }
    speeds = ", ".join(f"{name} {step / median(last[name].wall):,.0f}" for name in tables)
    bench.notes.append(f"growth, {database.name}: rows/s in the last fifth of {rows:,}: {speeds}")


def _fifth(taken: Samples) -> int:
    return max(len(taken.wall) // 5, 1)


def _measured(engine: Engine, tables: Tables) -> dict[str, list[dict[str, Any]]]:
    return {
        "accounts": sizes(engine, tables.accounts, tables.written),
        "entries": sizes(engine, tables.entries, tables.written),
    }


# --- the lookup


def _lookups(bench: Bench, engine: Engine, tables: dict[str, Tables], name: str) -> Iterator[Comparison]:
    """Compare a row by its public id with a row by its key, of the same table and of the others."""
    times, by_key = bench.times(2_000, 100), f"{NANOID}, by its key"
    subjects = {name: _looked_up(engine, each, each.kind.shown_column, times) for name, each in tables.items()}
    subjects[by_key] = _looked_up(engine, tables[NANOID], "id", times)
    taken = together(subjects, bench.times(14, 1))
    for ours in _OURS:
        for rival in (by_key, *_RIVALS):
            yield Comparison.of_times(
                f"looking up an account, {name}", (ours, rival), (taken[ours], taken[rival]), times
            )


def _looked_up(engine: Engine, tables: Tables, column: str, times: int) -> Subject:
    """Read rows one by one with the driver; every sample reads others."""
    type_ = tables.accounts.c[column].type
    part = 1 if column == "public_id" or tables.kind.format is None else 0
    statement = f"SELECT name, email FROM {tables.accounts.name} WHERE {column} = "
    samples = 0

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        nonlocal samples
        at = samples * times % max(len(tables.remembered) - times, 1)
        samples += 1
        texts = [row[part] for row in tables.remembered[at : at + times]]
        statements = [statement + writing.literal(engine, type_, each) for each in texts]
        connection = engine.raw_connection()
        cursor = connection.cursor()
        found: list[Any] = []

        def work() -> None:
            for each in statements:
                cursor.execute(each)
                found.append(cursor.fetchone())

        try:
            yield work
            assert len(found) == len(statements) == times
            assert all(found)
        finally:
            cursor.close()
            connection.close()

    return subject
