"""The column type of public ids.

>>> from sqlalchemy import Column, MetaData, Table
>>> from sqlalchemy_public_id import NanoId, PublicIdType
>>> format = NanoId(prefix="cus")
>>> customer = Table(
...     "customer",
...     MetaData(),
...     Column("public_id", PublicIdType(format), default=format.generate, unique=True, nullable=False),
... )

Models get such a column from :class:`~sqlalchemy_public_id.PublicIdMixin` or
:func:`~sqlalchemy_public_id.public_id_column`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, TypeGuard

from sqlalchemy import Column, ColumnElement, String
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.sql import operators
from sqlalchemy.types import TypeDecorator, TypeEngine

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId, PublicIdError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats._base import is_printable
from sqlalchemy_public_id.typed import TypedId

__all__ = [
    "MAX_RETRIES",
    "PublicIdType",
    "format_of",
    "is_public_id",
    "max_retries",
    "public_id_columns",
    "public_id_type",
    "set_max_retries",
    "unwrapped",
    "when_first_used",
]

MAX_RETRIES = 1000
"""How many new ids are tried for a row whose id collided, where nothing else is said."""

_RETRIES_KEY = "sqlalchemy_public_id.max_retries"
_COMPARISONS = {
    operator.eq,
    operator.ne,
    operators.in_op,
    operators.is_distinct_from,
    operators.is_not_distinct_from,
    operators.not_in_op,
}

_first_use: list[Callable[[], None]] = []


def when_first_used(callback: Callable[[], None]) -> None:
    """Have *callback* called once, when the first column type is made: importing the package does nothing."""
    _first_use.append(callback)


def format_of(declared: Format | type[TypedId]) -> Format:
    """The format of what a column was declared with."""
    if isinstance(declared, Format):
        return declared
    if isinstance(declared, type) and issubclass(declared, TypedId):
        if hasattr(declared, "id_format"):
            return declared.id_format
        raise ConfigurationError(f'{declared.__name__} has no prefix; write class {declared.__name__}(…, prefix="...")')
    raise ConfigurationError(
        f"{declared!r} is not a format; expected a format such as NanoId(length=12), or a TypedId class"
    )


_unwrapped: dict[type[PublicIdError], type[PublicIdError]] = {}


def unwrapped(error: PublicIdError) -> PublicIdError:
    """*error*, made so that SQLAlchemy does not hide it inside a ``StatementError``."""
    cls = type(error)
    if cls not in _unwrapped:
        namespace = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "_pickled_as": cls}
        _unwrapped[cls] = type(cls.__name__, (cls, DontWrapMixin), namespace)
    error.__class__ = _unwrapped[cls]
    return error


class _ComparedId(TypeDecorator[str]):
    """What a public id is compared with. A text that no row can hold matches none, instead of being an error."""

    impl = String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            expected = f"a text of up to {self.length} characters"
            raise unwrapped(InvalidPublicId(value, expected=expected, reason=f"it is of type {type(value).__name__}"))
        # no blanks either: with MySQL's collations, trailing ones do not count
        return str.__str__(value) if len(value) <= self.length and is_printable(value) else ""


class PublicIdType(TypeDecorator[str]):
    """A column of public ids of one *format*: a :class:`Format`, or a :class:`TypedId` class.

    Stored as text that is compared byte by byte: ``VARCHAR(n)``, with ``COLLATE "C"`` on PostgreSQL and
    ``CHARACTER SET ascii COLLATE ascii_bin`` on MySQL and MariaDB. What is written is checked
    (:class:`InvalidPublicId`); what is read is trusted, and comes back as the typed id where there is one.
    Comparing the column with a malformed text is no error and matches no row.

    A subclass has to say ``cache_ok = True`` for itself, as with every :class:`~sqlalchemy.types.TypeDecorator`.
    """

    impl = String
    cache_ok = True  # the one argument is hashable, and kept under its own name

    def __init__(self, format: Format | type[TypedId]) -> None:
        self.format = format
        self._format = format_of(format)
        self._typed: type[TypedId] | None = None if isinstance(format, Format) else format
        super().__init__(self._format.max_length)
        while _first_use:
            _first_use.pop()()

    def next_id(self) -> str:
        """A new id for a row, not yet known to be free."""
        text = self._format.generate()
        return text if self._typed is None else str.__new__(self._typed, text)

    def checked(self, value: object, field: str | None = None) -> str:
        """*value* as the attribute shows it, or :class:`InvalidPublicId`."""
        text = self._format.validate(value, field=field)
        return text if self._typed is None else str.__new__(self._typed, text)

    @property
    def id_format(self) -> Format:
        """The format of the ids, whether it was given itself or through a typed id."""
        return self._format

    @property
    def python_type(self) -> type[str]:
        return self._typed or str

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(traits_for(dialect).text(self._format.max_length))

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if value is None:
            return None
        try:
            return self._format.validate(value)
        except InvalidPublicId as error:
            raise unwrapped(error) from None

    # SQLAlchemy's protocol names the argument, which functions need not
    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The same as ``process_bind_param``, with one call less for each row."""
        accepts, process = self._format.is_valid, self.process_bind_param

        def bound(value: Any) -> Any:
            return value if type(value) is str and accepts(value) else process(value, dialect)

        return bound

    # SQLAlchemy's protocol names the argument, which partial objects and lambdas need not
    def result_processor(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, dialect: Dialect, coltype: object
    ) -> Callable[[Any], Any] | None:
        """Nothing to do for text; for a typed id, one call in C a row."""
        if self._typed is None:
            return None
        made = partial(str.__new__, self._typed)
        return lambda value: None if value is None else made(value)

    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]:
        return _ComparedId(self._format.max_length) if op in _COMPARISONS else String()

    def __repr__(self) -> str:
        shown = repr(self.format) if self._typed is None else self._typed.__name__
        return f"{type(self).__name__}({shown})"


def is_public_id(column: ColumnElement[Any]) -> TypeGuard[Column[Any]]:
    """Whether *column* holds the public ids of its own rows: something makes them, and they refer to no other row."""
    if not isinstance(column, Column):
        return False
    made = column.default is not None or column.server_default is not None
    return isinstance(column.type, PublicIdType) and made and not column.foreign_keys


def public_id_columns(table: Any) -> list[Column[Any]]:
    """The columns of *table* that hold the public ids of its rows."""
    return [column for column in table.columns if is_public_id(column)]


def public_id_type(column: Column[Any]) -> PublicIdType:
    """The type of *column*, one of public ids."""
    assert isinstance(column.type, PublicIdType)
    return column.type


def max_retries(column: Column[Any]) -> int:
    """How many new ids may be tried for a row of *column*."""
    value: int = column.info.get(_RETRIES_KEY, MAX_RETRIES)
    return value


def set_max_retries(column: Column[Any], value: int) -> None:
    """Say how many new ids may be tried for a row of *column*."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigurationError(f"max_retries is {value!r}, expected a whole number of 0 or more")
    column.info[_RETRIES_KEY] = value
