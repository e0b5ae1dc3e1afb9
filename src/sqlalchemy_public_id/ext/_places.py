"""Find the place in a request of the id that an error is about, because errors name attributes of models instead."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, cast
from uuid import UUID

import anyio
from fastapi import Request

Place: TypeAlias = tuple[str | int, ...]
"""The place of a value as FastAPI writes it: ``("body", "lines", 1, "product_public_id")``."""

_PATIENCE = 2.0
"""Seconds to wait for a body that the route has not read."""
_MOST = 100_000
"""The most values that are searched, because a client chooses their number."""
_FORMS = {"multipart/form-data", "application/x-www-form-urlencoded"}
_LOOKALIKES = str.maketrans("oil", "011")  # which Crockford's alphabet reads as digits


class Search(NamedTuple):
    """What the search for an id in a request has found."""

    place: Place | None
    """The place of the id; ``None`` if it was not found."""
    is_complete: bool
    """False if the id may be in a part that is not read here: another type of data, a file, a stream."""


async def search(request: Request, value: object, field: str | None) -> Search:
    """Search *request* for *value*, which may be the canonical form of what was sent, or one of several ids in a text.

    Of several places, return the first with a part called *field*: it is most likely the one that was read.
    """
    text = str(value)
    was_sent = isinstance(value, (str, int, float, UUID)) and bool(text)  # a missing value has no place
    of_url = list(_leaves([*_of_the_url(request)]))
    place = _place_in(of_url, text, field)
    if place is not None and (field is None or field in place):
        return Search(place, True)  # without the body, which the route may not have read
    body, is_complete = await _of_the_body(request)
    # any few letters occur somewhere in a header, such as in a version
    of_headers = [leaf for leaf in _of_the_headers(request) if len(text) > 3 or leaf[1] == text]
    leaves = [*of_url, *_leaves(body), *of_headers]
    return Search(_place_in(leaves, text, field), was_sent and is_complete and len(leaves) < _MOST)


def _place_in(leaves: Sequence[tuple[Place, str]], text: str, field: str | None) -> Place | None:
    for is_like in _likenesses(text):
        places = [place for place, sent in leaves if is_like(sent)]
        if places:
            found = next((place for place in places if field in place), places[0])
            # a name in JSON may contain half of a surrogate pair, which no answer can contain
            return tuple(part.encode(errors="replace").decode() if isinstance(part, str) else part for part in found)
    return None


def _likenesses(text: str) -> Iterator[Callable[[str], bool]]:
    """Yield tests whether a string was sent for *text*, the most reliable first."""
    folded, letters = text.casefold(), _letters(text)
    word = re.compile(rf"(?<![^\W_]){re.escape(text)}(?![^\W_])", re.IGNORECASE)
    yield text.__eq__
    if not letters:
        return
    yield lambda sent: len(sent) == len(text) and sent.casefold() == folded
    # one of several ids, in this spelling or another, such as a UUID with hyphens
    yield lambda sent: len(sent) > len(text) and word.search(sent) is not None
    yield lambda sent: any(_letters(part) == letters for part in re.split(r"[\s,;|]+", sent))
    # without the prefix, which the route has added
    yield lambda sent: len(sent) > 3 and text.endswith(sent) and not text[-len(sent) - 1].isalnum()


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold())).translate(_LOOKALIKES)


def _of_the_url(request: Request) -> Iterator[tuple[Place, Any]]:
    yield from ((("path", name), one) for name, one in request.path_params.items())
    yield from ((("query", name), one) for name, one in request.query_params.multi_items())
    yield from ((("query", name), name) for name in request.query_params)


def _of_the_headers(request: Request) -> Iterator[tuple[Place, str]]:
    yield from ((("header", name), one) for name, one in request.headers.items())
    yield from ((("cookie", name), one) for name, one in request.cookies.items())
    # Basic credentials, the claims of a signed token, and a signed session are encoded
    for name in ("authorization", "cookie"):
        for part in re.split(r"[^\w+/-]+", request.headers.get(name, "")):
            with suppress(ValueError):
                decoded = base64.urlsafe_b64decode(part.replace("+", "-").replace("/", "_") + "=" * (-len(part) % 4))
                yield ("header", name), decoded.decode(errors="replace")


async def _of_the_body(request: Request) -> tuple[list[tuple[Place, Any]], bool]:
    """Return the form or JSON that the route has read and Starlette has cached, and True if this is the whole body."""
    parts: list[tuple[Place, Any]] = []
    with anyio.move_on_after(_PATIENCE):  # reading a consumed stream waits until the client disconnects
        try:
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() in _FORMS:
                async with request.form() as form:  # which closes its files
                    parts = [(("body", name), one) for name, one in form.multi_items()]
                return parts, all(isinstance(one, str) for _, one in parts)
            if await request.body():
                parts = [(("body",), await request.json())]
            return parts, True
        except Exception:  # it is another type of data, was streamed, or the client has disconnected
            pass
    return [], False


def _leaves(parts: list[tuple[Place, Any]]) -> Iterator[tuple[Place, str]]:
    """Yield the values in *parts*, and the names in dictionaries."""
    for number, (place, part) in enumerate(parts):  # the list grows; a recursion could become as deep as a client likes
        if number == _MOST:
            return
        if isinstance(part, dict):
            members = cast("dict[str, Any]", part)
            parts += [((*place, name), one) for name, one in members.items()]
            parts += [((*place, name), name) for name in members]
        elif isinstance(part, (list, tuple)):
            parts += [((*place, number), one) for number, one in enumerate(cast("list[Any]", part))]
        else:
            yield place, str(part)
