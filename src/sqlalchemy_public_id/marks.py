"""The origin of the public ids of an object: made by the library, or given by the caller.

An id that the library made for an object without a row may be replaced when it collides. Every other id is kept: one
that the caller gave, and one that a row has had.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, cast

from sqlalchemy.orm import InstanceState
from sqlalchemy.orm.attributes import set_committed_value

__all__ = ["Marks", "marks_of", "replace"]

_MARKS = "sqlalchemy_public_id"


class Marks:
    """The marks of one object, each with the names of attributes."""

    __slots__ = ("asked", "copies", "given", "made", "settled", "sources")

    def __init__(self, given: Iterable[str] = (), made: Iterable[str] = ()) -> None:
        self.given = set(given)
        """Ids that are never replaced."""
        self.made = set(made)
        """Ids that the library made on first access, and that no row has yet."""
        self.asked = set[str]()
        """Those of them that were made because ``None`` was assigned."""
        self.settled = set[str]()
        """Attributes of an object whose row belongs to another object: the source of a ``merge()``."""
        self.copies = dict[str, weakref.ref[InstanceState[Any]]]()
        """Attribute → the copy by ``merge()`` that has the id."""
        self.sources: list[weakref.ref[InstanceState[Any]]] = []
        """Objects that this one is a copy of, and that show its id."""

    def give(self, name: str) -> None:
        """Keep the id in the attribute *name* from now on."""
        self.made.discard(name)
        self.asked.discard(name)
        self.settled.discard(name)
        self.given.add(name)

    def make(self, name: str) -> None:
        """Let the id in the attribute *name* be replaced if it collides."""
        self.given.discard(name)
        self.asked.discard(name)
        self.settled.discard(name)
        self.made.add(name)

    def __reduce__(self) -> tuple[type[Marks], tuple[set[str], set[str]]]:
        """Pickle the origin alone: other objects stay behind."""
        return Marks, (self.given, self.made)


_NONE = Marks()


def marks_of(state: InstanceState[Any], *, create: bool = False) -> Marks:
    """Return the marks of an object; empty ones, not to be changed, if it has none and *create* is false."""
    if create:
        found: Marks = state.info.setdefault(_MARKS, Marks())
        return found
    return cast("Marks", state.info.get(_MARKS, _NONE))


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
