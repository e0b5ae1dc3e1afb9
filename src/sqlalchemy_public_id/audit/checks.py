"""From what is known of a table to what is wrong with it: one function for each thing that is looked for."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, column, func, select, table

from sqlalchemy_public_id.advice import Advice, about
from sqlalchemy_public_id.audit.report import Finding, Problem, Severity
from sqlalchemy_public_id.audit.sampling import Form, Sample, form_in, forms_of
from sqlalchemy_public_id.dialects.catalog import Facts
from sqlalchemy_public_id.dialects.quoting import quoted, quoted_table
from sqlalchemy_public_id.errors import shown
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.naming import not_null_check_name, unique_name

__all__ = ["Subject", "findings"]

_HALF_FULL = 0.5
_NEARLY_FULL = 0.9
_FREQUENT = 0.01
"""A form that fewer ids have is no second format, but a mistake."""
_SHOWN = 3
_LEAD = re.compile(r"([A-Za-z0-9_]*[A-Za-z0-9])([^A-Za-z0-9]+)")
_MYSQL = {"mysql", "mariadb"}


@dataclass(frozen=True)
class Subject:
    """One table, with all that is known of it."""

    connection: Connection
    name: str
    facts: Facts
    sample: Sample
    forms: Counter[Form]
    format: Format | None
    """The format of the ids, where the caller knows it."""
    size: int
    """How many rows may be read."""

    @property
    def dialect(self) -> str:
        return self.connection.dialect.name

    @property
    def loses_default(self) -> bool:
        """Whether the column has a default that a MODIFY would have to repeat."""
        return self.dialect in _MYSQL and self.facts.has_default

    def finding(
        self, problem: Problem, severity: Severity, message: str, advice: Advice | None, **facts: Any
    ) -> Finding:
        return Finding(self.name, self.facts.column, problem, severity, message, facts, advice)

    def advice(self, slug: str, **names: Any) -> Advice:
        """The piece of advice, filled with the names of the table; quoted, where it is SQL."""
        facts = self.facts
        given: dict[str, Any] = {
            "table": facts.table,
            "column": facts.column,
            "key": facts.key.column if facts.key else "id",
            "index": unique_name(facts.table, facts.column),
            "check": not_null_check_name(facts.table, facts.column),
            **names,
        }
        language = about(slug).language
        if language == "sh":
            given = {name: shlex.quote(value) for name, value in given.items()}
        elif language == "text":  # Python, with names between double quotes
            given |= {name: json.dumps(given[name], ensure_ascii=False)[1:-1] for name in ("table", "column")}
        else:
            dialect = self.connection.dialect
            given = {name: quoted(value, dialect) for name, value in given.items()}
            given["table"] = quoted_table(facts.table, facts.schema, dialect)
        if facts.type is not None:
            given["type"] = facts.type
        return about(slug, length=facts.length or 12, **given)


def findings(subject: Subject) -> Iterator[Finding]:
    """All that is wrong with the table."""
    for check in (_nulls, _nullable, _unique, _invalid, _redundant, _ids, _collation, _key, _default, _left_over):
        yield from check(subject)


def _nulls(subject: Subject) -> Iterator[Finding]:
    facts, sample = subject.facts, subject.sample
    if not facts.nullable:
        return
    counted = _count_missing(subject) if facts.searchable else sample.missing
    if not counted:
        return
    if not facts.searchable:
        how_many = f"{counted} of {sample.rows} rows that were read have no id"
    elif counted > subject.size:
        how_many = f"more than {subject.size} rows have no id"
    else:
        how_many = f"{counted} row{'s have' if counted > 1 else ' has'} no id"
    known = {"rows": min(counted, subject.size), "exact": facts.searchable and counted <= subject.size}
    yield subject.finding("missing-ids", "error", how_many, subject.advice("one-update"), **known, sampled=sample.rows)


def _count_missing(subject: Subject) -> int:
    """How many rows have no id, by the index; counting stops where it is enough."""
    facts = subject.facts
    source = table(facts.table, column(facts.column), schema=facts.schema)
    missing = source.c[facts.column].is_(None)
    some = select(source.c[facts.column]).where(missing).limit(subject.size + 1).subquery()
    return subject.connection.scalar(select(func.count()).select_from(some)) or 0


def _nullable(subject: Subject) -> Iterator[Finding]:
    if subject.facts.nullable:
        slug = {"postgresql": "set-not-null", "sqlite": "sqlite-copy"}.get(subject.dialect, "modify-not-null")
        if subject.loses_default:
            slug = "half-done"
        yield subject.finding(
            "nullable", "warning", "the column may be NULL: rows can be stored without an id", subject.advice(slug)
        )


def _unique(subject: Subject) -> Iterator[Finding]:
    indexes = subject.facts.indexes
    if any(index.guards for index in indexes) or any(index.unique and not index.valid for index in indexes):
        return
    others = ", ".join(index.name for index in indexes)
    kept = (
        f" ({others} {'leaves rows out' if any(index.partial for index in indexes) else 'is none'})" if others else ""
    )
    slug = {"postgresql": "unique-constraint", "sqlite": "unique-missing"}.get(
        subject.dialect, "unique-index-algorithm"
    )
    yield subject.finding(
        "unique-missing",
        "error",
        f"there is no unique index{kept}: two rows can have one id, and a lookup reads the whole table",
        subject.advice(slug),
        indexes=[index.name for index in indexes],
    )


def _invalid(subject: Subject) -> Iterator[Finding]:
    for index in subject.facts.indexes:
        if not index.valid:
            yield subject.finding(
                "index-invalid",
                "error",
                f"the index {index.name} is INVALID: no query uses it, and it guarantees nothing",
                subject.advice("invalid-index", index=index.name),
                index=index.name,
            )


def _redundant(subject: Subject) -> Iterator[Finding]:
    """All whole indexes but one: that of a constraint if there is one, else the one with our name."""
    facts = subject.facts
    ours = unique_name(facts.table, facts.column)
    guards = [index for index in facts.indexes if index.guards]
    if not guards:
        return
    best = max(guards, key=lambda index: (index.primary, index.constraint, index.name == ours))
    for index in facts.indexes:
        if index is not best and index.valid:
            yield subject.finding(
                "index-redundant",
                "warning",
                f"the index {index.name} does nothing that {best.name} does not do, and costs time at every write",
                subject.advice("redundant-index", index=index.name),
                index=index.name,
                beside=best.name,
            )


def _ids(subject: Subject) -> Iterator[Finding]:
    if subject.format is not None:
        yield from _malformed_for(subject, subject.format)
        return
    ids, forms = subject.sample.ids, subject.forms
    frequent = [form for form, count in forms.most_common() if count >= max(2, _FREQUENT * len(ids))]
    if len(frequent) > 1:
        yield subject.finding(
            "mixed-formats",
            "warning",
            "the ids have several forms: " + "; ".join(f"{forms[form]} of {form}" for form in frequent),
            _change(subject, frequent[0], frequent[1]),
            forms={str(form): forms[form] for form in frequent},
            sampled=len(ids),
        )
    right = set(frequent or forms)
    odd = [text for text in ids if form_in(text, forms) not in right]
    if odd:
        usual = " or ".join(map(str, frequent))
        yield _malformed(subject, odd, f"ids here are {usual}", "warning", None)


def _malformed_for(subject: Subject, format: Format) -> Iterator[Finding]:
    wrong = [text for text in subject.sample.ids if not format.is_valid(text)]
    if wrong:
        old = forms_of(wrong).most_common(1)[0][0]
        yield _malformed(subject, wrong, f"expected {format.expected}", "error", _change(subject, format, old))


def _change(subject: Subject, new: Format | Form, old: Form) -> Advice | None:
    """How to accept ids of *old* beside those of *new*, as far as the formats are known."""
    written = [repr(one) if isinstance(one, Format) else _written(one) for one in (new, old)]
    if None in written:
        return None
    return subject.advice("mixed-formats", new=written[0], old=written[1])


def _written(form: Form) -> str | None:
    """The format that ids of *form* may have; the alphabet does not show in it."""
    if form.kind != "characters":
        return None
    lead = _LEAD.fullmatch(form.lead)
    settings: dict[str, object] = {"length": form.length}
    if lead is not None:
        settings["prefix"] = lead[1]
        settings |= {"separator": lead[2]} if lead[2] != "_" else {}
    return f"NanoId({', '.join(f'{name}={value!r}' for name, value in settings.items())})"


def _malformed(subject: Subject, wrong: list[str], expected: str, severity: Severity, advice: Advice | None) -> Finding:
    examples = ", ".join(map(shown, wrong[:_SHOWN]))
    more = ", …" if len(wrong) > _SHOWN else ""
    return subject.finding(
        "malformed-ids",
        severity,
        f"{len(wrong)} of {len(subject.sample.ids)} ids that were read are malformed: {examples}{more} ({expected})",
        advice,
        malformed=len(wrong),
        sampled=len(subject.sample.ids),
        examples=wrong[:_SHOWN],
    )


def _collation(subject: Subject) -> Iterator[Finding]:
    facts, dialect = subject.facts, subject.dialect
    known = {"collation": facts.collation}
    if not facts.collated:
        slug = {"postgresql": "linguistic-collation", "sqlite": "nocase-collation"}.get(dialect, "default-collation")
        if subject.loses_default:
            slug = "half-done"
        expected = {"postgresql": '"C"', "sqlite": "BINARY"}.get(dialect, "ascii_bin")
        effect = {
            "postgresql": "ids are compared by the rules of a language, which change with upgrades",
        }.get(dialect, "aB and Ab may be one id")
        yield subject.finding(
            "collation",
            "warning",
            f"the collation is {facts.collation}, expected {expected}: {effect}",
            subject.advice(slug),
            **known,
            expected=expected,
        )
    elif dialect in _MYSQL and facts.collation not in {None, "ascii_bin", "ascii_nopad_bin"}:
        message = f"the collation is {facts.collation}: ids are compared byte by byte, but ascii_bin takes less space"
        yield subject.finding(
            "collation", "info", message, subject.advice("default-collation"), **known, expected="ascii_bin"
        )


def _key(subject: Subject) -> Iterator[Finding]:
    key = subject.facts.key
    if key is None or key.value / key.limit < _HALF_FULL:
        return
    full = key.value / key.limit
    severity: Severity = "error" if full >= _NEARLY_FULL else "warning"
    yield Finding(
        subject.name,
        key.column,
        "key-nearly-full",
        severity,
        f"the key {key.column} ({key.type}) is {full:.0%} full, at {key.value} of {key.limit}: "
        f"it runs out after another {(key.limit - key.value) / key.value:.0%} of the rows so far",
        {"type": key.type, "value": key.value, "limit": key.limit, "full": round(full, 4)},
        subject.advice("key-nearly-full"),
    )


def _default(subject: Subject) -> Iterator[Finding]:
    if not subject.facts.has_default:
        yield subject.finding(
            "default-missing",
            "info",
            "the database makes no ids: programs that do not know the column cannot insert, or insert NULL",
            subject.advice("no-default"),
        )


def _left_over(subject: Subject) -> Iterator[Finding]:
    facts = subject.facts
    name = not_null_check_name(facts.table, facts.column)
    if name in facts.checks:
        yield subject.finding(
            "check-left-over",
            "info",
            f"the CHECK constraint {name} is left over from a migration",
            subject.advice("left-over-check", check=name) if subject.dialect != "sqlite" else None,
            check=name,
        )
