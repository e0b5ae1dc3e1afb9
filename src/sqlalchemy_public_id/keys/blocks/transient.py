"""Which errors are gone when a lease is tried again."""

from __future__ import annotations

from sqlalchemy import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sqlalchemy_public_id.dialects import Fate, traits_for

__all__ = ["Unreachable", "is_transient", "words"]

_AGAIN = {"55P03", "53300", 1040}
"""A lock that was not to be had, and too many connections. A program may mean that; a lease does not."""


class Unreachable(Exception):
    """No connection could be made; the reason is its cause."""


def is_transient(error: BaseException, dialect: Dialect) -> bool:
    """Whether *error* comes of a conflict with others, a lost connection, or a database that cannot be reached."""
    if isinstance(error, (Unreachable, PoolTimeout)):
        return True
    if not isinstance(error, DBAPIError) or not isinstance(error.orig, Exception):
        return False
    if error.connection_invalidated or traits_for(dialect).fate(error.orig) is not Fate.FINAL:
        return True
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return (state or next(iter(error.orig.args), None)) in _AGAIN


def words(error: BaseException) -> str:
    """What *error* says, in one line."""
    cause = error.__cause__ if isinstance(error, Unreachable) else error
    said = getattr(cause, "orig", None) or cause
    return " ".join(str(said).split()) or type(said).__name__
