"""CockroachDB: PostgreSQL's protocol, and another database behind it. Its DDL is tested, a server was not at hand."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Uuid
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects._base import Fate, Traits
from sqlalchemy_public_id.dialects.postgresql import fate_of

__all__ = ["CockroachDB"]


class CockroachDB(Traits):
    """CockroachDB, through any driver of ``sqlalchemy-cockroachdb``.

    The careful answers, because none was tried: a collision is an ``IntegrityError``. Ids stand in a plain ``VARCHAR``,
    which is compared byte by byte there. Whole transactions are run again as its documentation asks for (SQLSTATE
    40001, and 40003 where a commit is ambiguous).
    """

    def native(self, bits: int) -> TypeEngine[Any]:
        return Uuid() if bits == 128 else super().native(bits)

    def to_native(self, number: int, bits: int) -> Any:
        return UUID(int=number) if bits == 128 else super().to_native(number, bits)

    def from_native(self, value: Any) -> int:
        return value.int if isinstance(value, UUID) else super().from_native(value)

    def literal(self, value: Any) -> str:
        return f"'{value}'::uuid" if isinstance(value, UUID) else super().literal(value)

    def fate(self, error: Exception) -> Fate:
        return fate_of(error)

    def in_autocommit(self, dbapi_connection: Any) -> bool:
        return bool(getattr(dbapi_connection, "autocommit", False))
