"""Where a request has the id that an error is about: errors know attributes of models, clients know their requests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias, cast

import anyio
from fastapi import Request

Place: TypeAlias = tuple[str | int, ...]
"""The way to a value as FastAPI writes it: ``("body", "lines", 1, "product_public_id")``."""

_PATIENCE = 2.0
"""Seconds to wait for a body that the route has not read."""
_LOOKALIKES = str.maketrans("oil", "011")  # which Crockford's alphabet reads as digits


class Search(NamedTuple):
    """What the search for an id in a request has found."""

    place: Place | None
    """Its place; ``None`` if it is not there."""
    is_complete: bool
    """False if the body cannot be read, because it is another type of data, or was streamed."""


async def search(request: Request, value: object, field: str | None) -> Search:
    """Search *request* for *value*, which may be a canonical form of what was sent, or one of a list in a text.

    Of several places, the first with a part called *field* is returned: it is most likely the one that was read.
    """
    body, is_complete = await _of_the_body(request)
    leaves = [(place, str(one)) for place, one in _leaves([*_of_the_url(request), *body, *_of_the_headers(request)])]
    text = str(value)
    for is_like in (str.__eq__, _is_same_word, _is_part):
        places = [place for place, one in leaves if is_like(text, one)]
        if places:
            return Search(next((place for place in places if field in place), places[0]), is_complete)
    return Search(None, is_complete)


def _is_same_word(text: str, sent: str) -> bool:
    return sent.casefold() == text.casefold()


def _is_part(text: str, sent: str) -> bool:
    """Return True if *sent* has *text* as a word, or in another spelling, such as that of a UUID with hyphens."""
    word = re.search(rf"(?<![^\W_]){re.escape(text)}(?![^\W_])", sent, re.IGNORECASE) if text else None
    return word is not None or _letters(text) == _letters(sent)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold())).translate(_LOOKALIKES)


def _of_the_url(request: Request) -> Iterable[tuple[Place, Any]]:
    yield from ((("path", name), one) for name, one in request.path_params.items())
    yield from ((("query", name), one) for name, one in request.query_params.multi_items())


def _of_the_headers(request: Request) -> Iterable[tuple[Place, Any]]:
    yield from ((("header", name), one) for name, one in request.headers.items())
    yield from ((("cookie", name), one) for name, one in request.cookies.items())


async def _of_the_body(request: Request) -> tuple[list[tuple[Place, Any]], bool]:
    """Return the form or the JSON that the route has read, and Starlette keeps; and whether that is all of the body."""
    parts: list[tuple[Place, Any]] = []
    with anyio.move_on_after(_PATIENCE):  # a stream that was read to its end would wait for the client to go
        try:
            if "form" in request.headers.get("content-type", ""):
                parts = [(("body", name), one) for name, one in (await request.form()).multi_items()]
            elif await request.body():
                parts = [(("body",), await request.json())]
            return parts, True
        except Exception:  # it is another type of data, was streamed, or the client has gone
            pass
    return [], False


def _leaves(parts: list[tuple[Place, Any]]) -> Iterable[tuple[Place, Any]]:
    for place, part in parts:  # which grow; a recursion would end at a depth that a client chooses
        if isinstance(part, dict):
            parts += [((*place, name), one) for name, one in cast("dict[str, Any]", part).items()]
        elif isinstance(part, (list, tuple)):
            parts += [((*place, number), one) for number, one in enumerate(cast("list[Any]", part))]
        else:
            yield place, part
