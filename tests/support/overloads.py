"""A database of PostgreSQL in which another role has overloaded what it can: operators and functions of other types.

A role that may create objects in a schema of the search path cannot replace an operator of ``pg_catalog``. It can
create one of the same name for other types, and PostgreSQL prefers that wherever ``pg_catalog`` has no exact match
(CVE-2018-1058). Each function here warns when it is called, with its name, and then answers as PostgreSQL would.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psycopg import ClientCursor
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool

import sqlalchemy_public_id

_MALLORY = f"public_id_mallory_{os.getpid()}"
_OPERATORS = [
    *("=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "/", "%", "&", "|", "<<", ">>", "||"),
    *("~", "!~", "~*", "~~", "!~~", "->", "->>"),
]
_TYPES = (
    *("smallint", "integer", "bigint", "numeric", "double precision", "text", "varchar", "bpchar", "name", '"char"'),
    *("boolean", "oid", "regclass", "regtype", "regnamespace", "int2vector", "oidvector", "uuid", "bytea", "tid"),
    *("pg_lsn", "json", "jsonb", "timestamptz", "interval"),
    *("smallint[]", "integer[]", "bigint[]", "text[]", "varchar[]", "name[]", "oid[]", "tid[]", "uuid[]"),
)
_FEW_TYPES = (
    *("smallint", "integer", "bigint", "numeric", "text", "varchar", "name", "oid", "regclass", "uuid", "bytea"),
    *("text[]", "varchar[]", "tid[]", "int2vector", "timestamptz"),
)
"""For functions of two or three arguments."""
_REFLECTION = {"sqlalchemy.engine.reflection", "sqlalchemy.dialects.postgresql.base"}
"""The modules of SQLAlchemy that reflect tables: their statements compare names with VARCHAR."""

_OVERLOAD_OPERATORS = """
DO $do$
DECLARE
    n int := 0; each record;
    numbers regtype[] := '{smallint,integer,bigint,numeric,double precision}';
BEGIN
    FOR each IN
        SELECT op.name, l.type AS l, r.type AS r,
               array_position(numbers, l.type) AS nl, array_position(numbers, r.type) AS nr
        FROM unnest(%(operators)s::text[]) op(name), unnest(%(types)s::regtype[]) l(type),
             unnest(%(types)s::regtype[]) r(type)
        WHERE NOT EXISTS (SELECT FROM pg_operator o WHERE o.oprname = op.name AND o.oprleft = l.type
                          AND o.oprright = r.type AND o.oprnamespace = 'pg_catalog'::regnamespace)
          AND (op.name <> ALL ('{+,-,*,/,%%,&,|,<<,>>}')
               OR 'N' IN (SELECT typcategory FROM pg_type WHERE oid IN (l.type, r.type))
               OR 'pg_lsn'::regtype IN (l.type, r.type))
    LOOP
        n := n + 1;
        IF n %% 1000 = 0 THEN COMMIT; END IF;
        EXECUTE format('CREATE FUNCTION public.operator_%%s(%%s, %%s) RETURNS %%s LANGUAGE plpgsql AS '
                       '$$ BEGIN RAISE WARNING ''called %%%%'', %%L; %%s END $$',
            n, each.l, each.r,
            CASE WHEN each.name ~ '^(<|>|=|<>|<=|>=|!?~.*)$' THEN 'boolean'
                 WHEN each.name IN ('||', '->', '->>') THEN 'text'
                 WHEN each.nl + each.nr > 0 THEN numbers[greatest(each.nl, each.nr)]::text ELSE each.l::text END,
            format('%%s %%s %%s', each.l, each.name, each.r),
            CASE WHEN each.name ~ '^(<|>|=|<>|<=|>=|!?~.*)$'
                 THEN format('RETURN $1::text OPERATOR(pg_catalog.%%s) $2::text;', each.name)
                 WHEN each.name = '||' THEN 'RETURN $1::text OPERATOR(pg_catalog.||) $2::text;'
                 WHEN each.name IN ('+', '-', '*', '/', '%%') AND each.nl + each.nr > 0
                 THEN format('RETURN $1::numeric OPERATOR(pg_catalog.%%s) $2::numeric;', each.name)
                 WHEN each.name IN ('&', '|') AND each.nl + each.nr > 0
                 THEN format('RETURN $1::bigint OPERATOR(pg_catalog.%%s) $2::bigint;', each.name)
                 ELSE 'RAISE ''called''; ' END);
        EXECUTE format('CREATE OPERATOR public.%%s (LEFTARG = %%s, RIGHTARG = %%s, FUNCTION = public.operator_%%s)',
                       each.name, each.l, each.r, n);
    END LOOP;
END
$do$
"""
_OVERLOAD_FUNCTIONS = """
DO $do$
DECLARE n int := 0; each record;
BEGIN
    FOR each IN
        WITH named AS (SELECT DISTINCT proname AS name, pronargs AS count FROM pg_proc
                       WHERE proname = ANY (%(names)s) AND pronamespace = 'pg_catalog'::regnamespace),
        signatures AS (
            SELECT name, ARRAY[a]::regtype[] AS types FROM named, unnest(%(types)s::regtype[]) a WHERE count = 1
            UNION SELECT name, ARRAY[a, b] FROM named, unnest(%(few)s::regtype[]) a, unnest(%(few)s::regtype[]) b
            WHERE count = 2
            UNION SELECT name, ARRAY[a, b, c]
            FROM named, unnest(%(few)s::regtype[]) a, unnest('{text,varchar,integer,bigint}'::regtype[]) b,
                 unnest('{text,varchar,integer}'::regtype[]) c
            WHERE count = 3)
        SELECT name, array_to_string(types, ', ') AS types FROM signatures
        WHERE NOT EXISTS (SELECT FROM pg_proc WHERE proname = name AND pronamespace = 'pg_catalog'::regnamespace
                          AND proargtypes::oid[] = types::oid[])
    LOOP
        n := n + 1;
        IF n %% 1000 = 0 THEN COMMIT; END IF;
        EXECUTE format('CREATE FUNCTION public.%%I(%%s) RETURNS text LANGUAGE plpgsql AS '
                       '$$ BEGIN RAISE ''called %%%%'', %%L; END $$',
                       each.name, each.types, format('%%s(%%s)', each.name, each.types));
    END LOOP;
END
$do$
"""


@contextmanager
def overloaded_database(server: URL, name: str) -> Iterator[URL]:
    """Create a database whose schema ``public`` has the overloads, and drop it at the end; yield its URL."""
    admin = create_engine(server, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    url = server.set(database=name)
    source = "".join(path.read_text() for path in Path(*sqlalchemy_public_id.__path__).rglob("*.py"))
    names = sorted({*re.findall(r"\b([a-z_]\w*)\(", source)} - {"text", "name"})
    arguments = {"operators": _OPERATORS, "types": [*_TYPES], "few": [*_FEW_TYPES], "names": names}
    with admin.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
        connection.exec_driver_sql(f"DROP ROLE IF EXISTS {_MALLORY}")
        connection.exec_driver_sql(f"CREATE ROLE {_MALLORY}")
    try:
        with create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool).connect() as connection:
            # what each role may do before PostgreSQL 15
            connection.exec_driver_sql(f"GRANT CREATE ON SCHEMA public TO {_MALLORY}")
            connection.exec_driver_sql(f"SET ROLE {_MALLORY}")
            for setting in ("check_function_bodies = off", "synchronous_commit = off", "search_path = pg_catalog"):
                connection.exec_driver_sql(f"SET {setting}")
            for statement in (_OVERLOAD_OPERATORS, _OVERLOAD_FUNCTIONS):  # DO has no parameters
                ClientCursor(connection.connection.driver_connection).execute(statement, arguments)
        yield url
    finally:
        with admin.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
            connection.exec_driver_sql(f"DROP ROLE {_MALLORY}")


class Calls(list[str]):
    """The overloads that were called, each with the statement that has called it."""

    def __init__(self, engine: Engine) -> None:
        self.statement: str = ""
        event.listen(engine, "connect", self._listen)
        event.listen(engine, "before_cursor_execute", self._note)

    def _listen(self, dbapi_connection: Any, record: Any) -> None:
        dbapi_connection.add_notice_handler(self._add)

    def _note(self, connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        frame = sys._getframe()
        while frame is not None and frame.f_globals["__name__"] not in _REFLECTION:
            frame = frame.f_back
        self.statement = statement if frame is None else ""

    def _add(self, diagnostic: Any) -> None:
        message = diagnostic.message_primary or ""
        if message.startswith("called") and self.statement:
            found = f"{message.removeprefix('called ')} in {' '.join(self.statement.split())}"
            if found not in self:
                self.append(found)
