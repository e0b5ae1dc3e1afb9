"""Base classes of the column types for public ids: how ids are stored and compared.

Models and tables declare :class:`~sqlalchemy_public_id.PublicIdType`.
"""

from __future__ import annotations

import operator
import secrets
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from typing import Any, TypeGuard, cast

from sqlalchemy import ARRAY, BindParameter, ColumnElement, String, type_coerce
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.sql import ClauseElement, operators
from sqlalchemy.sql.visitors import cloned_traverse
from sqlalchemy.types import Concatenable, NullType, TypeDecorator, TypeEngine

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId, PublicIdError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.key_types import COMPARISONS, EQUALITIES
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.mixed_formats import (
    NEEDS_TEXT,
    comparable,
    is_collection,
    no_text,
    refuse_mixed_unions,
    refused_mixture,
)
from sqlalchemy_public_id.stored_ids import (
    Picklable,
    SqlType,
    as_bits_format,
    column_type,
    refuse_variant,
    require_text_index,
    text_of,
    text_to_compare,
    to_database,
)
from sqlalchemy_public_id.typed import TypedId

_IN = {operators.in_op, operators.not_in_op}
_CONCATENATIONS = {operator.add, operators.concat_op}


@cache
def _stored_nowhere(bits: int) -> int:
    """Return a number that no row has, to be compared in place of a malformed id."""
    # A Snowflake is never negative. Anybody could store any number of 128 bits as a ULID, so each process draws one.
    return -1 if bits == 64 else secrets.randbits(bits)


def as_format(declared: Format | type[TypedId]) -> Format:
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


class MatchedId(str):
    """The text of an id, in place of the value that the driver returns for it."""


class IdComparator(TypeDecorator.Comparator[str], Concatenable.Comparator[str]):
    """Comparisons of a public id with strings, and with the parameters that SQLAlchemy would send as strings."""

    def operate(self, op: Any, *other: Any, **kwargs: Any) -> ColumnElement[Any]:
        if op in NEEDS_TEXT and self._ids.is_native:
            raise no_text(op, self.expr)
        if op in _CONCATENATIONS:  # the result is not an id
            return type_coerce(self.expr, String()).operate(op, *other, **kwargs)
        if op in COMPARISONS:
            other = tuple(self._compared(op, value) for value in other)
            mixed = refused_mixture(self.expr)
            if mixed is not None:
                return mixed.operate(op, *other, **kwargs)
        return super().operate(op, *other, **kwargs)

    def reverse_operate(self, op: Any, other: Any, **kwargs: Any) -> ColumnElement[Any]:
        if op in NEEDS_TEXT and self._ids.is_native:
            raise no_text(op, self.expr)
        return super().reverse_operate(op, other, **kwargs)

    @property
    def _ids(self) -> IdColumnType:
        return cast("IdColumnType", self.type)

    def _compared(self, op: Any, value: Any) -> Any:
        """Return *value* as it is compared: a parameter with a type that sends it, an id in its canonical spelling.

        The database would find the id in any spelling, but ``synchronize_session="evaluate"`` compares in Python, with
        the attributes of objects.
        """
        if _is_string_parameter(value):
            parameter: BindParameter[Any] = value
            # a named parameter may get another value at execution, and "evaluate" refuses a coerced parameter
            if op not in _IN and self._ids.is_native and not parameter.unique:
                return type_coerce(parameter, self._type_of(op, parameter))

            def change(copied: BindParameter[Any]) -> None:
                copied.type = self._type_of(op, copied)
                if parameter.unique:
                    copied.value = self._compared(op, copied.value)

            return cloned_traverse(parameter, {}, {"bindparam": change})
        if is_collection(value):
            value = cloned_traverse(value, {}, {"bindparam": self._send_array})
        if is_expression(value):
            return comparable(self._ids.id_format, self.expr, value)
        if op in _IN and _is_list(value):
            return [self._compared(op, each) for each in value]
        return self._ids.canonical(value) or value  # a UUID, too, becomes a string

    def _send_array(self, parameter: BindParameter[Any]) -> None:
        if _is_string_parameter(parameter) and self._ids.is_native:
            item = self._ids.coerce_compared_value(operators.eq, None)
            parameter.type = ARRAY(item) if _is_list(parameter.value) else item

    def _type_of(self, op: Any, parameter: BindParameter[Any]) -> TypeEngine[Any]:
        """Return the type that sends *parameter*.

        A statement may use a named parameter for another column, too, so a named string is sent unchanged. If the
        column stores numbers, a malformed string raises an error, unless the statement was built with it.
        """
        compared = self._ids.coerce_compared_value(op, None)
        if parameter.unique:
            return compared
        if not self._ids.is_native:
            return _GivenText(self._ids.id_format)
        values: list[Any] = [*parameter.value] if _is_list(parameter.value) else [parameter.value]
        is_malformed = any(isinstance(each, str) and self._ids.canonical(each) is None for each in values)
        return compared if is_malformed else self._ids


class CanonicalText(String):
    """The type of parameters that are ids in their canonical spelling, and are compared as they are."""


class _GivenText(TypeDecorator[str]):
    """The type of named parameters, whose strings are sent unchanged."""

    impl = String
    cache_ok = True

    def __init__(self, id_format: Format) -> None:
        self.id_format = id_format
        super().__init__()

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if value is None or isinstance(value, str):
            return value
        text = text_of(self.id_format, value)
        if text is None:  # MySQL would compare a number with the leading digits of a text
            reason = f"it is of type {type(value).__name__}"
            raise unwrapped(InvalidPublicId(value, expected="a string", reason=reason))
        return text


def _is_list(value: object) -> TypeGuard[Iterable[Any]]:
    # the variables of a lambda statement are ColumnOperators, and must not be iterated
    is_sql = isinstance(value, operators.ColumnOperators) or is_expression(value)
    return isinstance(value, Iterable) and not isinstance(value, str) and not is_sql


def _is_string_parameter(value: object) -> bool:
    type_ = cast("Any", value).type if isinstance(value, BindParameter) else None
    return isinstance(type_, (String, NullType)) and not isinstance(type_, CanonicalText)


class IdColumnType(Picklable, TypeDecorator[str]):
    """Stores, compares and returns public ids of one *format*, in columns and parameters.

    Declared columns have its subclass :class:`~sqlalchemy_public_id.PublicIdType`, which also installs the listeners on
    SQLAlchemy's mappers and sessions.
    """

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = String
    cache_ok: bool | None = True  # the arguments are hashable, and stored under their own names
    comparator_factory = IdComparator  # pyright: ignore[reportAssignmentType]  # SQLAlchemy documents it so

    # no argument is only a keyword, or it would be no part of SQLAlchemy's cache key
    def __init__(self, format: Format | type[TypedId], sql_type: SqlType | None = None) -> None:
        self.format = format
        self.id_format: Format = as_format(format)
        self.sql_type: SqlType | None = sql_type
        if sql_type is not None:
            require_text(self.id_format, sql_type)
        self._typed: type[TypedId] | None = None if isinstance(format, Format) else format
        super().__init__(self.id_format.max_length)
        if self.id_format.is_native:
            refuse_mixed_unions()

    def next_id(self) -> str:
        """Return a new id for a row; it may be taken already."""
        text = self.id_format.generate()
        return text if self._typed is None else str.__new__(self._typed, text)

    @cached_property
    def generate(self) -> Callable[[], str]:
        """A function that does the same as :meth:`next_id`, with one call fewer for strings."""
        is_same = self._typed is None and type(self).next_id is IdColumnType.next_id
        return self.id_format.generate if is_same else self.next_id

    def next_ids(self, count: int) -> list[str]:
        """Return new ids for *count* rows, faster than one by one."""
        texts = self.id_format.generate_many(count)
        return texts if self._typed is None else [str.__new__(self._typed, text) for text in texts]

    def checked(self, value: object, field: str | None = None) -> str:
        """Return *value* as the attribute shows it; raise :class:`InvalidPublicId` if it is not an id of the format."""
        text = self.id_format.validate(value, field=field)
        if isinstance(value, str) and type(value) is self._typed and value == text:
            return value  # itself, because it may know the field of a request that has parsed it
        return str.__new__(self.python_type, text)

    def canonical(self, value: object) -> str | None:
        """Return *value* as the attribute shows it; ``None`` if it is not an id of the format."""
        text = self.id_format.canonical(value)
        return text if text is None or self._typed is None else str.__new__(self._typed, text)

    @property
    def is_native(self) -> bool:
        """True if the column stores ids as numbers, and not as strings."""
        return self.id_format.is_native

    @property
    def is_plain_text(self) -> bool:
        """True if a new id is sent unchanged: it is neither a number nor of a class that a driver may not know."""
        return not self.is_native and self._typed is None

    def with_variant(self, type_: Any, *dialect_names: str) -> Any:
        refuse_variant(self.id_format, type_)
        return super().with_variant(type_, *dialect_names)

    @property
    def as_parameter(self) -> TypeEngine[Any]:
        """The type of parameters that are well-formed ids: the cheapest one that sends what the column compares."""
        return self if self.is_native else CanonicalText()

    @property
    def python_type(self) -> type[str]:
        return self._typed or str

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        traits = traits_for(dialect)
        if self.sql_type is None:
            return dialect.type_descriptor(column_type(self.id_format, traits, is_created=True))
        require_text_index(f"a column of {self.id_format!r}", self.sql_type, self.id_format.max_length, dialect)
        return column_type(self.id_format, traits, sql_type=self.sql_type)  # as it is: drivers adapt TEXT to VARCHAR

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        if value is None:
            return None
        try:
            return to_database(self.id_format, value, dialect)
        except InvalidPublicId as error:
            raise unwrapped(error) from None

    # SQLAlchemy's protocol names the argument, which a plain Callable does not
    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Convert values as ``process_bind_param`` does, with one call fewer for each string.

        Drivers get plain strings: psycopg takes twice as long for subclasses of ``str``, such as typed ids.
        """
        if self.id_format.is_native:
            bind: Callable[[Any], Any] = super().bind_processor(dialect)  # type: ignore[assignment]  # never None here
            return bind
        accepts, process, typed, plain = self.id_format.quick_check, self.process_bind_param, self._typed, str.__str__

        if typed is not None:  # typed ids are always well-formed
            return lambda value: plain(value) if type(value) is typed else process(value, dialect)
        return lambda value: value if type(value) is str and accepts(value) else process(value, dialect)

    # SQLAlchemy's protocol names the arguments, which a plain Callable does not
    def result_processor(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, dialect: Dialect, coltype: object
    ) -> Callable[[Any], Any] | None:
        """Return None for strings; otherwise, a function that makes typed ids, without a check, or formats numbers."""
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

    def column_expression(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """Refuse a result in which ids of two formats meet. Runs when a SELECT is compiled, for each column of ids."""
        refused = refused_mixture(column)
        if refused is not None:
            raise refused.error()
        return column

    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Write native ids as SQL literals; SQLAlchemy has no literals for bytes."""
        if not self.is_native:
            return super().literal_processor(dialect)
        traits = traits_for(dialect)

        def literal(value: Any) -> str:
            return traits.literal(self.process_bind_param(value, dialect))

        return literal

    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]:
        if op in EQUALITIES:
            return self._compared_type
        return self if self.is_native else String()

    @cached_property
    def _compared_type(self) -> TypeEngine[Any]:
        return _ComparedId(self.format)

    def __repr__(self) -> str:
        declared = repr(self.format) if self._typed is None else self._typed.__name__
        own = "" if self.sql_type is None else f", sql_type={self.sql_type!r}"
        return f"{type(self).__name__}({declared}{own})"


def require_text(format: Format | None, sql_type: object) -> None:
    """Raise an error if ids of *format* cannot have *sql_type*; ``None`` stands for ids of any model, which are text.

    :raises ConfigurationError: with the remedy.
    """
    if sql_type != "TEXT":
        raise ConfigurationError(
            f'sql_type is {safe_repr(sql_type)}, expected "TEXT", or None for the type that the format needs'
        )
    if format is not None and format.is_native:
        raise ConfigurationError(
            f'sql_type="TEXT" needs a format whose ids are stored as text, but {format!r} stores numbers; add '
            f'storage="text" to the format'
        )


class _ComparedId(IdColumnType):
    """The type of the other side of an equality. A malformed string is sent as a value that no row has."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        try:
            return super().process_bind_param(value, dialect)
        except InvalidPublicId:
            text = text_of(self.id_format, value)
            if text is None:
                raise
        format = self.id_format
        if not format.is_native:
            # Rows may have ids of another format.
            return text_to_compare(text, format.max_length)
        bits = as_bits_format(format).bits
        return traits_for(dialect).to_native(_stored_nowhere(bits), bits)


def is_expression(value: object) -> bool:
    """Return True if *value* is SQL, to be evaluated by the database."""
    return isinstance(value, ClauseElement) or hasattr(value, "__clause_element__")
