"""The settings of formats, and of the orders of their keys: dataclasses whose constructors say what to write."""

from __future__ import annotations

from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar, cast

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.messages import safe_repr

_C = TypeVar("_C", bound=type[Any])


def named_settings(cls: _C) -> _C:
    """Let the constructor of *cls*, a dataclass with keyword-only fields, say what to write instead of wrong arguments.

    ``NanoId(12, "cus")`` is written by somebody who means the prefix, and ``NanoId(size=8)`` who knows another library.
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
        try:
            construct(self, *arguments, **settings)
        except TypeError:
            known = [setting.name for setting in fields(cls) if setting.init]
            for name in settings:
                if name not in known:
                    raise TypeError(_unknown(cls.__name__, name, known)) from None
            raise

    cls.__init__ = init
    return cls


_OTHER_NAMES = {
    "length": ("size", "len", "n"),
    "alphabet": ("chars", "characters", "charset", "letters"),
    "separator": ("sep", "delimiter"),
    "encoding": ("format",),
}
"""What other libraries call a setting."""


def _unknown(cls: str, name: str, known: list[str]) -> str:
    """Return what is wrong with the setting *name*, and the one that is probably meant."""
    from difflib import get_close_matches  # few programs need it

    near = [right for right, others in _OTHER_NAMES.items() if name in others and right in known]
    near += get_close_matches(name, known, 1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"{cls}() has no setting {name}{meant}; it takes {', '.join(known)}"


class Value:
    """A frozen dataclass. Its settings are the fields that the constructor takes."""

    def _settings(self) -> dict[str, Any]:
        settings = fields(cast("Any", self))  # each subclass is a dataclass
        return {setting.name: getattr(self, setting.name) for setting in settings if setting.init}
