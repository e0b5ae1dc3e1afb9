"""Helpers for the tests of your application: fixed ids and times, collisions on demand, and keys in an answer or a log.

>>> from sqlalchemy_public_id import testing
>>> with testing.fixed_ids(User, "000000000001", "000000000002"):
...     users = [User(name="Ada"), User(name="Grace")]
...     session.add_all(users)
...     session.flush()
>>> sorted(user.public_id for user in users)
['000000000001', '000000000002']

With ``pytest_plugins = ["sqlalchemy_public_id.testing.fixtures"]`` in ``conftest.py``, there are two pytest fixtures:
``fixed_public_ids`` and ``forced_collisions``.

Fixed ids and collisions act on the format of a model, so models that share a format object share them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format, clock
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import public_id_attribute
from sqlalchemy_public_id.testing._shown_keys import assert_no_keys_in
from sqlalchemy_public_id.testing.tenants import TenantLeak, TenantsNotApart, assert_tenants_are_apart
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import as_format

__all__ = [
    "TenantLeak",
    "TenantsNotApart",
    "assert_no_keys_in",
    "assert_tenants_are_apart",
    "collisions",
    "fixed_ids",
    "fixed_time",
]

Target: TypeAlias = Format | type[Any]
"""A format, a typed id class, or a model."""


@contextmanager
def fixed_ids(target: Target, *public_ids: str, attribute: str | None = None) -> Generator[None]:
    """Make *public_ids* the next ids of *target*, in this order. Once they are used up, ids are random again.

    :param target: a model, a typed id class, or a format.
    :param attribute: the name of the public id, if *target* is a model with several; ``public_id`` by default.
    :raises InvalidPublicId: if one of them is not an id of the format.
    """
    format = _format(target, attribute)
    fixed = [str.__str__(format.validate(public_id)) for public_id in reversed(public_ids)]
    pool = format._pool  # pyright: ignore[reportPrivateUsage]  # private to users, not to us
    size = len(pool)  # ids are popped from the end: those above this size were not used
    pool.extend(fixed)
    try:
        yield
    finally:
        del pool[size:]


@contextmanager
def fixed_time(at: datetime) -> Generator[None]:
    """Generate time-based ids with the time *at*, in all formats and threads.

    freezegun and time-machine freeze Python's time, but not the time of ids. Ids still sort in the order of generation.
    Afterwards, ids continue as if none had been generated meanwhile.

    >>> from datetime import datetime, timezone
    >>> from sqlalchemy_public_id import Uuid7, testing
    >>> format = Uuid7()
    >>> with testing.fixed_time(datetime(2030, 1, 1, tzinfo=timezone.utc)):
    ...     print(format.timestamp(format.generate()))
    2030-01-01 00:00:00+00:00

    :param at: a time with a time zone.
    :raises ConfigurationError: if *at* has no time zone.
    """
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise ConfigurationError(f"at is {safe_repr(at)}, expected a datetime with a time zone, such as timezone.utc")
    with clock.using(clock.FixedClock(round(at.timestamp() * 1000) * 1_000_000)):
        yield


@contextmanager
def collisions(target: Target, taken: str, times: int = 1, attribute: str | None = None) -> Generator[None]:
    """Make *taken*, the id of an existing row, the next *times* ids of *target*, so that INSERTs are retried.

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
        return as_format(target)
    return public_id_type(public_id_attribute(target, attribute)[1]).id_format
