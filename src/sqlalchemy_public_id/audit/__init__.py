"""Check the public ids in a database. An audit reads the catalogs and a sample of the rows, and changes nothing.

>>> from sqlalchemy_public_id import audit
>>> report = audit.run(engine)
>>> [table.name for table in report.tables]
['user']
>>> [finding.problem for finding in report.at_least("warning")]
[]

Each :class:`Finding` describes one problem, as a sentence and as facts. Its :class:`Remedy` has the statements or the
command that repair the problem, or the obstacles to a repair. Large tables are cheap to audit, because ids are checked
in a sample and rows without an id are counted in an index.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from sqlalchemy import Connection, Engine, Inspector, inspect
from sqlalchemy.exc import DBAPIError, NoResultFound, NoSuchTableError, UnreflectableTableError

from sqlalchemy_public_id.audit.checks import find_problems
from sqlalchemy_public_id.audit.report import Finding, Problem, Remedy, Report, Severity, TableReport, worst_first
from sqlalchemy_public_id.audit.tables import AuditedTable, AuditSettings
from sqlalchemy_public_id.dialects import is_autocommit, message_of, traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.keys.cluster.audit import Clusters
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.migrations.databases import database_of, is_supported, names_of_databases
from sqlalchemy_public_id.migrations.from_models import Models

__all__ = ["Finding", "Problem", "Remedy", "Report", "Severity", "TableReport", "run"]

_UNREADABLE = (DBAPIError, NoResultFound, NoSuchTableError, UnreflectableTableError)
"""A privilege is missing, the table is damaged, or it was dropped since it was listed."""


def run(
    bind: Engine | Connection,
    *,
    schema: str | None = None,
    tables: Collection[str] | None = None,
    column: str | None = None,
    formats: Mapping[str, Format] | None = None,
    models: Models = None,
    clusters: Clusters | None = None,
    sample: int = 10_000,
    defaults: bool = False,
) -> Report:
    """Audit every table that has a *column* of public ids, and the integer keys of all tables.

    :param column: the name of the column. By default, it is each column of public ids that *models* declare, and
        ``public_id`` in other tables, unless *models* declare it for ids of other rows, as a history table does.
    :param schema: the schema to audit; the default schema of the connection if it is left out.
    :param tables: the names of the tables to audit; all tables by default.
    :param formats: the format of the ids, by table. The audit takes the formats of other tables from *models*, or
        guesses them from most of their ids.
    :param models: the ``MetaData`` of your models, or several of them. The audit takes formats and the names of
        missing unique indexes from them, and the counters and clusters of keys.
    :param clusters: the cluster number or the range of keys, by table, with which the database is compared. An
        ``AUTO_INCREMENT`` without ``enforce_range=True`` shows neither. Keys of a cluster are also checked in tables
        without public ids.
    :param sample: the largest number of rows to read from each table.
    :param defaults: add a finding for each table whose ids the database does not generate.
        :attr:`Report.without_default` lists these tables in any case.
    :raises ConfigurationError: if *schema* does not exist; if *tables*, *formats* or *clusters* name a table that does
        not exist; if no table has the *column*; if an argument is of another type, such as *models* that are no
        ``MetaData``; or if the database is not MariaDB, MySQL, PostgreSQL or SQLite.

    >>> from sqlalchemy_public_id import NanoId, audit
    >>> report = audit.run(engine, formats={"user": NanoId(prefix="usr")})
    >>> print(report.at_least("error")[0].message)
    1 of 1 ids that were read are malformed: 'izkpm55j334u' (expected usr_ and 12 of 0-9 a-z)
    """
    given: Any = () if models is None else models
    is_one = isinstance(models, type) or not hasattr(given, "__iter__")  # the metaclass of SQLModel has __iter__()
    settings = AuditSettings(
        schema=schema,
        tables=tables,
        column=column,
        formats={} if formats is None else formats,
        models=[given] if is_one else [*given],
        clusters={} if clusters is None else clusters,
        sample=sample,
        defaults=defaults,
    )
    report = read_schema(bind, settings)
    require_column(report, column)
    return report


def require_column(report: Report, column: str | None) -> None:
    """Refuse a *column* that was named and that no table of *report* has, as far as the tables can be read."""
    known = [each for each in report.tables if each.has_column or not each.readable]
    if column is not None and report.tables and not known:
        tables = ", ".join(each.name for each in report.tables)
        raise ConfigurationError(f"there is no column {safe_repr(column)} in {tables}")


def read_schema(bind: Engine | Connection, settings: AuditSettings) -> Report:
    """Return the report of :func:`run`, also if no table has the column: one of several schemas may lack it."""
    schema = settings.schema
    report = Report([], [])
    with _connected(bind) as connection:
        if not is_supported(connection.dialect):
            raise ConfigurationError(f"cannot audit {connection.dialect.name}; expected one of {names_of_databases()}")
        inspector = inspect(connection)
        existing = _list_tables(inspector, schema)
        audited = set(existing if settings.tables is None else settings.tables)
        if unknown := sorted({*audited, *settings.formats, *settings.clusters} - {*existing}):
            place = f" in schema {schema!r}" if schema else ""
            raise ConfigurationError(
                f"there is no table {', '.join(map(repr, unknown))}{place}; "
                f"there are: {', '.join(sorted(existing)) or 'none'}"
            )
        for name in sorted(audited):
            for position, each in enumerate(settings.columns_of(name)):
                table = AuditedTable(connection, inspector, name, each, settings, is_first=position == 0)
                of_table, found = _audit(table, audited)
                report.tables.append(of_table)
                report.findings.extend(one for one in found if settings.defaults or one.problem != "default-missing")
    return report


@contextmanager
def _connected(bind: Engine | Connection) -> Generator[Connection]:
    with bind.connect() if isinstance(bind, Engine) else nullcontext(bind) as connection:
        began = connection.in_transaction()
        is_known = is_supported(connection.dialect)
        try:
            with database_of(connection.dialect).session(connection).all_rows() if is_known else nullcontext():
                yield connection
        finally:
            if not began and connection.in_transaction():
                connection.rollback()  # nothing was written; the caller gets the connection back as it was


def _list_tables(inspector: Inspector, schema: str | None) -> list[str]:
    # PostgreSQL does not list its own schemas
    if schema is not None and schema not in inspector.get_schema_names() and not inspector.has_schema(schema):
        schemas = ", ".join(sorted(inspector.get_schema_names()))
        raise ConfigurationError(f"there is no schema {safe_repr(schema)}; there are: {schemas}")
    return inspector.get_table_names(schema=schema)


def _audit(table: AuditedTable, audited: Collection[str]) -> tuple[TableReport, list[Finding]]:
    """Audit *table*, or return the reason why it cannot be read. A partition counts as part of its table."""
    connection, has_column = table.connection, None
    # on PostgreSQL, a statement that fails aborts the transaction of the caller
    is_aborted = traits_for(connection.dialect).aborts_transaction and not is_autocommit(connection)
    try:
        with connection.begin_nested() if is_aborted else nullcontext():
            has_column = table.has_column
            if table.partition_of in audited:
                return table.report(), []
            return table.report(), worst_first(find_problems(table))
    except _UNREADABLE as error:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            raise
        is_gone = isinstance(error, (NoResultFound, NoSuchTableError))
        reason = "it is gone" if is_gone else message_of(error).partition("\n")[0]
        message = f"the table cannot be read, and was not checked: {reason}"
        severity: Severity = "info" if has_column is False else "warning"
        report = TableReport(table.full_name, has_column=bool(has_column), readable=False, column=table.column)
        return report, [table.finding("table-unreadable", severity, message, error=reason)]
