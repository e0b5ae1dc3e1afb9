"""The publications of a table of PostgreSQL, which its subscribers follow, and which can refuse every UPDATE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import text

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrations.plan import Migration
from sqlalchemy_public_id.migrations.postgresql.catalogs import THIS, WHOLE

# Of a partitioned table, the server lists the partitions, or the table with publish_via_partition_root. prattrs and
# prqual are the list of published columns and the condition of published rows, since PostgreSQL 15.
_PUBLISHED = f"""
SELECT p.pubname, p.pubupdate, c.oid AS relation,
       CAST(pg_catalog.to_jsonb(r) ->> CAST('prattrs' AS text) AS jsonb) AS columns,
       pg_catalog.to_jsonb(r) ->> CAST('prqual' AS text) AS condition
FROM pg_catalog.pg_publication_tables t
JOIN pg_catalog.pg_publication p ON p.pubname = t.pubname
JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
JOIN pg_catalog.pg_class c ON c.relname = t.tablename AND c.relnamespace = n.oid AND c.oid = {WHOLE}
LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
"""
_WITH_NEW_COLUMNS = text(f"SELECT DISTINCT pubname FROM ({_PUBLISHED}) p WHERE columns IS NULL ORDER BY 1")
# What CheckCmdReplicaIdentity() of the server refuses: each partition has a replica identity of its own, and is
# published with the tables that it is a partition of. The names of columns are compared, because a partition may have
# them in another order. The condition is a tree of nodes, with the numbers of its columns.
_REFUSING = text(f"""
WITH published AS MATERIALIZED ({_PUBLISHED})
SELECT DISTINCT l.oid <> {THIS} AS is_partition, pg_catalog.quote_ident(n.nspname) AS schema,
       pg_catalog.quote_ident(l.relname) AS name, pg_catalog.quote_ident(p.pubname) AS publication,
       p.columns IS NOT NULL AS has_list,
       EXISTS (SELECT FROM pg_catalog.pg_index k WHERE k.indrelid = l.oid AND k.indisprimary) AS has_key,
       CASE WHEN p.columns IS NOT NULL AND (l.relreplident = 'f' OR EXISTS (
                SELECT FROM pg_catalog.unnest(i.names) k (name) WHERE NOT EXISTS (
                SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = p.relation AND a.attname = k.name
                AND p.columns @> pg_catalog.to_jsonb(a.attnum)))) THEN 'columns'
            WHEN l.relreplident = 'f' THEN NULL
            WHEN pg_catalog.cardinality(i.names) = 0 THEN 'identity'
            WHEN EXISTS (
                SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = p.relation AND a.attname <> ALL (i.names)
                AND pg_catalog.strpos(p.condition, pg_catalog.concat('varattno ', a.attnum, ' ')) > 0) THEN 'condition'
       END AS reason
FROM pg_catalog.pg_class l
JOIN pg_catalog.pg_namespace n ON n.oid = l.relnamespace
CROSS JOIN LATERAL (SELECT ARRAY(
    SELECT a.attname FROM pg_catalog.pg_index k JOIN pg_catalog.pg_attribute a
    ON a.attrelid = k.indrelid AND a.attnum = ANY (CAST(k.indkey AS int2[]))
    WHERE CAST(k.indexrelid AS oid) = CAST(pg_catalog.pg_get_replica_identity_index(CAST(l.oid AS regclass)) AS oid)
    ) AS names) i
JOIN published p ON p.pubupdate AND (p.relation = l.oid OR p.relation IN (
    SELECT CAST(relid AS oid) FROM pg_catalog.pg_partition_ancestors(CAST(l.oid AS regclass))))
WHERE l.oid = {WHOLE} AND l.relkind = 'r'
ORDER BY 1, 2, 3, 4
""")
_REFUSES = "so PostgreSQL refuses every UPDATE"


def read_publications(migration: Migration) -> Sequence[str]:
    """Return the names of the publications that publish new columns of the table as well."""
    return migration.table.connection.execute(_WITH_NEW_COLUMNS, migration.table.names).scalars().all()


def obstacles_of_publications(migration: Migration) -> Iterator[Obstacle]:
    """Yield the obstacles if PostgreSQL refuses every UPDATE, because subscribers could not find the row."""
    unidentified: dict[str, str] = {}
    for row in migration.table.connection.execute(_REFUSING, migration.table.names):
        name = migration.plan.table if not row.is_partition else f"{row.schema}.{row.name}"
        change = f"ALTER TABLE {name} REPLICA IDENTITY"
        if row.reason == "identity":
            unidentified[row.name] = f"{change} {'DEFAULT' if row.has_key else 'FULL'}"
        elif row.reason == "columns":
            problem = f"{row.publication} leaves out columns of the replica identity of {row.name}, {_REFUSES}"
            remedy = f"publish all columns, or those of the primary key as well, and {change} DEFAULT"
            yield Obstacle("replica-identity", problem, remedy)
        elif row.reason == "condition":
            problem = f"{row.publication} selects rows of {row.name} by other columns than its replica identity"
            whole = "publish all columns, and " * row.has_list  # which FULL demands
            yield Obstacle("replica-identity", f"{problem}, {_REFUSES}", f"{whole}{change} FULL")
    if unidentified:
        are = "is" if len(unidentified) == 1 else "are"
        problem = (
            f"{', '.join(unidentified)} {are} published without a replica identity, so PostgreSQL refuses every UPDATE"
        )
        yield Obstacle("replica-identity", problem, "; ".join(unidentified.values()))
