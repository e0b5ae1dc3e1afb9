"""Ids that were issued once: every later version accepts them, unchanged, with the same number and time."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from sqlalchemy_public_id import Format, JetifyTypeId, Ksuid, NanoId, ObjectId, Snowflake, Ulid, Uuid4, Uuid7
from sqlalchemy_public_id.formats._bits import BitsFormat, TimedFormat

ISSUED: list[tuple[Format, str, int | None, str | None]] = [
    (NanoId(), "izkpm55j334u", None, None),
    (Uuid4(), "8m8scpfugfij4qenj0ig77qg8", 0x919108F752D143209BACF847DB4148A8, None),
    (Uuid7(), "036twi214qwj7mgsvq83nm8wf", 0x017F22E279B07CC398C4DC0C0C07398F, "2022-02-22T19:22:22"),
    (JetifyTypeId(), "01h455vb4pex5vsknk084sn02q", 0x01890A5DAC96774BBCCEB302099A8057, "2023-06-30T03:34:18.518000"),
    (Ulid(), "01ARZ3NDEKTSV4RRFFQ69G5FAV", 0x01563E3AB5D3D6764C61EFB99302BD5B, "2016-07-30T23:54:10.259000"),
    (Ksuid(), "0ujtsYcgvSTl8PAuAdqWYSMnLOv", 0x0669F7EFB5A1CD34B5F99D1154FB6853345C9735, "2017-10-10T04:00:47"),
    (ObjectId(), "507f1f77bcf86cd799439011", 0x507F1F77BCF86CD799439011, "2012-10-17T21:13:27"),
    (Snowflake(5), "0000000004194324480", 4194324480, "2020-01-01T00:00:01"),
]
"""Format, an id that its specification or our documentation shows, its number, and its time."""


@pytest.mark.parametrize(
    ("format", "text", "number", "time"), ISSUED, ids=lambda value: repr(value) if isinstance(value, Format) else ""
)
def test_issued_ids(format: Format, text: str, number: int | None, time: str | None) -> None:
    """An id that was issued once stays valid, in the spelling in which it was issued, with its number and time."""
    assert format.validate(text) == text
    if isinstance(format, BitsFormat):
        assert format.to_int(text) == number
        assert format.from_int(number or 0) == text
    if isinstance(format, TimedFormat):
        assert format.timestamp(text) == datetime.fromisoformat(time or "").replace(tzinfo=timezone.utc)
