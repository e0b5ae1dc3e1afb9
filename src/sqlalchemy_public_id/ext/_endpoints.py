"""The rows that the endpoints of a FastAPI application get from their dependencies, and what they declare to return.

Without a response model, FastAPI shows all columns of a row that an endpoint returns, keys included. What an endpoint
returns is not known before it runs, but its signature tells whether it has a row to return.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from inspect import Parameter, Signature, signature
from typing import Any, get_args

from fastapi import FastAPI, params, routing
from pydantic import BaseModel
from sqlalchemy.orm import Mapper

from sqlalchemy_public_id.ext import _mapped


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """The mapped classes that the signature of an endpoint names."""

    shown: tuple[type[Any], ...]
    """Classes of the rows that a client would see in whatever the endpoint does not declare."""
    mentioned: tuple[type[Any], ...]
    """All classes in the signature and in the response model."""

    def shown_key(self, mappers: Iterable[Mapper[Any]]) -> tuple[type[Any], _mapped.Key] | None:
        """Return the first class and key of *mappers* that a client would see, or ``None``."""
        known = {*mappers}
        for model in self.shown:
            for mapper in known.intersection(_mapper(model).self_and_descendants):
                for name, key in _mapped.keys(mapper).items():
                    if _is_shown(mapper.class_, name):
                        return model, key
        return None


def endpoints_of(app: FastAPI) -> dict[tuple[str, str], Endpoint]:
    """Map method and path to the endpoint of each route of *app*, without applications that are mounted in it."""
    # since FastAPI 0.137, an included router is a single element of app.routes
    in_routers: Any = getattr(routing, "iter_route_contexts", iter)
    routes: list[Any] = [route for route in in_routers(app.routes) if hasattr(route, "response_model")]
    found: dict[tuple[str, str], Endpoint] = {}
    for route in routes:
        endpoint = _endpoint(route.endpoint, route.response_model)
        found |= {(method, route.path_format): endpoint for method in route.methods or ()}
    return found


def _endpoint(function: Callable[..., Any], response_model: Any) -> Endpoint:
    own = _signature(function)
    given = dict.fromkeys(model for each in own.parameters.values() for model in _given(each))
    returned = dict.fromkeys(_mapped_classes(own.return_annotation))
    if response_model is not None:
        # Pydantic serializes such an object where the response model has Any, and refuses others
        shown = [model for model in given if issubclass(model, BaseModel) or dataclasses.is_dataclass(model)]
    else:
        # list[Order] names a row; Iterator[Any] may be one that is given; a Response and dict[str, str] are none
        shown = [*returned, *(given if _allows_anything(own.return_annotation) else ())]
    return Endpoint(tuple(shown), (*given, *returned, *_mapped_classes(response_model)))


def _given(parameter: Parameter) -> Iterator[type[Any]]:
    """Yield the mapped classes of the rows that a parameter may hold, by its type or by that of its dependency."""
    yield from _mapped_classes(parameter.annotation)
    for marker in (parameter.default, *getattr(parameter.annotation, "__metadata__", ())):
        if isinstance(marker, params.Depends) and callable(marker.dependency):
            yield from _mapped_classes(_signature(marker.dependency).return_annotation)


def _mapped_classes(annotation: Any, outer: tuple[Any, ...] = ()) -> Iterator[type[Any]]:
    """Yield the mapped classes in a type, such as ``Order`` in ``Page[Order] | None``."""
    if _mapped.mapper_of(annotation) is not None:
        yield annotation
    alias = getattr(annotation, "__value__", None)  # of a statement "type Rows = list[Order]"
    inner = get_args(annotation) if alias is None else (alias,)
    for each in inner if not any(annotation is one for one in outer) else ():
        yield from _mapped_classes(each, (*outer, annotation))


def _allows_anything(annotation: Any) -> bool:
    """Return True if a type is missing, or has a part that may be a row, as in ``dict[str, Any]`` or ``list``."""
    loose = (Signature.empty, Any, object, dict, frozenset, list, set, tuple)
    return any(annotation is one for one in loose) or any(map(_allows_anything, get_args(annotation)))


def _signature(function: Callable[..., Any]) -> Signature:
    """Return the signature of *function*, with strings as annotations if one of them cannot be evaluated."""
    try:
        return signature(function, eval_str=True)
    except Exception:  # whatever the evaluation of an annotation raises
        return signature(function)


def _is_shown(model: type[Any], name: str) -> bool:
    """Return True if FastAPI's encoder shows the attribute *name*: all of a row, but only fields of other classes."""
    if issubclass(model, BaseModel):
        return name in model.model_fields and not model.model_fields[name].exclude
    return not dataclasses.is_dataclass(model) or any(field.name == name for field in dataclasses.fields(model))


def _mapper(model: type[Any]) -> Mapper[Any]:
    mapper = _mapped.mapper_of(model)
    assert mapper is not None
    return mapper
