"""A fork waits for a lease under way, because the child would inherit its transaction."""

from __future__ import annotations

import os
import threading
import time
from weakref import WeakSet

TURNS: WeakSet[threading.Lock] = WeakSet()
"""The locks that the threads of this process hold during a lease."""
_LONGEST_FORK = 1.0
"""How many seconds a fork waits at most."""
_held = threading.local()
"""The turns that a thread has taken for its fork."""


def _before_fork() -> None:
    end = time.monotonic() + _LONGEST_FORK
    _held.turns = [turn for turn in list(TURNS) if turn.acquire(timeout=max(end - time.monotonic(), 0))]


def _after_fork() -> None:
    for turn in _held.turns:
        turn.release()
    _held.turns = []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)
