"""The part of the ORM that this library builds on: listeners, models, objects and sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import event
from sqlalchemy.orm import Mapper


class Listener(NamedTuple):
    """A function that listens to an event of one of SQLAlchemy's classes."""

    target: Any
    name: str
    function: Callable[..., Any]
    options: Mapping[str, Any] = MappingProxyType({})


class Listeners:
    """Functions that listen to SQLAlchemy's classes, in the whole process, from the first use of a feature on.

    They miss the events of models that SQLAlchemy configured earlier.
    """

    def __init__(self, *listeners: Listener) -> None:
        self._missing = listeners
        self._lock = threading.RLock()  # a signal handler may declare a model

    def install(self) -> None:
        """Add the listeners. Safe to call repeatedly, and from several threads: a call returns when all are added."""
        if self._missing:
            with self._lock:  # another thread continues only when all are added
                for target, name, function, options in self._missing:
                    event.listen(target, name, function, **options)
                self._missing = ()


def listen_unwrapped(mapper: Mapper[Any], name: str, function: Callable[..., Any]) -> None:
    """Let *function* listen to an event of *mapper*. It gets the state of the object, and returns ``EXT_CONTINUE``.

    SQLAlchemy wraps other functions in one of its own, which takes a call for each object, and which
    :func:`~sqlalchemy_public_id.bulk.insert` would take for a listener of the program.
    """
    event.listen(mapper, name, function, raw=True, retval=True)
