"""A format from the text that stands for it, as a command line or a configuration file has it.

>>> read('NanoId(length=16, prefix="cus")')
NanoId(length=16, prefix='cus')
>>> read("NanoId").accepting(read("NanoId(8, BASE58)")) == read("NanoId().accepting(NanoId(8, BASE58))")
True

The text looks like Python and is never run: it is taken apart, and only formats, literals and the names of alphabets
are understood. What a format shows as its ``repr`` is read back as an equal format; only a Snowflake whose machine id
is taken by a function is not, for no function is called.
"""

from __future__ import annotations

import ast
import inspect
import warnings
from typing import NoReturn

from sqlalchemy_public_id import formats
from sqlalchemy_public_id.errors import ConfigurationError, safe_repr
from sqlalchemy_public_id.formats._base import Format

__all__ = ["known_formats", "read"]

_LONGEST = 10_000
"""No format takes more characters; a hostile text could keep the parser busy."""
_SHOWN = 60


def known_formats() -> dict[str, type[Format]]:
    """The formats that can be written, by name.

    >>> known_formats()["NanoId"]
    <class 'sqlalchemy_public_id.formats.nanoid.NanoId'>
    """
    exported = {name: getattr(formats, name) for name in formats.__all__}
    return {
        name: value
        for name, value in exported.items()
        if isinstance(value, type) and issubclass(value, Format) and not inspect.isabstract(value)
    }


def read(text: str) -> Format:
    """The format that *text* stands for: ``NanoId``, ``NanoId(length=16)``, ``NanoId().accepting(NanoId(length=8))``.

    :raises ConfigurationError: where it stands for none; the message lists the formats there are.

    >>> read("NanoID")
    Traceback (most recent call last):
    sqlalchemy_public_id.errors.ConfigurationError: 'NanoID' is not a format: there is none called NanoID; ...
    """
    if len(text) > _LONGEST:
        _refuse(text, f"it has {len(text)} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what Python would only warn of, such as "\d", is no format either
            tree = ast.parse(text.strip(), mode="eval")
        return _format(text, tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        _refuse(text, "it cannot be read")


def _format(text: str, node: ast.expr) -> Format:
    """The format at *node*: a name, a call of a name, or a call of ``accepting`` on another format."""
    if isinstance(node, ast.Name):
        return _made(text, node.id, [], {})
    if not isinstance(node, ast.Call):
        _refuse(text, f"{_source(node)} is not the name of a format")
    if isinstance(node.func, ast.Attribute):
        if node.func.attr != "accepting" or node.keywords:
            _refuse(text, f"{_source(node.func)} is not allowed, only accepting(…) with other formats")
        return _format(text, node.func.value).accepting(*(_format(text, older) for older in node.args))
    if not isinstance(node.func, ast.Name):
        _refuse(text, f"{_source(node.func)} is not the name of a format")
    named = {keyword.arg: _value(text, keyword.value) for keyword in node.keywords if keyword.arg is not None}
    if len(named) < len(node.keywords):
        _refuse(text, "it takes arguments from somewhere else")
    return _made(text, node.func.id, [_value(text, argument) for argument in node.args], named)


def _value(text: str, node: ast.expr) -> object:
    """The value of an argument: a literal, the name of an alphabet, or another format."""
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str | int | float)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return ast.literal_eval(node)
    if isinstance(node, ast.Name):
        alphabet = _alphabets().get(node.id)
        if alphabet is not None:
            return alphabet
        if node.id not in known_formats():
            _refuse(text, f"{node.id} is not the name of an alphabet ({', '.join(sorted(_alphabets()))})")
    if not isinstance(node, ast.Name | ast.Call):
        _refuse(text, f"{_source(node)} is neither a literal nor the name of an alphabet")
    return _format(text, node)


def _made(text: str, name: str, positional: list[object], named: dict[str, object]) -> Format:
    known = known_formats()
    if name not in known:
        _refuse(text, f"there is none called {name}")
    try:
        inspect.signature(known[name]).bind(*positional, **named)
    except TypeError as error:
        _refuse(text, f"{error}; expected {name}{_signature(known[name])}")
    try:
        return known[name](*positional, **named)
    except (TypeError, ValueError, OverflowError) as error:
        _refuse(text, str(error))


def _alphabets() -> dict[str, str]:
    exported = {name: getattr(formats, name) for name in formats.__all__}
    return {name: value for name, value in exported.items() if isinstance(value, str)}


def _signature(format: type[Format]) -> str:
    """The names of the arguments of *format*: their values and types would fill a screen."""
    return f"({', '.join(f'{name}=…' for name in inspect.signature(format).parameters)})"


def _source(node: ast.expr) -> str:
    source = ast.unparse(node)
    return source if len(source) <= _SHOWN else f"{source[:_SHOWN]}…"


def _refuse(text: str, why: str) -> NoReturn:
    known = sorted(known_formats())
    example = f'{known[0]}(prefix="cus")' if len(known) > 1 else 'NanoId(length=16, prefix="cus")'
    raise ConfigurationError(
        f"{safe_repr(text)} is not a format: {why}; write one of {', '.join(known)}, such as {example}"
    )
