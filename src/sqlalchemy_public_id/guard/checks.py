"""INSERT statements that must not be executed, because they would change or repeat public ids."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sqlalchemy import Column, ColumnElement, FromClause, Insert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import FromStatement, configure_mappers
from sqlalchemy.sql.expression import SelectBase

from sqlalchemy_public_id._private import prefetched_columns, updated_columns
from sqlalchemy_public_id.columns import public_id_columns
from sqlalchemy_public_id.errors import ConfigurationError, ImmutablePublicId, PublicIdError
from sqlalchemy_public_id.registry import model_of
from sqlalchemy_public_id.types import unwrapped


def refuse_mistakes(compiled: Any) -> None:
    """Refuse an upsert that would change public ids, and an INSERT … FROM SELECT that would repeat one.

    The INSERT may be the statement itself or one of its CTEs.
    """
    for insert in (inserted_by(compiled), *(cte.element for cte in compiled.ctes or ())):
        if isinstance(insert, Insert):
            _refuse(insert, compiled)


def inserted_by(compiled: Any) -> Insert | None:
    """Return the INSERT that was *compiled*; None if it is another statement."""
    statement = compiled.statement
    insert: Any = statement.element if isinstance(statement, FromStatement) else statement
    return insert if isinstance(insert, Insert) else None


def clauses_after_values(insert: Insert) -> list[Any]:
    """Return the clauses after the VALUES of *insert*, such as ON CONFLICT and ON DUPLICATE KEY."""
    clauses = [part for part in insert.get_children() if not isinstance(part, (ColumnElement, FromClause, SelectBase))]
    # SQLAlchemy 2.1 puts several ON CONFLICT clauses, which SQLite allows, into one element
    return [each for clause in clauses for each in getattr(clause, "clauses", [clause])]


def _refuse(insert: Insert, compiled: Any) -> None:
    clauses = clauses_after_values(insert)
    if not clauses and insert.select is None:
        return
    for column in public_id_columns(insert.table):
        for clause in clauses:
            if {column.key, column.name} & updated_columns(clause):
                raise unwrapped(_rotation(column, clause))
        # a Python function is called once for the statement; an SQL expression is evaluated for each row
        if insert.select is not None and any(map(column.shares_lineage, prefetched_columns(compiled))):
            raise unwrapped(
                ConfigurationError(
                    f"INSERT … FROM SELECT into {column.table.name} would give every row the same {column.name}, "
                    f"because the default is evaluated once for the statement. Read the rows and insert them: "
                    f"connection.execute(insert(table), [dict(row) for row in connection.execute(select).mappings()])"
                )
            )


def _rotation(column: Column[Any], clause: Any) -> ImmutablePublicId:
    # if mappers cannot be configured, the error names the table instead of the model
    with suppress(SQLAlchemyError, PublicIdError):
        configure_mappers()
    model = model_of(column.table, column.key)
    name = model.__name__ if model else column.table.name
    new_row = "inserted" if clause.__visit_name__ == "on_duplicate_key_update" else "excluded"
    return ImmutablePublicId(
        f"this upsert would give an existing {name} a new {column.name}; leave it and the key out of the update: "
        f"{{key: stmt.{new_row}[key] for key in row if key not in ('id', {column.name!r})}}, with row as one of the "
        f"rows that you insert",
        model=name,
        attribute=column.key,
    )
