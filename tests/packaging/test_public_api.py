"""The public names with their signatures: this test detects any change, which belongs in the changelog.

``PYTHONPATH=tests python tests/packaging/test_public_api.py`` regenerates the file.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any

from sqlalchemy.orm import configure_mappers
from support.public_modules import PUBLIC
from typing_extensions import is_typeddict

FROZEN = Path(__file__).with_name("public_api.txt")
PRIVATE = {"sqlalchemy_public_id.formats._bits"}
"""Modules without public names, whose classes are bases of public ones."""


def signature(thing: Any) -> str:
    """Return the parameters of a function or a class, without types, whose names depend on other packages."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return ""
    plain = [
        parameter.replace(annotation=parameter.empty, default="…")
        if parameter.default is not parameter.empty
        else parameter.replace(annotation=parameter.empty)
        for parameter in parameters
    ]
    return str(inspect.Signature(plain)).replace("'…'", "…")


def members(cls: type[Any]) -> Iterator[str]:
    """Yield the public methods and attributes that a class of this library and its private bases define."""
    private = (base for base in cls.__mro__[1:] if base.__module__ in PRIVATE)
    inherited = {name: value for base in private for name, value in vars(base).items()}
    for name, value in sorted({**inherited, **vars(cls)}.items()):
        if name.startswith(("_", "model_")):
            continue
        function = getattr(value, "__func__", value)
        yield f"{name}{signature(function)}" if inspect.isfunction(function) else name


def lines() -> Iterator[str]:
    """Yield a line for each public name, and for each member of a public class."""
    configure_mappers()
    for name_of_module in PUBLIC:
        module = importlib.import_module(f"sqlalchemy_public_id{name_of_module}")
        short = module.__name__.removeprefix("sqlalchemy_public_id").removeprefix(".")
        for name in sorted(module.__all__):
            thing, full = getattr(module, name), f"{short}.{name}".removeprefix(".")
            if inspect.ismodule(thing):
                yield f"{full} is a module"
            elif is_typeddict(thing):
                yield full
                yield from (
                    f"    {part}" for part in wrap("; ".join(thing.__annotations__), 116, break_on_hyphens=False)
                )
            elif inspect.isclass(thing) and thing.__module__.startswith("sqlalchemy_public_id"):
                yield f"{full}{'' if '.ext.' in thing.__module__ else signature(thing)}"
                yield from (f"    {part}" for part in wrap("; ".join(members(thing)), 116, break_on_hyphens=False))
            else:
                yield f"{full}{signature(thing) if callable(thing) else ''}"


def test_public_api() -> None:
    """Names, arguments and members match the file; otherwise, the difference is printed."""
    difference = difflib.unified_diff(FROZEN.read_text().splitlines(), list(lines()), "before", "now", lineterm="", n=0)

    assert list(difference) == [], "if this is meant, write the file anew, and a line in CHANGELOG.md"


if __name__ == "__main__":
    FROZEN.write_text("\n".join(lines()) + "\n")
