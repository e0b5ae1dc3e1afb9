"""Statements of a script (``--sql``) that stop it before the first ALTER if its backfill would fire triggers."""

from __future__ import annotations

from sqlalchemy_public_id.dialects.quoting import dollar_quoted

_FIRE = 'pass update_triggers="fire" to accept this'
_FIRE_OR_SKIP = f'{_FIRE}, or "skip" to leave them out'


def refuse_on_postgresql(table: str, regclass: str, column: str, *, skip: bool) -> str:
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


def refuse_on_mysql(table: str, schema: str, name: str) -> str:
    """Return a SET that fails if the table has triggers for UPDATE, which nothing can leave out.

    :param table: the quoted name.
    :param schema: the expression of the schema.
    :param name: the name of the table as a literal.
    """
    # only a stored program can SIGNAL under a condition, and it would remain; a mode that does not exist fails, too
    return (
        f"SET SESSION sql_mode = COALESCE((SELECT CONCAT('the backfill would fire ', MIN(TRIGGER_NAME), ': {_FIRE}') "
        f"FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = {schema} AND EVENT_OBJECT_TABLE = {name} "
        f"AND EVENT_MANIPULATION = 'UPDATE' AND EXISTS (SELECT 1 FROM {table}) HAVING COUNT(*) > 0), "
        f"@@SESSION.sql_mode)"
    )
