"""A fork waits for the end of a lease in a SQLite file: the child would see the file locked for ever.

SQLite keeps the locks of a process in its memory, where the child finds them, but not who could give them back.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Protocol

__all__ = ["Leasing", "have_forks_wait_for"]

_SECONDS = 1.0
"""How long a fork waits at most."""


class Leasing(Protocol):
    """What leases now and then."""

    quiet: threading.Lock
    """Held during a lease; a new one in a child."""


_watched: weakref.WeakSet[Leasing] = weakref.WeakSet()
_watching = False
_here = threading.local()
"""The locks that this thread holds while it forks."""


def have_forks_wait_for(source: Leasing) -> None:
    """Have each fork of this process wait for the lease of *source* that is under way, as long as *source* lives."""
    global _watching
    if not _watching:  # when the first one is made, rather than at import
        _watching = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_wait, after_in_parent=_go_on)
    _watched.add(source)


def _wait() -> None:
    end = time.monotonic() + _SECONDS
    locks = [source.quiet for source in list(_watched)]
    _here.held = [lock for lock in locks if lock.acquire(timeout=max(end - time.monotonic(), 0))]


def _go_on() -> None:
    for lock in _here.held:
        lock.release()
    _here.held = []
