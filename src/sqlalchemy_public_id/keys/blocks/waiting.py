"""One lease at a time, in a thread or in an asyncio task, which all who need numbers wait for: *timeout* at most."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any

from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.util import await_only, greenlet_spawn

from sqlalchemy_public_id.errors import ConfigurationError

Pause = Callable[[float], object]
"""Waits for some seconds."""
Fill = Callable[[int, Pause], None]
"""Leases so many numbers at least, and puts them into memory."""


class ThreadLeases:
    """Leases in a daemon thread each: a wait ends in time, and an interrupted caller leaves the lease intact."""

    def __init__(self, fill: Fill, name: str) -> None:
        self._fill, self._name = fill, f"public-id blocks of {name}"
        self._lock = threading.Lock()
        self._lease: Future[None] | None = None

    def wait(self, count: int, seconds: float) -> bool:
        """Return True if the lease has ended in time. Its error is raised."""
        lease = self._begin(count)
        try:
            lease.result(seconds)
        except FutureTimeout:
            if lease.done():  # an error of the lease itself: TimeoutError is a builtin since Python 3.11
                raise
            return False
        except CancelledError:
            if not lease.cancelled():
                raise
            # its thread was not started; the caller begins another lease
        return True

    def end(self, seconds: float) -> None:
        if self._lease is not None:
            with suppress(FutureTimeout, CancelledError):
                self._lease.exception(seconds)

    def _begin(self, count: int) -> Future[None]:
        lease: Future[None] = Future()
        try:
            with self._lock:
                if self._lease is not None and not self._lease.done():
                    return self._lease
                self._lease = lease
            threading.Thread(target=self._run, args=(lease, count), name=self._name, daemon=True).start()
        except RuntimeError:  # the interpreter ends, or the system has no more threads
            self._run(lease, count)
        except BaseException:  # interrupted: unless the thread runs already, others would wait for nothing
            lease.cancel()
            raise
        return lease

    def _run(self, lease: Future[None], count: int) -> None:
        if not lease.set_running_or_notify_cancel():
            return
        try:
            self._fill(count, time.sleep)
        except BaseException as error:
            lease.set_exception(error)
        else:
            lease.set_result(None)


class TaskLeases:
    """Leases in a task of the running event loop each, awaited inside of SQLAlchemy's greenlet."""

    def __init__(self, fill: Fill) -> None:
        self._fill = fill
        self._lock = threading.Lock()
        self._lease: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def wait(self, count: int, seconds: float) -> bool:
        try:
            return bool(await_only(self._has_ended(count, seconds)))
        except MissingGreenlet as error:
            raise ConfigurationError(
                "the keys in memory are used up, and a lease has to be awaited: write await allocator.anext() or "
                "atake(), or await allocator.areserve(count) before; inside the flush of an AsyncSession, next() waits "
                "by itself"
            ) from error

    def end(self, seconds: float) -> None:
        if self._lease is not None and not self._lease[1].done():
            try:
                await_only(self._cancel(*self._lease, seconds))
            except MissingGreenlet as error:
                raise ConfigurationError(
                    "a lease is under way, and its end has to be awaited: write await allocator.aclose(), or async "
                    "with instead of with"
                ) from error

    def _begin(self, count: int) -> asyncio.Task[Any]:
        loop = asyncio.get_running_loop()
        with self._lock:
            # a lease of another loop never ends: that loop has ended
            if self._lease is not None and self._lease[0] is loop and not self._lease[1].done():
                return self._lease[1]
            task = loop.create_task(greenlet_spawn(self._fill, count, _pause))
            task.add_done_callback(_retrieve_error)
            self._lease = loop, task
            return task

    async def _has_ended(self, count: int, seconds: float) -> bool:
        task = self._begin(count)
        # wait() does not cancel the task with the waiter: others wait for it, too
        await asyncio.wait({task}, timeout=seconds)
        return task.done() and (task.result(), True)[1]

    async def _cancel(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any], seconds: float) -> None:
        if loop is asyncio.get_running_loop():
            await asyncio.wait({task}, timeout=seconds)
            task.cancel()
            await asyncio.wait({task}, timeout=seconds)


def _pause(seconds: float) -> None:
    await_only(asyncio.sleep(seconds))


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # asyncio reports an error that is not retrieved; the next lease raises it
