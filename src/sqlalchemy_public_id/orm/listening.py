"""Listeners of a whole process, installed once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import event


class Listeners:
    """Functions that listen to SQLAlchemy's classes from the first use of a feature on."""

    def __init__(self, *listeners: tuple[Any, str, Callable[..., Any]]) -> None:
        """Each of *listeners* is a target, the name of an event, and a function."""
        self._listeners = listeners
        self._lock = threading.Lock()
        self._are_installed = False

    def install(self) -> None:
        """Listen. Safe to call again, and from several threads."""
        with self._lock:
            if not self._are_installed:
                self._are_installed = True
                for target, name, function in self._listeners:
                    event.listen(target, name, function)

    def uninstall(self) -> None:
        """Undo :meth:`install`; safe to call if nothing is installed."""
        with self._lock:
            if self._are_installed:
                self._are_installed = False
                for target, name, function in self._listeners:
                    event.remove(target, name, function)
