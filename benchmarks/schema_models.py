"""A schema of 91 tables, as it is before and after they gain public ids."""

from __future__ import annotations

from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from sqlalchemy_public_id import PublicIdMixin, bigint_key

__all__ = ["TABLES", "Base", "Before"]

TABLES = [f"sheet_{number:02}" for number in range(91)]


class _WithKey:
    id: Mapped[int] = bigint_key()


def _models(mixin: type[Any]) -> type[DeclarativeBase]:
    base: Any = type("Base", (DeclarativeBase,), {})
    for name in TABLES:
        columns = {"name": mapped_column(String(50), nullable=False), "visits": mapped_column(nullable=False)}
        hints = {"name": Mapped[str], "visits": Mapped[int]}
        type(name.title(), (mixin, base), {"__tablename__": name, "__annotations__": hints, **columns})
    return base  # type: ignore[no-any-return]


Before = _models(_WithKey)
Base = _models(PublicIdMixin)
