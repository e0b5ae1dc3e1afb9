"""A dictionary that does not keep its keys alive, for lookups that every statement and session makes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar
from weakref import ref

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class RefDict(dict["ref[Key]", Value]):
    """Reference to a key → value. An entry is removed together with its key.

    The lookup ``values.get(ref(key))`` calls no Python function; a ``WeakKeyDictionary`` calls one for each lookup, and
    takes three times as long.

    >>> class Thing: ...
    >>> thing, counts = Thing(), RefDict[Thing, int]()
    >>> counts.keep(thing, 3)
    3
    >>> counts.get(ref(thing))
    3
    >>> del thing
    >>> len(counts)
    0
    """

    __slots__ = ()

    def keep(self, key: Key, value: Value) -> Value:
        """Set and return the value of *key*."""
        self[ref(key, self._remove)] = value
        return value

    def _remove(self, key: ref[Key]) -> None:
        self.pop(key, None)
