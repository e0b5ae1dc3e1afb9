"""What the catalogs of PostgreSQL say about a table.

Another role may have created operators and functions in a schema of the search path, and PostgreSQL prefers those whose
types match more exactly than the types of ``pg_catalog``. So functions are qualified, and operators match exactly: a
``name`` is compared with ``text``, an ``oid`` with an ``oid``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import JSON, Inspector, Integer, Row, text
from sqlalchemy.exc import NoSuchTableError

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrations.state import IndexFacts, State
from sqlalchemy_public_id.migrations.table import LiveTable, indexes_from

# conindid is also set for a foreign key, to the index that it refers to
_INDEXES = """
SELECT c.relname AS name, i.indisunique AS "unique", i.indisvalid AS valid, i.indpred IS NOT NULL AS partial,
       i.indisprimary AS "primary", CASE WHEN i.indnkeyatts = 1 THEN a.attname END AS only_column,
       NOT i.indimmediate AS "deferrable", CAST(am.amname AS text) AS kind,
       EXISTS (SELECT FROM pg_catalog.pg_constraint n
               WHERE n.conindid = c.oid AND n.contype IN ('u', 'p', 'x')) AS "constraint"
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_am am ON am.oid = c.relam
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = CAST(pg_catalog.to_regclass(:regclass) AS oid)
ORDER BY c.relname
"""
# default: the server stores DEFAULT NULL of a varchar(12) as NULL::character varying. unproven: NOT NULL NOT VALID, in
# PostgreSQL 18. filled: a BEFORE INSERT trigger for each row mentions the column.
_STATE = text(f"""
SELECT CAST(c.relkind AS text) AS kind, CAST(CAST(c.relnamespace AS regnamespace) AS text) AS schema,
       a.attnum IS NOT NULL AS "exists", NOT a.attnotnull AS nullable,
       CASE WHEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) !~ '^NULL::'
            THEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) END AS "default",
       (SELECT pg_catalog.json_agg(pg_catalog.pg_describe_object(x.refclassid, x.refobjid, 0))
        FROM pg_catalog.pg_depend x
        WHERE x.classid = 'pg_catalog.pg_attrdef'::regclass::oid AND x.objid = d.oid
        AND x.refclassid IN ('pg_catalog.pg_operator'::regclass::oid, 'pg_catalog.pg_proc'::regclass::oid)) AS calls,
       pg_catalog.col_description(a.attrelid, a.attnum) AS comment,
       co.collname AS collation, COALESCE(co.collisdeterministic, true) AS deterministic,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
       EXISTS (SELECT FROM pg_catalog.pg_type t WHERE t.oid = a.atttypid
               AND 'citext' IN (t.typname, CAST(CAST(t.typbasetype AS regtype) AS text))) AS is_citext,
       CASE WHEN co.collname = 'default' AND pg_catalog.to_jsonb(db) ->> CAST('datlocprovider' AS text)
                 IS DISTINCT FROM 'i'
            THEN COALESCE(pg_catalog.to_jsonb(db) ->> CAST('datcollate' AS text), 'default')
            ELSE co.collname END AS effective_collation,
       (SELECT n.convalidated FROM pg_catalog.pg_constraint n
        WHERE n.conrelid = c.oid AND n.conname = CAST(:check AS text) AND pg_catalog.pg_get_expr(n.conbin, n.conrelid)
            = '(' || pg_catalog.quote_ident(a.attname) || ' IS NOT NULL)') AS checked,
       EXISTS (SELECT FROM pg_catalog.pg_constraint n WHERE n.conrelid = c.oid AND n.contype = 'n'
               AND a.attnum = ANY (n.conkey) AND NOT n.convalidated) AS unproven,
       EXISTS (SELECT FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
               WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND CAST(t.tgtype AS int) & 7 = 7
               AND pg_catalog.strpos(p.prosrc, pg_catalog.replace(a.attname, '"', '""')) > 0) AS filled,
       (SELECT pg_catalog.min(b.pid) FROM pg_catalog.pg_stat_progress_create_index b
        WHERE b.relid = c.oid AND b.datname = pg_catalog.current_database()) AS builder,
       c.relispartition AS is_partition,
       (SELECT pg_catalog.min(CAST(CAST(i.inhparent AS regclass) AS text)) FROM pg_catalog.pg_inherits i
        WHERE i.inhrelid = c.oid) AS parent,
       EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = c.oid OR inhrelid = c.oid) AS inherits,
       CASE WHEN c.reloftype <> CAST(0 AS oid) THEN pg_catalog.format_type(c.reloftype, NULL) END AS of_type,
       (SELECT pg_catalog.json_agg(each) FROM ({_INDEXES}) each) AS indexes
FROM pg_catalog.pg_class c
CROSS JOIN (SELECT * FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) db
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = CAST(:column AS text) AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation
WHERE c.oid = CAST(pg_catalog.to_regclass(:regclass) AS oid)
""").columns(calls=JSON(), indexes=JSON())
_ROWS = text("""
SELECT CAST(reltuples AS bigint) FROM pg_catalog.pg_class WHERE oid = CAST(pg_catalog.to_regclass(:regclass) AS oid)
""")
_BYTES = text("SELECT pg_catalog.pg_total_relation_size(pg_catalog.to_regclass(:regclass))")
# tgtype 16 is UPDATE. A trigger without columns (UPDATE OF) fires for all of them. ev_type 2 of a rule is UPDATE.
_TRIGGERS = text("""
SELECT tgname FROM pg_catalog.pg_trigger
WHERE tgrelid = CAST(pg_catalog.to_regclass(:regclass) AS oid) AND NOT tgisinternal AND CAST(tgtype AS int) & 16 <> 0
  AND (tgenabled = 'A' OR tgenabled = CAST(CASE pg_catalog.current_setting('session_replication_role')
       WHEN 'replica' THEN 'R' ELSE 'O' END AS "char"))
  AND (pg_catalog.cardinality(CAST(tgattr AS int2[])) = 0 OR EXISTS (
      SELECT FROM pg_catalog.pg_attribute a
      WHERE a.attrelid = tgrelid AND a.attname = CAST(:column AS text) AND a.attnum = ANY (tgattr)))
UNION ALL
SELECT rulename FROM pg_catalog.pg_rewrite
WHERE ev_class = CAST(pg_catalog.to_regclass(:regclass) AS oid) AND ev_type = '2' AND ev_enabled <> 'D'
ORDER BY 1
""")
_UNSKIPPABLE = text("""
SELECT tgname FROM pg_catalog.pg_trigger
WHERE tgrelid = CAST(pg_catalog.to_regclass(:regclass) AS oid) AND NOT tgisinternal AND CAST(tgtype AS int) & 16 <> 0
  AND tgenabled IN ('A', 'R')
""")
_PRIMARY_KEY = text("""
SELECT a.attname FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_constraint n ON n.conrelid = c.oid AND n.contype = 'p'
LEFT JOIN LATERAL pg_catalog.unnest(n.conkey) WITH ORDINALITY k (attnum, place) ON true
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
WHERE c.oid = CAST(pg_catalog.to_regclass(:regclass) AS oid)
ORDER BY k.place
""")
_LAST_OF_SEQUENCE = text("""
SELECT seqmax FROM pg_catalog.pg_sequence
WHERE seqrelid = CAST(CAST(pg_catalog.pg_get_serial_sequence(:regclass, :key) AS regclass) AS oid)
""")


class PostgreSQLTable(LiveTable):
    """A table of PostgreSQL."""

    can_skip_triggers = True

    def _read_state(self) -> tuple[str, State, Iterable[IndexFacts]] | None:
        row = self._read_row()
        if row is not None and row.builder is None and not all(index["valid"] for index in row.indexes or ()):
            # the catalogs show the start of the statement, and builder a later time: the build may have ended meanwhile
            row = self._read_row()
        if row is None:
            return None
        state = State(
            exists=row.exists,
            schema=row.schema,
            type=row.type,
            nullable=row.nullable is not False or row.unproven,
            collation=row.collation,
            order=row.effective_collation,
            exact=row.deterministic and not row.is_citext,
            comment=row.comment,
            default=row.default,
            calls=tuple(row.calls or ()),
            filled=row.filled,
            check=row.checked is not None,
            checked=bool(row.checked),
            builder=row.builder,
            misfit=self._misfit(row),
        )
        return "table" if row.kind in ("r", "p") else row.kind, state, indexes_from(row.indexes or ())

    def _read_row(self) -> Row[Any] | None:
        return self.connection.execute(_STATE, self.names).one_or_none()

    def _misfit(self, row: Row[Any]) -> Obstacle | None:
        table = self.target.table
        if row.is_partition:
            problem = f"{table} is a partition of {row.parent}, and has the columns of {row.parent} only"
            return Obstacle("partition", problem, f"keep the ids in a separate table that refers to {row.parent}")
        if row.kind == "p":
            return self._partitioned()
        if row.inherits:
            problem = f"{table} inherits, or other tables inherit from it, and they share no unique index"
            return Obstacle("inheritance", problem, "add the column and the index to each of these tables by hand")
        if row.of_type:
            problem = f"{table} is a table of the type {row.of_type}, and has the columns of the type only"
            return Obstacle("typed", problem, f"ALTER TABLE {self.name} NOT OF")
        return None

    def estimate_rows(self) -> int | None:
        rows = self.connection.scalar(_ROWS, self.names)
        return rows if rows and rows > 0 else None  # -1 before the first ANALYZE

    def estimate_bytes(self) -> int | None:
        return int(self.connection.scalar(_BYTES, self.names) or 0)

    def read_primary_key(self, inspector: Inspector | None = None) -> list[str]:
        # SQLAlchemy calls unnest(int2vector), which pg_catalog does not have, so another role's function would run
        found = self.connection.execute(_PRIMARY_KEY, self.names).scalars().all()
        if not found:
            raise NoSuchTableError(self.target.table)
        return [name for name in found if name is not None]

    def read_largest_key(self, key: str, type_: Integer) -> int:
        # a sequence that was created for serial ends at 2**31, even if the column is a bigint now
        largest = super().read_largest_key(key, type_)
        return min(largest, self.connection.scalar(_LAST_OF_SEQUENCE, {**self.names, "key": key}) or largest)

    def columns_changed_by_updates(self) -> list[str]:
        return []

    def update_triggers(self) -> list[str]:
        return list(self.connection.execute(_TRIGGERS, self.names).scalars())

    def obstacles_to_skipping(self) -> Iterator[Obstacle]:
        always = self.connection.execute(_UNSKIPPABLE, self.names).scalars().all()
        if always:
            problem = f"{', '.join(always)} {'fires' if len(always) == 1 else 'fire'} for replicated changes, too"
            yield Obstacle("update-triggers", problem, 'ALTER TABLE … ENABLE TRIGGER, or pass update_triggers="fire"')
        if not self._may_skip():
            yield Obstacle(
                "missing-right",
                "the role may not set session_replication_role, which skips triggers",
                "run the migration as a superuser, or GRANT SET ON PARAMETER session_replication_role (PostgreSQL 15), "
                'or pass update_triggers="fire"',
            )

    def _may_skip(self) -> bool:
        connection = self.connection
        if connection.exec_driver_sql("SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user").scalar():
            return True
        query = "SELECT pg_catalog.has_parameter_privilege('session_replication_role', 'SET')"
        version = connection.dialect.server_version_info
        return version is not None and int(version[0]) >= 15 and bool(connection.exec_driver_sql(query).scalar())

    @contextmanager
    def without_triggers(self) -> Generator[None]:
        before = self.connection.exec_driver_sql("SHOW session_replication_role").scalar_one()
        self.connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        yield
        # the caller may go on in the same transaction
        self.connection.exec_driver_sql(f"SET LOCAL session_replication_role = {before}")
