"""Choose the models to search for an id, by its prefix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from sqlalchemy import inspect
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Mapper, configure_mappers

from sqlalchemy_public_id import registry
from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.errors import ConfigurationError, DuplicatePrefix, PublicIdError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import id_attributes, ids_of_union, public_id_attribute, registry_of


class Candidate(NamedTuple):
    """Where an id is searched."""

    model: type[Any]
    attribute: str
    text: str
    """The id as it is stored."""


class Routes:
    """The models that ``resolve()`` and ``resolve_many()`` may search.

    :param base: search the models of this declarative base only.
    :param models: search these models and their subclasses only.
    :raises ConfigurationError: if both are given, if *base* is no declarative base, or if one of *models* can have no
        id with a prefix.
    """

    def __init__(self, base: Any, models: Iterable[type[Any]] | None) -> None:
        if base is not None and models is not None:
            raise ConfigurationError(
                "base and models are both given: pass only models, whose declarative bases are known"
            )
        self._registry = None if base is None else registry_of(base, "base is")
        self._models = None if models is None else _checked(models)

    def candidates_of(self, public_id: object) -> list[Candidate]:
        """Return where to search *public_id*: one model, unless several subclasses of the model are allowed.

        :raises DuplicatePrefix: if models of several bases have the prefix.
        """
        owners = _last_declared(model for model in _models_of(public_id) if self._searched(model))
        candidates: list[Candidate] = []
        prefix = None
        for model in (model for owner in owners for model in self._searched(owner)):
            for name, format in _formats(inspect(model)):
                text = format.canonical(public_id)
                if text is not None:
                    candidates.append(Candidate(model, name, text))
                    prefix = prefix or format.prefix
        if len(owners) > 1:
            first, second, *_ = (f"{model.__module__}.{model.__qualname__}" for model in owners)
            why = "belongs, in another declarative base, to"
            raise DuplicatePrefix(str(prefix), holder=first, newcomer=second, why=why)
        return candidates

    def _searched(self, owner: type[Any]) -> list[type[Any]]:
        """Return the classes to search for an id of *owner*: itself, or those of its subclasses that are allowed."""
        if self._registry is not None:
            mapper: Mapper[Any] = inspect(owner)
            return [owner] if mapper.registry is self._registry else []
        if self._models is None or issubclass(owner, self._models):
            return [owner]
        below = [model for model in self._models if issubclass(model, owner)]
        return [model for model in below if not any(issubclass(model, other) for other in below if other is not model)]


def configure(public_ids: Sequence[object]) -> None:
    """Configure all mappers, which registers their prefixes."""
    try:
        configure_mappers()
    except PublicIdError:
        pass  # a refused model has no rows, and raises again when it is used
    except SQLAlchemyError:
        # A broken model of another base matters only for ids that belong to no mapped model.
        if not all(map(_models_of, public_ids)):
            raise


def _checked(models: Iterable[type[Any]]) -> tuple[type[Any], ...]:
    if isinstance(models, (str, bytes, type)) or not isinstance(models, Iterable):
        name = models.__name__ if isinstance(models, type) else "Ticket"
        raise ConfigurationError(f"models is {safe_repr(models)}, expected a list of models: write [{name}]")
    checked = tuple(dict.fromkeys(models))
    for model in checked:
        inspected = cast("object", inspect(model, raiseerr=False))
        mapper = cast("Mapper[Any]", inspected)
        names = [name for name, _ in _formats(mapper)] if isinstance(inspected, Mapper) else []
        public_id_attribute(model, *names[:1])  # raises an error unless this is a model with a public id
        below = (format for each in mapper.self_and_descendants for _, format in _formats(each))
        if all(format.prefix is None for format in below):
            raise ConfigurationError(
                f"models has {model.__name__}, whose ids have no prefix to find their model by; add a prefix to its "
                f"format, or use lookup.get()"
            )
    return checked


def _formats(mapper: Mapper[Any]) -> list[tuple[str, Format]]:
    """Return the name and the format of each public id of *mapper*."""
    columns = id_attributes(mapper) or ids_of_union(mapper)
    return [(name, public_id_type(column).id_format) for name, column in columns.items()]


def _models_of(public_id: object) -> list[type[Any]]:
    return [model for model in registry.models_of(public_id) if inspect(model, raiseerr=False) is not None]


def _last_declared(models: Iterable[type[Any]]) -> list[type[Any]]:
    """Return *models* without those that were declared again, by a reloaded module or a cell of a notebook."""
    return list({(model.__module__, model.__qualname__): model for model in models}.values())
