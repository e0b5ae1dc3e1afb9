"""What a router is told beside its rule: the databases, and where new objects go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Engine

from sqlalchemy_public_id.errors import ConfigurationError, shown

__all__ = ["Place", "engines_of", "places_of"]

Place = Callable[[Any], str]
"""Says the shard of a new object."""


def engines_of(shards: Any) -> dict[str, Engine]:
    """Name → engine; the synchronous face of an asynchronous one.

    :raises ConfigurationError: where *shards* says something else.
    """
    given: Mapping[Any, Any] = shards
    if not isinstance(shards, Mapping) or not shards:
        raise ConfigurationError(f"shards is {shown(given)}, expected name → engine, for one database or more")
    engines: dict[str, Engine] = {}
    for name, each in given.items():
        if not isinstance(name, str) or not name:  # a key of the identity map, which the session tests for truth
            raise ConfigurationError(f"the name of a shard is {shown(name)}, expected a text")
        engine = getattr(each, "sync_engine", each)
        if not isinstance(engine, Engine):
            raise ConfigurationError(f"the shard {name!r} is {shown(each)}, expected an Engine or an AsyncEngine")
        engines[name] = engine
    return engines


def places_of(place: Any) -> dict[type[Any], Place]:
    """Model → function; one function alone is that of all models.

    :raises ConfigurationError: where *place* says something else.
    """
    given: Any = place
    if place is None:
        return {}
    if callable(place) and not isinstance(place, type):
        return {object: given}
    if not isinstance(place, Mapping):
        raise ConfigurationError(f"place is {shown(place)}, expected a function of the object, or model → function")
    for model, each in given.items():
        if not isinstance(model, type) or (model.__module__ == "builtins" and model is not object):
            raise ConfigurationError(f"place has {shown(model)}, expected a mapped class, or one that models inherit")
        if not callable(each):
            raise ConfigurationError(
                f"the place of {model.__name__} is {shown(each)}, expected a function of the object that says a shard"
            )
    return dict(given)
