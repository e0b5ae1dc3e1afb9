"""The part of the ORM that this library builds on: listeners, models, objects and sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import event


class Listener(NamedTuple):
    """A function that listens to an event of a class of SQLAlchemy."""

    target: Any
    name: str
    function: Callable[..., Any]


class Listeners:
    """Functions that listen to SQLAlchemy's classes, in the whole process, from the first use of a feature on.

    A model that is configured while its listeners are not installed does without them.
    """

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners
        self._lock = threading.Lock()
        self._is_installed = False

    def install(self) -> None:
        """Add the listeners. Safe to call again, and from several threads."""
        self._set_installed(True, _listen)

    def uninstall(self) -> None:
        """Remove the listeners; safe to call if they are not installed."""
        self._set_installed(False, _remove)

    def _set_installed(self, wanted: bool, change: Callable[[Listener], None]) -> None:
        with self._lock:
            if self._is_installed is not wanted:
                self._is_installed = wanted
                for listener in self._listeners:
                    change(listener)


def _listen(listener: Listener) -> None:
    event.listen(listener.target, listener.name, listener.function)


def _remove(listener: Listener) -> None:
    event.remove(listener.target, listener.name, listener.function)
