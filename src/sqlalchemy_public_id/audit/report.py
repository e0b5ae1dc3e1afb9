"""What an audit says: findings, and the tables that were looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from sqlalchemy_public_id.advice import Advice

__all__ = ["Finding", "Problem", "Report", "Severity", "TableReport"]

Severity: TypeAlias = Literal["info", "warning", "error"]
"""``error``: wrong ids, or rows that cannot be found, are there or are not kept out. ``warning``: it will hurt
later. ``info``: worth knowing."""

Problem: TypeAlias = Literal[
    "nullable",
    "missing-ids",
    "unique-missing",
    "index-invalid",
    "index-redundant",
    "malformed-ids",
    "mixed-formats",
    "collation",
    "key-nearly-full",
    "default-missing",
    "check-left-over",
    "key-range-nearly-full",
    "key-counter-outside",
    "keys-outside",
    "cluster-unknown",
]
"""What can be found."""

_RANK: dict[Severity, int] = {"info": 0, "warning": 1, "error": 2}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with the public ids of one table."""

    table: str
    """The table, with its schema where one was asked for."""
    column: str
    """The column of public ids, or that of the key."""
    problem: Problem
    severity: Severity
    message: str
    """One sentence for a person."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The figures and names in the message, for a program."""
    advice: Advice | None = None
    """Why it matters, and the lines that mend it, filled with the names of the table."""

    def as_dict(self) -> dict[str, Any]:
        """The finding in plain values, as JSON has them."""
        advice = self.advice and {
            "slug": self.advice.slug,
            "title": self.advice.title,
            "danger": self.advice.danger,
            "lock": self.advice.lock,
            "good": self.advice.good,
        }
        return {
            "table": self.table,
            "column": self.column,
            "problem": self.problem,
            "severity": self.severity,
            "message": self.message,
            "facts": dict(self.facts),
            "advice": advice,
        }


@dataclass(frozen=True)
class TableReport:
    """What was looked at in one table."""

    name: str
    """With its schema, where one was asked for."""
    has_column: bool
    """Whether there is a column of public ids; where there is none, nothing else was looked at."""
    sampled: int = 0
    """How many ids were read."""
    forms: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many of them have which form: ``cus_ and 12 characters`` → 9998. The most frequent form comes first."""

    def as_dict(self) -> dict[str, Any]:
        """The table in plain values, as JSON has them."""
        return {"name": self.name, "has_column": self.has_column, "sampled": self.sampled, "forms": dict(self.forms)}


@dataclass(frozen=True)
class Report:
    """What :func:`~sqlalchemy_public_id.audit.run` found."""

    findings: list[Finding]
    """By table; in each, the worst first."""
    tables: list[TableReport]

    def worst(self) -> Severity | None:
        """The severity of the worst finding; ``None`` where there is none."""
        return max((finding.severity for finding in self.findings), key=_RANK.__getitem__, default=None)

    def at_least(self, severity: Severity) -> list[Finding]:
        """The findings that are as bad as *severity*, or worse."""
        return [finding for finding in self.findings if _RANK[finding.severity] >= _RANK[severity]]

    def as_dict(self) -> dict[str, Any]:
        """The report in plain values, as JSON has them."""
        return {
            "tables": [table.as_dict() for table in self.tables],
            "findings": [finding.as_dict() for finding in self.findings],
        }


def worst_first(findings: list[Finding]) -> list[Finding]:
    """The *findings* on one table in the order of a report."""
    return sorted(findings, key=lambda finding: -_RANK[finding.severity])
