"""The typed ids in the type of a request's body: in dataclasses, typed dictionaries, structs and Pydantic models.

No package of these is imported: an application may have only some of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, get_args, get_origin

from typing_extensions import get_type_hints

from sqlalchemy_public_id.typed import TypedId

_WITH_FIELDS = ("__struct_fields__", "__attrs_attrs__", "__required_keys__")
"""An attribute of structs, of classes of attrs and of typed dictionaries."""


class FoundId(NamedTuple):
    """A typed id in the type of a body."""

    type_: type[TypedId]
    field: str | None
    """The name of the innermost field that contains it, as clients send it; ``None`` outside of fields."""
    unchecked_in: Any
    """The mapping whose keys it is, if msgspec converts the mapping, which calls no decoder for keys; else, ``None``.
    """


class _Part(NamedTuple):
    annotation: Any
    field: str | None = None
    unchecked_in: Any = None
    is_checked: bool = False
    """True inside a Pydantic model, which validates keys."""


def ids_in(annotation: Any) -> Iterator[FoundId]:
    """Yield each typed id in *annotation*, with its field."""
    parts = [_Part(annotation)]
    for part in parts:  # the list grows
        found = part.annotation
        if isinstance(found, type) and issubclass(found, TypedId):
            yield FoundId(found, part.field, part.unchecked_in)
            continue
        parts += [inner for inner in _inner(part) if inner not in parts]


def _inner(part: _Part) -> Iterator[_Part]:
    annotation = part.annotation
    aliased = getattr(annotation, "__value__", None) or getattr(annotation, "__supertype__", None)
    if aliased is not None:  # type Ids = list[CustomerId]; NewType
        yield part._replace(annotation=aliased)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        arguments = arguments[:1]
    is_mapping = isinstance(origin, type) and issubclass(origin, Mapping)
    for number, argument in enumerate(arguments):
        is_key = is_mapping and number == 0 and not part.is_checked
        yield part._replace(annotation=argument, unchecked_in=annotation if is_key else part.unchecked_in)
    model: Any = get_origin(annotation) or annotation
    is_checked = part.is_checked or _is_pydantic_model(model)  # Litestar reads dataclasses of Pydantic like others
    for name, inner in _fields_of(model).items():
        yield _Part(inner, name, None, is_checked)


def _fields_of(model: Any) -> dict[str, Any]:
    """Return the annotations of the fields of *model*, by the names that clients send; none if it has no fields."""
    if _is_pydantic_model(model):
        return {_alias(field) or name: field.annotation for name, field in model.model_fields.items()}
    if not dataclasses.is_dataclass(model) and not any(hasattr(model, name) for name in _WITH_FIELDS):
        return {}
    with suppress(Exception):  # an annotation is a name that cannot be evaluated here
        hints = get_type_hints(model, include_extras=True)
        own: Iterable[str] = getattr(model, "__struct_fields__", hints)
        sent: Iterable[str] = getattr(model, "__struct_encode_fields__", own)
        return {name: hints[field] for field, name in zip(own, sent, strict=True)}
    return {}


def _is_pydantic_model(model: Any) -> bool:
    return isinstance(model, type) and isinstance(getattr(model, "model_fields", None), Mapping)


def _alias(field: Any) -> str | None:
    alias = field.validation_alias
    return alias if isinstance(alias, str) else None
