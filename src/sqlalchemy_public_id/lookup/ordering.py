"""The order of a page: sort expressions with their directions, and the condition for the rows after a place in it.

Databases disagree about NULL: PostgreSQL sorts it as the largest value, the others as the smallest. A page follows its
database, so that it can use an index, unless *order_by* has ``nulls_first()`` or ``nulls_last()``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from sqlalchemy import (
    Alias,
    Cast,
    Column,
    ColumnClause,
    ColumnElement,
    Dialect,
    Float,
    FromClause,
    Function,
    Integer,
    Join,
    Label,
    Numeric,
    ScalarSelect,
    SelectBase,
    String,
    TableClause,
    TypeCoerce,
    UnaryExpression,
    and_,
    false,
    func,
    literal_column,
    or_,
    type_coerce,
)
from sqlalchemy import cast as cast_to
from sqlalchemy.orm import RelationshipProperty
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.sql.functions import ReturnTypeFromArgs
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import undecorated

_DIRECTIONS = {operators.asc_op: False, operators.desc_op: True}
_DECIMAL = Numeric(65, 30)
"""The type of MariaDB with the most digits, 30 of them after the point."""
_NULLS = {operators.nulls_first_op: True, operators.nulls_last_op: False}


@dataclass(frozen=True)
class Term:
    """One expression of an ORDER BY."""

    expression: Any
    descending: bool = False
    nulls_first: bool | None = None
    """None if the database decides."""
    may_be_null: bool = True
    attribute: str | None = None
    """The name, if it is an attribute of the entity."""
    by_position: bool = False
    """True for an ENUM of MySQL, which is sorted by the position of a value, and compared by its text; also for a SET,
    which is sorted by its bits."""
    is_rounded: bool = False
    """True for an expression whose value MariaDB rounds in a subquery, and nowhere else."""
    cut_at: int | None = None
    """The number of characters that are sorted and compared; None for whole values."""

    @property
    def element(self) -> Any:
        """The expression as an element of a statement."""
        element: Any = getattr(self.expression, "__clause_element__", lambda: self.expression)()
        return element

    def type_on(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the type of the values in the database. An expression has a length only if the program names it."""
        type_: TypeEngine[Any] = undecorated(self.element.type.dialect_impl(dialect))
        # others take the type of their first part, and may be longer
        is_named = isinstance(self.element, (Column, TypeCoerce, Cast, Function))
        is_named = is_named and not isinstance(self.element, ReturnTypeFromArgs)
        return type_ if is_named or not isinstance(type_, String) else String()

    def types_in(self, dialect: Dialect) -> list[TypeEngine[Any]]:
        """Return the types of the columns in an expression."""
        parts: Iterator[Any] = cast("Any", visitors.iterate(self.element))
        columns: list[Any] = [each for each in parts if isinstance(each, ColumnClause)]
        return [undecorated(each.type.dialect_impl(dialect)) for each in columns]

    def is_enum(self, dialect: Dialect) -> bool:
        """Return True if the database has a native type for the values, an ENUM or a SET."""
        from sqlalchemy.dialects.mysql import ENUM, SET  # takes a third of the import time of this library

        return isinstance(undecorated(self.element.type.dialect_impl(dialect)), (ENUM, SET))

    @property
    def is_decimal(self) -> bool:
        """True if the values are exact numbers, such as those of a division of numbers."""
        type_ = undecorated(self.element.type)
        return isinstance(type_, Numeric) and not isinstance(type_, Float)

    def value_of(self, expression: Any) -> Any:
        """Return *expression*, a value of the term, as it is compared."""
        if self.is_rounded:
            return cast_to(expression, _DECIMAL)
        if self.cut_at is not None:
            return func.substr(expression, literal_column("1"), literal_column(str(self.cut_at)), type_=String())
        return type_coerce(expression, Integer) + 0 if self.by_position else expression

    @property
    def compared(self) -> Any:
        """The left side of comparisons."""
        return operand(self.value_of(self.element))

    def reversed(self) -> Term:
        nulls_first = None if self.nulls_first is None else not self.nulls_first
        return replace(self, descending=not self.descending, nulls_first=nulls_first)

    def order_by(self, nulls_are_largest: bool) -> list[ColumnElement[Any]]:
        """Return the ORDER BY of the term: one expression if the database sorts NULL in this way by default."""
        # what compares as equal must be sorted as equal
        by: Any = self.value_of(self.element) if self.is_rounded or self.cut_at else self.expression
        sorted_: ColumnElement[Any] = by.desc() if self.descending else by.asc()
        if not self.may_be_null or self._nulls_first(nulls_are_largest) == (self.descending is nulls_are_largest):
            return [sorted_]
        is_null: ColumnElement[Any] = self.compared.is_(None)  # MySQL has no NULLS FIRST
        return [is_null.desc() if self.nulls_first else is_null.asc(), sorted_]

    def is_after(self, value: Any, nulls_are_largest: bool, *, or_equal: bool = False) -> ColumnElement[bool]:
        """Return the condition for rows that follow one with *value*; with *or_equal*, or have it, if none is NULL."""
        nulls_first = self._nulls_first(nulls_are_largest)
        if value is None:
            after: ColumnElement[bool] = self.compared.is_not(None) if nulls_first else false()
            return after
        if or_equal:
            return self.is_bounded_by(value)
        after = self.compared < value if self.descending else self.compared > value
        return or_(after, self.compared.is_(None)) if self.may_be_null and not nulls_first else after

    def is_bounded_by(self, value: Any) -> ColumnElement[bool]:
        bounded: ColumnElement[bool] = self.compared <= value if self.descending else self.compared >= value
        return bounded

    def is_equal(self, value: Any) -> ColumnElement[bool]:
        equal: ColumnElement[bool] = self.compared.is_(None) if value is None else self.compared == value
        return equal

    def _nulls_first(self, nulls_are_largest: bool) -> bool:
        return self.descending is nulls_are_largest if self.nulls_first is None else self.nulls_first


def terms_of(order_by: Any) -> list[Term]:
    """Return the terms of *order_by*: attributes and expressions, with ``desc()``, ``asc()`` and ``nulls_last()``.

    :raises ConfigurationError: for anything else, such as the name of a column.
    """
    several = isinstance(order_by, Iterable) and not isinstance(order_by, (str, bytes))
    given: list[Any] = list(cast("Iterable[Any]", order_by)) if several else [order_by]
    return [_term(each) for each in given]


def _term(given: Any) -> Term:
    descending, nulls_first = False, None
    expression: Any = given
    while isinstance(expression, UnaryExpression):
        modifier: Any = expression.modifier
        if modifier in _DIRECTIONS:
            descending = _DIRECTIONS[modifier]
        elif modifier in _NULLS:
            nulls_first = _NULLS[modifier]
        else:
            break
        expression = cast("Any", expression).element
    term = Term(expression, descending, nulls_first)
    is_relationship = isinstance(getattr(term.expression, "property", None), RelationshipProperty)
    if isinstance(term.expression, type) or not hasattr(term.expression, "desc") or is_relationship:
        raise _no_expression(given)
    return term


def _no_expression(given: object) -> ConfigurationError:
    return ConfigurationError(
        f"order_by has {safe_repr(given)}, expected attributes of the model and expressions of them, such as "
        f"Ticket.priority.desc()"
    )


def operand(value: Any) -> Any:
    """Return *value* as the left side of a comparison. An expression gets parentheses: NOT a > b is NOT (a > b)."""
    if isinstance(value, Label):  # a column_property()
        value = cast("Any", value).element
    is_plain = isinstance(value, (ColumnClause, ScalarSelect))
    return cast("Any", value) if is_plain else Grouping(value)


def has_row_of(source: FromClause, table: FromClause | None) -> bool:
    """Return True if each row of *source*, a FROM element, has a row of *table*, as it is not after an outer join."""
    if isinstance(source, Join):
        is_in_right = not source.isouter and not source.full and has_row_of(source.right, table)
        return is_in_right or (not source.full and has_row_of(source.left, table))
    whole = source.element if isinstance(source, Alias) else source
    return isinstance(whole, TableClause) and whole is table


def tables_in(expression: Any) -> Iterator[Any]:
    """Yield the tables and aliases whose columns *expression* contains, except in subqueries."""
    if isinstance(expression, ColumnClause):
        if expression.table is not None:
            yield expression.table
    elif not isinstance(expression, (SelectBase, ScalarSelect)):
        for child in expression.get_children():
            yield from tables_in(child)


def after(
    terms: Sequence[Term], values: Sequence[Any], nulls_are_largest: bool, *, or_equal: bool = False
) -> ColumnElement[bool]:
    """Return the condition for the rows after one with *values*, term by term; with *or_equal*, also for this row.

    ``(a, b) > (1, 2)`` would not use the index on every database. The first term is bounded once more, for planners
    that find no range in a disjunction.
    """
    alternatives = [
        and_(
            *(term.is_equal(value) for term, value in zip(terms[:at], values[:at], strict=True)),
            terms[at].is_after(values[at], nulls_are_largest, or_equal=or_equal and at == len(terms) - 1),
        )
        for at in range(len(terms))
    ]
    first, value = terms[0], values[0]
    if len(terms) > 1 and value is not None and not first.may_be_null:
        return and_(first.is_bounded_by(value), or_(*alternatives))
    return or_(*alternatives)


def digest(terms: Sequence[Term], dialect: Dialect) -> str:
    """Return a four-character fingerprint of an order, by which cursors of other orders are recognized."""
    compiled = [(term.element.compile(dialect=dialect), term) for term in terms]
    parts = [f"{sql} {sql.params or ''} {term.descending} {term.nulls_first}" for sql, term in compiled]
    text = ",".join(parts)
    return hashlib.sha256(text.encode()).hexdigest()[:4]
