"""The settings of formats, and of the orders of their keys: dataclasses whose constructors say what to write."""

from __future__ import annotations

from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar, cast

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.messages import safe_repr

_C = TypeVar("_C", bound=type[Any])


def named_settings(cls: _C) -> _C:
    """Let the constructor of *cls*, a dataclass with keyword-only fields, say which setting its second argument is.

    ``NanoId(12, "cus")`` is written by somebody who means the prefix.
    """
    construct = cls.__init__

    @wraps(construct)
    def init(self: object, *arguments: object, **settings: object) -> None:
        if len(arguments) > 1:
            name, (first, second, *_) = cls.__name__, map(safe_repr, arguments)
            names = [setting.name for setting in fields(cls) if setting.init][1:]
            wanted = f"prefix={second}" if isinstance(arguments[1], str) else f"{'=…, '.join(names)}=…"
            problem = f"{name}({first}, {second}) has two arguments without a name"
            raise ConfigurationError(f"{problem}: write {name}({first}, {wanted})")
        construct(self, *arguments, **settings)

    cls.__init__ = init
    return cls


class Value:
    """A frozen dataclass. Its settings are the fields that the constructor takes."""

    def _settings(self) -> dict[str, Any]:
        settings = fields(cast("Any", self))  # each subclass is a dataclass
        return {setting.name: getattr(self, setting.name) for setting in settings if setting.init}
