"""Find the integer keys that a FastAPI application shows or takes, for a test of that application.

.. code-block:: text

    def test_no_integer_key_leaves() -> None:
        assert lint_app(app) == []

What is read are declarations: response models, bodies and parameters, of included routers and mounted applications
too, and of webhooks and callbacks, whose bodies go out. Where a serializer makes something else of a value, its return
type counts. An integer with the name of a key of a mapped class is a leak. What says nothing of its contents, such as
``dict``, ``dict[str, int]``, ``Any``, a serializer without a return type or a route without a response model, is a
note. So is what may hold any subclass: ``BaseModel``, ``SerializeAsAny[…]``, a class that Pydantic does not describe.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from inspect import Parameter
from typing import Any

from sqlalchemy.orm import DeclarativeBase, DeclarativeBaseNoMeta, Mapper, registry

from sqlalchemy_public_id.errors import ConfigurationError, MissingExtra, shown
from sqlalchemy_public_id.ext import _attributes, _mapped

try:
    import_module("fastapi")
except ModuleNotFoundError as error:
    raise MissingExtra("fastapi", extra="fastapi") from error

from fastapi import FastAPI, routing
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Host, Mount, WebSocketRoute

from sqlalchemy_public_id.ext._integers import Found, integers
from sqlalchemy_public_id.ext._paths import paths_of
from sqlalchemy_public_id.ext.pydantic import PublicModel

__all__ = ["Finding", "lint_app"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """A field or parameter of a route that is an integer key, or that cannot be checked."""

    method: str
    route: str
    """The path, with the names of its parameters; a webhook's name."""
    where: str
    """``response 200``, ``body``, or ``path``, ``query``, ``header``, ``cookie`` for a parameter; with ``webhook`` or
    ``callback`` before it where it is one."""
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
        their registry; by default all bases made with SQLAlchemy's ``DeclarativeBase``. Those made with
        ``declarative_base()`` or ``registry()``, and SQLModel's, are to be named.
    :raises ConfigurationError: where one of *bases* is none of these, or no mapped classes are found.
    """
    keys = _Keys(_mappers(bases))
    return [
        Finding(method, path, f"{kind} {where}".lstrip(), field, column, advice)
        for kind, path, route in _routes(app, app.routes)
        for where, field, column, advice in dict.fromkeys(_sent(route, keys) if kind else _of_route(route, keys))
        for method in sorted((route.methods or {"GET"}) - {"HEAD"})
    ]


# --- keys


class _Keys:
    """The keys of all *mappers*, by what an API may call them."""

    def __init__(self, mappers: Iterable[Mapper[Any]]) -> None:
        self._named: dict[str, list[_mapped.Key]] = {}
        self._computed: dict[str, list[tuple[str, _mapped.Key]]] = {}
        """The names of synonyms, hybrids, column properties and proxies of keys, with the class that has them."""
        self._harmless: set[str] = set()
        """The names of columns that are no keys."""
        others: dict[str, list[_mapped.Key]] = {}
        for mapper in sorted(mappers, key=lambda mapper: mapper.class_.__name__):
            own, shown = _mapped.keys(mapper), _attributes.keys_shown(mapper)
            for name, key in own.items():
                if key.column.primary_key and len(mapper.primary_key) == 1:
                    others.setdefault(f"{_mapped.snake_case(mapper.class_.__name__)}_{name}", []).append(key)
                elif _is_part(key):
                    continue
                relationship = name.removesuffix("_id")
                called = {name, str(key.column.name)}
                if _mapped.relationship_of(mapper, relationship) is not None:
                    called.add(relationship)  # customer: int
                for one in called:
                    self._named.setdefault(one, []).append(key)
            for name, key in shown.items():
                if name not in own and not _is_part(key):
                    self._computed.setdefault(_mapped.snake_case(name), []).append((mapper.class_.__name__, key))
            self._harmless |= {_mapped.snake_case(name) for name in mapper.columns.keys() - shown.keys()}
        self._named = others | self._named

    def of(self, found: Found) -> _mapped.Key | None:
        """The key that *found* is: of the class that has or shows the field if that is mapped, else by its name."""
        if found.advice:
            return None
        mapper, paths = _read(found)
        if mapper is not None:
            return next(filter(None, (_attributes.key_behind(mapper, path) for path in paths)), None)
        owner = found.owner.__name__ if found.owner is not None else ""
        for name in map(_mapped.snake_case, found.names):
            keys = self._named.get(name) or self._named.get(name.removesuffix("s"))  # customer_ids: list[int]
            if keys:
                return next((key for key in keys if key.mapper.class_.__name__ in owner), keys[0])
            computed = self._computed.get(name, [])
            of_owner = [key for model, key in computed if model in owner]
            if of_owner or (computed and name not in self._harmless):
                return (of_owner or [computed[0][1]])[0]
        return None


def _is_part(key: _mapped.Key) -> bool:
    """Return True if *key* is only a part of one, such as a position, and refers to nothing."""
    is_primary = any(key.column is each for each in key.mapper.primary_key)
    return is_primary and len(key.mapper.primary_key) > 1 and not key.column.foreign_keys


def _read(found: Found) -> tuple[Mapper[Any] | None, list[_attributes.Path]]:
    """The mapper whose attributes *found* is read from, where its class says so, and their paths."""
    mapper, name = _mapped.mapper_of(found.owner), found.names[0] if found.names else ""
    if mapper is not None:
        return mapper, [(name,)]
    if found.owner is None or not issubclass(found.owner, PublicModel) or name not in found.owner.model_fields:
        return None, []
    mapper = _mapped.mapper_of(found.owner.__mapped_class__)
    paths = list(paths_of(found.owner, name, found.owner.model_fields[name]))
    if mapper is None or not any(str(path[0]) in mapper.all_orm_descriptors for path in paths):
        return None, []  # such as a property in Python
    return mapper, paths


def _mappers(bases: Iterable[Any] | None) -> list[Mapper[Any]]:
    """The mappers of *bases*; refuses to find none, because that would find no key either."""
    named = [*DeclarativeBase.__subclasses__(), *DeclarativeBaseNoMeta.__subclasses__()] if bases is None else bases
    found: list[Mapper[Any]] = []
    for base in named:
        mapper = _mapped.mapper_of(base)
        one = mapper.registry if mapper is not None else getattr(base, "registry", base)
        if not isinstance(one, registry):
            raise ConfigurationError(f"bases has {shown(base)}, expected a declarative base, registry or mapped class")
        with contextlib.nullcontext() if bases is not None else contextlib.suppress(Exception):
            one.configure(cascade=True)  # hybrids and dictionaries are known then
        mappers = _mapped.mappers_of(one)
        if bases is not None and not mappers:
            raise ConfigurationError(
                f"bases has {shown(base)}, which has no mapped classes; import the modules that declare them first"
            )
        found += mappers
    if bases is None and not found:
        raise ConfigurationError(
            "lint_app() found no mapped classes; name their base: lint_app(app, bases=[Base]), which is the class that "
            "declarative_base() gave, a registry(), or one of the tables of SQLModel"
        )
    return found


# --- routes

_Said = tuple[str, str, "str | None", str]
"""The last four facts of a finding."""


def _routes(app: object, routes: Iterable[BaseRoute], prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """Kind, path and route of all that answers HTTP, whose kind is empty, and of the webhooks and callbacks.

    The documentation that the application makes of itself is left aside.
    """
    urls = ("openapi_url", "docs_url", "redoc_url", "swagger_ui_oauth2_redirect_url")
    own = {getattr(app, name, None) for name in urls}
    for path, route in _flat(routes):
        original = getattr(route, "original_route", route)
        if isinstance(original, (Mount, Host)):
            yield from _routes(original.app, original.routes or (), prefix + path)
        elif isinstance(original, APIRoute):
            yield "", prefix + path, route
            for called, callback in _flat(route.callbacks or ()):
                yield "callback", f"{prefix}{path} {called}", callback
        elif not (isinstance(original, WebSocketRoute) or path in own):
            yield "", prefix + path, route
    for path, route in _flat(app.webhooks.routes if isinstance(app, FastAPI) else ()):
        yield "webhook", f"{prefix} {path}".lstrip(), route


def _flat(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, Any]]:
    """Path and route of each, those of included routers too, which newer FastAPIs keep apart."""
    flat: Any = getattr(routing, "iter_route_contexts", iter)
    for route in flat(routes):
        yield getattr(route, "path", None) or "", route


def _of_route(route: Any, keys: _Keys) -> Iterator[_Said]:
    if not isinstance(getattr(route, "original_route", route), APIRoute):
        yield "response", "", None, "make it a route of FastAPI, with a response model"
        return
    for where, parameter in _inputs(route.dependant):
        yield from _taken(where, keys, _of_parameter(parameter, taken=True))
    status = route.status_code or 200
    if _model(route) is None and status not in (204, 205, 304) and _may_be_json(route):
        yield f"response {status}", "", None, "declare a response model"
    for code, model in _responses(route):
        for said in _shown(f"response {code}", keys, integers(model)):
            if code != status or not _is_left_out(said[1], route):
                yield said


def _sent(route: Any, keys: _Keys) -> Iterator[_Said]:
    """Of a webhook or callback, which the application itself sends, and others answer."""
    for where, parameter in _inputs(route.dependant):
        yield from _shown(where, keys, _of_parameter(parameter, taken=False))
    for code, model in _responses(route):
        yield from _taken(f"response {code}", keys, integers(model, taken=True))


def _taken(where: str, keys: _Keys, integers: Iterable[Found]) -> Iterator[_Said]:
    for found in integers:
        key = keys.of(found)
        if key is not None:
            yield where, found.path, str(key.column), "take the public id"


def _shown(where: str, keys: _Keys, integers: Iterable[Found]) -> Iterator[_Said]:
    for found in integers:
        key = keys.of(found)
        if key is not None:
            yield where, found.path, str(key.column), f"show {key.instead}"
        elif found.advice or found.is_apart or not found.names:
            yield where, found.path, None, found.advice or "show a model, whose fields have names"


def _of_parameter(parameter: Any, *, taken: bool) -> Iterator[Found]:
    names = (parameter.name, parameter.alias)
    return integers(parameter.field_info.annotation, Found(parameter.alias, names), taken=taken)


def _responses(route: Any) -> list[tuple[Any, Any]]:
    """Status and model of each answer that a route declares, its own first."""
    more = [(code, said["model"]) for code, said in route.responses.items() if said.get("model")]
    return [(route.status_code or 200, _model(route)), *more]


def _model(route: Any) -> Any:
    """The response model of a route, or of the items that it yields, which newer FastAPIs take from its signature."""
    return route.response_model if route.response_model is not None else getattr(route, "stream_item_type", None)


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
        and not re.search("json|event-stream", each.media_type or "")
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
