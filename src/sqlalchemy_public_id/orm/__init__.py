"""The part of the ORM that this library builds on: listeners, models, objects and sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import event


class Listeners:
    """Functions that listen to SQLAlchemy's classes, in the whole process, from the first use of a feature on.

    A model that is configured while its listeners are not installed does without them.
    """

    def __init__(self, *listeners: tuple[Any, str, Callable[..., Any]]) -> None:
        """Take the target, the name of the event and the function of each listener."""
        self._listeners = listeners
        self._lock = threading.Lock()
        self._is_installed = False

    def install(self) -> None:
        """Add the listeners. Safe to call again, and from several threads."""
        self._set_installed(True, event.listen)

    def uninstall(self) -> None:
        """Remove the listeners; safe to call if they are not installed."""
        self._set_installed(False, event.remove)

    def _set_installed(self, wanted: bool, change: Callable[[Any, str, Callable[..., Any]], None]) -> None:
        with self._lock:
            if self._is_installed is not wanted:
                self._is_installed = wanted
                for target, name, function in self._listeners:
                    change(target, name, function)
