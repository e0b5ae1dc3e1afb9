"""What stands in the way of a migration on MySQL and MariaDB, as their catalogs show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from sqlalchemy import text

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrations.mysql.rights import missing_privileges
from sqlalchemy_public_id.migrations.mysql.table import MySQLTable
from sqlalchemy_public_id.migrations.plan import Migration
from sqlalchemy_public_id.migrations.session import send

_TABLE = text("""
SELECT t.ENGINE AS engine, CURRENT_USER() AS user
FROM information_schema.TABLES t
WHERE t.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND t.TABLE_NAME = :table
""")
# of MariaDB
_GENERATED = text("""
SELECT c.COLUMN_NAME FROM information_schema.COLUMNS c
WHERE c.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND c.TABLE_NAME = :table AND c.EXTRA LIKE '%GENERATED%'
  AND (c.EXTRA LIKE '%STORED%' OR EXISTS (
      SELECT 1 FROM information_schema.STATISTICS s WHERE s.TABLE_SCHEMA = COALESCE(:schema, DATABASE())
      AND s.TABLE_NAME = :table AND s.COLUMN_NAME = c.COLUMN_NAME))
ORDER BY c.ORDINAL_POSITION
""")
_VIRTUAL = text("""
SELECT COLUMN_NAME FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table AND EXTRA LIKE '%VIRTUAL%'
""")
_FOREIGN_KEYS = text("""
SELECT k.CONSTRAINT_NAME AS name, k.TABLE_NAME AS `table`,
       k.REFERENCED_COLUMN_NAME = :column AND k.REFERENCED_TABLE_NAME = :table
       AND k.REFERENCED_TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AS refers_to_ours,
       r.DELETE_RULE = 'SET NULL' OR r.UPDATE_RULE = 'SET NULL' AS sets_null
FROM information_schema.KEY_COLUMN_USAGE k
JOIN information_schema.REFERENTIAL_CONSTRAINTS r ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA
     AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME AND r.TABLE_NAME = k.TABLE_NAME
WHERE k.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND k.TABLE_NAME = :table AND k.COLUMN_NAME = :column
   OR k.REFERENCED_TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND k.REFERENCED_TABLE_NAME = :table
      AND k.REFERENCED_COLUMN_NAME = :column
ORDER BY 1
""")
_WIDER_INDEXES = text("""
SELECT s.INDEX_NAME FROM information_schema.STATISTICS s
WHERE s.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND s.TABLE_NAME = :table
GROUP BY s.INDEX_NAME
HAVING COUNT(*) > 1 AND MAX(s.COLUMN_NAME = :column)
ORDER BY s.INDEX_NAME
""")
_TRIGGERS = text("""
SELECT TRIGGER_NAME FROM information_schema.TRIGGERS
WHERE EVENT_OBJECT_SCHEMA = COALESCE(:schema, DATABASE()) AND EVENT_OBJECT_TABLE = :table
ORDER BY TRIGGER_NAME
""")
_COMPLETE = {None, "utf8mb4"}
"""Character sets of a session that have every character; with NULL, the server sends the bytes as they are stored."""
# the texts that a MODIFY of the column repeats, and as another character set would return them
_TEXTS = """
SELECT 1 FROM (SELECT CONCAT_WS(' ', COLUMN_COMMENT, COLUMN_DEFAULT) AS texts FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table AND COLUMN_NAME = :column) c
WHERE texts <> CONVERT(CONVERT(texts USING {charset}) USING utf8mb4)
"""
# on MariaDB, which stores it with the column
_TEXTS_OF_CHECKS = """
UNION ALL SELECT 1 FROM information_schema.CHECK_CONSTRAINTS
WHERE CONSTRAINT_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table AND CONSTRAINT_NAME = :column
  AND CHECK_CLAUSE <> CONVERT(CONVERT(CHECK_CLAUSE USING {charset}) USING utf8mb4)
"""


def obstacles_of_catalogs(migration: Migration) -> Iterator[Obstacle]:
    """Yield the obstacles that the catalogs of MySQL and MariaDB show."""
    (table,) = migration.table.read(_TABLE)
    yield from _of_rights(migration, table.user)
    yield from _of_copies(migration)
    yield from _of_the_mode(migration)
    if migration.state.exists:
        yield from _of_the_character_set(migration)
        yield from _of_the_column(migration)
    yield from _of_a_hidden_column(migration)
    yield from _of_the_history(migration)
    if not migration.consent.allow_lock:
        yield from _of_locks(migration, table.engine)


def _of_copies(migration: Migration) -> Iterator[Obstacle]:
    # the copy will replace the table: it receives new rows, but no changes of columns, defaults and indexes
    triggers = [name for (name,) in migration.table.read(_TRIGGERS) if name.startswith("pt_osc_")]
    if triggers and set(migration.phases) != {"backfill"}:
        table = migration.target.table
        problem = f"pt-online-schema-change is copying {table}; its copy lacks what this migration changes"
        remedy = f"wait until the tool has ended; if it was killed, drop its triggers {', '.join(triggers)}"
        yield Obstacle("table-copied", problem, remedy)


def _of_the_mode(migration: Migration) -> Iterator[Obstacle]:
    """Yield an obstacle if an ALTER would read the texts of the table in another SQL mode than they are stored in."""
    if {*migration.phases} == {"backfill"} or not migration.plan.may_read(migration):
        return
    connection = migration.table.connection
    if "NO_BACKSLASH_ESCAPES" not in send(connection, "SELECT @@SESSION.sql_mode").scalar():
        return
    # which writes backslashes as in the other mode, whatever the mode of the session
    if "\\" in send(connection, f"SHOW CREATE TABLE {migration.table.name}").one()[1]:
        table = migration.target.table
        problem = f"in the mode NO_BACKSLASH_ESCAPES, an ALTER would change the texts with a backslash in {table}"
        yield Obstacle("sql-mode", problem, "run this in a session without NO_BACKSLASH_ESCAPES in its sql_mode")


def _of_the_character_set(migration: Migration) -> Iterator[Obstacle]:
    """Yield an obstacle if the session reads or writes "?" for a character that a MODIFY has to repeat."""
    if not {"expand", "contract", "loosen"} & {*migration.phases}:
        return
    connection, target = migration.table.connection, migration.target
    query = _TEXTS + (_TEXTS_OF_CHECKS if getattr(connection.dialect, "is_mariadb", False) else "")
    for charset in {*send(connection, "SELECT @@character_set_client, @@character_set_results").one()} - _COMPLETE:
        if migration.table.read(text(query.format(charset=charset))):
            problem = f"a MODIFY would write ? for characters in the comment, the default or a CHECK of {target.column}"
            problem += f", because the session uses the character set {charset}"
            yield Obstacle("character-set", problem, "connect with charset=utf8mb4")
            return


def _of_the_column(migration: Migration) -> Iterator[Obstacle]:
    """Yield the indexes that would silently lose the column, and triggers and foreign keys that need it."""
    connection, names, state = migration.table.connection, migration.table.names, migration.state
    drops = "drop" in migration.phases
    dropped = None if state.unique is None else state.unique.name
    for index in [name for (name,) in migration.table.read(_WIDER_INDEXES) if drops and name != dropped]:
        problem = f"the index {index} also contains other columns, and would silently lose this one"
        yield Obstacle("dependants", problem, "drop it first")
    uniques = [index for index in state.indexes if index.can_be_unique_index_of(migration.target.column)]
    serves_keys = all(index == state.unique for index in uniques)  # otherwise, another one serves the foreign keys
    drops_index = "loosen" in migration.phases and state.index and not migration.target.keeps_unique and serves_keys
    for key in connection.execute(_FOREIGN_KEYS, names).all():
        name = f"the foreign key {key.name} of {key.table}"
        remedy = "drop it before the migration, and add it again afterwards"
        if drops:
            yield Obstacle("dependants", f"{name} needs the column", "drop it first")
        elif drops_index and key.refers_to_ours:
            yield Obstacle("dependants", f"{name} needs the unique index of the column", "drop it first")
        elif {"contract", "loosen"} & {*migration.phases} and migration.plan.changes_collation(state):
            problem = f"{name} needs the type of the column, whose collation has to change"
            yield Obstacle("dependants", problem, remedy)
        elif "contract" in migration.phases and state.nullable and key.sets_null and not key.refers_to_ours:
            problem = f"{name} sets the column to NULL, which the migration forbids"
            yield Obstacle("dependants", problem, "give it another action than SET NULL")


def _of_a_hidden_column(migration: Migration) -> Iterator[Obstacle]:
    """Yield an obstacle if the column would forbid NULL, and be neither seen nor generated.

    A rehearsal does not find this: its steps are those for the column before the migration.
    """
    target, state = migration.target, migration.state
    is_hidden = state.is_invisible if target.invisible is None else target.invisible
    keeps_default = target.server_default in ("keep", "replace") or (
        state.default is not None and (target.server_default == "none" or not migration.plan.has_own_default(state))
    )
    if not is_hidden:
        return
    ignores_default = _ignores_the_default(migration)
    if "contract" in migration.phases and not keeps_default:
        problem = (
            f"{target.column} is INVISIBLE, and without a default MariaDB does not let it forbid NULL, and MySQL "
            f"refuses old INSERTs, or stores the empty string"
        )
        keep = "" if ignores_default else 'server_default="keep", or '
        yield Obstacle("implicit-default", problem, f"pass {keep}invisible=False")
    elif ignores_default:
        problem = (
            f"{target.column} is INVISIBLE, and for an INSERT without a list of columns, MySQL ignores the expression "
            f"of its default, and stores the empty string once it forbids NULL"
        )
        remedy = 'pass invisible=False; or, if each INSERT lists its columns, stored_code="ignore"'
        yield Obstacle("implicit-default", problem, remedy)


def _ignores_the_default(migration: Migration) -> bool:
    """Return True if old INSERTs into the hidden column would store the empty string, after the phases only.

    MySQL evaluates no expression for a hidden column that is not in the statement, unlike MariaDB: it stores NULL, or
    without a warning an empty value. Before the contract, the backfill finds these rows.
    """
    state, phases = migration.state, {*migration.phases}
    is_mariadb = getattr(migration.table.connection.dialect, "is_mariadb", False)
    if is_mariadb or migration.consent.stored_code == "ignore":
        return False
    keeps_not_null = state.exists and not state.nullable and "drop" not in phases
    if "loosen" in phases:
        keeps_not_null = keeps_not_null and migration.target.keeps_not_null
    hides = keeps_not_null and migration.target.invisible is True and not state.is_invisible
    return hides or ("contract" in phases and state.nullable)


def _of_locks(migration: Migration, engine: str) -> Iterator[Obstacle]:
    is_gone = {"drop", "loosen"} & {*migration.phases} and not migration.state.exists
    if is_gone or not migration.steps:
        return
    table = cast("MySQLTable", migration.table)
    causes: list[str] = []
    if engine.lower() != "innodb":
        causes.append(f"the engine is {engine}")
    if _is_stored_by_ids(migration):
        causes.append(f"{migration.target.column} is the only key, by which InnoDB stores the rows")
    kinds = {index.kind for index in migration.state.indexes}
    causes += [f"there is a {kind.upper()} index" for kind in ("fulltext", "spatial") if kind in kinds]
    if table.is_mariadb:
        generated = table.read(_GENERATED)
        causes += [f"the column {name} is generated, and stored or indexed" for (name,) in generated]
    causes += table.read_copying_checks(modifies=_modifies(migration))
    if causes:
        database = table.connection.dialect.name
        problem = f"writers would wait while {database} changes {migration.target.table}: {', '.join(causes)}"
        yield Obstacle("needs-lock", problem, "pass allow_lock=True to accept this, in a quiet hour")


def _modifies(migration: Migration) -> bool:
    """Return True if the phases modify the column, which a change of its collation does while writers wait."""
    nullable = migration.state.nullable
    loosens = "loosen" in migration.phases and not migration.target.keeps_not_null
    return nullable if "contract" in migration.phases else loosens and not nullable


def _is_stored_by_ids(migration: Migration) -> bool:
    """Return True if the phases undo the unique index by which InnoDB stores the rows, as it does without other keys.

    It takes the primary key, or else the first unique index of whole, stored columns that forbid NULL.
    """
    target, state = migration.target, migration.state
    undoes = "drop" in migration.phases or (
        "loosen" in migration.phases and not (target.keeps_unique and target.keeps_not_null)
    )
    if not undoes or state.nullable or not state.index or any(index.primary for index in state.indexes):
        return False
    virtual = {name for (name,) in migration.table.read(_VIRTUAL)}
    excluded: set[str] = set()
    shown = [row._mapping for row in send(migration.table.connection, f"SHOW INDEX FROM {migration.table.name}")]
    for part in shown:  # in the order of the server
        is_whole = part["Column_name"] is not None and part["Sub_part"] is None
        if part["Non_unique"] or part["Null"] == "YES" or not is_whole or part["Column_name"] in virtual:
            excluded.add(part["Key_name"])
    first = next((part["Key_name"] for part in shown if part["Key_name"] not in excluded), None)
    return state.unique is not None and first == state.unique.name


def _of_the_history(migration: Migration) -> Iterator[Obstacle]:
    """Yield an obstacle if earlier versions of a row have no id: NOT NULL applies to them as well."""
    if not migration.state.versioned or "contract" not in migration.phases:
        return
    # an UPDATE also sets such a column, which is versioned
    makes_history = migration.fills_rows and migration.table.columns_changed_by_updates()
    table, missing = migration.plan.table, f"WHERE {migration.plan.column} IS NULL" if migration.state.exists else ""
    query = f"SELECT (SELECT count(*) FROM {table} FOR SYSTEM_TIME ALL {missing}) > count(*) FROM {table} {missing}"
    if makes_history or send(migration.table.connection, query).scalar():
        problem = f"{migration.target.table} is system-versioned, and earlier versions of its rows have no ids"
        remedy = f"ALTER TABLE {table} DROP SYSTEM VERSIONING, which drops them, and add it again after the migration"
        yield Obstacle("versioned", problem, remedy)


def _of_rights(migration: Migration, user: str) -> Iterator[Obstacle]:
    missing = missing_privileges(migration.table, migration.plan.rights(migration))
    if missing:
        privileges, (name, _, host) = ", ".join(missing), user.rpartition("@")
        problem = f"{user} lacks the privileges {privileges} on {migration.target.table}"
        yield Obstacle("missing-right", problem, f"GRANT {privileges} ON {migration.plan.table} TO '{name}'@'{host}'")
