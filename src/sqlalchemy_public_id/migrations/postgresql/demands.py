"""What the catalogs of PostgreSQL say about the values that a column accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sqlalchemy import text

from sqlalchemy_public_id.dialects.quoting import quoted
from sqlalchemy_public_id.migrations.postgresql.catalogs import THIS, WHOLE
from sqlalchemy_public_id.migrations.state import Demand
from sqlalchemy_public_id.migrations.table import LiveTable

# the CHECKs of the column and of its domains, and the columns generated from it, each with what it calls outside of
# pg_catalog; VALUE of a domain is the name of a column as well. A partition has the CHECKs of its table, too.
_DEMANDS = text(f"""
WITH RECURSIVE ours AS (
    SELECT a.attrelid, a.attnum, a.atttypid, a.attname FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = {WHOLE} AND a.attname = CAST(:column AS text) AND NOT a.attisdropped),
domains AS (
    SELECT t.oid, t.typname, t.typbasetype FROM ours JOIN pg_catalog.pg_type t ON t.oid = atttypid AND t.typtype = 'd'
    UNION ALL
    SELECT t.oid, t.typname, t.typbasetype FROM domains d JOIN pg_catalog.pg_type t
    ON t.oid = d.typbasetype AND t.typtype = 'd'),
demands AS (
    SELECT 'pg_catalog.pg_constraint'::regclass::oid AS classid, n.oid AS objid,
           'the CHECK constraint ' || pg_catalog.quote_ident(n.conname) || CASE WHEN attrelid <> {THIS}
           THEN ' of the partition ' || pg_catalog.quote_ident(c.relname) ELSE '' END AS name,
           pg_catalog.pg_get_expr(n.conbin, n.conrelid) AS expression, 'check' AS kind, NULL::int AS longest
    FROM ours JOIN pg_catalog.pg_constraint n ON n.conrelid = attrelid AND n.contype = 'c' AND attnum = ANY (n.conkey)
    JOIN pg_catalog.pg_class c ON c.oid = attrelid
    WHERE n.conname <> CAST(:check AS text) AND (attrelid = {THIS} OR CAST(n.coninhcount AS int) = 0)
    UNION ALL
    SELECT 'pg_catalog.pg_constraint'::regclass::oid, n.oid,
           'the domain ' || pg_catalog.quote_ident(d.typname),
           pg_catalog.pg_get_expr(n.conbin, CAST(0 AS oid)), 'domain', NULL
    FROM domains d JOIN pg_catalog.pg_constraint n ON n.contypid = d.oid AND n.contype = 'c'
    UNION ALL
    SELECT 'pg_catalog.pg_attrdef'::regclass::oid, e.oid,
           'the generated column ' || pg_catalog.quote_ident(g.attname),
           pg_catalog.pg_get_expr(e.adbin, e.adrelid), 'generated',
           CASE WHEN g.atttypid IN ('pg_catalog.varchar'::regtype::oid, 'pg_catalog.bpchar'::regtype::oid)
                AND g.atttypmod > 4 THEN g.atttypmod - 4 END
    FROM ours JOIN pg_catalog.pg_attribute g ON g.attrelid = ours.attrelid AND g.attgenerated <> ''
    JOIN pg_catalog.pg_attrdef e ON e.adrelid = g.attrelid AND e.adnum = g.attnum
    WHERE EXISTS (SELECT FROM pg_catalog.pg_depend x WHERE x.refobjid = ours.attrelid
                  AND x.refobjsubid = CAST(ours.attnum AS int) AND (
                  x.classid = 'pg_catalog.pg_attrdef'::regclass::oid AND x.objid = e.oid
                  OR x.classid = 'pg_catalog.pg_class'::regclass::oid AND x.objid = g.attrelid
                  AND x.objsubid = CAST(g.attnum AS int))))
SELECT DISTINCT d.name, d.expression, d.kind, d.longest,
       (SELECT pg_catalog.json_agg(pg_catalog.pg_describe_object(x.refclassid, x.refobjid, 0))
        FROM pg_catalog.pg_depend x WHERE x.classid = d.classid AND x.objid = d.objid
        AND x.refclassid IN ('pg_catalog.pg_operator'::regclass::oid, 'pg_catalog.pg_proc'::regclass::oid)
       )::text AS calls
FROM demands d
ORDER BY 1, 2
""")


def read_demands(live: LiveTable) -> Iterator[Demand]:
    """Yield the CHECKs, the conditions of domains, and the generated columns that need the column."""
    for row in live.connection.execute(_DEMANDS, live.names).all():
        calls = ", ".join(json.loads(row.calls)) if row.calls else ""
        expression = row.expression
        if row.longest is not None:
            expression = f"pg_catalog.char_length({expression}) <= {row.longest}"
        elif row.kind == "generated":
            expression = f"({expression}) IS NULL OR true"
        if row.kind == "domain":  # its conditions are about VALUE
            own = quoted(live.target.column, live.connection.dialect)
            expression = f"(SELECT {expression} FROM (SELECT {own} AS value) AS of_domain)"
        why_not = f"it calls {calls}, which may be code of another role" if calls else ""
        yield Demand(row.name, expression, is_ours=True, why_not=why_not)
