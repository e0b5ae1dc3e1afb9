"""Names for types: ``type X = …`` of Python 3.12, and ``TypeAliasType`` of typing_extensions."""

from __future__ import annotations

import typing
from typing import Any, get_args, get_origin

import typing_extensions

__all__ = ["aliased", "is_alias"]

_KINDS: tuple[type[Any], ...] = (
    typing_extensions.TypeAliasType,
    getattr(typing, "TypeAliasType", typing_extensions.TypeAliasType),  # another class, before Python 3.15
)


def is_alias(annotation: Any) -> bool:
    """Whether *annotation* is a name for another type, with or without arguments."""
    return isinstance(annotation, _KINDS) or isinstance(get_origin(annotation), _KINDS)


def aliased(annotation: Any) -> Any:
    """The type that the alias *annotation* stands for, which may hold the alias again."""
    alias: Any = annotation if isinstance(annotation, _KINDS) else get_origin(annotation)
    value = alias.__value__
    given: dict[Any, Any] = dict(zip(alias.__type_params__, get_args(annotation), strict=False))
    if isinstance(value, typing.TypeVar):
        return given.get(value, value)
    needed: tuple[Any, ...] = getattr(value, "__parameters__", ())
    return value[tuple(given.get(each, each) for each in needed)] if given and needed else value
