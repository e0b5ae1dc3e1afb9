"""The judge of simulations: what must be true of rows, objects and transactions, whatever was written or has failed.

Random programs (``tests/whole/programs``), errors at every call (``tests/faults``) and histories of several processes
(``tests/histories``) expect something of each row, and have found rows; the rules that compare both are here. Nothing
here talks to a database. What only one of them can know stays there: which statement an error may come from, which
order of concurrent operations explains their results, and which shard a row belongs to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

__all__ = [
    "Expected",
    "Finding",
    "Name",
    "Row",
    "Rows",
    "Shown",
    "Stored",
    "combine",
    "find_halves",
    "find_strangers",
    "find_wrong_objects",
    "find_wrong_rows",
    "group_rows",
]

Name: TypeAlias = int | str
"""Identifies a row independently of its id and key. It is not unique in the table, so that a second row is found."""


class Row(NamedTuple):
    """A row; ``None`` stands for what is not known."""

    key: int | None = None
    public_id: str | None = None
    reference: str | None = None


NOTHING = Row()
"""A row of which nothing is known."""


@dataclass(frozen=True)
class Stored:
    """A row of the table."""

    name: Name
    row: Row
    from_block: bool = False
    """True if an allocator issued its key."""


Rows: TypeAlias = Mapping[Name, list[Row]]
"""Name → the rows of this name; a right table has one of each."""


@dataclass(frozen=True)
class Expected:
    """What a program may expect of a row."""

    row: Row = NOTHING
    """What it knows: the id that it gave or read, for example."""
    fate: str = "stored"
    """``stored``, ``gone`` after a rollback, or ``unknown`` if the answer to COMMIT was lost."""


@dataclass(frozen=True)
class Shown:
    """What an object shows of its row."""

    name: Name
    row: Row
    before: str | None = None
    """The public id that it has shown before."""


@dataclass(frozen=True)
class Finding:
    """A rule that is broken, and the fewest operations that show it."""

    kind: str
    what: str
    operations: tuple[Any, ...] = field(default=(), compare=False)
    name: Name | None = field(default=None, compare=False)
    """The row that it is about."""

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.what}", *map(str, sorted(self.operations, key=lambda each: each.begin))]
        return "\n    ".join(lines)


def group_rows(stored: Iterable[Stored]) -> dict[Name, list[Row]]:
    """Return the rows by their names."""
    rows: dict[Name, list[Row]] = defaultdict(list)
    for each in stored:
        rows[each.name].append(each.row)
    return dict(rows)


def combine(one: Row, other: Row) -> Row | None:
    """Return what is known about a row from two sources; ``None`` if they contradict each other."""
    if any(None not in (left, right) and left != right for left, right in zip(one, other, strict=True)):
        return None
    return Row(*(left if right is None else right for left, right in zip(one, other, strict=True)))


# --- rules


def find_strangers(written: Container[Name], rows: Rows) -> Iterator[Finding]:
    """Find rows that are stored twice, and rows that nobody has written."""
    for name, those in rows.items():
        if len(those) > 1:
            yield Finding("twice", f"{name} is stored {len(those)} times: {those}", name=name)
        if name not in written:
            yield Finding("stranger", f"nobody has written {name}: {those}", name=name)


def find_wrong_rows(expected: Mapping[Name, Expected], rows: Rows) -> Iterator[Finding]:
    """Find rows that are lost, came back, are stored twice, or have another id, key or reference than is known."""
    yield from find_strangers(expected, rows)
    for name, known in expected.items():
        those = rows.get(name, [])
        if not those and known.fate == "stored":
            yield Finding("lost", f"{name} is lost: {known.row}", name=name)
        if those and known.fate == "gone":
            yield Finding("back", f"{name} is stored, and was rolled back or deleted: {those}", name=name)
        elif any(combine(known.row, row) is None for row in those):
            what = (
                f"an id, key or reference of {name} is replaced: {known.row} was given, read or stored, found {those}"
            )
            yield Finding("replaced", what, name=name)


def find_halves(transactions: Iterable[Collection[Name]], stored: Container[Name]) -> Iterator[Finding]:
    """Find transactions that have stored only some of their rows."""
    for names in transactions:
        there, missing = [name for name in names if name in stored], [name for name in names if name not in stored]
        if there and missing:
            what = f"of one transaction, {sorted(there)} are stored and {sorted(missing)} are not"
            yield Finding("half", what, name=there[0])


def find_wrong_objects(shown: Iterable[Shown], rows: Rows) -> Iterator[Finding]:
    """Find objects whose row is not there, that show another id or key than their row, or another id than before."""
    for each in shown:
        those = rows.get(each.name, [])
        if not those:
            yield Finding("object", f"an object shows {each.row}, and {each.name} is not stored", name=each.name)
        elif not any(combine(each.row, row) for row in those):
            what = f"an object of {each.name} shows an id or key that is not its row's: {each.row}, found {those}"
            yield Finding("object", what, name=each.name)
        if each.before not in (None, each.row.public_id):
            what = f"an object of {each.name} shows another id than before: {each.row.public_id}, not {each.before}"
            yield Finding("object", what, name=each.name)
