"""What FastAPI adds to the answers of Starlette: the names of its fields, and its OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from inspect import signature
from typing import Any, get_args

from fastapi import Request, WebSocket
from fastapi.exception_handlers import (
    request_validation_exception_handler,
    websocket_request_validation_exception_handler,
)
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from starlette.requests import HTTPConnection

from sqlalchemy_public_id.ext._fields import read_paths
from sqlalchemy_public_id.ext._messages import TITLES, content_of, media_type_of, missing_parameter

METHODS = ("delete", "get", "head", "options", "patch", "post", "put", "trace")
"""The names of operations in an OpenAPI document."""
_REFERENCE = re.compile(r'"\$ref": "#/components/schemas/([^"]+)"')


def name_sent(request: HTTPConnection, field: str) -> str | int:
    """Return the alias of *field*, if all models in the signature of the endpoint agree on one; else, *field*.

    The request is not searched for the id: it may be as large and as nested as a client likes.
    """
    route: Any = request.scope.get("route")
    names: set[str | int] = set()
    with suppress(Exception):  # an annotation is a name that only FastAPI can resolve
        parts: list[Any] = [each.annotation for each in signature(route.endpoint, eval_str=True).parameters.values()]
        for part in parts:  # the list grows
            fields: dict[str, FieldInfo] = {}
            if isinstance(part, type) and issubclass(part, BaseModel):
                fields = part.model_fields
                names.update(next(read_paths(part, field, fields[name]))[0] for name in fields if name == field)
            inner = [*get_args(part), *(each.annotation for each in fields.values())]
            parts += [each for each in inner if not any(each is one for one in parts)]
    return names.pop() if len(names) == 1 else field


async def unprocessable(request: Request, error: Any) -> JSONResponse:
    """Answer a malformed request as FastAPI does, but without its input if JSON cannot represent it.

    :raises ConfigurationError: if the path has no parameter of the name that a dependency reads. Starlette answers it
        with 500, and the server logs it.
    """
    _require_parameters(request, error)
    try:
        return await request_validation_exception_handler(request, error)
    except (ValueError, RecursionError):  # a lone surrogate, NaN, or more levels than Python's stack has
        details = [{name: detail[name] for name in ("type", "loc", "msg")} for detail in error.errors()]
        return JSONResponse({"detail": details}, 422)


async def close_malformed(websocket: WebSocket, error: Any) -> None:
    """Close a malformed web socket as FastAPI does.

    :raises ConfigurationError: as :func:`unprocessable` does.
    """
    _require_parameters(websocket, error)
    await websocket_request_validation_exception_handler(websocket, error)


def _require_parameters(connection: HTTPConnection, error: Any) -> None:
    for detail in error.errors():
        place = tuple(detail.get("loc", ()))
        is_missing = detail.get("type") == "missing" and len(place) == 2 and place[0] == "path"
        if is_missing and place[1] not in connection.path_params:
            path = getattr(connection.scope.get("route"), "path_format", connection.url.path)
            raise missing_parameter(path, place[1]) from error


def describe(document: dict[str, Any], *, problem_details: bool) -> None:
    """Add the answers to the operations of *document* that can have them."""
    schemas = document.get("components", {}).get("schemas", {})
    for method, operation in _operations(document):
        responses = operation.setdefault("responses", {})
        names_row = any(map(_is_public_id_in_path, operation.get("parameters", ())))
        if names_row:
            responses.setdefault("404", _response(404, problem_details))
        body = operation.get("requestBody") if method in ("post", "put") else None
        # only an insert conflicts: its id is in the body, or in the path of a PUT; a POST has another id there
        if body and ((method == "put" and names_row) or _has_public_id(body, schemas)):
            responses.setdefault("409", _response(409, problem_details))


def _response(status: int, problem_details: bool) -> dict[str, Any]:
    """Return the description of an answer."""
    content = content_of(status, "", problem_details=problem_details)
    properties: dict[str, Any] = {
        name: {"type": "integer" if isinstance(value, int) else "string"} for name, value in content.items()
    }
    required = list(properties)
    if status == 409:
        properties["differing"] = {"type": "array", "items": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": required}
    return {"description": TITLES[status], "content": {media_type_of(problem_details): {"schema": schema}}}


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in document.get("paths", {}).values():
        yield from ((method, operation) for method, operation in path.items() if method in METHODS)


def _is_public_id_in_path(parameter: Mapping[str, Any]) -> bool:
    return parameter.get("in") == "path" and parameter.get("schema", {}).get("format") == "public-id"


def _has_public_id(body: Mapping[str, Any], schemas: Mapping[str, Any]) -> bool:
    """Return True if *body*, or one of the *schemas* that it refers to, has a public id."""
    parts, seen = [body], set[str]()
    for part in parts:  # the list grows
        text = json.dumps(part, default=str)
        if '"format": "public-id"' in text:
            return True
        found = [name for name in _REFERENCE.findall(text) if name in schemas and name not in seen]
        seen.update(found)
        parts += [schemas[name] for name in found]
    return False
