"""What a forked child must not go on with: ids that wait in its parent, and the parent's place in a sequence.

Whoever keeps such a thing says so with :func:`forget_in_child`; a child forgets them all before it runs its first line.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Forgetful", "forget_in_child", "forks"]


class Forgetful(Protocol):
    """What can be forgotten."""

    def forget(self) -> None:
        """Begin anew. Called in a child in which no other thread runs; a lock may be held for ever."""


_watched: weakref.WeakSet[Forgetful] = weakref.WeakSet()
_forks = 0
_watching = False


def forget_in_child(state: Forgetful) -> None:
    """Have *state* forgotten in every child that this process forks, as long as it lives."""
    global _watching
    if not _watching:  # when the first format is made, rather than at import
        _watching = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forget)
    _watched.add(state)


def forks() -> int:
    """How many forks lie between this process and the first one: another number tells of a fork meanwhile."""
    return _forks


def _forget() -> None:
    global _forks
    _forks += 1
    for state in list(_watched):
        state.forget()
