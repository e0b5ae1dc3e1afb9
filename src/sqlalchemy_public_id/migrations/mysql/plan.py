"""MySQL and MariaDB: every ALTER says LOCK=NONE, so that the server refuses it instead of locking the table.

``MODIFY`` drops each attribute that it does not repeat, so it always has the whole definition, with character set,
default and comment. It runs in strict mode, because the server would otherwise replace NULL with the empty string.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sqlalchemy import Dialect, text
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.errors import ConfigurationError, Obstacle
from sqlalchemy_public_id.migrations.consent import Consent
from sqlalchemy_public_id.migrations.mysql.server_defaults import MySQLDefaults
from sqlalchemy_public_id.migrations.mysql.session import MySQLSession
from sqlalchemy_public_id.migrations.plan import Lock, Migration, Phase, Plan, Step, step_if
from sqlalchemy_public_id.migrations.session import restore, send
from sqlalchemy_public_id.migrations.state import State
from sqlalchemy_public_id.migrations.steps import is_accepted, refused

_COPY = "public_id_rehearsal"
_NOT_CUT = 32
"""The number of bytes of a name that always fit after the prefix that MySQL adds to it."""


class MySQLPlan(Plan):
    """The steps for MySQL and MariaDB."""

    works_in_a_shell = True

    @property
    def bytewise(self) -> str:
        return "ascii_bin"

    @classmethod
    def defaults_of(cls, dialect: Dialect) -> MySQLDefaults:
        return MySQLDefaults(dialect)

    def _problem(self, name: str, kind: str) -> str | None:
        database = self.dialect.name
        if problem := super()._problem(name, kind):
            return problem
        if len(name) > 64:
            return f"has more than 64 characters, which {database} does not accept"
        if kind != "schema" and {"\n", "\r"} & {*name}:
            return f"has several lines, and SQLAlchemy does not reflect it from {database}"
        return f"ends with a blank, which {database} does not accept" if name.endswith(" ") else None

    def expand(self) -> list[Step]:
        return [
            self._alter("add the column", lambda state: "" if state.exists else self._add_column(state)),
            *self._generate_ids(),
        ]

    def contract(self) -> list[Step]:
        return [
            *self._collate(),
            self._complete(),
            *([self._drop_default()] if self.target.server_default == "drop" else ()),
        ]

    def loosen(self) -> list[Step]:
        target = self.target
        return [
            *([self._allow_null()] if not target.keeps_not_null else ()),
            *self._generate_ids(),
            *([self._drop_index()] if not target.keeps_unique else ()),
            *self._collate(),
            *([self._drop_default()] if target.server_default == "none" else ()),
        ]

    def drop(self) -> list[Step]:
        drop = self._alter("drop the column", lambda state: self._drop_column if state.exists else "")
        return [self._drop_index(), drop]

    def scripts(self, lock_timeout: float) -> dict[Phase, list[str]]:
        add = [self._add_column(State()), *([self._set_default] if self.generates_ids else ())]
        before = f"SET SESSION lock_wait_timeout = {math.ceil(lock_timeout)}"
        after = "SET SESSION lock_wait_timeout = DEFAULT"
        return {
            "expand": [before, *(sql + self._lock for sql in add), after],
            "backfill": [],
            "drop": [before, self._drop_column + self._lock, after],
        }

    def rights(self, migration: Migration) -> list[str]:
        return [*_ALTER, "SELECT", *(["UPDATE"] if migration.fills_rows else ())]

    def obstacles(self, migration: Migration) -> Iterator[Obstacle]:
        (table,) = migration.table.read(_TABLE)
        yield from _of_rights(migration, table.user)
        yield from _of_copies(migration)
        if migration.state.exists:
            yield from _of_the_column(migration)
        yield from _of_the_history(migration)
        if not migration.consent.allow_lock:
            yield from _of_locks(migration, table.engine)

    def rehearse(self, migration: Migration) -> Iterator[Obstacle]:
        """Use a temporary table, which has the columns, indexes and CHECKs, but neither triggers nor foreign keys."""
        connection = migration.table.connection
        if (
            not self.online or migration.state.versioned
        ):  # an ALTER would commit; a copy of a versioned table refuses it
            return
        # temporary tables refuse LOCK=NONE, and the catalogs do not describe them
        plan = MySQLPlan(replace(migration.target, table=_COPY), self.dialect, Consent(allow_lock=True))
        drop = f"DROP TEMPORARY TABLE IF EXISTS {plan.table}"
        with MySQLSession(connection).settings():
            send(connection, drop)  # left by an interrupted rehearsal
            if not is_accepted(connection, f"CREATE TEMPORARY TABLE {plan.table} LIKE {self.table}"):
                return
            try:
                for _, step in plan.steps_of(migration.phases):
                    try:
                        for sql in step.statements(migration.state):
                            send(connection, sql)
                    except DBAPIError as error:
                        yield refused(migration, step, error)
                        break
            finally:
                restore(connection, drop)

    # --- parts

    def _add_column(self, state: State) -> str:
        comment = self._comment(None) + _unversioned(state)
        return f"ALTER TABLE {self.table} ADD COLUMN {self.column} {self.type} NULL{comment}"

    @property
    def _drop_column(self) -> str:
        name = self.target.column
        # INSTANT renames the column, and MySQL fails (3507) if it truncates the longer name within a character
        is_cut = not name.isascii() and len(name.encode()) > _NOT_CUT
        algorithm = f", ALGORITHM={'COPY' if self.consent.allow_lock else 'INPLACE'}" if is_cut else ""
        return f"ALTER TABLE {self.table} DROP COLUMN {self.column}{algorithm}"

    @property
    def _lock(self) -> str:
        # the server chooses the algorithm with the weakest lock, and refuses if writers would still have to wait
        return "" if self.consent.allow_lock else ", LOCK=NONE"

    @property
    def _rebuild(self) -> str:
        # MySQL's rebuild in place can lose rows while deleted ones are purged, even if writers wait (bug 115608)
        return ", ALGORITHM=COPY" if self.consent.allow_lock and not self._is_mariadb else self._lock

    @property
    def _is_mariadb(self) -> bool:
        return bool(getattr(self.dialect, "is_mariadb", False))

    @property
    def _expression(self) -> str:
        version = self.dialect.server_version_info
        if self._is_mariadb and version is not None and version < (10, 10):
            raise ConfigurationError(
                f"MariaDB {'.'.join(map(str, version[:2]))} cannot generate ids, because it has no RANDOM_BYTES(); use "
                f'10.10 or later, or pass server_default="none", and let every application set the ids'
            )
        return self.defaults.expression(self.target.format)

    def _generate_ids(self) -> list[Step]:
        if not self.generates_ids:
            return []

        def statement(state: State) -> str:
            is_finished = state.complete and self.target.server_default == "drop"
            return "" if state.default is not None or is_finished else self._set_default

        return [self._alter("set the default", statement)]

    @property
    def _set_default(self) -> str:
        return f"ALTER TABLE {self.table} ALTER COLUMN {self.column} SET DEFAULT ({self._expression})"

    def _drop_default(self) -> Step:
        drop = f"ALTER TABLE {self.table} ALTER COLUMN {self.column} DROP DEFAULT"
        return step_if("drop the default", self.has_own_default, drop)

    def _drop_index(self) -> Step:
        def statement(state: State) -> str:
            return f"ALTER TABLE {self.table} DROP INDEX {self.unique_of(state)}" if state.index else ""

        return self._alter("drop the unique index", statement)

    def _alter(self, name: str, statement: Callable[[State], str]) -> Step:
        """Build a step of one ALTER; none is needed if *statement* returns an empty string."""
        return Step(name, lambda state: [sql + self._lock] if (sql := statement(state)) else [])

    def _complete(self) -> Step:
        def statements(state: State) -> list[str]:
            # in one statement, which rewrites the table once
            changes = [] if state.index else [f"ADD UNIQUE INDEX {self.unique} ({self.column})"]
            changes += [self._modify(self._collated(state), "NOT NULL")] if state.nullable else []
            if not changes:
                return []
            return [f"ALTER TABLE {self.table} {', '.join(changes)}{self._rebuild if state.nullable else self._lock}"]

        return self._rewrite("build the unique index and forbid NULL", statements)

    def _allow_null(self) -> Step:
        def statements(state: State) -> list[str]:
            return [] if state.nullable else [f"ALTER TABLE {self.table} {self._modify(state, 'NULL')}{self._rebuild}"]

        return self._rewrite("allow NULL", statements)

    def _rewrite(self, name: str, statements: Callable[[State], Sequence[str]]) -> Step:
        """Build the step of a long ALTER, which needs its lock once more at the end.

        The probe takes the lock and does nothing: InnoDB has no keys to enable. Without LOCK=NONE, writers wait anyway.
        """
        probe = "" if self.consent.allow_lock else f"ALTER TABLE {self.table} ENABLE KEYS"
        return Step(name, statements, Lock.REWRITE, probe)

    def _collate(self) -> list[Step]:
        def statements(state: State) -> list[str]:
            if not self.changes_collation(state):
                return []
            # the server copies the table, and writers wait
            null = "NULL" if state.nullable else "NOT NULL"
            return [f"ALTER TABLE {self.table} {self._modify(self._collated(state), null)}"]

        return [Step("change the collation", statements)] if self.collation is not None else []

    def becomes_ascii(self, state: State) -> bool:
        return self.collation == self.bytewise and self.changes_collation(state)

    def _collated(self, state: State) -> State:
        """Return *state* as it will be after the collation has changed."""
        if not self.changes_collation(state):
            return state
        type_ = (state.type or "").partition(" CHARACTER SET ")[0]
        return replace(state, type=f"{type_} COLLATE {self.quoted(self.collation or '')}")

    def _comment(self, existing: str | None) -> str:
        comment = self.target.comment if self.target.comment is not None else existing
        return f" COMMENT {self.literal(comment)}" if comment else ""

    def _modify(self, state: State, null: str) -> str:
        default = self._expression if self.generates_ids else None
        if state.default is not None and not self.has_own_default(state):
            default = state.default
        default = f" DEFAULT ({default})" if default is not None else ""
        comment = self._comment(state.comment) + _unversioned(state) + state.attributes
        type_ = state.type or self.type  # another length would copy the table
        return f"MODIFY COLUMN {self.column} {type_} {null}{default}{comment}"


def _unversioned(state: State) -> str:
    # otherwise, the backfill would add a version of each row to the history that MariaDB keeps
    return " WITHOUT SYSTEM VERSIONING" if state.versioned else ""


# --- obstacles

_TABLE = text("""
SELECT t.ENGINE AS engine, CURRENT_USER() AS user
FROM information_schema.TABLES t
WHERE t.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND t.TABLE_NAME = :table
""")
_GENERATED = text("""
SELECT c.COLUMN_NAME FROM information_schema.COLUMNS c
WHERE c.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND c.TABLE_NAME = :table AND c.EXTRA LIKE '%GENERATED%'
  AND c.EXTRA NOT LIKE 'DEFAULT%' AND (c.EXTRA LIKE '%STORED%' OR EXISTS (
      SELECT 1 FROM information_schema.STATISTICS s WHERE s.TABLE_SCHEMA = COALESCE(:schema, DATABASE())
      AND s.TABLE_NAME = :table AND s.COLUMN_NAME = c.COLUMN_NAME))
ORDER BY c.ORDINAL_POSITION
""")
_GRANTED = text("""
SELECT PRIVILEGE_TYPE FROM information_schema.USER_PRIVILEGES WHERE GRANTEE = :grantee
UNION SELECT PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES
      WHERE GRANTEE = :grantee AND COALESCE(:schema, DATABASE()) LIKE TABLE_SCHEMA
UNION SELECT PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES
      WHERE GRANTEE = :grantee AND TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :table
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
SELECT TRIGGER_NAME AS name, ACTION_STATEMENT AS body FROM information_schema.TRIGGERS
WHERE EVENT_OBJECT_SCHEMA = COALESCE(:schema, DATABASE()) AND EVENT_OBJECT_TABLE = :table
ORDER BY TRIGGER_NAME
""")
_ALTER = ("ALTER", "CREATE", "INSERT")
"""The privileges that ALTER TABLE needs."""


def _of_copies(migration: Migration) -> Iterator[Obstacle]:
    # the copy will replace the table: it receives new rows, but no changes of columns, defaults and indexes
    triggers = [row.name for row in migration.table.read(_TRIGGERS) if row.name.startswith("pt_osc_")]
    if triggers and set(migration.phases) != {"backfill"}:
        table = migration.target.table
        problem = f"pt-online-schema-change is copying {table}; its copy lacks what this migration changes"
        remedy = f"wait until the tool has ended; if it was killed, drop its triggers {', '.join(triggers)}"
        yield Obstacle("table-copied", problem, remedy)


def _of_the_column(migration: Migration) -> Iterator[Obstacle]:
    """Yield the indexes that would silently lose the column, and triggers and foreign keys that need it."""
    connection, names, state = migration.table.connection, migration.table.names, migration.state
    drops = "drop" in migration.phases
    for (index,) in migration.table.read(_WIDER_INDEXES) if drops else ():
        problem = f"the index {index} also contains other columns, and would silently lose this one"
        yield Obstacle("dependants", problem, "drop it first")
    # the server would drop the column, and then refuse every INSERT; the catalogs have only the trigger's text
    uses = re.compile(rf"\b(NEW|OLD)\s*\.\s*(`?){re.escape(migration.target.column)}\2(?![\w$])", re.IGNORECASE)
    for trigger in migration.table.read(_TRIGGERS) if drops else ():
        if uses.search(trigger.body):
            yield Obstacle("dependants", f"the trigger {trigger.name} needs the column", "drop or change it first")
    is_invisible = getattr(connection.dialect, "is_mariadb", False) and "INVISIBLE" in state.attributes
    if is_invisible and "contract" in migration.phases and migration.target.server_default == "drop":
        # a rehearsal does not find this: its steps are those for the column before the migration, without the default
        problem = (
            f"{migration.target.column} is INVISIBLE, and MariaDB wants a default for such a column that forbids NULL"
        )
        yield Obstacle("refused", problem, 'pass server_default="keep", or make it visible')
    drops_index = "loosen" in migration.phases and state.index and not migration.target.keeps_unique
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


def _of_locks(migration: Migration, engine: str) -> Iterator[Obstacle]:
    connection = migration.table.connection
    if {"drop", "loosen"} & {*migration.phases} and not migration.state.exists:
        return
    causes: list[str] = []
    if engine.lower() != "innodb":
        causes.append(f"the engine is {engine}")
    kinds = {index.kind for index in migration.state.indexes}
    causes += [f"there is a {kind.upper()} index" for kind in ("fulltext", "spatial") if kind in kinds]
    if getattr(connection.dialect, "is_mariadb", False):
        generated = migration.table.read(_GENERATED)
        causes += [f"the column {name} is generated, and stored or indexed" for (name,) in generated]
    if causes:
        problem = (
            f"writers would wait while {connection.dialect.name} changes {migration.target.table}: {', '.join(causes)}"
        )
        yield Obstacle("needs-lock", problem, "pass allow_lock=True to accept this, in a quiet hour")


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
    connection = migration.table.connection
    if connection.exec_driver_sql("SELECT CURRENT_ROLE()").scalar() not in (None, "NONE"):
        return  # the catalogs do not list what a role grants
    name, _, host = user.rpartition("@")
    names = {**migration.table.names, "grantee": f"'{name}'@'{host}'"}
    granted = {*connection.execute(_GRANTED, names).scalars()}
    missing = [privilege for privilege in migration.plan.rights(migration) if privilege not in granted]
    if missing:
        privileges = ", ".join(missing)
        problem = f"{user} lacks the privileges {privileges} on {migration.target.table}"
        yield Obstacle("missing-right", problem, f"GRANT {privileges} ON {migration.plan.table} TO '{name}'@'{host}'")
