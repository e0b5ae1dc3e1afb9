"""The integers inside a type: of Pydantic models, dataclasses, typed dicts and named tuples, nested in any way."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, ForwardRef, TypeVar, get_args, get_origin

from pydantic import AliasChoices, AliasPath, BaseModel, JsonValue, RootModel
from pydantic.fields import FieldInfo
from typing_extensions import NotRequired, ReadOnly, Required, get_type_hints, is_typeddict

from sqlalchemy_public_id.ext import serializers
from sqlalchemy_public_id.ext.aliases import aliased, is_alias

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
    is_apart: bool = False
    """Whether the names are not its own, but those of a mapping or a tuple that it is one part of."""


def integers(
    annotation: Any, found: Found = Found(), inside: tuple[Any, ...] = (), *, taken: bool = False
) -> Iterator[Found]:
    """The integers in the type *annotation* of what is described by *found*, and other numbers that have a name.

    :param inside: the types that hold it.
    :param taken: whether it comes in, so that fields left out of what is shown count, and computed ones and serializers
        do not.
    """
    annotation = _plain(annotation, taken)
    if annotation in inside:
        return
    if is_alias(annotation) and annotation is not JsonValue:
        yield from integers(aliased(annotation), found, (*inside, annotation), taken=taken)
        return
    origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
    kind: Any = origin if isinstance(origin, type) else type(None)
    if annotation in (Any, object, JsonValue) or isinstance(annotation, (str, ForwardRef)):
        yield dataclasses.replace(found, advice="declare its type")
    elif annotation is serializers.Unsaid:
        yield dataclasses.replace(found, advice="give its serializer a return type")
    elif _is_record(kind):
        is_root = issubclass(kind, RootModel)
        whole = None if taken else serializers.of_model(kind)
        if whole is not None:
            yield from integers(whole[0], found, (*inside, annotation))
        for name, names, inner in _fields(kind, arguments, taken) if whole is None or not whole[1] else ():
            field = Found(f"{found.path}.{name}".lstrip("."), names, kind)
            yield from integers(inner, found if is_root else field, (*inside, annotation), taken=taken)
    elif issubclass(kind, int):
        if not issubclass(kind, (bool, enum.Enum)):
            yield found
    elif issubclass(kind, (float, Decimal)):
        if found.names:
            yield dataclasses.replace(found, is_apart=False)
    elif issubclass(kind, Collection) and not issubclass(kind, (str, bytes, bytearray)):
        if not arguments:
            yield dataclasses.replace(found, advice="declare the type of what it contains")
        if issubclass(kind, Mapping) and arguments:
            if any(integers(arguments[0], inside=inside)):
                yield dataclasses.replace(found, advice="make its keys public ids, or other texts")
            arguments = arguments[1:]
        is_apart = issubclass(kind, Mapping) or (issubclass(kind, tuple) and Ellipsis not in arguments)
        part = dataclasses.replace(found, path=f"{found.path}[]", is_apart=found.is_apart or is_apart)
        for argument in arguments:
            yield from integers(argument, part, inside, taken=taken)
    elif not arguments and not taken and serializers.is_written_as_number(kind):
        yield found
    else:
        for argument in arguments:  # of a union
            yield from integers(argument, found, inside, taken=taken)


# --- inside


def _plain(annotation: Any, taken: bool) -> Any:
    """*annotation* without the names and notes that it was given; what comes of it, where it goes out."""
    while True:
        if hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif isinstance(annotation, TypeVar):
            annotation = annotation.__bound__ or Any
        elif get_origin(annotation) is Annotated:
            annotation, *notes = get_args(annotation)
            shown = None if taken else serializers.of_notes(notes)
            annotation = annotation if shown is None else shown
        elif get_origin(annotation) in (NotRequired, ReadOnly, Required):
            annotation = get_args(annotation)[0]
        else:
            return annotation


def _is_record(cls: Any) -> bool:
    if dataclasses.is_dataclass(cls) or is_typeddict(cls) or issubclass(cls, BaseModel):
        return True
    return hasattr(cls, "_fields") and issubclass(cls, tuple)


def _fields(cls: Any, arguments: tuple[Any, ...], taken: bool) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Name, all names and type of each field of a class that is a record."""
    shown = {} if taken else serializers.of_fields(cls)
    for name, names, inner in _declared(cls, arguments, taken):
        yield name, names, shown.get(name, shown.get("*", inner))


def _declared(cls: Any, arguments: tuple[Any, ...], taken: bool) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """The same, without its serializers."""
    if not issubclass(cls, BaseModel):
        given: dict[Any, Any] = dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))
        for name, hint in get_type_hints(cls, include_extras=True).items():
            yield name, (name,), given.get(hint, hint) if isinstance(hint, TypeVar) else hint
        return
    for name, field in cls.model_fields.items():
        if taken or not field.exclude:
            noted = None if taken else serializers.of_notes(field.metadata)
            yield name, _names(name, field), field.annotation if noted is None else noted
    for name, computed in () if taken else cls.model_computed_fields.items():
        yield name, (name, computed.alias or name), computed.return_type
    if cls.model_config.get("extra") == "allow":
        yield "*", (), Any


def _names(name: str, field: FieldInfo) -> tuple[str, ...]:
    alias = field.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    read = [str(choice.path[-1]) if isinstance(choice, AliasPath) else choice for choice in choices]
    return tuple(dict.fromkeys(one for one in (name, *read, field.alias, field.serialization_alias) if one))
