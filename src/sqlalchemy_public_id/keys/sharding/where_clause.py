"""Extract ``column = value`` and ``column IN (…)`` conditions from a WHERE clause."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sqlalchemy import BinaryExpression, BindParameter, Column, ColumnElement, TypeCoerce
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import BooleanClauseList, CollectionAggregate, Grouping

_UNKNOWN: Any = object()


def conditions(
    clause: ColumnElement[Any] | None, parameters: Mapping[str, Any]
) -> Iterator[tuple[Column[Any], list[Any]]]:
    """Yield each column with the values that it may have in the rows that *clause* selects.

    These are ``column = value``, ``column IN (values)`` and ``column = ANY (values)`` on the top level, connected by
    AND. Everything else is ignored.
    """
    for part in _parts(clause):
        if not isinstance(part, BinaryExpression):
            continue
        for column, other in ((part.left, part.right), (part.right, part.left)):
            of_table = _table_column(column)
            values = None if of_table is None else _values(part.operator, other, parameters)
            if of_table is not None and values is not None:
                yield of_table, values
                break


def _parts(clause: Any) -> Iterator[Any]:
    if isinstance(clause, Grouping):
        yield from _parts(_element(clause))
    elif isinstance(clause, BooleanClauseList) and clause.operator is operators.and_:
        for part in clause.clauses:
            yield from _parts(part)
    elif clause is not None:
        yield clause


def _table_column(element: Any) -> Column[Any] | None:
    # base_columns lead through aliases and subqueries
    bases: list[Any] = list(getattr(element, "base_columns", ()))
    if len(bases) != 1 or not isinstance(element, Column) or not isinstance(bases[0], Column):
        return None
    columns: Any = getattr(bases[0].table, "c", {})
    column: Column[Any] | None = columns.get(bases[0].key)
    return column


def _values(op: Any, other: Any, parameters: Mapping[str, Any]) -> list[Any] | None:
    if op is operator.eq and isinstance(other, CollectionAggregate):
        return _values(operators.in_op, _element(other) if other.operator is operators.any_op else None, parameters)
    if isinstance(other, (Grouping, TypeCoerce)):
        (inner,) = other.get_children()
        return _values(op, inner, parameters)
    if not isinstance(other, BindParameter) or op not in (operator.eq, operators.in_op):
        return None
    return _bound_values(op, other, parameters)


def _bound_values(op: Any, bound: Any, parameters: Mapping[str, Any]) -> list[Any] | None:
    value: Any = parameters.get(bound.key, _UNKNOWN)
    if value is _UNKNOWN:
        if bound.value is None and bound.callable is None:
            return None  # required, or NULL
        if not bound.unique:
            return None  # a name from the caller: Select.params() may set another value, which is not visible here
        value = bound.effective_value
    if op is operator.eq:
        return None if value is None else [value]
    if isinstance(value, (str, bytes)) or not isinstance(value, Collection):
        return None
    return [*value]


def _element(wrapper: Any) -> Any:
    return wrapper.element
