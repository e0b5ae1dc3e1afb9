"""The same table as others would declare it: by hand with other keys and ids, and with the bases of advanced-alchemy.

All have two more columns, ``name`` and ``email``. Unless its name says otherwise, a model has a BIGINT key and shows a
text of its own in ``public_id``, which is unique. A rival generates its ids the fastest way that its package offers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fastnanoid
import nanoid
import uuid_utils
from advanced_alchemy.base import AdvancedDeclarativeBase
from advanced_alchemy.mixins import BigIntPrimaryKey, NanoIDPrimaryKey, UUIDv7PrimaryKey
from advanced_alchemy.types import GUID
from hashids import Hashids
from sqids import Sqids
from sqlalchemy import MetaData, String, Uuid
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, registry
from typeid import TypeID
from ulid import ULID
from uuid_utils import compat

from benchmarks.models import Fields, bigint
from sqlalchemy_public_id.formats import BASE36

__all__ = ["RIVALS", "PlainBase", "Rival", "fast", "metadatas"]


class PlainBase(DeclarativeBase):
    """Tables written by hand."""


class AlchemyBase(AdvancedDeclarativeBase, DeclarativeBase):
    """Tables of advanced-alchemy. MySQL needs a length for its NanoIDs, whose column has none."""

    registry = registry(metadata=MetaData(), type_annotation_map={str: String(255), uuid.UUID: GUID()})


def fast() -> str:
    """Return an id of the same alphabet and length as ours."""
    return fastnanoid.generate(BASE36, 12)


def _text(length: int) -> Any:
    """Return the type of a text that is compared by its bytes, as that of the library is."""
    bytewise = String(length, collation="ascii_bin")
    return String(length).with_variant(bytewise, "mysql", "mariadb").with_variant(String(length, "C"), "postgresql")


def _shown(table: str, length: int, default: Callable[[], str] | None) -> type[Any]:
    """Declare a model with a BIGINT key, and the text of *default* in ``public_id``."""
    columns = {
        "__tablename__": table,
        "__annotations__": {"id": Mapped[int], "public_id": Mapped[str]},
        "id": bigint(),
        "public_id": mapped_column(_text(length), default=default, unique=True, sort_order=-9),
    }
    return type(table.title().replace("_", ""), (Fields, PlainBase), columns)


def _keyed(table: str, type_: Any, default: Callable[[], Any]) -> type[Any]:
    """Declare a model whose only id is the key made by *default*."""
    columns = {
        "__tablename__": table,
        "__annotations__": {"id": Mapped[Any]},
        "id": mapped_column(type_, primary_key=True, default=default, sort_order=-10),
    }
    return type(table.title().replace("_", ""), (Fields, PlainBase), columns)


class Alone(Fields, PlainBase):
    """A model that shows its key."""

    __tablename__ = "bigint_alone"
    id: Mapped[int] = bigint()


class AlchemyNanoId(Fields, NanoIDPrimaryKey, AlchemyBase):
    """The parts of ``NanoIDBase``, which has a MetaData that cannot be told apart from others."""

    __tablename__ = "alchemy_nanoid"


class AlchemyUuid7(Fields, UUIDv7PrimaryKey, AlchemyBase):
    """The parts of ``UUIDv7Base``."""

    __tablename__ = "alchemy_uuid7"


class AlchemyBigInt(Fields, BigIntPrimaryKey, AlchemyBase):
    """The parts of ``BigIntBase``."""

    __tablename__ = "alchemy_bigint"


@dataclass(frozen=True)
class Rival:
    """A model, and how its rows get what is shown of them."""

    model: type[Any]
    attribute: str = "public_id"
    """What is shown."""
    encode: Callable[[int], str] | None = None
    """Makes the text of a key, when it is read."""
    decode: Callable[[str], int] | None = None
    asks: bool = False
    """True if a SELECT looks for the id before each INSERT."""


_sqids, _hashids = Sqids(min_length=12), Hashids(salt="public id", min_length=12)

RIVALS: dict[str, Rival] = {
    "BIGINT alone": Rival(Alone, "id"),
    "UUIDv4 key": Rival(_keyed("uuid4_key", Uuid(), uuid.uuid4), "id"),
    "UUIDv7 key": Rival(_keyed("uuid7_key", Uuid(), compat.uuid7), "id"),
    "NanoID key": Rival(_keyed("nanoid_key", _text(12), fast), "id"),
    "default= with nanoid": Rival(_shown("by_nanoid", 12, lambda: nanoid.generate(BASE36, 12))),
    "default= with fastnanoid": Rival(_shown("by_fastnanoid", 12, fast)),
    "default= with typeid-python": Rival(_shown("by_typeid", 30, lambda: str(TypeID("usr")))),
    "default= with python-ulid": Rival(_shown("by_ulid", 26, lambda: str(ULID()))),
    "default= with uuid_utils": Rival(_shown("by_uuid_utils", 36, lambda: str(uuid_utils.uuid7()))),
    "advanced-alchemy, NanoID": Rival(AlchemyNanoId, "id"),
    "advanced-alchemy, UUIDv7": Rival(AlchemyUuid7, "id"),
    "advanced-alchemy, BigInt": Rival(AlchemyBigInt, "id"),
    "sqids": Rival(Alone, "id", lambda key: _sqids.encode([key]), lambda text: _sqids.decode(text)[0]),
    "hashids": Rival(Alone, "id", _hashids.encode, lambda text: int(_hashids.decode(text)[0])),
    "a SELECT before each INSERT": Rival(_shown("by_select", 12, None), asks=True),
}


def metadatas() -> list[MetaData]:
    """Return what holds the tables."""
    return [PlainBase.metadata, AlchemyBase.metadata]
