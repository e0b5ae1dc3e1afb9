"""What the columns of public ids have in common: how they store and compare ids, and which columns they are.

:class:`~sqlalchemy_public_id.PublicIdType` is the type that models and tables declare.
"""

from __future__ import annotations

import operator
import secrets
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeGuard, cast

from sqlalchemy import BindParameter, Column, ColumnElement, String, Table, UniqueConstraint, event, type_coerce
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.sql import ClauseElement, operators
from sqlalchemy.sql.visitors import cloned_traverse
from sqlalchemy.types import Concatenable, NullType, TypeDecorator, TypeEngine

from sqlalchemy_public_id.dialects import Traits, traits_for
from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId, PublicIdError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.formats.alphabets import is_printable
from sqlalchemy_public_id.typed import TypedId

MAX_RETRIES = 1000
"""The default number of new ids that are tried for a row whose id collided."""

_RETRIES_KEY = "sqlalchemy_public_id.max_retries"

_ATTACHED = "sqlalchemy_public_id.attached"
"""In the ``info`` of a column, which is copied with it: it belongs to a table."""

_COPIED = "sqlalchemy_public_id.copied"
"""In the ``info`` of a column: it belonged to a table before it was copied into another one."""

_IN = {operators.in_op, operators.not_in_op}
_EQUALITIES: set[Any] = {
    operator.eq,
    operator.ne,
    operators.is_distinct_from,
    operators.is_not_distinct_from,
    *_IN,
}
_ORDER = {operator.lt, operator.le, operator.gt, operator.ge, operators.between_op, operators.not_between_op}
_COMPARISONS = _EQUALITIES | _ORDER

_STORED_NOWHERE = secrets.randbits(128)
"""A number for malformed ids in comparisons. Drawn by each process: every number of 128 bits is a ULID."""


def format_of(declared: Format | type[TypedId]) -> Format:
    """Return the format of a declaration, a format or a typed id class."""
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
    """Return *error* as one that SQLAlchemy does not wrap in a ``StatementError``.

    The base class of the errors cannot be ``DontWrapMixin``: formats raise them, and import no SQLAlchemy.
    """
    cls = type(error)
    if cls not in _unwrapped:
        namespace = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "_pickled_as": cls}
        _unwrapped[cls] = type(cls.__name__, (cls, DontWrapMixin), namespace)
    error.__class__ = _unwrapped[cls]
    return error


class _Picklable:
    # TypeDecorator passes unknown attributes on to its implementation. pickle and copy look __setstate__ up on an
    # object that is still empty, which would then keep the wrong implementation.
    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


class MatchedId(str):
    """The text of an id in the place of the value that a driver returns for it."""


class IdComparator(TypeDecorator.Comparator[str], Concatenable.Comparator[str]):
    """Comparisons of a public id with strings, and with the parameters that SQLAlchemy would send as strings."""

    def operate(self, op: Any, *other: Any, **kwargs: Any) -> ColumnElement[Any]:
        if op in _COMPARISONS:
            other = tuple(self._compared(op, value) for value in other)
        return super().operate(op, *other, **kwargs)

    def _compared(self, op: Any, value: Any) -> Any:
        """Return *value* as it is compared: ids in their canonical spelling, parameters with a type that sends it.

        ``synchronize_session="evaluate"`` compares in Python, with the attributes of objects.
        """
        type_ = cast("IdColumnType", self.type)
        if _is_string_parameter(value):
            parameter: BindParameter[Any] = value
            sent_as = type_.coerce_compared_value(op, None)

            def change(copied: BindParameter[Any]) -> None:
                copied.type, copied.value = sent_as, self._compared(op, copied.value)

            if op in _IN or parameter.unique:
                return cloned_traverse(parameter, {}, {"bindparam": change})
            # the value of a name may be another one at execution, which "evaluate" does not know: it refuses this
            return type_coerce(parameter, sent_as)
        if isinstance(value, str):
            return type_.canonical(value) or value
        is_list = op in _IN and hasattr(value, "__iter__") and not is_expression(value)
        return [self._compared(op, each) for each in value] if is_list else value


class CanonicalText(String):
    """The type of parameters that are ids in their canonical spelling: they are compared as they are."""


def _is_string_parameter(value: object) -> bool:
    type_ = cast("Any", value).type if isinstance(value, BindParameter) else None
    return isinstance(type_, (String, NullType)) and not isinstance(type_, CanonicalText)


class IdColumnType(_Picklable, TypeDecorator[str]):
    """Stores, compares and returns public ids of one *format*, in columns and parameters.

    The type of a declared column, :class:`~sqlalchemy_public_id.PublicIdType`, is its subclass, and the only one that
    prepares SQLAlchemy's mappers and sessions for the column.
    """

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = String
    cache_ok: bool | None = True  # the one argument is hashable, and kept under its own name
    comparator_factory = IdComparator  # pyright: ignore[reportAssignmentType]  # SQLAlchemy documents it so

    def __init__(self, format: Format | type[TypedId]) -> None:
        self.format = format
        self.id_format: Format = format_of(format)
        self._typed: type[TypedId] | None = None if isinstance(format, Format) else format
        super().__init__(self.id_format.max_length)

    def next_id(self) -> str:
        """Return a new id for a row; it may be taken already."""
        text = self.id_format.generate()
        return text if self._typed is None else str.__new__(self._typed, text)

    def next_ids(self, count: int) -> list[str]:
        """Return new ids for *count* rows, faster than one by one."""
        texts = self.id_format.generate_many(count)
        return texts if self._typed is None else [str.__new__(self._typed, text) for text in texts]

    def checked(self, value: object, field: str | None = None) -> str:
        """Return *value* as the attribute shows it; raise :class:`InvalidPublicId` if it is no id of the format."""
        return str.__new__(self.python_type, self.id_format.validate(value, field=field))

    def canonical(self, value: object) -> str | None:
        """Return *value* as the attribute shows it; ``None`` if it is no id of the format."""
        try:
            return self.checked(value)
        except InvalidPublicId:
            return None

    @property
    def is_native(self) -> bool:
        """True if the column stores ids as numbers, and not as strings."""
        return self.id_format.is_native

    @property
    def is_plain_text(self) -> bool:
        """True if a new id is sent as it is: it is neither a number nor of a class that a driver may not know."""
        return not self.is_native and self._typed is None

    @property
    def as_parameter(self) -> TypeEngine[Any]:
        """The type of parameters that are well-formed ids: the cheapest one that sends what the column compares."""
        return self if self.is_native else CanonicalText()

    @property
    def python_type(self) -> type[str]:
        return self._typed or str

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(column_type(self.id_format, traits_for(dialect)))

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        if value is None:
            return None
        try:
            return to_database(self.id_format, value, dialect)
        except InvalidPublicId as error:
            raise unwrapped(error) from None

    # SQLAlchemy's protocol names the argument, which functions need not
    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Do the same as ``process_bind_param``, with one call less for each row of strings.

        Drivers get plain strings: psycopg takes twice as long for those of another class, such as typed ids.
        """
        if self.id_format.bits is not None:
            bind: Callable[[Any], Any] = super().bind_processor(dialect)  # type: ignore[assignment]  # never None here
            return bind
        accepts, process, typed, plain = self.id_format.quick_check, self.process_bind_param, self._typed, str.__str__

        if typed is not None:  # whose objects are well-formed
            return lambda value: plain(value) if type(value) is typed else process(value, dialect)
        return lambda value: value if type(value) is str and accepts(value) else process(value, dialect)

    # SQLAlchemy's protocol names the argument, which partial objects and lambdas need not
    def result_processor(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, dialect: Dialect, coltype: object
    ) -> Callable[[Any], Any] | None:
        """Return None for strings; otherwise a function that makes typed ids, without a check, or writes numbers."""
        typed, new = self._typed, str.__new__
        if not self.is_native:
            return None if typed is None else lambda value: None if value is None else new(typed, value)
        to_number, to_text = traits_for(dialect).from_native, as_bits_format(self.id_format).from_int
        process_impl = self.impl_instance.result_processor(dialect, coltype)

        def process(value: Any) -> Any:
            if type(value) is MatchedId:
                return str(value)
            if process_impl is not None:
                value = process_impl(value)
            if value is None:
                return None
            text = to_text(to_number(value))
            return text if typed is None else new(typed, text)

        return process

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Write native ids as SQL literals; SQLAlchemy has no literals for bytes."""
        if not self.is_native:
            return super().literal_processor(dialect)
        traits = traits_for(dialect)

        def literal(value: Any) -> str:
            bound = self.process_bind_param(value, dialect)
            return "NULL" if bound is None else traits.literal(bound)

        return literal

    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]:
        if op in _EQUALITIES:
            return self._compared_type
        return self if self.is_native else String()

    @cached_property
    def _compared_type(self) -> TypeEngine[Any]:
        return _ComparedId(self.format)

    def __repr__(self) -> str:
        declared = repr(self.format) if self._typed is None else self._typed.__name__
        return f"{type(self).__name__}({declared})"


class _ComparedId(IdColumnType):
    """The type of the other side of an equality. A malformed string is sent as a value that no row has."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        try:
            return super().process_bind_param(value, dialect)
        except InvalidPublicId:
            if not isinstance(value, str):
                raise
        format = self.id_format
        if not format.is_native:
            # rows may have ids of another format; "" for a string with blanks: MySQL's collations ignore trailing ones
            return str.__str__(value) if len(value) <= format.max_length and is_printable(value) else ""
        bits = as_bits_format(format).bits
        number = -1 if bits == 64 else _STORED_NOWHERE >> 128 - bits  # the sign of a BIGINT is 0 in every id
        return traits_for(dialect).to_native(number, bits)


def as_bits_format(format: Format) -> BitsFormat:
    """Return *format*, narrowed for type checkers: its ids are numbers."""
    assert isinstance(format, BitsFormat)
    return format


def column_type(format: Format, traits: Traits) -> TypeEngine[Any]:
    """Return SQLAlchemy's own type for a column of ids of *format*, in the database with these *traits*."""
    return traits.integer_type(format.bits) if format.is_native and format.bits else traits.text_type(format.max_length)


def to_database(format: Format, text: object, dialect: Dialect) -> Any:
    """Return the value of a column of :func:`column_type` for the id *text*; raise :class:`InvalidPublicId`."""
    if not format.is_native:
        return format.validate(text)
    bits_format = as_bits_format(format)
    return traits_for(dialect).to_native(bits_format.to_int(text), bits_format.bits)


def is_public_id(column: ColumnElement[Any]) -> TypeGuard[Column[Any]]:
    """Return True if *column* holds the public ids of its own rows.

    It has a default and no foreign key. A column that was copied with its table and is not unique any more keeps the
    history of another one.
    """
    if not isinstance(column, Column):
        return False
    has_default = column.default is not None or column.server_default is not None
    is_own = isinstance(column.type, IdColumnType) and has_default and not column.foreign_keys
    return is_own and (not is_copy(column) or is_unique(column))


def is_copy(column: Column[Any]) -> bool:
    """Return True if the column was copied with its table, as ``to_metadata()`` and version tables do."""
    return _COPIED in column.info


def is_unique(column: Column[Any]) -> bool:
    """Return True if the table declares *column* as unique, without others."""
    if list(column.table.primary_key) == [column]:
        return True
    unique = [index.columns for index in column.table.indexes if index.unique]
    unique += [
        constraint.columns for constraint in column.table.constraints if isinstance(constraint, UniqueConstraint)
    ]
    return any(list(columns) == [column] for columns in unique)


def after_type_attached(type_: IdColumnType, column: Any) -> None:
    """Watch a column for copies. Runs when *column* gets its type."""
    if isinstance(column, Column):
        event.listen(column, "after_parent_attach", _on_table)


def _on_table(column: Column[Any], table: Any) -> None:
    # Column.info is copied with the column: a copy has the first mark already when it is attached to another table
    if isinstance(table, Table):
        column.info[_COPIED if _ATTACHED in column.info else _ATTACHED] = True


def is_expression(value: object) -> bool:
    """Return True if *value* is SQL, to be evaluated by the database."""
    return isinstance(value, ClauseElement) or hasattr(value, "__clause_element__")


def public_id_columns(table: Any) -> list[Column[Any]]:
    """Return the columns of *table* that hold the public ids of its rows."""
    return [column for column in table.columns if is_public_id(column)]


def public_id_type(column: Column[Any]) -> IdColumnType:
    """Return the type of *column*, narrowed for type checkers: it holds public ids."""
    assert isinstance(column.type, IdColumnType)
    return column.type


def max_retries(column: Column[Any]) -> int:
    """Return how many new ids may be tried for a row of *column*."""
    value: int = column.info.get(_RETRIES_KEY, MAX_RETRIES)
    return value


def set_max_retries(column: Column[Any], value: int) -> None:
    """Set how many new ids may be tried for a row of *column*."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigurationError(f"max_retries is {value!r}, expected a whole number of 0 or more")
    column.info[_RETRIES_KEY] = value
