"""Starlette: load the row whose public id is in the path of a request, and answer errors.

>>> from starlette.applications import Starlette
>>> from starlette.requests import Request
>>> from starlette.responses import JSONResponse
>>> from starlette.routing import Route
>>> from sqlalchemy_public_id.ext.starlette import by_public_id, install
>>> find_user = by_public_id(User)
>>> async def show(request: Request) -> JSONResponse:
...     with Session(engine) as session:
...         user = await find_user(request, session)
...         return JSONResponse({"id": user.public_id, "name": user.name})
>>> app = Starlette(routes=[Route("/users/{user_id}", show)])
>>> install(app)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import SQLColumnExpression
from sqlalchemy.orm import Session
from sqlalchemy.orm.interfaces import ORMOption
from typing_extensions import Unpack

from sqlalchemy_public_id.errors import PublicIdNotFound, require
from sqlalchemy_public_id.ext._legacy import LegacyKeys
from sqlalchemy_public_id.ext._messages import ANSWERED, answer_to, field_of, media_type_of, missing_parameter
from sqlalchemy_public_id.ext._rows import find_row, parameter_of
from sqlalchemy_public_id.lookup import LoadOptions

with require("starlette"):
    from starlette.applications import Starlette
    from starlette.datastructures import MutableHeaders
    from starlette.exceptions import HTTPException
    from starlette.requests import HTTPConnection
    from starlette.responses import JSONResponse
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sqlalchemy_public_id.ext import _sessions

__all__ = ["LegacyKeys", "by_public_id", "install"]

M = TypeVar("M")
"""A model."""

HEADERS = "sqlalchemy_public_id.headers"
"""The key in the scope of a request for the headers of its answer."""


def by_public_id(
    model: type[M],
    *,
    param: str | None = None,
    attribute: str | None = None,
    options: Sequence[ORMOption] = (),
    legacy_keys: LegacyKeys | None = None,
) -> Callable[..., Awaitable[M]]:
    """Build a function that returns the row of *model* with the public id in the path of a request, or answers 404.

    Await the function with the request and a ``Session`` or an ``AsyncSession``. A ``Session`` is used in a thread, so
    that it does not block the event loop. With ``where=``, a condition such as ``Order.customer_id == user.id``, a row
    outside the condition is answered with 404, like a missing row. A malformed id is answered with 404 without a query.

    :param param: the name of the path parameter. The default comes from the model: ``customer_id`` for ``Customer``.
    :param attribute: the name of the public id if the model has several; ``public_id`` by default.
    :param options: loader options, such as ``selectinload(Customer.orders)``.
    :param legacy_keys: the integer keys in old links to accept until a given day. Their headers need :func:`install`.
    :raises ConfigurationError: if *model* has no such public id. The function raises it if the path has no such
        parameter.
    """
    name = parameter_of(model, param, attribute=attribute, legacy_keys=legacy_keys)

    async def row(request: HTTPConnection, session: Any, *, where: SQLColumnExpression[bool] | None = None) -> M:
        if name not in request.path_params:
            raise missing_parameter(request.url.path, name)
        text = request.path_params[name]
        load: LoadOptions = {"options": options, "where": where}
        found, headers = await row_or_404(session, model, text, legacy_keys, attribute=attribute, **load)
        if headers:
            request.scope[HEADERS] = headers
        return found

    return row


def install(app: Starlette, *, problem_details: bool = False) -> None:
    """Add exception handlers to *app* for the errors of this library, as those for FastAPI. Its own ones stay.

    * 404: :class:`~sqlalchemy_public_id.PublicIdNotFound` for the requested row;
    * 422: the same error with a field, for an unknown id in a body;
      :class:`~sqlalchemy_public_id.errors.InvalidCursor`, :class:`~sqlalchemy_public_id.errors.InvalidPage` and
      :class:`~sqlalchemy_public_id.errors.InvalidPublicId`;
    * 409: :class:`~sqlalchemy_public_id.errors.IdempotencyConflict`, and
      :class:`~sqlalchemy_public_id.errors.AmbiguousPublicId`, which is logged.

    The answers are ``{"detail": …}``; a 422 lists ``type``, ``loc`` and ``msg``, and a 409 also has ``differing``.
    ``loc`` is ``body`` or ``query``, by the method of the request, and the Pydantic field that has parsed a typed id;
    else, the attribute of the model. The answers name models, fields and formats, but contain no keys, no SQL and no
    input. An id that did not come with the request, such as one in your settings, is answered in the same way.

    :param app: the application, before it gets its first request. (FastAPI has an ``install`` of its own.)
    :param problem_details: answer with problem details (:rfc:`9457`).
    """
    add_handlers(app, problem_details=problem_details)


def add_handlers(
    app: Starlette, *, problem_details: bool, name_sent: Callable[[HTTPConnection, str], str | int] | None = None
) -> None:
    """Add the handlers of :func:`install` to *app*, except for errors that the application handles itself, and the
    middleware for old links.

    :param name_sent: a function that returns the name under which a client sends a field.
    """
    answer = _Answer(problem_details, name_sent)
    for error in ANSWERED:
        if isinstance(app.exception_handlers.get(error, answer), _Answer):  # the application has none of its own
            app.add_exception_handler(error, answer)
    app.add_middleware(_OldLinks)


class _Answer:
    """The handler of an error, which an application may replace by its own."""

    def __init__(
        self, problem_details: bool, name_sent: Callable[[HTTPConnection, str], str | int] | None = None
    ) -> None:
        self._problem_details, self._name_sent = problem_details, name_sent

    async def __call__(self, request: HTTPConnection, error: Exception) -> JSONResponse:
        field = field_of(error)
        sent = field if field is None or self._name_sent is None else self._name_sent(request, field)
        is_problem = self._problem_details
        content, status = answer_to(error, request.scope.get("method"), sent, problem_details=is_problem)
        return JSONResponse(content, status, media_type=media_type_of(is_problem))


async def row_or_404(
    session: Any,
    model: type[M],
    text: object,
    legacy_keys: LegacyKeys | None,
    *,
    attribute: str | None,
    **load: Unpack[LoadOptions],
) -> tuple[M, Mapping[str, str]]:
    """Return the row that ``find_row()`` finds, and the headers of its answer; raise an error that answers 404."""

    def find(sync: Session) -> tuple[M | None, Mapping[str, str]]:
        return find_row(sync, model, text, legacy_keys, attribute=attribute, **load)

    row, headers = await _sessions.run(session, find)
    if row is None:
        raise _NoRow(text, model=model.__name__)
    return row, headers


class _NoRow(PublicIdNotFound, HTTPException):
    """A :class:`PublicIdNotFound` that Starlette and FastAPI answer with 404 without ``install()``, too."""

    def __init__(self, value: object, *, model: str) -> None:
        PublicIdNotFound.__init__(self, value, model=model)
        HTTPException.__init__(self, 404, f"no such {model}")


class _OldLinks:
    """A middleware that adds the headers of an old link to its answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start" and HEADERS in scope:
                message.setdefault("headers", [])  # a mounted application may leave them out
                MutableHeaders(scope=message).update(scope[HEADERS])
            await send(message)

        await self.app(scope, receive, send_with_headers)
