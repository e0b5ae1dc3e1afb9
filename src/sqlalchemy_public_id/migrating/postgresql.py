"""PostgreSQL: no step rewrites the table, and every strong lock is held for milliseconds.

The unique index is built ``CONCURRENTLY``. NOT NULL takes a CHECK constraint: ``NOT VALID`` adds it without a scan,
``VALIDATE`` scans all rows beside readers and writers, and ``SET NOT NULL`` skips its scan then (since PostgreSQL 12).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from sqlalchemy import Connection, Row, text

from sqlalchemy_public_id import naming
from sqlalchemy_public_id.dialects.quoting import dollar_quoted
from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrating.catalog import names_in_queries
from sqlalchemy_public_id.migrating.column_state import State
from sqlalchemy_public_id.migrating.plan import Lock, Plan, Scene, Step, always
from sqlalchemy_public_id.migrating.poolers import changes_session
from sqlalchemy_public_id.migrating.server_defaults import function_body, function_type
from sqlalchemy_public_id.migrating.structure import obstacles_of_structure


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

    def rights(self, scene: Scene) -> list[str]:
        table = scene.plan.table
        needed = [f"the ownership of {table}, or membership in its owner"]
        if {"expand", "contract"} & {*scene.phases}:
            needed.append("CREATE on its schema")
        if scene.fills_rows:
            needed.append(f"SELECT and UPDATE on {table}")
        return needed

    def obstacles(self, scene: Scene) -> Iterator[Obstacle]:
        target = scene.target
        names = names_in_queries(scene.connection, target.table, target.schema, target.column, target.unique_name)
        table = scene.connection.execute(_TABLE, names).one()
        yield from _of_rights(scene, table)
        yield from obstacles_of_structure(scene.connection, target.table, target.schema)
        if table.refuses_updates and scene.fills_rows:
            problem = f"{target.table} is published without a replica identity, so PostgreSQL refuses every UPDATE"
            identity = "DEFAULT" if table.has_key else "FULL"
            yield Obstacle("replica-identity", problem, f"ALTER TABLE {scene.plan.table} REPLICA IDENTITY {identity}")
        if {"expand", "relax"} & {*scene.phases} and scene.plan.generates_ids and table.has_function:
            body = function_body(target.format, scene.connection.dialect.server_version_info)
            if not table.is_ours and (table.body or "").strip() != body.strip():
                problem = f"there is a function {scene.plan.generator}(), which this library has not created"
                yield Obstacle("foreign-function", problem, 'rename or drop it, or pass server_default="none"')
        if "contract" in scene.phases and not scene.state.index and table.is_name_taken:
            problem = f"the name {target.unique_name} belongs to something else than an index of {target.table}"
            yield Obstacle("name-taken", problem, "pass unique_name= with another name")
        yield from _of_poolers(scene)
        if "expand" in scene.phases and not scene.state.exists and table.columns >= _MAX_COLUMNS:
            problem = f"{target.table} has had {table.columns} columns, and PostgreSQL allows no more"
            yield Obstacle("too-many-columns", problem, "copy the rows into a new table: dropped columns count as well")
        collation = scene.plan.collation
        if collation is not None and scene.connection.scalar(_COLLATION, {"collation": collation}) is None:
            yield Obstacle("unknown-collation", f"there is no collation {collation}", "correct its name")
        yield from _of_dependants(scene, names)

    def warnings(self, scene: Scene) -> Iterator[str]:
        added = "expand" in scene.phases and not scene.state.exists
        if not added and not ("drop" in scene.phases and scene.state.exists):
            return
        target, plan = scene.target, scene.plan
        names = names_in_queries(scene.connection, target.table, target.schema, target.column)
        publications = scene.connection.execute(_PUBLICATIONS, names).scalars().all()
        if publications:
            problem = f"{target.table} is published in {', '.join(publications)}"
            if added:
                remedy = f"ALTER TABLE {plan.table} ADD COLUMN {plan.column} {plan.type}"
                yield f"{problem}: subscribers stop until their tables have the column; add it there first: {remedy}"
            else:
                remedy = f"ALTER TABLE {plan.table} ALTER COLUMN {plan.column} DROP NOT NULL"
                yield f"{problem}: subscribers keep the column, and new rows have no ids there; first: {remedy}"

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


# --- what stands in the way

# pubupdate: published updates need a replica identity
_TABLE = text("""
SELECT quote_ident(current_user) AS role, quote_ident(pg_get_userbyid(c.relowner)) AS owner,
       quote_ident(n.nspname) AS schema,
       pg_has_role(c.relowner, 'USAGE') AS is_owner,
       has_schema_privilege(n.oid, 'CREATE') AS can_create,
       has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'UPDATE') AS can_update,
       row_security_active(c.oid) AS filters_rows,
       c.relreplident <> 'f' AND pg_get_replica_identity_index(c.oid) IS NULL AND EXISTS (
           SELECT FROM pg_publication_tables t JOIN pg_publication p ON p.pubname = t.pubname
           WHERE t.schemaname = n.nspname AND t.tablename = c.relname AND p.pubupdate) AS refuses_updates,
       (SELECT max(attnum) FROM pg_attribute WHERE attrelid = c.oid) AS columns,
       EXISTS (SELECT FROM pg_index k WHERE k.indrelid = c.oid AND k.indisprimary) AS has_key,
       p.oid IS NOT NULL AS has_function, obj_description(p.oid, 'pg_proc') = :mark AS is_ours, p.prosrc AS body,
       x.relkind AS name_of, x.oid IS NOT NULL AND i.indexrelid IS NULL AS is_name_taken
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_proc p ON p.proname = :generator AND p.pronamespace = n.oid AND p.pronargs = 0
LEFT JOIN pg_class x ON x.relname = :unique AND x.relnamespace = n.oid
LEFT JOIN pg_index i ON i.indexrelid = x.oid AND i.indrelid = c.oid
WHERE c.oid = to_regclass(:regclass)
""")
# needs: what the dependant keeps from being dropped or changed. DROP COLUMN takes constraints of the table with it.
# ALTER TYPE refuses the dependants that PostgreSQL does not make again (RememberAllDependentForRebuilding() there).
_DEPENDANTS = text("""
WITH ours AS (SELECT attrelid, attnum FROM pg_attribute
              WHERE attrelid = to_regclass(:regclass) AND attname = :column AND NOT attisdropped),
dependants AS (
    SELECT classid, objid, objsubid, 'column' AS needs
    FROM pg_depend d JOIN ours ON refclassid = 'pg_class'::regclass AND refobjid = attrelid AND refobjsubid = attnum
    WHERE deptype = 'n' AND NOT (classid = 'pg_constraint'::regclass AND EXISTS (
        SELECT FROM pg_constraint own WHERE own.oid = objid AND own.conrelid = attrelid AND own.contype <> 'f'))
       OR classid = 'pg_class'::regclass AND EXISTS (SELECT FROM pg_index WHERE indexrelid = objid AND indnatts > 1)
    UNION
    SELECT classid, objid, objsubid, 'type'
    FROM pg_depend d JOIN ours ON refclassid = 'pg_class'::regclass AND refobjid = attrelid AND refobjsubid = attnum
    WHERE CAST(CAST(classid AS regclass) AS text) IN (
            'pg_rewrite', 'pg_policy', 'pg_trigger', 'pg_proc', 'pg_publication_rel')
       OR classid = 'pg_class'::regclass AND objid = attrelid
       OR classid = 'pg_attrdef'::regclass AND NOT EXISTS (
          SELECT FROM pg_attrdef own WHERE own.oid = objid AND own.adrelid = attrelid AND own.adnum = attnum)
    UNION
    SELECT classid, objid, objsubid, 'index'
    FROM ours JOIN pg_index i ON indrelid = attrelid AND indkey[0] = attnum AND indnatts = 1 AND indisunique
    JOIN pg_depend d ON refclassid = 'pg_class'::regclass AND refobjid = indexrelid
    WHERE deptype = 'n')
SELECT DISTINCT CASE WHEN r.rulename = '_RETURN' THEN 'view ' || CAST(r.ev_class AS regclass)
                ELSE pg_describe_object(classid, objid, objsubid) END AS name
FROM dependants LEFT JOIN pg_rewrite r ON classid = 'pg_rewrite'::regclass AND r.oid = objid
WHERE needs = ANY (:needs)
ORDER BY 1
""")
_COLLATION = text("""
SELECT 1 FROM pg_collation WHERE collname = :collation AND pg_collation_is_visible(oid)
AND collencoding IN (-1, pg_char_to_encoding(getdatabaseencoding()))
""")
_MAX_COLUMNS = 1600
"""Those that were dropped count as well."""

# lists of columns came with PostgreSQL 15, and a new column is not in them
_PUBLICATIONS = text("""
SELECT t.pubname FROM pg_publication_tables t
JOIN pg_publication p ON p.pubname = t.pubname
JOIN pg_class c ON c.oid = to_regclass(:regclass)
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
WHERE t.tablename = c.relname AND t.schemaname = CAST(CAST(c.relnamespace AS regnamespace) AS text)
  AND to_jsonb(r) ->> 'prattrs' IS NULL
ORDER BY 1
""")


def _of_dependants(scene: Scene, names: dict[str, object]) -> Iterator[Obstacle]:
    if not scene.state.exists:
        return
    of_type: list[str] = ["type"] if scene.plan.changes_collation(scene.state) else []
    of_index: list[str] = [] if scene.target.keeps_unique else ["index"]
    needs = {"drop": ["column", "index"], "relax": [*of_index, *of_type], "contract": of_type}
    wanted = [need for phase in scene.phases for need in needs.get(phase, [])]
    if not wanted:
        return
    dependants = scene.connection.execute(_DEPENDANTS, {**names, "needs": wanted}).scalars().all()
    if dependants:
        what = "the type of the column, whose collation has to change" if "type" in wanted else "the column"
        what = "the unique index of the column" if wanted == ["index"] else what
        problem = f"{', '.join(dependants)} {'needs' if len(dependants) == 1 else 'need'} {what}"
        yield Obstacle("dependants", problem, "drop or change that first")


def _of_poolers(scene: Scene) -> Iterator[Obstacle]:
    builds = any(step.lock is Lock.BUILD for _, step in scene.steps)
    if scene.plan.online and builds and changes_session(scene.connection):
        problem = (
            "a pooler gives this connection another session after each transaction, and an index that is built or "
            "dropped CONCURRENTLY needs a setting of the session"
        )
        yield Obstacle("pooler", problem, "connect to the server itself, or to a pooler in session mode")


def _of_rights(scene: Scene, table: Row[tuple[object, ...]]) -> Iterator[Obstacle]:
    name = scene.target.table
    if not table.is_owner:
        problem = f"{table.role} does not own {name}, and only its owner, {table.owner}, can change it"
        yield Obstacle("missing-right", problem, f"run the migration as {table.owner}, or as a member of that role")
    if not table.can_create and {"expand", "contract"} & {*scene.phases}:
        problem = f"{table.role} may not create the function and the index in the schema {table.schema}"
        yield Obstacle("missing-right", problem, f"GRANT CREATE ON SCHEMA {table.schema} TO {table.role}")
    if not table.can_update and scene.fills_rows:
        problem = f"{table.role} may not read and update {name}"
        yield Obstacle("missing-right", problem, f"GRANT SELECT, UPDATE ON {scene.plan.table} TO {table.role}")
    if table.filters_rows:
        problem = f"row-level security hides rows of {name} from {table.role}, and they would get no id"
        remedy = "run the migration as a role with BYPASSRLS, or as the owner without FORCE ROW LEVEL SECURITY"
        yield Obstacle("row-level-security", problem, remedy)
