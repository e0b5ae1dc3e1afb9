"""What the catalogs of PostgreSQL say about a table.

Another role may have created operators and functions in a schema of the search path, and PostgreSQL prefers those whose
types match more exactly than the types of ``pg_catalog``. So functions are qualified, and operators match exactly: a
``name`` is compared with ``text``, an ``oid`` with an ``oid``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import JSON, Inspector, Integer, Row, text
from sqlalchemy.exc import NoSuchTableError

from sqlalchemy_public_id.dialects import is_autocommit
from sqlalchemy_public_id.dialects.postgresql import key_sequence
from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrations.postgresql.catalogs import PARTITIONS, THIS, WHOLE
from sqlalchemy_public_id.migrations.postgresql.demands import read_demands
from sqlalchemy_public_id.migrations.session import restore, send
from sqlalchemy_public_id.migrations.state import Demand, IndexFacts, Partition, State
from sqlalchemy_public_id.migrations.table import LiveTable, indexes_from

# conindid is also set for a foreign key, to the index that it refers to
_INDEXES = """
SELECT c.relname AS name, i.indisunique AS "unique", i.indisvalid AS valid, i.indpred IS NOT NULL AS partial,
       i.indisprimary AS "primary",
       (SELECT pg_catalog.json_agg(a.attname ORDER BY k.place)
        FROM pg_catalog.unnest(CAST(i.indkey AS int2[])) WITH ORDINALITY k (attnum, place)
        LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum <> 0
        WHERE k.place <= CAST(i.indnkeyatts AS bigint)) AS columns,
       NOT i.indimmediate AS "deferrable", CAST(am.amname AS text) AS kind,
       EXISTS (SELECT FROM ROWS FROM (pg_catalog.unnest(CAST(i.indkey AS int2[])),
                                      pg_catalog.unnest(CAST(i.indcollation AS oid[]))) AS k (attnum, sorted_by)
               JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
               WHERE k.sorted_by <> a.attcollation) AS by_other_collation,
       EXISTS (SELECT FROM pg_catalog.pg_constraint n
               WHERE n.conindid = c.oid AND n.contype IN ('u', 'p', 'x')) AS "constraint",
       (SELECT p.relname FROM pg_catalog.pg_inherits h JOIN pg_catalog.pg_class p ON p.oid = h.inhparent
        WHERE h.inhrelid = c.oid) AS part_of
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_am am ON am.oid = c.relam
WHERE i.indrelid = {relation}
ORDER BY c.relname
"""
# default: the server stores DEFAULT NULL of a varchar(12) as NULL::character varying, which overrides the default of a
# domain. nullable: a domain's NOT NULL lets a subquery without rows store NULL. unproven: NOT NULL NOT VALID, in
# PostgreSQL 18. filled: a BEFORE INSERT trigger for each row mentions the column.
_STATE = text(f"""
SELECT CAST(c.relkind AS text) AS kind, CAST(CAST(c.relnamespace AS regnamespace) AS text) AS schema,
       a.attnum IS NOT NULL AS "exists", NOT a.attnotnull AS nullable,
       CASE WHEN d.oid IS NULL THEN ty.typdefault WHEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) !~ '^NULL::'
            THEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) END AS "default",
       CASE WHEN d.oid IS NULL AND ty.typdefault IS NOT NULL THEN pg_catalog.format_type(ty.oid, NULL) END AS domain,
       (SELECT pg_catalog.json_agg(pg_catalog.pg_describe_object(x.refclassid, x.refobjid, 0))
        FROM pg_catalog.pg_depend x
        WHERE x.classid = 'pg_catalog.pg_attrdef'::regclass::oid AND x.objid = d.oid
        AND x.refclassid IN ('pg_catalog.pg_operator'::regclass::oid, 'pg_catalog.pg_proc'::regclass::oid)) AS calls,
       pg_catalog.col_description(a.attrelid, a.attnum) AS comment,
       co.collname AS collation, COALESCE(co.collisdeterministic, true) AS deterministic,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
       EXISTS (WITH RECURSIVE types AS (
                   SELECT ty.typname, ty.typbasetype
                   UNION ALL SELECT t.typname, t.typbasetype FROM types d
                   JOIN pg_catalog.pg_type t ON t.oid = d.typbasetype)
               SELECT FROM types WHERE types.typname = CAST('citext' AS text)) AS is_citext,
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
               AND t.tgenabled IN ('O', 'A') AND pg_catalog.strpos(pg_catalog.lower(p.prosrc),
                   pg_catalog.lower(pg_catalog.replace(a.attname, '"', '""'))) > 0) OR a.attidentity <> '' AS filled,
       (SELECT pg_catalog.min(b.pid) FROM pg_catalog.pg_stat_progress_create_index b
        WHERE (b.relid = c.oid OR b.relid IN {PARTITIONS}) AND b.datname = pg_catalog.current_database()) AS builder,
       CASE WHEN c.relispartition THEN (
           SELECT pg_catalog.json_build_array(pn.nspname, p.relname) FROM pg_catalog.pg_inherits i
           JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
           JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
           WHERE i.inhrelid = c.oid) END AS partition_of,
       (SELECT pg_catalog.min(CAST(CAST(i.inhparent AS regclass) AS text)) FROM pg_catalog.pg_inherits i
        WHERE i.inhrelid = c.oid) AS parent,
       EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = c.oid OR inhrelid = c.oid) AS inherits,
       (SELECT pg_catalog.json_agg(DISTINCT k.attname)
        FROM (SELECT c.oid AS relid WHERE c.relkind = 'p'
              UNION SELECT CAST(t.relid AS oid) FROM pg_catalog.pg_partition_tree(c.oid) t WHERE NOT t.isleaf) p
        JOIN pg_catalog.pg_partitioned_table pt ON pt.partrelid = p.relid
        CROSS JOIN pg_catalog.unnest(CAST(pt.partattrs AS int2[])) n (attnum)
        LEFT JOIN pg_catalog.pg_attribute k ON k.attrelid = p.relid AND k.attnum = n.attnum AND n.attnum <> 0
        WHERE c.relkind = 'p') AS partition_keys,
       CASE WHEN c.reloftype <> CAST(0 AS oid) THEN pg_catalog.format_type(c.reloftype, NULL) END AS of_type,
       (SELECT pg_catalog.json_agg(each) FROM ({_INDEXES.format(relation=THIS)}) each) AS indexes
FROM pg_catalog.pg_class c
CROSS JOIN (SELECT * FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) db
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = CAST(:column AS text) AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_type ty ON ty.oid = a.atttypid
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation
WHERE c.oid = CAST(pg_catalog.to_regclass(:regclass) AS oid)
""").columns(calls=JSON(), indexes=JSON(), partition_keys=JSON(), partition_of=JSON())
# the array lets PostgreSQL expect ten partitions, not a thousand, for which it would compile the query
_PARTS = text(f"""
SELECT n.nspname AS schema, r.relname AS name, pn.nspname AS parent_schema, p.relname AS parent,
       CAST(r.relkind AS text) AS kind, pg_catalog.pg_has_role(r.relowner, 'USAGE') AS is_owned,
       COALESCE(k.convalidated, false) AS checked,
       (SELECT pg_catalog.json_agg(each) FROM ({_INDEXES.format(relation="r.oid")}) each) AS indexes
FROM pg_catalog.pg_class r
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
JOIN pg_catalog.pg_inherits h ON h.inhrelid = r.oid
JOIN pg_catalog.pg_class p ON p.oid = h.inhparent
JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
LEFT JOIN pg_catalog.pg_constraint k ON k.conrelid = r.oid AND k.conname = CAST(:check AS text)
WHERE r.oid = ANY (ARRAY{PARTITIONS}) AND r.oid <> {THIS}
ORDER BY (SELECT pg_catalog.count(*) FROM pg_catalog.pg_partition_ancestors(CAST(r.oid AS regclass))),
         n.nspname, r.relname
""").columns(indexes=JSON())
# a partitioned table stores no rows itself
_ROWS = text(f"""
SELECT CAST(pg_catalog.sum(reltuples) AS bigint) FROM pg_catalog.pg_class
WHERE (oid = {THIS} OR oid IN {PARTITIONS}) AND relkind <> 'p' AND reltuples > CAST(0 AS real)
""")
_IS_TEMPORARY = text(f"""
SELECT EXISTS (SELECT FROM pg_catalog.pg_class WHERE oid = {THIS} AND relpersistence = 't')
""")
# a backfill fills each partition by itself, to which the policies of the partitioned table do not apply
_FILTERED = text(f"""
SELECT pg_catalog.quote_ident(relname) AS name, pg_catalog.quote_ident(current_user) AS role
FROM pg_catalog.pg_class WHERE oid = {WHOLE} AND pg_catalog.row_security_active(oid)
ORDER BY oid <> {THIS}, relname
""")
_BYTES = text(f"""
SELECT CAST(pg_catalog.sum(pg_catalog.pg_total_relation_size(CAST(oid AS regclass))) AS bigint)
FROM pg_catalog.pg_class WHERE oid = {THIS} OR oid IN {PARTITIONS}
""")
_FIRES = """({0} = 'A' OR {0} = CAST(CASE pg_catalog.current_setting('session_replication_role')
       WHEN 'replica' THEN 'R' ELSE 'O' END AS "char"))"""
# tgtype 16 is UPDATE. A trigger without columns (UPDATE OF) fires for all of them. ev_type 2 of a rule is UPDATE.
_TRIGGERS = text(f"""
SELECT tgname FROM pg_catalog.pg_trigger
WHERE (tgrelid = {THIS} OR tgrelid IN {PARTITIONS}) AND NOT tgisinternal AND CAST(tgtype AS int) & 16 <> 0
  AND {_FIRES.format("tgenabled")}
  AND (pg_catalog.cardinality(CAST(tgattr AS int2[])) = 0 OR EXISTS (
      SELECT FROM pg_catalog.pg_attribute a
      WHERE a.attrelid = tgrelid AND a.attname = CAST(:column AS text) AND a.attnum = ANY (tgattr)))
UNION
SELECT rulename FROM pg_catalog.pg_rewrite
WHERE (ev_class = {THIS} OR ev_class IN {PARTITIONS}) AND ev_type = '2' AND {_FIRES.format("ev_enabled")}
ORDER BY 1
""")
_TRIGGERS_OF_NEW_ROWS = text(f"""
SELECT DISTINCT t.tgname FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
WHERE (t.tgrelid = {THIS} OR t.tgrelid IN {PARTITIONS}) AND NOT t.tgisinternal AND t.tgenabled <> 'D'
  AND CAST(t.tgtype AS int) & 4 <> 0
  AND pg_catalog.strpos(pg_catalog.lower(pg_catalog.concat(p.prosrc, pg_catalog.pg_get_triggerdef(t.oid))),
                        pg_catalog.lower(pg_catalog.replace(CAST(:column AS text), '"', '""'))) > 0
ORDER BY 1
""")
_UNSKIPPABLE = text(f"""
SELECT tgname FROM pg_catalog.pg_trigger
WHERE (tgrelid = {THIS} OR tgrelid IN {PARTITIONS}) AND NOT tgisinternal AND CAST(tgtype AS int) & 16 <> 0
  AND tgenabled IN ('A', 'R')
UNION
SELECT rulename FROM pg_catalog.pg_rewrite
WHERE (ev_class = {THIS} OR ev_class IN {PARTITIONS}) AND ev_type = '2' AND ev_enabled IN ('A', 'R')
ORDER BY 1
""")
_PRIMARY_KEY = text("""
SELECT a.attname FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_constraint n ON n.conrelid = c.oid AND n.contype = 'p'
LEFT JOIN LATERAL pg_catalog.unnest(n.conkey) WITH ORDINALITY k (attnum, place) ON true
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
WHERE c.oid = CAST(pg_catalog.to_regclass(:regclass) AS oid)
ORDER BY k.place
""")
_LAST_OF_SEQUENCE = text(
    f"SELECT seqmax FROM pg_catalog.pg_sequence WHERE seqrelid = {key_sequence(':regclass', ':key')}"
)
_FULL_NAME = text(f"""
SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = {THIS}
""")
# without those that the partitions of a table have because the table has them
_REFERENCES = text(f"""
SELECT s.nspname AS schema, c.relname AS name, f.attname AS "column"
FROM pg_catalog.pg_constraint n
JOIN pg_catalog.pg_class c ON c.oid = n.conrelid
JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
CROSS JOIN pg_catalog.generate_subscripts(n.conkey, 1) k (place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = n.confrelid AND a.attnum = n.confkey[k.place]
JOIN pg_catalog.pg_attribute f ON f.attrelid = n.conrelid AND f.attnum = n.conkey[k.place]
WHERE n.confrelid = {THIS} AND a.attname = CAST(:column AS text) AND n.conparentid = CAST(0 AS oid)
ORDER BY 1, 2, 3
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
            domain=row.domain,
            calls=tuple(row.calls or ()),
            filled=bool(row.filled),
            check=row.checked is not None,
            checked=bool(row.checked),
            builder=row.builder,
            partition_of=tuple(row.partition_of) if row.partition_of else None,
            partition_keys=tuple(each for each in row.partition_keys or () if each is not None),
            partitions=self._read_partitions() if row.kind == "p" else None,
        )
        state = replace(state, misfit=self._misfit(row, state.partitions or ()))
        return "table" if row.kind in ("r", "p") else row.kind, state, indexes_from(row.indexes or ())

    def _read_row(self) -> Row[Any] | None:
        return self.connection.execute(_STATE, self.names).one_or_none()

    def _read_partitions(self) -> tuple[Partition, ...]:
        # SQLAlchemy documents Row._mapping
        rows = [row._mapping for row in self.connection.execute(_PARTS, self.names)]  # pyright: ignore[reportPrivateUsage]
        return tuple(replace(Partition(**row), indexes=indexes_from(row["indexes"] or ())) for row in rows)

    def _misfit(self, row: Row[Any], partitions: Sequence[Partition]) -> Obstacle | None:
        table = self.target.table
        if row.partition_of:
            problem = f"{table} is a partition of {row.parent}, and has the columns of {row.parent} only"
            return Obstacle("partition", problem, f"keep the ids in a separate table that refers to {row.parent}")
        if row.kind == "p":
            if None in row.partition_keys:
                problem = (
                    f"{table} is partitioned by an expression, and PostgreSQL has no unique index for such a table"
                )
                return Obstacle("partitioned", problem, "keep the ids in a separate table that refers to this one")
            foreign = [part.name for part in partitions if part.kind == "f"]
            if foreign:
                are = "is a foreign table" if len(foreign) == 1 else "are foreign tables"
                problem = f"{', '.join(foreign)} of {table} {are}, whose rows no unique index of this server covers"
                return Obstacle("partitioned", problem, "detach it first, or keep the ids in a separate table")
            return self.obstacle_of_partitions(row.partition_keys)
        if row.inherits:
            problem = f"{table} inherits, or other tables inherit from it, and they share no unique index"
            return Obstacle("inheritance", problem, "add the column and the index to each of these tables by hand")
        if row.of_type:
            problem = f"{table} is a table of the type {row.of_type}, and has the columns of the type only"
            return Obstacle("typed", problem, f"ALTER TABLE {self.name} NOT OF")
        return None

    def obstacle_of_a_temporary_table(self) -> Obstacle | None:
        is_hidden = self.connection.scalar(_IS_TEMPORARY, self.names)
        return self.hidden_by("table", f"DROP TABLE {self.name}") if is_hidden else None

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

    def read_constraints(self) -> Iterator[Demand]:
        yield from read_demands(self)
        yield from self.demands_of_triggers(self.connection.execute(_TRIGGERS_OF_NEW_ROWS, self.names).scalars().all())

    def read_references(self) -> Sequence[tuple[str | None, str, str]]:
        rows = self.connection.execute(_REFERENCES, self.names).all()
        return [(row.schema, row.name, row.column) for row in rows]

    def read_full_name(self) -> str:
        name: str = self.connection.execute(_FULL_NAME, self.names).scalar_one()
        return name

    @contextmanager
    def trying(self) -> Generator[None]:
        """Evaluate in a transaction or savepoint that ends, with no schema but ``pg_catalog`` in the search path."""
        begun = None if is_autocommit(self.connection) else self.connection.begin_nested()
        if begun is None:
            send(self.connection, "BEGIN")
        try:
            send(self.connection, "SET LOCAL search_path TO pg_catalog")
            yield
        finally:
            if begun is not None:
                begun.rollback()
            else:
                restore(self.connection, "ROLLBACK")

    def obstacle_of_hidden_rows(self) -> Obstacle | None:
        filtered = self.connection.execute(_FILTERED, self.names).first()
        if filtered is None:
            return None
        problem = f"row-level security hides rows of {filtered.name} from {filtered.role}, and they would get no id"
        remedy = "run it as a role with BYPASSRLS, or as the owner without FORCE ROW LEVEL SECURITY"
        return Obstacle("row-level-security", problem, remedy)

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
