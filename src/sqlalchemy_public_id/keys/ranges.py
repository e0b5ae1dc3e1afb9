"""Keys that tell where they were made, and keys that are kept apart by ranges: the arithmetic, without a database.

A cluster key is a positive ``BIGINT``: 1 bit for the sign, 15 bits for the cluster, 48 bits for a sequence that begins
at 1. So 32,768 databases can make keys of one table that never meet, and whoever sees a key knows where it was made.

>>> key = ClusterKey.of(10, 1)
>>> int(key), key.cluster, key.sequence, key.hex
(2814749767106561, 10, 1, 'a000000000001')
>>> ClusterKey.split(5629499534213123)
Split(cluster=20, sequence=3)

Ranges are the plain way: each database counts within its own.

>>> shards = ranges(shards={"eu": range(1, 10**12), "us": range(10**12, 2 * 10**12)})
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

from sqlalchemy_public_id.errors import ConfigurationError, shown

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
    "ranges",
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
    """A key that tells which cluster made it. It is an :class:`int` in every way.

    As a type of a Pydantic field it takes numbers and their decimal text, and is written to JSON as text: JavaScript,
    like everything that reads JSON numbers as ``double``, loses digits beyond ``2**53``.

    :raises ValueError: for what is no integer from 0 to ``2**63 - 1``.

    >>> ClusterKey("5629499534213123")
    ClusterKey(5629499534213123)
    """

    __slots__ = ()

    def __new__(cls, value: int | str) -> Self:
        number = value
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            number = int(value)
        if not _is_integer(number) or not 0 <= number <= LAST_KEY:
            raise ValueError(f"{shown(value)} is no cluster key: expected an integer from 0 to 2**63 - 1, or its text")
        return super().__new__(cls, number)

    @classmethod
    def of(cls, cluster: int, sequence: int) -> Self:
        """The key number *sequence* of *cluster*.

        :raises ValueError: where *cluster* is not in 0 … 32767, or *sequence* not in 1 … ``2**48 - 1``.
        """
        if not _is_integer(sequence) or not 1 <= sequence <= LAST_SEQUENCE:
            raise ValueError(
                f"the sequence {shown(sequence)} has no cluster key: expected an integer from 1 to "
                f"2**{SEQUENCE_BITS} - 1; beyond, it would be a key of another cluster"
            )
        return cls((checked_cluster(cluster) << SEQUENCE_BITS) + sequence)

    @classmethod
    def split(cls, key: int) -> Split:
        """The cluster and the sequence of *key*."""
        one = cls(key)
        return Split(one.cluster, one.sequence)

    @property
    def cluster(self) -> int:
        """Which cluster made the key: its upper 15 bits."""
        return int(self) >> SEQUENCE_BITS

    @property
    def sequence(self) -> int:
        """The number of the key among those of its cluster: its lower 48 bits."""
        return int(self) & LAST_SEQUENCE

    @property
    def hex(self) -> str:
        """The key to the base 16, as ``to_hex()`` of PostgreSQL writes it: twelve digits of sequence at the end."""
        return f"{self:x}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> dict[str, Any]:
        """For Pydantic: numbers and texts are taken, text is written to JSON. (A core schema is a plain ``dict``.)"""
        return {
            "type": "function-plain",
            "function": {"type": "no-info", "function": cls},
            "serialization": {"type": "to-string", "when_used": "json"},
        }

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: object, handler: object) -> dict[str, Any]:
        """For Pydantic: the JSON schema. What is read may be a number as well; what is written is a text."""
        example, mode = cls.of(10, 1), getattr(handler, "mode", "serialization")
        text: dict[str, Any] = {"type": "string", "pattern": f"^(?:{_DECIMAL.pattern})$", "examples": [str(example)]}
        if mode != "validation":
            return text
        return {"anyOf": [text, {"type": "integer", "minimum": 0, "maximum": LAST_KEY}]}


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def checked_cluster(cluster: object) -> int:
    """*cluster*, if it is a number of a cluster.

    :raises ValueError: where it is not in 0 … 32767.
    """
    if not _is_integer(cluster) or not 0 <= cluster <= LAST_CLUSTER:
        raise ValueError(
            f"{shown(cluster)} is no number of a cluster: expected an integer from 0 to {LAST_CLUSTER}, "
            f"because a key has {CLUSTER_BITS} bits for it"
        )
    return cluster


@dataclass(frozen=True)
class Range:
    """Keys from ``start`` up to, and without, ``stop``, as in :class:`range`.

    :raises ConfigurationError: where there is no key in it, or one that a ``BIGINT`` key cannot have.
    """

    start: int
    stop: int

    def __post_init__(self) -> None:
        for name in ("start", "stop"):
            value: object = getattr(self, name)
            if not _is_integer(value):
                raise ConfigurationError(f"the {name} of a range of keys is {shown(value)}, expected an integer")
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
        """The number of the cluster whose keys these are; ``None`` where the range is that of no cluster.

        >>> range_of(10).cluster
        10
        """
        number = self.start >> SEQUENCE_BITS
        return number if range_of(number) == self else None

    @property
    def options(self) -> dict[str, int]:
        """For :class:`sqlalchemy.Identity` and :class:`sqlalchemy.Sequence`: running out is an error of the database.

        >>> ranges(shards=["eu", "us"], size=10**12)["us"].options
        {'start': 1000000000001, 'minvalue': 1000000000001, 'maxvalue': 2000000000000}
        """
        return {"start": self.start, "minvalue": self.start, "maxvalue": self.last}

    def __contains__(self, key: int) -> bool:
        return self.start <= key < self.stop

    def __len__(self) -> int:
        return self.stop - self.start


def range_of(cluster: int) -> Range:
    """The keys of *cluster*.

    :raises ValueError: where *cluster* is not in 0 … 32767.

    >>> range_of(10)
    Range(start=2814749767106561, stop=3096224743817216)
    """
    first = checked_cluster(cluster) << SEQUENCE_BITS
    return Range(first + 1, first + LAST_SEQUENCE + 1)


class Ranges(Mapping[Any, Range]):
    """Shard → its :class:`Range`, in the order of the keys. Made by :func:`ranges`."""

    def __init__(self, by_shard: Mapping[Any, Range]) -> None:
        self._by_shard = dict(sorted(by_shard.items(), key=lambda item: item[1].start))
        for (one, first), (other, second) in pairwise(self._by_shard.items()):
            if second.start < first.stop:
                raise ConfigurationError(
                    f"the ranges of {one!r} ({first.start} to {first.last}) and {other!r} ({second.start} to "
                    f"{second.last}) overlap: both shards would make the keys {second.start} to "
                    f"{min(first.last, second.last)}; let {other!r} begin at {first.stop} or later"
                )

    def __getitem__(self, shard: Any) -> Range:
        found: Range = self._by_shard[shard]
        return found

    def __iter__(self) -> Iterator[Any]:
        return iter(self._by_shard)

    def __len__(self) -> int:
        return len(self._by_shard)

    def __repr__(self) -> str:
        return f"Ranges({self._by_shard!r})"

    def shard_of(self, key: int) -> Any:
        """The shard whose range *key* lies in; ``None`` where there is none."""
        return next((shard for shard, range_ in self._by_shard.items() if key in range_), None)


def ranges(
    shards: int | Mapping[Any, range | Range] | list[Any] | tuple[Any, ...], *, size: int | None = None
) -> Ranges:
    """Give each shard a range of keys of its own.

    :param shards: how many, which are called 0, 1, … then; or their names; or name → :class:`range`.
    :param size: how many keys each shard has; all that there are, shared evenly, where nothing is said. A range that is
        given has its size.
    :raises ConfigurationError: where two ranges overlap (it names both), where there are not so many keys, and for keys
        below 1 or above ``2**63 - 1``.

    >>> [shard.start for shard in ranges(shards=4, size=10**12).values()]
    [1, 1000000000001, 2000000000001, 3000000000001]
    """
    if isinstance(shards, Mapping):
        if size is not None:
            raise ConfigurationError(f"size is {shown(size)}, but each of the ranges has its own; leave size out")
        if not shards:
            raise ConfigurationError("shards is empty, expected the name of each shard with its range")
        return Ranges({name: _range(name, given) for name, given in shards.items()})
    names = _names(shards)
    if size is not None and not _is_integer(size):
        raise ConfigurationError(f"size is {shown(size)}, expected how many keys each shard has")
    each = LAST_KEY // len(names) if size is None else size
    if each < 1 or each * len(names) > LAST_KEY:
        raise ConfigurationError(
            f"{len(names)} shards of {shown(size)} keys each cannot be: there are 2**63 - 1 keys, so size is at least "
            f"1 and at most {LAST_KEY // len(names)}"
        )
    return Ranges({name: Range(at * each + 1, (at + 1) * each + 1) for at, name in enumerate(names)})


def _names(shards: object) -> list[Any]:
    """What the shards are called."""
    names: list[Any] = []
    if _is_integer(shards):
        names = list(range(shards))
    elif isinstance(shards, (list, tuple)):
        shards = names = list(cast("list[Any]", shards))
    if not names or not all(isinstance(name, Hashable) for name in names) or len(set(names)) < len(names):
        raise ConfigurationError(
            f"shards is {shown(shards)}, expected a number above 0, a list of names that differ, or name → range"
        )
    return names


def _range(name: object, given: object) -> Range:
    if isinstance(given, Range):
        return given
    if not isinstance(given, range) or given.step != 1:
        raise ConfigurationError(f"the range of {name!r} is {shown(given)}, expected range(first, last + 1)")
    try:
        return Range(given.start, given.stop)
    except ConfigurationError as error:
        raise ConfigurationError(f"the range of {name!r}: {error}") from None
