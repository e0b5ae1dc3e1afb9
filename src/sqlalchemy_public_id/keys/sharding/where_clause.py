"""Extract ``column = value`` and ``column IN (…)`` conditions from a WHERE clause."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any, cast

from sqlalchemy import BinaryExpression, BindParameter, Column, TypeCoerce
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import BooleanClauseList, CollectionAggregate, Grouping


def conditions(clause: Any, parameters: Mapping[str, Any]) -> Iterator[tuple[Column[Any], list[Any]]]:
    """Yield each column with the values that it may have in the rows that *clause* selects.

    These are ``column = value``, ``column IN (values)`` and ``column = ANY (values)`` on the top level, connected by
    AND. Everything else is ignored.
    """
    if isinstance(clause, Grouping) or (isinstance(clause, BooleanClauseList) and clause.operator is operators.and_):
        for part in clause.get_children():
            yield from conditions(part, parameters)
    elif isinstance(clause, BinaryExpression) and clause.operator in (operator.eq, operators.in_op):
        for one, other in ((clause.left, clause.right), (clause.right, clause.left)):
            column, values = _table_column(one), _values(other, clause.operator is operators.in_op, parameters)
            if column is not None and values is not None:
                yield column, values


def _table_column(element: Any) -> Column[Any] | None:
    # base_columns lead through aliases and subqueries
    bases: list[Any] = list(element.base_columns) if isinstance(element, Column) else []
    if len(bases) != 1 or not isinstance(bases[0], Column):
        return None
    columns: Any = getattr(bases[0].table, "c", {})
    column: Column[Any] | None = columns.get(bases[0].key)
    return column


def _values(other: Any, several: bool, parameters: Mapping[str, Any]) -> list[Any] | None:
    while isinstance(other, (Grouping, TypeCoerce)) or getattr(other, "operator", None) is operators.any_op:
        several = several or isinstance(other, CollectionAggregate)
        (other,) = other.get_children()
    if not isinstance(other, BindParameter):
        return None
    # the value of a named parameter is unknown: Select.params() may set another one, which is not visible here
    own: Any = cast("Any", other).effective_value if other.unique else None
    value: Any = parameters.get(other.key, own)
    if several:
        return [*value] if isinstance(value, (list, tuple, set, frozenset)) else None
    return None if value is None else [value]
