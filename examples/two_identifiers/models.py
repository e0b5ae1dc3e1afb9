"""A small record shop."""

from __future__ import annotations

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from sqlalchemy_public_id import NanoId, PublicIdMixin, TypedId


class Base(DeclarativeBase):
    """The base class of the models in this example."""


class ArtistId(TypedId, prefix="art"):
    """``art_…``"""


class Artist(PublicIdMixin[ArtistId], Base):
    __tablename__ = "demo_artist"
    name: Mapped[str] = mapped_column(String(100))
    albums: Mapped[list[Album]] = relationship(back_populates="artist")


class Album(PublicIdMixin, Base):
    __tablename__ = "demo_album"
    __public_id__ = NanoId(prefix="alb", check_digit=True)
    title: Mapped[str] = mapped_column(String(200))
    artist_id: Mapped[int] = mapped_column(ForeignKey("demo_artist.id"))
    artist: Mapped[Artist] = relationship(back_populates="albums")


class Locker(PublicIdMixin, Base):
    """A locker with a one-character id: after 36 rows, no id is left."""

    __tablename__ = "demo_locker"
    __public_id__ = NanoId(length=1)
    holder: Mapped[str | None] = mapped_column(String(100))
