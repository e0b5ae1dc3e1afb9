"""A format of every class: a new class is in the tests of all formats as soon as ``formats`` exports it."""

from __future__ import annotations

import inspect
from typing import Any

from sqlalchemy_public_id import Format
from sqlalchemy_public_id.formats.parse import known_formats


def one_of_each(**settings: Any) -> list[Format]:
    """Return a format of each class, with those of *settings* that the class has; Snowflakes need a *machine_id*."""
    settings = {"machine_id": 1, **settings}
    made = []
    for cls in known_formats().values():
        names = inspect.signature(cls).parameters
        made.append(cls(**{name: value for name, value in settings.items() if name in names}))
    return made
