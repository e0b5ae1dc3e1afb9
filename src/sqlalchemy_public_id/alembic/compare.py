"""What autogenerate finds: a model that has gained a public id, and columns of public ids that are not finished.

Alembic compares first; what it found of a column of public ids becomes one operation, which knows how to get there
without a long lock. Some things that Alembic does not see are looked up in the catalogs: an index that is INVALID, a
collation that takes ``aB`` for ``Ab``, a default of the database that is missing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from alembic.operations.ops import (
    AddColumnOp,
    AlterColumnOp,
    CreateIndexOp,
    CreateUniqueConstraintOp,
    MigrateOperation,
    ModifyTableOps,
)
from sqlalchemy import VARCHAR, Column, DefaultClause, FetchedValue, Identity, Table, UniqueConstraint

from sqlalchemy_public_id.alembic.ops import (
    AddPublicIdOp,
    ContractPublicIdOp,
    ExpandPublicIdOp,
    LoosenPublicIdOp,
    Options,
)
from sqlalchemy_public_id.dialects.catalog import State
from sqlalchemy_public_id.formats import NanoId
from sqlalchemy_public_id.online.server_defaults import can_generate
from sqlalchemy_public_id.orm.inspection import BIGINT_KEY
from sqlalchemy_public_id.types import is_public_id, public_id_columns, public_id_type

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext

__all__ = ["FinishPublicIdOp", "fold", "keeps_default", "knows_no_identity"]

log = logging.getLogger("alembic.autogenerate.sqlalchemy_public_id")


class FinishPublicIdOp(AddPublicIdOp):
    """What ``op.add_public_id()`` does to a column that is there already. When it is undone, the ids stay."""

    def reverse(self) -> MigrateOperation:
        return LoosenPublicIdOp(self.table_name, self.column_name, **self.options)


def fold(
    context: AutogenContext,
    found: ModifyTableOps,
    schema: str | None,
    table_name: str,
    in_database: Table | None,
    in_model: Table | None,
) -> bool:
    """Put one operation in the place of what was *found* of each column of public ids in a table."""
    for column in public_id_columns(in_model) if in_model is not None else ():
        options = _options(column, schema, context.dialect.name)
        if options is None:
            continue  # the model does not say that its ids are unique
        added = [op for op in found.ops if isinstance(op, AddColumnOp) and op.column.name == column.name]
        if in_database is None:
            if _wants_default(column):  # CREATE TABLE can make none
                found.ops.append(ExpandPublicIdOp(table_name, column.name, **options))
        elif added:
            if not column.nullable and not _has_own_default(column):
                _replace(found, column, [*added], AddPublicIdOp(table_name, column.name, **options))
        elif column.name in in_database.columns:
            _finish(context, found, column, in_database.columns[column.name], options)
    return False


def keeps_default(
    context: AutogenContext,
    op: AlterColumnOp,
    schema: str | None,
    table_name: str,
    column_name: str,
    in_database: Column[Any],
    in_model: Column[Any],
) -> bool:
    """Whether the default of a column is the database's way to make ids for old programs, and no difference."""
    if in_database.server_default is None or not is_public_id(in_model) or _has_own_default(in_model):
        return False
    op.existing_server_default = in_database.server_default
    op.modify_server_default = False
    return True


def knows_no_identity(
    context: AutogenContext,
    op: AlterColumnOp,
    schema: str | None,
    table_name: str,
    column_name: str,
    in_database: Column[Any],
    in_model: Column[Any],
) -> bool:
    """Take back that a ``bigint_key()`` is no IDENTITY, if the database has none: it counts up all the same."""
    identity = BIGINT_KEY in in_model.info and isinstance(in_model.server_default, Identity)
    has_identities = getattr(context.dialect, "supports_identity_columns", True)
    if identity and not has_identities and in_database.server_default is None:
        op.modify_server_default = False
    return False


def _finish(
    context: AutogenContext, found: ModifyTableOps, column: Column[Any], stored: Column[Any], options: Options
) -> None:
    """Replace what was *found* of a column that is there, but not as it has to be."""
    if not context.run_object_filters(column, column.name, "column", False, stored):
        return
    op = FinishPublicIdOp(found.table_name, column.name, **options)
    assert context.connection is not None
    state = op.target.read_state(context.connection)
    for alter in [each for each in found.ops if isinstance(each, AlterColumnOp) and each.column_name == column.name]:
        _take_from(alter, column, stored, state)
        if not alter.has_changes():
            found.ops.remove(alter)
    without_default = _wants_default(column) and state.default is None and not state.trigger
    if (column.nullable or state.complete) and not without_default:
        return
    log.info("Detected unfinished public ids '%s': %s", op.target, ", ".join(_lacks(state, without_default)))
    if state.nullable or without_default:
        _replace(found, column, [], op)
    else:  # each row has an id
        _replace(found, column, [], ContractPublicIdOp(found.table_name, column.name, **options))


def _take_from(alter: AlterColumnOp, column: Column[Any], stored: Column[Any], state: State) -> None:
    """Leave in *alter* only what no operation of ours does."""
    if not column.nullable:
        alter.modify_nullable = None
    if not _has_own_default(column):
        alter.modify_server_default = False
    if alter.modify_comment == state.comment:  # behind a default with parentheses, SQLAlchemy does not see it on MySQL
        alter.modify_comment = False
    same_length = getattr(stored.type, "length", None) == public_id_type(column).id_format.max_length
    if not state.collated and isinstance(stored.type, VARCHAR) and same_length:
        alter.modify_type = None


def _replace(found: ModifyTableOps, column: Column[Any], ops: list[MigrateOperation], by: MigrateOperation) -> None:
    """Put *by* into the place of *ops*, and of what makes *column* unique."""
    uniques = [op for op in found.ops if _makes_unique(op, column)]
    replaced = [*ops, *uniques]
    at = min((found.ops.index(op) for op in replaced), default=len(found.ops))
    found.ops[at:] = [by, *(op for op in found.ops[at:] if op not in replaced)]


def _makes_unique(op: MigrateOperation, column: Column[Any]) -> bool:
    if not isinstance(op, CreateUniqueConstraintOp) and not (isinstance(op, CreateIndexOp) and op.unique):
        return False
    return [getattr(each, "name", each) for each in op.columns] == [column.name]


def _options(column: Column[Any], schema: str | None, dialect: str) -> Options | None:
    """What the model says of *column*, for an operation; ``None`` where it is not unique."""
    options = Options(schema=schema)
    format = public_id_type(column).id_format
    if format != NanoId():
        options["format"] = format
    if _has_own_default(column) or not can_generate(format, dialect):
        options["server_default"] = "none"
    if column.comment is not None:
        options["comment"] = column.comment
    for index in column.table.indexes:
        if index.unique and not index.dialect_kwargs and list(index.columns) == [column]:
            options["unique_name"] = _name(index.name)
            return options
    for constraint in column.table.constraints:
        if isinstance(constraint, UniqueConstraint) and list(constraint.columns) == [column]:
            options["unique"] = "constraint"
            options["unique_name"] = _name(constraint.name)
            return options
    return None


def _name(name: object) -> str | None:
    """The *name* of an index or constraint, if it has one; the operations know what to call it otherwise."""
    return str(name) if isinstance(name, str) else None


def _has_own_default(column: Column[Any]) -> bool:
    """Whether the model says itself what the default in the database is."""
    return isinstance(column.server_default, DefaultClause)


def _wants_default(column: Column[Any]) -> bool:
    """Whether the model says that the database has a default, and not which: ``server_default=FetchedValue()``."""
    return isinstance(column.server_default, FetchedValue) and not _has_own_default(column)


def _lacks(state: State, without_default: bool) -> list[str]:
    lacks = {
        "it may be NULL": state.nullable,
        "it has no unique index": not state.index,
        "its unique index is not valid": state.index and not state.valid,
        "its collation is not that of bytes": not state.collated,
        "it has no default": without_default,
    }
    return [words for words, lacking in lacks.items() if lacking]
