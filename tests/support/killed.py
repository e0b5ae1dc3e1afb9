"""A migration that kills itself at a certain point, in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool
from support.people import People

from sqlalchemy_public_id import backfill
from sqlalchemy_public_id.migrating.steps import Runner

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pymysql", "psycopg", "sqlalchemy_public_id.alembic.toimpl"])


def kill() -> NoReturn:
    """``kill -9``: nothing is closed, nothing is rolled back by us."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


def after(step: str) -> None:
    """Die when *step* is over."""
    original = Runner._run_alone

    def run_alone(self: Any, found: Any, session: Any) -> None:
        original(self, found, session)
        if found.name == step:
            kill()

    Runner._run_alone = run_alone


def amid(step: str, number: int = 1) -> None:
    """Die when the server has done the statement of *step* that has this *number*, and nothing is committed."""
    original = Runner._execute

    def execute(self: Any, found: Any) -> None:
        if found.name == step:
            sent = iter(range(1, 100))

            def count(*_: Any) -> None:
                if next(sent) == number:
                    kill()

            event.listen(self.connection, "after_cursor_execute", count)
            original(self, found)
            event.remove(self.connection, "after_cursor_execute", count)
        else:
            original(self, found)

    Runner._execute = execute


def before_batch(number: int) -> None:
    """Die before a batch of the backfill."""
    _at_batch(number, first=kill)


def after_batch(number: int) -> None:
    """Die after a batch of the backfill."""
    _at_batch(number, then=kill)


def amid_batch(number: int) -> None:
    """Die when the server has done the statements of a batch; where the driver sends COMMIT, before that."""
    original = backfill._Backfill._batch
    batches = iter(range(1, 100))

    def batch(self: Any, window: Any) -> Any:
        fill = type(window).fill.__get__(window)

        def filled(ids: Any) -> Any:
            filled = fill(ids)
            if next(batches) == number:
                kill()
            return filled

        window.fill = filled
        return original(self, window)

    backfill._Backfill._batch = batch


def _at_batch(number: int, first: Callable[[], Any] = int, then: Callable[[], Any] = int) -> None:
    original = backfill._Backfill._batch
    batches = iter(range(1, 100))

    def batch(self: Any, window: Any) -> Any:
        hit = next(batches) == number
        if hit:
            first()
        filled = original(self, window)
        if hit:
            then()
        return filled

    backfill._Backfill._batch = batch


def in_batches_of(size: int) -> None:
    """Let the backfill make small batches, and many."""
    original = backfill._Backfill.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        self.progress = replace(self.progress, batch=size)

    backfill._Backfill.__init__ = init
    backfill._SMALLEST = backfill._LARGEST = size


def migrate(
    url: URL,
    operation: str,
    options: dict[str, Any],
    deadly: Callable[..., None] | None = None,
    *arguments: Any,
    batch: int | None = None,
) -> None:
    """Run in the child: do *operation*, and die in it."""
    if deadly is not None:
        deadly(*arguments)
    if batch is not None:
        in_batches_of(batch)
    engine = create_engine(url, poolclass=NullPool)
    People(engine, **options).run(operation)
    engine.dispose()


def start(*arguments: Any, **options: Any) -> Any:
    """Begin :func:`migrate` in a child."""
    child = _CONTEXT.Process(target=migrate, args=arguments, kwargs=options)
    child.start()
    return child


def survives(*arguments: Any, **options: Any) -> bool:
    """Run :func:`migrate` in a child; whether it came to its end."""
    child = start(*arguments, **options)
    child.join(60)
    assert child.exitcode in (0, -signal.SIGKILL), f"the child ended with {child.exitcode}"
    return child.exitcode == 0
