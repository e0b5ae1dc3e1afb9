"""Audit of the public ids in a database. Reads catalogs and samples, and changes nothing.

>>> from sqlalchemy_public_id import audit
>>> report = audit.run(engine)
>>> [table.name for table in report.tables]
['user']
>>> [finding.problem for finding in report.at_least("warning")]
[]

Each :class:`Finding` has the problem in a sentence, as facts, and lines to paste (its ``advice``). No table is read as
a whole: ids are checked in a sample, and rows without an id are counted in an index.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, inspect

from sqlalchemy_public_id.audit import sampling
from sqlalchemy_public_id.audit.checks import Subject, findings
from sqlalchemy_public_id.audit.clusters import Clusters, cluster_findings
from sqlalchemy_public_id.audit.report import Finding, Problem, Report, Severity, TableReport, worst_first
from sqlalchemy_public_id.dialects.catalog import read_facts
from sqlalchemy_public_id.errors import ConfigurationError, safe_repr
from sqlalchemy_public_id.formats import Format

__all__ = ["Finding", "Problem", "Report", "Severity", "TableReport", "run"]


def run(
    bind: Engine | Connection,
    *,
    schema: str | None = None,
    tables: Collection[str] | None = None,
    column: str = "public_id",
    formats: Mapping[str, Format] | None = None,
    clusters: Clusters | None = None,
    sample: int = 10_000,
) -> Report:
    """Audit every table that has a *column* of public ids.

    :param schema: the schema, instead of the default one of the connection.
    :param tables: the tables; all of them by default.
    :param formats: table → format of its ids. In other tables, the most frequent form is taken as the right one.
    :param clusters: table → the number of its cluster, or the range of its keys, if the database does not show it: for
        ``AUTO_INCREMENT`` without ``enforce_range=True``. Keys of a cluster are checked in tables without public ids,
        too.
    :param sample: the number of rows that are read of each table, at most.
    :raises ConfigurationError: if *tables*, *formats* or *clusters* name a table that does not exist.

    >>> from sqlalchemy_public_id import NanoId, audit
    >>> report = audit.run(engine, formats={"user": NanoId(prefix="usr")})
    >>> print(report.at_least("error")[0].message)
    1 of 1 ids that were read are malformed: 'izkpm55j334u' (expected usr_ and 12 of 0-9 a-z)
    """
    if sample < 1:
        raise ConfigurationError(f"sample is {safe_repr(sample)}, expected 1 or more")
    formats, clusters = formats or {}, clusters or {}
    report = Report([], [])
    with _connected(bind) as connection:
        inspector = inspect(connection)
        existing = inspector.get_table_names(schema=schema)
        audited = set(existing if tables is None else tables)
        if unknown := sorted({*audited, *formats, *clusters} - {*existing}):
            place = f" in schema {schema!r}" if schema else ""
            raise ConfigurationError(
                f"there is no table {', '.join(map(repr, unknown))}{place}; "
                f"there are: {', '.join(sorted(existing)) or 'none'}"
            )
        for name in sorted(audited):
            full_name = f"{schema}.{name}" if schema else name
            facts = read_facts(connection, inspector, name, schema, column)
            of_keys = cluster_findings(connection, inspector, name, schema, clusters)
            if facts is None:
                report.tables.append(TableReport(full_name, has_column=False))
                report.findings.extend(worst_first(of_keys or []))
                continue
            rows = sampling.read(connection, facts, sample, formats.get(name))
            forms = sampling.forms_of(rows.ids)
            counts = {str(form): count for form, count in forms.most_common()}
            report.tables.append(TableReport(full_name, True, len(rows.ids), counts))
            subject = Subject(connection, full_name, facts, rows, forms, formats.get(name), sample)
            # a key that counts within a range is full at the end of the range, not of its type
            others = [one for one in findings(subject) if of_keys is None or one.problem != "key-nearly-full"]
            report.findings.extend(worst_first([*others, *(of_keys or ())]))
    return report


@contextmanager
def _connected(bind: Engine | Connection) -> Generator[Connection]:
    if isinstance(bind, Engine):
        with bind.connect() as connection:
            yield connection
        return
    began = bind.in_transaction()
    try:
        yield bind
    finally:
        if not began and bind.in_transaction():
            bind.rollback()  # nothing was written; the caller gets the connection back as it was
