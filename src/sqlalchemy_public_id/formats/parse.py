"""Formats from their expressions in command lines and configuration files.

>>> parse('NanoId(length=16, prefix="cus")')
NanoId(length=16, prefix='cus')
>>> parse("NanoId").accepting(parse("NanoId(8, BASE58)")) == parse("NanoId().accepting(NanoId(8, BASE58))")
True

The expression has the syntax of Python, but is not evaluated: it may contain only formats, literals and the names of
alphabets. The ``repr()`` of a format is parsed to an equal format, except that of a Snowflake whose *machine_id* is a
function.
"""

from __future__ import annotations

import ast
import inspect
import warnings
from typing import NoReturn

from sqlalchemy_public_id import formats
from sqlalchemy_public_id.errors import ConfigurationError, safe_repr
from sqlalchemy_public_id.formats._base import Format

__all__ = ["known_formats", "parse"]

_LONGEST = 10_000  # no format needs more, and hostile text could keep the parser busy
_SHOWN = 60


def known_formats() -> dict[str, type[Format]]:
    """Return the classes of formats that :func:`parse` accepts, by name.

    >>> known_formats()["NanoId"]
    <class 'sqlalchemy_public_id.formats.nanoid.NanoId'>
    """
    exported = {name: getattr(formats, name) for name in formats.__all__}
    return {
        name: value
        for name, value in exported.items()
        if isinstance(value, type) and issubclass(value, Format) and not inspect.isabstract(value)
    }


def parse(text: str) -> Format:
    """Return the format of *text*: ``NanoId``, ``NanoId(length=16)``, ``NanoId().accepting(NanoId(length=8))``.

    :raises ConfigurationError: if *text* is not a format; the message lists the known ones.

    >>> parse("NanoID")
    Traceback (most recent call last):
    sqlalchemy_public_id.errors.ConfigurationError: 'NanoID' is not a format: NanoID is not the name of a format; ...
    """
    if len(text) > _LONGEST:
        _refuse(text, f"it has {len(text)} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # refuse what Python only warns of, such as "\d"
            tree = ast.parse(text.strip(), mode="eval")
        return _format(text, tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        _refuse(text, "it cannot be parsed")


def _format(text: str, node: ast.expr) -> Format:
    """Return the format of *node*: a name, a call of a name, or a call of ``accepting`` on another format."""
    if isinstance(node, ast.Name):
        return _construct(text, node.id, [], {})
    if not isinstance(node, ast.Call):
        _refuse(text, f"{_source(node)} is not the name of a format")
    if isinstance(node.func, ast.Attribute):
        if node.func.attr != "accepting" or node.keywords:
            _refuse(text, f"{_source(node.func)} is not allowed, only accepting(…) with other formats")
        return _format(text, node.func.value).accepting(*(_format(text, older) for older in node.args))
    if not isinstance(node.func, ast.Name):
        _refuse(text, f"{_source(node.func)} is not the name of a format")
    keywords = {keyword.arg: _value(text, keyword.value) for keyword in node.keywords if keyword.arg is not None}
    if len(keywords) < len(node.keywords):
        _refuse(text, "arguments with ** are not allowed")
    return _construct(text, node.func.id, [_value(text, argument) for argument in node.args], keywords)


def _value(text: str, node: ast.expr) -> object:
    """Return the value of an argument: a literal, the name of an alphabet, or another format."""
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


def _construct(text: str, name: str, positional: list[object], keywords: dict[str, object]) -> Format:
    known = known_formats()
    if name not in known:
        _refuse(text, f"{name} is not the name of a format")
    try:
        inspect.signature(known[name]).bind(*positional, **keywords)
    except TypeError as error:
        _refuse(text, f"{error}; expected {name}{_signature(known[name])}")
    try:
        return known[name](*positional, **keywords)
    except (TypeError, ValueError, OverflowError) as error:
        _refuse(text, str(error))


def _alphabets() -> dict[str, str]:
    exported = {name: getattr(formats, name) for name in formats.__all__}
    return {name: value for name, value in exported.items() if isinstance(value, str)}


def _signature(format: type[Format]) -> str:
    # names only: with types and defaults, the message would fill a screen
    return f"({', '.join(f'{name}=…' for name in inspect.signature(format).parameters)})"


def _source(node: ast.expr) -> str:
    source = ast.unparse(node)
    return source if len(source) <= _SHOWN else f"{source[:_SHOWN]}…"


def _refuse(text: str, reason: str) -> NoReturn:
    known = ", ".join(sorted(known_formats()))
    raise ConfigurationError(
        f'{safe_repr(text)} is not a format: {reason}; write one of {known}, such as NanoId(prefix="cus")'
    )
