"""New ids in the place of those that have collided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

from sqlalchemy import Column

from sqlalchemy_public_id.types import max_retries, public_id_type

K = TypeVar("K")

_MANY = 64
"""So many ids are drawn for a row at once, at most."""


def draw_free(
    column: Column[Any],
    rows: list[K],
    tries: Counter[K],
    *,
    is_used: Callable[[str], bool],
    stored: Callable[[list[str]], Collection[str]],
    exhausted: Callable[[], Exception],
) -> Iterator[tuple[K, str]]:
    """Yield each of *rows* with a new id of *column*.

    If few ids are free, one draw finds none: each round draws twice as many, and all rows share those that are free.
    Ids that are counted are drawn one by one, because one that is not used is lost.

    :param tries: row → the number of its draws, which are counted here.
    :param is_used: returns True for an id that must not be drawn.
    :param stored: returns those of the ids that the table holds.
    :param exhausted: builds the error for a row whose retries are used up.
    """
    type_, most, number = public_id_type(column), max_retries(column), 1
    more = 1 if type_.id_format.counted else 2
    seen: set[str] = set()
    while rows:
        drawn: list[str] = []
        for row in rows:
            draws = min(number, most - tries[row])
            if draws <= 0:
                raise exhausted()
            tries[row] += draws
            drawn += [type_.next_id() for _ in range(draws)]
        new = [text for text in dict.fromkeys(drawn) if text not in seen and not is_used(text)]
        seen.update(new)
        held = stored(new) if new else ()
        free = [text for text in new if text not in held]
        yield from zip(rows, free, strict=False)
        rows, number = rows[len(free) :], min(more * number, _MANY)
