"""Find the integer keys that a FastAPI application shows or takes. Use it in a test of the application.

.. code-block:: text

    def test_no_integer_key_leaves() -> None:
        assert lint_app(app) == []

The lint reads the OpenAPI documents of the application and of applications mounted in it: responses, bodies,
parameters, webhooks and callbacks. A number with the name of a key of a mapped class is a leak, except in a
:class:`~sqlalchemy_public_id.ext.pydantic.PublicModel`, which checks its fields itself. A response that is not
described, because of ``dict``, ``Any`` or a missing response model, is a leak if the endpoint gets a row whose keys
FastAPI would show there, and a note otherwise.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from sqlalchemy.orm import DeclarativeBase, DeclarativeBaseNoMeta, Mapper, RelationshipProperty

from sqlalchemy_public_id.errors import ConfigurationError, require
from sqlalchemy_public_id.ext import _mapped
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import registry_of

with require("fastapi"):
    from fastapi import FastAPI
    from fastapi.openapi.utils import get_openapi
    from starlette.routing import Mount

from sqlalchemy_public_id.ext._answers import METHODS
from sqlalchemy_public_id.ext._endpoints import Endpoint, endpoints_of
from sqlalchemy_public_id.ext._messages import missing_parameter
from sqlalchemy_public_id.ext.pydantic import CHECKED, marked_schemas

_COMPONENTS = "#/components/schemas/"


@dataclasses.dataclass(frozen=True)
class Finding:
    """A field or parameter of a route that is an integer key, or that cannot be checked."""

    method: str
    route: str
    """The path with the names of its parameters, or the name of a webhook."""
    where: str
    """``response 200``, ``body``, or the place of a parameter: ``path``, ``query``, ``header`` or ``cookie``. Webhooks
    and callbacks have ``webhook`` or ``callback`` in front of it."""
    field: str
    """The path to the value, such as ``items[].customer.id``; empty for the whole body."""
    column: str | None
    """The key column, such as ``customer.id``; ``None`` if the value cannot be checked."""
    advice: str
    """What to write instead."""
    row: str | None = None
    """The class of a row that the endpoint gets, if the value is not declared and may therefore be this row."""

    @property
    def is_leak(self) -> bool:
        """``True`` for an integer key, also of a row that may be shown as a whole; ``False`` for a note."""
        return self.column is not None

    def __str__(self) -> str:
        what = f"is {self.column}" if self.is_leak else "cannot be checked"
        if self.row is not None:
            what = f"may be a row of {self.row}, and show {self.column}"
        return f"{self.method} {self.route}: {self.where} {self.field or 'as a whole'} {what}; {self.advice}"


def lint_app(app: FastAPI, *, bases: Iterable[Any] | None = None, allow: Iterable[str] = ()) -> list[Finding]:
    """Return the integer keys that *app* shows or takes, and what cannot be checked, in the order of its routes.

    An endpoint that gets a row, from :func:`by_public_id`, :func:`page_of` or another dependency with a mapped class in
    its annotation, must declare what it returns: FastAPI shows all columns of a row, and Pydantic those of a table of
    SQLModel or of a dataclass model.

    The lint sees only what an OpenAPI document contains. It misses routes with ``include_in_schema=False``, routes of
    other frameworks, and web sockets. It also misses the attribute that a plain model reads or shows under an alias,
    the keys of dictionaries, numbers inside strings, the output of serializers without a return type, and the classes
    that ``SerializeAsAny`` serializes.

    :param bases: declarative bases, registries or mapped classes; a class stands for its whole registry. The default is
        every subclass of SQLAlchemy's ``DeclarativeBase``, and the bases of all mapped classes that the endpoints name.
        Pass bases that ``declarative_base()`` or ``registry()`` made, and ``SQLModel``.
    :param allow: routes to leave out, such as ``"GET /invoices/{invoice_id}/file"``, or ``"/health"`` for all methods.
    :raises ConfigurationError: if an element of *bases* is something else, if there are no mapped classes, if a route
        in *allow* does not exist, or if a dependency reads a parameter that is not in the path of its route.
    """
    apps = [(prefix, _document(each), endpoints_of(each)) for prefix, each in _apps(app)]
    mappers = _mappers(bases, (model for *_, all in apps for one in all.values() for model in one.mentioned))
    keys = _Keys(mappers)
    allowed, unused = [*allow], {*allow}
    findings: list[Finding] = []
    for prefix, document, endpoints in apps:
        schemas = document.get("components", {}).get("schemas", {})
        for kind, path, method, operation in _operations(document, prefix):
            names = {path, f"{method} {path}"}
            unused -= names
            if names.isdisjoint(allowed):
                for parameter in () if kind else operation.get("parameters", ()):
                    if parameter["in"] == "path" and f"{{{parameter['name']}}}" not in path:
                        raise missing_parameter(path, parameter["name"])
                endpoint = None if kind else endpoints.get((method, path.removeprefix(prefix)))
                reader = _Reader(keys, schemas, bool(kind), endpoint, mappers)
                problems = dict.fromkeys(reader.problems(operation))
                findings += (Finding(method, path, f"{kind} {p[0]}".lstrip(), *p[1:]) for p in problems)
    if unused:
        raise ConfigurationError(
            f"allow contains {', '.join(map(repr, sorted(unused)))}, but the application has no such route"
        )
    return findings


# --- keys


class _Keys:
    """The keys of all *mappers*, by the names that an API may give them."""

    def __init__(self, mappers: Iterable[Mapper[Any]]) -> None:
        by_name: dict[str, list[_mapped.Key]] = {}
        qualified: dict[str, list[_mapped.Key]] = {}
        for mapper in sorted(mappers, key=lambda mapper: mapper.class_.__name__):
            for name, key in _mapped.keys(mapper).items():
                if key.column.primary_key and len(mapper.primary_key) == 1:
                    qualified.setdefault(f"{_mapped.snake_case(mapper.class_.__name__)}_{name}", []).append(key)
                elif _is_part(key):
                    continue
                relationship = name.removesuffix("_id")
                names = {_mapped.snake_case(name), _mapped.snake_case(str(key.column.name))}
                prop = mapper.get_property(relationship) if mapper.has_property(relationship) else None
                if isinstance(prop, RelationshipProperty):
                    names.add(relationship)  # customer: int
                for one in names:
                    by_name.setdefault(one, []).append(key)
        self._by_name = qualified | by_name

    def named(self, name: str, model: str, mentioned: Collection[type[Any]]) -> _mapped.Key | None:
        """Return the key that a number called *name* stands for in a schema called *model*.

        Of several, it is the key of the class in the name of the schema, or else of one of the classes in *mentioned*.
        """
        name = _mapped.snake_case(name.replace("-", "_"))  # headers have hyphens
        keys = self._by_name.get(name) or self._by_name.get(name.removesuffix("s"), [])  # customer_ids: list[int]
        in_name = (key for key in keys if key.mapper.class_.__name__ in model)
        return next(chain(in_name, (key for key in keys if key.mapper.class_ in mentioned), keys), None)


def _is_part(key: _mapped.Key) -> bool:
    """Return True for a part of a composite primary key that refers to nothing, such as a position."""
    is_primary = any(key.column is column for column in key.mapper.primary_key)
    return is_primary and len(key.mapper.primary_key) > 1 and not key.column.foreign_keys


def _mappers(bases: Iterable[Any] | None, mentioned: Iterable[type[Any]]) -> list[Mapper[Any]]:
    """Return the mappers of *bases*. It is an error if there are none, because no key could be found.

    The default is every base that is known, those of the classes in *mentioned* included.
    """
    known = [*DeclarativeBase.__subclasses__(), *DeclarativeBaseNoMeta.__subclasses__(), *mentioned]
    named = known if bases is None else bases
    mappers: list[Mapper[Any]] = []
    for base in named:
        own = registry_of(base, "bases has")
        # configured mappers also reveal foreign keys without a type, and relationships without a constraint
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
            "declarative_base() returned, a registry(), or SQLModel"
        )
    return [*dict.fromkeys(mappers)]


# --- documents


def _apps(app: FastAPI, prefix: str = "") -> Iterator[tuple[str, FastAPI]]:
    """Yield *app* and each FastAPI application that is mounted in it, with their paths."""
    yield prefix, app
    for route in app.routes:
        if isinstance(route, Mount) and isinstance(route.app, FastAPI):
            yield from _apps(route.app, prefix + route.path)


def _document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of *app*."""
    # not app.openapi(), which caches the document of its first call, and which an application may override
    with marked_schemas(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Duplicate Operation ID")  # a route with several methods
        return get_openapi(title="", version="", routes=app.routes, webhooks=app.webhooks.routes)


def _operations(document: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Yield kind, path, method and description of each operation; the kind is empty for a route."""
    for path, item in document.get("paths", {}).items():
        for method in METHODS:
            if method in item:
                yield "", prefix + path, method.upper(), item[method]
                for callback in item[method].get("callbacks", {}).values():
                    for kind, url, sent, operation in _operations({"paths": callback}, ""):
                        yield kind or "callback", f"{prefix}{path} {url}", sent, operation
    for name, item in document.get("webhooks", {}).items():
        for _, _, method, operation in _operations({"paths": {"": item}}, ""):
            yield "webhook", f"{prefix} {name}".lstrip(), method, operation


@dataclasses.dataclass(frozen=True)
class _Value:
    """A place in a schema."""

    path: str = ""
    name: str | None = None
    """Its name; ``None`` for a whole body, an element of a tuple, or a value of a dictionary."""
    model: str = ""
    """The name of the schema that it is a property of."""
    is_checked: bool = False
    """True in a ``PublicModel``, which checks its fields itself."""


class _Reader:
    """Reads the schemas of an operation; *is_sent* is True if the application sends it, as it does a webhook.

    *endpoint* may show a row of *mappers* where it declares nothing.
    """

    def __init__(
        self,
        keys: _Keys,
        schemas: Mapping[str, Any],
        is_sent: bool,
        endpoint: Endpoint | None,
        mappers: Iterable[Mapper[Any]],
    ) -> None:
        self._keys, self._schemas, self._is_sent = keys, schemas, is_sent
        self._row = None if endpoint is None else endpoint.shown_key(mappers)
        self._mentioned = () if endpoint is None else endpoint.mentioned

    def problems(self, operation: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None, str, str | None]]:
        """Yield where, field, column, advice and row of each finding."""
        for parameter in operation.get("parameters", ()):
            value = _Value(parameter["name"], parameter["name"])
            yield from self._of_schema(parameter["in"], parameter.get("schema", {}), value, self._is_sent)
        for media in operation.get("requestBody", {}).get("content", {}).values():
            yield from self._of_schema("body", media.get("schema", {}), _Value(), self._is_sent)
        for status, response in operation.get("responses", {}).items():
            for media in response.get("content", {}).values():
                schema = media.get("schema", {})
                if not schema.get("$ref", "").endswith("/HTTPValidationError"):  # which FastAPI adds
                    where = f"response {status}"
                    yield from self._of_schema(where, schema, _Value(), not self._is_sent)

    def _of_schema(
        self, where: str, schema: Mapping[str, Any], whole: _Value, is_shown: bool
    ) -> Iterator[tuple[str, str, str | None, str, str | None]]:
        for value, doubt in self._values(schema, whole, frozenset()):
            key = None
            if doubt is None and value.name is not None:
                key = self._keys.named(value.name, value.model, self._mentioned)
            if key is not None and not (is_shown and value.is_checked):
                advice = f"show {key.instead}" if is_shown else "take the public id"
                yield where, value.path, str(key.column), advice, None
            elif is_shown and doubt is not None and self._row is not None:
                model, key = self._row
                yield where, value.path, str(key.column), doubt, model.__name__
            elif is_shown and (doubt is not None or value.name is None):
                yield where, value.path, None, doubt or "show a model, whose fields have names", None

    def _values(self, schema: Any, value: _Value, outer: frozenset[str]) -> Iterator[tuple[_Value, str | None]]:
        """Yield the numbers in *schema*, and each part that may contain numbers, together with advice."""
        reference = schema.get("$ref", "").removeprefix(_COMPONENTS)
        if reference:
            if reference not in outer:
                inner = dataclasses.replace(value, model=reference)
                yield from self._values(self._schemas.get(reference, {}), inner, outer | {reference})
            return
        choices = [choice for word in ("anyOf", "oneOf", "allOf") for choice in schema.get(word, ())]
        for choice in choices:
            yield from self._values(choice, value, outer)
        constants = [schema["const"]] if "const" in schema else schema.get("enum")
        if constants is not None:
            if any(isinstance(one, (int, float)) and not isinstance(one, bool) for one in constants):
                yield value, None
        elif schema.get("type") in ("integer", "number"):
            yield value, None
        elif schema.get("type") == "array":
            # an element of a list has the name of the list: scores: list[int]
            element = dataclasses.replace(value, path=f"{value.path}[]")
            for items in schema.get("prefixItems", ()):
                yield from self._values(items, dataclasses.replace(element, name=None), outer)
            items = schema.get("items", {} if "prefixItems" not in schema else None)
            if items is not None:
                yield from self._values(items, element, outer)
        elif schema.get("type") == "object":
            yield from self._of_object(schema, value, outer)
        elif not choices and "type" not in schema:
            yield value, "declare its type" if value.path else "declare a response model, or response_class="

    def _of_object(
        self, schema: Mapping[str, Any], value: _Value, outer: frozenset[str]
    ) -> Iterator[tuple[_Value, str | None]]:
        properties = schema.get("properties", {})
        for name, inner in properties.items():
            path, is_checked = f"{value.path}.{name}".lstrip("."), bool(schema.get(CHECKED))
            yield from self._values(inner, _Value(path, name, value.model, is_checked), outer)
        more = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties", not properties)]
        element = dataclasses.replace(value, path=f"{value.path}[]", name=None)
        for inner in more:
            if inner is True or inner == {}:
                yield element, "name the models that it may be, or the type of its elements"
            elif inner:
                yield from self._values(inner, element, outer)
