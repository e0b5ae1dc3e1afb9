"""Which errors are gone when a lease is tried again."""

from __future__ import annotations

from sqlalchemy import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sqlalchemy_public_id.dialects import Outcome, traits_for

__all__ = ["Unreachable", "is_transient", "words"]


class Unreachable(Exception):
    """No connection could be made; the reason is its cause."""


def is_transient(error: BaseException, dialect: Dialect) -> bool:
    """Whether *error* comes of a conflict with others, a lost connection, or a database that cannot be reached."""
    if isinstance(error, (Unreachable, PoolTimeout)):
        return True
    if not isinstance(error, DBAPIError) or not isinstance(error.orig, Exception):
        return False
    traits = traits_for(dialect)
    if error.connection_invalidated or traits.outcome(error.orig) is not Outcome.FAILED:
        return True
    return traits.error_code(error.orig) in traits.overload_errors


def words(error: BaseException) -> str:
    """What *error* says, in one line."""
    cause = error.__cause__ if isinstance(error, Unreachable) else error
    said = getattr(cause, "orig", None) or cause
    return " ".join(str(said).split()) or type(said).__name__
