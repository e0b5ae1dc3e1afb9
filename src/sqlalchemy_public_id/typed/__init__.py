"""Typed ids: a separate type for the public ids of each kind of object.

>>> from sqlalchemy_public_id import NanoId, TypedId
>>> class InvoiceId(TypedId, prefix="inv", format=NanoId(length=10)): ...
>>> new = InvoiceId()
>>> checked = InvoiceId("inv_3k9x0a7b2c")
>>> TypedId.parse("inv_3k9x0a7b2c")
'inv_3k9x0a7b2c'

A typed id is a :class:`str` whose text is well-formed. It compares, hashes, prints, pickles and serializes to JSON like
any string, and mypy and pyright reject an ``OrderId`` where an ``InvoiceId`` is expected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from typing_extensions import Self

from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId
from sqlalchemy_public_id.formats import Format, NanoId
from sqlalchemy_public_id.registry import typed_ids

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["TypedId"]

_NEW: Final[Any] = object()


class TypedId(str):
    """Base class of typed ids. Call a subclass without arguments to generate an id, or with a string to validate it.

    A type whose format is one of UUIDs takes a :class:`uuid.UUID`, too. The ``repr()`` of an id is the one of its text,
    so that equal ids make equal keys of a cache, such as ``f"cart:{ids}"``; its prefix shows its type.

    :param prefix: the prefix of the ids, such as ``"cus"``; it can be set in *format* instead.
    :param format: the format of the ids; :class:`NanoId` by default.
    :param aliases: former prefixes, whose ids remain valid.
    :raises DuplicatePrefix: at declaration, if another type has this prefix, or one that is ambiguous with it.
    """

    __slots__ = ("_parsed_by",)

    _parsed_by: str
    """The name of the Pydantic field that has parsed the id from a string."""
    id_format: ClassVar[Format]
    """The format of the type's ids, prefix included. (``format`` is a method of :class:`str`.)"""
    prefix: ClassVar[str]
    """The prefix of new ids of the type."""

    def __init_subclass__(
        cls, *, prefix: str | None = None, format: Format | None = None, aliases: tuple[str, ...] = (), **kwargs: Any
    ) -> None:
        if kwargs:
            raise ConfigurationError(
                f"{cls.__name__} has no option {', '.join(kwargs)}; TypedId takes prefix, format and aliases, "
                f"and length and alphabet belong to the format: format=NanoId(length=8)"
            )
        super().__init_subclass__()
        if prefix is None and format is None:
            if aliases:
                raise ConfigurationError(f"{cls.__name__} has aliases but no prefix; write prefix=... as well")
            return  # an abstract type, whose subclasses have prefixes
        if isinstance(aliases, str):
            raise ConfigurationError(f"{cls.__name__}: aliases is {aliases!r}, expected a tuple: ({aliases!r},)")
        cls.id_format = _format_of(cls, prefix, format, aliases)
        cls.prefix = str(cls.id_format.prefix)
        typed_ids.claim(cls, cls.id_format)

    def __new__(cls, text: str | UUID = _NEW) -> Self:
        if type(text) is cls:
            return text
        format = getattr(cls, "id_format", None)
        if format is None:
            raise ConfigurationError(
                f"{cls.__name__} has no prefix, so it has no ids; "
                f'declare a type with one: class CustomerId({cls.__name__}, prefix="cus"): ...'
            )
        return str.__new__(cls, format.generate() if text is _NEW else format.validate(text, field=cls.__name__))

    @classmethod
    def parse(cls, text: str, field: str | None = None) -> Self:
        """Return *text* as a typed id: of this type, or of the subclass that has its prefix.

        :raises InvalidPublicId: if no such type has the prefix, or the id is malformed.
        """
        owner = typed_ids.owner_of(text)
        if owner is not None and issubclass(owner, cls):
            return str.__new__(owner, owner.id_format.validate(text))
        format = getattr(cls, "id_format", None)
        expected = format.expected if format else f"an id of a declared {cls.__name__} type"
        reason = f"it is of type {owner.__name__}" if owner else "no type has ids like this"
        raise InvalidPublicId(text, expected=expected, reason=reason, field=field)

    def __getstate__(self) -> object:
        """Leave the name of the field out of pickles and copies, which are no longer a part of a request."""
        return getattr(self, "__dict__", None) or None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> Any:
        """Return the schema of a Pydantic field, which accepts ids of this type only."""
        from sqlalchemy_public_id.typed import schema  # called by Pydantic, so it is installed

        check = cls if hasattr(cls, "id_format") else cls.parse
        return schema.core_schema_of(check, mark_parsed, name=cls.__name__, field=handler.field_name)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: object, handler: object) -> dict[str, Any]:
        """Return the JSON schema of a Pydantic field, with pattern, lengths and an example."""
        from sqlalchemy_public_id.typed import schema

        return schema.json_schema_of(getattr(cls, "id_format", None))


def mark_parsed(public_id: str, field: str | None) -> None:
    """Note that *field* of a Pydantic model has parsed *public_id*. A plain string cannot know it."""
    if field is not None and isinstance(public_id, TypedId):
        public_id._parsed_by = field  # pyright: ignore[reportPrivateUsage]  # private to users, not to us


def field_that_parsed(value: object) -> str | None:
    """Return the name of the Pydantic field that has parsed *value*; ``None`` if it is not known."""
    return getattr(value, "_parsed_by", None) if isinstance(value, TypedId) else None


def _format_of(cls: type[TypedId], prefix: str | None, format: Format | None, aliases: tuple[str, ...]) -> Format:
    if format is None:
        format = NanoId(prefix=prefix)
    elif not isinstance(format, Format):
        raise ConfigurationError(f"{cls.__name__}: format is {format!r}, expected a format such as NanoId(length=12)")
    elif prefix is not None and format.prefix not in (None, prefix):
        raise ConfigurationError(
            f"{cls.__name__} has two prefixes, {prefix!r} and {format.prefix!r} of its format; "
            f"for a former prefix write aliases=({format.prefix!r},)"
        )
    elif prefix is not None and format.prefix is None:
        format = format.prefixed(prefix)
    if format.prefix is None:
        raise ConfigurationError(f'{cls.__name__} has no prefix; write class {cls.__name__}(TypedId, prefix="...")')
    own = format.prefixed(format.prefix)
    return format.accepting(*(own.prefixed(alias) for alias in aliases)) if aliases else format
