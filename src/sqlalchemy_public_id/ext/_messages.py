"""What a web service tells its clients about an error: no keys, no SQL and no input."""

from __future__ import annotations

from typing import Any

from sqlalchemy_public_id.errors import (
    ConfigurationError,
    IdempotencyConflict,
    InvalidCursor,
    InvalidPage,
    InvalidPublicId,
    PublicIdNotFound,
)
from sqlalchemy_public_id.typed import field_that_parsed

ANSWERED = (PublicIdNotFound, InvalidPublicId, InvalidPage, IdempotencyConflict)
"""The errors that the extensions of web frameworks answer."""
_WITHOUT_BODY = {"GET", "HEAD", "DELETE", "OPTIONS", None}  # a websocket has no method


def status_of(error: Exception) -> int:
    """Return the status of an answer: 409 for a conflict, 404 for the requested row, 422 for an id in the input."""
    if isinstance(error, IdempotencyConflict):
        return 409
    return 404 if is_row(error) else 422


def source_of(error: Exception, method: str | None) -> str:
    """Return ``body`` or ``query``, by the method of the request; the parameters of a page are in the query."""
    return "query" if method in _WITHOUT_BODY or isinstance(error, (InvalidCursor, InvalidPage)) else "body"


def detail_of(error: Any, method: str | None, field: str | int | None) -> dict[str, Any]:
    """Return one entry of the list that FastAPI sends in a 422: kind, place and message."""
    kind = "public_id_invalid" if isinstance(error, InvalidPublicId) else "public_id_unknown"
    if isinstance(error, (InvalidCursor, InvalidPage)):
        kind = "cursor_invalid" if isinstance(error, InvalidCursor) else "page_invalid"
    place = (source_of(error, method), *([] if field is None else [field]))
    return {"type": kind, "loc": place, "msg": message_of(error)}


def is_row(error: Exception) -> bool:
    """Return True if the requested row does not exist; False if the unknown id is part of the input."""
    return isinstance(error, PublicIdNotFound) and error.field is None


def field_of(error: Any) -> str | None:
    """Return the name of the field that has parsed the id; else, the last part of "Order.customer_public_id"."""
    if error.field is None:
        return None
    is_page = isinstance(error, (InvalidCursor, InvalidPage))
    parsed_by = None if is_page else field_that_parsed(error.value)
    return parsed_by or str(error.field).rpartition(".")[2]


def message_of(error: Any) -> str:
    """Return what is wrong, without the value: even the prefix of the input may be most of a token."""
    if isinstance(error, IdempotencyConflict):
        return f"the {error.model} with this public id exists, with other contents"
    if isinstance(error, InvalidPublicId):
        reason = "it has another prefix" if error.reason.startswith("the prefix is ") else error.reason
        return f"not a public id: {reason} (expected {error.expected})"
    if isinstance(error, InvalidCursor):
        return f"not a cursor: {error.reason}; begin with the first page"
    if isinstance(error, InvalidPage):
        return error.reason
    return f"no such {error.model}"


def missing_parameter(path: str, name: str, written: str | None = None) -> ConfigurationError:
    """Build the error for a parameter *name* that by_public_id() reads, and that the *path* of its route does not have.

    :param written: how the parameter is written in a path, if not as its name.
    """
    return ConfigurationError(
        f"the path {path} has no parameter {name}, so every request is refused; write {{{written or name}}} in the "
        f'path, or name its parameter with param="…" of by_public_id()'
    )
