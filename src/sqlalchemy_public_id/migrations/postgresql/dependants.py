"""What PostgreSQL keeps from being dropped or changed, because something else depends on it."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import text

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrations.plan import Migration

# needs: what the dependant keeps from being dropped or changed. DROP COLUMN also drops constraints of the table. ALTER
# TYPE fails if a dependant is one that PostgreSQL does not rebuild (see its RememberAllDependentForRebuilding()).
_DEPENDANTS = text("""
WITH ours AS (SELECT attrelid, attnum FROM pg_catalog.pg_attribute
              WHERE attrelid = CAST(pg_catalog.to_regclass(:regclass) AS oid) AND attname = CAST(:column AS text)
              AND NOT attisdropped),
on_ours AS (SELECT d.*, attrelid, attnum FROM pg_catalog.pg_depend d JOIN ours
            ON refclassid = 'pg_catalog.pg_class'::regclass::oid AND refobjid = attrelid AND refobjsubid = attnum),
dependants AS (
    SELECT classid, objid, objsubid, 'column' AS needs
    FROM on_ours
    WHERE deptype = 'n' AND NOT (classid = 'pg_catalog.pg_constraint'::regclass::oid AND EXISTS (
        SELECT FROM pg_catalog.pg_constraint own
        WHERE own.oid = objid AND own.conrelid = attrelid AND own.contype <> 'f'))
       OR classid = 'pg_catalog.pg_class'::regclass::oid AND EXISTS (
        SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
        WHERE i.indexrelid = objid AND i.indnatts > 1 AND x.relname IS DISTINCT FROM CAST(:own AS name))
    UNION
    SELECT classid, objid, objsubid, 'type'
    FROM on_ours
    WHERE CAST(CAST(classid AS regclass) AS text) IN (
            'pg_rewrite', 'pg_policy', 'pg_trigger', 'pg_proc', 'pg_publication_rel')
       OR classid = 'pg_catalog.pg_class'::regclass::oid AND objid = attrelid
       OR classid = 'pg_catalog.pg_attrdef'::regclass::oid AND NOT EXISTS (
          SELECT FROM pg_catalog.pg_attrdef own WHERE own.oid = objid AND own.adrelid = attrelid AND own.adnum = attnum)
    UNION
    SELECT classid, objid, objsubid, CASE WHEN x.relname = CAST(:own AS name) THEN 'index' ELSE 'column' END
    FROM ours JOIN pg_catalog.pg_index i ON indrelid = attrelid AND indisunique
    JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid AND (
        x.relname = CAST(:own AS name) OR i.indkey[0] = attnum AND i.indnatts = 1)
    JOIN pg_catalog.pg_depend d ON refclassid = 'pg_catalog.pg_class'::regclass::oid AND refobjid = indexrelid
    WHERE deptype = 'n')
SELECT DISTINCT CASE WHEN r.rulename = '_RETURN' THEN 'view ' || CAST(CAST(r.ev_class AS regclass) AS text)
                ELSE pg_catalog.pg_describe_object(classid, objid, objsubid) END AS name
FROM dependants
LEFT JOIN pg_catalog.pg_rewrite r ON classid = 'pg_catalog.pg_rewrite'::regclass::oid AND r.oid = objid
WHERE needs = ANY (CAST(:needs AS text[]))
ORDER BY 1
""")


def obstacles_of_dependants(migration: Migration) -> Iterator[Obstacle]:
    """Yield an obstacle if something needs the column, its type or its index."""
    if not migration.state.exists:
        return
    of_type: list[str] = ["type"] if migration.plan.changes_collation(migration.state) else []
    of_index: list[str] = [] if migration.target.keeps_unique else ["index"]
    needs: dict[str, list[str]] = {"drop": ["column", "index"], "loosen": [*of_index, *of_type], "contract": of_type}
    wanted = [need for phase in migration.phases for need in needs.get(phase, [])]
    if not wanted:
        return
    own = None if migration.state.unique is None else migration.state.unique.name
    names = {**migration.table.names, "needs": wanted, "own": own}
    dependants = migration.table.connection.execute(_DEPENDANTS, names).scalars().all()
    if dependants:
        what = "the type of the column, whose collation has to change" if "type" in wanted else "the column"
        what = "the unique index of the column" if wanted == ["index"] else what
        problem = f"{', '.join(dependants)} {'needs' if len(dependants) == 1 else 'need'} {what}"
        yield Obstacle("dependants", problem, "drop or change that first")
