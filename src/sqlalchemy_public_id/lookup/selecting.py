"""What the lookups select: the rows of a model, or those of ``select(Model)``, and of these the ones that meet a
condition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

from sqlalchemy import Select, SQLColumnExpression, inspect, select

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.orm.inspection import condition_of, public_id_attribute

Where: TypeAlias = SQLColumnExpression[bool] | Callable[[Any], SQLColumnExpression[bool]]
"""A condition, or a function that builds it of the model."""

M = TypeVar("M")  # a model

Rows: TypeAlias = type[M] | Select[tuple[M]] | Select[M]
"""A model or ``select(Model)``, whose type differs between SQLAlchemy 2.0 and 2.1."""


def model_of(rows: Any) -> Any:
    """Return the model of *rows*, a model or ``select(Model)``; anything else as it is, for the error about it."""
    given: Any = rows
    if not isinstance(given, Select):
        return given
    columns = cast("Select[Any]", given).column_descriptions
    entity: Any = columns[0].get("entity") if len(columns) == 1 else None
    return rows if entity is None else inspect(entity).mapper.class_


def selected(function: str, rows: Any, where: Where | None) -> tuple[Select[Any], Any]:
    """Return the statement of *rows*, a model or ``select(Model)``, with the condition *where*, and its entity.

    :param function: the name of the lookup, for errors.
    """
    if isinstance(rows, Select):
        statement, entity = _of_one_model(function, cast("Select[Any]", rows))
    else:
        public_id_attribute(rows)
        statement, entity = select(rows), rows
    if where is not None:
        statement = statement.where(condition_of(f"{function}(where=…)", where, entity))
    return statement, entity


def _of_one_model(function: str, statement: Select[Any]) -> tuple[Select[Any], Any]:
    columns = statement.column_descriptions
    entity = columns[0].get("entity") if len(columns) == 1 else None
    if entity is None or columns[0]["expr"] is not entity:
        names = ", ".join(str(column["name"]) for column in columns)
        raise ConfigurationError(
            f"lookup.{function}() is of one model, select(Model), but this statement selects {names}"
        )
    if not statement.compare(statement.order_by(None).limit(None).offset(None)):
        why = {
            "page": "a page has a limit of its own, and sorts by the keys or by order_by=…",
            "get_many": "rows are returned in the order of the ids",
        }.get(function, "an id has at most one row")
        raise ConfigurationError(f"the statement of lookup.{function}() has an ORDER BY, LIMIT or OFFSET: {why}")
    return statement, entity
