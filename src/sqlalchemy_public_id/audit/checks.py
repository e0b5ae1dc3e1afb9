"""Checks of the public ids of one table: one function for each problem."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, column, func, select, table

from sqlalchemy_public_id.advice import Advice, about
from sqlalchemy_public_id.audit.report import Finding, Problem, Severity
from sqlalchemy_public_id.audit.sampling import Form, Sample, form_in, forms_of
from sqlalchemy_public_id.dialects.quoting import quoted, quoted_table
from sqlalchemy_public_id.errors import safe_repr
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.migrating.catalog import Facts
from sqlalchemy_public_id.migrating.free_names import free_check_name, free_index_name
from sqlalchemy_public_id.migrating.indexes import IndexFacts
from sqlalchemy_public_id.naming import not_null_check_name, unique_name

_FREQUENT = 0.01
"""A form that fewer ids have is a mistake, and no second format."""
_SHOWN = 3
_LEAD = re.compile(r"([A-Za-z0-9_]*[A-Za-z0-9])([^A-Za-z0-9]+)")
_MYSQL = {"mysql", "mariadb"}


@dataclass(frozen=True)
class Subject:
    """A table, its catalog and its sample."""

    connection: Connection
    name: str
    facts: Facts
    sample: Sample
    forms: Counter[Form]
    format: Format | None
    """The format of the ids, if the caller names it."""
    size: int
    """The number of rows that may be read."""

    @property
    def dialect(self) -> str:
        return self.connection.dialect.name

    @property
    def loses_default(self) -> bool:
        """True if the column has a default that a MODIFY would have to repeat."""
        return self.dialect in _MYSQL and self.facts.has_default

    def finding(
        self, problem: Problem, severity: Severity, message: str, advice: Advice | None, **facts: Any
    ) -> Finding:
        return Finding(self.name, self.facts.column, problem, severity, message, facts, advice)

    def advice(self, slug: str, **names: Any) -> Advice:
        """Return the piece of advice with the names of the table, quoted in SQL."""
        facts = self.facts
        values: dict[str, Any] = {
            "table": facts.table,
            "column": facts.column,
            "index": unique_name(facts.table, facts.column),
            "check": not_null_check_name(facts.table, facts.column),
            **names,
        }
        if about(slug).language == "sql":
            dialect = self.connection.dialect
            values = {
                **{name: quoted(value, dialect) for name, value in values.items()},
                "table": quoted_table(facts.table, facts.schema, dialect),
                "dropped": quoted_table(values["index"], facts.schema, dialect),
            }
            if slug == "unique-missing":  # SQLite has the schema before the index, and none before the table
                values |= {"index": values["dropped"], "table": quoted(facts.table, dialect)}
        if facts.type is not None:
            values["type"] = facts.type
        return about(slug, length=facts.length or 12, **values)

    def free_index_name(self) -> str:
        """Return a name for the unique index that is to be created."""
        return free_index_name(self.connection, self.facts.table, self.facts.schema, self.facts.column)


def findings(subject: Subject) -> Iterator[Finding]:
    """Yield all problems of the table."""
    for check in _CHECKS:
        yield from check(subject)


def _nulls(subject: Subject) -> Iterator[Finding]:
    facts, sample = subject.facts, subject.sample
    if not facts.nullable:
        return
    count = _count_missing(subject) if facts.searchable else sample.missing
    if not count:
        return
    if not facts.searchable:
        message = f"{count} of {sample.rows} rows that were read have no id"
    elif count > subject.size:
        message = f"more than {subject.size} rows have no id"
    else:
        message = f"{count} row{'s have' if count > 1 else ' has'} no id"
    counted = {"rows": min(count, subject.size), "exact": facts.searchable and count <= subject.size}
    yield subject.finding("missing-ids", "error", message, subject.advice("one-update"), **counted, sampled=sample.rows)


def _count_missing(subject: Subject) -> int:
    """Count the rows without an id in the index, up to one more than may be read."""
    facts = subject.facts
    source = table(facts.table, column(facts.column), schema=facts.schema)
    missing = source.c[facts.column].is_(None)
    some = select(source.c[facts.column]).where(missing).limit(subject.size + 1).subquery()
    return subject.connection.scalar(select(func.count()).select_from(some)) or 0


def _nullable(subject: Subject) -> Iterator[Finding]:
    if not subject.facts.nullable:
        return
    if subject.dialect == "postgresql":
        facts = subject.facts
        check = free_check_name(subject.connection, facts.table, facts.schema, facts.column)
        advice = subject.advice("set-not-null", check=check)
    else:
        slug = "sqlite-copy" if subject.dialect == "sqlite" else "modify-not-null"
        advice = subject.advice("half-done" if subject.loses_default else slug)
    message = "the column may be NULL: rows can be stored without an id"
    yield subject.finding("nullable", "warning", message, advice)


def _unique(subject: Subject) -> Iterator[Finding]:
    indexes = subject.facts.indexes
    if any(index.unique and (index.guards or not index.valid or index.prefix_of) for index in indexes):
        return
    names = [index.name for index in indexes]
    reason = "leaves rows out" if any(index.partial for index in indexes) else "is none"
    others = f" ({', '.join(names)} {reason})" if names else ""
    slugs = {"postgresql": "unique-constraint", "sqlite": "unique-missing"}
    message = f"there is no unique index{others}: two rows can have one id, and a lookup reads the whole table"
    slug = slugs.get(subject.dialect, "unique-index-algorithm")
    advice = subject.advice(slug, index=subject.free_index_name())
    yield subject.finding("unique-missing", "error", message, advice, indexes=names)


def _prefixes(subject: Subject) -> Iterator[Finding]:
    indexes = subject.facts.indexes
    guarded = any(index.guards for index in indexes)
    name = None if guarded else subject.free_index_name()
    for index in indexes:
        if not (index.unique and index.prefix_of):
            continue
        message = (
            f"the unique index {index.name} has the first {index.prefix} characters only: an id that begins like "
            f"another is refused"
        )
        if name is None:
            advice = subject.advice("redundant-index", index=index.name)
        else:
            advice = subject.advice("prefix-index", index=name, replaced=index.name)
        yield subject.finding("unique-prefix", "error", message, advice, index=index.name, length=index.prefix)


def _deferrable(subject: Subject) -> Iterator[Finding]:
    guards = [index for index in subject.facts.indexes if index.guards]
    if not guards or not all(index.deferrable for index in guards):
        return
    best = _best(subject, guards)
    message = (
        f"the constraint {best.name} is DEFERRABLE: ON CONFLICT cannot use it, and a duplicate can be an error of "
        f"COMMIT, which is not retried"
    )
    advice = None
    if not best.primary:
        advice = subject.advice("deferrable-constraint", index=subject.free_index_name(), replaced=best.name)
    yield subject.finding("unique-deferrable", "warning", message, advice, constraint=best.name)


def _invalid(subject: Subject) -> Iterator[Finding]:
    for index in subject.facts.indexes:
        if not index.valid:
            message = f"the index {index.name} is INVALID: no query uses it, and it guarantees nothing"
            advice = subject.advice("invalid-index", index=index.name)
            yield subject.finding("index-invalid", "error", message, advice, index=index.name)


def _redundant(subject: Subject) -> Iterator[Finding]:
    """Yield all indexes but the best one."""
    indexes = subject.facts.indexes
    guards = [index for index in indexes if index.guards]
    if not guards:
        return
    best = _best(subject, guards)
    for index in indexes:
        if index is not best and index.valid and not (index.unique and index.prefix_of):
            message = f"the index {index.name} does nothing that {best.name} does not do, and costs time at every write"
            advice = subject.advice("redundant-index", index=index.name)
            names = {"index": index.name, "beside": best.name}
            yield subject.finding("index-redundant", "warning", message, advice, **names)


def _best(subject: Subject, guards: list[IndexFacts]) -> IndexFacts:
    """Return the index of a constraint if there is one, else the one with the library's name."""
    name = unique_name(subject.facts.table, subject.facts.column)
    return max(guards, key=lambda index: (not index.deferrable, index.primary, index.constraint, index.name == name))


def _type(subject: Subject) -> Iterator[Finding]:
    facts, format = subject.facts, subject.format
    if facts.storable:
        return
    if subject.dialect == "sqlite":  # it stores 64 bits in an INTEGER, but turns text of digits into a number
        if isinstance(format, BitsFormat) and format.bits == 64:
            return
        severity: Severity = "warning"
        effect = "an id of digits only is stored as a number, without its leading zeros"
    else:
        severity, effect = "error", "ids are refused, or stored as other values"
    message = f"the type of the column is {facts.type}, in which no format is stored: {effect}"
    yield subject.finding("column-type", severity, message, subject.advice("column-type"), type=facts.type)


def _ids(subject: Subject) -> Iterator[Finding]:
    ids, forms, format = subject.sample.ids, subject.forms, subject.format
    if format is not None:
        malformed = [id for id in ids if not format.is_valid(id)]
        if malformed:
            old = forms_of(malformed).most_common(1)[0][0]
            advice = _accepting(subject, repr(format), old)
            yield _malformed(subject, malformed, f"expected {format.expected}", "error", advice)
        return
    frequent = [form for form, count in forms.most_common() if count >= max(2, _FREQUENT * len(ids))]
    if len(frequent) > 1:
        message = "the ids have several forms: " + "; ".join(f"{forms[form]} of {form}" for form in frequent)
        counts = {str(form): forms[form] for form in frequent}
        advice = _accepting(subject, _format_of(frequent[0]), frequent[1])
        yield subject.finding("mixed-formats", "warning", message, advice, forms=counts, sampled=len(ids))
    right = set(frequent or forms)
    odd = [id for id in ids if form_in(id, forms) not in right]
    if odd:
        yield _malformed(subject, odd, f"ids here are {' or '.join(map(str, frequent))}", "warning", None)


def _accepting(subject: Subject, new: str | None, form: Form) -> Advice | None:
    old = _format_of(form)
    return subject.advice("mixed-formats", new=new, old=old) if new is not None and old is not None else None


def _format_of(form: Form) -> str | None:
    """Return a format for ids of *form*, as Python. Its alphabet is a guess."""
    if form.kind != "characters":
        return None
    lead = _LEAD.fullmatch(form.lead)
    settings: dict[str, object] = {"length": form.length}
    if lead is not None:
        settings["prefix"] = lead[1]
        settings |= {"separator": lead[2]} if lead[2] != "_" else {}
    return f"NanoId({', '.join(f'{name}={value!r}' for name, value in settings.items())})"


def _malformed(subject: Subject, ids: list[str], expected: str, severity: Severity, advice: Advice | None) -> Finding:
    sampled, examples = len(subject.sample.ids), ids[:_SHOWN]
    shown_ids = ", ".join(map(safe_repr, examples)) + (", …" if len(ids) > _SHOWN else "")
    message = f"{len(ids)} of {sampled} ids that were read are malformed: {shown_ids} ({expected})"
    counts = {"malformed": len(ids), "sampled": sampled}
    return subject.finding("malformed-ids", severity, message, advice, **counts, examples=examples)


def _collation(subject: Subject) -> Iterator[Finding]:
    facts, dialect = subject.facts, subject.dialect
    expected = {"postgresql": '"C"', "sqlite": "BINARY"}.get(dialect, "ascii_bin")
    names = {"collation": facts.collation, "expected": expected}
    if not facts.collated:
        slug = {"postgresql": "linguistic-collation", "sqlite": "nocase-collation"}.get(dialect, "default-collation")
        effect = "aB and Ab may be one id"
        if dialect == "postgresql":
            effect = "ids are compared by the rules of a language, which change with upgrades"
        message = f"the collation is {facts.collation}, expected {expected}: {effect}"
        advice = subject.advice("half-done" if subject.loses_default else slug)
        yield subject.finding("collation", "warning", message, advice, **names)
    elif dialect in _MYSQL and facts.collation not in {None, "ascii_bin", "ascii_nopad_bin"}:
        message = f"the collation is {facts.collation}: ids are compared byte by byte, but ascii_bin takes less space"
        yield subject.finding("collation", "info", message, subject.advice("default-collation"), **names)


def _default(subject: Subject) -> Iterator[Finding]:
    if not subject.facts.has_default:
        message = "the database generates no ids: programs without the column cannot insert, or insert NULL"
        yield subject.finding("default-missing", "info", message, subject.advice("no-default"))


def _left_over(subject: Subject) -> Iterator[Finding]:
    facts = subject.facts
    name = not_null_check_name(facts.table, facts.column)
    if name in facts.checks:
        message = f"the CHECK constraint {name} is left over from a migration"
        slug = "left-over-check-mysql" if subject.dialect in _MYSQL else "left-over-check"
        advice = subject.advice(slug, check=name) if subject.dialect != "sqlite" else None
        yield subject.finding("check-left-over", "info", message, advice, check=name)


_CHECKS = (
    *(_nulls, _nullable, _type, _unique, _prefixes, _deferrable, _invalid, _redundant),
    *(_ids, _collation, _default, _left_over),
)
