"""The integers inside a type: of Pydantic models, dataclasses, typed dicts and named tuples, nested in any way."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import AliasChoices, AliasPath, BaseModel, RootModel
from pydantic.fields import FieldInfo
from typing_extensions import TypeAliasType, get_type_hints, is_typeddict

__all__ = ["Found", "integers"]


@dataclasses.dataclass(frozen=True)
class Found:
    """An integer, or something that may be or hold one."""

    path: str = ""
    """The way to it, such as ``items[].customer.id``; empty for the whole."""
    names: tuple[str, ...] = ()
    """What it is called, inside the program and outside."""
    owner: type[Any] | None = None
    """The class that it is a field of."""
    advice: str = ""
    """What to write, where nothing can be told of it; empty for an integer."""


def integers(annotation: Any, found: Found = Found(), inside: tuple[Any, ...] = ()) -> Iterator[Found]:
    """The integers in the type *annotation* of what is described by *found*. *inside* are the types that hold it."""
    annotation = _plain(annotation)
    if annotation in inside:
        return
    origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
    kind: Any = origin if isinstance(origin, type) else type(None)
    if annotation is Any or annotation is object:
        yield dataclasses.replace(found, advice="declare its type")
    elif _is_record(kind):
        is_root = issubclass(kind, RootModel)
        for name, names, inner in _fields(kind, arguments):
            field = Found(f"{found.path}.{name}".lstrip("."), names, kind)
            yield from integers(inner, found if is_root else field, (*inside, annotation))
    elif issubclass(kind, int):
        if not issubclass(kind, (bool, enum.Enum)):
            yield found
    elif issubclass(kind, Collection) and not issubclass(kind, (str, bytes, bytearray)):
        if not arguments:
            yield dataclasses.replace(found, advice="declare the type of what it contains")
        for argument in arguments[1:] if issubclass(kind, Mapping) else arguments:
            yield from integers(argument, dataclasses.replace(found, path=f"{found.path}[]"), inside)
    else:
        for argument in arguments:  # of a union
            yield from integers(argument, found, inside)


# --- inside


def _plain(annotation: Any) -> Any:
    """*annotation* without the names and notes that it was given."""
    while True:
        if isinstance(annotation, TypeAliasType):
            annotation = annotation.__value__
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif isinstance(annotation, TypeVar):
            annotation = annotation.__bound__ or Any
        elif get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        else:
            return annotation


def _is_record(cls: Any) -> bool:
    if dataclasses.is_dataclass(cls) or is_typeddict(cls) or issubclass(cls, BaseModel):
        return True
    return hasattr(cls, "_fields") and issubclass(cls, tuple)


def _fields(cls: Any, arguments: tuple[Any, ...]) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Name, all names and type of each field of a class that is a record."""
    if not issubclass(cls, BaseModel):
        given: dict[Any, Any] = dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))
        for name, hint in get_type_hints(cls).items():
            yield name, (name,), given.get(hint, hint) if isinstance(hint, TypeVar) else hint
        return
    for name, field in cls.model_fields.items():
        if not field.exclude:
            yield name, _names(name, field), field.annotation
    for name, computed in cls.model_computed_fields.items():
        yield name, (name, computed.alias or name), computed.return_type
    if cls.model_config.get("extra") == "allow":
        yield "*", (), Any


def _names(name: str, field: FieldInfo) -> tuple[str, ...]:
    alias = field.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    read = [str(choice.path[-1]) if isinstance(choice, AliasPath) else choice for choice in choices]
    return tuple(dict.fromkeys(one for one in (name, *read, field.alias, field.serialization_alias) if one))
