"""Rules that determine the shard of a row, without a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, String, create_engine, event, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, TypedId, testing
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


class ShardedLine(Base):
    __tablename__ = "sharded_line"
    box: Mapped[int] = mapped_column(primary_key=True)
    place: Mapped[int] = mapped_column(primary_key=True)


def test_part_of_a_key(new_engine: Callable[..., Engine]) -> None:
    """A part of a composite key determines no shard: rows with it are found in whatever shard they are."""
    router = ShardRouter({name: new_engine("sqlite") for name in ("a", "b")}, by=Ranges(shards=["a", "b"], size=100))
    for engine in router.shards.values():
        Base.metadata.create_all(engine)
    with router.session() as session:
        session.add_all(ShardedLine(box=5, place=place) for place in range(4))  # in turns, without a parent
        session.commit()
        found = [line.place for line in session.scalars(select(ShardedLine).where(ShardedLine.box == 5))]
    assert sorted(found) == [0, 1, 2, 3]


class Placed(PublicIdMixin, Base):
    __tablename__ = "sharded_placed"
    shard: Mapped[str] = mapped_column(String(1))


def test_ids_that_wait_on_two_connections(new_engine: Callable[..., Engine]) -> None:
    """A listener that reads the id of an object in a flush gets the one that waits for it, in whatever shard it is."""
    router = ShardRouter({name: new_engine("sqlite") for name in ("a", "b")}, place=lambda one: one.shard)
    for engine in router.shards.values():
        Base.metadata.create_all(engine)
    Base.registry.configure()  # the listener of the library, which draws the id, comes first
    seen: list[str] = []
    event.listen(Placed, "before_insert", lambda mapper, connection, one: seen.append(one.public_id))

    ids = ["000000000001", "000000000002", "000000000003"]
    with router.session() as session, testing.fixed_ids(Placed, *ids):
        session.add_all(Placed(shard=shard) for shard in "abb")
        session.commit()
        assert sorted(session.scalars(select(Placed.public_id))) == sorted(seen) == ids
