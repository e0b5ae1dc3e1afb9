"""The audit of one table. A table that cannot be read does not end the audit of the others."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Inspector, MetaData
from sqlalchemy.exc import DBAPIError, NoResultFound, NoSuchTableError, SQLAlchemyError, UnreflectableTableError
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.audit import sampling
from sqlalchemy_public_id.audit.checks import Subject, findings, with_free_name
from sqlalchemy_public_id.audit.keys import key_findings
from sqlalchemy_public_id.audit.report import Finding, Severity, TableReport, worst_first
from sqlalchemy_public_id.columns import public_id_columns, public_id_type
from sqlalchemy_public_id.dialects import is_autocommit, traits_for
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats.guess import guess_from
from sqlalchemy_public_id.keys.cluster.audit import Clusters, cluster_problems
from sqlalchemy_public_id.migrating import PublicIdColumn
from sqlalchemy_public_id.migrating.catalog import IndexFacts, columns_of, primary_key_of, read_indexes
from sqlalchemy_public_id.migrating.declared import Models, name_in_models

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
    models: Models
    clusters: Clusters
    sample: int
    defaults: bool

    def run(self, name: str) -> tuple[TableReport, list[Finding]]:
        """Audit the table *name*, or return the reason why it cannot be read."""
        full_name = f"{self.schema}.{name}" if self.schema else name
        place = (self.connection, self.inspector, name, self.schema)
        has_column: bool | None = None
        try:
            with _undone_alone(self.connection):
                columns = columns_of(self.inspector, name, self.schema)
                has_column = self.column in columns
                of_cluster = cluster_problems(*place, self.clusters)
                if of_cluster is None:
                    found = list(key_findings(*place, full_name))
                else:  # a key that counts within a range is full at the end of the range, not of its type
                    found = [Finding(full_name, *problem) for problem in of_cluster]
                if not has_column:
                    return TableReport(full_name, has_column=False), found
                subject = self._subject(name, full_name, columns[self.column]["type"])
                found = [*findings(subject), *found]
        except _UNREADABLE as error:
            if isinstance(error, DBAPIError) and error.connection_invalidated:
                raise
            severity: Severity = "info" if has_column is False else "warning"
            message = f"the table cannot be read, and was not checked: {_reason(error)}"
            finding = Finding(full_name, self.column, "table-unreadable", severity, message, {"error": _reason(error)})
            return TableReport(full_name, has_column=bool(has_column), readable=False), [finding]
        ids, state = subject.sample.ids, subject.state
        counts = {form: len(of_form) for form, of_form in subject.forms.items()}
        report = TableReport(full_name, True, len(ids), counts, state.default is not None or state.filled)
        return report, worst_first([one for one in found if self.defaults or one.problem != "default-missing"])

    def _subject(self, name: str, full_name: str, type_: TypeEngine[Any]) -> Subject:
        format, dialect = self.formats.get(name) or self._format_in_models(name), self.connection.dialect
        target = PublicIdColumn.of(name, self.column, schema=self.schema, format=format, server_default="none")
        target = replace(target, unique_name=name_in_models(self.models, target, dialect) or target.unique_name)
        indexes = [index for index in read_indexes(self.connection, name, self.schema) if index.is_on(self.column)]
        primary_key = primary_key_of(self.inspector, name, self.schema)
        if primary_key == [self.column] and not any(index.primary for index in indexes):  # rowid of SQLite
            indexes = [IndexFacts("primary key", unique=True, constraint=True, primary=True), *indexes]
        rows = sampling.read(self.connection, target, primary_key, self.sample, format)
        forms = sampling.forms_of(rows.ids)
        if format is None and len(forms) == 1:
            target = replace(target, format=guess_from(rows.ids) or target.format)
        target = with_free_name(target, indexes)
        state = target.read_state(self.connection)
        return Subject(self.connection, full_name, target, state, type_, indexes, rows, forms, format, self.sample)

    def _format_in_models(self, name: str) -> Format | None:
        for metadata in [self.models] if isinstance(self.models, MetaData) else self.models or ():
            table = metadata.tables.get(f"{self.schema}.{name}" if self.schema else name)
            for column in () if table is None else public_id_columns(table):
                if column.name == self.column:
                    return public_id_type(column).id_format
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
