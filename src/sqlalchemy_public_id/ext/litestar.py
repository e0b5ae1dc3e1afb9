"""Litestar: read and write typed ids, load rows by the public id in the path, and answer errors.

>>> from litestar import Litestar
>>> from litestar.di import Provide
>>> from sqlalchemy_public_id.ext.litestar import PublicIdPlugin, by_public_id
>>> async def provide_session():
...     with Session(engine) as session:
...         yield session
>>> dependencies = {"user": by_public_id(User), "db_session": Provide(provide_session)}
>>> app = Litestar(plugins=[PublicIdPlugin()], dependencies=dependencies)
>>> sorted(app.dependencies)
['db_session', 'user']

A handler of ``/users/{user_id:str}`` with a parameter ``user`` then gets the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Annotated, Any, cast

from sqlalchemy.orm import Session
from sqlalchemy.orm.interfaces import ORMOption

from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.errors import (
    AmbiguousPublicId,
    ConfigurationError,
    IdempotencyConflict,
    PublicIdNotFound,
    require,
)
from sqlalchemy_public_id.ext import _mapped
from sqlalchemy_public_id.ext._bodies import ids_in
from sqlalchemy_public_id.ext._legacy import LegacyKeys
from sqlalchemy_public_id.ext._messages import (
    ANSWERED,
    field_of,
    is_row,
    log_ambiguous,
    missing_parameter,
    source_of,
    validation_message,
)
from sqlalchemy_public_id.ext._rows import find_row, parameter_of
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.lookup import LoadOptions
from sqlalchemy_public_id.orm.inspection import checked_condition, unscoped
from sqlalchemy_public_id.typed import TypedId, field_that_parsed
from sqlalchemy_public_id.typed.schema import json_schema_of

with require("litestar"):
    from litestar import Request, Response
    from litestar.concurrency import sync_to_thread
    from litestar.config.app import AppConfig
    from litestar.di import NamedDependency, Provide
    from litestar.exceptions import ClientException, HTTPException, NotFoundException, ValidationException, responses
    from litestar.handlers import HTTPRouteHandler
    from litestar.openapi.spec import OpenAPIType, Schema
    from litestar.params import PathParameter
    from litestar.plugins import InitPlugin, OpenAPISchemaPlugin, ReceiveRoutePlugin
    from litestar.routes import BaseRoute, HTTPRoute
    from litestar.typing import FieldDefinition

__all__ = ["LegacyKeys", "PublicIdPlugin", "by_public_id"]

_HEADERS = "sqlalchemy_public_id.headers"
"""The key in the scope of a request for the headers of its answer."""


class PublicIdPlugin(InitPlugin, OpenAPISchemaPlugin, ReceiveRoutePlugin):
    """Let a Litestar application read and write typed ids, and answer the errors of this library.

    The plugin decodes typed ids from paths, queries, headers and bodies (dataclasses, ``msgspec.Struct``,
    ``TypedDict``), and encodes them in responses. A malformed id is answered with 400, like every invalid value. The
    OpenAPI document contains the pattern of the ids.

    * 404: :class:`~sqlalchemy_public_id.PublicIdNotFound` for the requested row;
    * 400: the same error with a field, for an unknown id in a body;
      :class:`~sqlalchemy_public_id.errors.InvalidCursor`, :class:`~sqlalchemy_public_id.errors.InvalidPage` and
      :class:`~sqlalchemy_public_id.errors.InvalidPublicId`, in the shape of Litestar's ``ValidationException``;
    * 409: :class:`~sqlalchemy_public_id.errors.IdempotencyConflict`, and
      :class:`~sqlalchemy_public_id.errors.AmbiguousPublicId`, which is logged.

    The answers name models, fields and formats, but contain no values. An id that did not come with the request, such
    as one in your settings, is answered in the same way. The ``key`` of an unknown id is the field of the body that has
    its type, if there is exactly one; else, the attribute of the model. The application's own handlers, encoders and
    decoders take precedence.

    The OpenAPI document gets a 404 for each operation with a public id in its path. It gets a 409 where a client can
    send the id of a new row: in the body of a POST or PUT, or in the path of a PUT with a body.

    When a route is added, :class:`~sqlalchemy_public_id.errors.ConfigurationError` is raised if :func:`by_public_id`
    reads a parameter that the path does not have, or if the body is a mapping whose keys are typed ids, because msgspec
    would not check them.
    """

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        app_config.type_decoders = [*(app_config.type_decoders or ()), (_is_typed_id, _decode)]
        app_config.type_encoders = {TypedId: str, **(app_config.type_encoders or {})}
        config: Any = app_config  # the type of its handlers is generic, without an argument
        handlers = dict.fromkeys(ANSWERED, _answer)
        config.exception_handlers = {**handlers, **(config.exception_handlers or {})}
        config.before_send = [*(config.before_send or ()), _add_headers]
        return app_config

    def receive_route(self, route: BaseRoute) -> None:
        """Check and describe the handlers of *route*. Called once for each path of the application."""
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                _check_path(route, handler)
                _check_body(route, handler)
                _describe(route, handler)

    @staticmethod
    def is_plugin_supported_type(value: Any) -> bool:
        return _is_typed_id(value)

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Schema:
        return Schema(type=OpenAPIType.STRING, **_described(field_definition.annotation.id_format))


def by_public_id(
    model: type[Any],
    *,
    session: str = "db_session",
    param: str | None = None,
    attribute: str | None = None,
    options: Sequence[ORMOption] = (),
    scope: str | None = None,
    legacy_keys: LegacyKeys | None = None,
) -> Provide:
    """Build a dependency that provides the row of *model* with the public id in the path, or answers 404.

    A malformed id is answered with 404 without a query, like an unknown one.

    :param session: the name of the dependency that provides the ``Session`` or ``AsyncSession``. The default is the
        name that the plugin of advanced-alchemy uses. A ``Session`` is used in a thread, so that it does not block the
        event loop.
    :param param: the name of the path parameter. The default comes from the model: ``/customers/{customer_id:str}``.
    :param attribute: the name of the public id if the model has several; ``public_id`` by default.
    :param options: loader options, such as ``selectinload(Customer.orders)``.
    :param scope: the name of a dependency that provides a condition, such as ``Order.customer_id == user.id``. A row
        outside the condition is answered with 404, like a missing row.
    :param legacy_keys: the integer keys in old links to accept until a given day. Their headers need the plugin.
    :raises ConfigurationError: if *model* has no such public id.
    """
    format = public_id_type(_mapped.public_id(model, attribute)[1]).id_format
    param = parameter_of(model, param, attribute=attribute, legacy_keys=legacy_keys)

    async def row(**given: Any) -> Any:
        load: LoadOptions = {"options": options}
        if scope is not None:
            load["where"] = checked_condition(f"the dependency {scope} is", given[scope], model)

        def find(sync: Session) -> tuple[Any, Mapping[str, str]]:
            return find_row(sync, model, given[param], legacy_keys, attribute=attribute, **load)

        own = unscoped(given[session])
        obj, headers = await (own.run_sync(find) if hasattr(own, "run_sync") else sync_to_thread(find, own))
        if obj is None:
            raise _NoRow(given[param], model=model.__name__)
        if headers:
            given["request"].scope[_HEADERS] = headers
        return obj

    # Litestar reads the signature and the annotations: the names are those of the application
    # the pattern is documentation only: Litestar would answer 400 itself
    described = _described(format)
    if legacy_keys is not None:
        patterns = [format.pattern, legacy_keys.pattern]
        described = {"format": described["format"], "pattern": "|".join(patterns), "examples": described["examples"]}
    from_path = Annotated[str, PathParameter(schema_extra=described)]
    dependency = cast("Any", NamedDependency)[Any]
    types: dict[str, Any] = {param: from_path, session: dependency} | ({} if scope is None else {scope: dependency})
    if legacy_keys is not None:
        types["request"] = Request
    keyword = Parameter.KEYWORD_ONLY
    signature = Signature([Parameter(key, keyword, annotation=value) for key, value in types.items()])
    row.__signature__ = signature.replace(return_annotation=model)  # type: ignore[attr-defined]
    row.__annotations__ = types | {"return": model}
    return _ProvideRow(row, param)


class _ProvideRow(Provide):
    """Provides the row whose public id is in the path."""

    def __init__(self, dependency: Any, param: str) -> None:
        super().__init__(dependency)
        self.param: str = param


class _Conflict(ClientException):
    status_code = 409


class _NoRow(PublicIdNotFound, NotFoundException):
    """A :class:`PublicIdNotFound` that Litestar answers with 404 without the plugin, too."""

    def __init__(self, value: object, *, model: str) -> None:
        PublicIdNotFound.__init__(self, value, model=model)
        NotFoundException.__init__(self, detail=f"no such {model}")


def _described(format: Format) -> dict[str, Any]:
    """Return the arguments of a ``Schema`` that describe the ids of *format*."""
    described = json_schema_of(format)
    return {
        "format": described["format"],
        "pattern": described["pattern"],
        "min_length": described["minLength"],
        "max_length": described["maxLength"],
        "examples": described["examples"],
    }


async def _add_headers(message: Any, scope: Any) -> None:
    """Add the headers of an old link to its answer. Called before each part of an answer is sent."""
    if message["type"] == "http.response.start":
        added = [(name.lower().encode(), value.encode()) for name, value in scope.get(_HEADERS, {}).items()]
        message["headers"] = [*message.get("headers", ()), *added]


def _is_typed_id(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, TypedId) and value is not TypedId


def _decode(target: type[TypedId], value: Any) -> TypedId:
    return target(value)


def _answer(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    response: Response[Any] = cast("Any", responses).create_exception_response(request, _http_exception(request, error))
    return response


def _http_exception(request: Request[Any, Any, Any], error: Exception) -> HTTPException:
    message = validation_message(error)
    if isinstance(error, IdempotencyConflict):
        return _Conflict(message, extra={"differing": list(error.differing)})
    if isinstance(error, AmbiguousPublicId):
        log_ambiguous(error)
        return _Conflict(message)
    if is_row(error):
        return NotFoundException(message)
    source = source_of(error, request.method)
    extra = {"message": message, "key": _key_of(request, error) if source == "body" else field_of(error)}
    extra["source"] = source
    return ValidationException(
        f"Validation failed for {request.method} {request.url.path}",
        extra=[{name: value for name, value in extra.items() if value is not None}],
    )


def _key_of(request: Request[Any, Any, Any], error: Any) -> str | None:
    """Return the field of the body that has the type of the wrong id, if there is one; else, as for other inputs."""
    value = getattr(error, "value", None)
    if isinstance(value, TypedId) and field_that_parsed(value) is None:
        scope: Any = request.scope
        data = getattr(scope.get("route_handler"), "parsed_data_field", None)
        fields = {found.field for found in ids_in(getattr(data, "raw", None)) if isinstance(value, found.type_)}
        if len(fields) == 1 and None not in fields:
            return fields.pop()
    return field_of(error)


# --- routes


def _rows_of(handler: HTTPRouteHandler) -> Iterator[_ProvideRow]:
    """Yield what :func:`by_public_id` has built among the dependencies that *handler* uses, directly or not."""
    given: Mapping[str, Provide] = handler.resolve_dependencies()
    names = [*handler.parsed_fn_signature.parameters]
    for name in names:  # the list grows
        provide = given.get(name)
        if isinstance(provide, _ProvideRow):
            yield provide
        elif provide is not None:
            names += [inner for inner in provide.parsed_fn_signature.parameters if inner not in names]


def _check_path(route: HTTPRoute, handler: HTTPRouteHandler) -> None:
    for row in _rows_of(handler):
        if row.param not in route.path_parameters:
            raise missing_parameter(route.path, row.param, f"{row.param}:str")


def _check_body(route: HTTPRoute, handler: HTTPRouteHandler) -> None:
    data, resolved = handler.parsed_data_field, cast("Any", handler)
    if data is None or resolved.resolve_data_dto() is not None:  # a DTO decodes JSON itself, with the keys
        return
    for found in ids_in(data.raw):
        if found.unchecked_in is not None:
            name = found.type_.__name__
            raise ConfigurationError(
                f"{route.path}: the body of {handler.handler_name} has {found.unchecked_in}, whose keys would not be "
                f"checked, because msgspec calls no decoder for keys; take a Pydantic model, a list of objects with "
                f"a field for the id, or str as keys, and {name}(key) for each of them"
            )


def _describe(route: HTTPRoute, handler: HTTPRouteHandler) -> None:
    parameters = handler.parsed_fn_signature.parameters
    in_path = [parameters[name].annotation for name in route.path_parameters if name in parameters]
    names_row = any(_rows_of(handler)) or any(map(_is_typed_id, in_path))
    added: list[type[HTTPException]] = [NotFoundException] if names_row else []
    data, methods = handler.parsed_data_field, handler.http_methods
    may_name_row = data is not None and methods & {"POST", "PUT"} and any(True for _ in ids_in(data.raw))
    # only an insert conflicts: its id is in the body, or in the path of a PUT; a POST has another id there
    if may_name_row or (data is not None and "PUT" in methods and names_row):
        added.append(_Conflict)
    own = [*(handler.raises or ())]
    # the application has a copy of each handler
    handler.raises = own + [each for each in added if each.status_code not in {one.status_code for one in own}]
