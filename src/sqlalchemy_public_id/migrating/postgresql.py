"""PostgreSQL: no step rewrites the table, and every strong lock is held for milliseconds.

The unique index is built ``CONCURRENTLY``. NOT NULL takes a CHECK constraint: ``NOT VALID`` adds it without a scan,
``VALIDATE`` scans all rows beside readers and writers, and ``SET NOT NULL`` skips its scan then (since PostgreSQL 12).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import Connection

from sqlalchemy_public_id import naming
from sqlalchemy_public_id.dialects.quoting import dollar_quoted
from sqlalchemy_public_id.migrating.column_state import State
from sqlalchemy_public_id.migrating.plan import Lock, Plan, Step, always
from sqlalchemy_public_id.migrating.server_defaults import function_body, function_type


class PostgreSQLPlan(Plan):
    """The steps for PostgreSQL."""

    def expand(self) -> list[Step]:
        return [self._step("add the column", self._missing)]

    def contract(self) -> list[Step]:
        steps = [*self._collate(), self._build_index(), *self._not_null()]
        if self.target.unique == "constraint":
            steps.append(self._make_constraint())
        if self.target.server_default == "drop":
            steps += self._drop_default()
        return steps

    def relax(self) -> list[Step]:
        return [
            self._step("allow NULL", self._loosened),
            *(self._drop_unique() if not self.target.keeps_unique else ()),
            *self._collate(),
            *(self._drop_default() if self.target.server_default == "none" else ()),
        ]

    def drop(self) -> list[Step]:
        return [
            *self._drop_unique(),
            Step("drop the column", self._drop_column, lambda state: state.exists or state.function),
        ]

    def scripts(self, lock_timeout: float) -> dict[str, list[str]]:
        # in Alembic's transaction, which is undone as a whole, also if the column or the function exists already
        drop = [f"{self._alter} DROP COLUMN IF EXISTS {self.column}"]
        if self.generates_ids:
            drop.append(f"DROP FUNCTION IF EXISTS {self.generator}()")
        before, after = f"SET lock_timeout = {math.ceil(lock_timeout * 1000)}", "RESET lock_timeout"
        add = self._missing(State(), "CREATE FUNCTION")
        return {"expand": [before, *add, after], "backfill": [], "drop": [before, *drop, after]}

    # --- parts

    def _drop_column(self, connection: Connection, state: State) -> list[str]:
        drop = f"{self._alter} DROP COLUMN IF EXISTS {self.column}"
        return [drop, *self._drop_functions(state)]

    def _step(self, name: str, statements: Callable[[State], list[str]]) -> Step:
        """Build a step of one short transaction that is needed while there are *statements* for the state."""
        return Step(name, lambda _, state: statements(state), lambda state: bool(statements(state)))

    def _missing(self, state: State, create: str = "CREATE OR REPLACE FUNCTION") -> list[str]:
        """Return what the column lacks for new rows. In one transaction, so that nobody sees it without its default."""
        is_finished = state.complete and self.target.server_default == "drop"
        comment = self.target.comment
        statements = [] if state.exists else [f"{self._alter} ADD COLUMN {self.column} {self.type}"]
        if state.default is None and not is_finished:
            statements += self._default(create)
        if comment is not None and state.comment != comment:
            statements.append(f"COMMENT ON COLUMN {self.table}.{self.column} IS {self.literal(comment)}")
        return statements

    def _loosened(self, state: State) -> list[str]:
        """Return what lets rows come without an id again: the database makes one."""
        default = self._default("CREATE OR REPLACE FUNCTION") if state.default is None else []
        is_done = state.nullable or self.target.keeps_not_null
        return default if is_done else [*default, f"{self._alter} ALTER COLUMN {self.column} DROP NOT NULL"]

    def _default(self, create: str) -> list[str]:
        if not self.generates_ids:
            return []
        format = self.target.format
        body = dollar_quoted(function_body(format, self.dialect.server_version_info), "public_id")
        returns = f"RETURNS {function_type(format)} LANGUAGE sql VOLATILE PARALLEL SAFE"
        return [
            f"{create} {self.generator}() {returns} AS {body}",
            # default privileges may be revoked, and every INSERT calls it
            f"GRANT EXECUTE ON FUNCTION {self.generator}() TO PUBLIC",
            f"COMMENT ON FUNCTION {self.generator}() IS {self.literal(naming.MARK)}",
            f"{self._alter} ALTER COLUMN {self.column} SET DEFAULT {self.generator}()",
        ]

    @property
    def _alter(self) -> str:
        return f"ALTER TABLE {self.table}"

    def _collate(self) -> list[Step]:
        def sql(connection: Connection, state: State) -> list[str]:
            # the type stays: another length would rewrite the table
            collate = f"COLLATE {self.quoted(self.collation or '')}"
            return [f"{self._alter} ALTER COLUMN {self.column} TYPE {state.type} {collate}"]

        return [Step("change the collation", sql, self.changes_collation)] if self.collation is not None else []

    def _make_constraint(self) -> Step:
        add = f"{self._alter} ADD CONSTRAINT {self.unique} UNIQUE USING INDEX {self.unique}"

        def is_needed(state: State) -> bool:
            # one of another name was there before, and is as good
            return state.unique is None or (
                not state.unique.constraint and state.unique.name == self.target.unique_name
            )

        return Step("make the index a constraint", always(add), is_needed)

    def _build_index(self) -> Step:
        concurrently = "CONCURRENTLY " if self.online else ""
        drop = f"DROP INDEX {concurrently}IF EXISTS {self.schema}{self.unique}"
        create = f"CREATE UNIQUE INDEX {concurrently}{self.unique} ON {self.table} ({self.column})"

        def sql(connection: Connection, state: State) -> list[str]:
            return [drop, create] if state.index else [create]  # an interrupted build leaves an invalid index

        lock = Lock.BUILD if self.online else Lock.STRONG
        return Step("build the unique index", sql, lambda state: not state.valid, lock)

    def _not_null(self) -> list[Step]:
        forbid = f"{self._alter} ALTER COLUMN {self.column} SET NOT NULL"
        if not self.online:
            return [Step("forbid NULL", always(forbid), lambda state: state.nullable)]
        drop = f"{self._alter} DROP CONSTRAINT IF EXISTS {self.check}"
        add = f"{self._alter} ADD CONSTRAINT {self.check} CHECK ({self.column} IS NOT NULL) NOT VALID"
        return [
            Step("forbid NULL in new rows", always(add), lambda state: state.nullable and not state.check),
            Step(
                "look for NULL in old rows",
                always(f"{self._alter} VALIDATE CONSTRAINT {self.check}"),
                lambda state: state.nullable and not state.checked,
                Lock.BUILD,
            ),
            # two statements: one that drops the constraint, too, would drop it first, and scan all rows under its lock
            self._step(
                "forbid NULL", lambda state: [forbid] * state.nullable + [drop] * (state.check or state.nullable)
            ),
        ]

    def _drop_unique(self) -> list[Step]:
        concurrently = "CONCURRENTLY " if self.online else ""

        def drop_constraint(connection: Connection, state: State) -> list[str]:
            return [f"{self._alter} DROP CONSTRAINT IF EXISTS {self.unique_of(state)}"]

        def drop_index(connection: Connection, state: State) -> list[str]:
            return [f"DROP INDEX {concurrently}IF EXISTS {self.schema}{self.unique_of(state)}"]

        constraint = Step("drop the unique constraint", drop_constraint, lambda state: state.constraint)
        index = Step(
            "drop the unique index",
            drop_index,
            lambda state: state.index and not state.constraint,
            Lock.BUILD if self.online else Lock.STRONG,
        )
        return [constraint, index]

    def drop_unfinished(self) -> list[Step]:
        def is_unfinished(state: State) -> bool:
            return state.index and not state.valid

        return [replace(self._drop_unique()[-1], needed=is_unfinished)]

    def has_own_default(self, state: State) -> bool:
        return state.called is not None

    def _drop_default(self) -> list[Step]:
        def sql(connection: Connection, state: State) -> list[str]:
            alter = f"{self._alter} ALTER COLUMN {self.column} DROP DEFAULT"
            return [alter, *self._drop_functions(state)]

        return [Step("drop the default", sql, self.has_own_default)]

    def _drop_functions(self, state: State) -> list[str]:
        # with what calls them, in one transaction: afterwards, only the name would lead to one
        functions = {self.generator} if state.function else set[str]()
        if state.called is not None and not state.is_shared:
            functions = {state.called}
        return [f"DROP FUNCTION IF EXISTS {function}()" for function in functions]
