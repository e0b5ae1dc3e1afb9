"""Statements of a script (``--sql``) that stop it before its first ALTER if the table is not ready for it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy_public_id.dialects.quoting import dollar_quoted

_FIRE = 'pass update_triggers="fire" to accept this'
_LOCK = "pass allow_lock=True to accept this"
_FIRE_OR_SKIP = f'{_FIRE}, or "skip" to leave them out'


def refuse_triggers_on_postgresql(table: str, regclass: str, column: str, *, skip: bool) -> str:
    """Return a block that raises an error if the UPDATE of *column* fires triggers or rules.

    :param table: the quoted name.
    :param regclass: the same as a literal, as *column* is one.
    :param skip: True if the backfill leaves out triggers: only those for replicated changes fire then.
    """
    enabled, rules, may_skip, remedy = "'O', 'A'", "", "", _FIRE_OR_SKIP
    if skip:
        # fails here, and not after the first ALTER, if the role may not
        enabled, may_skip, remedy = "'A', 'R'", "  SET LOCAL session_replication_role = replica;\n", _FIRE
    else:
        rules = (
            f"    UNION ALL SELECT rulename FROM pg_rewrite\n"
            f"    WHERE ev_class = {regclass}::regclass AND ev_type = '2' AND ev_enabled <> 'D'\n"
        )
    block = (
        f"DECLARE\n"
        f"  names text;\n"
        f"BEGIN\n"
        f"{may_skip}"
        f"  SELECT string_agg(name, ', ' ORDER BY name) INTO names FROM (\n"
        f"    SELECT tgname AS name FROM pg_trigger\n"
        f"    WHERE tgrelid = {regclass}::regclass AND NOT tgisinternal AND tgtype & 16 <> 0\n"
        f"      AND tgenabled IN ({enabled})\n"
        f"      AND (cardinality(tgattr::int2[]) = 0 OR EXISTS (SELECT FROM pg_attribute a\n"
        f"           WHERE a.attrelid = tgrelid AND a.attname = {column} AND a.attnum = ANY (tgattr)))\n"
        f"{rules}"
        f"  ) found WHERE EXISTS (SELECT FROM {table});\n"
        f"  IF names IS NOT NULL THEN\n"
        f"    RAISE EXCEPTION 'the backfill would fire % once for each row: {remedy}', names;\n"
        f"  END IF;\n"
        f"END"
    )
    return f"DO {dollar_quoted(block, 'public_id')}"


def refuse_triggers_on_mysql(table: str, schema: str, name: str) -> str:
    """Return a SET that fails if the table has triggers for UPDATE, which nothing can leave out.

    :param table: the quoted name.
    :param schema: the expression of the schema.
    :param name: the name of the table as a literal.
    """
    query = (
        f"SELECT CONCAT('the backfill would fire ', MIN(TRIGGER_NAME), ': {_FIRE}') "
        f"FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = {schema} AND EVENT_OBJECT_TABLE = {name} "
        f"AND EVENT_MANIPULATION = 'UPDATE' AND EXISTS (SELECT 1 FROM {table}) HAVING COUNT(*) > 0"
    )
    return _refuse_if_any([query])


def refuse_structure_on_postgresql(regclass: str) -> str:
    """Return a block that raises an error if the table is partitioned, or part of an inheritance.

    :param regclass: the quoted name as a literal.
    """
    block = (
        f"BEGIN\n"
        f"  IF EXISTS (SELECT FROM pg_class c WHERE c.oid = to_regclass({regclass})\n"
        f"             AND (c.relkind = 'p' OR EXISTS (\n"
        f"                  SELECT FROM pg_inherits WHERE inhparent = c.oid OR inhrelid = c.oid))) THEN\n"
        f"    RAISE EXCEPTION '% has partitions or inherits: its unique index cannot be built', {regclass};\n"
        f"  END IF;\n"
        f"END"
    )
    return f"DO {dollar_quoted(block, 'public_id')}"


def refuse_structure_on_mysql(schema: str, name: str, *, allow_lock: bool) -> str:
    """Return a SET that fails if the table is partitioned, or if writers would have to wait without consent.

    :param schema: the expression of the schema.
    :param name: the name of the table as a literal.
    """
    of_table = f"TABLE_SCHEMA = {schema} AND TABLE_NAME = {name}"
    queries = [
        (
            f"SELECT 'the table is partitioned: its unique index cannot be built' FROM information_schema.PARTITIONS "
            f"WHERE {of_table} AND PARTITION_NAME IS NOT NULL LIMIT 1"
        )
    ]
    if not allow_lock:
        queries += [
            (
                f"SELECT CONCAT('writers would wait for the ', INDEX_TYPE, ' index: {_LOCK}') "
                f"FROM information_schema.STATISTICS WHERE {of_table} AND INDEX_TYPE IN ('FULLTEXT', 'SPATIAL') LIMIT 1"
            ),
            (
                f"SELECT CONCAT('writers would wait for the engine ', ENGINE, ': {_LOCK}') "
                f"FROM information_schema.TABLES WHERE {of_table} AND ENGINE <> 'InnoDB'"
            ),
        ]
    return _refuse_if_any(queries)


def _refuse_if_any(queries: Sequence[str]) -> str:
    # only a stored program can SIGNAL under a condition, and it would remain; a mode that does not exist fails, too
    problems = ", ".join(f"({query})" for query in queries)
    return f"SET SESSION sql_mode = COALESCE({problems}, @@SESSION.sql_mode)"
