"""The columns of rows, before and after a migration, and where the values of a row go that are stored by position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Rule: TypeAlias = Literal["at most", "equal", "any"]
"""How many values a list of columns takes: at most as many as there are columns, equally many, or any number."""


@dataclass(frozen=True)
class Change:
    """The column that a table gets at its end (*adds*), or loses."""

    column: str
    adds: bool

    def of(self, columns: Sequence[str]) -> Shape:
        """Return the shape of the table, which has *columns* now."""
        before = tuple(columns)
        if self.adds:
            return Shape(before, (*before, self.column))
        return Shape(before, tuple(name for name in before if name != self.column))


@dataclass(frozen=True)
class Shape:
    """The columns of a row before and after the migration. A value without a name has its own label."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    is_open: bool = False
    """True if it has further columns that are not known."""

    @classmethod
    def fixed(cls, columns: Iterable[str]) -> Shape:
        """Return a shape that the migration does not change."""
        names = tuple(columns)
        return cls(names, names)

    @property
    def changes(self) -> bool:
        return self.before != self.after


UNKNOWN = Shape(is_open=True)


def joined(shapes: Iterable[Shape]) -> Shape:
    """Return the shape of several parts of a row, one after the other; each value gets a label of its own."""
    before: list[str] = []
    after: list[str] = []
    is_open = False
    for number, shape in enumerate(shapes):
        taken = {*before, *after}
        labels = {name: f"{name} {number}" if name in taken else name for name in (*shape.before, *shape.after)}
        before += [labels[name] for name in shape.before]
        after += [labels[name] for name in shape.after]
        is_open = is_open or shape.is_open
    return Shape(tuple(before), tuple(after), is_open)


def misfit(source: Shape, target: Shape, rule: Rule, change: Change) -> str | None:
    """Return what goes wrong if rows of *source* are stored by position in *target*, and not before the migration.

    The values of the changed column may be stored in a column of its name.
    """
    if not (source.changes or target.changes):
        return None
    if source.is_open or target.is_open:
        if source.changes or target.is_open:
            return "by position"
        if rule == "equal":
            return f"values for {len(target.before)} columns are given by position"
        return "by position" if len(target.after) < len(target.before) else None
    values, places = len(source.after), len(target.after)
    if (values > places and rule != "any") or (values < places and rule == "equal"):
        return f"{values} values would meet {places} columns"
    before = dict(zip(source.before, target.before, strict=False))
    for value, place in zip(source.after, target.after, strict=False):
        if value in before and before[value] != place:
            return f"what is stored in {before[value]} would be stored in {place}"
        if value not in before and place != change.column:
            return f"{value} would be stored in {place}"
    for value, place in before.items():
        if value not in source.after and place != change.column:
            return f"{value} would no longer be stored in {place}"
    return None
