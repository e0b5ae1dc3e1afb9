"""UUIDs as applications without this library store them, and the formats that read them."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import Engine, LargeBinary, Uuid
from sqlalchemy.dialects.mysql import BINARY
from sqlalchemy.types import TypeDecorator

from sqlalchemy_public_id import Uuid4
from sqlalchemy_public_id.formats import Format


class RawUuid(TypeDecorator[uuid.UUID]):
    """A UUID as 16 bytes, for databases without a UUID type; UUID on PostgreSQL."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Any) -> Any:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(Uuid())
        return dialect.type_descriptor(LargeBinary() if dialect.name == "sqlite" else BINARY(16))

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return value if value is None or dialect.name == "postgresql" else value.bytes

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return value if value is None or dialect.name == "postgresql" else uuid.UUID(bytes=bytes(value))


HEX, HYPHENATED = Uuid4(encoding="hex", storage="text"), Uuid4(encoding="hyphenated", storage="text")


def type_of_uuid(engine: Engine) -> str:
    """Return the column type of SQLAlchemy's ``Uuid()``, which depends on SQLAlchemy's version on MariaDB."""
    with engine.connect() as connection:  # so that the dialect knows the version of the server
        return Uuid().compile(connection.dialect)


def of_uuid(engine: Engine) -> Format:
    """Return the format of the ids in such a column."""
    if type_of_uuid(engine) == "CHAR(32)":
        return HEX
    return Uuid4(encoding="hyphenated") if engine.name == "postgresql" else HYPHENATED
