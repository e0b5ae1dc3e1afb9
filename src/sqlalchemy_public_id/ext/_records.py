"""The fields of the classes that Pydantic writes field by field: models, dataclasses, typed dicts and named tuples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar, cast

from pydantic import AliasChoices, AliasPath, BaseModel
from pydantic.fields import FieldInfo
from typing_extensions import get_type_hints, is_typeddict

from sqlalchemy_public_id.ext import _serializers

__all__ = ["config_of", "fields", "is_record"]


def is_record(cls: Any) -> bool:
    """Return True if *cls* has fields."""
    if dataclasses.is_dataclass(cls) or is_typeddict(cls) or issubclass(cls, BaseModel):
        return True
    return hasattr(cls, "_fields") and issubclass(cls, tuple)


def config_of(cls: Any) -> Mapping[str, Any]:
    """The configuration that Pydantic has for *cls*."""
    config = getattr(cls, "model_config" if issubclass(cls, BaseModel) else "__pydantic_config__", None)
    return cast("Mapping[str, Any]", config or {})


def fields(cls: Any, arguments: tuple[Any, ...], taken: bool) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Name, all names and type of each field of a class that is a record."""
    shown = {} if taken else _serializers.of_fields(cls)
    for name, names, inner in _declared(cls, arguments, taken):
        yield name, names, shown.get(name, shown.get("*", inner))


# --- inside

_ANNOTATED: Any = Annotated
"""With as many notes as there are, which type checkers cannot read."""


def _declared(cls: Any, arguments: tuple[Any, ...], taken: bool) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """The same, without its serializers."""
    if config_of(cls).get("extra") == "allow":
        yield "*", (), Any
    if not issubclass(cls, BaseModel):
        given: dict[Any, Any] = dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))
        for name, hint in get_type_hints(cls, include_extras=True).items():
            yield name, (name,), given.get(hint, hint) if isinstance(hint, TypeVar) else hint
        return
    for name, field in cls.model_fields.items():
        if taken or not field.exclude:
            noted = (field.annotation, *field.metadata)
            yield name, _names(name, field), _ANNOTATED[noted] if field.metadata else field.annotation
    for name, computed in () if taken else cls.model_computed_fields.items():
        yield name, (name, computed.alias or name), computed.return_type


def _names(name: str, field: FieldInfo) -> tuple[str, ...]:
    alias = field.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    read = [str(choice.path[-1]) if isinstance(choice, AliasPath) else choice for choice in choices]
    return tuple(dict.fromkeys(one for one in (name, *read, field.alias, field.serialization_alias) if one))
