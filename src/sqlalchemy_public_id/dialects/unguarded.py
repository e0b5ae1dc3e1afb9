"""Oracle and SQL Server: columns that can be indexed and are compared byte by byte. Collisions are not retried.

The DDL is tested as text; there was no server. A large object, which is what SQLAlchemy has for bytes on Oracle, cannot
be a part of an index.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BINARY, BigInteger, String
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects._base import Traits


class Oracle(Traits):
    """Oracle Database. Its indexes and comparisons of ``VARCHAR2`` are binary, unless a session sets ``NLS_COMP``."""

    nulls_are_largest = True

    def integer_type(self, bits: int) -> TypeEngine[Any]:
        from sqlalchemy.dialects.oracle import RAW  # only programs with Oracle need it

        return BigInteger() if bits == 64 else RAW(bits // 8)

    def literal(self, value: Any) -> str:
        return f"HEXTORAW('{value.hex()}')" if isinstance(value, bytes) else super().literal(value)


class SQLServer(Traits):
    """SQL Server. Numbers of 128 bits are bytes, since a ``UNIQUEIDENTIFIER`` is sorted by its last ones first."""

    def text_type(self, length: int) -> TypeEngine[str]:
        """Return a binary collation: the usual ones take ``aB`` for ``Ab``."""
        return String(length, collation="Latin1_General_BIN2")

    def integer_type(self, bits: int) -> TypeEngine[Any]:
        return BigInteger() if bits == 64 else BINARY(bits // 8)

    def literal(self, value: Any) -> str:
        return f"0x{value.hex()}" if isinstance(value, bytes) else super().literal(value)
