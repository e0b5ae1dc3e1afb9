"""A migration that kills itself at a certain point, in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from people import People
from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool

from sqlalchemy_public_id import backfill
from sqlalchemy_public_id.migrating import run

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pymysql", "psycopg", "sqlalchemy_public_id.alembic.toimpl"])


def kill() -> NoReturn:
    """``kill -9``: nothing is closed, nothing is rolled back by us."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


def before(step: str) -> None:
    """Die when *step* is to begin."""
    original = run._run_one

    def run_one(found: Any, *rest: Any) -> None:
        if found.name == step:
            kill()
        original(found, *rest)

    run._run_one = run_one


def after(step: str) -> None:
    """Die when *step* is over."""
    original = run._run_one

    def run_one(found: Any, *rest: Any) -> None:
        original(found, *rest)
        if found.name == step:
            kill()

    run._run_one = run_one


def amid(step: str, number: int = 1) -> None:
    """Die when the server has done the statement of *step* that has this *number*, and nothing is committed."""
    original = run._execute

    def execute(connection: Any, found: Any, state: Any) -> None:
        if found.name == step:
            sent = iter(range(1, 100))

            def count(*_: Any) -> None:
                if next(sent) == number:
                    kill()

            event.listen(connection, "after_cursor_execute", count)
            original(connection, found, state)
            event.remove(connection, "after_cursor_execute", count)
        else:
            original(connection, found, state)

    run._execute = execute


def before_batch(number: int) -> None:
    """Die before a batch of the backfill."""
    _at_batch(number, first=kill)


def after_batch(number: int) -> None:
    """Die after a batch of the backfill."""
    _at_batch(number, then=kill)


def amid_batch(number: int) -> None:
    """Die when the server has done the statements of a batch; where the driver sends COMMIT, before that."""
    original = backfill.window_for
    batches = iter(range(1, 100))

    def window_for(*arguments: Any) -> Any:
        window = original(*arguments)
        fill = window.fill

        def filled(ids: Any) -> Any:
            filled = fill(ids)
            if next(batches) == number:
                kill()
            return filled

        window.fill = filled
        return window

    backfill.window_for = window_for


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
