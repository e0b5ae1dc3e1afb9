"""What is wrong with the public ids of a database: it reads catalogs and samples, and changes nothing.

>>> from sqlalchemy_public_id import audit
>>> report = audit.run(engine)
>>> [table.name for table in report.tables]
['user']
>>> [finding.problem for finding in report.at_least("warning")]
[]

Each :class:`Finding` says what is wrong in a sentence, in facts, and in lines to paste (its ``advice``). No table is
read as a whole: ids are looked at in a sample, rows without an id are counted where an index finds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from sqlalchemy import Connection, Engine, inspect

from sqlalchemy_public_id.audit import sampling
from sqlalchemy_public_id.audit.checks import Subject, findings
from sqlalchemy_public_id.audit.clusters import Clusters, counted
from sqlalchemy_public_id.audit.clusters import findings as findings_on_keys
from sqlalchemy_public_id.audit.report import Finding, Problem, Report, Severity, TableReport, worst_first
from sqlalchemy_public_id.dialects.catalog import read_facts
from sqlalchemy_public_id.errors import ConfigurationError, shown
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
    """Look at every table that has a *column* of public ids.

    :param schema: where to look, instead of the usual schema of the connection.
    :param tables: which tables; all of them where nothing is said.
    :param formats: table → format of its ids. For other tables, the most frequent form is taken for the right one.
    :param clusters: table → the number of its cluster, or the range of its keys, where the database cannot tell: for
        ``AUTO_INCREMENT`` without ``enforce_range=True``. Keys of a cluster are looked at in tables without public ids,
        too.
    :param sample: how many rows of each table are read at most.
    :raises ConfigurationError: where *tables*, *formats* or *clusters* name a table that is not there.

    >>> from sqlalchemy_public_id import NanoId, audit
    >>> report = audit.run(engine, formats={"user": NanoId(prefix="usr")})
    >>> print(report.at_least("error")[0].message)
    1 of 1 ids that were read are malformed: 'izkpm55j334u' (expected usr_ and 12 of 0-9 a-z)
    """
    if sample < 1:
        raise ConfigurationError(f"sample is {shown(sample)}, expected 1 or more")
    if isinstance(bind, Engine):
        with bind.connect() as connection:
            return _run(connection, schema, tables, column, formats or {}, clusters or {}, sample)
    began = bind.in_transaction()
    try:
        return _run(bind, schema, tables, column, formats or {}, clusters or {}, sample)
    finally:
        if not began and bind.in_transaction():
            bind.rollback()  # nothing was written; leave the connection as it was given


def _run(
    connection: Connection,
    schema: str | None,
    tables: Collection[str] | None,
    column: str,
    formats: Mapping[str, Format],
    known: Clusters,
    size: int,
) -> Report:
    inspector = inspect(connection)
    there = inspector.get_table_names(schema=schema)
    asked = [*(there if tables is None else tables), *formats, *known]
    unknown = sorted({name for name in asked if name not in there})
    if unknown:
        where = f" in schema {schema!r}" if schema else ""
        raise ConfigurationError(
            f"there is no table {', '.join(map(repr, unknown))}{where}; there are: {', '.join(sorted(there)) or 'none'}"
        )
    looked_at: list[TableReport] = []
    found: list[Finding] = []
    for name in sorted(set(there if tables is None else tables)):
        full_name = f"{schema}.{name}" if schema else name
        facts = read_facts(connection, inspector, name, schema, column)
        keys = counted(connection, inspector, name, schema, known)
        of_keys = list(findings_on_keys(connection, full_name, name, schema, keys)) if keys else []
        if facts is None:
            looked_at.append(TableReport(full_name, has_column=False))
            found += worst_first(of_keys)
            continue
        rows = sampling.read(connection, facts, size, formats.get(name))
        forms = sampling.forms_of(rows.ids)
        looked_at.append(TableReport(full_name, True, len(rows.ids), _by_words(forms)))
        subject = Subject(connection, full_name, facts, rows, forms, formats.get(name), size)
        others = [each for each in findings(subject) if not keys or each.problem != "key-nearly-full"]
        found += worst_first([*others, *of_keys])
    return Report(found, looked_at)


def _by_words(forms: Counter[sampling.Form]) -> dict[str, int]:
    return {str(form): count for form, count in forms.most_common()}
