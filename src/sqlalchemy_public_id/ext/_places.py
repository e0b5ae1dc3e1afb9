"""Where a request has the id that an error is about: errors know attributes of models, clients know their requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, cast

from fastapi import Request

Place: TypeAlias = tuple[str | int, ...]
"""The way to a value as FastAPI writes it: ``("body", "lines", 1, "product_public_id")``."""


async def place_of(request: Request, value: object, field: str | None) -> Place | None:
    """Return the place of *value* in *request*, or ``None`` if it did not come with it.

    Of several, the first with a part called *field* is returned: it is most likely the one that was read. Upper and
    lower case are the same if there is no exact one, because the value may be a canonical form of what was sent.
    """
    text = str(value)
    found: list[tuple[bool, bool, Place]] = []
    for place, one in _leaves([*_beside_the_body(request), *await _of_the_body(request)]):
        if str(one).casefold() == text.casefold():
            found.append((str(one) == text, field in place, place))
    return max(found, key=lambda match: match[:2])[2] if found else None


def _beside_the_body(request: Request) -> Iterable[tuple[Place, Any]]:
    yield from ((("path", name), one) for name, one in request.path_params.items())
    yield from ((("query", name), one) for name, one in request.query_params.multi_items())
    yield from ((("header", name), one) for name, one in request.headers.items())
    yield from ((("cookie", name), one) for name, one in request.cookies.items())


async def _of_the_body(request: Request) -> Iterable[tuple[Place, Any]]:
    """Return the form or the JSON that the route has read, and Starlette keeps; nothing if there is none."""
    try:
        if "form" in request.headers.get("content-type", ""):
            return [(("body", name), one) for name, one in (await request.form()).multi_items()]
        return [(("body",), await request.json())]
    except Exception:  # it is another type of data, was streamed, or the client has gone
        return ()


def _leaves(parts: list[tuple[Place, Any]]) -> Iterable[tuple[Place, Any]]:
    for place, part in parts:  # which grow; a recursion would end at a depth that a client chooses
        if isinstance(part, dict):
            parts += [((*place, name), one) for name, one in cast("dict[str, Any]", part).items()]
        elif isinstance(part, (list, tuple)):
            parts += [((*place, number), one) for number, one in enumerate(cast("list[Any]", part))]
        else:
            yield place, part
