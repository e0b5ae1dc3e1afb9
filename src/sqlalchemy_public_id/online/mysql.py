"""MySQL and MariaDB: every ALTER names its algorithm, so that the server refuses instead of locking the table.

``MODIFY`` drops what it does not repeat: each one has the whole definition, with character set, default and comment. It
runs in strict mode, because the server replaces NULL by the empty string otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from sqlalchemy_public_id.dialects.quoting import delimited
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.migrating.column_state import State
from sqlalchemy_public_id.online.mysql_backfill import backfill_procedure
from sqlalchemy_public_id.online.plan import Plan, Statements, Step, always, unless_script
from sqlalchemy_public_id.online.script_guards import refuse_structure_on_mysql, refuse_triggers_on_mysql
from sqlalchemy_public_id.online.server_defaults import expression, is_generated, trigger_body

_INSTANT, _INPLACE = ", ALGORITHM=INSTANT", ", ALGORITHM=INPLACE, LOCK=NONE"
_LENGTH = re.compile(r"VARCHAR\((\d+)\)", re.IGNORECASE)
_NOT_CUT = 32
"""The bytes of a name that always remain after the prefix that MySQL adds to it."""


class MySQLPlan(Plan):
    """The steps for MySQL and MariaDB."""

    def expand(self) -> list[Step]:
        def add(state: State) -> str:
            comment = self._comment(None) + _unversioned(state)
            return f"ALTER TABLE {self.table} ADD COLUMN {self.column} {self.type} NULL{comment}"

        step = self._step(
            "add the column", add, lambda state: not state.exists, [_INSTANT, _INPLACE], f"NOT {self._has_column()}"
        )
        return [step, *self._generate_ids()]

    def contract(self) -> list[Step]:
        return [
            Step("compare byte by byte", self._collate, lambda state: not state.collated),
            *self._make_unique(),
            self._forbid_null(),
            *(self._stop_generating_ids() if self.target.server_default == "drop" else ()),
        ]

    def relax(self) -> list[Step]:
        allow = self._step(
            "allow NULL", lambda state: self._modify(state, "NULL"), lambda state: not state.nullable, [_INPLACE]
        )
        return [
            allow,
            *self._generate_ids(),
            *(self._make_unique() if self.target.replaces else [self._drop_index()]),
        ]

    def drop(self) -> list[Step]:
        drop = f"ALTER TABLE {self.table} DROP COLUMN {self.column}"
        name = self.target.column
        # INSTANT renames the column, and MySQL fails (3507) if it cuts the longer name inside of a character
        instant = [_INSTANT] if name.isascii() or len(name.encode()) <= _NOT_CUT else []
        return [
            self._drop_trigger(),
            self._drop_index(),
            self._step(
                "drop the column", lambda _: drop, lambda state: state.exists, [*instant, _INPLACE], self._has_column()
            ),
        ]

    def refuse_structure_sql(self) -> list[str]:
        name = self.literal(self.target.table)
        return [refuse_structure_on_mysql(self._schema, name, allow_lock=self.allow_lock)]

    def refuse_triggers_sql(self, *, skip: bool) -> list[str]:
        return [refuse_triggers_on_mysql(self.table, self._schema, self.literal(self.target.table))]

    def backfill_sql(self, *, skip_triggers: bool = False) -> list[str]:
        # a procedure that commits after each batch
        generated, name = self._expression, self.generator
        if generated is None:
            raise ConfigurationError(
                f"a script for {self.dialect.name} cannot generate ids with a check digit for existing rows; "
                f"run op.backfill_public_id() or 'public-id backfill' with a connection"
            )
        place = (self._schema, self.literal(self.target.table))
        create = backfill_procedure(name, self.table, self.column, generated, place, self.literal)
        return [f"DROP PROCEDURE IF EXISTS {name}", *delimited(create), f"CALL {name}()", f"DROP PROCEDURE {name}"]

    # --- parts

    @property
    def _is_mariadb(self) -> bool:
        return bool(getattr(self.dialect, "is_mariadb", False))

    @property
    def _expression(self) -> str | None:
        version = self.dialect.server_version_info
        if self._is_mariadb and version is not None and version < (10, 10):
            raise ConfigurationError(
                f"MariaDB {'.'.join(map(str, version[:2]))} has no RANDOM_BYTES() to generate ids with, 10.10 has; "
                f'pass server_default="none", and let every application set the ids'
            )
        return expression(self.target.format, self.dialect.name)

    def _generate_ids(self) -> list[Step]:
        if not self.generates_ids:
            return []
        generated = self._expression
        if generated is not None:
            set_default = f"ALTER TABLE {self.table} ALTER COLUMN {self.column} SET DEFAULT ({generated})"
            return [self._step("set the default", lambda _: set_default, self._needs_generator, [_INSTANT, _INPLACE])]
        body = trigger_body(self.target.format, self.column)
        trigger = f"{self.generator} BEFORE INSERT ON {self.table} FOR EACH ROW {body}"
        in_script = delimited(f"CREATE TRIGGER IF NOT EXISTS {trigger}")
        sql = unless_script(f"CREATE TRIGGER {trigger}", in_script=in_script)
        return [Step("create the trigger that makes ids", sql, self._needs_generator)]

    def _needs_generator(self, state: State) -> bool:
        has_one = state.default is not None if self._expression is not None else state.trigger is not None
        return not has_one and not (state.complete and self.target.server_default == "drop")

    def _stop_generating_ids(self) -> list[Step]:
        if self._expression is None:
            return [self._drop_trigger()]
        drop = f"ALTER TABLE {self.table} ALTER COLUMN {self.column} DROP DEFAULT"
        return [Step("drop the default", always(drop), self.has_own_default)]

    def _drop_trigger(self) -> Step:
        def sql(connection: Connection | None, state: State) -> list[str]:
            name = self.generator if state.trigger is None else f"{self.schema}{self.quoted(state.trigger)}"
            return [f"DROP TRIGGER IF EXISTS {name}"]

        return Step("drop the trigger that makes ids", sql, lambda state: state.trigger is not None)

    def _make_unique(self) -> list[Step]:
        unique, old = self.target.unique_name, self.target.replaces
        add = f"ALTER TABLE {self.table} ADD UNIQUE INDEX {self.unique} ({self.column})"
        lacks_index = f"NOT {self._has_index(unique)}"
        build = self._step(
            "build the unique index", lambda _: add, lambda state: not state.index, [_INPLACE], lacks_index
        )
        if old is None:
            return [build]
        rename = f"ALTER TABLE {self.table} RENAME INDEX {self.replaced} TO {self.unique}{_INPLACE}"
        drop = f"ALTER TABLE {self.table} DROP INDEX {self.replaced}"

        def is_dropped(state: State) -> bool:
            return state.valid and state.replaced is not None

        # at every moment, one of the two guards the column
        return [
            Step("rename the unique index", unless_script(rename), self._is_renamed),
            build,
            self._step(
                "drop the unique index that is replaced", lambda _: drop, is_dropped, [_INPLACE], self._has_index(old)
            ),
        ]

    def _is_renamed(self, state: State) -> bool:
        version = self.dialect.server_version_info or ()
        return self.can_rename(state) and not (self._is_mariadb and version < (10, 5, 2))  # older: no RENAME INDEX

    def _drop_index(self) -> Step:
        drop = f"ALTER TABLE {self.table} DROP INDEX {self.unique}"
        has_index = self._has_index(self.target.unique_name)
        return self._step("drop the unique index", lambda _: drop, lambda state: state.index, [_INPLACE], has_index)

    def _step(
        self,
        name: str,
        sql: Callable[[State], str],
        needed: Callable[[State], bool],
        algorithms: Sequence[str],
        script_condition: str | None = None,
    ) -> Step:
        """Build the step of an ALTER that tries each of *algorithms* until the server accepts one."""
        # without one, the server may copy the table, and writers wait
        algorithms = [*algorithms, ""] if self.allow_lock else algorithms

        def with_algorithm(algorithm: str) -> Statements:
            def statements(connection: Connection | None, state: State) -> Sequence[str]:
                # a script cannot try one after the other; without one, the server chooses the weakest lock it can
                alter = sql(state) + ("" if connection is None and self.allow_lock else algorithm)
                return [alter] if script_condition is None else self._if(script_condition, alter)(connection, state)

            return statements

        first, *others = map(with_algorithm, algorithms)
        return Step(name, first, needed, fallbacks=others)

    def _if(self, condition: str, sql: str) -> Statements:
        """Return *sql*; in a script, which can be run again, only if *condition* holds."""
        in_script = [
            f"SET @public_id_do = IF({condition}, {self.literal(sql)}, 'DO 0')",
            "PREPARE public_id_do FROM @public_id_do",
            "EXECUTE public_id_do",
            "DEALLOCATE PREPARE public_id_do",
        ]
        return unless_script(sql, in_script=in_script)

    def _has_column(self, also: str = "") -> str:
        return self._exists("COLUMNS", f"COLUMN_NAME = {self.literal(self.target.column)}{also}")

    def _has_index(self, name: str) -> str:
        return self._exists("STATISTICS", f"INDEX_NAME = {self.literal(name)}")

    @property
    def _schema(self) -> str:
        return self.literal(self.target.schema) if self.target.schema else "DATABASE()"

    def _exists(self, kind: str, condition: str) -> str:
        """Return a condition on *kind*, a table of ``information_schema``."""
        return (
            f"EXISTS (SELECT 1 FROM information_schema.{kind} WHERE TABLE_SCHEMA = {self._schema} "
            f"AND TABLE_NAME = {self.literal(self.target.table)} AND {condition})"
        )

    def _forbid_null(self) -> Step:
        step = self._step(
            "forbid NULL",
            lambda state: self._modify(state, "NOT NULL"),
            lambda state: state.nullable,
            [_INPLACE],
            self._has_column(" AND IS_NULLABLE = 'YES'"),
        )

        def sql(connection: Connection | None, state: State) -> Sequence[str]:
            if state.versioned and self.allow_lock:
                # earlier versions of the rows have no ids; outside of strict mode, they get the empty string
                return ["SET SESSION sql_mode = ''", self._modify(state, "NOT NULL")]
            return step.sql(connection, state)

        return replace(step, sql=sql)

    def _collate(self, connection: Connection | None, state: State) -> list[str]:
        # for a column that something else has created; the server copies the table, and writers wait
        null = "NULL" if state.nullable else "NOT NULL"
        return [self._modify(replace(state, type=self._bytewise(state)), null)] if connection is not None else []

    def _bytewise(self, state: State) -> str:
        # not shorter than it is
        length = _LENGTH.match(state.type or "")
        wanted = _LENGTH.match(self.type)
        if length is None or wanted is None or int(length[1]) <= int(wanted[1]):
            return self.type
        return self.type.replace(wanted[0], f"VARCHAR({length[1]})", 1)

    @property
    def uses_trigger(self) -> bool:
        return self.generates_ids and self._expression is None

    def has_own_default(self, state: State) -> bool:
        return state.default is not None and is_generated(state.default, self.dialect.name)

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
        return f"ALTER TABLE {self.table} MODIFY COLUMN {self.column} {type_} {null}{default}{comment}"


def _unversioned(state: State) -> str:
    # otherwise, the backfill would add a version of each row to the history of a table of MariaDB
    return " WITHOUT SYSTEM VERSIONING" if state.versioned else ""
