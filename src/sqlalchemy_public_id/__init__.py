"""Public ids for SQLAlchemy: a BIGINT key inside the database, an opaque public id outside."""

from sqlalchemy_public_id import bulk, guard, lookup
from sqlalchemy_public_id._version import __version__ as __version__
from sqlalchemy_public_id.errors import (
    BackfillIncomplete,
    ClockMovedBack,
    ConfigurationError,
    DuplicatePrefix,
    ImmutablePublicId,
    InvalidPublicId,
    KeySpaceExhausted,
    LockNotAvailable,
    MissingExtra,
    PublicIdCollision,
    PublicIdConflict,
    PublicIdError,
    PublicIdNotFound,
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
)
from sqlalchemy_public_id.mixins import (
    PublicIdColumnMixin,
    PublicIdColumnMixinDataclass,
    PublicIdMixin,
    PublicIdMixinDataclass,
    bigint_key,
    public_id_column,
)
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import PublicIdType

__all__ = [
    "BackfillIncomplete",
    "BASE36",
    "BASE58",
    "BASE62",
    "bigint_key",
    "Budget",
    "bulk",
    "ClockMovedBack",
    "ConfigurationError",
    "CROCKFORD32",
    "DuplicatePrefix",
    "Format",
    "guard",
    "ImmutablePublicId",
    "InvalidPublicId",
    "KeySpaceExhausted",
    "LockNotAvailable",
    "lookup",
    "MissingExtra",
    "NanoId",
    "public_id_column",
    "PublicIdCollision",
    "PublicIdColumnMixin",
    "PublicIdColumnMixinDataclass",
    "PublicIdConflict",
    "PublicIdError",
    "PublicIdMixin",
    "PublicIdMixinDataclass",
    "PublicIdNotFound",
    "PublicIdType",
    "TypedId",
    "UNAMBIGUOUS",
    "URLSAFE64",
]
