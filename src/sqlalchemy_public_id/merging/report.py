"""What a check before a merge says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = ["Clash", "Comparison", "Proof", "Report", "TableReport"]

Proof: TypeAlias = Literal["ranges", "compared", "nothing to compare", "not comparable"]
"""``ranges``: smallest and largest values lie apart. ``compared``: every value was read. ``nothing to compare``: fewer
than two databases have the column and rows. ``not comparable``: the types differ, or are of no known order."""


@dataclass(frozen=True)
class Clash:
    """A value that several databases have."""

    value: str
    """As text: a number stored in 128 bits is a UUID."""
    databases: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """One column of a table, in all databases that have it."""

    column: str
    """The name of the column; several names with commas, or nothing, where no single column is the key."""
    proof: Proof
    reason: str = ""
    """Why it is not comparable, or there is nothing to compare."""
    compared: int = 0
    """How many values were read."""
    clashes: int = 0
    """How many values are in several databases."""
    examples: tuple[Clash, ...] = ()
    """The first of them, in order."""

    @property
    def is_proven(self) -> bool:
        """Whether no value clashes, for certain."""
        return self.proof != "not comparable" and not self.clashes

    def as_dict(self) -> dict[str, Any]:
        """The comparison in plain values, as JSON has them."""
        examples = [{"value": each.value, "databases": list(each.databases)} for each in self.examples]
        return {
            "column": self.column,
            "proof": self.proof,
            "reason": self.reason,
            "compared": self.compared,
            "clashes": self.clashes,
            "examples": examples,
        }


@dataclass(frozen=True)
class TableReport:
    """One table."""

    name: str
    missing: tuple[str, ...]
    """The databases that do not have it."""
    key: Comparison
    public_id: Comparison

    @property
    def is_proven(self) -> bool:
        """Whether its rows can be put together."""
        return self.key.is_proven and self.public_id.is_proven

    def as_dict(self) -> dict[str, Any]:
        """The table in plain values, as JSON has them."""
        return {
            "name": self.name,
            "missing": list(self.missing),
            "key": self.key.as_dict(),
            "public_id": self.public_id.as_dict(),
        }


@dataclass(frozen=True)
class Report:
    """What :func:`~sqlalchemy_public_id.merging.merge_check` found."""

    databases: tuple[str, ...]
    tables: tuple[TableReport, ...]

    @property
    def clashes(self) -> int:
        """How many keys and public ids are in several databases."""
        return sum(table.key.clashes + table.public_id.clashes for table in self.tables)

    @property
    def is_proven(self) -> bool:
        """Whether it is certain that nothing clashes."""
        return all(table.is_proven for table in self.tables)

    def as_dict(self) -> dict[str, Any]:
        """The report in plain values, as JSON has them."""
        return {
            "databases": list(self.databases),
            "is_proven": self.is_proven,
            "clashes": self.clashes,
            "tables": [table.as_dict() for table in self.tables],
        }
