"""FastAPI: load rows by the public id in the path, answer errors, page through rows, and find leaked integer keys.

>>> from typing import Annotated, Iterator
>>> from fastapi import Depends, FastAPI
>>> from sqlalchemy.orm import Session
>>> from sqlalchemy_public_id.ext.fastapi import by_public_id, install
>>> def get_session() -> Iterator[Session]:
...     with Session(engine) as session:
...         yield session
>>> app = FastAPI()
>>> install(app)
>>> @app.get("/users/{user_id}")
... def show(user: Annotated[User, Depends(by_public_id(User, session=get_session))]) -> str:
...     return user.name
>>> parameter = app.openapi()["paths"]["/users/{user_id}"]["get"]["parameters"][0]
>>> parameter["name"], parameter["schema"]["pattern"]
('user_id', '^[0-9a-z]{12}$')
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal, TypeVar

from sqlalchemy import SQLColumnExpression
from sqlalchemy.orm.interfaces import ORMOption

from sqlalchemy_public_id.errors import ConfigurationError, require
from sqlalchemy_public_id.ext._legacy import LegacyKeys
from sqlalchemy_public_id.ext._rows import parameter_of
from sqlalchemy_public_id.lookup import LoadOptions
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import checked_condition

with require("fastapi"):
    from fastapi import Depends, FastAPI, Path, Response
    from fastapi.exception_handlers import (
        request_validation_exception_handler,
        websocket_request_validation_exception_handler,
    )
    from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
    from pydantic import WithJsonSchema
    from starlette.requests import HTTPConnection

from sqlalchemy_public_id.ext import _sessions
from sqlalchemy_public_id.ext._answers import close_malformed, describe, name_sent, unprocessable
from sqlalchemy_public_id.ext._lint import Finding, lint_app
from sqlalchemy_public_id.ext._paging import Matches, page_of
from sqlalchemy_public_id.ext.pydantic import Page, PublicId
from sqlalchemy_public_id.ext.starlette import HEADERS, add_handlers, row_or_404

__all__ = ["Finding", "LegacyKeys", "Matches", "Page", "by_public_id", "install", "lint_app", "page_of"]

M = TypeVar("M")
"""A model."""


def by_public_id(
    model: type[M],
    *,
    session: Callable[..., Any],
    param: str | None = None,
    attribute: str | None = None,
    options: Sequence[ORMOption] = (),
    scope: Callable[..., Any] | None = None,
    malformed: Literal[404, 422] = 404,
    legacy_keys: LegacyKeys | None = None,
) -> Callable[..., Awaitable[M]]:
    """Build a dependency that returns the row of *model* with the public id in the path, or answers 404.

    :param session: a dependency that returns a ``Session`` or an ``AsyncSession``. A ``Session`` is used in a thread,
        so that it does not block the event loop. A ``scoped_session`` needs a ``scopefunc`` that identifies the
        request, because a request runs in several threads.
    :param param: the name of the path parameter. The default comes from the model: ``customer_id`` for ``Customer``.
    :param attribute: the name of the public id if the model has several; ``public_id`` by default.
    :param options: loader options, such as ``selectinload(Customer.orders)``.
    :param scope: a dependency that returns a condition, such as ``Order.customer_id == user.id``. A row outside the
        condition is answered with 404, like a missing row. Return ``sqlalchemy.true()`` to select all rows.
    :param malformed: the status for a malformed id: 404, as for an unknown id, or 422 with the reason.
    :param legacy_keys: the integer keys in old links to accept until a given day. If an endpoint returns a response,
        such as a redirect, its headers need :func:`install`.
    :raises ConfigurationError: if *model* has no such public id, if *session* is not a dependency, such as a
        ``sessionmaker``, or if ``malformed=422`` would refuse *legacy_keys*.
    """
    name = parameter_of(model, param, attribute=attribute, legacy_keys=legacy_keys)
    _sessions.require_dependency("session", session)
    if scope is not None:
        _sessions.require_dependency("scope", scope)
    if malformed not in (404, 422):
        raise ConfigurationError(f"malformed is {safe_repr(malformed)}, expected 404 or 422")
    as_id = PublicId(model, attribute=attribute)
    # for 404, the schema is documentation only: FastAPI would answer 422 itself
    schema: Any = as_id if malformed == 422 else WithJsonSchema(as_id.json_schema())
    if legacy_keys is not None:
        if malformed == 422:
            raise ConfigurationError(
                "malformed=422 would refuse the old links that legacy_keys= accepts; pass only one of them"
            )
        key_schema = {"type": "string", "pattern": legacy_keys.pattern, "deprecated": True}
        schema = WithJsonSchema({"format": "public-id", "anyOf": [as_id.json_schema(), key_schema]})

    async def row(
        public_id: str,
        session: Any,
        condition: SQLColumnExpression[Any] | None = None,
        response: Any = None,
        connection: Any = None,
    ) -> M:
        load: LoadOptions = {"options": options}
        if scope is not None:
            load["where"] = checked_condition(f"the scope of {model.__name__} returned", condition, model)

        obj, headers = await row_or_404(session, model, public_id, legacy_keys, attribute=attribute, **load)
        if headers:
            response.headers.update(headers)  # which FastAPI leaves out if the endpoint returns a response, or fails
            connection.scope[HEADERS] = headers
        return obj

    parameters: dict[str, Any] = {
        "public_id": Annotated[str, schema, Path(alias=name, description=f"The public id of the {model.__name__}.")],
        "session": Annotated[Any, Depends(session)],
    }
    if legacy_keys is not None:
        parameters |= {"response": Response, "connection": HTTPConnection}
    if scope is not None:
        parameters["condition"] = Annotated[Any, Depends(scope)]
    keyword = Parameter.KEYWORD_ONLY
    # FastAPI reads the signature, because the parameters depend on the model; lint_app() reads what it returns
    given = [Parameter(key, keyword, annotation=value) for key, value in parameters.items()]
    row.__signature__ = Signature(given, return_annotation=model)  # type: ignore[attr-defined]
    return row


def install(app: FastAPI, *, problem_details: bool = False) -> None:
    """Add exception handlers to *app* for the errors of this library, and describe their answers in OpenAPI.

    A handler of the application for one of these errors stays, whether it was added before or is added afterwards.

    * 404: :class:`~sqlalchemy_public_id.PublicIdNotFound` for the requested row;
    * 422: :class:`~sqlalchemy_public_id.PublicIdNotFound` with a field, for an unknown id in a body;
    * 422: :class:`~sqlalchemy_public_id.errors.InvalidCursor`, :class:`~sqlalchemy_public_id.errors.InvalidPage`,
      :class:`~sqlalchemy_public_id.errors.InvalidPublicId`;
    * 409: :class:`~sqlalchemy_public_id.errors.IdempotencyConflict`, and
      :class:`~sqlalchemy_public_id.errors.AmbiguousPublicId`, which is logged.

    Without the handlers, :func:`by_public_id` still answers 404, but the other errors are answered with 500.

    The answers have the shape of FastAPI's own: ``{"detail": …}``, where a 422 lists ``type``, ``loc`` and ``msg``.
    ``loc`` is ``body`` or ``query``, by the method of the request, and the name of the Pydantic field that has parsed
    the id, if it is a typed id; else, the attribute of the model. The request is not searched for the id, so an answer
    costs the same for a large request as for a small one. An id that did not come with the request, such as one in your
    settings, is answered in the same way.

    The answers name models, fields and formats, but contain no keys, no SQL and no input. (The 422 that FastAPI itself
    builds for a malformed body or parameter has the exact place, and repeats the input, as for every type.) If JSON
    cannot represent the input of a malformed request, the answer is 422 instead of 500. If :func:`by_public_id` reads a
    parameter that the path does not have, the answer is 500 instead of 422, and the log says what to write, also for a
    web socket.

    The OpenAPI document gets a 404 for each operation with a public id in its path. It gets a 409 where a client can
    send the id of a new row: in the body of a POST or PUT, or in the path of a PUT with a body.

    :param problem_details: answer with problem details (:rfc:`9457`). FastAPI's own answers keep their shape.
    """
    add_handlers(app, problem_details=problem_details, name_sent=name_sent)
    for error, usual, own in (
        (RequestValidationError, request_validation_exception_handler, unprocessable),
        (WebSocketRequestValidationError, websocket_request_validation_exception_handler, close_malformed),
    ):
        if app.exception_handlers.get(error) is usual:  # the application has none of its own
            handler: Any = own
            app.add_exception_handler(error, handler)
    original = app.openapi

    def openapi() -> dict[str, Any]:
        document = original()
        describe(document, problem_details=problem_details)
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation says
