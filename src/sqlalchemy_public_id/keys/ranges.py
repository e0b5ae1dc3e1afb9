"""The arithmetic of cluster keys and of ranges of keys, without a database.

A cluster key is a positive ``BIGINT``: 1 bit for the sign, 15 bits for the cluster, 48 bits for a sequence that begins
at 1. So 32,768 databases can generate keys for one table without a collision, and a key shows where it was generated.

>>> key = ClusterKey.of(10, 1)
>>> int(key), key.cluster, key.sequence, key.hex
(2814749767106561, 10, 1, 'a000000000001')
>>> ClusterKey.split(5629499534213123)
Split(cluster=20, sequence=3)

Ranges are simpler: each database counts within its own range.

>>> shards = Ranges(shards={"eu": range(1, 10**12), "us": range(10**12, 2 * 10**12)})
>>> shards.shard_of(10**12 + 5)
'us'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeGuard

from typing_extensions import Self

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.messages import safe_repr

__all__ = [
    "LAST_CLUSTER",
    "LAST_KEY",
    "LAST_SEQUENCE",
    "SEQUENCE_BITS",
    "ClusterKey",
    "Range",
    "Ranges",
    "Split",
    "range_of",
]

SEQUENCE_BITS: int = 48
LAST_SEQUENCE: int = (1 << SEQUENCE_BITS) - 1
LAST_CLUSTER: int = (1 << 15) - 1
LAST_KEY = 2**63 - 1

_DECIMAL = re.compile("0|[1-9][0-9]{0,18}")


class Split(NamedTuple):
    """The two parts of a cluster key."""

    cluster: int
    sequence: int


class ClusterKey(int):
    """A cluster key: an :class:`int` that contains the number of its cluster.

    A Pydantic field of this type accepts integers and decimal strings. In JSON it is a string, because JavaScript and
    other languages read JSON numbers as ``double``, which loses digits beyond ``2**53``.

    :raises ValueError: unless the value is an integer from 0 to ``2**63 - 1``.

    >>> ClusterKey("5629499534213123")
    5629499534213123
    """

    __slots__ = ()

    def __new__(cls, value: int | str) -> Self:
        number = int(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value
        return super().__new__(cls, _checked("cluster key", number, 0, LAST_KEY))

    @classmethod
    def of(cls, cluster: int, sequence: int) -> Self:
        """Return the key with the number *sequence* of *cluster*.

        :raises ValueError: unless *cluster* is in 0 … 32767, and *sequence* in 1 … ``2**48 - 1``.
        """
        _checked("sequence of a cluster", sequence, 1, LAST_SEQUENCE)  # a larger one would be a key of another cluster
        return cls((checked_cluster(cluster) << SEQUENCE_BITS) + sequence)

    @classmethod
    def split(cls, key: int) -> Split:
        """Return the cluster and the sequence of *key*."""
        return Split(*divmod(int(cls(key)), 1 << SEQUENCE_BITS))

    @property
    def cluster(self) -> int:
        """The upper 15 bits: the cluster that generated the key."""
        return int(self) >> SEQUENCE_BITS

    @property
    def sequence(self) -> int:
        """The lower 48 bits: the number of the key within its cluster."""
        return int(self) & LAST_SEQUENCE

    @property
    def hex(self) -> str:
        """The key in hexadecimal, as ``to_hex()`` of PostgreSQL: the last twelve digits are the sequence."""
        return f"{self:x}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> dict[str, Any]:
        """Return Pydantic's core schema, a plain ``dict``. Integers and strings are valid; JSON contains strings."""
        text: dict[str, Any] = {"type": "str", "pattern": f"^(?:{_DECIMAL.pattern})$"}
        return {
            # the wrapper never calls the inner schema, which only provides the JSON schema of inputs
            "type": "function-wrap",
            "function": {"type": "no-info", "function": cls._validated},
            "schema": {"type": "union", "choices": [text, {"type": "int", "ge": 0, "le": LAST_KEY}]},
            "serialization": {"type": "function-plain", "function": str, "when_used": "json", "return_schema": text},
        }

    @classmethod
    def _validated(cls, value: str | int, _handler: object) -> Self:
        return cls(value)


def is_whole(value: object, first: int, last: float) -> TypeGuard[int]:
    """Return True if *value* is a whole number from *first* to *last*, and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool) and first <= value <= last


def _checked(what: str, value: object, first: int, last: int) -> int:
    if not is_whole(value, first, last):
        raise ValueError(f"{safe_repr(value)} is not a {what}: expected an integer from {first} to {last}")
    return value


def checked_cluster(cluster: object) -> int:
    """Return *cluster* if it is the number of a cluster.

    :raises ValueError: unless it is in 0 … 32767.
    """
    return _checked("cluster number", cluster, 0, LAST_CLUSTER)


@dataclass(frozen=True)
class Range:
    """Keys from ``start`` up to, but not including, ``stop``, as in :class:`range`.

    :raises ConfigurationError: for an empty range, and for keys that a ``BIGINT`` cannot have.
    """

    start: int
    stop: int

    def __post_init__(self) -> None:
        start, stop = self.start, self.stop
        if not is_whole(stop, 2, LAST_KEY + 1) or not is_whole(start, 1, stop - 1):
            raise ConfigurationError(
                f"there are no keys from {safe_repr(start)} up to {safe_repr(stop)}: expected whole numbers, 1 or more "
                f"as the first key, and at most 2**63 - 1 as the last one"
            )

    @property
    def last(self) -> int:
        """The last key."""
        return self.stop - 1

    @property
    def cluster(self) -> int | None:
        """The cluster that has exactly these keys; ``None`` if there is none.

        >>> range_of(10).cluster
        10
        """
        number = self.start >> SEQUENCE_BITS
        return number if range_of(number) == self else None

    @property
    def options(self) -> dict[str, int]:
        """Arguments for :class:`sqlalchemy.Identity` and :class:`sqlalchemy.Sequence`, which fail after the last key.

        >>> Ranges(shards=["eu", "us"], size=10**12)["us"].options
        {'start': 1000000000001, 'minvalue': 1000000000001, 'maxvalue': 2000000000000}
        """
        return {"start": self.start, "minvalue": self.start, "maxvalue": self.last}

    def __contains__(self, key: int) -> bool:
        return self.start <= key < self.stop


def range_of(cluster: int) -> Range:
    """Return the range of the keys of *cluster*.

    :raises ValueError: unless *cluster* is in 0 … 32767.

    >>> range_of(10)
    Range(start=2814749767106561, stop=3096224743817216)
    """
    first = checked_cluster(cluster) << SEQUENCE_BITS
    return Range(first + 1, first + LAST_SEQUENCE + 1)


class Ranges(dict[Any, Range]):
    """A range of keys for each shard, in the order of the keys.

    :param shards: the number of shards, then named 0, 1, …; or their names; or a dict of name → :class:`range`.
    :param size: how many keys each shard has; by default, all keys are divided evenly. Not with a dict.
    :raises ConfigurationError: if ranges overlap (the message names both), if there are not enough keys, and for keys
        below 1 or above ``2**63 - 1``.

    >>> [shard.start for shard in Ranges(shards=4, size=10**12).values()]
    [1, 1000000000001, 2000000000001, 3000000000001]
    """

    def __init__(
        self, shards: int | Mapping[Any, range | Range] | list[Any] | tuple[Any, ...], *, size: int | None = None
    ) -> None:
        given = shards.items() if isinstance(shards, Mapping) else _even(shards, size)
        ranges = [(name, Range(keys.start, keys.stop)) for name, keys in given if _is_range(keys)]
        if not ranges or len(dict(ranges)) < len(given) or (isinstance(shards, Mapping) and size is not None):
            raise ConfigurationError(
                f"shards is {safe_repr(shards)}, expected a number above 0, a list of distinct names, or a "
                f"mapping of name → range(first, last + 1), without size"
            )
        ranges.sort(key=lambda item: item[1].start)
        for (one, first), (other, second) in pairwise(ranges):
            if second.start < first.stop:
                raise ConfigurationError(
                    f"the ranges of {one!r} ({first.start} to {first.last}) and {other!r} ({second.start} to "
                    f"{second.last}) overlap; let {other!r} begin at {first.stop} or later"
                )
        super().__init__(ranges)

    def shard_of(self, key: int) -> Any:
        """Return the shard whose range contains *key*; ``None`` if no range does."""
        return next((shard for shard, range_ in self.items() if key in range_), None)


def _is_range(keys: object) -> bool:
    return isinstance(keys, Range) or (isinstance(keys, range) and keys.step == 1)


def _even(shards: Any, size: object) -> list[tuple[Any, range]]:
    names: list[Any] = [*range(shards)] if is_whole(shards, 1, LAST_KEY) else shards
    if not isinstance(names, (list, tuple)) or not names:
        return []
    share = LAST_KEY // len(names)
    keys_each = share if size is None else size
    if not is_whole(keys_each, 1, share):
        raise ConfigurationError(
            f"size is {safe_repr(size)}, expected the number of keys of each shard, from 1 to {share}: "
            f"{len(names)} shards share 2**63 - 1 keys"
        )
    return [(name, range(at * keys_each + 1, (at + 1) * keys_each + 1)) for at, name in enumerate(names)]
