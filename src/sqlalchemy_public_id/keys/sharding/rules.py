"""The settings of a router: its engines, the rule that finds the shard of a row, and the choosers of new objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, cast

from sqlalchemy import Engine

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.keys.ranges import LAST_CLUSTER, Range, Ranges, is_whole, range_of
from sqlalchemy_public_id.messages import safe_repr

ShardChooser = Callable[[Any], str]
"""Returns the shard of a new object."""

_MASK = (1 << 64) - 1


def bucket_of(text: str, buckets: int) -> int:
    """Return the bucket of the public id *text*, from 0 to ``buckets - 1``, on every machine and in every version.

    The 8-byte BLAKE2b digest (RFC 7693) of the canonical id, read as a big-endian number, is the key of the jump
    consistent hash by Lamping and Veach (2014). Adding a bucket moves one id in *buckets*, always to the new one.

    >>> from sqlalchemy_public_id.keys.sharding.rules import bucket_of
    >>> bucket_of("cus_izkpm55j334u", 4)
    0
    """
    return jump(int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big"), buckets)


def jump(key: int, buckets: int) -> int:
    """Return the bucket of the 64-bit number *key*. The division uses doubles (IEEE 754), as in the paper."""
    bucket, following = 0, 0
    while following < buckets:
        bucket = following
        key = (key * 2862933555777941757 + 1) & _MASK
        following = int((bucket + 1) * (float(1 << 31) / float((key >> 33) + 1)))
    return bucket


def rules_of(by: object, shards: Sequence[str]) -> tuple[dict[Any, str], Ranges | None]:
    """Return the shard of each prefix or range of keys, and the ranges; both are empty for ``"hash"``.

    :raises ConfigurationError: for an unknown shard, and for a *by* that is not a rule.
    """
    given = {keys: shard for shard, keys in by.items()} if isinstance(by, Ranges) else _mapping(by)
    rules: dict[Any, str] = {}
    spans: dict[Any, Range | range] = {}
    for which, shard in given.items():
        of = which
        if isinstance(which, (range, Range)):
            spans[which] = which
        elif is_whole(which, 0, LAST_CLUSTER):
            spans[which] = range_of(which)
        elif not isinstance(which, str):
            of = getattr(getattr(which, "id_format", None), "prefix", None)
        rules[of] = require_shard(shard, shards, f"by has {safe_repr(shard)} for {safe_repr(which)}")
    is_mixed = len(spans) not in (0, len(rules)) or len(rules) < len(given)  # or a prefix has two shards
    if (by == "hash") == bool(rules) or is_mixed or {None, ""} & rules.keys():
        raise ConfigurationError(
            f'by is {safe_repr(by)}; expected "hash", {{prefix or typed id with one: shard}}, '
            f"{{cluster id up to {LAST_CLUSTER}: shard}}, {{range of keys: shard}}, or Ranges"
        )
    return rules, Ranges(spans) if spans else None


def require_shard(shard: object, shards: Sequence[str], what: str) -> str:
    """Return *shard* if it is one of *shards*; *what* begins the error otherwise."""
    if not isinstance(shard, str) or shard not in shards:
        raise ConfigurationError(f"{what}, which is not a shard; expected one of {', '.join(map(repr, shards))}")
    return shard


def engines_of(shards: object) -> dict[str, Engine]:
    """Return name → engine; the ``sync_engine`` of an ``AsyncEngine``."""
    engines: dict[Any, Any] = {name: getattr(shard, "sync_engine", shard) for name, shard in _mapping(shards).items()}
    # a name becomes an identity token; the session tests its truth
    are_right = [name and isinstance(name, str) and isinstance(engine, Engine) for name, engine in engines.items()]
    if not engines or not all(are_right):
        raise ConfigurationError(
            f"shards is {safe_repr(shards)}, expected a mapping of one name or more → Engine or AsyncEngine"
        )
    return engines


def choosers_of(place: object) -> Mapping[type[Any], ShardChooser]:
    """Return model → function; a single function applies to all models."""
    choosers = _mapping(place)
    if not choosers and place not in (None, {}):
        choosers = {object: place}
    for model, chooser in choosers.items():
        if not isinstance(model, type) or isinstance(chooser, type) or not callable(chooser):
            raise ConfigurationError(
                f"place is {safe_repr(place)}, expected a function that takes an object and returns a "
                f"shard, or a mapping of model → function"
            )
    return dict(choosers)


def _mapping(given: object) -> Mapping[Any, Any]:
    return cast("Any", given) if isinstance(given, Mapping) else {}
