"""Leases behind the back of those who take numbers: by a thread, or by a task of the running event loop.

There is one at a time, for as long as the lease takes. Who needs more than there is waits for it, and no longer than
agreed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from typing import Any, Protocol

from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.util import await_only, greenlet_spawn
from sqlalchemy.util.concurrency import in_greenlet

from sqlalchemy_public_id.errors import ConfigurationError

__all__ = ["ByTask", "ByThread", "Refill"]

Pause = Callable[[float], object]
"""Waits for some seconds."""
Fill = Callable[[int, Pause], None]
"""Leases so many numbers at least."""


class Refill(Protocol):
    """A way to lease while others go on."""

    def begin(self, count: int) -> None:
        """Begin to lease *count* numbers or more, unless a lease is under way, or cannot be begun from here."""

    def wait(self, count: int, seconds: float) -> bool:
        """Begin, and wait until the lease has ended; whether it has. What went wrong with it is raised."""
        ...

    def end(self, seconds: float) -> None:
        """Wait so long for a lease that is under way, whatever comes of it."""


class ByThread:
    """By a daemon thread that is there while it leases."""

    def __init__(self, fill: Fill, pause: Pause, name: str) -> None:
        self._fill, self._pause, self._name = fill, pause, name
        self._lock = threading.Lock()
        self._lease: Future[None] | None = None

    def begin(self, count: int) -> None:
        self._begun(count)

    def wait(self, count: int, seconds: float) -> bool:
        return _has_ended(self._begun(count), seconds)

    def end(self, seconds: float) -> None:
        if self._lease is not None:
            with suppress(NotYet, CancelledError):
                self._lease.exception(seconds)

    def _begun(self, count: int) -> Future[None]:
        lease: Future[None] = Future()
        try:
            with self._lock:
                if self._lease is not None and not self._lease.done():
                    return self._lease
                self._lease = lease
            threading.Thread(target=self._run, args=(lease, count), name=self._name, daemon=True).start()
        except RuntimeError:  # the interpreter ends, or the system has no more threads
            self._run(lease, count)
        except BaseException:  # interrupted: unless the thread runs already, nobody leases, and nobody is to wait
            lease.cancel()
            raise
        return lease

    def _run(self, lease: Future[None], count: int) -> None:
        if not lease.set_running_or_notify_cancel():
            return
        try:
            self._fill(count, self._pause)
        except BaseException as error:
            lease.set_exception(error)
        else:
            lease.set_result(None)


def _has_ended(lease: Future[None], seconds: float) -> bool:
    try:
        lease.result(seconds)
    except NotYet:
        if lease.done():  # an error of the lease itself: TimeoutError is a builtin since Python 3.11
            raise
        return False
    except CancelledError:
        if lease.cancelled():
            return True  # it was not begun; who needs it begins another one
        raise
    return True


class ByTask:
    """By a task of the event loop that runs in this thread; whoever waits does so within a greenlet of SQLAlchemy."""

    def __init__(self, fill: Fill) -> None:
        self._fill = fill
        self._lock = threading.Lock()
        self._lease: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def begin(self, count: int) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # whoever runs dry is told
        self._begun(count)

    def wait(self, count: int, seconds: float) -> bool:
        try:
            return bool(await_only(self._ended(count, seconds)))
        except MissingGreenlet as error:
            raise ConfigurationError(
                "the keys in memory are used up, and a lease has to be awaited: write await allocator.anext() or "
                "atake(), or await allocator.areserve(count) before; inside the flush of an AsyncSession, next() waits "
                "by itself"
            ) from error

    def end(self, seconds: float) -> None:
        if self._lease is not None and not self._lease[1].done():
            if not in_greenlet():
                raise ConfigurationError(
                    "a lease is under way, and its end has to be awaited: write await allocator.aclose(), or async "
                    "with instead of with"
                )
            await_only(self._given_up(self._lease, seconds))

    def _begun(self, count: int) -> asyncio.Task[Any]:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._lease is not None and self._lease[0] is loop and not self._lease[1].done():
                return self._lease[1]
            task = loop.create_task(greenlet_spawn(self._fill, count, _pause))
            task.add_done_callback(_look_at)
            self._lease = loop, task
            return task

    async def _ended(self, count: int, seconds: float) -> bool:
        task = self._begun(count)
        await asyncio.wait({task}, timeout=seconds)  # which leaves the task to others when this one is cancelled
        return task.done() and (task.result(), True)[1]

    async def _given_up(self, lease: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]], seconds: float) -> None:
        loop, task = lease
        if loop is asyncio.get_running_loop():
            await asyncio.wait({task}, timeout=seconds)
            task.cancel()
            await asyncio.wait({task}, timeout=seconds)


def _pause(seconds: float) -> None:
    await_only(asyncio.sleep(seconds))


def _look_at(task: asyncio.Task[Any]) -> None:
    """Look at the error of *task*, which asyncio would complain of where nobody waits for it: the next one tells it."""
    if not task.cancelled():
        task.exception()
