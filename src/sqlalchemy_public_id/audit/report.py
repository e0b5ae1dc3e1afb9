"""The result of an audit: findings, and the audited tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

Severity: TypeAlias = Literal["info", "warning", "error"]
"""``error``: some ids are wrong or cannot be looked up, or nothing prevents that. ``warning``: the problem will cause
damage later. ``info``: a remark."""

Problem: TypeAlias = Literal[
    "column-missing",
    "nullable",
    "missing-ids",
    "unique-missing",
    "unique-with-others",
    "unique-prefix",
    "unique-deferrable",
    "index-invalid",
    "index-hidden",
    "index-redundant",
    "malformed-ids",
    "column-type",
    "collation",
    "ids-refused",
    "not-tried",
    "key-nearly-full",
    "default-missing",
    "default-outdated",
    "check-left-over",
    "key-range-nearly-full",
    "key-counter-outside",
    "key-counter-behind",
    "id-counter-behind",
    "counter-not-compared",
    "keys-outside",
    "cluster-unknown",
    "rows-hidden",
    "table-unreadable",
]
_RANK: dict[Severity, int] = {"info": 0, "warning": 1, "error": 2}


@dataclass(frozen=True)
class Remedy:
    """How to repair a finding, as lines to paste."""

    language: Literal["sql", "sh", "python", "text"]
    """``python`` is the declaration of a model. ``text`` is for people: each line describes an obstacle to the
    migration, and what to do about it."""
    lines: tuple[str, ...]
    """Lines to paste; SQL statements end with a semicolon, and a string in one may span several lines."""

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True)
class Finding:
    """One problem with the public ids or the keys of a table."""

    table: str
    """The table, with its schema if you passed one."""
    column: str
    """The column of public ids, or the key column."""
    problem: Problem
    severity: Severity
    message: str
    """The problem in one sentence, for people."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The figures and names in the message, for a program."""
    remedy: Remedy | None = None
    """How to repair it. One remedy can repair several findings, so run the audit again afterwards."""

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class TableReport:
    """What the audit read from one table."""

    name: str
    """The name of the table, with its schema if you passed one."""
    has_column: bool
    """``False`` if the table has no column of public ids, so that only its key was checked."""
    sampled: int = 0
    """The number of ids that were read."""
    format: str | None = None
    """The format of the ids in words, such as ``cus_ and 12 of 0-9 a-z``. It comes from *formats* or *models*, or is
    guessed from most of the ids; ``None`` if it is unknown."""
    has_default: bool = False
    """``True`` if the database generates ids, by a default or a trigger."""
    readable: bool = True
    """``False`` if the table could not be read. The finding ``table-unreadable`` has the reason."""
    column: str = "public_id"
    """The name of the column. A table with several public ids has a report for each."""

    def as_dict(self) -> dict[str, Any]:
        """Return the table as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Report:
    """The result of :func:`~sqlalchemy_public_id.audit.run`."""

    findings: list[Finding]
    """All findings, grouped by table, the worst of each table first."""
    tables: list[TableReport]

    def worst(self) -> Severity | None:
        """Return the severity of the worst finding; ``None`` if there are no findings."""
        return max((finding.severity for finding in self.findings), key=_RANK.__getitem__, default=None)

    @property
    def without_column(self) -> list[TableReport]:
        """The tables without public ids."""
        return [table for table in self.tables if table.readable and not table.has_column]

    @property
    def without_default(self) -> list[TableReport]:
        """The tables with public ids that the database does not generate."""
        return [table for table in self.tables if table.readable and table.has_column and not table.has_default]

    def at_least(self, severity: Severity) -> list[Finding]:
        """Return the findings of *severity* or worse, such as those that should fail a nightly check."""
        return [finding for finding in self.findings if _RANK[finding.severity] >= _RANK[severity]]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {
            "counts": {
                "tables": len({table.name for table in self.tables}),
                "without_column": len(self.without_column),
                "without_default": len(self.without_default),
            },
            "tables": [table.as_dict() for table in self.tables],
            "findings": [finding.as_dict() for finding in self.findings],
        }


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort *findings* by severity."""
    return sorted(findings, key=lambda finding: -_RANK[finding.severity])
