"""Functions that listen to SQLAlchemy's classes, from the first use of a feature on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import event


class Listener(NamedTuple):
    """A function that listens to an event of one of SQLAlchemy's classes."""

    target: Any
    name: str
    function: Callable[..., Any]
    options: Mapping[str, Any] = MappingProxyType({})


class Listeners:
    """Functions that listen to SQLAlchemy's classes, in the whole process, from the first use of a feature on.

    SQLAlchemy would call a function twice that listens to a class twice. The functions miss the events of models that
    SQLAlchemy configured earlier.
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
