"""The part of the ORM that this library builds on: mappers, models, objects and sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import Mapper


def listen_unwrapped(mapper: Mapper[Any], name: str, function: Callable[..., Any]) -> None:
    """Let *function* listen to an event of *mapper*. It gets the state of the object, and returns ``EXT_CONTINUE``.

    SQLAlchemy wraps other functions in one of its own, which takes a call for each object, and which
    :func:`~sqlalchemy_public_id.bulk.insert` would take for a listener of the program.
    """
    event.listen(mapper, name, function, raw=True, retval=True)
