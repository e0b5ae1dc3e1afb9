"""Refuses SQL in which ids of two formats meet, and one of the formats stores numbers.

The database knows neither the prefix nor the encoding of a number: the type of a column adds them to the result. A
column of a UNION, a ``coalesce()`` and a CASE have one type, that of their first part, which would show the ids of the
others as ids that no row has; and a comparison is true if the numbers are equal. Everything here runs when a statement
is built or compiled, and not when it is executed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import combinations
from typing import Any, cast

from sqlalchemy import CTE, BindParameter, Case, Column, ColumnElement, CompoundSelect, Integer, Subquery, Table, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import operators
from sqlalchemy.sql.expression import CollectionAggregate, Function, ScalarSelect, SelectBase
from sqlalchemy.sql.functions import ReturnTypeFromArgs

from sqlalchemy_public_id._private import has_own_compilation
from sqlalchemy_public_id.errors import ConfigurationError, InvalidKey
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats._bits import BitsFormat

NEEDS_TEXT: frozenset[Any] = frozenset(
    {
        operator.add,
        operators.concat_op,
        operators.like_op,
        operators.not_like_op,
        operators.ilike_op,
        operators.not_ilike_op,
        operators.startswith_op,
        operators.not_startswith_op,
        operators.istartswith_op,
        operators.not_istartswith_op,
        operators.endswith_op,
        operators.not_endswith_op,
        operators.iendswith_op,
        operators.not_iendswith_op,
        operators.contains_op,
        operators.not_contains_op,
        operators.icontains_op,
        operators.not_icontains_op,
        operators.match_op,
        operators.not_match_op,
        operators.regexp_match_op,
        operators.not_regexp_match_op,
        operators.regexp_replace_op,
    }
)
"""The operators for which the database would have to know the text of an id."""


class RefusedOperand(ColumnElement[Any]):
    """Takes the place of a column in a comparison that cannot be right. A statement with it cannot be compiled.

    Building the comparison raises nothing, because ``column in [...]`` of Python compares columns as well.
    """

    inherit_cache: bool | None = False

    def __init__(self, column: ColumnElement[Any], error: Callable[[], Exception]) -> None:
        self.type: Any = column.type
        self.error = error


@compiles(RefusedOperand)
def _raise_error(refused: RefusedOperand, compiler: Any, **kwargs: Any) -> str:
    raise refused.error()


# --- formats


def are_alike(one: Format, other: Format) -> bool:
    """Return True if ids of the two formats may share a column: as text, or as numbers with the same text."""
    if one == other or not (one.is_native or other.is_native):
        return True
    writes = {_largest_id(form) for form in one.forms}, {_largest_id(form) for form in other.forms}
    # a format reads the numbers of the older formats that it accepts
    return one.bits == other.bits and (_largest_id(one) in writes[1] or _largest_id(other) in writes[0])


@cache
def _largest_id(form: Format) -> str | None:
    """Return the text of the largest number: it is equal for two formats that write all numbers alike."""
    return form.from_int((1 << form.bits - 1) - 1) if isinstance(form, BitsFormat) and form.is_native else None


def differing(formats: Iterable[Format]) -> tuple[Format, Format] | None:
    """Return two of *formats* that are not alike; None if all of them are."""
    return next((pair for pair in combinations(dict.fromkeys(formats), 2) if not are_alike(*pair)), None)


def two_formats(one: Format, other: Format, where: str) -> ConfigurationError:
    """Return the error for ids of two formats that meet in *where*."""
    return ConfigurationError(
        f"{where} has ids of two formats, {one!r} and {other!r}, which are not both stored as text: a number does not "
        f"tell its prefix, so ids of one format would be taken for ids of the other; select each by itself, or store "
        f'them as text, with storage="text"'
    )


# --- expressions


def format_of_type(type_: Any) -> Format | None:
    """Return the format of the ids that an expression of *type_* returns; None if it returns no ids."""
    return cast("Format | None", getattr(type_, "id_format", None))


def formats_in(expression: Any) -> Iterator[Format]:
    """Yield the formats of the ids that *expression* may return."""
    if format_of_type(expression.type) is None:
        return
    for base in expression.base_columns:
        if isinstance(base, Column):
            parts: Iterable[Any] = ()
        elif isinstance(base, Case):
            parts = [value for _, value in cast("Any", base).whens] + [cast("Any", base).else_]
        elif isinstance(base, ReturnTypeFromArgs):
            parts = base.clauses
        else:
            parts = [getattr(base, "element", None)]  # a scalar subquery, a grouping, a function with OVER
        format = format_of_type(cast("Any", base).type)
        if format is not None:
            yield format
            for part in parts:
                if isinstance(part, SelectBase):
                    yield from (format for column in part.selected_columns for format in formats_in(column))
                elif isinstance(part, ColumnElement):
                    yield from formats_in(part)


def refused_mixture(expression: Any) -> RefusedOperand | None:
    """Return what refuses *expression* if it may return ids of two formats; None if it may not."""
    if isinstance(expression, Column) and isinstance(expression.table, Table):
        return None
    pair = differing(formats_in(expression))
    if pair is None:
        return None
    return RefusedOperand(cast("Any", expression), partial(two_formats, *pair, where="an expression"))


# --- set operations


def _columns_of(query: Any) -> list[list[Any]]:
    """Return the columns of each SELECT of *query*, which may be a UNION."""
    if isinstance(query, CompoundSelect):
        return [columns for each in cast("Any", query).selects for columns in _columns_of(each)]
    element = getattr(query, "element", None)  # a SELECT in parentheses
    return _columns_of(element) if isinstance(element, SelectBase) else [[*query.selected_columns]]


def compared_columns(value: Any) -> list[Any]:
    """Return what each SELECT of *value* returns, with which a column is compared; nothing if it is not a query."""
    query = value
    while isinstance(query, (CollectionAggregate, ScalarSelect, Subquery, CTE)):
        query = cast("Any", query).element
    return [column for columns in _columns_of(query) for column in columns[:1]] if isinstance(query, SelectBase) else []


def formats_of_query(query: Any) -> list[list[Format]]:
    """Return the formats of the ids in each column of *query*."""
    return [
        [format for expression in column for format in formats_in(expression)]
        for column in zip(*_columns_of(query), strict=False)
    ]


@cache
def refuse_mixed_unions() -> None:
    """Refuse, from now on, to compile a UNION, INTERSECT or EXCEPT whose rows would have ids of two formats.

    A UNION in a subquery is refused where its ids are returned or compared: its rows may just be counted.
    """
    if has_own_compilation(CompoundSelect):
        return

    @compiles(CompoundSelect)
    def compile_union(union: CompoundSelect[Any], compiler: Any, **kwargs: Any) -> str:
        if not compiler.stack:  # it is the statement
            for formats in formats_of_query(union):
                pair = differing(formats)
                if pair is not None:
                    raise two_formats(*pair, where="a UNION, INTERSECT or EXCEPT")
        text: str = compiler.visit_compound_select(union, **kwargs)
        return text


# --- comparisons


def is_collection(expression: Any) -> bool:
    """Return True for ``any_()`` and ``all_()``, also as functions of PostgreSQL."""
    is_function = isinstance(expression, Function) and expression.name.lower() in {"any", "all", "some"}
    return is_function or isinstance(expression, CollectionAggregate)


def comparable(format: Format, ids: Any, value: Any) -> Any:
    """Return the expression *value*, with which *ids* of *format* are compared, or what refuses it when it is compiled.

    :raises ConfigurationError: if *value* is a query of ids of another format.
    :raises InvalidKey: if it is a query of keys, and the ids are never numbers.
    """
    given: Any = value.__clause_element__() if hasattr(value, "__clause_element__") else value
    compared: Any = given.element if isinstance(given, CollectionAggregate) else given
    returned = compared_columns(given) or ([compared] if isinstance(compared, ColumnElement) else [])
    pair = differing([format, *(each for expression in returned for each in formats_in(expression))])
    if pair is not None:
        error: Callable[[], Exception] = partial(two_formats, *pair, where="a comparison")
    elif any(map(_is_integer, returned)) and _is_never_number(format):
        error = partial(InvalidKey, ids)
    else:
        return cast("Any", given)
    if not isinstance(given, ColumnElement):
        raise error()
    refused = RefusedOperand(cast("Any", given), error)
    return select(refused).scalar_subquery() if isinstance(given, ScalarSelect) else refused  # for in_()


def _is_integer(expression: Any) -> bool:
    """Return True if *expression* is a number, such as a key. The type of a parameter may be that of its value."""
    return isinstance(expression.type, Integer) and not isinstance(expression, BindParameter)


def _is_never_number(format: Format) -> bool:
    """Return True if what a column of *format* stores never equals an integer."""
    if format.is_native:
        return format.bits != 64
    return format.prefix is not None or not set(getattr(format, "alphabet", "0")) <= set("0123456789")


def no_text(op: Any, expression: Any) -> ConfigurationError:
    """Return the error for the operator *op*, one of :data:`NEEDS_TEXT`, of ids that are stored as numbers."""
    name = op.__name__.removesuffix("_op")
    return ConfigurationError(
        f"{expression} stores numbers, and the database does not know the text of an id, which {name} needs; compare "
        f'whole ids, or store them as text, with storage="text"'
    )
