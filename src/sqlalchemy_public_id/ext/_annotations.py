"""Read annotations of Pydantic fields: named types, and types that accept more of a relationship than was checked."""

from __future__ import annotations

import typing
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typing_extensions
from pydantic import AliasChoices, AliasPath, BaseModel, RootModel, SkipValidation
from pydantic.fields import FieldInfo
from typing_extensions import is_protocol, is_typeddict

from sqlalchemy_public_id.ext import _mapped
from sqlalchemy_public_id.typed import TypedId

NOT_VALIDATED = "what is not validated"
"""The name of ``SkipValidation`` in messages."""

_SKIP: Any = SkipValidation
_CONTAINERS: tuple[type[Any], ...] = (list, tuple, set, frozenset, dict, deque)
# before Python 3.15, ``type X = …`` and typing_extensions have different classes
_ALIASES: tuple[type[Any], ...] = (
    typing_extensions.TypeAliasType,
    getattr(typing, "TypeAliasType", typing_extensions.TypeAliasType),
)


def is_alias(annotation: Any) -> bool:
    """Return True if *annotation* is a ``TypeAliasType``, with or without arguments."""
    return isinstance(annotation, _ALIASES) or isinstance(get_origin(annotation), _ALIASES)


def aliased(annotation: Any) -> Any:
    """Return the value of the alias *annotation*, which may contain the alias again."""
    alias: Any = annotation if isinstance(annotation, _ALIASES) else get_origin(annotation)
    value = alias.__value__
    arguments: dict[Any, Any] = dict(zip(alias.__type_params__, get_args(annotation), strict=False))
    if isinstance(value, typing.TypeVar):
        return arguments.get(value, value)
    parameters: tuple[Any, ...] = getattr(value, "__parameters__", ())
    return value[tuple(arguments.get(one, one) for one in parameters)] if arguments and parameters else value


def read_paths(cls: type[BaseModel], name: str, field: FieldInfo) -> Iterator[tuple[str | int, ...]]:
    """Return the attribute paths that Pydantic reads *field* from, in the order in which it tries them."""
    config = cls.model_config
    alias = field.validation_alias
    if alias is not None and config.get("validate_by_alias", True):
        for choice in alias.choices if isinstance(alias, AliasChoices) else [alias]:
            yield tuple(choice.path) if isinstance(choice, AliasPath) else (choice,)
    if alias is None or config.get("validate_by_name") or config.get("populate_by_name"):
        yield (name,)


def unchecked_type(
    annotation: Any, checked: type[BaseModel], related: type[Any] | None, aliases: tuple[Any, ...] = ()
) -> str | None:
    """Return the name of the part of *annotation* that accepts a related object as it is, or ``None``.

    :param checked: the base of the models whose fields are checked.
    :param related: the class of the related object, or ``None`` before mappers are configured.
    :param aliases: the aliases around *annotation*, which ends recursion.
    """
    inner = _unwrapped(annotation)
    if is_alias(annotation):
        aliases, inner = (*aliases, annotation), inner if annotation not in aliases else []
    elif get_origin(annotation) is Annotated:
        if skips_validation(get_args(annotation)[1:]):
            return NOT_VALIDATED
    elif annotation is Any:
        return "Any"
    elif inner is None:
        inner, cls = list(get_args(annotation)), get_origin(annotation) or annotation
        if isinstance(cls, type) and _accepts_related(cls, checked, related, is_bare=not inner):
            return cls.__name__
    names = (unchecked_type(one, checked, related, aliases) for one in inner or ())
    return next((name for name in names if name is not None), None)


def shows_dictionary_keys(annotation: Any, id_note: type[Any], aliases: tuple[Any, ...] = ()) -> bool:
    """Return True if *annotation* shows the keys of a dictionary, and their type is not one of public ids.

    :param id_note: the class of the ``Annotated`` metadata that makes a type one of public ids.
    :param aliases: the aliases around *annotation*, which ends recursion.
    """
    if annotation in aliases:
        return False
    inner, cls = _unwrapped(annotation), get_origin(annotation) or annotation
    if inner is not None:
        return any(shows_dictionary_keys(one, id_note, (*aliases, annotation)) for one in inner)
    if not isinstance(cls, type) or cls is UnionType:
        return annotation is Any or any(shows_dictionary_keys(one, id_note, aliases) for one in get_args(annotation))
    if issubclass(cls, RootModel):
        return shows_dictionary_keys(cls.model_fields["root"].annotation, id_note, aliases)
    if cls is object or (not is_typeddict(annotation) and issubclass(cls, Mapping)):
        return not (get_args(annotation) and _is_public_id(get_args(annotation)[0], id_note))
    # Iterable, Collection and the like are satisfied by the dictionary itself, whose elements are its keys
    return cls.__module__ == "collections.abc" and not issubclass(cls, (Sequence, Set))


def skips_validation(metadata: Iterable[Any]) -> bool:
    """Return True if ``Annotated`` *metadata* contains ``SkipValidation``."""
    return any(note is _SKIP or isinstance(note, _SKIP) for note in metadata)


def _unwrapped(annotation: Any) -> list[Any] | None:
    """Return the types behind an alias, NewType, TypeVar or ``Annotated``; ``None`` for any other type."""
    if is_alias(annotation):
        return [aliased(annotation)]
    if hasattr(annotation, "__supertype__"):
        return [annotation.__supertype__]
    if isinstance(annotation, TypeVar):
        return list(annotation.__constraints__) or [annotation.__bound__ or Any]
    return [get_args(annotation)[0]] if get_origin(annotation) is Annotated else None


def _is_public_id(annotation: Any, id_note: type[Any]) -> bool:
    if get_origin(annotation) is Annotated and any(isinstance(note, id_note) for note in get_args(annotation)[1:]):
        return True
    inner = _unwrapped(annotation)
    if inner is not None:
        return all(_is_public_id(one, id_note) for one in inner)
    return isinstance(annotation, type) and issubclass(annotation, TypedId)


def _accepts_related(cls: type[Any], checked: type[BaseModel], related: type[Any] | None, *, is_bare: bool) -> bool:
    if cls is object or _mapped.mapper_of(cls) is not None:
        return True
    if issubclass(cls, BaseModel):
        return not issubclass(cls, checked)
    if cls.__module__ == "collections.abc" or (issubclass(cls, _CONTAINERS) and not hasattr(cls, "_fields")):
        return is_bare  # a container without arguments accepts any element
    return is_protocol(cls) or (related is not None and issubclass(related, cls))
