"""What a web service tells its clients about an error: no keys, no SQL and no input."""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy_public_id.errors import (
    AmbiguousPublicId,
    ConfigurationError,
    IdempotencyConflict,
    InvalidCursor,
    InvalidPage,
    InvalidPublicId,
    PublicIdNotFound,
)
from sqlalchemy_public_id.typed import field_that_parsed

log = logging.getLogger("sqlalchemy_public_id")

ANSWERED = (PublicIdNotFound, InvalidPublicId, InvalidPage, IdempotencyConflict, AmbiguousPublicId)
"""The errors that the extensions of web frameworks answer."""
TITLES = {404: "Not Found", 409: "Conflict", 422: "Unprocessable Content"}
_WITHOUT_BODY = {"GET", "HEAD", "DELETE", "OPTIONS", None}  # a websocket has no method


def answer_to(
    error: Any, method: str | None, field: str | int | None, *, problem_details: bool = False
) -> tuple[dict[str, Any], int]:
    """Return content and status of the answer to *error*, in the shape of FastAPI's own, or as problem details.

    The status is 409 for a conflict and for an id that several rows have, 404 for the requested row, and 422 for an id
    in the input.

    :param field: the name under which the client sends the wrong id, if there is one.
    """
    if isinstance(error, IdempotencyConflict):
        content = content_of(409, validation_message(error), problem_details=problem_details)
        return {**content, "differing": list(error.differing)}, 409
    if isinstance(error, AmbiguousPublicId):
        log_ambiguous(error)
        return content_of(409, validation_message(error), problem_details=problem_details), 409
    if is_row(error):
        return content_of(404, validation_message(error), problem_details=problem_details), 404
    details = [_detail_of(error, method, field)]
    if not problem_details:
        return {"detail": details}, 422
    return {**content_of(422, validation_message(error), problem_details=True), "errors": details}, 422


def content_of(status: int, message: str, *, problem_details: bool) -> dict[str, Any]:
    """Return the content of an answer that has only a message."""
    if not problem_details:
        return {"detail": message}
    return {"type": "about:blank", "title": TITLES[status], "status": status, "detail": message}


def media_type_of(problem_details: bool) -> str:
    return "application/problem+json" if problem_details else "application/json"


def log_ambiguous(error: AmbiguousPublicId) -> None:
    """Log that a lookup has left the row open, which the program has to mend. The id may be a secret."""
    log.error("several rows of %s have one public id: name %s in where=", error.model, ", ".join(error.columns))


def source_of(error: Exception, method: str | None) -> str:
    """Return ``body`` or ``query``, by the method of the request; the parameters of a page are in the query."""
    return "query" if method in _WITHOUT_BODY or isinstance(error, (InvalidCursor, InvalidPage)) else "body"


def _detail_of(error: Any, method: str | None, field: str | int | None) -> dict[str, Any]:
    """Return one entry of the list that FastAPI sends in a 422: kind, place and message."""
    kind = "public_id_invalid" if isinstance(error, InvalidPublicId) else "public_id_unknown"
    if isinstance(error, (InvalidCursor, InvalidPage)):
        kind = "cursor_invalid" if isinstance(error, InvalidCursor) else "page_invalid"
    place = (source_of(error, method), *([] if field is None else [field]))
    return {"type": kind, "loc": place, "msg": validation_message(error)}


def is_row(error: Exception) -> bool:
    """Return True if the requested row does not exist; False if the unknown id is part of the input."""
    return isinstance(error, PublicIdNotFound) and error.field is None


def field_of(error: Any) -> str | None:
    """Return the name of the field that has parsed the id; else, the last part of "Order.customer_public_id"."""
    if isinstance(error, (IdempotencyConflict, AmbiguousPublicId)) or error.field is None:
        return None
    is_page = isinstance(error, (InvalidCursor, InvalidPage))
    parsed_by = None if is_page else field_that_parsed(error.value)
    return parsed_by or str(error.field).rpartition(".")[2]


def validation_message(error: Any) -> str:
    """Return what is wrong, without the value: even the prefix of the input may be most of a token."""
    if isinstance(error, IdempotencyConflict):
        return f"the {error.model} with this public id exists, with other contents"
    if isinstance(error, AmbiguousPublicId):
        return f"more than one {error.model} has this public id"
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
