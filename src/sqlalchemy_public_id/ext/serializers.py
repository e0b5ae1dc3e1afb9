"""What Pydantic's serializers make of values: the types that they say they return."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from pydantic import PlainSerializer, TypeAdapter, WrapSerializer
from pydantic_core import PydanticUndefined
from typing_extensions import get_type_hints

__all__ = ["Unsaid", "is_written_as_number", "of_fields", "of_model", "of_notes"]


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


def is_written_as_number(cls: type[Any]) -> bool:
    """Whether *cls*, of which nothing is known, tells Pydantic by itself that it becomes a number."""
    if not hasattr(cls, "__get_pydantic_core_schema__"):
        return False
    try:
        schema = TypeAdapter(cls).json_schema(mode="serialization")
    except Exception:  # it has no JSON schema, and the code that says so is its author's
        return False
    return schema.get("type") in ("integer", "number")


# --- inside


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
