"""Rules that determine the shard of a row, without a database."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, TypedId
from sqlalchemy_public_id.keys.ranges import Ranges
from sqlalchemy_public_id.keys.sharding import ShardRouter
from sqlalchemy_public_id.keys.sharding.rules import bucket_of, jump

SHARDS = ("a", "b", "c")
ENGINE = create_engine("sqlite://")


class ShardedBoxId(TypedId, prefix="shardbox"): ...


class Base(DeclarativeBase): ...


class ShardedBox(PublicIdMixin, Base):
    __tablename__ = "sharded_box"
    __public_id__ = ShardedBoxId


def routing(by: Any) -> ShardRouter:
    """Return a router of three shards with the rule *by*."""
    return ShardRouter(dict.fromkeys(SHARDS, ENGINE), by=by)


@pytest.mark.parametrize(
    ("text", "buckets", "bucket"),
    [("izkpm55j334u", 4, 0), ("cus_izkpm55j334u", 1000, 936), ("01jd9xq8w5e3b9x0000000000a", 16, 4)],
)
def test_the_bucket_of_an_id_is_written_down_for_good(text: str, buckets: int, bucket: int) -> None:
    """An id stays in the same bucket in every later version; the expected values are fixed."""
    assert bucket_of(text, buckets) == bucket


@pytest.mark.parametrize(
    ("key", "buckets", "bucket"), [(1, 1, 0), (42, 57, 43), (0xDEAD10CC, 666, 361), (256, 1024, 520)]
)
def test_the_jump_hash_is_that_of_others(key: int, buckets: int, bucket: int) -> None:
    """The jump hash equals that of other implementations of the paper."""
    assert jump(key, buckets) == bucket


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("hash", ("b", None)),
        ({"cus": "a", ShardedBoxId: "b"}, ("b", None)),
        ({10: "a", 20: "b"}, (None, "a")),
        ({range(1, 10): "a", range(10, 11 << 48): "b"}, (None, "b")),
        (Ranges(shards=["a", "b"]), (None, "a")),
    ],
    ids=["hash", "prefixes", "clusters", "ranges of Python", "Ranges()"],
)
def test_a_rule_is_said_in_plain_values(by: Any, expected: Any) -> None:
    """The type of ``by`` determines the rule."""
    router = routing(by)

    assert (router.shard_of_id(ShardedBox, "shardbox_izkpm55j334u"), router.shard_of_key((10 << 48) + 7)) == expected


@pytest.mark.parametrize(
    ("by", "key", "shard"),
    [
        ({10: "a", 20: "b"}, 10 << 48 | 7, "a"),
        ({10: "a", 20: "b"}, 11 << 48, None),
        ({range(1, 10): "a", range(10, 20): "b"}, 9, "a"),
        ({range(1, 10): "a", range(10, 20): "b"}, 10, "b"),
        ({range(1, 10): "a", range(10, 20): "b"}, 20, None),
        (Ranges(shards=["a", "b"], size=100), 101, "b"),
    ],
)
def test_a_key_tells_its_shard(by: Any, key: int, shard: str | None) -> None:
    """The cluster in the upper bits of a key, or its range, determines one shard or none."""
    assert routing(by).shard_of_key(key) == shard


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"by": "color"}, 'expected "hash"'),
    ({"by": {"cus": "z"}}, "'z' for 'cus', which is not a shard; expected one of 'a', 'b', 'c'"),
    ({"by": {"cus": "a", 10: "b"}}, 'expected "hash"'),
    (
        {"by": {1 << 15: "a"}},
        "by is {32768: 'a'}; expected \"hash\", {prefix or typed id with one: shard}, {cluster id up to 32767: ",
    ),
    ({"by": {range(1, 10): "a", range(9, 20): "b"}}, "overlap"),
    ({"by": Ranges(shards=["a", "z"])}, "by has 'z' for Range("),
    ({"by": {range(5, 5): "a"}}, "there are no keys from 5 up to 5"),
    ({"by": {"": "a"}}, "by is {'': 'a'}; expected"),
    ({"by": {TypedId: "a"}}, "TypedId'>: 'a'}; expected"),
    ({"by": {"shardbox": "a", ShardedBoxId: "b"}}, "by is {'shardbox': 'a', "),  # one prefix, two shards
    ({"shards": {}}, "shards is {}, expected a mapping of one name or more → Engine or AsyncEngine"),
    ({"shards": ["sqlite://"]}, "shards is ['sqlite://'], expected"),
    ({"shards": {"": ENGINE}}, "shards is {'': Engine("),
    ({"shards": {"a": "sqlite://"}}, "shards is {'a': 'sqlite://'}, expected a mapping of one name or more"),
    ({"place": "a"}, "place is 'a', expected a function that takes an object"),
    ({"place": ShardedBoxId}, "a shard, or a mapping of model → function"),
    ({"place": {"customer": str}}, "place is {'customer': <class 'str'>}, expected a function"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[next(iter(options)) for options, _ in REFUSED])
def test_refused(options: dict[str, Any], message: str) -> None:
    """An invalid rule, shard or placement raises when the router is made."""
    with pytest.raises(ConfigurationError) as caught:
        ShardRouter(**{"shards": dict.fromkeys(SHARDS, ENGINE), **options})

    assert message in str(caught.value)


def test_the_most_careful_database_answers_for_all() -> None:
    """SQL that is compiled for all shards uses the shard with the tightest limits."""
    router = ShardRouter(
        {
            "p": create_engine("postgresql+psycopg://"),
            "m": create_engine("mysql+pymysql://"),
            "s": create_engine("sqlite://"),
        }
    )

    assert router.choosers["shard_chooser"](None, None) == "s"
