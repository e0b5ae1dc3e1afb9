"""MySQL and MariaDB: every ALTER says LOCK=NONE, so that the server refuses it instead of locking the table.

``MODIFY`` drops each attribute that it does not repeat, so it always has the whole definition, with character set,
default and comment. It runs in strict mode, because the server would otherwise replace NULL with the empty string.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Dialect
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.errors import ConfigurationError, Obstacle
from sqlalchemy_public_id.migrations.column import PublicIdColumn
from sqlalchemy_public_id.migrations.consent import Consent
from sqlalchemy_public_id.migrations.mysql.obstacles import obstacles_of_catalogs
from sqlalchemy_public_id.migrations.mysql.rights import missing_privileges, privileges_to_see_programs
from sqlalchemy_public_id.migrations.mysql.server_defaults import MySQLDefaults
from sqlalchemy_public_id.migrations.mysql.session import MySQLSession
from sqlalchemy_public_id.migrations.mysql.stored_code import find_statements, read_stored_code
from sqlalchemy_public_id.migrations.plan import Lock, Migration, Phase, Plan, Step, step_if
from sqlalchemy_public_id.migrations.session import restore, send
from sqlalchemy_public_id.migrations.state import State
from sqlalchemy_public_id.migrations.steps import is_accepted, refused
from sqlalchemy_public_id.migrations.stored_code.programs import StoredCode
from sqlalchemy_public_id.migrations.stored_code.scope import BrokenStatement
from sqlalchemy_public_id.migrations.stored_code.shapes import Change

_COPY = "public_id_rehearsal"
_ALTER = ("ALTER", "CREATE", "INSERT")
"""The privileges that ALTER TABLE needs."""
_NOT_CUT = 32
"""The number of bytes of a name that always fit after the prefix that MySQL adds to it."""


class MySQLPlan(Plan):
    """The steps for MySQL and MariaDB."""

    works_in_a_shell = True
    hides_columns = True
    deadlocks_with_readers = True  # of the two, the server always lets the ALTER go on
    reads_uuids_as_text = True  # those of MariaDB; MySQL has no such type

    @property
    def bytewise(self) -> str:
        return "ascii_bin"

    @classmethod
    def defaults_of(cls, dialect: Dialect) -> MySQLDefaults:
        return MySQLDefaults(dialect)

    def __init__(self, target: PublicIdColumn, dialect: Dialect, *args: Any, **options: Any) -> None:
        super().__init__(target, dialect, *args, **options)
        version = dialect.server_version_info
        if target.invisible is not None and not self._is_mariadb and version is not None and version < (8, 0, 23):
            raise ConfigurationError("MySQL hides columns since 8.0.23; leave out invisible=")

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
            *self._set_visibility(lambda state: state.exists),
        ]

    def contract(self) -> list[Step]:
        return [
            *self._collate(),
            self._complete(),
            *self._set_visibility(lambda state: state.exists and not state.nullable),
            *([self._drop_default()] if self.target.server_default == "drop" else ()),
        ]

    def loosen(self) -> list[Step]:
        target = self.target
        return [
            *([self._allow_null()] if not target.keeps_not_null else ()),
            *self._generate_ids(),
            *([self._drop_index()] if not target.keeps_unique else ()),
            *self._set_visibility(lambda state: state.nullable or target.keeps_not_null),
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

    def may_read(self, migration: Migration) -> bool:
        return not missing_privileges(migration.table, ["SELECT"])

    def obstacles(self, migration: Migration) -> Iterator[Obstacle]:
        yield from obstacles_of_catalogs(migration)

    def warnings(self, migration: Migration) -> Iterator[str]:
        columns = self.target.unique_columns
        uniques = [index for index in migration.state.indexes if index.can_be_unique_index_of(*columns)]
        if all(index.shown_by for index in uniques) and {"expand", "contract"} & {*migration.phases}:
            for index in uniques[:1]:
                yield f"the unique index {index.name} is hidden, and look-ups do not use it before {index.shown_by}"

    def read_stored_code(self, migration: Migration, change: Change) -> StoredCode:
        return read_stored_code(migration, change, privileges_to_see_programs(migration.table))

    def find_statements(self, migration: Migration, change: Change) -> Sequence[BrokenStatement]:
        return find_statements(migration, change)

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
        comment = self._comment(None) + _unversioned(state) + self._visibility(state)
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
            return "" if is_finished or not self.wants_default(state) else self._set_default

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
            changes = [] if state.index else [f"ADD UNIQUE INDEX {self.unique} ({self.unique_columns})"]
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

    def _visibility(self, state: State) -> str:
        is_hidden = state.is_invisible if self.target.invisible is None else self.target.invisible
        return " INVISIBLE" if is_hidden else ""

    def _set_visibility(self, is_alone: Callable[[State], bool]) -> list[Step]:
        """Return the step that hides or shows the column, unless a MODIFY of another step does that."""
        hides = self.target.invisible

        def statement(state: State) -> str:
            if not is_alone(state) or hides is None or hides == state.is_invisible:
                return ""
            if not self._is_mariadb:
                return f"ALTER TABLE {self.table} ALTER COLUMN {self.column} SET {'IN' * hides}VISIBLE"
            return f"ALTER TABLE {self.table} {self._modify(state, 'NULL' if state.nullable else 'NOT NULL')}"

        return [] if hides is None else [self._alter(f"{'hide' if hides else 'show'} the column", statement)]

    def _comment(self, existing: str | None) -> str:
        comment = self.target.comment if self.target.comment is not None else existing
        return f" COMMENT {self.literal(comment)}" if comment else ""

    def _modify(self, state: State, null: str) -> str:
        default = self._expression if self.generates_ids else None
        if state.default is not None and not self.has_own_default(state) and not self.lacks_default(state):
            default = state.default
        default = f" DEFAULT ({default})" if default is not None else ""
        comment = self._comment(state.comment) + _unversioned(state) + self._visibility(state) + state.attributes
        type_ = state.type or self.type  # another length would copy the table
        return f"MODIFY COLUMN {self.column} {type_} {null}{default}{comment}"


def _unversioned(state: State) -> str:
    # otherwise, the backfill would add a version of each row to the history that MariaDB keeps
    return " WITHOUT SYSTEM VERSIONING" if state.versioned else ""
