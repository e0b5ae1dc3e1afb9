"""Formats and alphabets of public ids, and the probability of collisions. No database is needed."""

from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats.alphabets import (
    BASE36,
    BASE58,
    BASE62,
    CROCKFORD32,
    UNAMBIGUOUS,
    URLSAFE64,
)
from sqlalchemy_public_id.formats.budget import Budget
from sqlalchemy_public_id.formats.nanoid import NanoId
from sqlalchemy_public_id.formats.snowflake import ObjectId, Snowflake
from sqlalchemy_public_id.formats.uuids import JetifyTypeId, Ulid, Uuid4, Uuid7

__all__ = [
    "BASE36",
    "BASE58",
    "BASE62",
    "Budget",
    "CROCKFORD32",
    "Format",
    "NanoId",
    "ObjectId",
    "Snowflake",
    "JetifyTypeId",
    "Ulid",
    "UNAMBIGUOUS",
    "URLSAFE64",
    "Uuid4",
    "Uuid7",
]
