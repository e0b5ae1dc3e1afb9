"""The settings of a router: its engines, the rule that finds the shard of a row, and the choosers of new objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any

from sqlalchemy import Engine

from sqlalchemy_public_id.errors import ConfigurationError, safe_repr
from sqlalchemy_public_id.keys.ranges import LAST_CLUSTER, SEQUENCE_BITS
from sqlalchemy_public_id.typed import TypedId

ShardChooser = Callable[[Any], str]
"""Returns the shard of a new object."""

_MASK = (1 << 64) - 1


def bucket_of(text: str, buckets: int) -> int:
    """Return the bucket of the public id *text*, from 0 to ``buckets - 1``, on every machine and in every version.

    BLAKE2b (RFC 7693) with a digest of 8 bytes over the canonical id, read as a big-endian number, goes through the
    jump consistent hash of Lamping and Veach (2014). With one more bucket, one id in *buckets* moves, to the new one.

    >>> from sqlalchemy_public_id.keys.sharding.rules import bucket_of
    >>> bucket_of("cus_izkpm55j334u", 4)
    0
    """
    return jump(int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big"), buckets)


def jump(key: int, buckets: int) -> int:
    """Return the bucket of the 64-bit number *key*. The division is one of doubles (IEEE 754), as in the paper."""
    bucket, following = 0, 0
    while following < buckets:
        bucket = following
        key = (key * 2862933555777941757 + 1) & _MASK
        following = int((bucket + 1) * (float(1 << 31) / float((key >> 33) + 1)))
    return bucket


class Rule:
    """Finds the shard of a row by one of its properties; ``None`` by the others."""

    def of_prefix(self, prefix: str | None) -> str | None:
        return None

    def of_id(self, public_id: str) -> str | None:
        return None

    def of_key(self, key: int) -> str | None:
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
    """Finds the shard by the cluster or the range of the key."""

    find: Callable[[int], str | None]

    def of_key(self, key: int) -> str | None:
        return self.find(key)


_EXPECTED = 'expected "hash", {prefix or typed id: shard}, {cluster id: shard}, {range of keys: shard}, or Ranges'


def rule_of(by: object, shards: Sequence[str]) -> Rule:
    """Return the rule for the argument *by* of a router.

    :raises ConfigurationError: for an unknown shard, and for what is no rule.
    """
    if by == "hash":
        return ByHash(tuple(shards))
    rules: Any = by
    if hasattr(rules, "shard_of"):
        for shard in rules if isinstance(by, Mapping) else ():
            require_shard(shard, shards, f"by has a range for {safe_repr(shard)}")
        return ByKey(rules.shard_of)
    if not isinstance(by, Mapping) or not by:
        raise ConfigurationError(f"by is {safe_repr(rules)}; {_EXPECTED}")
    for which, shard in rules.items():
        require_shard(shard, shards, f"by has {safe_repr(shard)} for {safe_repr(which)}")
    prefixes = {prefix: shard for which, shard in rules.items() if (prefix := _prefix(which)) is not None}
    clusters = {which: shard for which, shard in rules.items() if type(which) is int}
    spans = [(which, shard) for which, shard in rules.items() if _is_span(which)]
    spans.sort(key=lambda span: span[0].start)
    if len(prefixes) == len(rules):
        return ByPrefix(prefixes)
    if len(clusters) == len(rules):
        for cluster in clusters:
            if not 0 <= cluster <= LAST_CLUSTER:
                raise ConfigurationError(f"{cluster} is no cluster id; expected 0 to {LAST_CLUSTER}")
        return ByKey(lambda key: clusters.get(key >> SEQUENCE_BITS))
    if len(spans) == len(rules):
        for (one, _), (other, _) in pairwise(spans):
            if other.start < one.stop:
                raise ConfigurationError(
                    f"the ranges {safe_repr(one)} and {safe_repr(other)} overlap; a key has one shard"
                )
        return ByKey(lambda key: next((shard for which, shard in spans if which.start <= key < which.stop), None))
    raise ConfigurationError(f"by is {safe_repr(rules)}, of which the keys are not of one kind; {_EXPECTED}")


def require_shard(shard: object, shards: Sequence[str], what: str) -> str:
    """Return *shard* if it is one of *shards*; *what* begins the error otherwise."""
    if not isinstance(shard, str) or shard not in shards:
        raise ConfigurationError(f"{what}, which is no shard; expected one of {', '.join(map(repr, shards))}")
    return shard


def _prefix(which: Any) -> str | None:
    prefix: str | None = None
    if isinstance(which, str) and not isinstance(which, TypedId):
        prefix = which
    if isinstance(which, type) and issubclass(which, TypedId):
        if getattr(which, "id_format", None) is None:
            raise ConfigurationError(f"by has {which.__name__}, which has no prefix; expected a subclass with one")
        prefix = which.id_format.prefix
    if prefix == "":
        raise ConfigurationError("by has an empty prefix; expected the prefix of the public ids of a model")
    return prefix


def _is_span(which: Any) -> bool:
    ends = getattr(which, "start", None), getattr(which, "stop", None)
    if not all(type(end) is int for end in ends) or getattr(which, "step", 1) != 1:
        return False
    if which.start >= which.stop:
        raise ConfigurationError(
            f"by has {safe_repr(which)}, which holds no key; expected the first key, and one past the last"
        )
    return True


def engines_of(shards: Any) -> dict[str, Engine]:
    """Return name → engine; the ``sync_engine`` of an asynchronous one."""
    by_name: Mapping[Any, Any] = shards
    if not isinstance(shards, Mapping) or not shards:
        raise ConfigurationError(f"shards is {safe_repr(by_name)}, expected name → engine, for one database or more")
    engines: dict[str, Engine] = {}
    for name, shard in by_name.items():
        if not isinstance(name, str) or not name:  # a key of the identity map; the session tests its truth
            raise ConfigurationError(f"the name of a shard is {safe_repr(name)}, expected a text")
        engine = getattr(shard, "sync_engine", shard)
        if not isinstance(engine, Engine):
            raise ConfigurationError(f"the shard {name!r} is {safe_repr(shard)}, expected an Engine or an AsyncEngine")
        engines[name] = engine
    return engines


def choosers_of(place: Any) -> dict[type[Any], ShardChooser]:
    """Return model → function; a single function is that of all models."""
    choosers: Any = place
    if place is None:
        return {}
    if callable(place) and not isinstance(place, type):
        return {object: choosers}
    if not isinstance(place, Mapping):
        raise ConfigurationError(f"place is {safe_repr(place)}, expected a function of the object, or model → function")
    for model, chooser in choosers.items():
        if not isinstance(model, type) or (model.__module__ == "builtins" and model is not object):
            raise ConfigurationError(
                f"place has {safe_repr(model)}, expected a mapped class, or one that models inherit"
            )
        if not callable(chooser):
            expected = "expected a function of the object that returns a shard"
            raise ConfigurationError(f"the place of {model.__name__} is {safe_repr(chooser)}, {expected}")
    return dict(choosers)
