"""Comparisons of a column of public ids with strings, bind parameters and malformed ids."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, Protocol, cast

from sqlalchemy import BindParameter, ColumnElement, String, and_, bindparam, false, not_, or_, true, type_coerce
from sqlalchemy.sql import ClauseElement, operators
from sqlalchemy.types import Concatenable, NullType, TypeDecorator, TypeEngine

from sqlalchemy_public_id.formats import Format

EQUALITIES: set[Any] = {
    operator.eq,
    operator.ne,
    operators.in_op,
    operators.is_distinct_from,
    operators.is_not_distinct_from,
    operators.not_in_op,
}
_IN = {operators.in_op, operators.not_in_op}
_ORDER = {operator.lt, operator.le, operator.gt, operator.ge, operators.between_op, operators.not_between_op}
_COMPARISONS = EQUALITIES | _ORDER


class _IdType(Protocol):
    """The part of ``PublicIdType`` that a comparison uses."""

    @property
    def id_format(self) -> Format: ...
    @property
    def is_native(self) -> bool: ...
    @property
    def or_null(self) -> TypeEngine[str]: ...
    def canonical(self, value: object) -> str | None: ...
    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]: ...


class IdComparator(TypeDecorator.Comparator[str], Concatenable.Comparator[str]):
    """Comparisons of a public id. A malformed string matches no row; a native column cannot even be sent one.

    SQLAlchemy sends ``literal(text)`` and ``bindparam("name", text)`` as strings. Here they get the type of the column.
    The statement may be executed again with another value, so a malformed one is not left out.
    """

    def operate(self, op: Any, *other: Any, **kwargs: Any) -> ColumnElement[Any]:
        # ids that are no numbers have one spelling only: the comparison of strings is right
        if not other or self._ids.id_format.bits is None or op not in _COMPARISONS:
            return super().operate(op, *other, **kwargs)
        value = other[0]
        if op in _ORDER:
            other = tuple(self._with_type(op, bound) for bound in other)
        elif isinstance(value, str):
            public_id = self._canonical(value)
            if public_id is None:
                return no_match(self.expr, op)
            other = (public_id,)
        elif self._is_malformed(value):
            return self._compare_malformed(op, value)
        elif op in _IN and _is_iterable(value):
            values = [public_id for public_id in map(self._canonical, value) if public_id is not None]
            if any(map(self._is_malformed, values)):
                matches = or_(false(), *(self.operate(operator.eq, public_id) for public_id in values))
                return matches if op is operators.in_op else not_(matches)
            other = ([self._with_type(op, public_id) for public_id in values],)
        else:
            other = (self._expanding(value) if op in _IN else self._with_type(op, value),)
        return super().operate(op, *other, **kwargs)

    @property
    def _ids(self) -> _IdType:
        return cast("_IdType", self.type)

    def _canonical(self, value: Any) -> Any:
        """Return the canonical spelling of *value*; None if a native column cannot hold it.

        ``synchronize_session="evaluate"`` compares it in Python, with the attributes of objects.
        """
        if not isinstance(value, str):
            return value
        return self._ids.canonical(value) or (None if self._ids.is_native else value)

    def _with_type(self, op: Any, value: Any) -> Any:
        """Return *value*; a string parameter gets the type of the comparison, unless it is sent right without it."""
        if not _is_string_parameter(value):
            return value
        text, is_equality = value.value, op in EQUALITIES
        if self._ids.is_native or (is_equality and isinstance(text, str) and self._ids.canonical(text) != text):
            return type_coerce(value, self._ids.coerce_compared_value(op, None))
        return value

    def _expanding(self, parameter: Any) -> Any:
        """Return *parameter*, which holds the list of an IN, with the type of the column and without malformed ids."""
        if not self._ids.is_native or not _is_string_parameter(parameter):
            return parameter
        values = parameter.value
        if _is_iterable(values):
            values = [value for value in values if self._canonical(value) is not None]
        return bindparam(
            None if parameter.unique else parameter.key,
            values,
            self.type,
            parameter.unique,
            parameter.required,
            callable_=parameter.callable,
            expanding=True,
            literal_execute=parameter.literal_execute,
        )

    def _is_malformed(self, value: Any) -> bool:
        return (
            _is_string_parameter(value)
            and value.callable is None
            and isinstance(value.value, str)
            and not self._canonical(value.value)
        )

    def _compare_malformed(self, op: Any, parameter: Any) -> ColumnElement[bool]:
        """Compare with a malformed parameter. Stays correct when the statement is executed with another value."""
        sent: ColumnElement[str] = type_coerce(parameter, self._ids.or_null)
        # the column stands first: PostgreSQL has to see the type of the parameter before its NULL
        differs = or_(self.expr != sent, sent.is_(None))
        if op is operator.ne:
            return and_(self.expr.is_not(None), differs)
        if op is operators.is_distinct_from:
            return or_(self.expr.is_(None), differs)
        return and_(self.expr == sent, sent.is_not(None))


def no_match(expression: ColumnElement[Any], op: Any) -> ColumnElement[bool]:
    """Return the comparison of *expression* by *op* with a value that no row has."""
    if op is operator.ne:
        return expression.is_not(None)
    return true() if op is operators.is_distinct_from else false()


def _is_iterable(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (ClauseElement, str))


def _is_string_parameter(value: object) -> bool:
    return isinstance(value, BindParameter) and isinstance(cast("Any", value).type, (String, NullType))
