"""What messages contain: values that a client may have sent, and commands to run."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from itertools import islice
from typing import Any, cast

_LIMIT = 60  # characters of a string, and members of a container


def safe_repr(value: object) -> str:
    """Return the ``repr`` of *value*, or its beginning. A large or nested value costs no more, and none is an error.

    >>> safe_repr({"ids": [[[[0] * 100_000]]]}), safe_repr(10**5000)
    ("{'ids': [[[...]]]}", 'int too large to print')
    """
    try:
        shown = _shortened(value, type(value), _LIMIT)
        text = repr(shown)
    except Exception:  # a __repr__ may raise anything, and may need more of the stack than is left
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= 4 * _LIMIT or isinstance(shown, _Shown) else f"{text[: 4 * _LIMIT]}..."


class _Shown(str):
    __repr__ = str.__str__


def _shortened(value: Any, cls: type[Any], most: int) -> Any:
    """Return the beginning of a string or number, and *most* members of a container, which has fewer in each level."""
    if issubclass(cls, (str, bytes, bytearray)) and len(value) > _LIMIT:
        return _Shown(f"{value[:_LIMIT]!r}... ({len(value)} long)")
    if issubclass(cls, int) and value.bit_length() > 8 * _LIMIT:
        return _Shown(f"{cls.__name__} too large to print")
    kind = cast("Any", next((one for one in (list, tuple, set, frozenset, dict) if issubclass(cls, one)), None))
    if kind is None or not value:
        return value
    is_dict, dots = issubclass(cls, dict), cast("Any", _Shown("..."))
    members: Any = islice(value.items() if is_dict else value, most)
    shown = [_shortened(one, cast("Any", type(one)), most if is_dict else most // 4) for one in members]
    return kind([*shown, *[(dots, dots) if is_dict else dots] * (len(value) > most)])


def concealed(value: object) -> str:
    """Return the type and length of an argument that may be a misplaced token, for error messages."""
    length = f" ({len(value)} long)" if isinstance(value, (str, bytes)) else ""
    return f"an object of type {type(value).__name__}{length}"


def refuse_coroutine(value: object) -> None:
    """Raise a ``TypeError`` if *value*, which is not what was expected, is a coroutine that nobody has awaited."""
    given: Any = value
    if isinstance(value, Coroutine):
        name = getattr(given, "__qualname__", "unnamed")
        given.close()  # Python would warn that nobody has awaited it
        raise TypeError(f"a coroutine ({name}) is given in place of its result: write await before the call")


def command_line(name: str, table: str, **options: Any) -> str:
    """Return the command ``public-id`` *name* for *table*, without the options that are ``None``.

    The URL comes from the environment: all users of a host can see the arguments of a process, including a password.
    """
    import shlex  # only for migrations

    given = [(option, value) for option, value in options.items() if value is not None]
    words: list[str] = []
    for option, value in given:
        text = str(value)
        if option == "format" and not {'"', "\\"} & {*text}:
            value = text.replace("'", '"')  # which a shell needs not escape
        several: Sequence[object] = cast("Any", value) if isinstance(value, tuple) else [value]
        words += [word for each in several for word in (f"--{option.replace('_', '-')}", str(each))]
    if table.startswith("-"):
        words.append("--")  # what follows is not an option
    url = '"$DATABASE_URL" ' if "://" in table else ""  # otherwise the table would be taken for it
    return f"public-id {name} {url}{shlex.join([*words, table])}"


def who_keeps_the_lock(attempts: int, timeout: float, holder: int | None, users: str) -> str:
    """Return the message about a lock that was not acquired: who has it, as far as that is known, and what to do."""
    looks = "(pg_stat_activity, SHOW PROCESSLIST)"
    if holder is not None:
        others = f"another migration is still running after {timeout:g} s; wait for it, or end its connection {holder}"
        return f"{others} {looks}, and run this one again"
    tried = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    find = f"find the transaction that holds it {looks}, end it"
    if users:
        find = f"the table is in use by {users}: wait for the end of that transaction, or end it"
    return f"no lock within {timeout:g} s in {tried}; {find}, and run the migration again"


def key_hint(value: object) -> str:
    """Return the end of the message about a value that is no public id, if it is an integer."""
    return "; an integer is a key: session.get(Model, key) finds its row" if type(value) is int else ""
