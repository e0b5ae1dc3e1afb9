"""Run a migration in a separate process, which can be killed."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool
from support.people import People

from sqlalchemy_public_id.migrations import backfill

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pymysql", "psycopg", "sqlalchemy_public_id.alembic.toimpl"])


def in_batches_of(size: int) -> None:
    """Make the backfill use many small batches."""
    original = backfill._Backfill.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        self.progress = replace(self.progress, batch=size)

    backfill._Backfill.__init__ = init
    backfill._SMALLEST = backfill._LARGEST = size


def migrate(url: URL, operation: str, options: dict[str, Any], batch: int | None = None) -> None:
    """Run *operation*, in the child."""
    if batch is not None:
        in_batches_of(batch)
    engine = create_engine(url, poolclass=NullPool)
    People(engine, **options).run(operation)
    engine.dispose()


def start(*arguments: Any, **options: Any) -> Any:
    """Start :func:`migrate` in a child."""
    child = _CONTEXT.Process(target=migrate, args=arguments, kwargs=options)
    child.start()
    return child


def survives(*arguments: Any, **options: Any) -> bool:
    """Run :func:`migrate` in a child; return True if it completes."""
    child = start(*arguments, **options)
    child.join(60)
    return child.exitcode == 0
