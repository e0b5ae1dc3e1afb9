"""Obstacles on PostgreSQL: rights, row-level security, publications, dependent objects."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Row, text

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrating.indexes import names_in_queries
from sqlalchemy_public_id.migrating.plan import Lock
from sqlalchemy_public_id.migrating.poolers import changes_session
from sqlalchemy_public_id.migrating.server_defaults import function_body
from sqlalchemy_public_id.preflight.scene import Scene
from sqlalchemy_public_id.preflight.structure import obstacles_of_structure

# pubupdate: published updates need a replica identity
_TABLE = text("""
SELECT quote_ident(current_user) AS role, quote_ident(pg_get_userbyid(c.relowner)) AS owner,
       quote_ident(n.nspname) AS schema,
       pg_has_role(c.relowner, 'USAGE') AS is_owner,
       has_schema_privilege(n.oid, 'CREATE') AS can_create,
       has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'UPDATE') AS can_update,
       row_security_active(c.oid) AS filters_rows,
       c.relreplident <> 'f' AND pg_get_replica_identity_index(c.oid) IS NULL AND EXISTS (
           SELECT FROM pg_publication_tables t JOIN pg_publication p ON p.pubname = t.pubname
           WHERE t.schemaname = n.nspname AND t.tablename = c.relname AND p.pubupdate) AS refuses_updates,
       (SELECT max(attnum) FROM pg_attribute WHERE attrelid = c.oid) AS columns,
       EXISTS (SELECT FROM pg_index k WHERE k.indrelid = c.oid AND k.indisprimary) AS has_key,
       p.oid IS NOT NULL AS has_function, obj_description(p.oid, 'pg_proc') = :mark AS is_ours, p.prosrc AS body,
       x.relkind AS name_of, x.oid IS NOT NULL AND i.indexrelid IS NULL AS is_name_taken
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_proc p ON p.proname = :generator AND p.pronamespace = n.oid AND p.pronargs = 0
LEFT JOIN pg_class x ON x.relname = :unique AND x.relnamespace = n.oid
LEFT JOIN pg_index i ON i.indexrelid = x.oid AND i.indrelid = c.oid
WHERE c.oid = to_regclass(:regclass)
""")
# needs: what the dependant keeps from being dropped or changed. DROP COLUMN takes constraints of the table with it.
# ALTER TYPE refuses the dependants that PostgreSQL does not make again (RememberAllDependentForRebuilding() there).
_DEPENDANTS = text("""
WITH ours AS (SELECT attrelid, attnum FROM pg_attribute
              WHERE attrelid = to_regclass(:regclass) AND attname = :column AND NOT attisdropped),
dependants AS (
    SELECT classid, objid, objsubid, 'column' AS needs
    FROM pg_depend d JOIN ours ON refclassid = 'pg_class'::regclass AND refobjid = attrelid AND refobjsubid = attnum
    WHERE deptype = 'n' AND NOT (classid = 'pg_constraint'::regclass AND EXISTS (
        SELECT FROM pg_constraint own WHERE own.oid = objid AND own.conrelid = attrelid AND own.contype <> 'f'))
       OR classid = 'pg_class'::regclass AND EXISTS (SELECT FROM pg_index WHERE indexrelid = objid AND indnatts > 1)
    UNION
    SELECT classid, objid, objsubid, 'type'
    FROM pg_depend d JOIN ours ON refclassid = 'pg_class'::regclass AND refobjid = attrelid AND refobjsubid = attnum
    WHERE CAST(CAST(classid AS regclass) AS text) IN (
            'pg_rewrite', 'pg_policy', 'pg_trigger', 'pg_proc', 'pg_publication_rel')
       OR classid = 'pg_class'::regclass AND objid = attrelid
       OR classid = 'pg_attrdef'::regclass AND NOT EXISTS (
          SELECT FROM pg_attrdef own WHERE own.oid = objid AND own.adrelid = attrelid AND own.adnum = attnum)
    UNION
    SELECT classid, objid, objsubid, 'index'
    FROM ours JOIN pg_index i ON indrelid = attrelid AND indkey[0] = attnum AND indnatts = 1 AND indisunique
    JOIN pg_depend d ON refclassid = 'pg_class'::regclass AND refobjid = indexrelid
    WHERE deptype = 'n')
SELECT DISTINCT CASE WHEN r.rulename = '_RETURN' THEN 'view ' || CAST(r.ev_class AS regclass)
                ELSE pg_describe_object(classid, objid, objsubid) END AS name
FROM dependants LEFT JOIN pg_rewrite r ON classid = 'pg_rewrite'::regclass AND r.oid = objid
WHERE needs = ANY (:needs)
ORDER BY 1
""")
_COLLATION = text("""
SELECT 1 FROM pg_collation WHERE collname = :collation AND pg_collation_is_visible(oid)
AND collencoding IN (-1, pg_char_to_encoding(getdatabaseencoding()))
""")
_MAX_COLUMNS = 1600
"""Those that were dropped count as well."""

# lists of columns came with PostgreSQL 15, and a new column is not in them
_PUBLICATIONS = text("""
SELECT t.pubname FROM pg_publication_tables t
JOIN pg_publication p ON p.pubname = t.pubname
JOIN pg_class c ON c.oid = to_regclass(:regclass)
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
WHERE t.tablename = c.relname AND t.schemaname = CAST(CAST(c.relnamespace AS regnamespace) AS text)
  AND to_jsonb(r) ->> 'prattrs' IS NULL
ORDER BY 1
""")


def rights(scene: Scene) -> list[str]:
    """Return the rights that the migration needs."""
    table = scene.plan.table
    needed = [f"the ownership of {table}, or membership in its owner"]
    if {"expand", "contract"} & {*scene.phases}:
        needed.append("CREATE on its schema")
    if scene.fills_rows:
        needed.append(f"SELECT and UPDATE on {table}")
    return needed


def warnings(scene: Scene) -> Iterator[str]:
    """Yield what the migration changes elsewhere: the subscribers of a published table need the same columns."""
    added = "expand" in scene.phases and not scene.state.exists
    if not added and not ("drop" in scene.phases and scene.state.exists):
        return
    target, plan = scene.target, scene.plan
    names = names_in_queries(scene.connection, target.table, target.schema, target.column)
    publications = scene.connection.execute(_PUBLICATIONS, names).scalars().all()
    if publications:
        problem = f"{target.table} is published in {', '.join(publications)}"
        if added:
            remedy = f"ALTER TABLE {plan.table} ADD COLUMN {plan.column} {plan.type}"
            yield f"{problem}: subscribers stop until their tables have the column; add it there first: {remedy}"
        else:
            remedy = f"ALTER TABLE {plan.table} ALTER COLUMN {plan.column} DROP NOT NULL"
            yield f"{problem}: subscribers keep the column, and new rows have no ids there; first: {remedy}"


def obstacles(scene: Scene) -> Iterator[Obstacle]:
    """Yield what stands in the way of the phases."""
    target = scene.target
    names = names_in_queries(scene.connection, target.table, target.schema, target.column, target.unique_name)
    table = scene.connection.execute(_TABLE, names).one()
    yield from _of_rights(scene, table)
    yield from obstacles_of_structure(scene.connection, target.table, target.schema)
    if table.refuses_updates and scene.fills_rows:
        problem = f"{target.table} is published without a replica identity, so PostgreSQL refuses every UPDATE"
        identity = "DEFAULT" if table.has_key else "FULL"
        yield Obstacle("replica-identity", problem, f"ALTER TABLE {scene.plan.table} REPLICA IDENTITY {identity}")
    if {"expand", "relax"} & {*scene.phases} and scene.plan.generates_ids and table.has_function:
        body = function_body(target.format, scene.connection.dialect.server_version_info)
        if not table.is_ours and (table.body or "").strip() != body.strip():
            problem = f"there is a function {scene.plan.generator}(), which this library has not created"
            yield Obstacle("foreign-function", problem, 'rename or drop it, or pass server_default="none"')
    if "contract" in scene.phases and not scene.state.index and table.is_name_taken:
        problem = f"the name {target.unique_name} belongs to something else than an index of {target.table}"
        yield Obstacle("name-taken", problem, "pass unique_name= with another name")
    yield from _of_poolers(scene)
    if "expand" in scene.phases and not scene.state.exists and table.columns >= _MAX_COLUMNS:
        problem = f"{target.table} has had {table.columns} columns, and PostgreSQL allows no more"
        yield Obstacle("too-many-columns", problem, "copy the rows into a new table: dropped columns count as well")
    collation = scene.plan.collation
    if collation is not None and scene.connection.scalar(_COLLATION, {"collation": collation}) is None:
        yield Obstacle("unknown-collation", f"there is no collation {collation}", "correct its name")
    yield from _of_dependants(scene, names)


def _of_dependants(scene: Scene, names: dict[str, object]) -> Iterator[Obstacle]:
    if not scene.state.exists:
        return
    of_type: list[str] = ["type"] if scene.plan.changes_collation(scene.state) else []
    of_index: list[str] = [] if scene.target.keeps_unique else ["index"]
    needs = {"drop": ["column", "index"], "relax": [*of_index, *of_type], "contract": of_type}
    wanted = [need for phase in scene.phases for need in needs.get(phase, [])]
    if not wanted:
        return
    dependants = scene.connection.execute(_DEPENDANTS, {**names, "needs": wanted}).scalars().all()
    if dependants:
        what = "the type of the column, whose collation has to change" if "type" in wanted else "the column"
        what = "the unique index of the column" if wanted == ["index"] else what
        problem = f"{', '.join(dependants)} {'needs' if len(dependants) == 1 else 'need'} {what}"
        yield Obstacle("dependants", problem, "drop or change that first")


def _of_poolers(scene: Scene) -> Iterator[Obstacle]:
    builds = any(step.lock is Lock.BUILD for _, step in scene.steps)
    if scene.plan.online and builds and changes_session(scene.connection):
        problem = (
            "a pooler gives this connection another session after each transaction, and an index that is built or "
            "dropped CONCURRENTLY needs a setting of the session"
        )
        yield Obstacle("pooler", problem, "connect to the server itself, or to a pooler in session mode")


def _of_rights(scene: Scene, table: Row[tuple[object, ...]]) -> Iterator[Obstacle]:
    name = scene.target.table
    if not table.is_owner:
        problem = f"{table.role} does not own {name}, and only its owner, {table.owner}, can change it"
        yield Obstacle("missing-right", problem, f"run the migration as {table.owner}, or as a member of that role")
    if not table.can_create and {"expand", "contract"} & {*scene.phases}:
        problem = f"{table.role} may not create the function and the index in the schema {table.schema}"
        yield Obstacle("missing-right", problem, f"GRANT CREATE ON SCHEMA {table.schema} TO {table.role}")
    if not table.can_update and scene.fills_rows:
        problem = f"{table.role} may not read and update {name}"
        yield Obstacle("missing-right", problem, f"GRANT SELECT, UPDATE ON {scene.plan.table} TO {table.role}")
    if table.filters_rows:
        problem = f"row-level security hides rows of {name} from {table.role}, and they would get no id"
        remedy = "run the migration as a role with BYPASSRLS, or as the owner without FORCE ROW LEVEL SECURITY"
        yield Obstacle("row-level-security", problem, remedy)
