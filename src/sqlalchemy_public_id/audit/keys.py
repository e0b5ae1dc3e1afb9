"""The integer key of a table: the used share of its type."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, Inspector

from sqlalchemy_public_id.advice import about
from sqlalchemy_public_id.audit.report import Finding, Severity
from sqlalchemy_public_id.keys.ranges import LAST_KEY
from sqlalchemy_public_id.migrating.catalog import read_key

_HALF_FULL = 0.5
_NEARLY_FULL = 0.9


def key_findings(
    connection: Connection, inspector: Inspector, name: str, schema: str | None, full_name: str
) -> Iterator[Finding]:
    """Yield the problem of the key of the table *name*, with or without public ids, if it has one."""
    key = read_key(connection, inspector, name, schema)
    if key is None or key.value / key.limit < _HALF_FULL:
        return
    full = key.value / key.limit
    severity: Severity = "error" if full >= _NEARLY_FULL else "warning"
    message = (
        f"the key {key.column} ({key.type}) is {full:.0%} full, at {key.value} of {key.limit}: "
        f"it runs out after another {(key.limit - key.value) / key.value:.0%} of the rows so far"
    )
    if key.limit == LAST_KEY:  # no counter that begins at 1 gets so far
        message += "; if its keys are those of a cluster, pass the cluster: clusters=, or --cluster"
    facts = {"type": key.type, "value": key.value, "limit": key.limit, "full": round(full, 4)}
    advice = about("key-nearly-full", table=name, key=key.column)
    yield Finding(full_name, key.column, "key-nearly-full", severity, message, facts, advice)
