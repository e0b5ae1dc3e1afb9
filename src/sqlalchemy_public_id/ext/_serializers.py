"""What Pydantic's serializers make of values: the types that they say they return."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, cast
from uuid import UUID

from pydantic import (
    BeforeValidator,
    InstanceOf,
    PlainSerializer,
    PlainValidator,
    SerializeAsAny,
    SkipValidation,
    TypeAdapter,
    WrapSerializer,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import get_type_hints

from sqlalchemy_public_id.ext.pydantic import PublicId

__all__ = [
    "BY_CLASS",
    "NAME_THE_MODELS",
    "Unsaid",
    "is_coerced",
    "is_written_by_class",
    "of_fields",
    "of_model",
    "of_notes",
    "written_as",
]

_AS_ANY: Any = SerializeAsAny
BY_CLASS = _AS_ANY()
"""The note on a type whose values are written by the class that they have."""
NAME_THE_MODELS = "name the models that it may be"
"""The advice for what is written by the class that it has, and not by the one that is declared."""


class Unsaid:
    """What a serializer returns that does not say it."""


def of_notes(notes: Iterable[Any]) -> Any:
    """What the last serializer among the *notes* of an ``Annotated`` type returns; ``None`` where there is none."""
    for note in reversed([*notes]):
        if isinstance(note, (PlainSerializer, WrapSerializer)):
            return _returned(note.return_type, note.func)
    return None


def of_fields(cls: type[Any]) -> dict[str, Any]:
    """Field name → what its ``@field_serializer`` returns; ``*`` stands for all fields."""
    serializers: dict[str, Any] = getattr(_decorators(cls), "field_serializers", {})
    return {name: _returned(one.info.return_type, one.func) for one in serializers.values() for name in one.info.fields}


def of_model(cls: type[Any]) -> tuple[Any, bool] | None:
    """What the ``@model_serializer`` of *cls* returns, and whether it is there instead of the fields."""
    serializers: dict[str, Any] = getattr(_decorators(cls), "model_serializers", {})
    for one in reversed(serializers.values()):
        return _returned(one.info.return_type, one.func), one.info.mode == "plain"
    return None


def is_written_by_class(notes: Iterable[Any]) -> bool:
    """Return True if the *notes* of a type have a value written by the class that it has, or not validated."""
    last = next((note for note in reversed([*notes]) if isinstance(note, _SERIALIZERS)), None)
    return last is not None and not isinstance(last, (PlainSerializer, WrapSerializer))


def is_coerced(notes: Iterable[Any], *, default: bool) -> bool:
    """Return True if the *notes* of a text make it of numbers, False if they check it, *default* if they do neither."""
    found = default
    for note in notes:
        inner: list[Any] = note.metadata if isinstance(note, FieldInfo) else [note]
        is_text = isinstance(note, (BeforeValidator, PlainValidator)) and cast("object", note.func) is str
        found = found or is_text or any(getattr(each, "coerce_numbers_to_str", False) for each in inner)
        found = found and not isinstance(note, PublicId)
    return found


def written_as(cls: type[Any]) -> str | None:
    """The JSON type of what Pydantic writes for *cls*; ``None`` if that may be anything."""
    if issubclass(cls, _TEXTS) and not hasattr(cls, "__get_pydantic_core_schema__"):
        return "string"
    try:
        schema = TypeAdapter(cls).json_schema(mode="serialization")
    except Exception:  # it has no JSON schema, and the code that says so is its author's
        return "" if hasattr(cls, "__get_pydantic_core_schema__") else None
    return str(schema.get("type", "")) if schema else None


# --- inside

_SERIALIZERS: tuple[Any, ...] = (PlainSerializer, WrapSerializer, SerializeAsAny, SkipValidation, InstanceOf)
_TEXTS = (str, bytes, bytearray, datetime.date, datetime.time, datetime.timedelta, UUID, PurePath, type(None))


def _decorators(cls: type[Any]) -> Any:
    """What Pydantic's documentation calls the metadata of the decorators of a model; its dataclasses have it too."""
    return getattr(cls, "__pydantic_decorators__", None)


def _returned(said: Any, function: Any) -> Any:
    if said is not PydanticUndefined:
        return said
    if isinstance(function, type):  # PlainSerializer(str)
        return cast("type[Any]", function)
    try:
        return get_type_hints(function, include_extras=True).get("return", Unsaid)
    except Exception:  # it has no signature, or the name of a type that is not there at run time
        return Unsaid
