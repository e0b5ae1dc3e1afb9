"""Find the integer keys that a FastAPI application shows or takes, for a test of that application.

.. code-block:: text

    def test_no_integer_key_leaves() -> None:
        assert lint_app(app) == []

What is read are declarations: response models, bodies and parameters, of included routers and mounted applications too.
An integer with the name of a key of a mapped class is a leak. What says nothing of its contents, such as ``dict``,
``Any`` or a route without a response model, is a note.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from inspect import Parameter
from typing import Any

from sqlalchemy.orm import DeclarativeBase, DeclarativeBaseNoMeta, Mapper, registry

from sqlalchemy_public_id.errors import ConfigurationError, MissingExtra, shown
from sqlalchemy_public_id.ext import mapped

try:
    import_module("fastapi")
except ModuleNotFoundError as error:
    raise MissingExtra("fastapi", extra="fastapi") from error

from fastapi import FastAPI, routing
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Host, Mount, WebSocketRoute

from sqlalchemy_public_id.ext.integers import Found, integers

__all__ = ["Finding", "lint_app"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """A field or parameter of a route that is an integer key, or that cannot be checked."""

    method: str
    route: str
    """The path, with the names of its parameters."""
    where: str
    """``response 200``, ``body``, or ``path``, ``query``, ``header``, ``cookie`` for a parameter."""
    field: str
    """The way to the value, such as ``items[].customer.id``; empty for the whole."""
    column: str | None
    """The key that it is, such as ``customer.id``; ``None`` where it cannot be checked."""
    advice: str
    """What to write instead."""

    @property
    def is_leak(self) -> bool:
        """Whether this is an integer key, and not a mere note."""
        return self.column is not None

    def __str__(self) -> str:
        what = f"is {self.column}" if self.is_leak else "cannot be checked"
        return f"{self.method} {self.route}: {self.where} {self.field or 'as a whole'} {what}; {self.advice}"


def lint_app(app: FastAPI, *, bases: Iterable[Any] | None = None) -> list[Finding]:
    """The integer keys that *app* shows or takes, and what cannot be checked, in the order of its routes.

    :param bases: whose keys to look for: declarative bases, registries, or mapped classes, which stand for all of
        their registry; by default all bases made with SQLAlchemy's ``DeclarativeBase``. SQLModel's are to be named.
    :raises ConfigurationError: where one of *bases* is none of these.
    """
    keys = _Keys(mapper for one in _registries(bases) for mapper in one.mappers)
    return [
        Finding(method, path, *found)
        for path, route in _routes(app, app.routes)
        for found in dict.fromkeys(_of_route(route, keys))
        for method in sorted((route.methods or {"GET"}) - {"HEAD"})
    ]


# --- keys


class _Keys:
    """The keys of all *mappers*, by what an API may call them."""

    def __init__(self, mappers: Iterable[Mapper[Any]]) -> None:
        self._named: dict[str, list[mapped.Key]] = {}
        others: dict[str, list[mapped.Key]] = {}
        for mapper in sorted(mappers, key=lambda mapper: mapper.class_.__name__):
            for name, key in mapped.keys(mapper).items():
                if key.column.primary_key and len(mapper.primary_key) == 1:
                    others.setdefault(f"{mapped.snake_case(mapper.class_.__name__)}_{name}", []).append(key)
                elif not key.column.foreign_keys:
                    continue  # a part of a key, such as a position
                relationship = name.removesuffix("_id")
                called = {name, str(key.column.name)}
                if mapped.relationship_of(mapper, relationship) is not None:
                    called.add(relationship)  # customer: int
                for one in called:
                    self._named.setdefault(one, []).append(key)
        self._named = others | self._named

    def of(self, found: Found) -> mapped.Key | None:
        """The key that *found* is: of the class that has the field if that is mapped, else by its name."""
        if found.advice:
            return None
        mapper = mapped.mapper_of(found.owner)
        if mapper is not None:
            return mapped.key_behind(mapper, (found.names[0],))
        for name in found.names:
            snake = mapped.snake_case(name)
            keys = self._named.get(snake) or self._named.get(snake.removesuffix("s"))  # customer_ids: list[int]
            if keys:
                owner = found.owner.__name__ if found.owner is not None else ""
                return next((key for key in keys if key.mapper.class_.__name__ in owner), keys[0])
        return None


def _registries(bases: Iterable[Any] | None) -> Iterator[registry]:
    if bases is None:
        bases = [*DeclarativeBase.__subclasses__(), *DeclarativeBaseNoMeta.__subclasses__()]
    for base in bases:
        mapper = mapped.mapper_of(base)
        found = mapper.registry if mapper is not None else getattr(base, "registry", base)
        if not isinstance(found, registry):
            raise ConfigurationError(f"bases has {shown(base)}, expected a declarative base, registry or mapped class")
        yield found


# --- routes

_Said = tuple[str, str, "str | None", str]
"""The last four facts of a finding."""


def _routes(app: object, routes: Iterable[BaseRoute], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Path and route of all that answers HTTP; the documentation that the application makes of itself aside."""
    urls = ("openapi_url", "docs_url", "redoc_url", "swagger_ui_oauth2_redirect_url")
    own = {getattr(app, name, None) for name in urls}
    flat: Any = getattr(routing, "iter_route_contexts", iter)  # newer FastAPIs keep included routers apart
    for route in flat(routes):
        original = getattr(route, "original_route", route)
        path = getattr(route, "path", None) or ""
        if isinstance(original, (Mount, Host)):
            yield from _routes(original.app, original.routes or (), prefix + path)
        elif isinstance(original, APIRoute) or not (isinstance(original, WebSocketRoute) or path in own):
            yield prefix + path, route


def _of_route(route: Any, keys: _Keys) -> Iterator[_Said]:
    if not isinstance(getattr(route, "original_route", route), APIRoute):
        yield "response", "", None, "make it a route of FastAPI, with a response model"
        return
    for where, parameter in _inputs(route.dependant):
        names = (parameter.name, parameter.alias)
        for found in integers(parameter.field_info.annotation, Found(parameter.alias, names), taken=True):
            key = keys.of(found)
            if key is not None:
                yield where, found.path, str(key.column), "take the public id"
    status = route.status_code or 200
    if route.response_model is None and status not in (204, 205, 304) and _may_be_json(route):
        yield f"response {status}", "", None, "declare a response model"
    more = [(code, said["model"]) for code, said in route.responses.items() if said.get("model")]
    for code, model in [(status, route.response_model), *more]:
        for found in integers(model):
            key = keys.of(found)
            if code == status and _is_left_out(found.path, route):
                continue
            if key is not None:
                yield f"response {code}", found.path, str(key.column), f"show {key.instead}"
            elif found.advice or not found.names:
                yield f"response {code}", found.path, None, found.advice or "show a model, whose fields have names"


def _inputs(dependant: Any) -> Iterator[tuple[str, Any]]:
    """Each parameter, with its kind; those of dependencies too."""
    for kind in ("path", "query", "header", "cookie", "body"):
        for parameter in getattr(dependant, f"{kind}_params"):
            yield kind, parameter
    for dependency in dependant.dependencies:
        yield from _inputs(dependency)


def _may_be_json(route: Any) -> bool:
    """Whether a route without a response model may answer with JSON that has contents."""
    try:
        returned = inspect.signature(route.endpoint, eval_str=True).return_annotation
    except Exception:  # a name that is not there at run time
        returned = Parameter.empty
    kind = getattr(route.response_class, "value", route.response_class)  # FastAPI wraps its default
    if returned is None:
        return False
    return not any(
        isinstance(each, type)
        and issubclass(each, Response)
        and each is not Response
        and not issubclass(each, JSONResponse)
        and "json" not in (each.media_type or "")
        for each in (returned, kind)
    )


def _is_left_out(path: str, route: Any) -> bool:
    """Whether the route itself leaves the field, or what it is in, out of the model."""
    steps = re.findall(r"\[\]|[^.\[\]]+", path)
    include = route.response_model_include
    return _names(steps, route.response_model_exclude, whole=True) or not (
        include is None or _names(steps, include, whole=False)
    )


def _names(steps: list[str], names: Any, *, whole: bool) -> bool:
    """Whether *names*, in the form that Pydantic takes, has what *steps* lead to; if *whole*, with all of it."""
    if names is True or names is ...:
        return True
    if not steps or not names:
        return bool(names) and not whole
    step, *rest = steps
    found = [each for each in (step, "__all__") if each in names]
    if hasattr(names, "items"):
        return any(_names(rest, names[each], whole=whole) for each in found)
    return bool(found)
