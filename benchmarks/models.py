"""One table, mapped twice: with the library, and without."""

from __future__ import annotations

from sqlalchemy import BigInteger, Identity, Integer, String
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from sqlalchemy_public_id import PublicIdMixin

__all__ = ["Base", "PlainUser", "User"]


class Base(DeclarativeBase):
    """The tables that are created."""


class PlainBase(DeclarativeBase):
    """Tables that exist already."""


class User(PublicIdMixin, Base):
    """A model with a public id."""

    __tablename__ = "user"
    name: Mapped[str] = mapped_column(String(255))
    email: Mapped[str] = mapped_column(String(255))


class PlainUser(PlainBase):
    """The same model without the library, on the same table."""

    __tablename__ = "user"
    id: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer(), "sqlite").with_variant(mysql.BIGINT(unsigned=True), "mysql", "mariadb"),
        Identity(),
        primary_key=True,
    )
    public_id: Mapped[str] = mapped_column(String(12))
    name: Mapped[str] = mapped_column(String(255))
    email: Mapped[str] = mapped_column(String(255))
