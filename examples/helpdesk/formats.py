"""One id of each format, for the page that shows how much of an id a double click selects."""

from __future__ import annotations

import uuid

from sqlalchemy_public_id import Format, JetifyTypeId, Ksuid, NanoId, ObjectId, Snowflake, Ulid, Uuid4, Uuid7

FORMATS: dict[str, Format] = {
    "NanoId": NanoId(),
    "NanoId, prefixed": NanoId(prefix="cus"),
    "Uuid7": Uuid7(),
    "Uuid4": Uuid4(),
    "JetifyTypeId": JetifyTypeId("user"),
    "Ulid": Ulid(),
    "Ksuid": Ksuid(),
    "Snowflake": Snowflake(machine_id=1),
    "ObjectId": ObjectId(),
}

HYPHENATED = "a UUID with hyphens"


def one_of_each() -> dict[str, str]:
    """Return a dictionary of the names of the formats and a new id of each."""
    return {name: format.generate() for name, format in FORMATS.items()} | {HYPHENATED: str(uuid.uuid4())}
