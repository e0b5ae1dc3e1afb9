"""Ids of threads, forked processes and signal handlers: whatever a format draws on, no two are alike."""

from __future__ import annotations

import os
import pickle
import signal
import time
from pathlib import Path

import pytest
from support.forks import fork, ignore_fork_warning, in_threads, machine

from sqlalchemy_public_id import Snowflake
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats.parse import known_formats
from sqlalchemy_public_id.formats.pool import RandomText

FORMATS: list[Format] = [Snowflake(machine) if cls is Snowflake else cls() for cls in known_formats().values()]
every_format = pytest.mark.parametrize("format", FORMATS, ids=lambda each: type(each).__name__)
pytestmark = ignore_fork_warning


@every_format
@pytest.mark.usefixtures("restless")
def test_threads(format: Format) -> None:
    """Threads never get the same id, and each sees its own in order, also through copies of the format."""
    twin = pickle.loads(pickle.dumps(format))

    def work() -> list[str]:
        return [id for _ in range(40) for id in (format.generate(), twin.generate(), *format.generate_many(25))]

    made = in_threads(16, work)

    assert len({id for ids in made for id in ids}) == 16 * 40 * 27
    if format.ordered:
        assert all(ids == sorted(ids) for ids in made)


@every_format
def test_children_and_grandchildren(format: Format) -> None:
    """Children, and children of children, repeat neither their parent nor each other, who go on meanwhile."""

    def work() -> list[str]:
        return [format.generate(), *format.generate_many(200)]

    def fork_again() -> list[str]:
        before, grandchild = work(), fork(work)
        return before + work() + grandchild()

    made = work()
    children = [fork(fork_again) for _ in range(4)]
    made += work() + [id for child in children for id in child()]

    assert len(made) == len(set(made)) == (2 + 4 * 3) * 201


@pytest.mark.slow
@every_format
def test_forked_by_threads(format: Format) -> None:
    """Threads that make ids before and after they fork, and threads of their children, share none either."""

    def work() -> list[str]:
        return [format.generate() for _ in range(500)]

    def in_more_threads() -> list[str]:
        return work() + [id for ids in in_threads(4, work) for id in ids]

    def fork_in_thread() -> list[str]:
        before, child = work(), fork(in_more_threads)
        return before + work() + child()

    made = [id for ids in in_threads(4, fork_in_thread) for id in ids]

    assert len(made) == len(set(made)) == 4 * (2 + 5) * 500


def test_fork_while_the_bytes_are_drawn(tmp_path: Path) -> None:
    """A process that forks between drawing bytes and cutting ids (in a signal handler, say) uses them in one only."""
    path = tmp_path / "ids"
    child = None

    def forking(size: int) -> bytes:
        nonlocal child
        drawn = os.urandom(size)
        if child is None:
            child = os.fork()
        return drawn

    texts = RandomText("0123456789abcdef", 12)(1, forking)
    if child == 0:
        path.write_text("\n".join(texts))
        os._exit(0)
    assert child is not None
    assert os.waitpid(child, 0)[1] == 0

    assert not set(texts) & set(path.read_text().splitlines())


@every_format
def test_signal_handlers(format: Format) -> None:
    """A signal handler that makes ids neither waits for the code that it interrupts nor repeats an id."""
    made: list[str] = []
    before = signal.signal(signal.SIGALRM, lambda *_: made.append(format.generate()))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    end = time.monotonic() + 0.4
    try:
        while time.monotonic() < end:
            made += [format.generate()]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert len(made) == len(set(made))
