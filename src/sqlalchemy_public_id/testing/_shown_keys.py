"""Look for the integer keys of rows in a text: :func:`sqlalchemy_public_id.testing.assert_no_keys_in`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from sqlalchemy import inspect
from sqlalchemy.orm import InstanceState

from sqlalchemy_public_id.columns import is_public_id
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.ext import _mapped
from sqlalchemy_public_id.messages import safe_repr

_NUMBER = re.compile(r"(?<![0-9])[0-9]+(?:\.[0-9]+)?")
_INSIDE = re.compile(r"(?:[a-zA-Z]|[0-9]\.|(?:^|\W)-)$")
"""What stands before digits that are part of an id, a version or a negative number."""
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_SMALL = 1000
"""Smaller numbers are often something else: a status, a count, a line."""


def assert_no_keys_in(text: str | bytes, rows: Iterable[object]) -> None:
    """Fail if an integer key or foreign key of one of *rows* stands in *text*: an answer, a log or a page.

    A key is found as a whole number, in JSON, URLs and HTML, too: in ``"id":777001``, ``/orders/777001`` and
    ``order_777001.pdf``. Digits within a longer number or beside letters are no key, nor are those of the public ids of
    *rows*. Begin the keys of a test at a number that appears nowhere else, such as 777001.

    >>> from sqlalchemy_public_id import testing
    >>> grace = User(id=777001, public_id="000000777001", name="Grace")
    >>> session.add(grace)
    >>> session.flush()
    >>> testing.assert_no_keys_in('{"public_id": "000000777001", "name": "Grace"}', [grace])
    >>> testing.assert_no_keys_in('{"id": 777001, "name": "Grace"}', [grace])
    Traceback (most recent call last):
      ...
    AssertionError: the text shows user.id, in '{"id": 777001, "name": "Grace"}'

    A part of a composite key that refers to nothing, such as a position, is looked for only if no other part refers to
    a row. A key is not found if the text encodes it, for example in Base64.

    :param rows: objects of mapped classes that have been flushed, and whose columns are loaded or can be.
    :raises AssertionError: if there is a key. The message contains the key and the text around it.
    :raises ConfigurationError: if *text* is no text, or if *rows* have no integer keys, so that nothing would be found.
    """
    if not isinstance(text, str | bytes):
        raise ConfigurationError(f"text is {safe_repr(text)}, expected a string, such as response.text or caplog.text")
    if not isinstance(rows, Iterable):
        raise ConfigurationError(f"rows is {safe_repr(rows)}, expected a list of objects")
    keys: dict[str, str] = {}
    public_ids: set[str] = set()
    for row in rows:
        state: InstanceState[Any] | None = inspect(row, raiseerr=False)
        if not isinstance(state, InstanceState):
            raise ConfigurationError(f"rows has {safe_repr(row)}, expected an object of a mapped class")
        for key, number in _keys(state):
            keys.setdefault(str(number), str(key.column))
        public_ids |= {str(state.dict[name]) for name in _public_ids(state) if name in state.dict}
    if not keys:
        raise ConfigurationError("rows have no integer keys, so nothing would be found; pass rows that have some")
    shown = text if isinstance(text, str) else text.decode(errors="replace")
    for view in dict.fromkeys((shown, _unescaped(shown), unquote(shown), html.unescape(shown))):
        for digits, place in _places(view, keys, public_ids):
            advice = "" if int(digits) >= _SMALL else "; begin the keys of the test at a number such as 777001"
            raise AssertionError(f"the text shows {keys[digits]}, in {place!r}{advice}")


def _keys(state: InstanceState[Any]) -> Iterator[tuple[_mapped.Key, int]]:
    """Yield the keys and foreign keys of a row, and their values."""
    mapper, values = state.mapper, dict(state.dict)
    for column, value in zip(mapper.primary_key, state.identity or (), strict=False):
        values.setdefault(mapper.get_property_by_column(column).key, value)
    for name, key in _mapped.keys(mapper).items():
        if name not in values and state.has_identity:
            if state.session is None or state.async_session is not None:  # only an await could load it
                raise ConfigurationError(f"{mapper.class_.__name__}.{name} is not loaded; refresh the row")
            values[name] = getattr(state.obj(), name)
        number = values.get(name)
        if number is None and key.column.primary_key:
            raise ConfigurationError(f"{mapper.class_.__name__}.{name} has no value yet; flush the row")
        if isinstance(number, int) and not isinstance(number, bool) and not _is_position(key):
            yield key, number


def _is_position(key: _mapped.Key) -> bool:
    """Return True for a part of a composite key that refers to nothing, while another part refers to a row."""
    columns = key.mapper.primary_key
    is_part = len(columns) > 1 and any(key.column is column for column in columns)
    return is_part and not key.column.foreign_keys and any(column.foreign_keys for column in columns)


def _public_ids(state: InstanceState[Any]) -> Iterator[str]:
    return (name for name, column in state.mapper.columns.items() if is_public_id(column))


def _unescaped(text: str) -> str:
    r"""Return *text* with a blank for each escape of JSON and of Python: ``"\n777001"`` contains a whole number."""
    while "\\\\" in text:  # JSON within JSON
        text = text.replace("\\\\", "\\")
    return _ESCAPE.sub(" ", text)


def _places(text: str, keys: dict[str, str], public_ids: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the *keys* in *text* that are whole numbers, each with the text around it."""
    for match in _NUMBER.finditer(text):
        number, _, fraction = match[0].partition(".")
        start, end = match.span()
        if number not in keys or fraction.strip("0"):
            continue
        before, after = text[max(start - 2, 0) : start], text[end : end + 1]
        is_inside = _INSIDE.search(before) or re.match("[a-zA-Z]", after)
        if not is_inside and not _is_in_an_id(text, start, end, public_ids):
            yield number, text[max(start - 40, 0) : end + 40]


def _is_in_an_id(text: str, start: int, end: int, public_ids: set[str]) -> bool:
    """Return True if these digits are part of one of the *public_ids*, and not all of it."""
    size = end - start
    for public_id in public_ids:
        first = max(start - len(public_id) + size, 0)
        found = text.find(public_id, first, end + len(public_id) - size)
        if size < len(public_id) and found != -1:
            return True
    return False
