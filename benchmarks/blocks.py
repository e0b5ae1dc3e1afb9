"""Keys from a block allocator, compared with one transaction per key; keys per second by block size and processes."""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from sqlalchemy import URL, Engine, create_engine, text

from benchmarks.databases import ALL, Bench, Database
from benchmarks.measure import Comparison, Subject, interleaved
from sqlalchemy_public_id.keys import BlockAllocator

__all__ = ["run"]

_BLOCK = 10_000
_BLOCKS = 1, 10, 100, 1_000, 10_000, 100_000
_PROCESSES = 1, 2, 4, 8
_COLOURS = {1: "#0072b2", 2: "#009e73", 4: "#e69f00", 8: "#d55e00"}
_COUNTER = "bench_counter"
_SECONDS = 0.25
"""Seconds for which the processes take keys, per sample of the picture."""

Rates = dict[tuple[int, int | None], list[float]]
"""(processes, block, or None for a transaction per key) → the samples."""

_MOVE = {
    "mysql": f"UPDATE {_COUNTER} SET next = LAST_INSERT_ID(next) + 1",
    "mariadb": f"UPDATE {_COUNTER} SET next = LAST_INSERT_ID(next) + 1",
}
"""The hand-written statements for one key; other databases use ``UPDATE … RETURNING``."""

_names = (f"bench {number}" for number in itertools.count())


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare keys one by one, µs a key, and draw keys a second against block size and processes."""
    keys, transactions, rounds = bench.times(1_000_000, 50_000), bench.times(300, 30), bench.times(15, 3)
    pictures: dict[str, Rates] = {}
    for database in bench.on(*ALL):
        engine = create_engine(database.url)
        try:
            _prepare(engine)
            ours, rival = interleaved(_served(engine, keys), _by_transaction(engine, transactions), rounds)
            key = [seconds * 1e6 / keys for seconds in ours.wall]
            each = [seconds * 1e6 / transactions for seconds in rival.wall]
        finally:
            engine.dispose()
        name = f"next(), block={_BLOCK}"
        what = f"{keys:,} keys, {database.name}"
        yield Comparison(what, name, "one transaction for each key", "µs", key, each)
        yield Comparison(what, name, "1 M keys a second", "µs", key, [1.0] * len(key), goal=1.0)
        pictures[database.name] = _rates(database, bench.times(5, 1), 0.02 if bench.quick else _SECONDS)
    if pictures:
        path = bench.results / "blocks.png"
        _draw(pictures, path)
        bench.details["blocks, keys/s"] = {
            name: {
                f"processes {processes}, block {block or 'none'}": taken for (processes, block), taken in rates.items()
            }
            for name, rates in pictures.items()
        }
        bench.notes.append(f"keys a second by block size and processes: see {path}")


def _prepare(engine: Engine) -> None:
    BlockAllocator(engine, "bench").create_table()
    with engine.begin() as connection:
        connection.execute(text(f"DROP TABLE IF EXISTS {_COUNTER}"))
        connection.execute(text(f"CREATE TABLE {_COUNTER} (next BIGINT NOT NULL)"))
        connection.execute(text(f"INSERT INTO {_COUNTER} VALUES (0)"))


def _served(engine: Engine, keys: int) -> Subject:
    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        with BlockAllocator(engine, next(_names), block=_BLOCK, timeout=60) as allocator:
            allocator.next()  # which makes the row

            def work() -> None:
                take = allocator.next
                for _ in range(keys):
                    take()

            yield work

    return subject


def _by_transaction(engine: Engine, keys: int) -> Subject:
    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        yield lambda: [_one(engine) for _ in range(keys)]

    return subject


def _one(engine: Engine) -> int:
    """Take one key in its own transaction."""
    by_hand = _MOVE.get(engine.dialect.name, f"UPDATE {_COUNTER} SET next = next + 1 RETURNING next - 1")
    with engine.begin() as connection:
        result = connection.execute(text(by_hand))
        return result.lastrowid if engine.dialect.name in _MOVE else result.scalar_one()


# --- several processes


def _rates(database: Database, rounds: int, seconds: float) -> Rates:
    """Measure keys per second of all processes together. Each round measures each cell once, to spread disturbances."""
    rates: Rates = {(processes, block): [] for processes in _PROCESSES for block in (None, *_BLOCKS)}
    for _ in range(rounds):
        for (processes, block), taken in rates.items():
            taken.append(_together(database.url, processes, block, seconds))
    return rates


def _together(url: URL, processes: int, block: int | None, seconds: float) -> float:
    context = multiprocessing.get_context("spawn" if multiprocessing.get_start_method() == "spawn" else "fork")
    ready, answers, name = context.Barrier(processes), context.Queue(), next(_names)
    children = [
        context.Process(target=_child, args=(url, name, block, seconds, ready, answers)) for _ in range(processes)
    ]
    for child in children:
        child.start()
    rates = [answers.get(timeout=120) for _ in children]
    for child in children:
        child.join()
    return sum(rates)


def _child(url: URL, name: str, block: int | None, seconds: float, ready: Any, answers: Any) -> None:
    engine = create_engine(url)
    allocator = BlockAllocator(engine, name, block=block, timeout=60)
    take = allocator.next if block else lambda: _one(engine)
    take()
    ready.wait()
    keys, chunk, began = 0, min(max((block or 1) // 10, 1), 1000), time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        for _ in range(chunk):
            take()
        keys += chunk
    answers.put(keys / passed)
    allocator.close()
    engine.dispose()


# --- the picture


def _draw(pictures: dict[str, Rates], path: Path) -> None:
    figure = Figure(figsize=(4.2 * len(pictures), 4.6), layout="constrained")
    panels = figure.subplots(1, len(pictures), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (name, rates) in zip(panels, pictures.items(), strict=True):
        axes.set(xscale="log", yscale="log", title=name, xlabel="keys in a block")
        axes.grid(alpha=0.3)
        for processes, colour in _COLOURS.items():
            samples = [rates[processes, block] for block in _BLOCKS]
            middle = [statistics.median(taken) for taken in samples]
            below = [at - min(taken) for at, taken in zip(middle, samples, strict=True)]
            above = [max(taken) - at for at, taken in zip(middle, samples, strict=True)]
            label = f"{processes} process{'' if processes == 1 else 'es'}"
            axes.errorbar(_BLOCKS, middle, [below, above], fmt="o-", color=colour, markersize=4, capsize=2, label=label)
            axes.axhline(statistics.median(rates[processes, None]), color=colour, linewidth=0.8, linestyle="--")
        axes.axhline(1e6, color="#999999", linewidth=0.8)
    panels[0].set_ylabel("keys a second, all processes together")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle("Keys a second, median and range; dashed: one transaction for each key; grey: a million")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
