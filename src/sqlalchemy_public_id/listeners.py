"""Functions that listen to SQLAlchemy's classes, from the first use of a feature on."""

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


_lock = threading.RLock()  # a signal handler may declare a model
_of_mappers: dict[str, tuple[Callable[..., Any], ...]] = {}
"""Event of all mappers → the functions that listen to it."""


class Listeners:
    """Functions that listen to SQLAlchemy's classes, in the whole process, from the first use of a feature on.

    SQLAlchemy would call a function twice that listens to a class twice. The functions miss the events of models that
    SQLAlchemy configured earlier.
    """

    def __init__(self, *listeners: Listener) -> None:
        self._missing = listeners

    def install(self) -> None:
        """Add the listeners. Safe to call repeatedly, and from several threads: a call returns when all are added."""
        if self._missing:
            with _lock:  # another thread continues only when all are added
                for target, name, function, options in self._missing:
                    if target is Mapper:
                        _listen_to_mappers(name, function)
                    else:
                        event.listen(target, name, function, **options)
                self._missing = ()


def _listen_to_mappers(name: str, function: Callable[..., Any]) -> None:
    """Let *function* listen to an event of all mappers, together with the other functions that do so.

    SQLAlchemy stops with an error at a listener that is added while another thread configures a mapper, and never
    configures this mapper again: it would lack the listeners of its ids for the rest of the process.
    """
    if name not in _of_mappers:

        def call_all(*args: Any) -> None:
            for each in _of_mappers.get(name, ()):
                each(*args)

        event.listen(Mapper, name, call_all)  # first, or the next use would not repeat it after an interruption
    before = _of_mappers.get(name, ())
    if function not in before:
        _of_mappers[name] = (*before, function)
