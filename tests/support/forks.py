"""Run work in threads and in forked children."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable

import pytest

ignore_fork_warning = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
"""Python warns of a fork in a process with threads, which pytest's plugins may have."""

LONGEST = 60
"""Seconds after which a child or a thread counts as hanging."""


def machine() -> int:
    """Return a machine id for this process."""
    return os.getpid() % 1024


def fork(work: Callable[[], list[str]]) -> Callable[[], list[str]]:
    """Start *work* in a forked child; return a function that waits for the child and returns its result."""
    file = tempfile.TemporaryFile("w+")  # noqa: SIM115  answer() closes it
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(LONGEST)
            file.write("\n".join(work()))
            file.flush()
            status = 0
        finally:
            os._exit(status)

    def answer() -> list[str]:
        assert os.waitpid(child, 0)[1] == 0
        with file:
            file.seek(0)
            return file.read().splitlines()

    return answer


def in_child(work: Callable[[], list[str]]) -> list[str]:
    """Return the result of *work* in a forked child."""
    return fork(work)()


def in_threads(count: int, work: Callable[[], list[str]]) -> list[list[str]]:
    """Return the results of *work* in *count* threads, which begin at the same time."""
    answers: list[list[str]] = []
    together = threading.Barrier(count)

    def run() -> None:
        together.wait(LONGEST)
        answers.append(work())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST)
    return answers
