"""The audit of one table. A table that cannot be read does not end the audit of the others."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Inspector
from sqlalchemy.exc import DBAPIError, NoResultFound, NoSuchTableError, SQLAlchemyError, UnreflectableTableError

from sqlalchemy_public_id.audit import sampling
from sqlalchemy_public_id.audit.checks import Subject, findings
from sqlalchemy_public_id.audit.clusters import Clusters, cluster_findings
from sqlalchemy_public_id.audit.keys import key_findings
from sqlalchemy_public_id.audit.report import Finding, Severity, TableReport, worst_first
from sqlalchemy_public_id.dialects import is_autocommit, traits_for
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrating.catalog import columns_of, read_facts

_UNREADABLE = (DBAPIError, NoResultFound, NoSuchTableError, UnreflectableTableError)
"""A privilege is missing, the table is damaged, or it was dropped since it was listed."""


@dataclass(frozen=True)
class TableAudit:
    """What :func:`~sqlalchemy_public_id.audit.run` passes on to the audit of each table."""

    connection: Connection
    inspector: Inspector
    schema: str | None
    column: str
    formats: Mapping[str, Format]
    clusters: Clusters
    sample: int
    defaults: bool

    def run(self, name: str) -> tuple[TableReport, list[Finding]]:
        """Audit the table *name*, or return the reason why it cannot be read."""
        full_name = f"{self.schema}.{name}" if self.schema else name
        try:
            with _undone_alone(self.connection):
                report, found = self._read(name, full_name)
        except _UNREADABLE as error:
            if isinstance(error, DBAPIError) and error.connection_invalidated:
                raise
            return self._unreadable(name, full_name, error)
        return report, worst_first(found)

    def _read(self, name: str, full_name: str) -> tuple[TableReport, list[Finding]]:
        place = (self.connection, self.inspector, name, self.schema)
        facts = read_facts(*place, self.column)
        of_keys = cluster_findings(*place, self.clusters)
        if of_keys is None:  # a key that counts within a range is full at the end of the range, not of its type
            of_keys = list(key_findings(*place, full_name))
        if facts is None:
            return TableReport(full_name, has_column=False), of_keys
        format = self.formats.get(name)
        rows = sampling.read(self.connection, facts, self.sample, format)
        forms = sampling.forms_of(rows.ids)
        counts = {str(form): count for form, count in forms.most_common()}
        report = TableReport(full_name, True, len(rows.ids), counts, facts.has_default)
        subject = Subject(self.connection, full_name, facts, rows, forms, format, self.sample)
        of_ids = [one for one in findings(subject) if self.defaults or one.problem != "default-missing"]
        return report, [*of_ids, *of_keys]

    def _unreadable(self, name: str, full_name: str, error: SQLAlchemyError) -> tuple[TableReport, list[Finding]]:
        has_column = self._has_column(name)
        reason = _reason(error)
        severity: Severity = "info" if has_column is False else "warning"
        message = f"the table cannot be read, and was not checked: {reason}"
        finding = Finding(full_name, self.column, "table-unreadable", severity, message, {"error": reason})
        return TableReport(full_name, has_column=bool(has_column), readable=False), [finding]

    def _has_column(self, name: str) -> bool | None:
        """Return True if the catalog has the column of public ids; ``None`` if it cannot be read either."""
        try:
            with _undone_alone(self.connection):
                return self.column in columns_of(self.inspector, name, self.schema)
        except _UNREADABLE:
            return None


@contextmanager
def _undone_alone(connection: Connection) -> Generator[None]:
    """Keep the transaction of the caller: on PostgreSQL, a statement that fails aborts it."""
    if not traits_for(connection.dialect).aborts_transaction or is_autocommit(connection):
        yield
        return
    with connection.begin_nested():
        yield


def _reason(error: SQLAlchemyError) -> str:
    if isinstance(error, (NoResultFound, NoSuchTableError)):
        return "it is gone"
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    message = cause.args[1] if len(cause.args) > 1 and isinstance(cause.args[1], str) else str(cause)
    return next(iter(message.splitlines()), type(cause).__name__)
