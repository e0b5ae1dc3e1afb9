"""What the catalogs of PostgreSQL say about a table."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import JSON, Row, text

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrating.state import IndexFacts, State
from sqlalchemy_public_id.migrating.table import LiveTable, indexes_from

# conindid is also set for a foreign key, to the index that it refers to
_INDEXES = """
SELECT c.relname AS name, i.indisunique AS "unique", i.indisvalid AS valid, i.indpred IS NOT NULL AS partial,
       i.indisprimary AS "primary", CASE WHEN i.indnkeyatts = 1 THEN a.attname END AS only_column,
       NOT i.indimmediate AS "deferrable", CAST(am.amname AS text) AS kind,
       EXISTS (SELECT FROM pg_constraint n WHERE n.conindid = c.oid AND n.contype IN ('u', 'p', 'x')) AS "constraint"
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am am ON am.oid = c.relam
LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = to_regclass(:regclass)
ORDER BY c.relname
"""
# default: the server stores DEFAULT NULL of a varchar(12) as NULL::character varying. unproven: NOT NULL NOT VALID, in
# PostgreSQL 18. filled: a BEFORE INSERT trigger for each row mentions the column.
_STATE = text(f"""
SELECT CAST(c.relkind AS text) AS kind, CAST(CAST(c.relnamespace AS regnamespace) AS text) AS schema,
       a.attnum IS NOT NULL AS "exists", NOT a.attnotnull AS nullable,
       CASE WHEN pg_get_expr(d.adbin, d.adrelid) !~ '^NULL::' THEN pg_get_expr(d.adbin, d.adrelid) END AS "default",
       col_description(a.attrelid, a.attnum) AS comment,
       co.collname AS collation, COALESCE(co.collisdeterministic, true) AS deterministic,
       format_type(a.atttypid, a.atttypmod) AS type,
       EXISTS (SELECT FROM pg_type t WHERE t.oid = a.atttypid
               AND 'citext' IN (t.typname, CAST(CAST(t.typbasetype AS regtype) AS text))) AS is_citext,
       CASE WHEN co.collname = 'default' AND to_jsonb(db) ->> 'datlocprovider' IS DISTINCT FROM 'i'
            THEN COALESCE(to_jsonb(db) ->> 'datcollate', 'default') ELSE co.collname END AS effective_collation,
       (SELECT n.convalidated FROM pg_constraint n WHERE n.conrelid = c.oid AND n.conname = :check
        AND pg_get_expr(n.conbin, n.conrelid) = '(' || quote_ident(a.attname) || ' IS NOT NULL)') AS checked,
       EXISTS (SELECT FROM pg_constraint n WHERE n.conrelid = c.oid AND n.contype = 'n'
               AND a.attnum = ANY (n.conkey) AND NOT n.convalidated) AS unproven,
       EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
               WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgtype & 7 = 7
               AND strpos(p.prosrc, replace(a.attname, '"', '""')) > 0) AS filled,
       (SELECT min(b.pid) FROM pg_stat_progress_create_index b
        WHERE b.relid = c.oid AND b.datname = current_database()) AS builder,
       c.relispartition AS is_partition,
       (SELECT min(CAST(CAST(i.inhparent AS regclass) AS text)) FROM pg_inherits i WHERE i.inhrelid = c.oid) AS parent,
       EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid OR inhrelid = c.oid) AS inherits,
       CASE WHEN c.reloftype <> 0 THEN format_type(c.reloftype, NULL) END AS of_type,
       (SELECT json_agg(each) FROM ({_INDEXES}) each) AS indexes
FROM pg_class c
CROSS JOIN (SELECT * FROM pg_database WHERE datname = current_database()) db
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = :column AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_collation co ON co.oid = a.attcollation
WHERE c.oid = to_regclass(:regclass)
""").columns(indexes=JSON())
_ROWS = text("SELECT CAST(reltuples AS bigint) FROM pg_class WHERE oid = to_regclass(:regclass)")
_BYTES = text("SELECT pg_total_relation_size(to_regclass(:regclass))")
# tgtype 16 is UPDATE. A trigger without columns (UPDATE OF) fires for all of them. ev_type 2 of a rule is UPDATE.
_TRIGGERS = text("""
SELECT tgname FROM pg_trigger
WHERE tgrelid = to_regclass(:regclass) AND NOT tgisinternal AND tgtype & 16 <> 0
  AND (tgenabled = 'A' OR tgenabled = CASE current_setting('session_replication_role')
       WHEN 'replica' THEN 'R' ELSE 'O' END)
  AND (cardinality(CAST(tgattr AS int2[])) = 0 OR EXISTS (
      SELECT FROM pg_attribute a WHERE a.attrelid = tgrelid AND a.attname = :column AND a.attnum = ANY (tgattr)))
UNION ALL
SELECT rulename FROM pg_rewrite WHERE ev_class = to_regclass(:regclass) AND ev_type = '2' AND ev_enabled <> 'D'
ORDER BY 1
""")
_UNSKIPPABLE = text("""
SELECT tgname FROM pg_trigger
WHERE tgrelid = to_regclass(:regclass) AND NOT tgisinternal AND tgtype & 16 <> 0 AND tgenabled IN ('A', 'R')
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
        if connection.exec_driver_sql("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").scalar():
            return True
        query = "SELECT has_parameter_privilege('session_replication_role', 'SET')"
        version = connection.dialect.server_version_info
        return version is not None and int(version[0]) >= 15 and bool(connection.exec_driver_sql(query).scalar())

    @contextmanager
    def without_triggers(self) -> Generator[None]:
        before = self.connection.exec_driver_sql("SHOW session_replication_role").scalar_one()
        self.connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        yield
        # the caller may go on in the same transaction
        self.connection.exec_driver_sql(f"SET LOCAL session_replication_role = {before}")
