"""PostgreSQL: no step rewrites the table, and every strong lock is held for milliseconds.

The unique index is built ``CONCURRENTLY``. NOT NULL begins as a CHECK constraint: ``NOT VALID`` adds it
without a scan, ``VALIDATE`` scans all rows while others read and write, and ``SET NOT NULL`` then skips its scan (since
PostgreSQL 12).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Dialect, Row, text

from sqlalchemy_public_id import naming
from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrations.plan import Lock, Migration, Phase, Plan, Step, step_if
from sqlalchemy_public_id.migrations.postgresql.catalogs import THIS, WHOLE
from sqlalchemy_public_id.migrations.postgresql.dependants import obstacles_of_dependants
from sqlalchemy_public_id.migrations.postgresql.partitions import PartitionedIndex, obstacles_of_partitions
from sqlalchemy_public_id.migrations.postgresql.publications import obstacles_of_publications, read_publications
from sqlalchemy_public_id.migrations.postgresql.server_defaults import PostgreSQLDefaults
from sqlalchemy_public_id.migrations.postgresql.session import milliseconds
from sqlalchemy_public_id.migrations.postgresql.stored_code import find_statements, read_stored_code
from sqlalchemy_public_id.migrations.state import State
from sqlalchemy_public_id.migrations.stored_code.programs import StoredCode
from sqlalchemy_public_id.migrations.stored_code.scope import BrokenStatement
from sqlalchemy_public_id.migrations.stored_code.shapes import Change


class PostgreSQLPlan(Plan):
    """The steps for PostgreSQL."""

    indexes_whole_texts = True
    pads_char = True
    work_of_collation = "rebuilds the indexes of"
    works_in_a_shell = True

    @property
    def bytewise(self) -> str:
        return "C"

    @classmethod
    def defaults_of(cls, dialect: Dialect) -> PostgreSQLDefaults:
        return PostgreSQLDefaults(dialect)

    def _problem(self, name: str, kind: str) -> str | None:
        is_cut = len(name.encode()) > 63
        return super()._problem(name, kind) or (
            "has more than 63 bytes, after which PostgreSQL cuts names" if is_cut else None
        )

    def expand(self) -> list[Step]:
        return [
            Step("add the column", lambda state: [] if state.exists else self._missing(state)),
            Step("set the default", lambda state: self._missing(state) if state.exists else []),
        ]

    def contract(self) -> list[Step]:
        steps = [*self._collate(), *self._build_index(), *self._not_null()]
        if self.target.server_default == "drop":
            steps += self._drop_default()
        return steps

    def loosen(self) -> list[Step]:
        return [
            Step("allow NULL", self._loosened),
            *(self._drop_unique() if not self.target.keeps_unique else ()),
            *self._collate(),
            *(self._drop_default() if self.target.server_default == "none" else ()),
        ]

    def drop(self) -> list[Step]:
        return [*self._drop_unique(), self._drop_column]

    def scripts(self, lock_timeout: float) -> dict[Phase, list[str]]:
        # in Alembic's transaction, which is rolled back as a whole, for example if the column exists already
        before, after = f"SET lock_timeout = {milliseconds(lock_timeout)}", "RESET lock_timeout"
        drop = f"{self._alter} DROP COLUMN IF EXISTS {self.column}"
        return {"expand": [before, *self._missing(State()), after], "backfill": [], "drop": [before, drop, after]}

    def rights(self, migration: Migration) -> list[str]:
        table = migration.plan.table
        needed = [f"the ownership of {table}, or membership in its owner"]
        if "contract" in migration.phases:
            needed.append("CREATE on its schema")
        if migration.fills_rows:
            needed.append(f"SELECT and UPDATE on {table}")
        return needed

    def may_read(self, migration: Migration) -> bool:
        return bool(migration.table.connection.scalar(_MAY_READ, migration.table.names))

    def obstacles(self, migration: Migration) -> Iterator[Obstacle]:
        target, connection, names = migration.target, migration.table.connection, migration.table.names
        table = connection.execute(_TABLE, names).one()
        yield from _of_rights(migration, table)
        if not table.can_read:
            return
        yield from obstacles_of_partitions(migration)
        yield from _of_unchecked_rows(migration)
        if migration.fills_rows:
            yield from obstacles_of_publications(migration)
        if "contract" in migration.phases and not migration.state.index and table.is_name_taken:
            problem = f"the name {target.unique_name} belongs to something else than an index of {target.table}"
            yield Obstacle("name-taken", problem, "pass unique_name= with another name")
        adds_check = (
            "contract" in migration.phases and self.online and migration.state.nullable and not migration.state.check
        )
        if adds_check and table.is_check_taken:
            problem = f"a constraint of {target.table} has the name of the migration's temporary CHECK against NULL"
            remedy = f"rename it: ALTER TABLE {self.table} RENAME CONSTRAINT {self._check} TO …"
            yield Obstacle("name-taken", problem, remedy)
        if not migration.is_stable and self.online and any(step.lock is Lock.BUILD for _, step in migration.steps):
            problem = (
                "a pooler gives this connection another session after each transaction, and an index that is built or "
                "dropped CONCURRENTLY needs a setting of the session"
            )
            yield Obstacle("pooler", problem, "connect to the server itself, or to a pooler in session mode")
        if "expand" in migration.phases and not migration.state.exists and table.columns >= _MAX_COLUMNS:
            problem = f"{target.table} has had {table.columns} columns, and PostgreSQL allows no more"
            yield Obstacle("too-many-columns", problem, "copy the rows into a new table: dropped columns count as well")
        collation = self.collation
        if collation is not None and connection.scalar(_COLLATION, {"collation": collation}) is None:
            yield Obstacle("unknown-collation", f"there is no collation {collation}", "correct its name")
        yield from obstacles_of_dependants(migration)

    def read_stored_code(self, migration: Migration, change: Change) -> StoredCode:
        return read_stored_code(migration, change)

    def find_statements(self, migration: Migration, change: Change) -> Sequence[BrokenStatement]:
        return find_statements(migration, change)

    def warnings(self, migration: Migration) -> Iterator[str]:
        added = "expand" in migration.phases and not migration.state.exists
        if not added and not ("drop" in migration.phases and migration.state.exists):
            return
        publications = read_publications(migration)
        if publications:
            problem = f"{migration.target.table} is published in {', '.join(publications)}"
            if added:
                remedy = f"{self._alter} ADD COLUMN {self.column} {self.type}"
                yield f"{problem}: subscribers stop until their tables have the column; add it there first: {remedy}"
            else:
                remedy = f"{self._alter} ALTER COLUMN {self.column} DROP NOT NULL"
                yield f"{problem}: subscribers keep the column, and new rows have no ids there; first: {remedy}"

    # --- parts

    @property
    def _alter(self) -> str:
        return f"ALTER TABLE {self.table}"

    @property
    def _drop_column(self) -> Step:
        drop = f"{self._alter} DROP COLUMN IF EXISTS {self.column}"
        return step_if("drop the column", lambda state: state.exists, drop)

    def _missing(self, state: State) -> list[str]:
        """Return the statements that add the column, default or comment; one ALTER adds the column with its default."""
        is_finished = state.complete and self.target.server_default == "drop"
        changes = [] if state.exists else [f"ADD COLUMN {self.column} {self.type}"]
        changes += [] if is_finished else self._default(state)
        statements = [f"{self._alter} {', '.join(changes)}"] if changes else []
        if self.target.comment is not None and state.comment != self.target.comment:
            comment = self.literal(self.target.comment)
            statements.append(f"COMMENT ON COLUMN {self.table}.{self.column} IS {comment}")
        return statements

    def _loosened(self, state: State) -> list[str]:
        """Return the statement that allows NULL again, and restores the default that generates ids."""
        is_done = state.nullable or self.target.keeps_not_null
        changes = [*self._default(state), *(() if is_done else [f"ALTER COLUMN {self.column} DROP NOT NULL"])]
        return [f"{self._alter} {', '.join(changes)}"] if changes else []

    def _default(self, state: State) -> list[str]:
        if not self.wants_default(state):
            return []
        return [self._set_default(self.target.format)]

    def _set_default(self, format: Format) -> str:
        return f"ALTER COLUMN {self.column} SET DEFAULT {self.defaults.expression(format)}"

    def _collate(self) -> list[Step]:
        def statements(state: State) -> list[str]:
            if not self.changes_collation(state):
                return []
            # the type stays: another length would rewrite the table
            collate = f"COLLATE {self.quoted(self.collation or '')}"
            return [f"{self._alter} ALTER COLUMN {self.column} TYPE {state.type} {collate}"]

        return [Step("change the collation", statements)] if self.collation is not None else []

    @property
    def _concurrently(self) -> str:
        return "CONCURRENTLY " if self.online else ""

    @property
    def _build(self) -> Lock:
        return Lock.BUILD if self.online else Lock.STRONG

    def _build_index(self) -> list[Step]:
        create = f"CREATE UNIQUE INDEX {self._concurrently}{self.unique} ON {self.table} ({self.unique_columns})"

        def statements(state: State) -> list[str]:
            if state.valid or (self.online and state.partitions is not None):
                return []
            # an interrupted build leaves an invalid index
            return [*self._drop_index(state), *self._partitions.drop_unfinished(state), create]

        build = Step("build the unique index", statements, self._build)
        return [build, *(self._partitions.build() if self.online else ())]

    @property
    def _partitions(self) -> PartitionedIndex:
        return PartitionedIndex(self.target, self.dialect, online=self.online)

    def _not_null(self) -> list[Step]:
        forbid = f"{self._alter} ALTER COLUMN {self.column} SET NOT NULL"
        if not self.online:
            return [step_if("forbid NULL", lambda state: state.nullable, forbid)]
        drop = f"{self._alter} DROP CONSTRAINT IF EXISTS {self._check}"
        add = f"{self._alter} ADD CONSTRAINT {self._check} CHECK ({self.column} IS NOT NULL) NOT VALID"

        def validated(state: State) -> list[str]:
            if not state.nullable or state.checked:
                return []
            # one partition after the other, each in a transaction of its own; the table then finds that all are done
            leaves = [part for part in state.partitions or () if part.kind == "r" and not part.checked]
            tables = [*(self._partitions.name_of(part) for part in leaves), self.table]
            return [f"ALTER TABLE {table} VALIDATE CONSTRAINT {self._check}" for table in tables]

        return [
            step_if("forbid NULL in new rows", lambda state: state.nullable and not state.check, add),
            Step("look for NULL in old rows", validated, Lock.BUILD),
            # two statements: a single ALTER would drop the constraint first, and then scan all rows under its lock
            Step("forbid NULL", lambda state: [forbid] * state.nullable + [drop] * (state.check or state.nullable)),
        ]

    @property
    def _check(self) -> str:
        return self.quoted(naming.not_null_check_name(self.target.table, self.target.column))

    def _drop_unique(self) -> list[Step]:
        def drop_constraint(state: State) -> list[str]:
            drop = f"{self._alter} DROP CONSTRAINT IF EXISTS {self.unique_of(state)}"
            return [drop] if state.constraint else []

        return [
            Step("drop the unique constraint", drop_constraint),
            *self._drop_unique_index(),
        ]

    def _drop_unique_index(self) -> list[Step]:
        return [Step("drop the unique index", self._drop_index, self._build), *self._partitions.drop()]

    def _drop_index(self, state: State) -> list[str]:
        # in the schema of the table: by its name alone, the search path may find the index of another table
        schema = f"{state.schema}." if state.schema else self.schema
        drop = f"DROP INDEX {self._concurrently}IF EXISTS {schema}{self.unique_of(state)}"
        return [drop] if state.index and not state.constraint and state.partitions is None else []

    def drop_unfinished(self) -> list[Step]:
        def unless_valid(step: Step) -> Step:
            return Step(step.name, lambda state: [] if state.valid else step.statements(state), step.lock)

        return [*map(unless_valid, self._drop_unique_index())]

    def renew_default(self) -> list[Step]:
        def statements(state: State) -> list[str]:
            # a default of ours calls nothing outside of pg_catalog, unless another role has seen to it
            default, format = state.default, self.target.format
            form = None if default is None else self.defaults.form_of(default, format, outdated=not state.calls)
            return [] if form is None else [f"{self._alter} {self._set_default(form)}"]

        return [Step("replace the default", statements)]

    def _drop_default(self) -> list[Step]:
        drop = f"{self._alter} ALTER COLUMN {self.column} DROP DEFAULT"
        return [step_if("drop the default", self.has_own_default, drop)]


# --- obstacles

_TABLE = text("""
SELECT pg_catalog.quote_ident(current_user) AS role,
       pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(c.relowner)) AS owner,
       pg_catalog.quote_ident(n.nspname) AS schema,
       pg_catalog.pg_has_role(c.relowner, 'USAGE') AS is_owner,
       pg_catalog.has_schema_privilege(n.oid, 'CREATE') AS can_create,
       pg_catalog.has_table_privilege(c.oid, 'SELECT') AS can_read,
       pg_catalog.has_table_privilege(c.oid, 'UPDATE') AS can_update,
       (SELECT pg_catalog.max(attnum) FROM pg_catalog.pg_attribute WHERE attrelid = c.oid) AS columns,
       x.oid IS NOT NULL AND i.indexrelid IS NULL AS is_name_taken,
       EXISTS (SELECT FROM pg_catalog.pg_constraint o
               WHERE o.conrelid = c.oid AND o.conname = CAST(:check AS text)) AS is_check_taken
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_class x ON x.relname = CAST(:unique AS text) AND x.relnamespace = n.oid
LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = x.oid AND i.indrelid = c.oid
WHERE c.oid = CAST(pg_catalog.to_regclass(:regclass) AS oid)
""")
_MAY_READ = text("""
SELECT pg_catalog.has_table_privilege(CAST(pg_catalog.to_regclass(:regclass) AS oid), 'SELECT')
""")
# a partition has those of its table, too, and they are validated with them
_NOT_VALID = text(f"""
SELECT pg_catalog.quote_ident(k.conname) AS name, c.oid <> {THIS} AS is_partition,
       pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) AS partition
FROM pg_catalog.pg_constraint k
JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE k.conrelid = {WHOLE} AND (k.conrelid = {THIS} OR CAST(k.coninhcount AS int) = 0)
  AND k.contype IN ('c', 'n') AND NOT k.convalidated AND k.conname <> CAST(:check AS text)
ORDER BY 1, 3
""")
_COLLATION = text("""
SELECT 1 FROM pg_catalog.pg_collation
WHERE collname = CAST(:collation AS text) AND pg_catalog.pg_collation_is_visible(oid)
AND collencoding IN (-1, pg_catalog.pg_char_to_encoding(pg_catalog.getdatabaseencoding()))
""")
_MAX_COLUMNS = 1600
"""Dropped columns count as well."""


def _of_unchecked_rows(migration: Migration) -> Iterator[Obstacle]:
    checks = migration.table.read(_NOT_VALID) if migration.fills_rows else ()
    if checks:
        problem = f"rows that violate {', '.join(check.name for check in checks)}, which is NOT VALID, could get no id"
        tables = [check.partition if check.is_partition else migration.plan.table for check in checks]
        validate = "; ".join(
            f"ALTER TABLE {table} VALIDATE CONSTRAINT {check.name}" for table, check in zip(tables, checks, strict=True)
        )
        yield Obstacle("not-valid", problem, f"correct the rows, then {validate}")


def _of_rights(migration: Migration, table: Row[Any]) -> Iterator[Obstacle]:
    name = migration.target.table
    if not table.is_owner:
        problem = f"{table.role} does not own {name}, and only its owner, {table.owner}, can change it"
        yield Obstacle("missing-right", problem, f"run the migration as {table.owner}, or as a member of that role")
    if not table.can_create and "contract" in migration.phases:
        problem = f"{table.role} may not create an index in the schema {table.schema}"
        yield Obstacle("missing-right", problem, f"GRANT CREATE ON SCHEMA {table.schema} TO {table.role}")
    if not table.can_read or (not table.can_update and migration.fills_rows):
        problem = f"{table.role} may not read and update {name}"
        yield Obstacle("missing-right", problem, f"GRANT SELECT, UPDATE ON {migration.plan.table} TO {table.role}")
    hidden = migration.table.obstacle_of_hidden_rows()
    if hidden is not None:
        yield hidden
