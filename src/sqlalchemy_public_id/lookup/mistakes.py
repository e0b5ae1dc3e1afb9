"""Warnings of what programs pass to a lookup in place of a public id, which finds nothing, as an unknown id does.

Clients send text, of which nothing is said: whatever a program looks up by mistake has another type.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import Row, inspect

from sqlalchemy_public_id.errors import PublicIdWarning

_REMEDIES: dict[type[Any], str] = {
    int: "an integer was looked up as a public id, and finds nothing: to find a row by its key, write "
    "session.get(Model, key)",
    bytes: "bytes were looked up as a public id, and find nothing: decode them, as in value.decode()",
}
_LIST = (
    "a list was looked up as one public id, and finds nothing: to find several rows, write "
    "lookup.get_many(session, Model, public_ids), with a flat list of ids"
)


def warn_of_mistakes(given: Sequence[object], level: int = 3) -> None:
    """Warn if an integer, bytes, a row or a list is among *given*, not all of which are ids.

    :param level: the number of frames to the line of the program: 3 if the program calls the caller.
    """
    kinds = dict.fromkeys(type(each) for each in given if type(each) is not str)
    messages = [*map(mistaken_for_id, kinds)]
    if kinds and any(map(_is_list_of_texts, given)):
        messages.append(_LIST)
    for message in filter(None, messages):
        warnings.warn(message, PublicIdWarning, stacklevel=level)


def mistaken_for_id(kind: type[Any]) -> str | None:
    """Return what to say of an object of class *kind* that is looked up; None if it may be the input of a client."""
    if kind in _REMEDIES:
        return _REMEDIES[kind]
    if issubclass(kind, Row) or inspect(kind, raiseerr=False) is not None:
        return f"an object of class {kind.__name__} was looked up as a public id, and finds nothing: pass its public_id"
    return None


def _is_list_of_texts(value: object) -> bool:
    # the first one is enough: a client may send a long list, or a nested one
    return isinstance(value, (list, tuple, set, frozenset)) and isinstance(next(iter(cast("Any", value)), None), str)
