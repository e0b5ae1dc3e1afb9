"""Try what triggers and views of SQLite do before and after a migration.

``EXPLAIN`` compiles a statement with all triggers that it fires, and reports what would fail, without executing it. So
nothing has to be parsed here, and a copy of the schema in memory is enough.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import Connection, inspect
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects.quoting import quoted
from sqlalchemy_public_id.migrations.plan import Migration
from sqlalchemy_public_id.migrations.session import send
from sqlalchemy_public_id.migrations.sqlite.schema_copy import copied_schema
from sqlalchemy_public_id.migrations.sqlite.table import SQLiteTable
from sqlalchemy_public_id.migrations.stored_code.programs import StoredCode
from sqlalchemy_public_id.migrations.stored_code.scope import BrokenStatement
from sqlalchemy_public_id.migrations.stored_code.shapes import Change


class _Program(NamedTuple):
    name: str
    label: str


def read_stored_code(migration: Migration, change: Change) -> StoredCode:
    """Return the triggers and views that fail only after the *change*, and those that fail on a copy already before."""
    target, temporary = replace(migration.target, schema=None), _temporary(migration)
    with copied_schema(migration) as copy:
        if not inspect(copy).has_table(target.table):
            return StoredCode(not_examined=(f"the triggers of {target.table}, which cannot be copied", *temporary))
        before = dict(_failures(copy))
        plan, table = type(migration.plan)(target, copy.dialect), SQLiteTable(copy, target)
        try:
            for step in plan.expand()[:1] if change.adds else plan.drop():
                for sql in step.statements(table.read_state()):
                    send(copy, sql)
        except DBAPIError:
            return StoredCode(not_examined=temporary)  # the rehearsal reports the error
        after = dict(_failures(copy))
        master = send(copy, "SELECT name, sql FROM sqlite_master WHERE type IN ('trigger', 'view')").all()
    found = [BrokenStatement(it.label, "", reason) for it, reason in after.items() if it not in before]
    concerned = {row.name for row in master if target.table.lower() in row.sql.lower()}
    missing = [f"{it.label}, as it needs the application ({why})" for it, why in before.items() if it.name in concerned]
    return StoredCode(tuple(found), not_examined=(*missing, *temporary))


def _temporary(migration: Migration) -> tuple[str, ...]:
    """Return the triggers and views of this connection alone that name the table; nobody sees those of others."""
    query = (
        "SELECT type, name FROM sqlite_temp_master WHERE type IN ('trigger', 'view') "
        "AND instr(lower(sql), lower(?)) > 0 ORDER BY rowid"
    )
    rows = migration.table.connection.exec_driver_sql(query, (migration.target.table,)).all()
    return tuple(f"the {row.type} {row.name}, which is temporary" for row in rows)


def _failures(copy: Connection) -> Iterator[tuple[_Program, str]]:
    """Yield the programs that SQLite does not compile, and why."""
    objects = send(copy, "SELECT type, name, tbl_name FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'")
    triggers: dict[str, list[str]] = {}
    relations: list[tuple[str, str]] = []
    for kind, name, table in objects.all():
        if kind == "trigger":
            triggers.setdefault(table.lower(), []).append(name)
        elif kind in ("table", "view"):
            relations.append((kind, name))
    for kind, name in relations:
        reason = _refusal(copy, f"SELECT * FROM {quoted(name, copy.dialect)}")
        if reason is not None:
            yield _Program(name, f"the {kind} {name}"), reason
        else:
            yield from _failures_of_triggers(copy, name, triggers.get(name.lower(), ()))


def _failures_of_triggers(copy: Connection, relation: str, triggers: Iterable[str]) -> Iterator[tuple[_Program, str]]:
    """Yield the triggers of one table or view that cannot be compiled; each is tried while there is no other."""
    names = [*triggers]
    statements = [*_statements(copy, relation)] if names else []
    if not any(_refusal(copy, statement) for statement in statements):
        return
    all_names = [*send(copy, "SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars()]
    with _without(copy, all_names):  # a view refuses what it has no trigger for
        refused_anyway = {_refusal(copy, statement) for statement in statements}
    for name in names:
        with _without(copy, [other for other in all_names if other != name]):
            reasons = [_refusal(copy, statement) for statement in statements]
        for reason in reasons:
            if reason is not None and reason not in refused_anyway:
                yield _Program(name, f"the trigger {name} of {relation}"), reason
                break


@contextmanager
def _without(copy: Connection, triggers: Iterable[str]) -> Generator[None]:
    """Drop the *triggers* for a moment."""
    send(copy, "SAVEPOINT without")
    for name in triggers:
        send(copy, f"DROP TRIGGER {quoted(name, copy.dialect)}")
    yield
    send(copy, "ROLLBACK TO without")
    send(copy, "RELEASE without")


def _statements(copy: Connection, relation: str) -> Iterator[str]:
    """Yield statements that fire all triggers of a table or view."""
    table = quoted(relation, copy.dialect)
    rows = send(copy, f"PRAGMA table_xinfo({table})").all()
    columns = [quoted(row.name, copy.dialect) for row in rows if row.hidden == 0]
    yield f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('NULL' for _ in columns)})"
    yield f"UPDATE {table} SET {', '.join(f'{column} = {column}' for column in columns)}"
    yield f"DELETE FROM {table}"


def _refusal(copy: Connection, statement: str) -> str | None:
    """Return why SQLite does not compile *statement*."""
    try:
        send(copy, f"EXPLAIN {statement}")
    except DBAPIError as error:
        return str(error.orig)
    return None
