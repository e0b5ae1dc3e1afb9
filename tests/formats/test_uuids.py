"""UUIDs: RFC 9562's examples, and another implementation."""

from __future__ import annotations

import uuid
from datetime import datetime, timezone

import pytest
import uuid_utils

from sqlalchemy_public_id import Uuid4, Uuid7

# RFC 9562, appendix A
RFC = {
    1: "C232AB00-9414-11EC-B3C8-9F6BDECED846",
    3: "5df41881-3aed-3515-88a7-2f4a814cf09e",
    4: "919108f7-52d1-4320-9bac-f847db4148a8",
    5: "2ed6657d-e927-568b-95e1-2665a8aea6a2",
    6: "1EC9414C-232A-6B00-B3C8-9F6BDECED846",
    7: "017F22E2-79B0-7CC3-98C4-DC0C0C07398F",
    8: "2489E9AD-2EE2-8E00-8EC9-32D5F69181C0",
}
ENCODINGS = ("base36", "hyphenated", "hex", "base58", "crockford32")


@pytest.mark.parametrize(("make", "version"), [(Uuid4, 4), (Uuid7, 7)])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_versions(make: type[Uuid4 | Uuid7], version: int, encoding: str) -> None:
    """Of the RFC's examples, each format accepts that of its own version, in every encoding."""
    format, hyphenated = make(encoding=encoding), make(encoding="hyphenated")
    texts = {other: format.from_int(uuid.UUID(example).int) for other, example in RFC.items()}

    assert [other for other, text in texts.items() if format.is_valid(text)] == [version]
    assert [other for other, example in RFC.items() if hyphenated.is_valid(example)] == [version]


@pytest.mark.parametrize("text", ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"])
def test_nil_and_max(text: str) -> None:
    """The nil UUID and the max UUID are of no version."""
    assert not Uuid4(encoding="hyphenated").is_valid(text)
    assert not Uuid7(encoding="hyphenated").is_valid(text)


def test_time_of_the_example() -> None:
    """The RFC tells when its example of version 7 was made."""
    made = Uuid7(encoding="hyphenated").timestamp(RFC[7])

    assert made == datetime(2022, 2, 22, 19, 22, 22, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("base36", "036twi214qwj7mgsvq83nm8wf"),
        ("hyphenated", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"),
        ("hex", "017f22e279b07cc398c4dc0c0c07398f"),
        ("base58", "1BihbxwwQ4NZZpKRH9JDCz"),
        ("crockford32", "01FWHE4YDGFK1SHH6W1G60EECF"),
    ],
)
def test_texts_for_ever(encoding: str, text: str) -> None:
    """The texts of the RFC's example stay valid in every later version."""
    format = Uuid7(encoding=encoding)

    assert format.validate(text) == text
    assert format.to_int(text) == uuid.UUID(RFC[7]).int


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_ours_to_others(encoding: str) -> None:
    """What is made here is of the right version and variant to the standard library, and has the time of uuid_utils."""
    for version, format in ((4, Uuid4(encoding=encoding)), (7, Uuid7(encoding=encoding))):
        for text in format.generate_many(200):
            value = uuid.UUID(int=format.to_int(text))

            assert value.version == version
            assert value.variant == uuid.RFC_4122
            if isinstance(format, Uuid7):
                milliseconds = uuid_utils.UUID(int=value.int).timestamp
                assert format.timestamp(text).timestamp() * 1000 == pytest.approx(milliseconds, abs=0.5)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_others_to_ours(encoding: str) -> None:
    """What uuid_utils and the standard library make is accepted."""
    random, timed = Uuid4(encoding=encoding), Uuid7(encoding=encoding)
    for _ in range(200):
        for value in (uuid.uuid4().int, uuid_utils.uuid4().int):
            assert random.is_valid(random.from_int(value))
        assert timed.is_valid(timed.from_int(uuid_utils.uuid7().int))


def test_random_bits() -> None:
    """Of the bits that are not fixed, each is a one in about half of all ids."""
    for format, fixed in ((Uuid4(), 0), (Uuid7(), 48)):
        numbers = [format.to_int(text) for text in format.generate_many(4000)]
        for bit in range(128 - fixed):
            if 76 <= bit < 80 or 62 <= bit < 64 or (fixed and bit >= 32):  # of version 7, only these are drawn for each
                continue
            assert 1700 < sum(number >> bit & 1 for number in numbers) < 2300
