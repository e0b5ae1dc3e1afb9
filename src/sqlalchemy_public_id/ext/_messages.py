"""What a web service tells its clients about an error: no keys, no SQL and no input."""

from __future__ import annotations

from typing import Any

from sqlalchemy_public_id.errors import IdempotencyConflict, InvalidCursor, InvalidPublicId, PublicIdNotFound
from sqlalchemy_public_id.typed import field_that_parsed


def is_row(error: Exception) -> bool:
    """Return True if the requested row does not exist; False if the unknown id is part of the input."""
    return isinstance(error, PublicIdNotFound) and error.field is None


def field_of(error: Any) -> str | None:
    """Return the name of the field that has parsed the id; else, the last part of "Order.customer_public_id"."""
    if error.field is None:
        return None
    parsed_by = None if isinstance(error, InvalidCursor) else field_that_parsed(error.value)
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
    return f"no such {error.model}"
