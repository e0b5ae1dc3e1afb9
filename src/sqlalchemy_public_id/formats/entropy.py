"""The random source of all formats: unbiased text from the operating system's generator, in large bites.

``os.urandom`` is asked for some thousand bytes at once. One call of :meth:`bytes.translate` maps each byte to a
character and drops the bytes that would favour some characters, so every character is equally likely (rejection
sampling). What is left is cut into ids, which wait in a list until they are asked for.

**Threads**: ids leave the list by :meth:`list.pop`, which is atomic: no two threads get the same id.
**Fork**: a child empties the list before it runs its first line, so it never repeats an id of its parent.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

__all__ = ["IdPool", "RandomText"]

_CHUNK = 4096

_pools: weakref.WeakSet[IdPool] = weakref.WeakSet()
_epoch = 0
_watching_fork = False


def _forget_after_fork() -> None:
    """Empty every pool in a child process."""
    global _epoch
    _epoch += 1
    for pool in list(_pools):
        pool.clear()


def _watch_fork() -> None:
    """Register the fork hook once, when the first pool is made rather than at import."""
    global _watching_fork
    if not _watching_fork:
        _watching_fork = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forget_after_fork)


class IdPool(list[str]):
    """Ids made ahead of time, the next one at the end."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]  # pools are told apart by identity

    def __init__(self) -> None:
        super().__init__()
        _watch_fork()
        _pools.add(self)


class RandomText:
    """Random texts of one *length* over one *alphabet*, each text equally likely.

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
        """At least *count* texts."""
        wanted = count * self._length
        while True:
            epoch, text = _epoch, ""
            while len(text) < wanted:
                more = max(int((wanted - len(text)) * self._bytes_per_character) + 16, _CHUNK)
                text += urandom(more).translate(self._table, self._drop).decode("ascii")
            if epoch == _epoch:  # not forked meanwhile, by a signal handler say: these bytes are ours alone
                return [text[at : at + self._length] for at in range(0, len(text) - self._length + 1, self._length)]
