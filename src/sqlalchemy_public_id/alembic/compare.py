"""Autogenerate: find models that have gained a public id, and columns of public ids that are incomplete.

Alembic compares first. Its operations on a column of public ids are then replaced by one that needs no long lock, or
removed: a column that is already unique, by an index or constraint of any name, is adopted as it is. The catalogs are
read for what Alembic does not compare: an INVALID index, a collation that ignores case, a missing server default.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from alembic.operations.ops import (
    AddColumnOp,
    AlterColumnOp,
    CreateIndexOp,
    CreateUniqueConstraintOp,
    DropColumnOp,
    DropConstraintOp,
    DropIndexOp,
    MigrateOperation,
    ModifyTableOps,
    UpgradeOps,
)
from sqlalchemy import Column, FetchedValue, Identity, Integer, Table, UniqueConstraint

from sqlalchemy_public_id.alembic.clusters.autogenerate import ignore_cluster_default, replace_cluster_ops
from sqlalchemy_public_id.alembic.ops import (
    AddPublicIdOp,
    ContractPublicIdOp,
    ExpandPublicIdOp,
    LoosenPublicIdOp,
    PublicIdOp,
)
from sqlalchemy_public_id.alembic.render import render_types
from sqlalchemy_public_id.alembic.revisions import separate_revisions
from sqlalchemy_public_id.alembic.stored_columns import (
    RefusedColumn,
    StoredDefault,
    change_type,
    drop_instead,
    former_default,
    keep_type,
    match_new_references,
    warn_of_new_ids,
)
from sqlalchemy_public_id.columns import is_public_id, public_id_columns
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.dialects.mysql import MySQL
from sqlalchemy_public_id.errors import MigrationRefused, Obstacle
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.key_types import BigIntegerKey
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import live_table
from sqlalchemy_public_id.migrations.from_models import has_own_default, read_declared
from sqlalchemy_public_id.migrations.state import State
from sqlalchemy_public_id.orm.inspection import BIGINT_KEY
from sqlalchemy_public_id.stored_ids import require_text_index

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext

PLUGIN = "alembic.autogenerate.sqlalchemy_public_id"
"""Matches ``alembic.autogenerate.*``, the plugins that Alembic uses by default. To switch this one off:
``context.configure(autogenerate_plugins=["alembic.autogenerate.*", "~alembic.autogenerate.sqlalchemy_public_id"])``."""

log: logging.Logger = logging.getLogger(PLUGIN)

Comparator: TypeAlias = Callable[..., object]
"""Returns True if there is nothing more to compare."""


@cache
def register_comparators() -> None:
    """Register the comparators: as a plugin that is on by default, or directly in Alembic before 1.18."""
    comparators: list[tuple[Comparator, str, str, str]] = [
        (render_types, "schema", "public_id", "FIRST"),
        (separate_revisions, "schema", "public_id_revisions", "FIRST"),
        (replace_cluster_ops, "schema", "cluster_key", "LAST"),
        (replace_drops, "schema", "public_id_left", "LAST"),
        (refuse_impossible_ops, "schema", "public_id_structure", "LAST"),
        (match_new_references, "schema", "public_id_references", "LAST"),
        (keep_type, "column", "types", "MEDIUM"),
        (ignore_server_default, "column", "server_default", "FIRST"),
        (replace_ops, "table", "public_id", "LAST"),
    ]
    try:
        from alembic.runtime.plugins import Plugin
    except ImportError:
        from alembic.autogenerate.compare import comparators as registry

        for comparator, kind, _, _ in comparators:
            registry.dispatch_for(kind)(comparator)
        return
    from alembic.util import DispatchPriority, PriorityDispatchResult

    def dispatched(comparator: Comparator) -> Callable[..., PriorityDispatchResult]:
        results = PriorityDispatchResult.CONTINUE, PriorityDispatchResult.STOP
        return lambda *arguments: results[bool(comparator(*arguments))]

    plugin = Plugin(PLUGIN)
    for comparator, kind, name, priority in comparators:
        plugin.add_autogenerate_comparator(dispatched(comparator), kind, name, priority=DispatchPriority[priority])


def ignore_server_default(context: AutogenContext, op: AlterColumnOp, *names_and_columns: Any) -> bool:
    """Ignore a server default that generates ids for old applications, or cluster keys."""
    _schema, _table, _name, existing, column = names_and_columns
    if not is_public_id(column) or has_own_default(column):
        return ignore_cluster_default(context, op, existing, column)
    op.existing_server_default = existing.server_default
    op.modify_server_default = False
    return True


def replace_ops(
    context: AutogenContext,
    changes: ModifyTableOps,
    schema: str | None,
    table_name: str,
    existing: Table | None,
    table: Table | None,
) -> None:
    """Replace Alembic's operations that add a column of public ids, or make it unique, with one of this library."""
    if table is None:
        return
    notes = [] if existing is None else _reduce(context, changes, existing, table)
    for column in public_id_columns(table):
        if existing is not None and column.name in existing.columns:
            warn_of_new_ids(context, column, existing.columns[column.name], schema)
        target = read_declared(column, context.dialect)
        if target is None:
            continue
        target = replace(target, schema=schema)
        needless = [op for op in changes.ops if _makes_unique(op, target)]
        added = [op for op in changes.ops if isinstance(op, AddColumnOp) and op.column.name == column.name]
        require_text_index(f"the column {target}", target.sql_type, target.format.max_length, context.dialect)
        if not added:
            target = replace(target, sql_type=None)  # the column keeps its type
        if existing is None:
            if _wants_default(column):  # CREATE TABLE cannot contain it; nobody else uses the table yet
                expand = ExpandPublicIdOp(**vars(target), online=False)
                # nothing: the downgrade drops the table, and before it the index, which would go with the column
                expand.undone_by = ModifyTableOps(target.table, [], schema=schema)
                changes.ops.append(expand)
        elif added:
            if not column.nullable and not has_own_default(column):
                op = AddPublicIdOp(**vars(target))
                op.notes, op.misfit = notes, _misfit(_read_state(context, target), existing, column)
                _put(changes, op, [*added, *needless])
        elif not column.nullable and column.name in existing.columns:
            if not context.run_object_filters(column, column.name, "column", False, existing.columns[column.name]):
                continue
            state = _read_state(context, target)
            if state.valid and needless:  # the column keeps its unique index or constraint
                names = _names_of_uniques(existing, target)
                needless += [op for op in changes.ops if _name_of(op) in names]
            finishing = _finish(context, target, state, column)
            if finishing is not None and not state.valid:
                finishing.notes = [*finishing.notes, *_notes_of_others(changes, existing, target)]
            _put(changes, finishing, needless)


def _misfit(state: State, existing: Table, column: Column[Any]) -> Obstacle | None:
    """Return why *column* cannot be added, such as a column whose name differs only in case."""
    others = [each.name for each in existing.columns if each.name.lower() == column.name.lower()]
    if state.exists and others:
        problem = f"{existing.name} has the column {others[0]}, which the database does not tell from {column.name}"
        return Obstacle("name-taken", problem, f"name it {others[0]!r} in the model, or rename it")
    return state.misfit


def replace_drops(context: AutogenContext, upgrade: UpgradeOps, schemas: object) -> None:
    """Replace Alembic's operations that drop a column of public ids, which it adds after it has compared a table."""
    for changes in [op for op in upgrade.ops if isinstance(op, ModifyTableOps)]:
        for dropped in [op for op in changes.ops if isinstance(op, DropColumnOp)]:
            op, indexes = drop_instead(context, dropped)
            if op is not None:
                _put(changes, op, [dropped, *(each for each in changes.ops if _name_of(each) in indexes)])


def refuse_impossible_ops(context: AutogenContext, upgrade: UpgradeOps, schemas: object) -> None:
    """Raise one error for all operations on tables that cannot have the column or its unique index.

    :raises MigrationRefused: if there is one. No revision is written.
    """
    changes = [op for changes in upgrade.ops if isinstance(changes, ModifyTableOps) for op in changes.ops]
    of_ours = [op for op in changes if isinstance(op, (PublicIdOp, RefusedColumn))]
    refused = {str(op.target): op.misfit for op in of_ours if op.misfit is not None}
    if refused:
        raise MigrationRefused(target=", ".join(refused), obstacles=[*refused.values()])


def _read_state(context: AutogenContext, target: PublicIdColumn) -> State:
    assert context.connection is not None
    return live_table(context.connection, target).read_state()


def _reduce(context: AutogenContext, changes: ModifyTableOps, existing: Table, table: Table) -> list[str]:
    """Remove from Alembic's column changes what the database does not need, or what this library's operations do.

    Return notes about it for the revision.
    """
    columns = {column.name: column for column in table.columns}
    notes: list[str] = []
    for op in [op for op in changes.ops if isinstance(op, AlterColumnOp)]:
        old, column = existing.columns[op.column_name], columns[op.column_name]
        if isinstance(column.type, BigIntegerKey) and column.type.unsigned:
            notes += _keep_key(context, op, old, column)
        refused = change_type(context, op, old, column)
        if refused is not None:
            changes.ops.append(refused)
        _keep_ids(context, op, column)
        if not op.has_changes():
            changes.ops.remove(op)
    return notes


def _keep_key(context: AutogenContext, op: AlterColumnOp, existing: Column[Any], column: Column[Any]) -> list[str]:
    """Keep the type of an integer key that the model declares as ``bigint_key()``, and of foreign keys to it."""
    is_identity = BIGINT_KEY in column.info and isinstance(column.server_default, Identity)
    if is_identity and not context.dialect.supports_identity_columns and existing.server_default is None:
        op.modify_server_default = False  # the key is generated anyway
    if op.modify_type is None or not isinstance(existing.type, Integer):
        return []
    op.modify_type = None
    note = (
        f"{column.table.fullname}.{column.name} keeps its type {existing.type}, but the model declares the BIGINT of "
        f"PublicIdMixin. The change would rewrite the table while readers and writers wait, and MySQL and MariaDB "
        f"refuse it for keys that other tables refer to. Use PublicIdColumnMixin, and declare the key that the table "
        f"has; or write the change into a revision of your own."
    )
    log.warning("%s", note)
    return [note]


def _keep_ids(context: AutogenContext, op: AlterColumnOp, column: Column[Any]) -> None:
    """Remove from the changes of a column of public ids what the operations of this library do."""
    target = read_declared(column, context.dialect) if is_public_id(column) else None
    if target is None:
        return
    if not column.nullable:
        op.modify_nullable = None
    # on MySQL, SQLAlchemy does not reflect a comment after a default with parentheses
    if op.modify_comment is not False and op.modify_comment == _read_state(context, target).comment:
        op.modify_comment = False
    # only if a change is left: reading the state takes several statements
    if isinstance(traits_for(context.dialect), MySQL) and op.modify_server_default is False and op.has_changes():
        _repeat_default(op, _read_state(context, target))


def _repeat_default(op: AlterColumnOp, state: State) -> None:
    """Repeat default and invisibility in Alembic's change of a column, because a MODIFY drops what it leaves out.

    SQLAlchemy cuts a default in parentheses on MySQL, reflects none on MariaDB, and knows no invisible columns; Alembic
    doubles each ``%`` of a text.
    """
    default, hidden = state.default, " INVISIBLE" if state.is_invisible else ""
    if default is not None:
        op.existing_server_default = StoredDefault((default if default.startswith("'") else f"({default})") + hidden)
    elif hidden and state.nullable:
        op.existing_server_default = StoredDefault(f"NULL{hidden}")


def _put(changes: ModifyTableOps, op: MigrateOperation | None, needless: Sequence[MigrateOperation]) -> None:
    """Replace the *needless* operations with *op*, if there is one."""
    index = min((changes.ops.index(each) for each in needless), default=len(changes.ops))
    rest = [each for each in changes.ops[index:] if each not in needless]
    changes.ops[index:] = rest if op is None else [op, *rest]


def _finish(context: AutogenContext, target: PublicIdColumn, state: State, column: Column[Any]) -> PublicIdOp | None:
    """Return the operation that completes a column, if something is missing. Its downgrade restores the *state*."""
    without_default = _wants_default(column) and state.default is None
    former = former_default(context, target, state) if not has_own_default(column) else None
    if state.complete and not without_default and former is None:
        return None
    log.info("Detected unfinished public ids '%s': %s", target, ", ".join(_missing(state, without_default, former)))
    options = dict(vars(target))
    if state.valid:
        del options["unique_name"]
    before = options.copy()
    if not state.exact and state.collation is not None:
        options["collation"] = "bytes"
        before["collation"] = state.collation
    if state.valid or not state.nullable:
        before["keeps"] = "not null" if not state.valid else "unique" if state.nullable else "all"
    # the downgrade drops the default only if the upgrade sets it
    before["server_default"] = "none" if state.default is None else "keep"
    if former is not None:
        options["server_default"] = before["server_default"] = "replace"
        before["format"] = former
    kind: type[PublicIdOp] = ContractPublicIdOp  # each row has an id
    if state.complete and former is not None:
        kind = ExpandPublicIdOp
    elif state.nullable or without_default or former is not None:
        kind = AddPublicIdOp
    op: PublicIdOp = kind(**options)
    op.undone_by, op.misfit = LoosenPublicIdOp(**before), state.misfit
    if former is not None:
        kept = target.format.accepting(former)
        op.notes = [f"The default generates ids of {former!r}. To find the rows that have such ids, declare {kept!r}."]
    return op


def _notes_of_others(changes: ModifyTableOps, existing: Table, target: PublicIdColumn) -> Iterator[str]:
    """Yield a note if *changes* drop an index of the ids with other columns than those of *target*."""
    uniques: list[Any] = [*existing.indexes, *existing.constraints]
    of_ids = {str(each.name) for each in uniques if target.column in [part.name for part in each.columns]}
    for op in changes.ops:
        if isinstance(op, (DropIndexOp, DropConstraintOp)) and _name_of(op) in of_ids:
            columns = ", ".join(target.unique_columns)
            yield (
                f"The ids become unique by {columns}, and Alembic drops {_name_of(op)} before: until the new one is "
                f"built, nothing keeps duplicates out. The operation refuses those that it finds."
            )


def _missing(state: State, without_default: bool, former: Format | None) -> list[str]:
    missing = {
        "it may be NULL": state.nullable,
        "it is not unique": not state.index,
        "its unique index is not valid": state.index and not state.valid,
        "its collation finds an id by other spellings": not state.exact,
        "it has no default": without_default,
        f"its default generates ids of {former!r}": former is not None,
    }
    return [words for words, is_missing in missing.items() if is_missing]


def _makes_unique(op: MigrateOperation, target: PublicIdColumn) -> bool:
    if not isinstance(op, CreateUniqueConstraintOp) and not (isinstance(op, CreateIndexOp) and op.unique):
        return False
    return sorted(str(getattr(part, "name", part)) for part in op.columns) == sorted(target.unique_columns)


def _names_of_uniques(table: Table, target: PublicIdColumn) -> set[str]:
    """Return the names of the indexes and constraints that make the ids unique in the reflected *table*."""
    # with Alembic 1.13, the operation that drops an index does not say that it was unique
    uniques: list[Any] = [index for index in table.indexes if index.unique]
    uniques += [constraint for constraint in table.constraints if isinstance(constraint, UniqueConstraint)]
    columns = sorted(target.unique_columns)
    return {str(each.name) for each in uniques if sorted(part.name for part in each.columns) == columns}


def _name_of(op: MigrateOperation) -> str:
    """Return the name of the index or constraint that *op* is about."""
    return str(getattr(op, "index_name", None) or getattr(op, "constraint_name", ""))


def _wants_default(column: Column[Any]) -> bool:
    """Return True for ``server_default=FetchedValue()``: the database has a default, and the operation chooses it."""
    return isinstance(column.server_default, FetchedValue) and not has_own_default(column)
