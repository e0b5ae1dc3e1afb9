"""INSERT statements that must not be executed, because they would change or repeat public ids."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from sqlalchemy import Column, Insert
from sqlalchemy.engine import ExecutionContext
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import FromStatement, configure_mappers

from sqlalchemy_public_id._compat import (
    inserted_table,
    plain_table,
    post_values_clauses,
    selected_names,
    updated_columns,
)
from sqlalchemy_public_id.errors import ConfigurationError, ImmutablePublicId, PublicIdError
from sqlalchemy_public_id.registry import model_of
from sqlalchemy_public_id.types import is_public_id, public_id_columns, unwrapped


def refuse_mistakes(compiled: Any) -> None:
    """Refuse an upsert that would change public ids, and an INSERT … FROM SELECT that would repeat one.

    The INSERT may be the statement itself or one of its CTEs.
    """
    statement = compiled.statement
    _refuse(statement.element if isinstance(statement, FromStatement) else statement)
    for cte in compiled.ctes or ():
        _refuse(cte.element)


def _refuse(insert: Any) -> None:
    if not isinstance(insert, Insert):
        return
    clauses = post_values_clauses(insert)
    if not clauses and insert.select is None:
        return
    has_defaults = insert.select is not None and insert.include_insert_from_select_defaults
    for column in public_id_columns(plain_table(insert.table)):
        names = {column.key, column.name}
        for clause in clauses:
            if names & updated_columns(clause):
                raise unwrapped(_rotation(column, clause))
        if has_defaults and column.default is not None and not names & selected_names(insert):
            raise unwrapped(
                ConfigurationError(
                    f"INSERT … FROM SELECT into {column.table.name} would give every row the same {column.name}, "
                    f"because the default is evaluated once for the statement. Read the rows and insert them: "
                    f"connection.execute(insert(table), [dict(row) for row in connection.execute(select).mappings()])"
                )
            )


def _rotation(column: Column[Any], clause: Any) -> ImmutablePublicId:
    # a model of another base may be broken; the error can do without the name
    with suppress(SQLAlchemyError, PublicIdError):
        configure_mappers()
    model = model_of(column.table, column.key)
    name = model.__name__ if model else column.table.name
    new_row = "inserted" if clause.__visit_name__ == "on_duplicate_key_update" else "excluded"
    return ImmutablePublicId(
        f"this upsert would give an existing {name} a new {column.name}; leave it and the key out of the update: "
        f"{{c.name: c for c in stmt.{new_row} if c.name not in ('id', {column.name!r})}}",
        model=name,
        attribute=column.key,
    )


_last: tuple[weakref.ref[Any], object, bool] | None = None
"""The last execution, a column default, and the answer of :func:`makes_ids` for both.

A default is called for each row of an execution. Threads may replace each other's entry, which costs another check.
"""


def makes_ids(context: ExecutionContext, default: object) -> bool:
    """Return True if the column of *default* holds public ids in the table of the INSERT.

    The copy of a table that keeps its history has the defaults of the original, but no ids of its own. Mistakes are
    refused here as well, for programs without the guard.
    """
    global _last
    last = _last
    if last is None or last[0]() is not context or last[1] is not default:
        compiled: Any = context.compiled
        if compiled is None:  # connection.scalar(column.default)
            return True
        refuse_mistakes(compiled)
        table = inserted_table(compiled)
        columns: Iterable[Column[Any]] = () if table is None else table.columns
        is_wanted = not any(
            getattr(column.default, "arg", None) is default and not is_public_id(column) for column in columns
        )
        last = _last = weakref.ref(context), default, is_wanted
    return last[2]
