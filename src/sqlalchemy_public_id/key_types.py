"""The types of internal keys, which refuse a public id in place of a key.

MySQL and MariaDB compare a number with the leading digits of a text: ``session.get(Customer, "7abcdefghijk")`` would
find the customer with the key 7. SQLite stores such a text in a foreign key.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import cache
from numbers import Number
from typing import Any, ClassVar, cast

from sqlalchemy import BigInteger, ColumnElement
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import operators
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import InvalidKey
from sqlalchemy_public_id.mixed_formats import RefusedOperand, compared_columns, format_of_type

EQUALITIES: frozenset[Any] = frozenset(
    {
        operator.eq,
        operator.ne,
        operators.is_distinct_from,
        operators.is_not_distinct_from,
        operators.in_op,
        operators.not_in_op,
    }
)
COMPARISONS: frozenset[Any] = EQUALITIES | {
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operators.between_op,
    operators.not_between_op,
}
"""The operators whose both sides are of one type."""

_COERCED = COMPARISONS | {operators.and_}
"""The operators with which SQLAlchemy asks for the type of a compared value: ``and_`` for both ends of a BETWEEN."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,39}", re.ASCII)


class _InvalidKey(InvalidKey, DontWrapMixin):
    """An error that SQLAlchemy does not wrap in a ``StatementError``. :mod:`~.errors` imports no SQLAlchemy."""

    __module__ = InvalidKey.__module__
    _pickled_as: ClassVar[Any] = InvalidKey


_InvalidKey.__name__ = _InvalidKey.__qualname__ = InvalidKey.__name__  # as a traceback shows it


def checked_key(value: object) -> object:
    """Return *value* as it is sent for a key: a number, or ``None``.

    :raises InvalidKey: for anything else but the text of an integer, which a program may have from a path.
    """
    if value is None or isinstance(value, Number):
        return value
    text = value.decode("ascii", "replace") if isinstance(value, (bytes, bytearray)) else value
    if isinstance(text, str) and _INTEGER.fullmatch(text):
        return int(text)
    raise _InvalidKey(value)


class _KeyComparator(BigInteger.Comparator[int]):
    """Comparisons of a key, which refuse a query of public ids as well.

    Neither a column nor a text is refused before the statement is compiled or executed: ``column in [...]`` compares,
    too.
    """

    def operate(self, op: Any, *other: Any, **kwargs: Any) -> ColumnElement[Any]:
        if op in COMPARISONS:
            other = tuple(map(_without_ids, other))
        return super().operate(op, *other, **kwargs)


def _without_ids(value: Any) -> Any:
    """Return *value*, which is compared with a key, or what refuses a column of ids when the statement is compiled."""
    given: Any = value.__clause_element__() if hasattr(value, "__clause_element__") else value
    for column in compared_columns(given):
        if format_of_type(column.type) is not None:
            raise _InvalidKey(column)
    if isinstance(given, ColumnElement) and format_of_type(cast("Any", given).type) is not None:
        return RefusedOperand(cast("Any", given), lambda: InvalidKey(value))
    return value


class _Checks(BigInteger):
    """The checks of a key, which its type has, and the type that a driver puts in its place."""

    comparator_factory: Any = _KeyComparator

    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]:
        """Return the type that sends a value that is compared with the key: this one, unless it is a number."""
        if op in _COERCED and value is not None and not isinstance(value, Number):
            return self
        return super().coerce_compared_value(op, value)

    # SQLAlchemy's protocol names the argument, which a plain Callable does not
    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Check values that are stored, and those that a statement gets when it is executed."""
        of_driver: Any = super().bind_processor(dialect)

        def process(value: Any) -> Any:
            return value if value.__class__ is int or value is None else checked_key(value)

        return process if of_driver is None else lambda value: of_driver(process(value))


@cache
def _with_checks(cls: Any) -> Any:
    """Return *cls*, the type of a driver for a ``BIGINT``, with the checks of a key."""
    if issubclass(cls, _Checks) or not issubclass(cls, BigInteger):
        return cls
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (_Checks, cls), names)


class BigIntegerKey(_Checks):
    """The type of an internal key, and of the foreign keys to it: an integer of 64 bits. Other text is refused.

    ``BIGINT UNSIGNED`` on MySQL and MariaDB, ``INTEGER`` on SQLite, ``BIGINT`` or its equivalent elsewhere. A variant
    (:meth:`~sqlalchemy.types.TypeEngine.with_variant`) depends on the name of a dialect, and would miss derived ones.

    :param unsigned: False for a signed ``BIGINT`` on MySQL and MariaDB.
    """

    def __init__(self, unsigned: bool = True) -> None:
        self.unsigned: bool = unsigned
        """SQLAlchemy renders a CAST to this type as UNSIGNED on MySQL if it is True."""

    # SQLAlchemy declares two overloads, of which this is the common part
    def adapt(self, cls: Any, **kw: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the type of a driver, such as psycopg's, with the checks of this one."""
        return super().adapt(_with_checks(cls), **kw)


@compiles(BigIntegerKey)
def _compile_key(type_: BigIntegerKey, compiler: Any, **kwargs: Any) -> str:
    # SQLAlchemy's documentation recommends this for a BIGINT that autoincrements on SQLite
    text: str = compiler.process(traits_for(compiler.dialect).key_type(type_.unsigned), **kwargs)
    return text
