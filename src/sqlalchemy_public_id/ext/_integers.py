"""Find the integers inside a type: of Pydantic models, dataclasses, typed dicts and named tuples, nested in any way.

Annotations are read, and not the JSON schema. The schema has neither the class of a field nor its validation aliases.
It also hides ``SerializeAsAny``, bound type variables, strings made of numbers, serializers without a return type, and
every type that ``WithJsonSchema`` replaces: keys would leave unnoticed.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import PurePath
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, cast, get_args, get_origin
from uuid import UUID

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    InstanceOf,
    JsonValue,
    PlainSerializer,
    PlainValidator,
    RootModel,
    SerializeAsAny,
    SkipValidation,
    TypeAdapter,
    WrapSerializer,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import NotRequired, ReadOnly, Required, get_type_hints, is_typeddict

from sqlalchemy_public_id.ext._annotations import aliased, is_alias
from sqlalchemy_public_id.ext.pydantic import PublicId
from sqlalchemy_public_id.typed import TypedId


@dataclasses.dataclass(frozen=True)
class Value:
    """An integer, or a value that may be or contain one."""

    path: str = ""
    """The way to it, such as ``items[].customer.id``; empty for the whole."""
    names: tuple[str, ...] = ()
    """Its name and aliases."""
    owner: type[Any] | None = None
    """The class that it is a field of."""
    advice: str = ""
    """The declaration to add, if the type does not determine the value; empty for an integer."""
    is_element: bool = False
    """True for an element of a dict or tuple: *names* are those of the container."""
    coerces_numbers: bool = False
    """True if its strings may be made of numbers."""


def integers(
    annotation: Any, value: Value = Value(), outer: tuple[Any, ...] = (), *, is_input: bool = False
) -> Iterator[Value]:
    """Return the integers in the type *annotation* of *value*, and other numbers that have a name.

    :param outer: the types around it, which ends recursion.
    :param is_input: True for what a request contains: excluded fields count; computed ones and serializers do not.
    """
    annotation, metadata = _without_metadata(annotation, is_input)
    if annotation in outer:
        return
    if not is_input and _is_serialized_by_class(metadata):
        yield dataclasses.replace(value, advice=_NAME_THE_MODELS)
        # the fields of the declared class are shown in any case
        inner = _integers_of(annotation, value, outer, is_input)
        yield from (one for one in inner if not one.advice or one.path != value.path)
    else:
        coerces_numbers = _coerces_numbers(metadata, default=value.coerces_numbers)
        value = dataclasses.replace(value, coerces_numbers=coerces_numbers)
        yield from _integers_of(annotation, value, outer, is_input)


_NUMBERS = (int, float, Decimal)
_STRINGS = (str, bytes, bytearray, datetime.date, datetime.time, datetime.timedelta, UUID, PurePath, type(None))
_NAME_THE_MODELS = "name the models that it may be"
_ANNOTATED: Any = Annotated  # type checkers cannot read ``Annotated`` with a computed tuple
_AS_ANY: Any = SerializeAsAny
_SERIALIZERS: tuple[Any, ...] = (PlainSerializer, WrapSerializer, SerializeAsAny, SkipValidation, InstanceOf)


class _NoReturnType:
    """Marker: the serializer has no return annotation."""


def _integers_of(annotation: Any, value: Value, outer: tuple[Any, ...], is_input: bool) -> Iterator[Value]:
    """Return the same for an *annotation* without metadata."""
    if is_alias(annotation) and annotation is not JsonValue:
        yield from integers(aliased(annotation), value, (*outer, annotation), is_input=is_input)
        return
    origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
    cls: Any = origin if isinstance(origin, type) else type(None)
    if annotation in (Any, object, JsonValue) or isinstance(annotation, (str, ForwardRef)):
        yield dataclasses.replace(value, advice="declare its type")
    elif annotation is BaseModel:
        yield dataclasses.replace(value, advice=_NAME_THE_MODELS)
    elif annotation is _NoReturnType:
        yield dataclasses.replace(value, advice="give its serializer a return type")
    elif origin is Literal or issubclass(cls, enum.Enum):
        members: Iterable[Any] = arguments or cls
        constants = (member.value if isinstance(member, enum.Enum) else member for member in members)
        if value.names and any(isinstance(one, _NUMBERS) and not isinstance(one, bool) for one in constants):
            yield dataclasses.replace(value, is_element=False)
    elif _has_fields(cls):
        yield from _integers_of_fields(cls, arguments, value, (*outer, annotation), is_input)
    elif issubclass(cls, int):
        if not issubclass(cls, bool):
            yield value
    elif issubclass(cls, (float, Decimal)) or (
        value.coerces_numbers and issubclass(cls, str) and not issubclass(cls, TypedId)
    ):
        if value.names:
            yield dataclasses.replace(value, is_element=False)
    elif not issubclass(cls, (str, bytes, bytearray)) and (
        issubclass(cls, Collection) or cls.__module__ == "collections.abc"
    ):
        if not arguments:
            yield dataclasses.replace(value, advice="declare the type of its elements")
        if issubclass(cls, Mapping) and arguments:
            if any(integers(arguments[0], outer=outer)):
                yield dataclasses.replace(value, advice="make its keys public ids, or other strings")
            arguments = arguments[1:]
        # an element of a list has the name of the list: scores: list[int]
        is_element = issubclass(cls, Mapping) or (issubclass(cls, tuple) and Ellipsis not in arguments)
        element = dataclasses.replace(value, path=f"{value.path}[]", is_element=value.is_element or is_element)
        for argument in arguments:
            yield from integers(argument, element, outer, is_input=is_input)
    elif arguments:  # a union
        for argument in arguments:
            yield from integers(argument, value, outer, is_input=is_input)
    elif not is_input:
        json_type = _json_type(cls)
        if json_type is None:
            yield dataclasses.replace(value, advice="declare a type that Pydantic describes")
        elif json_type in ("integer", "number"):
            yield value


def _integers_of_fields(
    cls: Any, arguments: tuple[Any, ...], value: Value, outer: tuple[Any, ...], is_input: bool
) -> Iterator[Value]:
    config = _config_of(cls)
    decorators = None if is_input else getattr(cls, "__pydantic_decorators__", None)
    if config.get("polymorphic_serialization") and not is_input:
        yield dataclasses.replace(value, advice=_NAME_THE_MODELS)
    for serializer in [*getattr(decorators, "model_serializers", {}).values()][-1:]:
        yield from integers(_return_type(serializer.info.return_type, serializer.func), value, outer)
        if serializer.info.mode == "plain":
            return
    serialized = {
        name: _return_type(serializer.info.return_type, serializer.func)
        for serializer in getattr(decorators, "field_serializers", {}).values()
        for name in serializer.info.fields  # "*" stands for all fields
    }
    is_root, coerces_numbers = issubclass(cls, RootModel), bool(config.get("coerce_numbers_to_str"))
    for name, names, annotation in _fields_of(cls, arguments, is_input):
        field = Value(f"{value.path}.{name}".lstrip("."), names, cls, coerces_numbers=coerces_numbers)
        annotation = serialized.get(name, serialized.get("*", annotation))
        yield from integers(annotation, value if is_root else field, outer, is_input=is_input)


def _without_metadata(annotation: Any, is_input: bool) -> tuple[Any, list[Any]]:
    """Return the type behind NewType, TypeVar and ``Annotated``, or what its serializer returns; and its metadata."""
    metadata: list[Any] = []
    while True:
        if hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif isinstance(annotation, TypeVar):
            if annotation.__bound__ is not None:
                metadata = [_AS_ANY(), *metadata]  # Pydantic serializes a value of a bound TypeVar by its own class
            annotation = annotation.__bound__ or Any
        elif get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            serializers = [note for note in more if isinstance(note, (PlainSerializer, WrapSerializer))]
            last = None if is_input or not serializers else serializers[-1]
            returned = _return_type(last.return_type, last.func) if last is not None else None
            annotation, metadata = (annotation, [*more, *metadata]) if returned is None else (returned, [])
        elif get_origin(annotation) in (NotRequired, ReadOnly, Required):
            annotation = get_args(annotation)[0]
        else:
            return annotation, metadata


# --- classes with fields


def _has_fields(cls: Any) -> bool:
    if dataclasses.is_dataclass(cls) or is_typeddict(cls) or issubclass(cls, BaseModel):
        return True
    return hasattr(cls, "_fields") and issubclass(cls, tuple)


def _config_of(cls: Any) -> Mapping[str, Any]:
    config = getattr(cls, "model_config" if issubclass(cls, BaseModel) else "__pydantic_config__", None)
    return cast("Mapping[str, Any]", config or {})


def _fields_of(cls: Any, arguments: tuple[Any, ...], is_input: bool) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Return name, all names and annotation of each field."""
    if _config_of(cls).get("extra") == "allow":
        yield "*", (), Any
    if not issubclass(cls, BaseModel):
        variables: dict[Any, Any] = dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))
        for name, hint in get_type_hints(cls, include_extras=True).items():
            yield name, (name,), variables.get(hint, hint) if isinstance(hint, TypeVar) else hint
        return
    for name, field in cls.model_fields.items():
        if is_input or not field.exclude:
            annotated = (field.annotation, *field.metadata)
            yield name, _names_of(name, field), _ANNOTATED[annotated] if field.metadata else field.annotation
    for name, computed in () if is_input else cls.model_computed_fields.items():
        yield name, (name, computed.alias or name), computed.return_type


def _names_of(name: str, field: FieldInfo) -> tuple[str, ...]:
    alias = field.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    read = [str(choice.path[-1]) if isinstance(choice, AliasPath) else choice for choice in choices]
    return tuple(dict.fromkeys(one for one in (name, *read, field.alias, field.serialization_alias) if one))


# --- serializers


def _return_type(declared: Any, function: Any) -> Any:
    """Return the return type of a serializer: the *declared* one, or that of its *function*."""
    if declared is not PydanticUndefined:
        return declared
    if isinstance(function, type):  # PlainSerializer(str)
        return cast("type[Any]", function)
    try:
        return get_type_hints(function, include_extras=True).get("return", _NoReturnType)
    except Exception:  # it has no signature, or its annotation is undefined at run time
        return _NoReturnType


def _is_serialized_by_class(metadata: Iterable[Any]) -> bool:
    """Return True if a value is serialized by its own class and not by the declared one, or is not validated."""
    last = next((note for note in reversed([*metadata]) if isinstance(note, _SERIALIZERS)), None)
    return last is not None and not isinstance(last, (PlainSerializer, WrapSerializer))


def _coerces_numbers(metadata: Iterable[Any], *, default: bool) -> bool:
    """Return True if *metadata* of a string makes it of numbers, False if it is a public id, else *default*."""
    coerces = default
    for note in metadata:
        constraints: list[Any] = note.metadata if isinstance(note, FieldInfo) else [note]
        is_str = isinstance(note, (BeforeValidator, PlainValidator)) and cast("object", note.func) is str
        coerces = coerces or is_str or any(getattr(one, "coerce_numbers_to_str", False) for one in constraints)
        coerces = coerces and not isinstance(note, PublicId)
    return coerces


def _json_type(cls: type[Any]) -> str | None:
    """Return the JSON type that Pydantic serializes *cls* to, empty if unknown; ``None`` if it may be any."""
    if issubclass(cls, _STRINGS) and not hasattr(cls, "__get_pydantic_core_schema__"):
        return "string"
    try:
        schema = TypeAdapter(cls).json_schema(mode="serialization")
    except Exception:  # there is no JSON schema; the author's code may raise any error
        return "" if hasattr(cls, "__get_pydantic_core_schema__") else None
    return str(schema.get("type", "")) if schema else None
