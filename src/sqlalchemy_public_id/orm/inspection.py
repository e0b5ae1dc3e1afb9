"""The public ids of a mapped model."""

from __future__ import annotations

import weakref
from typing import Any, cast

from sqlalchemy import Column, inspect
from sqlalchemy.orm import InstanceState, Mapper

from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.types import is_public_id

__all__ = [
    "BIGINT_KEY",
    "MIXED_IN",
    "id_attributes",
    "identifier",
    "ids_of_union",
]

BIGINT_KEY = "sqlalchemy_public_id.bigint_key"
"""In the ``info`` of a column: :func:`~sqlalchemy_public_id.bigint_key` has made it."""

MIXED_IN = "sqlalchemy_public_id.mixed_in"
"""In the same place: it is the key that a mixin adds."""

_attributes: weakref.WeakKeyDictionary[Mapper[Any], dict[str, Column[Any]]] = weakref.WeakKeyDictionary()


def id_attributes(mapper: Mapper[Any]) -> dict[str, Column[Any]]:
    """Return the public ids of *mapper*, attribute → column; those of the models that it inherits from included."""
    found = _attributes.get(mapper)
    if found is None:
        found = {prop.key: prop.columns[0] for prop in mapper.column_attrs if is_public_id(prop.columns[0])}
        if mapper.configured:  # until then, attributes can come to it
            _attributes[mapper] = found
    return found


def identifier(model: Any, attribute: str | None = None) -> tuple[str, Column[Any]]:
    """Return the name and the column of a public id of *model*: the one named, the only one, or ``public_id``.

    :raises ConfigurationError: if there is none, or if there are several and none is named.
    """
    mapper = cast("Mapper[Any] | InstanceState[Any] | None", inspect(model, raiseerr=False))
    if not isinstance(mapper, Mapper):
        but = f", but an object of one: pass {type(model).__name__}" if mapper is not None else ""
        raise ConfigurationError(f"{shown(model)} is not a mapped class{but}")
    attributes = id_attributes(mapper) or ids_of_union(mapper)
    if not attributes:
        raise ConfigurationError(
            f"{mapper.class_.__name__} has no public id; add PublicIdMixin or public_id_column() to it"
        )
    if attribute is None:
        attribute = next(iter(attributes)) if len(attributes) == 1 else "public_id"
    if attribute not in attributes:
        raise ConfigurationError(
            f"{mapper.class_.__name__} has no public id {shown(attribute)}; name one of {', '.join(attributes)} "
            f"with attribute=…"
        )
    return attribute, attributes[attribute]


def ids_of_union(mapper: Mapper[Any]) -> dict[str, Column[Any]]:
    """Return the public ids that all concrete tables below *mapper* have, which selects from the union of them."""
    below = [each for each in mapper.self_and_descendants if each is not mapper]
    columns = {prop.key: prop.columns[0] for prop in mapper.column_attrs}
    return {
        name: column
        for name, column in columns.items()
        if isinstance(column, Column) and below and all(name in id_attributes(each) for each in below)
    }
