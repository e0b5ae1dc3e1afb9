"""FastAPI: the row that a path names, or 404; errors as answers; and a check that no integer key is shown.

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
from importlib import import_module
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from sqlalchemy import SQLColumnExpression, select
from sqlalchemy.orm import RelationshipProperty, Session, scoped_session
from sqlalchemy.orm.interfaces import ORMOption
from sqlalchemy.util import ThreadLocalRegistry

from sqlalchemy_public_id.errors import (
    ConfigurationError,
    InvalidPublicId,
    MissingExtra,
    PublicIdConflict,
    PublicIdNotFound,
    shown,
)
from sqlalchemy_public_id.ext import _mapped
from sqlalchemy_public_id.orm.sessions import require_session
from sqlalchemy_public_id.types import public_id_type

try:
    import_module("fastapi")
except ModuleNotFoundError as error:
    raise MissingExtra("fastapi", extra="fastapi") from error

from fastapi import Depends, FastAPI, HTTPException, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exception_handlers import request_validation_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import WithJsonSchema

from sqlalchemy_public_id.ext._lint import Finding, lint_app
from sqlalchemy_public_id.ext.pydantic import PublicId

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

__all__ = ["Finding", "by_public_id", "install", "lint_app"]

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
) -> Callable[..., Awaitable[M]]:
    """A dependency: the row of *model* whose public id stands in the path, or the answer 404.

    :param session: the dependency that gives a ``Session`` or an ``AsyncSession``. A ``Session`` is used in a thread,
        so that the event loop does not wait. A ``scoped_session`` needs a ``scopefunc`` that tells requests apart:
        without one, it has a session for each thread, and a request has several threads.
    :param param: the name of the path parameter; by default that of the model, ``customer_id`` for ``Customer``.
    :param attribute: which public id, where a model has several; ``public_id`` by default.
    :param options: loader options, such as ``selectinload(Customer.orders)``.
    :param scope: a dependency that gives a condition, such as ``Order.customer_id == user.id``. A row outside of it is
        answered like one that does not exist. ``sqlalchemy.true()`` is for who may see all.
    :param malformed: the answer to a text that cannot be an id: 404 as for an unknown one, or 422, saying why.
    :raises ConfigurationError: where *model* has no such public id.
    """
    name, column = _mapped.public_id(model, attribute)
    format = public_id_type(column).id_format
    if malformed not in (404, 422):
        raise ConfigurationError(f"malformed is {shown(malformed)}, expected 404 or 422")
    as_id = PublicId(model, attribute=attribute)
    shape: Any = as_id if malformed == 422 else WithJsonSchema(as_id.json_schema())

    async def row(public_id: str, session: Any, condition: SQLColumnExpression[Any] | None = None) -> M:
        if not format.is_valid(public_id):
            raise _NoRow(public_id, model=model.__name__)
        query = select(model).where(getattr(model, name) == public_id).options(*options)
        if scope is not None:
            is_relationship = isinstance(getattr(condition, "property", None), RelationshipProperty)
            if not isinstance(condition, SQLColumnExpression) or is_relationship:
                raise ConfigurationError(
                    f"the scope of {model.__name__} gave {shown(condition)}, expected a condition such as "
                    f"{model.__name__}.owner_id == user.id, or sqlalchemy.true()"
                )
            query = query.where(condition)

        def find(sync: Session) -> M | None:
            require_session(sync)
            return sync.scalars(query).unique().one_or_none()

        session = _of_the_request(session)
        found = await (session.run_sync(find) if hasattr(session, "run_sync") else run_in_threadpool(find, session))
        if found is None:
            raise _NoRow(public_id, model=model.__name__)
        return found

    alias = param or f"{_mapped.snake_case(model.__name__)}_id"
    parameters = {
        "public_id": Annotated[str, shape, Path(alias=alias, description=f"The public id of the {model.__name__}.")],
        "session": Annotated[Any, Depends(session)],
    }
    if scope is not None:
        parameters["condition"] = Annotated[Any, Depends(scope)]
    # FastAPI reads the signature: the parameters depend on the model
    keyword = Parameter.KEYWORD_ONLY
    row.__signature__ = Signature([Parameter(key, keyword, annotation=value) for key, value in parameters.items()])  # type: ignore[attr-defined]
    return row


def install(app: FastAPI) -> None:
    """Have *app* answer errors of this library, wherever they are raised, as problem details (:rfc:`9457`).

    :class:`PublicIdNotFound` is 404, :class:`InvalidPublicId` 422, :class:`PublicIdConflict` 409. These answers name
    models, fields and formats, and no values: neither keys nor SQL can be in them, nor what was sent. (The 422 that
    FastAPI itself makes of a malformed body or parameter repeats the input, as it does for every type.) The OpenAPI
    document gets the answer 404 for each operation with a public id in its path. A malformed request that FastAPI
    could not describe, because no JSON can hold its input, is 422 instead of 500. Without this, :func:`by_public_id`
    answers 404 as an ``HTTPException`` does, and the other errors are 500.
    """
    app.add_exception_handler(PublicIdNotFound, _not_found)
    app.add_exception_handler(InvalidPublicId, _invalid)
    app.add_exception_handler(PublicIdConflict, _conflict)
    if app.exception_handlers.get(RequestValidationError) is request_validation_exception_handler:
        app.add_exception_handler(RequestValidationError, _unprocessable)
    described = app.openapi

    def openapi() -> dict[str, Any]:
        document = described()
        _add_not_found(document)
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation says


# --- inside


class _NoRow(PublicIdNotFound, HTTPException):
    """No row for a path: FastAPI knows what to do with it, whether or not :func:`install` was called."""

    def __init__(self, value: object, *, model: str) -> None:
        PublicIdNotFound.__init__(self, value, model=model)
        HTTPException.__init__(self, 404, f"no such {model}")


def _of_the_request(session: AsyncSession | Session | scoped_session[Session]) -> Any:
    """*session*, before a thread is asked for it: to a ``scoped_session``, the thread may be somebody else."""
    if not isinstance(session, scoped_session):
        return session
    if isinstance(session.registry, ThreadLocalRegistry):
        raise ConfigurationError(
            "this scoped_session has a session for each thread, and a request has several threads, which nobody would "
            "end the sessions of; give it a scopefunc that tells requests apart, or have the dependency yield a Session"
        )
    return session()


def _not_found(request: Request, error: Any) -> JSONResponse:
    return _problem(404, "Not Found", f"no such {error.model}", field=error.field)


def _invalid(request: Request, error: Any) -> JSONResponse:
    # the prefix of what was sent is all that stands before the last separator: of a token, the most
    reason = "it has another prefix" if error.reason.startswith("the prefix is ") else error.reason
    detail = f"not a public id: {reason} (expected {error.expected})"
    return _problem(422, "Unprocessable Content", detail, field=error.field)


async def _unprocessable(request: Request, error: Any) -> JSONResponse:
    """FastAPI's own answer, which repeats the input; without it where JSON cannot hold it: a lone surrogate, a NaN."""
    try:
        return await request_validation_exception_handler(request, error)
    except ValueError:
        found = [{name: each[name] for name in ("type", "loc", "msg")} for each in error.errors()]
        return JSONResponse({"detail": found}, 422)


def _conflict(request: Request, error: Any) -> JSONResponse:
    detail = f"the {error.model} with this public id is there already, with other contents"
    return _problem(409, "Conflict", detail, differing=list(error.differing))


def _problem(status: int, title: str, detail: str, **more: Any) -> JSONResponse:
    content = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    content |= {name: value for name, value in more.items() if value is not None}
    return JSONResponse(content, status, media_type=_MEDIA_TYPE)


_MEDIA_TYPE = "application/problem+json"
_PROBLEM = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail"],
}
_NOT_FOUND = {"description": "Not Found", "content": {_MEDIA_TYPE: {"schema": _PROBLEM}}}


def _add_not_found(document: dict[str, Any]) -> None:
    paths: dict[str, dict[str, Any]] = document.get("paths", {})
    for operation in [operation for path in paths.values() for operation in path.values()]:
        if hasattr(operation, "get"):  # a path may also have a summary
            for parameter in operation.get("parameters", ()):
                if parameter.get("in") == "path" and parameter.get("schema", {}).get("format") == "public-id":
                    operation["responses"].setdefault("404", _NOT_FOUND)
