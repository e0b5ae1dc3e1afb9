"""For the tests of programs that use this library: ids that are known beforehand, and collisions on demand.

>>> from sqlalchemy_public_id import testing
>>> with testing.fixed_ids(User, "000000000001", "000000000002"):
...     users = [User(name="Ada"), User(name="Grace")]
...     session.add_all(users)
...     session.flush()
>>> sorted(user.public_id for user in users)
['000000000001', '000000000002']

As pytest fixtures, after ``pytest_plugins = ["sqlalchemy_public_id.testing.fixtures"]`` in ``conftest.py``:
``fixed_public_ids`` and ``forced_collisions``.

Both work on the format of the model: where several models share one format object, they share its ids.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.orm.inspection import identifier
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import format_of, public_id_type

__all__ = ["collisions", "fixed_ids"]

Target: TypeAlias = Format | type[Any]
"""A format, a typed id class, or a model."""


@contextmanager
def fixed_ids(target: Target, *public_ids: str, attribute: str | None = None) -> Generator[None]:
    """The next ids of *target* are *public_ids*, in this order; random ones follow.

    :param target: a model, a typed id class, or a format.
    :param attribute: which public id, where *target* is a model with several; ``public_id`` by default.
    :raises InvalidPublicId: where one of them is not an id of the format.
    """
    format = _format(target, attribute)
    forced = [str.__str__(format.validate(public_id)) for public_id in reversed(public_ids)]
    pool = format._pool  # pyright: ignore[reportPrivateUsage]  # private to users, not to us
    waiting = len(pool)  # ids are taken from the end: what is above this mark at the end was not used
    pool.extend(forced)
    try:
        yield
    finally:
        del pool[waiting:]


@contextmanager
def collisions(target: Target, taken: str, times: int = 1, attribute: str | None = None) -> Generator[None]:
    """The next *times* ids of *target* are *taken*, the id of a row that exists: each INSERT has to be retried.

    >>> from sqlalchemy_public_id import testing
    >>> ada = User(name="Ada")
    >>> session.add(ada)
    >>> session.flush()
    >>> with testing.collisions(User, ada.public_id, times=3):
    ...     grace = User(name="Grace")
    ...     session.add(grace)
    ...     session.flush()
    >>> grace.public_id == ada.public_id
    False
    """
    with fixed_ids(target, *[taken] * times, attribute=attribute):
        yield


def _format(target: Target, attribute: str | None) -> Format:
    if isinstance(target, Format) or (isinstance(target, type) and issubclass(target, TypedId)):
        return format_of(target)
    return public_id_type(identifier(target, attribute)[1]).id_format
