"""UUIDs, ULIDs and TypeIDs, compared with the examples of their specifications and other implementations."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import uuid_utils
from support.clocks import clock_at

from sqlalchemy_public_id import (
    ConfigurationError,
    Format,
    InvalidPublicId,
    JetifyTypeId,
    NanoId,
    ObjectId,
    Snowflake,
    Ulid,
    Uuid4,
    Uuid7,
)
from sqlalchemy_public_id.formats import clock

# RFC 9562, appendix A
RFC = {
    1: "C232AB00-9414-11EC-B3C8-9F6BDECED846",
    3: "5df41881-3aed-3515-88a7-2f4a814cf09e",
    4: "919108f7-52d1-4320-9bac-f847db4148a8",
    5: "2ed6657d-e927-568b-95e1-2665a8aea6a2",
    6: "1EC9414C-232A-6B00-B3C8-9F6BDECED846",
    7: "017F22E2-79B0-7CC3-98C4-DC0C0C07398F",
    8: "2489E9AD-2EE2-8E00-8EC9-32D5F69181C0",
    "nil": "00000000-0000-0000-0000-000000000000",
    "max": "ffffffff-ffff-ffff-ffff-ffffffffffff",
}
TEXTS_OF_VERSION_7 = {
    "base36": "036twi214qwj7mgsvq83nm8wf",
    "hyphenated": "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
    "hex": "017f22e279b07cc398c4dc0c0c07398f",
    "base58": "1BihbxwwQ4NZZpKRH9JDCz",
    "crockford32": "01FWHE4YDGFK1SHH6W1G60EECF",
}
VECTORS = Path(__file__).parents[1] / "data" / "typeid"
"""Copied from https://github.com/jetify-com/typeid with its license."""
MOMENT = datetime(2026, 1, 1, tzinfo=timezone.utc)
every_encoding = pytest.mark.parametrize("encoding", TEXTS_OF_VERSION_7)


@pytest.mark.parametrize(("make", "version"), [(Uuid4, 4), (Uuid7, 7)])
@every_encoding
def test_versions(make: type[Uuid4 | Uuid7], version: int, encoding: str) -> None:
    """In every encoding, each format accepts only the RFC's example of its own version."""
    format = make(encoding=encoding)
    texts = {other: format.from_int(uuid.UUID(example).int) for other, example in RFC.items()}

    assert [other for other, text in texts.items() if format.is_valid(text)] == [version]


@every_encoding
def test_texts_for_ever(encoding: str) -> None:
    """The texts of the RFC's example stay valid in all later versions, with the same number and time."""
    format, text = Uuid7(encoding=encoding), TEXTS_OF_VERSION_7[encoding]

    assert format.validate(text) == text
    assert format.to_int(text) == uuid.UUID(RFC[7]).int
    assert format.timestamp(text) == datetime(2022, 2, 22, 19, 22, 22, tzinfo=timezone.utc)


@every_encoding
@pytest.mark.parametrize(("version", "kind"), [(4, Uuid4), (7, Uuid7)])
def test_ours_to_others(encoding: str, version: int, kind: type[Uuid4 | Uuid7]) -> None:
    """Generated ids have the right version and variant for the standard library, and the time of uuid_utils."""
    format = kind(encoding=encoding)
    for text in [*format.generate_many(50), *(format.generate() for _ in range(50))]:
        value = uuid.UUID(int=format.to_int(text))

        assert (value.version, value.variant) == (version, uuid.RFC_4122)
        if isinstance(format, Uuid7):
            milliseconds = uuid_utils.UUID(int=value.int).timestamp
            assert format.timestamp(text).timestamp() * 1000 == pytest.approx(milliseconds, abs=0.5)


def of_a_test() -> list[str]:
    """Return ids of version 7 that were generated with a test clock, one per millisecond."""
    with clock_at(MOMENT) as hands:
        ids = []
        for _ in range(4000):
            hands.now += 1
            ids.append(Uuid7().generate())
    return ids


@pytest.mark.parametrize(
    ("format", "make", "fixed"),
    [
        (Uuid4(), lambda: Uuid4().generate_many(4000), {*range(76, 80), 62, 63}),
        # within a millisecond, only the lowest bits of version 7 are random for each id
        (Uuid7(), lambda: Uuid7().generate_many(4000), {*range(32, 128)}),
        (Uuid7(), of_a_test, {*range(76, 128), 62, 63}),
    ],
    ids=["Uuid4", "Uuid7", "Uuid7 of a test"],
)
def test_random_bits(format: Uuid4 | Uuid7, make: Callable[[], list[str]], fixed: set[int]) -> None:
    """Each bit that is not fixed is set in about half of all ids."""
    numbers = [format.to_int(text) for text in make()]

    ones = {bit: sum(number >> bit & 1 for number in numbers) for bit in {*range(128)} - fixed}
    assert {bit: count for bit, count in ones.items() if not 1700 < count < 2300} == {}


def test_counter_has_all_its_bits() -> None:
    """Each bit below the time differs between ids: the order of ids would break at a carry into a bit that cannot.

    The highest one is left out, because the counter begins in the lower half of its range.
    """
    format, changed = Uuid7(), 0
    number = format.to_int(format.generate())
    for _ in range(64):
        time.sleep(0.001)
        before, number = number, format.to_int(format.generate())
        changed |= before ^ number

    assert {bit for bit in range(75) if not changed >> bit & 1} == {62, 63}  # the variant


# --- ULIDs


def test_example_of_a_ulid() -> None:
    """The specification's example and its largest ULID are accepted, and the text after the largest is not."""
    assert Ulid().validate("01arz3ndektsv4rrffq69g5fav") == "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert Ulid().to_int("7ZZZZZZZZZZZZZZZZZZZZZZZZZ") == 2**128 - 1
    assert not Ulid().is_valid("80000000000000000000000000")


def test_another_implementation_of_ulids() -> None:
    """Another implementation reads the same number and time, and its ids are accepted unchanged."""
    format = Ulid()
    ulid = pytest.importorskip("ulid")
    for text in [*format.generate_many(200), *(str(ulid.ULID()) for _ in range(200))]:
        other = ulid.ULID.from_str(text)

        assert format.validate(text) == format.from_int(int(other)) == text
        assert abs(other.datetime - format.timestamp(text)) < timedelta(milliseconds=1)


def test_ulids_of_a_moment() -> None:
    """Within a millisecond ids ascend in random steps, and keep the time of that millisecond."""
    format = Ulid()
    with clock_at(MOMENT):
        texts = format.generate_many(10_000)
    steps = [later - sooner for sooner, later in pairwise(map(format.to_int, texts))]

    assert min(steps) > 0
    assert len(set(steps)) == 9_999
    assert 2**55 < max(steps) < 2**57
    assert {format.timestamp(text) for text in texts} == {MOMENT}


@pytest.mark.parametrize("random_bits", [57, 58])
def test_full_millisecond(random_bits: int) -> None:
    """When a millisecond is full, ids use the next one ahead of the clock, and stay in order."""
    with clock_at(MOMENT):
        numbers = [clock.ascending(random_bits) for _ in range(1000)]
    times = {number >> random_bits for number in numbers}

    assert numbers == sorted(set(numbers))
    assert len(times) > 100
    assert max(times) - min(times) == len(times) - 1


# --- TypeIDs


def vectors(name: str, count: int) -> list[Any]:
    found: list[Any] = json.loads((VECTORS / f"{name}.json").read_text())
    assert len(found) == count
    return [pytest.param(vector, id=vector["name"]) for vector in found]


@pytest.mark.parametrize("vector", vectors("valid", 9))
def test_valid_typeids(vector: dict[str, str]) -> None:
    """A valid TypeID is accepted and corresponds to its UUID."""
    format = JetifyTypeId(vector["prefix"])

    assert format.validate(vector["typeid"]) == vector["typeid"]
    assert format.to_int(vector["typeid"]) == uuid.UUID(vector["uuid"]).int
    assert format.from_int(uuid.UUID(vector["uuid"]).int) == vector["typeid"]


@pytest.mark.parametrize("vector", vectors("invalid", 21))
def test_invalid_typeids(vector: dict[str, str]) -> None:
    """An invalid TypeID is refused, because its prefix cannot be declared or the rest is malformed."""
    assert not JetifyTypeId().is_valid(vector["typeid"])
    try:
        format = JetifyTypeId(vector["typeid"].rpartition("_")[0])
    except ConfigurationError:
        return
    with pytest.raises(InvalidPublicId):
        format.validate(vector["typeid"])


@pytest.mark.parametrize("prefix", ["", "a", "ab", "a__b", "a" * 63])
def test_prefixes_of_typeids(prefix: str) -> None:
    """Prefixes of the specification are allowed; an empty one omits the separator. New ids are UUID version 7."""
    format = JetifyTypeId(prefix)
    text = format.generate()

    assert text.startswith(f"{prefix}_" if prefix else "0")
    assert uuid.UUID(int=format.to_int(text)).version == 7
    assert format.prefixed(None) == JetifyTypeId("") == JetifyTypeId()


@pytest.mark.parametrize("prefix", ["_a", "a_", "A", "a1", "a-b", "a" * 64, "é", "a\n", " ", 5])
def test_refused_prefixes_of_typeids(prefix: object) -> None:
    """Other prefixes raise."""
    with pytest.raises(ConfigurationError, match="is not allowed in a TypeID"):
        JetifyTypeId(prefix)


# --- objects of other libraries


@pytest.mark.parametrize("prefix", [None, "doc"])
@every_encoding
def test_uuid_objects(prefix: str | None, encoding: str) -> None:
    """A format of UUIDs takes the objects of uuid and uuid_utils in place of texts, if they have its version."""
    format = Uuid7(prefix=prefix, encoding=encoding)
    text = format.from_int(uuid.UUID(RFC[7]).int)
    for value in (uuid.UUID(RFC[7]), uuid_utils.UUID(RFC[7])):
        assert format.validate(value) == format.canonical(value) == text
        assert (format.is_valid(value), format.to_int(value)) == (True, uuid.UUID(RFC[7]).int)
        assert format.timestamp(value) == format.timestamp(text)
    assert format.canonical(uuid.UUID(RFC[4])) is None
    with pytest.raises(InvalidPublicId, match="it is not a UUID of version 7"):
        format.validate(uuid.UUID(RFC[4]))


def test_objects_of_older_formats() -> None:
    """An object becomes an id of the form that accepts it; a column of numbers returns the newest form."""
    old, value = Uuid4(prefix="old"), uuid.UUID(RFC[4])
    texts = Uuid7(prefix="new", storage="text").accepting(Uuid4(prefix="old", storage="text"))

    assert texts.canonical(value) == old.from_int(value.int)
    assert Uuid7(prefix="new").accepting(old).canonical(value) == f"new_{old.from_int(value.int)[4:]}"
    assert NanoId().accepting(old).canonical(value) == old.from_int(value.int)
    assert JetifyTypeId("user").canonical(value) == JetifyTypeId("user").from_int(value.int)


def test_objects_of_ulid_and_bson() -> None:
    """``Ulid`` takes the ULIDs of python-ulid, and ``ObjectId`` those of bson, in every encoding."""
    ulid, bson = pytest.importorskip("ulid"), pytest.importorskip("bson")
    new, old = ulid.ULID(), bson.ObjectId()

    assert Ulid(prefix="evt").validate(new) == f"evt_{new}"
    assert ObjectId().validate(old) == str(old)
    for encoding in ("base36", "base58", "crockford32"):
        format = ObjectId(prefix="doc", encoding=encoding)
        assert format.to_int(format.validate(old)) == int(str(old), 16)


@pytest.mark.parametrize("format", [NanoId(), Ulid(), ObjectId(), Snowflake(machine_id=1)], ids=repr)
def test_objects_of_another_kind(format: Format) -> None:
    """A format that is not of UUIDs refuses them by their type; a format of UUIDs refuses numbers and bytes."""
    value = uuid.UUID(RFC[4])

    assert not format.is_valid(value)
    with pytest.raises(InvalidPublicId, match="it is of type UUID"):
        format.validate(value)
    assert not any(map(Uuid4().is_valid, (value.int, value.bytes, value.fields, None)))
