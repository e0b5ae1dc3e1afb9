"""How ids of a format are stored: the type of their column, and the value of an id there."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from sqlalchemy import Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects import Traits, traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.formats.alphabets import is_printable

SqlType: TypeAlias = Literal["TEXT"]
"""A type that a column of text may be given instead of the one that its format needs."""


def text_of(format: Format, value: object) -> str | None:
    """Return the text of *value*, a string or an object of another library such as a UUID; it may be malformed."""
    if isinstance(value, str):
        return value
    return format.canonical(value) or format._text_of(value)  # pyright: ignore[reportPrivateUsage]  # private to users, not to us


def text_to_compare(text: str, length: int) -> str:
    """Return *text* as it is compared with a column of *length* characters.

    ``""``, which no row has, replaces text that a driver cannot send, and blanks, because MySQL's collations ignore
    trailing blanks.
    """
    return str.__str__(text) if len(text) <= length and is_printable(text) else ""


def as_bits_format(format: Format) -> BitsFormat:
    """Return *format*, narrowed for type checkers: its ids are numbers."""
    assert isinstance(format, BitsFormat)
    return format


def column_type(
    format: Format, traits: Traits, *, sql_type: str | None = None, is_created: bool = False
) -> TypeEngine[Any]:
    """Return SQLAlchemy's own type for ids of *format*; with *is_created*, its DDL may depend on the server.

    A database that does not index ``sql_type="TEXT"`` gets the type that has a length.
    """
    if format.is_native and format.bits:
        return traits.integer_type(format.bits)
    return text_type(format.max_length, traits, sql_type=sql_type, is_created=is_created)


def text_type(length: int, traits: Traits, *, sql_type: str | None = None, is_created: bool = False) -> TypeEngine[str]:
    """Return SQLAlchemy's own type for text of up to *length* characters, as :func:`column_type` does."""
    sized = (traits.column_text if is_created else traits.text_type)(length)
    if sql_type is None or not traits.indexes_text:
        return sized
    return Text(collation=getattr(sized, "collation", None))


def require_text_index(what: str, sql_type: str | None, length: int, dialect: Dialect) -> None:
    """Raise an error if a column of *sql_type* cannot have an index in the database of *dialect*.

    :raises ConfigurationError: with the type that has a length.
    """
    if sql_type is not None and not traits_for(dialect).indexes_text:
        raise ConfigurationError(
            f"{what} has sql_type={sql_type!r}, which {dialect.name} indexes by a prefix of fixed length, or not at "
            f"all; leave sql_type out, so that the column is VARCHAR({length})"
        )


def to_database(format: Format, text: object, dialect: Dialect) -> Any:
    """Return the value of a column of :func:`column_type` for the id *text*; raise :class:`InvalidPublicId`."""
    if not format.is_native:
        return format.validate(text)
    bits_format = as_bits_format(format)
    return traits_for(dialect).to_native(bits_format.to_int(text), bits_format.bits)


class Picklable:
    """A base of a ``TypeDecorator``, which passes unknown attributes on to its implementation.

    pickle and copy look ``__setstate__`` up on an object that is still empty, and would keep the wrong implementation.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


_CONVERSIONS = (
    "bind_expression",
    "bind_processor",
    "coerce_compared_value",
    "column_expression",
    "literal_processor",
    "process_bind_param",
    "process_literal_param",
    "process_result_value",
    "result_processor",
)


def refuse_conversions(type_: type[Any], base: type[Any]) -> None:
    """Refuse a subclass of the column type *base* that converts ids: comparisons and look-ups do so by the format.

    :raises ConfigurationError: with the remedy.
    """
    own = [name for name in _CONVERSIONS if getattr(type_, name) is not getattr(base, name)]
    if own:
        raise ConfigurationError(
            f"{type_.__name__} has its own {', '.join(own)}, but ids are stored, compared and read as their format "
            f"says; write a subclass of Format instead"
        )


def refuse_variant(format: Format, variant: Any) -> None:
    """Refuse the type *variant* for one database if it, or the ids of *format*, are stored as numbers.

    An id that is compared is sent as what the first type stores.

    :raises ConfigurationError: with the remedy.
    """
    if format.is_native or getattr(getattr(variant, "id_format", None), "is_native", False):
        raise ConfigurationError(
            f"with_variant() would store ids of {format!r} in two ways, one of which is numbers, and no comparison "
            f'would find those of the variant; leave it out, or store them as text everywhere, with storage="text"'
        )
