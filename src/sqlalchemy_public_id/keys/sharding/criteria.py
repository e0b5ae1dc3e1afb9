"""Which values the WHERE clause of a statement asks for, where it says so plainly."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import BinaryExpression, BindParameter, Column, ColumnElement
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import BooleanClauseList, CollectionAggregate, False_, Grouping

__all__ = ["conditions", "is_never"]

_NOTHING: Any = object()
"""A value that is not known."""


def conditions(
    clause: ColumnElement[Any] | None, parameters: Mapping[str, Any]
) -> Iterator[tuple[Column[Any], list[Any]]]:
    """Column → values, for what must hold of each row that *clause* selects.

    Read are ``column = value``, ``column IN (values)`` and ``column = ANY (values)`` that AND connects on the top
    level. Everything else is passed over.
    """
    for part in _parts(clause):
        if not isinstance(part, BinaryExpression):
            continue
        for column, other in ((part.left, part.right), (part.right, part.left)):
            found = _table_column(column)
            values = None if found is None else _values(part.operator, other, parameters)
            if found is not None and values is not None:
                yield found, values
                break


def is_never(clause: ColumnElement[Any] | None) -> bool:
    """Whether *clause* is plainly false, as the comparison of a public id with a malformed text may be."""
    return any(isinstance(part, False_) for part in _parts(clause))


def _parts(clause: Any) -> Iterator[Any]:
    """What AND connects."""
    inner: Any = clause
    if isinstance(clause, Grouping):
        yield from _parts(inner.element)
    elif isinstance(clause, BooleanClauseList) and clause.operator is operators.and_:
        for part in clause.clauses:
            yield from _parts(part)
    elif clause is not None:
        yield clause


def _table_column(element: Any) -> Column[Any] | None:
    """The column of a table that *element* shows, through aliases and subqueries."""
    bases: Iterable[Any] = getattr(element, "base_columns", ())
    found = list(bases)
    if len(found) != 1 or not isinstance(element, Column) or not isinstance(found[0], Column):
        return None
    table: Any = found[0].table
    columns: Any = getattr(table, "c", {})
    column: Column[Any] | None = columns.get(found[0].key)
    return column


def _values(op: Any, other: Any, parameters: Mapping[str, Any]) -> list[Any] | None:
    """The values that the other side of a comparison stands for; ``None`` where that is not plain."""
    if op is operator.eq and isinstance(other, CollectionAggregate):
        return _values(operators.in_op, _element(other) if other.operator is operators.any_op else None, parameters)
    if isinstance(other, Grouping):
        return _values(op, _element(other), parameters)
    if not isinstance(other, BindParameter) or op not in (operator.eq, operators.in_op):
        return None
    return _bound_values(op, other, parameters)


def _bound_values(op: Any, bound: Any, parameters: Mapping[str, Any]) -> list[Any] | None:
    value: Any = parameters.get(bound.key, _NOTHING)
    if value is _NOTHING:
        if bound.value is None and bound.callable is None:
            return None  # required, or NULL
        if not bound.unique:
            return None  # named by hand: Select.params() may give it another value, which does not show here
        value = bound.effective_value
    if op is operator.eq:
        return None if value is None else [value]
    if isinstance(value, (str, bytes)) or not isinstance(value, Collection):
        return None
    return [*value]


def _element(wrapper: Any) -> Any:
    """What stands in parentheses, or behind ANY."""
    return wrapper.element
