"""What the columns of public ids have in common: how they store and compare ids, and which columns they are.

:class:`~sqlalchemy_public_id.PublicIdType` is the type that models and tables declare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

from sqlalchemy import CHAR, Column, ColumnElement, String, Table, UniqueConstraint, Uuid, event
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.sql import ClauseElement
from sqlalchemy.types import TypeDecorator, TypeEngine

from sqlalchemy_public_id.comparisons import EQUALITIES, IdComparator
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


class _ComparedId(_Picklable, TypeDecorator[str]):
    """Bind type for the other side of a comparison. Malformed text matches no row instead of raising."""

    impl = String
    cache_ok = True

    def __init__(self, format: Format) -> None:
        super().__init__(format.max_length)
        self.format = format

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            expected = f"a text of up to {self.format.max_length} characters"
            raise unwrapped(InvalidPublicId(value, expected=expected, reason=f"it is of type {type(value).__name__}"))
        if self.format.bits is not None and self.format.is_valid(value):
            return self.format.validate(value)  # there may be several ways to write it
        # "" for a string with blanks, too: MySQL's collations ignore trailing ones
        return str.__str__(value) if len(value) <= self.format.max_length and is_printable(value) else ""


class MatchedId(str):
    """The text of an id in the place of the value that a driver returns for it."""


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
        self._format = format_of(format)
        self._typed: type[TypedId] | None = None if isinstance(format, Format) else format
        super().__init__(self._format.max_length)

    def next_id(self) -> str:
        """Return a new id for a row; it may be taken already."""
        text = self._format.generate()
        return text if self._typed is None else str.__new__(self._typed, text)

    def next_ids(self, count: int) -> list[str]:
        """Return new ids for *count* rows, faster than one by one."""
        texts = self._format.generate_many(count)
        return texts if self._typed is None else [str.__new__(self._typed, text) for text in texts]

    def checked(self, value: object, field: str | None = None) -> str:
        """Return *value* as the attribute shows it; raise :class:`InvalidPublicId` if it is no id of the format."""
        text = self._format.validate(value, field=field)
        return text if self._typed is None else str.__new__(self._typed, text)

    def canonical(self, value: object) -> str | None:
        """Return *value* as the attribute shows it; ``None`` if it is no id of the format."""
        return self.checked(value) if self._format.is_valid(value) else None

    @property
    def id_format(self) -> Format:
        """The format of the ids; ``format`` may be a typed id class."""
        return self._format

    @property
    def is_native(self) -> bool:
        """True if the column stores ids as numbers, and not as strings."""
        return self._format.is_native

    @property
    def is_plain_text(self) -> bool:
        """True if a new id is sent as it is: it is neither a number nor of a class that a driver may not know."""
        return not self.is_native and self._typed is None

    @property
    def as_parameter(self) -> TypeEngine[Any]:
        """The type of parameters that are well-formed ids: the cheapest one that sends what the column compares."""
        return self if self.is_native else String()

    @property
    def or_null(self) -> TypeEngine[str]:
        """The type of parameters of a native column that may be malformed: those are sent as NULL."""
        return _OrNull(self.format)

    @property
    def python_type(self) -> type[str]:
        return self._typed or str

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(column_type(self._format, dialect))

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        if value is None:
            return None
        try:
            return to_database(self._format, value, dialect)
        except InvalidPublicId as error:
            raise unwrapped(error) from None

    # SQLAlchemy's protocol names the argument, which functions need not
    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Do the same as ``process_bind_param``, with one call less for each row of strings.

        Drivers get plain strings: psycopg takes twice as long for those of another class, such as typed ids.
        """
        if self._format.bits is not None:
            bind: Callable[[Any], Any] = super().bind_processor(dialect)  # type: ignore[assignment]  # never None here
            return bind
        accepts, process, typed, plain = self._format.quick_check, self.process_bind_param, self._typed, str.__str__

        if typed is not None:  # whose objects are well-formed
            return lambda value: plain(value) if type(value) is typed else process(value, dialect)
        return lambda value: value if type(value) is str and accepts(value) else process(value, dialect)

    # SQLAlchemy's protocol names the argument, which partial objects and lambdas need not
    def result_processor(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, dialect: Dialect, coltype: object
    ) -> Callable[[Any], Any] | None:
        """Return None for strings; otherwise a function that makes typed ids, without a check, or writes numbers."""
        if self.is_native:
            return self._native_processor(dialect, coltype)
        if self._typed is None:
            return None
        typed, new = self._typed, str.__new__
        return lambda value: None if value is None else new(typed, value)

    def _native_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        to_number, to_text = traits_for(dialect).from_native, as_bits_format(self._format).from_int
        process_impl = self.impl_instance.result_processor(dialect, coltype)
        typed = self._typed

        def process(value: Any) -> Any:
            if type(value) is MatchedId:
                return str(value)
            if process_impl is not None:
                value = process_impl(value)
            if value is None:
                return None
            text = to_text(to_number(value))
            return text if typed is None else str.__new__(typed, text)

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
        if self.is_native:
            return self
        return _ComparedId(self._format) if op in EQUALITIES else String()

    def __repr__(self) -> str:
        declared = repr(self.format) if self._typed is None else self._typed.__name__
        return f"{type(self).__name__}({declared})"


class _OrNull(IdColumnType):
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        is_malformed = isinstance(value, str) and not self.id_format.is_valid(value)
        return super().process_bind_param(None if is_malformed else value, dialect)


def as_bits_format(format: Format) -> BitsFormat:
    """Return *format*, narrowed for type checkers: its ids are numbers."""
    assert isinstance(format, BitsFormat)
    return format


def column_type(format: Format, dialect: Dialect) -> TypeEngine[Any]:
    """Return SQLAlchemy's own type for a column of ids of *format*."""
    return column_type_for(format, traits_for(dialect))


def column_type_for(format: Format, traits: Traits) -> TypeEngine[Any]:
    """Return the same for the database with these *traits*."""
    return traits.integer_type(format.bits) if format.is_native and format.bits else traits.text_type(format.max_length)


def holds_ids(existing: TypeEngine[Any], format: Format, dialect: Dialect) -> bool:
    """Return True if a column of the type *existing* returns ids of *format* as they were written.

    Such a column need not be changed: a CHAR without room for blanks, or the type UUID of MariaDB, which reads and
    writes hyphenated text. Their foreign keys would not allow it.
    """
    if format.is_native:
        return False
    if isinstance(existing, CHAR):
        return {form.max_length for form in format.forms} == {existing.length}
    is_uuid = isinstance(existing, Uuid) and getattr(dialect, "is_mariadb", False)
    return is_uuid and all(
        form.bits == 128 and form.prefix is None and as_bits_format(form).encoding == "hyphenated"
        for form in format.forms
    )


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
