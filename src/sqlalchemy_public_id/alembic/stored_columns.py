"""Autogenerate: a column that holds the ids keeps its type, and a new foreign key gets the type of the column there.

``migrations.stored_types`` judges the types of public ids, of primary keys and foreign keys that contain them, and of
``AnyPublicIdType``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from alembic.operations import MigrateOperation
from alembic.operations.ops import AddColumnOp, AlterColumnOp, CreateTableOp, DropColumnOp, ModifyTableOps, UpgradeOps
from sqlalchemy import Column, DefaultClause, MetaData, text
from sqlalchemy.exc import NoReferenceError
from sqlalchemy.types import BINARY, LargeBinary, NullType, Text, TypeEngine

from sqlalchemy_public_id.alembic.ops import AddPublicIdOp, DropPublicIdOp, ExpandPublicIdOp
from sqlalchemy_public_id.columns import is_public_id, public_id_type
from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import database_of, is_supported, live_table, plan_for
from sqlalchemy_public_id.migrations.from_models import read_declared
from sqlalchemy_public_id.migrations.obstacles import makes_uuids
from sqlalchemy_public_id.migrations.state import State
from sqlalchemy_public_id.migrations.stored_types import Fit, StoredIds, fit_of, is_text
from sqlalchemy_public_id.migrations.table import columns_of
from sqlalchemy_public_id.migrations.trial import try_ids

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext

log: logging.Logger = logging.getLogger("alembic.autogenerate.sqlalchemy_public_id")


class RefusedColumn(MigrateOperation):
    """Stands for a change that no revision may contain, until all tables are compared."""

    def __init__(self, target: str, misfit: Obstacle) -> None:
        self.target: str = target
        self.misfit: Obstacle = misfit


class StoredDefault(DefaultClause):
    """An expression that the database has as server default, which Alembic would render with each ``%`` twice."""

    def __init__(self, sql: str) -> None:
        self.sql: str = sql.replace(":", r"\:")
        super().__init__(text(self.sql))


def judge(existing: TypeEngine[Any], column: Column[Any], context: AutogenContext) -> Fit | None:
    """Return how the type *existing* holds the ids of *column*; ``None`` if it is no column of ids, or unknown."""
    ids = StoredIds.of(column.type)
    if ids is None or not is_supported(context.dialect) or isinstance(existing, NullType):
        return None
    return fit_of(existing, ids, context.dialect, is_key=is_public_id(column) or column.primary_key)


def keep_type(context: AutogenContext, op: AlterColumnOp, *names_and_columns: Any) -> bool:
    """Keep a type that holds the ids, before Alembic compares it and logs a change. Return True if it is kept."""
    _schema, _table, _name, existing, column = names_and_columns
    if not judge(existing.type, column, context):
        return False
    op.existing_type, op.modify_type = existing.type, None
    if not is_migrated(column, context) and is_text(existing.type):
        _warn_of_collation(context, column)
    return True


def is_migrated(column: Column[Any], context: AutogenContext) -> bool:
    """Return True if the operations of this library change the collation of *column*, where that is needed."""
    return is_public_id(column) and read_declared(column, context.dialect) is not None


def change_type(
    context: AutogenContext, op: AlterColumnOp, existing: Column[Any], column: Column[Any]
) -> RefusedColumn | None:
    """Replace Alembic's change of a type by the least change after which the column holds the ids.

    Return what stands for a change between text and numbers, which no ALTER of a database makes.
    """
    fit = judge(existing.type, column, context) if op.modify_type is not None else None
    if fit is None:
        return None
    if fit:
        op.modify_type = None
    elif fit.is_other_kind:
        stored = existing.type.compile(context.dialect)
        problem = f"the column {column.name} is {stored}{fit.why}, and no ALTER converts one to the other"
        return RefusedColumn(f"{column.table.fullname}.{column.name}", Obstacle(fit.code, problem, fit.advice))
    elif fit.better is not None:
        op.modify_type = fit.better
        if fit.code == "wrong-type":
            log.warning(
                "%s.%s is %s%s. Its change may rewrite the table while readers and writers wait",
                *(column.table.fullname, column.name, existing.type.compile(context.dialect), fit.why),
            )
    return None


def _warn_of_collation(context: AutogenContext, column: Column[Any]) -> None:
    state = _read_state(context, column)
    if state is not None and not state.exact:
        log.warning(
            "%s.%s keeps its collation%s, in which different ids can be equal, such as aB and Ab. Change it together "
            "with the columns that it is joined with, in a revision of your own",
            *(column.table.fullname, column.name, f" {state.collation}" if state.collation else ""),
        )


def warn_of_new_ids(context: AutogenContext, column: Column[Any], existing: Column[Any], schema: str | None) -> None:
    """Log a warning for each CHECK, domain or copy of a column that refuses the ids that the program will insert."""
    if context.connection is None or not is_supported(context.dialect) or not judge(existing.type, column, context):
        return
    format = public_id_type(column).id_format
    target = PublicIdColumn.of(column.table.name, column.name, schema=schema, format=format)
    for outcome in try_ids(live_table(context.connection, target)):
        log.log(logging.INFO if outcome.refused is None else logging.WARNING, "%s", outcome)


def former_default(context: AutogenContext, target: PublicIdColumn, state: State) -> Format | None:
    """Return the format whose ids the server default of this library generates, if *target* has another one.

    A default that generates other ids, and is not of this library, is named in a warning.
    """
    if context.connection is None or state.default is None or target.server_default == "none":
        return None
    connection = context.connection
    plan = plan_for(target, context.dialect)
    if plan.has_own_default(state) or makes_uuids(target.format, state.default, context.dialect):
        return None
    live = live_table(connection, target)
    found = plan.defaults.former_format(state.default, target.format, live.read_some_ids())
    if found is None:
        log.warning(
            "%s keeps its default %s, which may generate other ids than %r: rows of programs that leave the column "
            "out are then not found. Drop it, or declare it in the model, with server_default=",
            *(target, state.default, target.format),
        )
    return found


def drop_instead(context: AutogenContext, dropped: DropColumnOp) -> tuple[DropPublicIdOp | None, set[str]]:
    """Return the operation that drops a column of public ids, which no model declares any more, and its indexes.

    The server default says that it is one, and of which format. The downgrade of Alembic's own operation would need
    a default that tells the existing rows apart.
    """
    place: dict[str, Any] = {"table": dropped.table_name, "column": dropped.column_name, "schema": dropped.schema}
    if context.connection is None or not is_supported(context.dialect) or not _may_be_ids(dropped.to_column()):
        return None, set()
    live = live_table(context.connection, PublicIdColumn.of(**place))
    state, defaults = live.read_state(), plan_for(live.target, context.dialect).defaults
    if state.default is None:
        return None, set()
    found = defaults.former_format(state.default, live.target.format, live.read_some_ids())
    found = found or defaults.format_of_numbers(state.default)
    if found is None:
        return None, set()
    options: Any = {**place, "format": found, "comment": state.comment}
    if state.unique is not None:
        options["unique_name"] = state.unique.name
    is_text_type = isinstance(dropped.to_column().type, Text) and not found.is_native
    if is_text_type and database_of(context.dialect).plan.indexes_whole_texts:
        options["sql_type"] = "TEXT"
    op = DropPublicIdOp(**options)
    op.undone_by = (ExpandPublicIdOp if state.nullable else AddPublicIdOp)(**options)
    op.notes = [f"No model declares {op.target}. Its ids are lost, and links that contain them stop working."]
    return op, {each.name for each in state.indexes if each.can_be_unique_index_of(op.column_name)}


def _may_be_ids(column: Column[Any]) -> bool:
    """Return True if the library may have made *column*. SQLAlchemy cuts its default on MySQL, and lacks MariaDB's."""
    default: Any = column.server_default
    if default is not None:
        return re.search(r"random|uuid|hex\(", str(getattr(default, "arg", "")), re.IGNORECASE) is not None
    return isinstance(column.type, (BINARY, LargeBinary)) or getattr(column.type, "collation", None) == "ascii_bin"


def _read_state(context: AutogenContext, column: Column[Any]) -> State | None:
    if context.connection is None:
        return None
    target = PublicIdColumn.of(column.table.name, column.name, schema=column.table.schema)
    return live_table(context.connection, target).read_state()


# --- new foreign keys


def match_new_references(context: AutogenContext, upgrade: UpgradeOps, schemas: object) -> None:
    """Give each new foreign key the type and collation of the stored column that it refers to.

    MySQL and MariaDB refuse another type, and PostgreSQL joins columns of two collations without an index.
    """
    if context.connection is None or not is_supported(context.dialect):
        return
    for op in upgrade.ops:
        if isinstance(op, CreateTableOp):
            op.columns = [_matched(context, part) for part in op.columns]
        for change in op.ops if isinstance(op, ModifyTableOps) else ():
            if isinstance(change, AddColumnOp):
                change.column = _matched(context, change.column)


def _matched(context: AutogenContext, part: Any) -> Any:
    """Return a copy of a new column with the type of the column that it refers to, if that differs."""
    column: Any = part
    if not isinstance(part, Column) or StoredIds.of(column.type) is None:
        return column  # a constraint, or another column
    declared = column.type.compile(context.dialect)
    for target in _targets(column):
        stored = _stored_type(context, target)
        if stored is not None and stored.compile(context.dialect) != declared and judge(stored, column, context):
            copied = column.table.to_metadata(MetaData()).columns[column.key]
            copied.type = stored
            return copied
    return column


def _targets(column: Column[Any]) -> Iterator[Column[Any]]:
    for key in column.foreign_keys:
        with suppress(NoReferenceError):
            yield key.column


def _stored_type(context: AutogenContext, target: Column[Any]) -> TypeEngine[Any] | None:
    """Return the type that *target* has in the database, with its collation; ``None`` if it does not exist yet."""
    table, inspector = target.table, context.inspector
    if not inspector.has_table(table.name, schema=table.schema):
        return None
    reflected = columns_of(inspector, table.name, table.schema).get(target.name)
    if reflected is None:
        return None
    type_: Any = reflected["type"]
    state = _read_state(context, target) if is_text(type_) else None
    collation = None if state is None or state.collation == "default" else state.collation
    stored: TypeEngine[Any] = type_
    return type_.adapt(type(type_), collation=collation) if collation and not type_.collation else stored
