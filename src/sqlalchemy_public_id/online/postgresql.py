"""PostgreSQL: no step rewrites the table, and every strong lock is held for milliseconds.

The unique index is built ``CONCURRENTLY``. NOT NULL takes a CHECK constraint: ``NOT VALID`` adds it without a scan,
``VALIDATE`` scans all rows beside readers and writers, and ``SET NOT NULL`` skips its scan then (since PostgreSQL 12).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sqlalchemy import Connection

from sqlalchemy_public_id import naming
from sqlalchemy_public_id.dialects.quoting import dollar_quoted
from sqlalchemy_public_id.migrating.column_state import State
from sqlalchemy_public_id.online.plan import Lock, Plan, Step, always
from sqlalchemy_public_id.online.server_defaults import function_body, function_type


class PostgreSQLPlan(Plan):
    """The steps for PostgreSQL."""

    def expand(self) -> list[Step]:
        add = Step(
            "add the column",
            always(f"ALTER TABLE {self.table} ADD COLUMN IF NOT EXISTS {self.column} {self.type}"),
            lambda state: not state.exists,
        )
        return [*self._create_function(), add, *self._set_default(), *self._comment()]

    def contract(self) -> list[Step]:
        steps = [*self._collate(), self._build_index(), *self._not_null()]
        if self.target.unique == "constraint":
            steps.append(self._make_constraint())
        if self.target.server_default == "drop":
            steps += self._drop_default()
        return steps

    def relax(self) -> list[Step]:
        target = self.target
        allow = self._alter("allow NULL", "DROP NOT NULL", lambda state: not state.nullable)
        return [
            *self._create_function(_has_no_default),
            *self._set_default(_has_no_default),
            *([allow] if not target.keeps_not_null else ()),
            *(self._drop_unique() if not target.keeps_unique else ()),
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
        add = [f"ALTER TABLE {self.table} ADD COLUMN {self.column} {self.type}"]
        drop = [f"ALTER TABLE {self.table} DROP COLUMN IF EXISTS {self.column}"]
        if self.generates_ids:
            add = [*self._function_ddl("CREATE FUNCTION"), *add, self._default_ddl]
            drop.append(f"DROP FUNCTION IF EXISTS {self.generator}()")
        if self.target.comment is not None:
            add.append(self._comment_ddl)
        before, after = f"SET lock_timeout = {math.ceil(lock_timeout * 1000)}", "RESET lock_timeout"
        return {"expand": [before, *add, after], "backfill": [], "drop": [before, *drop, after]}

    # --- parts

    def _drop_column(self, connection: Connection, state: State) -> list[str]:
        drop = f"ALTER TABLE {self.table} DROP COLUMN IF EXISTS {self.column}"
        return [drop, *self._drop_functions(state)]

    def _create_function(self, needed: Callable[[State], bool] | None = None) -> list[Step]:
        if not self.generates_ids:
            return []
        sql = always(*self._function_ddl("CREATE OR REPLACE FUNCTION"))
        return [Step("create the function that makes ids", sql, needed or self._wants_default, Lock.NONE)]

    def _function_ddl(self, create: str) -> list[str]:
        format = self.target.format
        body = dollar_quoted(function_body(format, self.dialect.server_version_info), "public_id")
        returns = f"RETURNS {function_type(format)} LANGUAGE sql VOLATILE PARALLEL SAFE"
        return [
            f"{create} {self.generator}() {returns} AS {body}",
            # default privileges may be revoked, and every INSERT calls it
            f"GRANT EXECUTE ON FUNCTION {self.generator}() TO PUBLIC",
            f"COMMENT ON FUNCTION {self.generator}() IS {self.literal(naming.MARK)}",
        ]

    def _set_default(self, needed: Callable[[State], bool] | None = None) -> list[Step]:
        if not self.generates_ids:
            return []
        return [Step("set the default", always(self._default_ddl), needed or self._wants_default)]

    @property
    def _default_ddl(self) -> str:
        return f"ALTER TABLE {self.table} ALTER COLUMN {self.column} SET DEFAULT {self.generator}()"

    def _wants_default(self, state: State) -> bool:
        return state.default is None and not (state.complete and self.target.server_default == "drop")

    def _comment(self) -> list[Step]:
        comment = self.target.comment
        if comment is None:
            return []
        return [Step("write the comment", always(self._comment_ddl), lambda state: state.comment != comment)]

    @property
    def _comment_ddl(self) -> str:
        return f"COMMENT ON COLUMN {self.table}.{self.column} IS {self.literal(self.target.comment or '')}"

    def _collate(self) -> list[Step]:
        def sql(connection: Connection, state: State) -> list[str]:
            # the type stays: another length would rewrite the table
            collate = f"COLLATE {self.quoted(self.collation or '')}"
            return [f"ALTER TABLE {self.table} ALTER COLUMN {self.column} TYPE {state.type} {collate}"]

        return [Step("change the collation", sql, self.changes_collation)] if self.collation is not None else []

    def _make_constraint(self) -> Step:
        add = f"ALTER TABLE {self.table} ADD CONSTRAINT {self.unique} UNIQUE USING INDEX {self.unique}"

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
        if not self.online:
            return [self._alter("forbid NULL", "SET NOT NULL", lambda state: state.nullable)]
        alter = f"ALTER TABLE {self.table}"
        drop = f"{alter} DROP CONSTRAINT IF EXISTS {self.check}"
        add = f"{alter} ADD CONSTRAINT {self.check} CHECK ({self.column} IS NOT NULL) NOT VALID"
        return [
            Step("forbid NULL in new rows", always(add), lambda state: state.nullable and not state.check),
            Step(
                "look for NULL in old rows",
                always(f"{alter} VALIDATE CONSTRAINT {self.check}"),
                lambda state: state.nullable and not state.checked,
                Lock.BUILD,
            ),
            self._alter("forbid NULL", "SET NOT NULL", lambda state: state.nullable),
            Step("drop the constraint that is not needed any more", always(drop), lambda state: state.check),
        ]

    def _drop_unique(self) -> list[Step]:
        concurrently = "CONCURRENTLY " if self.online else ""

        def drop_constraint(connection: Connection, state: State) -> list[str]:
            return [f"ALTER TABLE {self.table} DROP CONSTRAINT IF EXISTS {self.unique_of(state)}"]

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

    def has_own_default(self, state: State) -> bool:
        return state.called is not None

    def _drop_default(self) -> list[Step]:
        def sql(connection: Connection, state: State) -> list[str]:
            alter = f"ALTER TABLE {self.table} ALTER COLUMN {self.column} DROP DEFAULT"
            return [alter, *self._drop_functions(state)]

        return [Step("drop the default", sql, self.has_own_default)]

    def _drop_functions(self, state: State) -> list[str]:
        # with what calls them, in one transaction: afterwards, only the name would lead to one
        functions = {self.generator} if state.function else set[str]()
        if state.called is not None and not state.is_shared:
            functions = {state.called}
        return [f"DROP FUNCTION IF EXISTS {function}()" for function in functions]

    def _alter(self, name: str, action: str, needed: Callable[[State], bool]) -> Step:
        return Step(name, always(f"ALTER TABLE {self.table} ALTER COLUMN {self.column} {action}"), needed)


def _has_no_default(state: State) -> bool:
    return state.default is None
