"""The events of a mapper with public ids: set up if it is configured, checked if its model declares two of a kind."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import Column, FromClause, Table, event
from sqlalchemy.engine import Connection
from sqlalchemy.orm import InstanceState, Mapper

from sqlalchemy_public_id import registry
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.events.attributes import listen_to_attribute, on_expire, refuse_another_id
from sqlalchemy_public_id.events.flush import ensure_ids
from sqlalchemy_public_id.events.merges import watch_merges
from sqlalchemy_public_id.orm.inspection import MIXED_IN, id_attributes
from sqlalchemy_public_id.types import is_copy, public_id_type


def on_mapper_configured(mapper: Mapper[Any], model: type[Any]) -> None:
    """Set up a mapper with public ids.

    :raises ConfigurationError: if the model declares an id or a key twice.
    """
    attributes = id_attributes(mapper)
    if _is_declared_here(mapper, model):
        _refuse_two_declarations(mapper, model, attributes)
    if not attributes:
        return
    for key, column in attributes.items():
        listen_to_attribute(mapper.class_manager[key], column)
    watch_merges(mapper, attributes)
    inherited = id_attributes(mapper.inherits).values() if mapper.inherits is not None else ()
    own = [column for column in attributes.values() if not any(column is other for other in inherited)]
    if not own and "__public_id__" in vars(model):
        raise ConfigurationError(
            f"{model.__name__} has the public id of the model it inherits from, and cannot have another format for it; "
            f"remove __public_id__"
        )
    for column in own:
        registry.remember_model(column.table, column.key, model)
    originals = [column for column in own if not is_copy(column)]
    if originals:
        owner = _owner(mapper)
        registry.models(mapper.registry).claim(owner, *(public_id_type(column).id_format for column in originals))

    def before_insert(_: Mapper[Any], connection: Connection, state: InstanceState[Any]) -> None:
        ensure_ids((state,), attributes, connection)

    def before_update(_: Mapper[Any], connection: Connection, state: InstanceState[Any]) -> None:
        refuse_another_id(state, attributes, connection)

    event.listen(mapper, "before_insert", before_insert, raw=True)
    event.listen(mapper, "before_update", before_update, raw=True)
    event.listen(model, "expire", on_expire, raw=True)


def _is_declared_here(mapper: Mapper[Any], model: type[Any]) -> bool:
    """Return True if *model* has a mixin and a table of its own; not if its table is a copy, a query or a union."""
    table: FromClause = mapper.local_table
    if not (hasattr(model, "__public_id__") and isinstance(table, Table)):
        return False
    return not any(map(is_copy, cast("Table", table).columns))


def _refuse_two_declarations(mapper: Mapper[Any], model: type[Any], attributes: dict[str, Column[Any]]) -> None:
    if not attributes:
        raise ConfigurationError(
            f"{model.__name__} declares public_id itself, beside the mixin that adds it; "
            f"remove it, or write public_id_column() instead of the mixin"
        )
    keys = [key for key in mapper.primary_key if isinstance(key, Column)]
    others = [key.name for key in keys if MIXED_IN not in key.info]
    if others and len(others) < len(keys):
        raise ConfigurationError(
            f"{model.__name__} has a key of its own, {', '.join(others)}, and PublicIdMixin adds another one; "
            f"use PublicIdColumnMixin"
        )


def _owner(mapper: Mapper[Any]) -> type[Any]:
    """Return the model to which the ids belong: the topmost one of concrete tables that share one format."""
    owner = mapper
    while owner.concrete and owner.inherits is not None and hasattr(owner.inherits.class_, "__public_id__"):
        owner = owner.inherits
    return owner.class_
