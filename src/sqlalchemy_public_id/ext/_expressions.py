"""The columns that the value of a SQL expression is made of.

A key in arithmetic, a function, an aggregate, ``CASE``, a cast, a label or a scalar subquery can be read from the
result. It cannot be read from a comparison or a count, nor from what is only filtered, grouped or sorted by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import (
    BinaryExpression,
    Boolean,
    CompoundSelect,
    FunctionElement,
    Select,
    TextClause,
    TextualSelect,
    UnaryExpression,
    WithinGroup,
    column,
)
from sqlalchemy.sql.elements import BooleanClauseList
from sqlalchemy.sql.expression import ClauseElement, ColumnClause
from sqlalchemy.sql.operators import is_comparison

__all__ = ["columns_of", "expression_of"]

_COLUMN: Any = ColumnClause
_FUNCTION: Any = FunctionElement
_NOT_THE_VALUE = ("criterion", "order_by", "partition_by", "value")
"""The parts of functions, windows and ``CASE`` that decide which value there is, and are none."""


def columns_of(expression: ClauseElement) -> Iterator[ColumnClause[Any]]:
    """The columns that the value of *expression* is made of: those of tables, and the names in textual SQL."""
    waiting: list[Any] = [expression]
    done: dict[int, Any] = {}
    while waiting:
        element = waiting.pop()
        if id(element) in done:
            continue
        done[id(element)] = element  # kept, so that no other element gets its id
        if isinstance(element, _COLUMN) and not element.is_literal:
            for base in element.base_columns:
                if isinstance(base, _COLUMN):
                    yield base
                else:
                    waiting.append(base)
            waiting += _sources(element)
        elif isinstance(element, (_COLUMN, TextClause)):
            yield from map(column, _words(str(element)))
        elif not _hides_operands(element):
            waiting += _parts(element)


def expression_of(value: Any) -> ClauseElement | None:
    """The SQL expression that *value* is, or stands for as an attribute of a class does."""
    try:
        while hasattr(value, "__clause_element__") and not isinstance(value, ClauseElement):
            value = value.__clause_element__()
    except Exception:  # a hybrid runs the code of its author
        return None
    return value if isinstance(value, ClauseElement) else None


# --- inside


def _hides_operands(element: Any) -> bool:
    """Return True if the value of *element* is true or false, or a number of rows."""
    if isinstance(element, BinaryExpression):
        return is_comparison(element.operator)
    if isinstance(element, UnaryExpression):
        return isinstance(element.type, Boolean)  # pyright: ignore[reportUnknownMemberType]
    is_count = isinstance(element, _FUNCTION) and str(getattr(element, "name", "")).lower() == "count"
    return is_count or isinstance(element, BooleanClauseList)


def _parts(element: Any) -> Iterable[Any]:
    """The elements that the value of *element* is made of."""
    if isinstance(element, Select):
        return element.inner_columns
    if isinstance(element, CompoundSelect):
        return element.selects
    if isinstance(element, TextualSelect):
        return [element.element]
    if isinstance(element, WithinGroup):
        return element.get_children()
    parts = [*element.get_children()] or _attributes(element)
    others = [None, *(getattr(element, name, None) for name in _NOT_THE_VALUE)]
    return [part for part in parts if all(part is not other for other in others)]


def _attributes(element: Any) -> list[Any]:
    """The expressions that *element*, of a program's own, has as attributes, where it does not list its children."""
    return [expression_of(value) for value in list(element.__dict__.values())]


def _sources(found: ColumnClause[Any]) -> Iterator[Any]:
    """The textual statements and functions that *found*, a column of a subquery, comes from."""
    for proxied in found.proxy_set:
        source = getattr(getattr(proxied, "table", None), "element", None)
        if isinstance(source, (_FUNCTION, TextualSelect)):
            yield source


def _words(sql: str) -> Iterable[str]:
    return re.findall(r"\w+", re.sub(r"'[^']*'", "", sql))
