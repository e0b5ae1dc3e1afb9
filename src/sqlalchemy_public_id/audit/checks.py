"""Checks of the public ids of one table: one function for each problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from sqlalchemy import (
    JSON,
    BigInteger,
    Connection,
    Date,
    DateTime,
    Float,
    Integer,
    Numeric,
    column,
    func,
    select,
    table,
)
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.audit import remedies
from sqlalchemy_public_id.audit.report import Finding, Problem, Remedy, Severity
from sqlalchemy_public_id.audit.sampling import Sample, forms_of
from sqlalchemy_public_id.errors import safe_repr
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.formats.guess import guess_from
from sqlalchemy_public_id.migrating import PublicIdColumn
from sqlalchemy_public_id.migrating.catalog import IndexFacts
from sqlalchemy_public_id.migrating.column_state import State
from sqlalchemy_public_id.naming import derived_name, not_null_check_name
from sqlalchemy_public_id.preflight.column import obstacles_of_the_type

_FREQUENT = 0.01
"""A form that fewer ids have is a mistake, and no second format."""
_SHOWN = 3
_OTHER_TYPES = (Integer, Numeric, Float, Date, DateTime, JSON)
"""Formats are stored as text, as bytes, as a UUID or as a BIGINT. A type that SQLAlchemy cannot name may be any."""


@dataclass(frozen=True)
class Subject:
    """A table, the state of its column of public ids, and its sample."""

    connection: Connection
    name: str
    target: PublicIdColumn
    """The column, with the unique index that it has."""
    state: State
    type: TypeEngine[Any]
    indexes: Sequence[IndexFacts]
    """The indexes on the column alone."""
    sample: Sample
    forms: Mapping[str, list[str]]
    format: Format | None
    """The format of the ids, if the caller names it."""
    size: int
    """The number of rows that may be read."""

    @property
    def dialect(self) -> str:
        return self.connection.dialect.name

    @property
    def guard(self) -> IndexFacts | None:
        """The best of the indexes that keep duplicates out: that of a constraint, or of the library's name."""
        name = self.target.unique_name
        return min(
            (index for index in self.indexes if index.guards),
            key=lambda index: (index.deferrable, not index.primary, not index.constraint, index.name != name),
            default=None,
        )

    @property
    def is_searchable(self) -> bool:
        """True if an index finds the rows without an id."""
        return any(index.valid and not index.partial for index in self.indexes)

    @cached_property
    def completed(self) -> Remedy | None:
        """What completes the column."""
        return self.complete(self.target)

    def complete(self, target: PublicIdColumn) -> Remedy | None:
        """Return what completes the column as *target* describes it."""
        return remedies.contract(self.connection, target, is_format_known=self.format is not None)

    def finding(
        self, problem: Problem, severity: Severity, message: str, remedy: Remedy | None = None, **facts: Any
    ) -> Finding:
        return Finding(self.name, self.target.column, problem, severity, message, facts, remedy)


def with_free_name(target: PublicIdColumn, indexes: Sequence[IndexFacts]) -> PublicIdColumn:
    """Return *target* with a name that its unique index can have, if there is none yet."""
    candidates = [index.name for index in indexes if index.can_be_unique_index_of(target.column)]
    if candidates and target.unique_name not in candidates:
        return replace(target, unique_name=candidates[0])  # an INVALID index is built again
    if target.unique_name in {index.name for index in indexes} - {*candidates}:
        return replace(target, unique_name=derived_name("uq", target.table, target.column, "2"))
    return target


def findings(subject: Subject) -> Iterator[Finding]:
    """Yield all problems of the table."""
    for check in _CHECKS:
        yield from check(subject)


def _check_missing_ids(subject: Subject) -> Iterator[Finding]:
    sample, is_counted = subject.sample, subject.is_searchable
    if not subject.state.nullable:
        return
    count = _count_missing(subject) if is_counted else sample.missing
    if not count:
        return
    if not is_counted:
        message = f"{count} of {sample.rows} rows that were read have no id"
    elif count > subject.size:
        message = f"more than {subject.size} rows have no id"
    else:
        message = f"{count} row{'s have' if count > 1 else ' has'} no id"
    counted = {"rows": min(count, subject.size), "exact": is_counted and count <= subject.size}
    remedy = remedies.command("backfill", subject.target)
    yield subject.finding("missing-ids", "error", message, remedy, **counted, sampled=sample.rows)


def _count_missing(subject: Subject) -> int:
    """Count the rows without an id in the index, up to one more than may be read."""
    target = subject.target
    source = table(target.table, column(target.column), schema=target.schema)
    missing = source.c[target.column].is_(None)
    some = select(source.c[target.column]).where(missing).limit(subject.size + 1).subquery()
    return subject.connection.scalar(select(func.count()).select_from(some)) or 0


def _check_unique_index(subject: Subject) -> Iterator[Finding]:
    indexes = subject.indexes
    if any(index.unique and (index.guards or not index.valid or index.prefix_of) for index in indexes):
        return
    names = [index.name for index in indexes]
    reason = "leaves rows out" if any(index.partial for index in indexes) else "is none"
    others = f" ({', '.join(names)} {reason})" if names else ""
    message = f"there is no unique index{others}: two rows can have one id, and a lookup reads the whole table"
    yield subject.finding("unique-missing", "error", message, subject.completed, indexes=names)


def _check_prefixes(subject: Subject) -> Iterator[Finding]:
    for index in subject.indexes:
        if index.unique and index.prefix_of:
            message = (
                f"the unique index {index.name} has the first {index.prefix} characters only: an id that begins like "
                f"another is refused; drop it when there is another one"
            )
            facts = {"index": index.name, "length": index.prefix}
            yield subject.finding("unique-prefix", "error", message, subject.completed, **facts)


def _check_deferrable(subject: Subject) -> Iterator[Finding]:
    guard = subject.guard
    if guard is not None and guard.deferrable:  # the best of all
        message = (
            f"the constraint {guard.name} is DEFERRABLE: ON CONFLICT cannot use it, and a duplicate can be an error of "
            f"COMMIT, which is not retried; drop it when there is a unique index"
        )
        yield subject.finding("unique-deferrable", "warning", message, subject.completed, constraint=guard.name)


def _check_invalid(subject: Subject) -> Iterator[Finding]:
    for index in subject.indexes:
        if not index.valid:
            message = f"the index {index.name} is INVALID: no query uses it, and it guarantees nothing"
            is_rebuilt = index.name == subject.target.unique_name
            remedy = subject.completed if is_rebuilt else None
            message += "" if is_rebuilt else "; drop it"
            yield subject.finding("index-invalid", "error", message, remedy, index=index.name)


def _check_redundant(subject: Subject) -> Iterator[Finding]:
    guard = subject.guard
    for index in subject.indexes if guard is not None else ():
        if guard is not None and index is not guard and index.valid and not (index.unique and index.prefix_of):
            message = (
                f"the index {index.name} does nothing that {guard.name} does not do, and costs time at every write; "
                f"drop it"
            )
            names = {"index": index.name, "beside": guard.name}
            yield subject.finding("index-redundant", "warning", message, None, **names)


def _check_nullable(subject: Subject) -> Iterator[Finding]:
    if subject.state.nullable:
        message = "the column may be NULL: rows can be stored without an id"
        yield subject.finding("nullable", "warning", message, subject.completed)
    elif subject.state.check:
        name = not_null_check_name(subject.target.table, subject.target.column)
        message = f"the CHECK constraint {name} is left over from a migration"
        yield subject.finding("check-left-over", "info", message, subject.completed, check=name)


def _check_type(subject: Subject) -> Iterator[Finding]:
    format, type_ = subject.format, subject.state.type
    severity: Severity = "error"
    if format is not None and subject.dialect != "sqlite":
        scene = remedies.contract_of(subject.connection, subject.target)
        problem = next((str(one) for one in obstacles_of_the_type(scene)), None)
    elif isinstance(subject.type, _OTHER_TYPES) and not isinstance(subject.type, BigInteger):
        problem = f"the type of the column is {type_}, in which no format is stored: "
        if subject.dialect != "sqlite":
            problem += "ids are refused, or stored as other values"
        elif isinstance(format, BitsFormat) and format.bits == 64:
            problem = None  # SQLite stores 64 bits in an INTEGER, but turns text of digits into a number
        else:
            severity = "warning"
            problem += "an id of digits only is stored as a number, without its leading zeros"
    else:
        problem = None
    if problem is None and format is not None and subject.sample.ids and subject.dialect == "sqlite":
        problem = _stored_otherwise(format, is_text=subject.sample.is_text)
    if problem is not None:
        yield subject.finding("column-type", severity, problem, type=type_)


def _stored_otherwise(format: Format, *, is_text: bool) -> str | None:
    if format.is_native != is_text:
        return None
    stored, expected = ("text", "numbers") if is_text else ("numbers", "text")
    option = '; pass storage="text"' if is_text else "; take a format that is stored as numbers"
    return f"the column has {stored}, and ids of {format!r} are stored as {expected}{option}"


def _check_ids(subject: Subject) -> Iterator[Finding]:
    ids, forms, format = subject.sample.ids, subject.forms, subject.format
    if format is not None:
        malformed = [id for id in ids if not format.is_valid(id)]
        if malformed:
            [first, *_] = forms_of(malformed).values()
            if isinstance(format, BitsFormat) and format.is_native and subject.sample.is_text:
                as_text: Format = replace(cast("Any", format), storage="text")
                format = as_text.accepting(*format.forms[1:])
            remedy = remedies.accept(format, first)
            yield _malformed(subject, malformed, f"expected {format.expected}", "error", remedy)
        return
    frequent = [form for form, of_form in forms.items() if len(of_form) >= max(2, _FREQUENT * len(ids))]
    if len(frequent) > 1:
        counts = {form: len(forms[form]) for form in frequent}
        message = "the ids have several forms: " + "; ".join(f"{count} of {form}" for form, count in counts.items())
        newer = guess_from(forms[frequent[0]])
        remedy = None if newer is None else remedies.accept(newer, forms[frequent[1]])
        yield subject.finding("mixed-formats", "warning", message, remedy, forms=counts, sampled=len(ids))
    odd = [id for form, of_form in forms.items() if frequent and form not in frequent for id in of_form]
    if odd:
        yield _malformed(subject, odd, f"ids here are {' or '.join(frequent)}", "warning", None)


def _malformed(subject: Subject, ids: list[str], expected: str, severity: Severity, remedy: Remedy | None) -> Finding:
    sampled, examples = len(subject.sample.ids), ids[:_SHOWN]
    shown_ids = ", ".join(map(safe_repr, examples)) + (", …" if len(ids) > _SHOWN else "")
    message = f"{len(ids)} of {sampled} ids that were read are malformed: {shown_ids} ({expected})"
    counts = {"malformed": len(ids), "sampled": sampled}
    return subject.finding("malformed-ids", severity, message, remedy, **counts, examples=examples)


_BYTEWISE = {"C", "POSIX", "ucs_basic", "pg_c_utf8"}


def _check_collation(subject: Subject) -> Iterator[Finding]:
    state = subject.state
    collation, target = state.order or state.collation, replace(subject.target, collation="bytes")
    if not state.exact:
        name = f"the collation {collation}" if collation else "its collation"
        message = f"{name} finds an id by other spellings: aB and Ab may be one id"
        yield subject.finding("collation", "warning", message, subject.complete(target), collation=collation)
    elif state.order is not None and state.order not in _BYTEWISE:
        message = (
            f"the collation {collation} has the order of a language, which upgrades of the server's libraries change: "
            f"REINDEX after each, or lookups miss rows"
        )
        yield subject.finding("collation", "info", message, subject.complete(target), collation=collation)


def _check_default(subject: Subject) -> Iterator[Finding]:
    state = subject.state
    if state.default is None and not state.filled:
        message = "the database generates no ids: programs without the column cannot insert, or insert NULL"
        target = replace(subject.target, server_default="keep")
        yield subject.finding("default-missing", "info", message, remedies.command("expand", target))


_CHECKS = (
    *(_check_missing_ids, _check_nullable, _check_type, _check_unique_index, _check_prefixes, _check_deferrable),
    *(_check_invalid, _check_redundant, _check_ids, _check_collation, _check_default),
)
