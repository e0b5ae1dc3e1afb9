"""Parse formats from expressions in command lines and configuration files.

>>> parse('NanoId(length=16, prefix="cus")')
NanoId(length=16, prefix='cus')
>>> parse("NanoId").accepting(parse("NanoId(8)")) == parse("NanoId().accepting(NanoId(8))")
True

The expression has the syntax of Python, but is not evaluated: it may contain only formats, literals and the names of
alphabets. Parsing the ``repr()`` of a format returns an equal format, except for a Snowflake whose *machine_id* is a
function.
"""

from __future__ import annotations

import ast
import inspect
import warnings

from sqlalchemy_public_id import formats
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.messages import safe_repr

__all__ = ["known_formats", "parse"]

_LONGEST = 10_000  # no format needs more, and hostile text could keep the parser busy


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
    sqlalchemy_public_id.errors.ConfigurationError: 'NanoID' is not a format: NanoID is not the name of a format ...
    """
    try:
        if len(text) > _LONGEST:
            raise ValueError(f"it has {len(text)} characters")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # refuse what Python only warns about, such as "\d"
            tree = ast.parse(text.strip(), mode="eval").body
        return _format(tree)
    except (SyntaxError, RecursionError, MemoryError):
        reason = "it cannot be parsed"
    except (TypeError, ValueError, OverflowError) as error:
        reason = str(error)
    known = ", ".join(sorted(known_formats()))
    raise ConfigurationError(
        f'{safe_repr(text)} is not a format: {reason}; write one of {known}, such as NanoId(prefix="cus")'
    )


def _format(node: ast.expr) -> Format:
    """Return the format of *node*: a name, a call of a name, or a call of ``accepting`` on another format."""
    match node:
        case ast.Name(name):
            return _construct(name, [], [])
        case ast.Call(ast.Name(name), arguments, keywords):
            return _construct(name, arguments, keywords)
        case ast.Call(ast.Attribute(format, "accepting"), older, []):
            return _format(format).accepting(*map(_older, older))
        case _:
            raise ValueError(f"{safe_repr(ast.unparse(node))} is neither a format nor accepting(…) with other formats")


def _older(node: ast.expr) -> Format | str:
    """Return the argument of ``accepting``: a format, or a single id."""
    match node:
        case ast.Constant(str(text)):
            return text
        case _:
            return _format(node)


def _construct(name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Format:
    known = known_formats()
    if name not in known:
        raise ValueError(f"{name} is not the name of a format or of an alphabet")
    signature = inspect.signature(known[name])
    names = [each.arg for each in keywords]
    if None in names or len({*names}) < len(names):
        raise ValueError(f"{name} takes each argument once, and none with **")
    try:
        bound = signature.bind(*map(_value, arguments), **{str(each.arg): _value(each.value) for each in keywords})
    except TypeError as error:
        # names only: with types and defaults, the message would fill a screen
        expected = ", ".join(f"{each}=…" for each in signature.parameters)
        raise ValueError(f"{error}; expected {name}({expected})") from None
    return known[name](*bound.args, **bound.kwargs)


def _value(node: ast.expr) -> object:
    """Return the value of an argument: a literal, the name of an alphabet, or another format."""
    if isinstance(node, ast.Name) and isinstance(getattr(formats, node.id, None), str) and node.id in formats.__all__:
        return getattr(formats, node.id)
    if isinstance(node, ast.Name | ast.Call):
        return _format(node)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ValueError(f"{safe_repr(ast.unparse(node))} is neither a literal nor the name of an alphabet") from None
