"""The settings of a router: its engines, the rule that finds the shard of a row, and the choosers of new objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, cast

from sqlalchemy import Engine

from sqlalchemy_public_id.errors import ConfigurationError, safe_repr
from sqlalchemy_public_id.keys.ranges import Range, Ranges, range_of

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
    """Finds the shard of a row by one of its properties; ``None`` by the others.

    :raises ConfigurationError: for an unknown shard, and for a *by* that is no rule.
    """

    def __init__(self, by: object, shards: Sequence[str]) -> None:
        self._shards = shards
        self.is_hash: bool = by == "hash"
        """True if the hash of a public id finds its shard."""
        self._prefixes: dict[str, str] = {}
        self._ranges: Ranges | None = None
        self._shard_of_range: Mapping[Any, str] = {}
        if self.is_hash:
            return
        given: Any = by
        rules: Mapping[Any, Any] = {}
        if isinstance(by, Ranges):
            rules = {keys: shard for shard, keys in by.items()}
        elif isinstance(by, Mapping):
            rules = given
        for which, shard in rules.items():
            require_shard(shard, shards, f"by has {safe_repr(shard)} for {safe_repr(which)}")
        prefixes = {_prefix(which): shard for which, shard in rules.items() if isinstance(which, (str, type))}
        spans = {which: _span(which) for which in rules if type(which) is int or isinstance(which, (range, Range))}
        if rules and len(prefixes) == len(rules):
            self._prefixes = prefixes
        elif rules and len(spans) == len(rules):
            self._ranges, self._shard_of_range = Ranges(shards=spans), rules
        else:
            raise ConfigurationError(
                f'by is {safe_repr(given)}; expected "hash", {{prefix or typed id: shard}}, {{cluster id: shard}}, '
                f"{{range of keys: shard}}, or Ranges"
            )

    @property
    def is_key(self) -> bool:
        """True if the cluster or the range of a key finds its shard."""
        return self._ranges is not None

    def of_prefix(self, prefix: str | None) -> str | None:
        return None if prefix is None else self._prefixes.get(prefix)

    def of_id(self, public_id: str) -> str | None:
        return self._shards[bucket_of(public_id, len(self._shards))] if self.is_hash else None

    def of_key(self, key: int) -> str | None:
        return None if self._ranges is None else self._shard_of_range.get(self._ranges.shard_of(key))


def require_shard(shard: object, shards: Sequence[str], what: str) -> str:
    """Return *shard* if it is one of *shards*; *what* begins the error otherwise."""
    if not isinstance(shard, str) or shard not in shards:
        raise ConfigurationError(f"{what}, which is no shard; expected one of {', '.join(map(repr, shards))}")
    return shard


def _prefix(which: Any) -> str:
    prefix = which if isinstance(which, str) else getattr(getattr(which, "id_format", None), "prefix", None)
    if not prefix:
        shown = getattr(which, "__name__", safe_repr(which))
        raise ConfigurationError(f"by has {shown}, which has no prefix; expected that of a model, or its typed id")
    return str(prefix)


def _span(which: Any) -> Any:
    try:
        return range_of(which) if isinstance(which, int) else which
    except ValueError as error:
        raise ConfigurationError(f"by: {error}") from None


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


def choosers_of(place: object) -> dict[type[Any], ShardChooser]:
    """Return model → function; a single function is that of all models."""
    is_function = callable(place) and not isinstance(place, type)
    choosers = cast("dict[Any, Any]", {object: place} if is_function else {} if place is None else place)
    if not isinstance(choosers, Mapping) or not all(
        isinstance(model, type) and callable(chooser) for model, chooser in choosers.items()
    ):
        raise ConfigurationError(
            f"place is {safe_repr(place)}, expected a function of the object that returns a shard, or model → function"
        )
    return dict(choosers)
