"""Public ids for SQLAlchemy: a BIGINT key inside the database, an opaque public id outside."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from sqlalchemy_public_id import guard
from sqlalchemy_public_id._version import __version__ as __version__
from sqlalchemy_public_id.declare import (
    PublicIdColumnMixin,
    PublicIdColumnMixinDataclass,
    PublicIdMixin,
    PublicIdMixinDataclass,
    PublicIdType,
    bigint_key,
    public_id_column,
)
from sqlalchemy_public_id.errors import (
    ConfigurationError,
    IdempotencyConflict,
    ImmutablePublicId,
    InvalidCursor,
    InvalidPublicId,
    PublicIdCollision,
    PublicIdError,
    PublicIdNotFound,
    ReferenceNotReadable,
)
from sqlalchemy_public_id.formats import Format, NanoId
from sqlalchemy_public_id.typed import TypedId

if _TYPE_CHECKING:
    from sqlalchemy_public_id import bulk, idempotency, keys, lookup, references, tokens
    from sqlalchemy_public_id.formats import JetifyTypeId, Ksuid, ObjectId, Snowflake, Ulid, Uuid4, Uuid7
    from sqlalchemy_public_id.references import public_ref

__all__ = [
    "bigint_key",
    "bulk",
    "ConfigurationError",
    "Format",
    "guard",
    "idempotency",
    "IdempotencyConflict",
    "ImmutablePublicId",
    "InvalidCursor",
    "InvalidPublicId",
    "JetifyTypeId",
    "keys",
    "Ksuid",
    "lookup",
    "NanoId",
    "ObjectId",
    "public_id_column",
    "public_ref",
    "PublicIdCollision",
    "PublicIdColumnMixin",
    "PublicIdColumnMixinDataclass",
    "PublicIdError",
    "PublicIdMixin",
    "PublicIdMixinDataclass",
    "PublicIdNotFound",
    "PublicIdType",
    "ReferenceNotReadable",
    "references",
    "Snowflake",
    "tokens",
    "TypedId",
    "Ulid",
    "Uuid4",
    "Uuid7",
]

_MODULES = frozenset({"bulk", "idempotency", "keys", "lookup", "references", "tokens"})
"""Modules that a program may never use are loaded on first use."""

_NAMES = {
    "public_ref": "references",
    **dict.fromkeys(("JetifyTypeId", "Ksuid", "ObjectId", "Snowflake", "Ulid", "Uuid4", "Uuid7"), "formats"),
}
"""Names of such modules."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _import_module(f"{__name__}.{name}")
    if name in _NAMES:
        return getattr(_import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all names for completion in a shell, including modules that are loaded on first use."""
    return sorted({*globals(), *__all__})
