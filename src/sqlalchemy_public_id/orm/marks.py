"""The origin of the public ids of an object: made by the library, or given by the caller.

An id that the library made for an object without a row may be replaced when it collides. Every other id is kept: one
that the caller gave, and one that a row has had.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, cast

from sqlalchemy.orm import InstanceState
from sqlalchemy.orm.attributes import set_committed_value

__all__ = ["Marks", "marks_of", "replace"]

_MARKS = "sqlalchemy_public_id"


_NONE = frozenset[str]()


class Marks:
    """The marks of one object, each with the names of attributes."""

    __slots__ = ("asked", "copies", "given", "made", "settled", "sources")

    def __init__(
        self,
        given: frozenset[str] = _NONE,
        made: frozenset[str] = _NONE,
        asked: frozenset[str] = _NONE,
        settled: frozenset[str] = _NONE,
    ) -> None:
        self.given = given
        """Ids that are never replaced."""
        self.made = made
        """Ids that the library made on first access, and that no row has yet."""
        self.asked = asked
        """Those of them that were made because ``None`` was assigned."""
        self.settled = settled
        """Ids of a row that ``merge()`` has found by its key, which belong to the row and not to this object."""
        self.copies: dict[str, object] = {}
        """Attribute → the copy by ``merge()`` that has the id. It lives as long as its source, to tell a rollback."""
        self.sources: list[weakref.ref[InstanceState[Any]]] = []
        """Objects that this one is a copy of, and that show its id."""

    def give(self, name: str) -> None:
        """Keep the id in the attribute *name* from now on."""
        self.forget(name)
        self.given |= {name}

    def make(self, name: str) -> None:
        """Let the id in the attribute *name* be replaced if it collides."""
        self.forget(name)
        self.made |= {name}

    def settle(self, name: str) -> None:
        """Let the attribute *name* show the id of a row that another object has."""
        self.forget(name)
        self.settled |= {name}

    def forget(self, name: str) -> None:
        """Remove all marks of the attribute *name*."""
        self.given -= {name}
        self.made -= {name}
        self.asked -= {name}
        self.settled -= {name}
        self.copies.pop(name, None)

    def __reduce__(self) -> tuple[type[Marks], tuple[frozenset[str], ...]]:
        """Pickle the marks alone: other objects stay behind."""
        return Marks, (self.given, self.made, self.asked, self.settled)


_UNMARKED = Marks()


def marks_of(state: InstanceState[Any], *, create: bool = False) -> Marks:
    """Return the marks of an object; empty ones, not to be changed, if it has none and *create* is false."""
    info = vars(state).get("info")  # the attribute would make a dictionary for every object
    found = None if info is None else cast("Marks | None", info.get(_MARKS))
    if found is None and create:
        found = state.info[_MARKS] = Marks()
    return found or _UNMARKED


def replace(state: InstanceState[Any], name: str, new: str) -> None:
    """Have an object, and the sources it was merged from, show the id that its row has now."""
    old = state.dict.get(name)
    for each in (state, *_sources(state)):
        instance = each.obj()
        if instance is not None and each.dict.get(name) == old:
            set_committed_value(instance, name, new)


def _sources(state: InstanceState[Any]) -> Iterator[InstanceState[Any]]:
    for reference in marks_of(state).sources:
        source = reference()
        if source is not None and source.transient:
            yield source
            yield from _sources(source)
