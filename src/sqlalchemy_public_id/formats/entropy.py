"""The random source of all formats: unbiased text from the operating system's generator, in large bites.

``os.urandom`` is asked for some thousand bytes at once. One call of :meth:`bytes.translate` maps each byte to a
character and drops the bytes that would favour some characters, so every character is equally likely (rejection
sampling). What is left is cut into ids, which wait in a list until they are asked for.

**Threads**: ids leave the list by :meth:`list.pop`, which is atomic: no two threads get the same id.
**Fork**: a child empties the list before it runs its first line, so it never repeats an id of its parent.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from sqlalchemy_public_id.formats.forks import forget_in_child, forks

__all__ = ["IdPool", "RandomText"]

_CHUNK = 4096


class IdPool(list[str]):
    """Ids made ahead of time, the next one at the end."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]  # pools are told apart by identity

    def __init__(self) -> None:
        super().__init__()
        forget_in_child(self)

    def forget(self) -> None:
        """Leave the ids to the parent."""
        self.clear()


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
            before, text = forks(), ""
            while len(text) < wanted:
                more = max(int((wanted - len(text)) * self._bytes_per_character) + 16, _CHUNK)
                text += urandom(more).translate(self._table, self._drop).decode("ascii")
            if before == forks():  # not forked meanwhile, by a signal handler say: these bytes are ours alone
                return [text[at : at + self._length] for at in range(0, len(text) - self._length + 1, self._length)]
