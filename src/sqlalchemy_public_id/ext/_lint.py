"""Find the integer keys that a FastAPI application shows or takes, for a test of that application.

.. code-block:: text

    def test_no_integer_key_leaves() -> None:
        assert lint_app(app) == []

It reads declarations: response models, bodies and parameters, of included routers and mounted applications too, and of
webhooks and callbacks, whose bodies go out. The return type of a serializer counts, not the type of its field. An
integer with the name of a key of a mapped class is a leak. A type without a declared content, such as ``dict``,
``dict[str, int]``, ``Any``, a serializer without a return type or a route without a response model, is a note. So is a
type that accepts any subclass: ``BaseModel``, ``SerializeAsAny[…]``, a class that Pydantic does not describe.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator
from inspect import Parameter
from typing import Any, NamedTuple

from sqlalchemy.orm import DeclarativeBase, DeclarativeBaseNoMeta, Mapper, RelationshipProperty, registry

from sqlalchemy_public_id.errors import ConfigurationError, require, safe_repr
from sqlalchemy_public_id.ext import _attributes, _mapped

with require("fastapi"):
    from fastapi import FastAPI, routing
    from fastapi.routing import APIRoute
    from starlette.responses import JSONResponse, Response
    from starlette.routing import BaseRoute, Host, Mount, WebSocketRoute

from sqlalchemy_public_id.ext._annotations import read_paths
from sqlalchemy_public_id.ext._integers import Value, integers
from sqlalchemy_public_id.ext.pydantic import PublicModel

# Undocumented names of all modules in ``ext``, tested with FastAPI 0.110 and 0.165, and Pydantic 2.10.1 and 2.14.3:
# APIRoute.dependant, .response_class.value, and if they exist .original_route, .stream_item_type and
# routing.iter_route_contexts() (this module); __pydantic_decorators__ (``_integers``)


@dataclasses.dataclass(frozen=True)
class Finding:
    """A field or parameter of a route that is an integer key, or that cannot be checked."""

    method: str
    route: str
    """The path, with the names of its parameters; the name of a webhook."""
    where: str
    """``response 200``, ``body``, or ``path``, ``query``, ``header``, ``cookie`` for a parameter; prefixed with
    ``webhook`` or ``callback`` for one of these."""
    field: str
    """The way to the value, such as ``items[].customer.id``; empty for the whole."""
    column: str | None
    """The key, such as ``customer.id``; ``None`` if the value cannot be checked."""
    advice: str
    """The fix: the code to write instead."""

    @property
    def is_leak(self) -> bool:
        """True for an integer key, False for a note."""
        return self.column is not None

    def __str__(self) -> str:
        what = f"is {self.column}" if self.is_leak else "cannot be checked"
        return f"{self.method} {self.route}: {self.where} {self.field or 'as a whole'} {what}; {self.advice}"


def lint_app(app: FastAPI, *, bases: Iterable[Any] | None = None) -> list[Finding]:
    """Return the integer keys that *app* shows or takes, and what cannot be checked, in the order of its routes.

    :param bases: declarative bases, registries or mapped classes; a class stands for all of its registry. The default
        is every subclass of SQLAlchemy's ``DeclarativeBase``. Bases made with ``declarative_base()`` or ``registry()``,
        and those of SQLModel, have to be named.
    :raises ConfigurationError: if one of *bases* is none of these, or if there are no mapped classes.
    """
    keys = _Keys(_mappers(bases))
    return [
        Finding(method, path, f"{kind} {problem.where}".lstrip(), problem.field, problem.column, problem.advice)
        for kind, path, route in _routes(app, app.routes)
        for problem in dict.fromkeys(_problems_of_sender(route, keys) if kind else _problems_of_route(route, keys))
        for method in sorted((route.methods or {"GET"}) - {"HEAD"})
    ]


# --- keys


class _Keys:
    """The keys of all *mappers*, by the names that an API may give them."""

    def __init__(self, mappers: Iterable[Mapper[Any]]) -> None:
        self._by_name: dict[str, list[_mapped.Key]] = {}
        # names of synonyms, hybrids, column properties and proxies of keys, with the name of their class
        self._computed: dict[str, list[tuple[str, _mapped.Key]]] = {}
        self._harmless: set[str] = set()  # names of columns that are no keys
        qualified: dict[str, list[_mapped.Key]] = {}
        for mapper in sorted(mappers, key=lambda mapper: mapper.class_.__name__):
            own, shown = _mapped.keys(mapper), _attributes.keys_shown(mapper)
            for name, key in own.items():
                if key.column.primary_key and len(mapper.primary_key) == 1:
                    qualified.setdefault(f"{_mapped.snake_case(mapper.class_.__name__)}_{name}", []).append(key)
                elif _is_part(key):
                    continue
                relationship = name.removesuffix("_id")
                names = {name, str(key.column.name)}
                prop = mapper.get_property(relationship) if mapper.has_property(relationship) else None
                if isinstance(prop, RelationshipProperty):
                    names.add(relationship)  # customer: int
                for one in names:
                    self._by_name.setdefault(one, []).append(key)
            for name, key in shown.items():
                if name not in own and not _is_part(key):
                    self._computed.setdefault(_mapped.snake_case(name), []).append((mapper.class_.__name__, key))
            self._harmless |= {_mapped.snake_case(name) for name in mapper.columns.keys() - shown.keys()}
        self._by_name = qualified | self._by_name

    def key_of(self, value: Value) -> _mapped.Key | None:
        """Return the key that *value* is: of the class that it is read from if that is mapped, else by its name."""
        if value.advice:
            return None
        mapper, paths = _source_of(value)
        if mapper is not None:
            return next(filter(None, (_attributes.key_at(mapper, path) for path in paths)), None)
        owner = value.owner.__name__ if value.owner is not None else ""
        for name in map(_mapped.snake_case, value.names):
            keys = self._by_name.get(name) or self._by_name.get(name.removesuffix("s"))  # customer_ids: list[int]
            if keys:
                return next((key for key in keys if key.mapper.class_.__name__ in owner), keys[0])
            computed = self._computed.get(name, [])
            of_owner = [key for model, key in computed if model in owner]
            if of_owner or (computed and name not in self._harmless):
                return (of_owner or [computed[0][1]])[0]
        return None


def _is_part(key: _mapped.Key) -> bool:
    """Return True for a part of a composite primary key that refers to nothing, such as a position."""
    is_primary = any(key.column is column for column in key.mapper.primary_key)
    return is_primary and len(key.mapper.primary_key) > 1 and not key.column.foreign_keys


def _source_of(value: Value) -> tuple[Mapper[Any] | None, list[_attributes.Path]]:
    """Return the mapper and the paths that *value* is read from; ``None`` if its class is not a ``PublicModel``."""
    mapper, name = _mapped.mapper_of(value.owner), value.names[0] if value.names else ""
    if mapper is not None:
        return mapper, [(name,)]
    if value.owner is None or not issubclass(value.owner, PublicModel) or name not in value.owner.model_fields:
        return None, []
    mapper = _mapped.mapper_of(value.owner.__mapped_class__)
    paths = list(read_paths(value.owner, name, value.owner.model_fields[name]))
    if mapper is None or not any(str(path[0]) in mapper.all_orm_descriptors for path in paths):
        return None, []  # such as a Python property
    return mapper, paths


def _mappers(bases: Iterable[Any] | None) -> list[Mapper[Any]]:
    """Return the mappers of *bases*; none at all is an error, because no key could be found."""
    named = [*DeclarativeBase.__subclasses__(), *DeclarativeBaseNoMeta.__subclasses__()] if bases is None else bases
    mappers: list[Mapper[Any]] = []
    for base in named:
        mapper = _mapped.mapper_of(base)
        own = mapper.registry if mapper is not None else getattr(base, "registry", base)
        if not isinstance(own, registry):
            raise ConfigurationError(
                f"bases has {safe_repr(base)}, expected a declarative base, registry or mapped class"
            )
        # hybrids and dictionaries can be resolved afterwards
        with contextlib.nullcontext() if bases is not None else contextlib.suppress(Exception):
            own.configure(cascade=True)
        mappers_of_base = _mapped.mappers_of(own)
        if bases is not None and not mappers_of_base:
            raise ConfigurationError(
                f"bases has {safe_repr(base)}, which has no mapped classes; import the modules that declare them first"
            )
        mappers += mappers_of_base
    if bases is None and not mappers:
        raise ConfigurationError(
            "lint_app() found no mapped classes; name their base: lint_app(app, bases=[Base]), with the class that "
            "declarative_base() returned, a registry(), or one of the tables of SQLModel"
        )
    return mappers


# --- routes


class _Problem(NamedTuple):
    """The last four attributes of a finding."""

    where: str
    field: str
    column: str | None
    advice: str


def _routes(app: object, routes: Iterable[BaseRoute], prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """Return kind, path and route of everything that answers HTTP (kind ``""``), and of webhooks and callbacks.

    The documentation pages of FastAPI are left out.
    """
    urls = ("openapi_url", "docs_url", "redoc_url", "swagger_ui_oauth2_redirect_url")
    own = {getattr(app, name, None) for name in urls}
    for path, route in _flat(routes):
        original = getattr(route, "original_route", route)
        if isinstance(original, (Mount, Host)):
            yield from _routes(original.app, original.routes or (), prefix + path)
        elif isinstance(original, APIRoute):
            yield "", prefix + path, route
            for callback_path, callback in _flat(route.callbacks or ()):
                yield "callback", f"{prefix}{path} {callback_path}", callback
        elif not (isinstance(original, WebSocketRoute) or path in own):
            yield "", prefix + path, route
    for path, route in _flat(app.webhooks.routes if isinstance(app, FastAPI) else ()):
        yield "webhook", f"{prefix} {path}".lstrip(), route


def _flat(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, Any]]:
    """Return path and route of each, with those of included routers, which newer versions of FastAPI nest."""
    flat: Any = getattr(routing, "iter_route_contexts", iter)
    for route in flat(routes):
        yield getattr(route, "path", None) or "", route


def _problems_of_route(route: Any, keys: _Keys) -> Iterator[_Problem]:
    if not isinstance(getattr(route, "original_route", route), APIRoute):
        yield _Problem("response", "", None, "make it a route of FastAPI, with a response model")
        return
    yield from _problems_of_parameters(route.dependant, keys, is_input=True)
    status = route.status_code or 200
    if _response_model(route) is None and status not in (204, 205, 304) and _may_be_json(route):
        yield _Problem(f"response {status}", "", None, "declare a response model")
    for code, model in _responses(route):
        for problem in _problems_of_type(f"response {code}", keys, model, Value(), is_input=False):
            if code != status or not _is_left_out(problem.field, route):
                yield problem


def _problems_of_sender(route: Any, keys: _Keys) -> Iterator[_Problem]:
    # the application sends webhooks and callbacks: their parameters go out, and their responses come in
    yield from _problems_of_parameters(route.dependant, keys, is_input=False)
    for code, model in _responses(route):
        yield from _problems_of_type(f"response {code}", keys, model, Value(), is_input=True)


def _problems_of_parameters(dependant: Any, keys: _Keys, *, is_input: bool) -> Iterator[_Problem]:
    for kind in ("path", "query", "header", "cookie", "body"):
        for parameter in getattr(dependant, f"{kind}_params"):
            value = Value(parameter.alias, (parameter.name, parameter.alias))
            yield from _problems_of_type(kind, keys, parameter.field_info.annotation, value, is_input=is_input)
    for dependency in dependant.dependencies:
        yield from _problems_of_parameters(dependency, keys, is_input=is_input)


def _problems_of_type(where: str, keys: _Keys, annotation: Any, whole: Value, *, is_input: bool) -> Iterator[_Problem]:
    for value in integers(annotation, whole, is_input=is_input):
        key = keys.key_of(value)
        if key is not None:
            advice = "take the public id" if is_input else f"show {key.instead}"
            yield _Problem(where, value.path, str(key.column), advice)
        elif not is_input and (value.advice or value.is_element or not value.names):
            yield _Problem(where, value.path, None, value.advice or "show a model, whose fields have names")


def _responses(route: Any) -> list[tuple[Any, Any]]:
    """Return status and model of each declared response, the one of success first."""
    others = [(code, response["model"]) for code, response in route.responses.items() if response.get("model")]
    return [(route.status_code or 200, _response_model(route)), *others]


def _response_model(route: Any) -> Any:
    # newer versions of FastAPI read the type of streamed items from the signature
    return route.response_model if route.response_model is not None else getattr(route, "stream_item_type", None)


def _may_be_json(route: Any) -> bool:
    """Return True if a route without a response model may answer with JSON."""
    try:
        returned = inspect.signature(route.endpoint, eval_str=True).return_annotation
    except Exception:  # the annotation is undefined at run time
        returned = Parameter.empty
    response_class = getattr(route.response_class, "value", route.response_class)  # FastAPI wraps its default
    if returned is None:
        return False
    return not any(
        isinstance(cls, type)
        and issubclass(cls, Response)
        and cls is not Response
        and not issubclass(cls, JSONResponse)
        and not re.search("json|event-stream", cls.media_type or "")
        for cls in (returned, response_class)
    )


def _is_left_out(path: str, route: Any) -> bool:
    """Return True if the route excludes the field, or what contains it, from the model."""
    steps = re.findall(r"\[\]|[^.\[\]]+", path)
    include = route.response_model_include
    return _contains(route.response_model_exclude, steps, whole=True) or not (
        include is None or _contains(include, steps, whole=False)
    )


def _contains(names: Any, steps: list[str], *, whole: bool) -> bool:
    """Return True if *names*, a value of Pydantic's ``include`` or ``exclude``, has *steps*; if *whole*, all of it."""
    if names is True or names is ...:
        return True
    if not steps or not names:
        return bool(names) and not whole
    step, *rest = steps
    matching = [name for name in (step, "__all__") if name in names]
    if hasattr(names, "items"):
        return any(_contains(names[name], rest, whole=whole) for name in matching)
    return bool(matching)
