"""Formats and alphabets of public ids, and the probability of collisions. No database is needed."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

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

if _TYPE_CHECKING:
    from sqlalchemy_public_id.formats.ksuid import Ksuid
    from sqlalchemy_public_id.formats.snowflake import ObjectId, Snowflake
    from sqlalchemy_public_id.formats.uuids import JetifyTypeId, Ulid, Uuid4, Uuid7

__all__ = [
    "BASE36",
    "BASE58",
    "BASE62",
    "Budget",
    "CROCKFORD32",
    "Format",
    "Ksuid",
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

_MODULES = {
    "JetifyTypeId": "uuids",
    "Ksuid": "ksuid",
    "ObjectId": "snowflake",
    "Snowflake": "snowflake",
    "Ulid": "uuids",
    "Uuid4": "uuids",
    "Uuid7": "uuids",
}
"""Formats that most programs do not use are loaded on first use: making their classes is a quarter of our import."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(_import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all names for completion in a shell, including formats that are loaded on first use."""
    return sorted({*globals(), *__all__})
