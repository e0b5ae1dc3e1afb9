"""Build the SELECT of a lookup from a model or ``select(Model)``, and a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar, cast

from sqlalchemy import FromClause, Join, Select, SQLColumnExpression, inspect, select
from sqlalchemy.orm import Mapper

from sqlalchemy_public_id._private import is_distinct_on
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.lookup.ordering import tables_in
from sqlalchemy_public_id.orm.inspection import condition_of, public_id_attribute

Where: TypeAlias = SQLColumnExpression[bool] | Callable[[Any], SQLColumnExpression[bool]]
"""A condition, or a function that takes the model and returns one."""

M = TypeVar("M")  # a model

Rows: TypeAlias = type[M] | Select[tuple[M]] | Select[M]
"""A model or ``select(Model)``, whose type differs between SQLAlchemy 2.0 and 2.1."""


def model_of_rows(rows: Any) -> Any:
    """Return the model of *rows*, a model or ``select(Model)``; anything else as it is, for the error about it."""
    given: Any = rows
    if not isinstance(given, Select):
        return given
    columns = cast("Select[Any]", given).column_descriptions
    entity: Any = columns[0].get("entity") if len(columns) == 1 else None
    return rows if entity is None else inspect(entity).mapper.class_


def selected(
    function: str, rows: Any, where: Where | None, attribute: str | None
) -> tuple[Select[Any], Any, SQLColumnExpression[bool] | None]:
    """Return the statement of *rows*, a model or ``select(Model)``, with the condition *where*; entity and condition.

    :param function: the name of the lookup, for errors.
    :param attribute: the name of the public id, if a model has several.
    """
    if isinstance(rows, Select):
        statement, entity = _of_one_model(function, cast("Select[Any]", rows))
    else:
        public_id_attribute(rows, attribute)
        statement, entity = select(rows), rows
    condition = None if where is None else narrowing(function, statement, entity, where)
    return (statement if condition is None else statement.where(condition)), entity, condition


def narrowing(function: str, statement: Select[Any], entity: Any, where: Where) -> SQLColumnExpression[bool]:
    """Return the condition *where* for the rows of *statement*, which selects *entity*.

    :raises ConfigurationError: if the condition is on the model, but the statement selects an alias of it. The
        condition would apply to a second FROM element, and one match there would return every row of the alias.
    """
    condition = condition_of(f"{function}(where=…)", where, entity)
    selectable = inspect(entity)
    if selectable.is_aliased_class:
        own = set(selectable.mapper.tables).intersection(tables_in(_element(condition)))
        joined = (table for source in statement.get_final_froms() for table in _tables_of(source))
        if own and not own.intersection(joined):
            model = selectable.mapper.class_.__name__
            raise ConfigurationError(
                f"{function}(where=…) names {model}, but the statement selects an alias of it: name the alias, or pass "
                f"a function of the entity, such as lambda {model.lower()}: {model.lower()}.owner_id == user.id"
            )
    return condition


def _element(expression: Any) -> Any:
    return expression.__clause_element__() if hasattr(expression, "__clause_element__") else expression


def _tables_of(source: FromClause) -> Iterator[FromClause]:
    """Yield the tables and aliases that a FROM element joins."""
    if isinstance(source, Join):
        yield from _tables_of(source.left)
        yield from _tables_of(source.right)
    else:
        yield source


def _of_one_model(function: str, statement: Select[Any]) -> tuple[Select[Any], Any]:
    columns = statement.column_descriptions
    entity = columns[0].get("entity") if len(columns) == 1 else None
    if entity is None or columns[0]["expr"] is not entity:
        names = ", ".join(str(column["name"]) for column in columns)
        raise ConfigurationError(
            f"lookup.{function}() expects a statement of one model, select(Model), but this one selects {names}"
        )
    if is_sorted_or_limited(statement):
        why = {
            "page": "a page has a limit of its own, and sorts by the keys or by order_by=…",
            "get_many": "rows are returned in the order of the ids",
        }.get(function, "an id has at most one row")
        raise ConfigurationError(f"the statement of lookup.{function}() has an ORDER BY, LIMIT or OFFSET: {why}")
    _refuse_groups(function, statement, inspect(entity))
    return statement, entity


def _refuse_groups(function: str, statement: Select[Any], entity: Any) -> None:
    """Refuse a statement that chooses one row of several: of others, a condition on its rows would choose another."""
    grouped = _grouped_by(statement)
    if not grouped and not is_distinct_on(statement):
        return
    mapper: Mapper[Any] = entity.mapper
    names = [mapper.get_property_by_column(key).key for key in mapper.primary_key]
    keys = [getattr(entity.entity, name).__clause_element__() for name in names]
    has_keys = all(any(key.compare(each) for each in grouped) for key in keys)
    if is_distinct_on(statement) or not has_keys:
        raise ConfigurationError(
            f"the statement of lookup.{function}() has a DISTINCT ON, or a GROUP BY without the key of "
            f"{mapper.class_.__name__}, and a condition of the lookup would make it choose other rows; pass an alias "
            f"of its rows, select(aliased({mapper.class_.__name__}, statement.subquery()))"
        )


def is_grouped(statement: Any) -> bool:
    """Return True if a SELECT has a GROUP BY."""
    return bool(_grouped_by(statement))


def _grouped_by(statement: Any) -> list[Any]:
    """Return the expressions of the GROUP BY."""
    # SQLAlchemy has no public attribute for them
    others = [*statement.group_by(None).get_children()]
    return [each for each in statement.get_children() if not any(each is other for other in others)]


def is_sorted_or_limited(statement: Any) -> bool:
    """Return True if a SELECT has an ORDER BY, LIMIT, OFFSET or FETCH."""
    # SQLAlchemy has no public attributes for them
    return not statement.compare(statement.order_by(None).limit(None).offset(None))
