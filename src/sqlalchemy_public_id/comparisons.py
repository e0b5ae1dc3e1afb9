"""Comparisons of a column of public ids: with texts, with parameters, and with what no row can have."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, Protocol, cast

from sqlalchemy import BindParameter, ColumnElement, String, and_, bindparam, false, not_, or_, true, type_coerce
from sqlalchemy.sql import ClauseElement, operators
from sqlalchemy.types import Concatenable, NullType, TypeDecorator, TypeEngine

from sqlalchemy_public_id.formats import Format

__all__ = ["EQUALITIES", "IdComparator", "differing"]

EQUALITIES = {
    operator.eq,
    operator.ne,
    operators.in_op,
    operators.is_distinct_from,
    operators.is_not_distinct_from,
    operators.not_in_op,
}
"""What asks whether two ids are the same."""
_SEVERAL = {operators.in_op, operators.not_in_op}
_ORDER = {operator.lt, operator.le, operator.gt, operator.ge, operators.between_op, operators.not_between_op}
_TRANSLATED = EQUALITIES | _ORDER


class _IdType(Protocol):
    """What a comparison asks the type of the column."""

    @property
    def id_format(self) -> Format: ...
    @property
    def is_native(self) -> bool: ...
    @property
    def or_null(self) -> TypeEngine[str]: ...
    def canonical(self, value: object) -> str | None: ...
    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]: ...


class IdComparator(TypeDecorator.Comparator[str], Concatenable.Comparator[str]):
    """Comparisons of a public id. A malformed text matches no row; where numbers are stored, it cannot even be sent.

    A parameter, ``literal(text)`` or ``bindparam("name", text)``, is text to SQLAlchemy and would be sent as that; here
    it means what the text means. A statement that is executed again may give it another value, so it is never left out.
    """

    def operate(self, op: Any, *other: Any, **kwargs: Any) -> ColumnElement[Any]:
        if not other or self._ids.id_format.bits is None or op not in _TRANSLATED:
            return super().operate(op, *other, **kwargs)
        given = other[0]
        if op in _ORDER:
            other = tuple(self._typed(op, one) for one in other)
        elif isinstance(given, str):
            found = self._stored(given)
            if found is None:
                return differing(self.expr, op)
            other = (found,)
        elif self._is_malformed(given):
            return self._malformed(op, given)
        elif op in _SEVERAL and _are_several(given):
            several = [one for one in map(self._stored, given) if one is not None]
            if any(map(self._is_malformed, several)):
                found = or_(false(), *(self.operate(operator.eq, one) for one in several))
                return found if op is operators.in_op else not_(found)
            other = ([self._typed(op, one) for one in several],)
        else:
            other = (self._listed(given) if op in _SEVERAL else self._typed(op, given),)
        return super().operate(op, *other, **kwargs)

    @property
    def _ids(self) -> _IdType:
        return cast("_IdType", self.type)

    def _stored(self, given: Any) -> Any:
        """The canonical text of *given*, which the session compares with objects, too; ``None`` where no row has it."""
        if not isinstance(given, str):
            return given
        return self._ids.canonical(given) or (None if self._ids.is_native else given)

    def _typed(self, op: Any, given: Any) -> Any:
        """*given*; where it is a parameter that is text, with the type of what is compared.

        Where texts are stored, and it is one as they are written, there is nothing to do.
        """
        if not _is_text(given) or not (self._ids.is_native or self._is_written_otherwise(op, given.value)):
            return given
        return type_coerce(given, self._ids.coerce_compared_value(op, None))

    def _is_written_otherwise(self, op: Any, value: object) -> bool:
        return op in EQUALITIES and isinstance(value, str) and self._ids.canonical(value) != value

    def _listed(self, given: Any) -> Any:
        """The same where the parameter holds a list, without what no row has."""
        if not self._ids.is_native or not _is_text(given):
            return given
        values = given.value
        if _are_several(values):
            values = [value for value in values if self._stored(value) is not None]
        return bindparam(
            None if given.unique else given.key,
            values,
            self.type,
            given.unique,
            given.required,
            callable_=given.callable,
            expanding=True,
            literal_execute=given.literal_execute,
        )

    def _is_malformed(self, given: Any) -> bool:
        """Whether *given* is a parameter that holds a text which no row has."""
        return (
            _is_text(given)
            and given.callable is None
            and isinstance(given.value, str)
            and not self._stored(given.value)
        )

    def _malformed(self, op: Any, given: Any) -> ColumnElement[bool]:
        """The comparison by *op* with such a parameter: right for it, and for what execution may replace it with."""
        sent: ColumnElement[str] = type_coerce(given, self._ids.or_null)
        # the column stands first: PostgreSQL has to see the type of the parameter before its NULL
        unlike = or_(self.expr != sent, sent.is_(None))
        if op is operator.ne:
            return and_(self.expr.is_not(None), unlike)
        if op is operators.is_distinct_from:
            return or_(self.expr.is_(None), unlike)
        return and_(self.expr == sent, sent.is_not(None))


def differing(expression: ColumnElement[Any], op: Any) -> ColumnElement[bool]:
    """The comparison of *expression* by *op* with something that no row has."""
    if op is operator.ne:
        return expression.is_not(None)
    return true() if op is operators.is_distinct_from else false()


def _are_several(given: object) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, (ClauseElement, str))


def _is_text(given: object) -> bool:
    """Whether *given* is a parameter whose type is text, or none."""
    return isinstance(given, BindParameter) and isinstance(cast("Any", given).type, (String, NullType))
