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
    BackfillIncomplete,
    ClockMovedBack,
    ConfigurationError,
    DryRun,
    DuplicatePrefix,
    ImmutablePublicId,
    InvalidCursor,
    InvalidPublicId,
    KeySpaceExhausted,
    LeaseNotAvailable,
    LockNotAvailable,
    MigrationRefused,
    MissingExtra,
    PublicIdCollision,
    PublicIdConflict,
    PublicIdError,
    PublicIdNotFound,
    ReferenceNotReadable,
)
from sqlalchemy_public_id.formats import (
    BASE36,
    BASE58,
    BASE62,
    CROCKFORD32,
    UNAMBIGUOUS,
    URLSAFE64,
    Budget,
    Format,
    NanoId,
    ObjectId,
    Snowflake,
    TypeIdFormat,
    Ulid,
    Uuid4,
    Uuid7,
)
from sqlalchemy_public_id.typed import TypedId

if _TYPE_CHECKING:
    from sqlalchemy_public_id import bulk, idempotency, keys, lookup, references, tokens
    from sqlalchemy_public_id.keys import (
        BlockAllocator,
        ClusterKey,
        CoprimeKey,
        CoprimeStep,
        KeyedStep,
        Ranges,
        ShardRouter,
        block_key,
        cluster_key,
    )
    from sqlalchemy_public_id.references import public_ref

__all__ = [
    "BackfillIncomplete",
    "BASE36",
    "BASE58",
    "BASE62",
    "bigint_key",
    "block_key",
    "BlockAllocator",
    "Budget",
    "bulk",
    "ClockMovedBack",
    "cluster_key",
    "ClusterKey",
    "ConfigurationError",
    "CoprimeKey",
    "CoprimeStep",
    "CROCKFORD32",
    "DryRun",
    "DuplicatePrefix",
    "Format",
    "guard",
    "idempotency",
    "ImmutablePublicId",
    "InvalidCursor",
    "InvalidPublicId",
    "KeyedStep",
    "keys",
    "KeySpaceExhausted",
    "LeaseNotAvailable",
    "LockNotAvailable",
    "lookup",
    "MigrationRefused",
    "MissingExtra",
    "NanoId",
    "ObjectId",
    "public_id_column",
    "public_ref",
    "PublicIdCollision",
    "PublicIdColumnMixin",
    "PublicIdColumnMixinDataclass",
    "PublicIdConflict",
    "PublicIdError",
    "PublicIdMixin",
    "PublicIdMixinDataclass",
    "PublicIdNotFound",
    "PublicIdType",
    "Ranges",
    "ReferenceNotReadable",
    "references",
    "ShardRouter",
    "Snowflake",
    "tokens",
    "TypedId",
    "TypeIdFormat",
    "Ulid",
    "UNAMBIGUOUS",
    "URLSAFE64",
    "Uuid4",
    "Uuid7",
]

_LATER = {
    "bulk": "",
    "idempotency": "",
    "keys": "",
    "lookup": "",
    "public_ref": ".references",
    "references": "",
    "tokens": "",
}
"""Modules that a program may never use are loaded when a name of theirs is used. Other names stand in ``keys``."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _LATER.get(name, ".keys")
    return getattr(_import_module(f"{__name__}{home}"), name) if home else _import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """Return all names, for completion in a shell: those that are loaded on first use as well."""
    return sorted({*globals(), *__all__})
