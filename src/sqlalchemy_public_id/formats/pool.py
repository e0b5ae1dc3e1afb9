"""Random ids in pools, and the reset of pools and counters in forked children.

``os.urandom`` returns some thousand bytes at once. One call of :meth:`bytes.translate` maps each byte to a character,
and drops the bytes that would favor some characters (rejection sampling). So all characters are equally likely. The
result is cut into ids, which wait in a list.

**Threads**: ids leave the list by :meth:`list.pop`, which is atomic: no two threads get the same id.
**Fork**: a child empties the list before it runs its first line, so it never repeats an id of its parent.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import cache
from operator import itemgetter
from typing import Protocol

_CHUNK = 4096


class ForkReset(Protocol):
    """State that a forked child must not continue: pooled ids, or a place in a sequence."""

    def reset(self) -> None:
        """Discard the state. Runs in a child without other threads; a lock of the parent may be held forever."""


_states: weakref.WeakSet[ForkReset] = weakref.WeakSet()
_forks = 0
"""The number of forks between this process and the first one."""


def reset_in_child(state: ForkReset) -> None:
    """Reset *state* in every forked child, before its first line, as long as *state* exists."""
    _states.add(state)


def _reset_all() -> None:
    global _forks
    _forks += 1
    for state in list(_states):
        state.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)


class IdPool(list[str]):
    """Ids generated ahead of time, the next one at the end."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]  # pools are distinguished by identity

    def __init__(self) -> None:
        super().__init__()
        reset_in_child(self)

    def reset(self) -> None:
        """Discard the ids, which the parent issues."""
        self.clear()


class RandomText:
    """Random strings of one *length* over one *alphabet*, each equally likely.

    >>> texts = RandomText("ab", 5)(3)
    >>> len(texts) >= 3, {len(text) for text in texts}
    (True, {5})
    """

    __slots__ = ("_bytes_per_character", "_drop", "_length", "_table")

    def __init__(self, alphabet: str, length: int) -> None:
        size = len(alphabet)
        keep = 256 - 256 % size
        self._table = (alphabet.encode("ascii") * (256 // size)).ljust(256, b"\0")
        self._drop = bytes(range(keep, 256))
        self._length = length
        self._bytes_per_character = 256 / keep

    def __call__(self, count: int = 1, urandom: Callable[[int], bytes] = os.urandom) -> list[str]:
        """Return *count* strings or more."""
        wanted = count * self._length
        while True:
            before, text = _forks, ""
            while len(text) < wanted:
                more = max(int((wanted - len(text)) * self._bytes_per_character) + 16, _CHUNK)
                text += urandom(more).translate(self._table, self._drop).decode("ascii")
            if before == _forks:  # a signal handler may have forked, and the parent has the same bytes
                return _cut(text, self._length)


_GROUP = 32
"""How many strings one call in C cuts. A loop takes twice as long."""


@cache
def _group_cutter(length: int) -> Callable[[str], tuple[str, ...]]:
    return itemgetter(*(slice(at, at + length) for at in range(0, _GROUP * length, length)))


def _cut(text: str, length: int) -> list[str]:
    """Split *text* into strings of *length* characters, and drop a shorter rest at its end."""
    texts: list[str] = []
    size, cut_group = _GROUP * length, _group_cutter(length)
    for at in range(0, len(text) - size + 1, size):
        texts += cut_group(text[at : at + size])
    return texts + [text[at : at + length] for at in range(len(texts) * length, len(text) - length + 1, length)]
