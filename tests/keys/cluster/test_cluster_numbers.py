"""Cluster keys and ranges as numbers: split, composed, and refused if they do not fit."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from sqlalchemy import Integer

from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.keys import ClusterKey, Range, Ranges, cluster_key, in_cluster, range_of

LAST = 2**48 - 1
FIGURES = [
    (2814749767106561, 10, 1, "a000000000001"),
    (2814749767106562, 10, 2, "a000000000002"),
    (5629499534213123, 20, 3, "14000000000003"),
    (5629499534213124, 20, 4, "14000000000004"),
    (1, 0, 1, "1"),
    (2**63 - 1, 32767, LAST, "7fffffffffffffff"),
]


@pytest.mark.parametrize(("number", "cluster", "sequence", "hex_"), FIGURES)
def test_figures(number: int, cluster: int, sequence: int, hex_: str) -> None:
    """The numbers of the original description, and the first and last cluster."""
    key = ClusterKey.of(cluster, sequence)

    assert (int(key), key.cluster, key.sequence, key.hex) == (number, cluster, sequence, hex_)
    assert ClusterKey.split(number) == (cluster, sequence)
    assert key in range_of(cluster)
    assert key not in range_of((cluster + 1) % 32768)


@pytest.mark.parametrize("cluster", [-1, 32768, "10", True], ids=repr)
def test_no_cluster(cluster: Any) -> None:
    """Anything but a cluster number is refused, and the error shows the valid range."""
    with pytest.raises(ValueError, match="is not a cluster number: expected an integer from 0 to 32767"):
        ClusterKey.of(cluster, 1)
    with pytest.raises(ConfigurationError, match="from 0 to 32767"):
        in_cluster(Integer, cluster)


@pytest.mark.parametrize("sequence", [0, LAST + 1, "1"], ids=repr)
def test_no_sequence(sequence: Any) -> None:
    """A sequence that does not fit, and would change the cluster, is refused."""
    with pytest.raises(ValueError, match="not a sequence of a cluster: expected an integer from 1 to 281474976710655"):
        ClusterKey.of(10, sequence)


@pytest.mark.parametrize("value", [-1, 2**63, "01", "+1", "", "١", str(2**63), 1.5, True], ids=repr)
def test_no_key(value: Any) -> None:
    """Anything but a key is refused, be it a number or a text."""
    with pytest.raises(ValueError, match="is not a cluster key: expected an integer from 0 to"):
        ClusterKey(value)


def test_an_integer_in_every_way() -> None:
    """A cluster key equals its number, has its text, and keeps its type when it is pickled."""
    key = ClusterKey.of(10, 1)
    again = pickle.loads(pickle.dumps(key))

    assert key == 2814749767106561
    assert hash(key) == hash(2814749767106561)
    assert (str(key), f"{key}", repr(key)) == ("2814749767106561",) * 3
    assert (type(again), again) == (ClusterKey, key)


# --- JSON


class Order(BaseModel):
    id: ClusterKey


def test_json_is_text() -> None:
    """JSON contains keys as text, because its numbers lose digits beyond 2**53; both are accepted as input."""
    order = Order(id=ClusterKey(2**53 + 1))

    assert order.model_dump_json() == '{"id":"9007199254740993"}'
    assert order.model_dump() == {"id": 9007199254740993}
    assert type(order.id) is ClusterKey
    written = ['{"id":"9007199254740993"}', '{"id":9007199254740993}']
    assert [*map(Order.model_validate_json, written)] == [order] * 2


@pytest.mark.parametrize("value", ["x", 2**63, 1.5], ids=repr)
def test_json_is_checked(value: Any) -> None:
    """An invalid key is a validation error of the field."""
    with pytest.raises(ValidationError, match="is not a cluster key"):
        Order.model_validate_json(json.dumps({"id": value}))


def test_json_schema() -> None:
    """The JSON schema declares a text of digits as output, and also accepts a number as input."""
    (written,) = Order.model_json_schema(mode="serialization")["properties"].values()
    (read,) = Order.model_json_schema(mode="validation")["properties"].values()

    assert (written["type"], written["pattern"]) == ("string", "^(?:0|[1-9][0-9]{0,18})$")
    assert [each["type"] for each in read["anyOf"]] == ["string", "integer"]
    assert read["anyOf"][0]["pattern"] == written["pattern"]


# --- ranges


def test_ranges_by_number() -> None:
    """Numbered shards share all keys evenly, and their ranges do not overlap."""
    four = Ranges(shards=4)

    assert list(four) == [0, 1, 2, 3]
    assert four[0].start == 1
    assert {each.stop - each.start for each in four.values()} == {(2**63 - 1) // 4}
    assert [one.stop for one in four.values()][:-1] == [one.start for one in four.values()][1:]


def test_ranges_of_the_seed() -> None:
    """Named shards with a size get consecutive ranges of a trillion keys each."""
    named = Ranges(shards=["one", "two"], size=10**12)

    assert named["one"].options == {"start": 1, "minvalue": 1, "maxvalue": 10**12}
    assert named["two"].options == {"start": 10**12 + 1, "minvalue": 10**12 + 1, "maxvalue": 2 * 10**12}
    assert [named.shard_of(key) for key in (1, 10**12, 10**12 + 1)] == ["one", "one", "two"]
    assert [named.shard_of(key) for key in (0, 2 * 10**12 + 1)] == [None, None]


def test_overlaps() -> None:
    """Overlapping ranges are refused in whatever order they are given, and the error names both."""
    with pytest.raises(
        ConfigurationError, match=r"'eu' \(1 to 10\) and 'us' \(10 to 19\) overlap; let 'us' begin at 11"
    ):
        Ranges(shards={"us": range(10, 20), "eu": range(1, 11)})
    with pytest.raises(ConfigurationError, match=r"'a' .* and 'b' .* overlap"):
        Ranges(shards={"a": range(1, 100), "b": range(20, 30)})


WRONG: list[Any] = [
    *({"eu": keys} for keys in (range(5), range(1, 2**63 + 1), range(5, 5), range(1, 9, 2), (1, 9))),
    *(0, [], ["a", "a"], "eu", True, {}),
]


@pytest.mark.parametrize("shards", WRONG, ids=repr)
def test_no_ranges(shards: Any) -> None:
    """Keys below 1 or above 2**63 - 1, empty ranges, and invalid arguments are refused."""
    with pytest.raises(ConfigurationError, match=r"expected|there are no keys"):
        Ranges(shards=shards)


@pytest.mark.parametrize("number", [0, 10, 32767])
def test_the_cluster_of_a_range(number: int) -> None:
    """A range that equals that of a cluster has its number, and any other range has None."""
    keys = range_of(number)

    assert keys.cluster == number
    assert Range(keys.start, keys.stop - 1).cluster is None
    assert Range(1, keys.stop + 1 if number == 0 else keys.stop - 2).cluster is None


@pytest.mark.parametrize("size", [0, 2**62, "5", True])
def test_sizes(size: int) -> None:
    """An invalid size is refused with the largest valid one; ranges cannot be combined with a size."""
    with pytest.raises(ConfigurationError, match=f"from 1 to {(2**63 - 1) // 4}"):
        Ranges(shards=4, size=size)
    with pytest.raises(ConfigurationError, match="without size"):
        Ranges(shards={"eu": range(1, 9)}, size=5)


# --- declarations


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"cluster": 32768}, "32768 is not a cluster number"),
        ({"cluster": "10"}, "'10' is not a cluster number"),
        ({"cluster": 10, "strategy": "trigger"}, 'expected "identity" or "function"'),
        ({"cluster": 10, "key_range": Range(1, 2)}, "either a cluster or key_range"),
        ({"strategy": "function", "key_range": Range(1, 2)}, 'strategy="function" limits its counter'),
        ({"key_range": range(1, 2)}, "expected one of Ranges"),
        ({"strategy": "function", "enforce_range": True}, 'enforce_range work with strategy="identity"'),
        ({"cluster": 10, "primary_key": False}, "sets primary_key itself"),
        ({"cluster": 10, "server_default": "1"}, "sets server_default itself"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes(options: dict[str, Any], expected: str) -> None:
    """An invalid declaration raises when it is declared."""
    with pytest.raises(ConfigurationError, match=expected):
        cluster_key(**options)
