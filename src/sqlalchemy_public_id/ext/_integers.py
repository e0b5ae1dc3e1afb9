"""The integers inside a type: of Pydantic models, dataclasses, typed dicts and named tuples, nested in any way."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, JsonValue, RootModel
from typing_extensions import NotRequired, ReadOnly, Required

from sqlalchemy_public_id.ext import _records, _serializers
from sqlalchemy_public_id.ext._aliases import aliased, is_alias
from sqlalchemy_public_id.typed import TypedId

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
    is_coerced: bool = False
    """True if its texts may be made of numbers."""


def integers(
    annotation: Any, found: Found = Found(), inside: tuple[Any, ...] = (), *, taken: bool = False
) -> Iterator[Found]:
    """The integers in the type *annotation* of what is described by *found*, and other numbers that have a name.

    :param inside: the types that hold it.
    :param taken: whether it comes in, so that fields left out of what is shown count, and computed ones and serializers
        do not.
    """
    annotation, notes = _plain(annotation, taken)
    if annotation in inside:
        return
    if not taken and _serializers.is_written_by_class(notes):
        yield dataclasses.replace(found, advice=_serializers.NAME_THE_MODELS)
        # the fields of the class that is declared are shown in any case
        inner = _inside(annotation, found, inside, taken)
        yield from (each for each in inner if not each.advice or each.path != found.path)
    else:
        found = dataclasses.replace(found, is_coerced=_serializers.is_coerced(notes, default=found.is_coerced))
        yield from _inside(annotation, found, inside, taken)


# --- inside

_NUMBERS = (int, float, Decimal)


def _inside(annotation: Any, found: Found, inside: tuple[Any, ...], taken: bool) -> Iterator[Found]:
    """The same, of an *annotation* without notes."""
    if is_alias(annotation) and annotation is not JsonValue:
        yield from integers(aliased(annotation), found, (*inside, annotation), taken=taken)
        return
    origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
    kind: Any = origin if isinstance(origin, type) else type(None)
    if annotation in (Any, object, JsonValue) or isinstance(annotation, (str, ForwardRef)):
        yield dataclasses.replace(found, advice="declare its type")
    elif annotation is BaseModel:
        yield dataclasses.replace(found, advice=_serializers.NAME_THE_MODELS)
    elif annotation is _serializers.Unsaid:
        yield dataclasses.replace(found, advice="give its serializer a return type")
    elif origin is Literal or issubclass(kind, enum.Enum):
        members: Iterable[Any] = arguments or kind
        values = (member.value if isinstance(member, enum.Enum) else member for member in members)
        if found.names and any(isinstance(each, _NUMBERS) and not isinstance(each, bool) for each in values):
            yield dataclasses.replace(found, is_apart=False)
    elif _records.is_record(kind):
        yield from _of_record(annotation, kind, arguments, found, (*inside, annotation), taken)
    elif issubclass(kind, int):
        if not issubclass(kind, bool):
            yield found
    elif issubclass(kind, (float, Decimal)) or (found.is_coerced and _is_text(kind)):
        if found.names:
            yield dataclasses.replace(found, is_apart=False)
    elif _is_collection(kind):
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
    elif arguments:  # a union
        for argument in arguments:
            yield from integers(argument, found, inside, taken=taken)
    elif not taken:
        written = _serializers.written_as(kind)
        if written is None:
            yield dataclasses.replace(found, advice="declare a type that Pydantic describes")
        elif written in ("integer", "number"):
            yield found


def _of_record(
    annotation: Any, kind: Any, arguments: tuple[Any, ...], found: Found, inside: tuple[Any, ...], taken: bool
) -> Iterator[Found]:
    """The integers in a class that has fields."""
    config = _records.config_of(kind)
    whole = None if taken else _serializers.of_model(kind)
    is_root, is_coerced = issubclass(kind, RootModel), bool(config.get("coerce_numbers_to_str"))
    if config.get("polymorphic_serialization") and not taken:
        yield dataclasses.replace(found, advice=_serializers.NAME_THE_MODELS)
    if whole is not None:
        yield from integers(whole[0], found, inside)
    for name, names, inner in _records.fields(kind, arguments, taken) if whole is None or not whole[1] else ():
        field = Found(f"{found.path}.{name}".lstrip("."), names, kind, is_coerced=is_coerced)
        yield from integers(inner, found if is_root else field, inside, taken=taken)


def _plain(annotation: Any, taken: bool) -> tuple[Any, list[Any]]:
    """*annotation* without the names that it was given, or what comes of it where it goes out; and its notes."""
    notes: list[Any] = []
    while True:
        if hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif isinstance(annotation, TypeVar):
            if annotation.__bound__ is not None:
                notes = [_serializers.BY_CLASS, *notes]  # so Pydantic writes what takes the place of the variable
            annotation = annotation.__bound__ or Any
        elif get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            shown = None if taken else _serializers.of_notes(more)
            annotation, notes = (annotation, [*more, *notes]) if shown is None else (shown, [])
        elif get_origin(annotation) in (NotRequired, ReadOnly, Required):
            annotation = get_args(annotation)[0]
        else:
            return annotation, notes


def _is_collection(kind: type[Any]) -> bool:
    if issubclass(kind, (str, bytes, bytearray)):
        return False
    return issubclass(kind, Collection) or kind.__module__ == "collections.abc"


def _is_text(kind: type[Any]) -> bool:
    return issubclass(kind, str) and not issubclass(kind, TypedId)
