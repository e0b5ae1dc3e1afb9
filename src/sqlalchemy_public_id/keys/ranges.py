"""The arithmetic of cluster keys and of ranges of keys, without a database.

A cluster key is a positive ``BIGINT``: 1 bit for the sign, 15 bits for the cluster, 48 bits for a sequence that begins
at 1. So 32,768 databases can generate keys of one table that never collide, and a key shows where it was generated.

>>> key = ClusterKey.of(10, 1)
>>> int(key), key.cluster, key.sequence, key.hex
(2814749767106561, 10, 1, 'a000000000001')
>>> ClusterKey.split(5629499534213123)
Split(cluster=20, sequence=3)

Ranges are simpler: each database counts within its own.

>>> shards = Ranges(shards={"eu": range(1, 10**12), "us": range(10**12, 2 * 10**12)})
>>> shards.shard_of(10**12 + 5)
'us'
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeGuard, cast

from typing_extensions import Self

from sqlalchemy_public_id.errors import ConfigurationError, safe_repr

__all__ = [
    "CLUSTER_BITS",
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

CLUSTER_BITS: int = 15
SEQUENCE_BITS: int = 48
LAST_CLUSTER: int = (1 << CLUSTER_BITS) - 1
LAST_SEQUENCE: int = (1 << SEQUENCE_BITS) - 1
LAST_KEY = 2**63 - 1

_DECIMAL = re.compile("0|[1-9][0-9]{0,18}")


class Split(NamedTuple):
    """The two parts of a cluster key."""

    cluster: int
    sequence: int


class ClusterKey(int):
    """A key that contains the number of its cluster: an :class:`int`.

    A Pydantic field of this type accepts integers and decimal strings, and is a string in JSON: JavaScript, like
    everything that reads JSON numbers as ``double``, loses digits beyond ``2**53``.

    :raises ValueError: unless the value is an integer from 0 to ``2**63 - 1``.

    >>> ClusterKey("5629499534213123")
    ClusterKey(5629499534213123)
    """

    __slots__ = ()

    def __new__(cls, value: int | str) -> Self:
        number = value
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            number = int(value)
        if not _is_integer(number) or not 0 <= number <= LAST_KEY:
            raise ValueError(
                f"{safe_repr(value)} is no cluster key: expected an integer from 0 to 2**63 - 1, or its text"
            )
        return super().__new__(cls, number)

    @classmethod
    def of(cls, cluster: int, sequence: int) -> Self:
        """Return the key with the number *sequence* of *cluster*.

        :raises ValueError: unless *cluster* is in 0 … 32767, and *sequence* in 1 … ``2**48 - 1``.
        """
        if not _is_integer(sequence) or not 1 <= sequence <= LAST_SEQUENCE:
            raise ValueError(
                f"the sequence {safe_repr(sequence)} has no cluster key: expected an integer from 1 to "
                f"2**{SEQUENCE_BITS} - 1; beyond, it would be a key of another cluster"
            )
        return cls((checked_cluster(cluster) << SEQUENCE_BITS) + sequence)

    @classmethod
    def split(cls, key: int) -> Split:
        """Return the cluster and the sequence of *key*."""
        own = cls(key)
        return Split(own.cluster, own.sequence)

    @property
    def cluster(self) -> int:
        """The upper 15 bits: the cluster that generated the key."""
        return int(self) >> SEQUENCE_BITS

    @property
    def sequence(self) -> int:
        """The lower 48 bits: the number of the key among those of its cluster."""
        return int(self) & LAST_SEQUENCE

    @property
    def hex(self) -> str:
        """The key in hexadecimal, as ``to_hex()`` of PostgreSQL: the last twelve digits are the sequence."""
        return f"{self:x}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> dict[str, Any]:
        """Return the core schema of Pydantic, a plain ``dict``: integers and strings are valid, JSON has strings."""
        return {
            "type": "function-plain",
            "function": {"type": "no-info", "function": cls},
            "serialization": {"type": "to-string", "when_used": "json"},
        }

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: object, handler: object) -> dict[str, Any]:
        """Return the JSON schema for Pydantic: input may also be an integer."""
        example, mode = cls.of(10, 1), getattr(handler, "mode", "serialization")
        text: dict[str, Any] = {"type": "string", "pattern": f"^(?:{_DECIMAL.pattern})$", "examples": [str(example)]}
        if mode != "validation":
            return text
        return {"anyOf": [text, {"type": "integer", "minimum": 0, "maximum": LAST_KEY}]}


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def checked_cluster(cluster: object) -> int:
    """Return *cluster* if it is the number of a cluster.

    :raises ValueError: unless it is in 0 … 32767.
    """
    if not _is_integer(cluster) or not 0 <= cluster <= LAST_CLUSTER:
        raise ValueError(
            f"{safe_repr(cluster)} is no number of a cluster: expected an integer from 0 to {LAST_CLUSTER}, "
            f"because a key has {CLUSTER_BITS} bits for it"
        )
    return cluster


@dataclass(frozen=True)
class Range:
    """Keys from ``start`` up to, but without, ``stop``, as in :class:`range`.

    :raises ConfigurationError: for an empty range, and for keys that a ``BIGINT`` cannot have.
    """

    start: int
    stop: int

    def __post_init__(self) -> None:
        for name in ("start", "stop"):
            value: object = getattr(self, name)
            if not _is_integer(value):
                raise ConfigurationError(f"the {name} of a range of keys is {safe_repr(value)}, expected an integer")
        if self.start < 1 or self.stop > LAST_KEY + 1 or self.start >= self.stop:
            raise ConfigurationError(
                f"there are no keys from {self.start} up to {self.stop}: expected 1 or more, at most 2**63 - 1 as the "
                f"last one, and at least one key"
            )

    @property
    def last(self) -> int:
        """The last key."""
        return self.stop - 1

    @property
    def cluster(self) -> int | None:
        """The cluster whose keys these are; ``None`` if the range is that of no cluster.

        >>> range_of(10).cluster
        10
        """
        number = self.start >> SEQUENCE_BITS
        return number if range_of(number) == self else None

    @property
    def options(self) -> dict[str, int]:
        """Arguments for :class:`sqlalchemy.Identity` and :class:`sqlalchemy.Sequence`, which end with an error.

        >>> Ranges(shards=["eu", "us"], size=10**12)["us"].options
        {'start': 1000000000001, 'minvalue': 1000000000001, 'maxvalue': 2000000000000}
        """
        return {"start": self.start, "minvalue": self.start, "maxvalue": self.last}

    def __contains__(self, key: int) -> bool:
        return self.start <= key < self.stop

    def __len__(self) -> int:
        return self.stop - self.start


def range_of(cluster: int) -> Range:
    """Return the keys of *cluster*.

    :raises ValueError: unless *cluster* is in 0 … 32767.

    >>> range_of(10)
    Range(start=2814749767106561, stop=3096224743817216)
    """
    first = checked_cluster(cluster) << SEQUENCE_BITS
    return Range(first + 1, first + LAST_SEQUENCE + 1)


class Ranges(Mapping[Any, Range]):
    """A range of keys for each shard, in the order of the keys.

    :param shards: the number of shards, whose names are 0, 1, … then; or their names; or name → :class:`range`.
    :param size: how many keys each shard has; by default all keys, shared evenly. Not with name → :class:`range`.
    :raises ConfigurationError: for ranges that overlap (it names both), for more keys than exist, and for keys below 1
        or above ``2**63 - 1``.

    >>> [shard.start for shard in Ranges(shards=4, size=10**12).values()]
    [1, 1000000000001, 2000000000001, 3000000000001]
    """

    def __init__(
        self, shards: int | Mapping[Any, range | Range] | list[Any] | tuple[Any, ...], *, size: int | None = None
    ) -> None:
        by_shard = _given(shards, size) if isinstance(shards, Mapping) else _even(_names(shards), size)
        self._by_shard: dict[Any, Range] = dict(sorted(by_shard.items(), key=lambda item: item[1].start))
        for (one, first), (other, second) in pairwise(self._by_shard.items()):
            if second.start < first.stop:
                raise ConfigurationError(
                    f"the ranges of {one!r} ({first.start} to {first.last}) and {other!r} ({second.start} to "
                    f"{second.last}) overlap: both shards would make the keys {second.start} to "
                    f"{min(first.last, second.last)}; let {other!r} begin at {first.stop} or later"
                )

    def __getitem__(self, shard: Any) -> Range:
        return self._by_shard[shard]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._by_shard)

    def __len__(self) -> int:
        return len(self._by_shard)

    def __repr__(self) -> str:
        return f"Ranges({self._by_shard!r})"

    def shard_of(self, key: int) -> Any:
        """Return the shard whose range contains *key*; ``None`` if no range does."""
        return next((shard for shard, range_ in self._by_shard.items() if key in range_), None)


def _given(shards: Mapping[Any, Any], size: object) -> dict[Any, Range]:
    if size is not None:
        raise ConfigurationError(f"size is {safe_repr(size)}, but each of the ranges has its own; leave size out")
    if not shards:
        raise ConfigurationError("shards is empty, expected the name of each shard with its range")
    return {name: _range(name, keys) for name, keys in shards.items()}


def _even(names: list[Any], size: object) -> dict[Any, Range]:
    share = LAST_KEY // len(names)
    keys_each = share if size is None else size
    if not _is_integer(keys_each) or not 1 <= keys_each <= share:
        raise ConfigurationError(
            f"size is {safe_repr(size)}, expected how many keys each shard has: {len(names)} shards share 2**63 - 1 "
            f"keys, so it is at least 1 and at most {share}"
        )
    return {name: Range(at * keys_each + 1, (at + 1) * keys_each + 1) for at, name in enumerate(names)}


def _names(shards: object) -> list[Any]:
    names: list[Any] = []
    if _is_integer(shards):
        names = list(range(shards))
    elif isinstance(shards, (list, tuple)):
        shards = names = list(cast("list[Any]", shards))
    if not names or not all(isinstance(name, Hashable) for name in names) or len(set(names)) < len(names):
        raise ConfigurationError(
            f"shards is {safe_repr(shards)}, expected a number above 0, a list of names that differ, or name → range"
        )
    return names


def _range(name: object, keys: object) -> Range:
    if isinstance(keys, Range):
        return keys
    if not isinstance(keys, range) or keys.step != 1:
        raise ConfigurationError(f"the range of {name!r} is {safe_repr(keys)}, expected range(first, last + 1)")
    try:
        return Range(keys.start, keys.stop)
    except ConfigurationError as error:
        raise ConfigurationError(f"the range of {name!r}: {error}") from None
