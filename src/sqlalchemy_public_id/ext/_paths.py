"""The attributes of an object that the fields of a Pydantic model are read from."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import AliasChoices, AliasPath, BaseModel
from pydantic.fields import FieldInfo

__all__ = ["paths_of"]


def paths_of(cls: type[BaseModel], name: str, field: FieldInfo) -> Iterator[tuple[str | int, ...]]:
    """The attributes that *field* is read from, the first choice first."""
    config = cls.model_config
    alias = field.validation_alias
    if alias is not None and config.get("validate_by_alias", True):
        for choice in alias.choices if isinstance(alias, AliasChoices) else [alias]:
            yield tuple(choice.path) if isinstance(choice, AliasPath) else (choice,)
    if alias is None or config.get("validate_by_name") or config.get("populate_by_name"):
        yield (name,)
