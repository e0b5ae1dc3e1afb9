"""Read the functions of PostgreSQL that see the rows of a table: those of its triggers, and those that name it.

Views, rules and functions with ``BEGIN ATOMIC`` store the columns that ``*`` stood for when they were created, and
PostgreSQL itself refuses to drop a column that one of them needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sqlalchemy import JSON, Row, text

from sqlalchemy_public_id.migrations.plan import Migration
from sqlalchemy_public_id.migrations.postgresql.catalogs import PARTITIONS, THIS
from sqlalchemy_public_id.migrations.stored_code.programs import Reader, StoredCode
from sqlalchemy_public_id.migrations.stored_code.scope import BrokenStatement, Language, Path, Program
from sqlalchemy_public_id.migrations.stored_code.shapes import UNKNOWN, Change, Shape
from sqlalchemy_public_id.migrations.stored_code.tokens import Lexis

LANGUAGE = Language(Lexis(has_dollar_quotes=True, nests_comments=True), inserts="at most", selects_into="any")
_TABLE = text(f"""
SELECT n.nspname AS schema, c.relname AS name,
       COALESCE((SELECT pg_catalog.json_agg(a.attname ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > CAST(0 AS int2) AND NOT a.attisdropped), '[]') AS columns
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = {THIS} OR c.oid IN {PARTITIONS}
ORDER BY c.oid = {THIS} DESC
""").columns(columns=JSON())
_COLUMNS = text("""
SELECT a.attname FROM pg_catalog.pg_attribute a
WHERE a.attnum > CAST(0 AS int2) AND NOT a.attisdropped AND a.attrelid = (
    SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = CAST(:name AS text) AND (n.nspname = CAST(:in AS text) OR CAST(:in AS text) IS NULL)
      AND CAST(c.relkind AS text) IN ('r', 'p', 'v', 'm', 'f', 'c')
    ORDER BY pg_catalog.pg_table_is_visible(c.oid) DESC, c.oid LIMIT 1)
ORDER BY a.attnum
""")
_TRIGGERS = text(f"""
SELECT DISTINCT CAST(t.tgfoid AS bigint) AS function, t.tgname AS name, t.tgoldtable AS old, t.tgnewtable AS new,
       pg_catalog.encode(t.tgargs, 'escape') AS arguments
FROM pg_catalog.pg_trigger t
WHERE (t.tgrelid = {THIS} OR t.tgrelid IN {PARTITIONS}) AND NOT t.tgisinternal AND t.tgenabled <> 'D'
ORDER BY t.tgname
""")
_RELATIONS = text("""
SELECT CAST(t.tgfoid AS bigint) AS function, pg_catalog.min(CAST(CAST(t.tgrelid AS regclass) AS text)) AS relation
FROM pg_catalog.pg_trigger t
WHERE CAST(t.tgfoid AS bigint) = ANY (CAST(:functions AS bigint[])) AND NOT t.tgisinternal
GROUP BY t.tgfoid
""")
_GENERIC = "('record', 'anyelement', 'anycompatible', 'anynonarray')"
"""Names of types whose arguments take the rows of any table."""
# body: of BEGIN ATOMIC, with the columns of its creation. Most functions are left out by the types of their arguments,
# before these are described: a database may have tens of thousands.
_FUNCTIONS = text(f"""
SELECT CAST(p.oid AS bigint) AS function, p.proname AS name, CAST(CAST(p.oid AS regprocedure) AS text) AS signature,
       l.lanname AS language, n.nspname = 'pg_catalog' AS is_server_s,
       COALESCE(pg_catalog.pg_get_function_sqlbody(p.oid), p.prosrc) AS body,
       {THIS} = r.typrelid AS returns_ours,
       CASE WHEN r.typrelid <> CAST(0 AS oid) THEN CAST(CAST(r.typrelid AS regclass) AS text) END AS returned,
       (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(
                   p.proargnames[CAST(u.place AS int)], COALESCE(p.proargmodes[CAST(u.place AS int)], 'i'),
                   t.typrelid = {THIS},
                   CASE WHEN t.typrelid <> CAST(0 AS oid) THEN CAST(CAST(t.typrelid AS regclass) AS text) END,
                   t.typname IN {_GENERIC}) ORDER BY u.place)
        FROM pg_catalog.unnest(p.arguments) WITH ORDINALITY u (type, place)
        JOIN pg_catalog.pg_type t ON t.oid = u.type) AS arguments,
       p.arguments && kinds.generic AS is_generic
FROM (SELECT *, COALESCE(proallargtypes, CAST(proargtypes AS oid[])) AS arguments FROM pg_catalog.pg_proc) p
JOIN pg_catalog.pg_language l ON l.oid = p.prolang
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
JOIN pg_catalog.pg_type r ON r.oid = p.prorettype
LEFT JOIN pg_catalog.pg_depend d  -- on an extension
    ON d.classid = 'pg_catalog.pg_proc'::regclass::oid AND d.objid = p.oid AND d.deptype = 'e'
CROSS JOIN (
    SELECT ARRAY(SELECT oid FROM pg_catalog.pg_type WHERE typname IN {_GENERIC}) AS generic,
           ARRAY(SELECT oid FROM pg_catalog.pg_type WHERE typrelid = {THIS}) AS ours) kinds
WHERE CAST(p.oid AS bigint) = ANY (CAST(:functions AS bigint[])) OR l.lanname NOT IN ('internal', 'c')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND (
    r.typrelid = {THIS} OR p.arguments && kinds.ours OR p.arguments && kinds.generic
    OR pg_catalog.strpos(pg_catalog.lower(p.prosrc), pg_catalog.lower(CAST(:table AS text))) > 0)
  AND d.objid IS NULL
ORDER BY p.proname, p.oid
""").columns(arguments=JSON())
# the setting exists if the library is loaded; without it, the view is an error
_STATISTICS = text("""
SELECT pg_catalog.quote_ident(n.nspname)
FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = 'pg_stat_statements'
WHERE e.extname = 'pg_stat_statements' AND pg_catalog.current_setting('pg_stat_statements.max', true) IS NOT NULL
  AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
""")
_SEEN = """
SELECT DISTINCT s.query FROM {schema}.pg_stat_statements s
JOIN pg_catalog.pg_database d ON d.oid = s.dbid AND d.datname = pg_catalog.current_database()
WHERE pg_catalog.strpos(pg_catalog.lower(s.query), pg_catalog.lower(CAST(:table AS text))) > 0
ORDER BY 1
"""
_FEW = 10
"""How many statements of the statistics a report names."""
_WORD = re.compile(r"\w+")


def read_stored_code(migration: Migration, change: Change) -> StoredCode:
    """Return what the *change* of the table breaks in the code that the database stores."""
    return _Catalogs(migration, change).read()


def find_statements(migration: Migration, change: Change) -> Sequence[BrokenStatement]:
    """Return what the *change* breaks among the statements in ``pg_stat_statements``, if the role may read them."""
    connection = migration.table.connection
    schema = connection.scalar(_STATISTICS)
    if schema is None:
        return ()
    seen = connection.execute(text(_SEEN.format(schema=schema)), migration.table.names).scalars().all()
    programs = [Program("pg_stat_statements", statement) for statement in seen]
    return _Catalogs(migration, change).reader({}).read(programs).by_position[:_FEW]


@dataclass
class _Catalogs:
    migration: Migration
    change: Change
    _others: Mapping[int, str] = field(default_factory=dict[int, str])
    """Function → a relation whose triggers call it."""

    def read(self) -> StoredCode:
        functions = self._functions()
        names = [row.function for row in functions]
        found = self._execute(_RELATIONS, functions=names) if names else ()
        self._others = {row.function: row.relation for row in found}
        reader = self.reader({row.name: self._table for row in functions if row.returns_ours})
        code = reader.read(program for row in functions for program in self._programs(row))
        reasons = [
            f"{self._name(row)}, which is written in {row.language}"
            for row in functions
            if row.language not in ("sql", "plpgsql") and not row.is_server_s
        ]
        return replace(code, not_examined=(*code.not_examined, *reasons), by_name=(*code.by_name, *self._arguments()))

    def reader(self, returned_by: Mapping[str, Shape]) -> Reader:
        """Return a reader of programs that may call functions which return rows."""
        return Reader(LANGUAGE, self.change, self._table, self._is_ours, self._columns_of, returned_by)

    # --- the table and other relations

    @cached_property
    def _relations(self) -> Sequence[Row[Any]]:
        return self._execute(_TABLE)

    @cached_property
    def _table(self) -> Shape:
        return self.change.of(self._relations[0].columns)

    def _is_ours(self, path: Path) -> bool:
        names = {(row.schema, row.name) for row in self._relations}
        return path[-2:] in names if len(path) > 1 else path[-1:] in {name[1:] for name in names}

    def _columns_of(self, path: Path) -> Sequence[str] | None:
        if path not in self._known:
            names = {"name": path[-1], "in": path[-2] if len(path) > 1 else None}
            found = self.migration.table.connection.execute(_COLUMNS, names).scalars().all()
            self._known[path] = found or None
        return self._known[path]

    @cached_property
    def _known(self) -> dict[Path, Sequence[str] | None]:
        return {}

    # --- triggers and functions

    @cached_property
    def _triggers(self) -> Mapping[int, Sequence[Row[Any]]]:
        """Function → triggers of the table that call it."""
        found: dict[int, list[Row[Any]]] = {}
        for row in self._execute(_TRIGGERS):
            found.setdefault(row.function, []).append(row)
        return found

    def _functions(self) -> list[Row[Any]]:
        """Return the functions of the triggers, those that name the table, and those that get its rows from these."""
        rows = self._execute(_FUNCTIONS, functions=[*self._triggers])
        wanted = [row for row in rows if row.function in self._triggers or not row.is_generic or self._names(row)]
        left = [row for row in rows if row not in wanted]
        while called := [row for row in left if any(row.name in _WORD.findall(it.body or "") for it in wanted)]:
            wanted += called
            left = [row for row in left if row not in called]
        return wanted

    def _names(self, row: Row[Any]) -> bool:
        takes_ours = any(is_ours for _, _, is_ours, _, _ in row.arguments or ())
        return bool(takes_ours or row.returns_ours or self.migration.target.table.lower() in row.body.lower())

    def _programs(self, row: Row[Any]) -> Iterator[Program]:
        if row.language not in ("sql", "plpgsql"):
            return
        variables: dict[str, Shape] = {}
        triggers = self._triggers.get(row.function, ())
        if triggers:
            variables |= {"new": self._table, "old": self._table}
            variables |= {name: self._table for it in triggers for name in (it.old, it.new) if name is not None}
        elif (relation := self._others.get(row.function)) is not None:
            other = self._shape(relation) or UNKNOWN
            variables |= {"new": other, "old": other}
        results: list[str] = []
        arguments: list[Any] = row.arguments or []
        for place, (name, mode, is_ours, relation, is_generic) in enumerate(arguments, 1):
            if mode in "obt":
                results.append(name or f"#{place}")
            shape = self._table if is_ours or is_generic else self._shape(relation)
            if shape is not None:
                variables |= {key: shape for key in (name, f"${place}") if key}
        returns = self._table if row.returns_ours else self._shape(row.returned)
        yield Program(
            self._name(row),
            row.body or "",
            variables,
            names=frozenset(name for name, *_ in row.arguments or () if name),
            returns=Shape.fixed(results) if len(results) > 1 else self._table if triggers else returns,
            ends_with_query=row.language == "sql",
        )

    def _shape(self, relation: str | None) -> Shape | None:
        if relation is None:
            return None
        columns = self._columns_of(tuple(part.strip('"') for part in relation.split(".")))
        return None if columns is None else Shape.fixed(columns)

    def _name(self, row: Row[Any]) -> str:
        names = dict.fromkeys(it.name for it in self._triggers.get(row.function, ()))
        of = f" of the trigger{'s' * (len(names) > 1)} {', '.join(names)}" if names else ""
        return f"the function {row.signature}{of}"

    def _arguments(self) -> Iterable[str]:
        """Return the triggers that get the name of the dropped column as an argument."""
        for rows in () if self.change.adds else self._triggers.values():
            for row in rows:
                if self.change.column in row.arguments.split("\\000"):
                    yield f"the trigger {row.name}"

    def _execute(self, query: Any, **more: Any) -> Sequence[Row[Any]]:
        migration = self.migration
        return migration.table.connection.execute(query, {**migration.table.names, **more}).all()
