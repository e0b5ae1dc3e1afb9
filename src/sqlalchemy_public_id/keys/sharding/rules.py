"""What tells the shard of a row: its public id, the prefix of that, or its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any

from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.keys.ranges import LAST_CLUSTER, SEQUENCE_BITS
from sqlalchemy_public_id.typed import TypedId

__all__ = ["ByHash", "ByKey", "ByPrefix", "Rule", "bucket_of", "jump", "require_shard", "rule_of"]

_MASK = (1 << 64) - 1


def bucket_of(text: str, buckets: int) -> int:
    """Which of so many *buckets* holds the public id *text*: the same on every machine, in every version, for ever.

    BLAKE2b (RFC 7693) with a digest of 8 bytes over the canonical text, read as a big-endian number, goes through the
    jump consistent hash of Lamping and Veach (2014): with one bucket more, one id in so many moves, to the new one.

    >>> from sqlalchemy_public_id.keys.sharding.rules import bucket_of
    >>> bucket_of("cus_izkpm55j334u", 4)
    0
    """
    return jump(int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big"), buckets)


def jump(key: int, buckets: int) -> int:
    """The bucket of the 64-bit number *key*. The division is one of doubles (IEEE 754), as in the paper."""
    bucket, following = 0, 0
    while following < buckets:
        bucket = following
        key = (key * 2862933555777941757 + 1) & _MASK
        following = int((bucket + 1) * (float(1 << 31) / float((key >> 33) + 1)))
    return bucket


class Rule:
    """Says in which shard a row is; ``None`` where it cannot tell by that."""

    def of_prefix(self, prefix: str | None) -> str | None:
        """By the prefix of the public ids of the model."""
        return None

    def of_id(self, public_id: str) -> str | None:
        """By the canonical public id."""
        return None

    def of_key(self, key: int) -> str | None:
        """By the key."""
        return None


@dataclass(frozen=True)
class ByHash(Rule):
    """Spreads the rows evenly, by :func:`bucket_of` their public id."""

    shards: Sequence[str]

    def of_id(self, public_id: str) -> str:
        return self.shards[bucket_of(public_id, len(self.shards))]


@dataclass(frozen=True)
class ByPrefix(Rule):
    """Keeps all rows of a model in one shard."""

    shards: Mapping[str, str]

    def of_prefix(self, prefix: str | None) -> str | None:
        return None if prefix is None else self.shards.get(prefix)


@dataclass(frozen=True)
class ByKey(Rule):
    """Reads the shard from the key, by the cluster or the range it belongs to."""

    find: Callable[[int], str | None]

    def of_key(self, key: int) -> str | None:
        return self.find(key)


_EXPECTED = (
    'expected "hash", {prefix or typed id: shard}, {cluster id: shard}, {range of keys: shard}, '
    "or what ranges() answers"
)


def rule_of(by: object, shards: Sequence[str]) -> Rule:
    """The rule that *by* stands for.

    :raises ConfigurationError: where it names a shard that there is not, or is none of what can be said.
    """
    if by == "hash":
        return ByHash(tuple(shards))
    given: Any = by
    if hasattr(given, "shard_of"):
        for shard in given if isinstance(by, Mapping) else ():
            require_shard(shard, shards, f"by has a range for {shown(shard)}")
        return ByKey(given.shard_of)
    if not isinstance(by, Mapping) or not by:
        raise ConfigurationError(f"by is {shown(given)}; {_EXPECTED}")
    for which, shard in given.items():
        _refuse_nothing(which)
        require_shard(shard, shards, f"by has {shown(shard)} for {shown(which)}")
    prefixes = {_prefix(which): shard for which, shard in given.items() if _prefix(which) is not None}
    clusters = {which: shard for which, shard in given.items() if type(which) is int}
    spans = [(which, shard) for which, shard in given.items() if _is_span(which)]
    if len(prefixes) == len(given):
        return ByPrefix({str(prefix): shard for prefix, shard in prefixes.items()})
    if len(clusters) == len(given):
        _refuse_no_cluster(clusters)
        return ByKey(lambda key: clusters.get(key >> SEQUENCE_BITS))
    if len(spans) == len(given):
        _refuse_overlaps([which for which, _ in spans])
        return ByKey(lambda key: next((shard for which, shard in spans if which.start <= key < which.stop), None))
    raise ConfigurationError(f"by is {shown(given)}, of which the keys are not of one kind; {_EXPECTED}")


def require_shard(shard: object, shards: Sequence[str], what: str) -> str:
    """*shard*, one of *shards*; or :class:`ConfigurationError`, of *what* was said."""
    if not isinstance(shard, str) or shard not in shards:
        raise ConfigurationError(f"{what}, which is no shard; expected one of {', '.join(map(repr, shards))}")
    return shard


def _prefix(which: Any) -> str | None:
    if isinstance(which, str) and not isinstance(which, TypedId):
        return which
    if isinstance(which, type) and issubclass(which, TypedId):
        return which.id_format.prefix
    return None


def _refuse_nothing(which: Any) -> None:
    """Refuse what no row can have."""
    span: Any = which
    if isinstance(which, type) and issubclass(which, TypedId) and getattr(which, "id_format", None) is None:
        raise ConfigurationError(f"by has {which.__name__}, which has no prefix; expected a subclass with one")
    if which == "" or (isinstance(which, type) and _prefix(which) == ""):
        raise ConfigurationError("by has an empty prefix; expected the prefix of the public ids of a model")
    if _is_span(span) and span.start >= span.stop:
        raise ConfigurationError(
            f"by has {shown(which)}, which holds no key; expected the first key, and one past the last"
        )


def _is_span(which: Any) -> bool:
    ends = getattr(which, "start", None), getattr(which, "stop", None)
    return all(type(end) is int for end in ends) and getattr(which, "step", 1) == 1


def _refuse_no_cluster(clusters: Mapping[int, str]) -> None:
    for cluster in clusters:
        if not 0 <= cluster <= LAST_CLUSTER:
            raise ConfigurationError(f"{cluster} is no cluster id; expected 0 to {LAST_CLUSTER}")


def _refuse_overlaps(spans: list[Any]) -> None:
    ordered = sorted(spans, key=lambda span: span.start)
    for one, other in pairwise(ordered):
        if other.start < one.stop:
            raise ConfigurationError(f"the ranges {shown(one)} and {shown(other)} overlap; a key has one shard")
