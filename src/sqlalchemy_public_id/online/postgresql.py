"""PostgreSQL: nothing rewrites the table, and every strong lock is held for milliseconds.

The unique index is built ``CONCURRENTLY``. NOT NULL comes by way of a CHECK constraint: added ``NOT VALID`` it looks at
no row, ``VALIDATE`` looks at all of them beside readers and writers, and ``SET NOT NULL`` then believes it (since 12).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlalchemy import Connection

from sqlalchemy_public_id.dialects.quoting import dollar_quoted
from sqlalchemy_public_id.online.making import function_body, function_type
from sqlalchemy_public_id.online.state import State
from sqlalchemy_public_id.online.steps import Lock, Plan, Step, statements

__all__ = ["PostgreSQLPlan"]

_TAG = "public_id"


class PostgreSQLPlan(Plan):
    """The steps for PostgreSQL."""

    @property
    def function(self) -> str:
        """The function that makes ids, with its schema."""
        return f"{self.schema}{self.helper}"

    def expand(self) -> list[Step]:
        add = Step(
            "add the column",
            statements(f"ALTER TABLE {self.table} ADD COLUMN IF NOT EXISTS {self.column} {self.type}"),
            lambda state: not state.exists,
        )
        return [*self._create_function(), add, *self._set_default(), *self._comment()]

    def contract(self) -> list[Step]:
        steps = [self._collate(), self._build_index(), *self._not_null()]
        if self.target.unique == "constraint":
            steps.append(self._make_constraint())
        if self.target.server_default == "drop":
            steps += self._drop_default()
        return steps

    def loosen(self) -> list[Step]:
        return [
            *self._create_function(_has_no_default),
            *self._set_default(_has_no_default),
            self._alter("allow NULL", "DROP NOT NULL", lambda state: not state.nullable),
            *self._drop_unique(),
        ]

    def drop(self) -> list[Step]:
        return [
            *self._drop_unique(),
            Step(
                "drop the column",
                statements(f"ALTER TABLE {self.table} DROP COLUMN IF EXISTS {self.column}"),
                lambda state: state.exists,
            ),
            self._drop_function(),
        ]

    def fill(self) -> list[str]:
        """A loop over the pages of the table that commits after each two hundred, and a sweep for what moved."""
        update = f"UPDATE {self.table} SET {self.column} = {self.function}() WHERE {self.column} IS NULL"
        loop = (
            f"DECLARE\n"
            f"  pages bigint := pg_relation_size({self.literal(self.table)}) / current_setting('block_size')::bigint;\n"
            f"BEGIN\n"
            f"  FOR page IN 0..pages BY 200 LOOP\n"
            f"    {update}\n"
            f"      AND ctid >= format('(%s,0)', page)::tid AND ctid < format('(%s,0)', page + 200)::tid;\n"
            f"    COMMIT;\n"
            f"  END LOOP;\n"
            f"  {update};\n"
            f"END"
        )
        return [f"DO {dollar_quoted(loop, _TAG)}"]

    # --- parts

    def _create_function(self, needed: Callable[[State], bool] | None = None) -> list[Step]:
        if not self.makes_ids:
            return []
        format = self.target.format
        body = function_body(format, self.dialect.server_version_info)
        create = (
            f"CREATE OR REPLACE FUNCTION {self.function}() RETURNS {function_type(format)} LANGUAGE sql VOLATILE "
            f"PARALLEL SAFE AS {dollar_quoted(body, _TAG)}"
        )
        return [
            Step("create the function that makes ids", statements(create), needed or self._wants_default, Lock.NONE)
        ]

    def _set_default(self, needed: Callable[[State], bool] | None = None) -> list[Step]:
        if not self.makes_ids:
            return []
        return [
            self._alter("set the default", f"SET DEFAULT {self.function}()", needed or self._wants_default),
        ]

    def _wants_default(self, state: State) -> bool:
        return state.default is None and not (state.complete and self.target.server_default == "drop")

    def _comment(self) -> list[Step]:
        comment = self.target.comment
        if comment is None:
            return []
        write = f"COMMENT ON COLUMN {self.table}.{self.column} IS {self.literal(comment)}"
        return [Step("write the comment", statements(write), lambda state: state.comment != comment)]

    def _collate(self) -> Step:
        alter = f"ALTER TABLE {self.table} ALTER COLUMN {self.column} TYPE {self.type}"
        return Step(
            "compare byte by byte",
            lambda connection, state: [alter] if connection is not None else [],
            lambda state: not state.collated,
        )

    def _make_constraint(self) -> Step:
        add = f"ALTER TABLE {self.table} ADD CONSTRAINT {self.unique} UNIQUE USING INDEX {self.unique}"
        once = _block(
            f"SELECT FROM pg_constraint WHERE conrelid = to_regclass({self.literal(self.table)}) "
            f"AND conname = {self.literal(self.target.unique_name)}",
            add,
            negated=True,
        )
        return Step(
            "make the index a constraint",
            lambda connection, state: [once] if connection is None else [add],
            lambda state: not state.constraint,
        )

    def _build_index(self) -> Step:
        concurrently = "CONCURRENTLY " if self.online else ""
        drop = f"DROP INDEX {concurrently}IF EXISTS {self.schema}{self.unique}"
        create, on = f"CREATE UNIQUE INDEX {concurrently}", f"{self.unique} ON {self.table} ({self.column})"

        def sql(connection: Connection | None, state: State) -> list[str]:
            if connection is None:
                return [self._drop_if_invalid(), f"{create}IF NOT EXISTS {on}"]
            return [*([drop] if state.index else []), f"{create}{on}"]  # what an attempt leaves that was cut short

        lock = Lock.BUILD if self.online else Lock.STRONG
        return Step("build the unique index", sql, lambda state: not state.valid, lock)

    def _drop_if_invalid(self) -> str:
        """For a script, where nobody looks before the index is built. It waits for its strong lock a second only."""
        index = f"{self.schema}{self.unique}"
        return _block(
            f"SELECT FROM pg_index WHERE indexrelid = to_regclass({self.literal(index)}) AND NOT indisvalid",
            f"PERFORM set_config('lock_timeout', '1s', true);\n    DROP INDEX {index}",
        )

    def _not_null(self) -> list[Step]:
        if not self.online:
            return [self._alter("forbid NULL", "SET NOT NULL", lambda state: state.nullable)]
        alter = f"ALTER TABLE {self.table}"
        drop = f"{alter} DROP CONSTRAINT IF EXISTS {self.check}"
        add = f"{alter} ADD CONSTRAINT {self.check} CHECK ({self.column} IS NOT NULL) NOT VALID"
        return [
            Step(
                "forbid NULL in new rows",
                lambda connection, state: [add] if connection is not None else [drop, add],
                lambda state: state.nullable and not state.check,
            ),
            Step(
                "look for NULL in old rows",
                statements(f"{alter} VALIDATE CONSTRAINT {self.check}"),
                lambda state: state.nullable and not state.checked,
                Lock.BUILD,
            ),
            self._alter("forbid NULL", "SET NOT NULL", lambda state: state.nullable),
            Step("drop the constraint that is not needed any more", statements(drop), lambda state: state.check),
        ]

    def _drop_unique(self) -> list[Step]:
        concurrently = "CONCURRENTLY " if self.online else ""
        constraint = Step(
            "drop the unique constraint",
            statements(f"ALTER TABLE {self.table} DROP CONSTRAINT IF EXISTS {self.unique}"),
            lambda state: state.constraint,
        )
        index = Step(
            "drop the unique index",
            statements(f"DROP INDEX {concurrently}IF EXISTS {self.schema}{self.unique}"),
            lambda state: state.index,
            Lock.BUILD if self.online else Lock.STRONG,
        )
        return [constraint, index] if self.target.unique == "constraint" else [index]

    def _drop_default(self) -> list[Step]:
        name = self.target.helper_name
        written = (name, '"' + name.replace('"', '""') + '"')  # as the server shows it
        call = re.compile(rf"(?<![^\s(.])(?:{'|'.join(map(re.escape, written))})\(\)")

        def is_ours(state: State) -> bool:
            return state.default is not None and call.search(state.default) is not None

        return [self._alter("drop the default", "DROP DEFAULT", is_ours), self._drop_function()]

    def _drop_function(self) -> Step:
        drop = f"DROP FUNCTION IF EXISTS {self.function}()"
        return Step("drop the function that makes ids", statements(drop), lambda state: state.function, Lock.NONE)

    def _alter(self, name: str, action: str, needed: Callable[[State], bool]) -> Step:
        return Step(name, statements(f"ALTER TABLE {self.table} ALTER COLUMN {self.column} {action}"), needed)


def _has_no_default(state: State) -> bool:
    return state.default is None


def _block(query: str, statement: str, *, negated: bool = False) -> str:
    """*statement*, executed if there are rows that *query* finds, or if there are none."""
    condition = f"{'NOT ' if negated else ''}EXISTS ({query})"
    block = f"BEGIN\n  IF {condition} THEN\n    {statement};\n  END IF;\nEND"
    return f"DO {dollar_quoted(block, _TAG)}"
