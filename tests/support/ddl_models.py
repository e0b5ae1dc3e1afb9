"""Models with a public id of each kind, and their DDL as text, for dialects whose databases are not available here."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, MetaData, String
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from sqlalchemy_public_id import NanoId, ObjectId, PublicIdMixin, Snowflake, TypedId, Ulid, Uuid7


class Base(DeclarativeBase):
    metadata = MetaData()


class ClientId(TypedId, prefix="client", format=NanoId(length=10)): ...


class Person(PublicIdMixin, Base):
    """A model with ids of the default format."""

    __tablename__ = "person"
    name: Mapped[str] = mapped_column(String(50))


class Client(PublicIdMixin[ClientId], Base):
    """A model with typed ids, which refers to a person."""

    __tablename__ = "client"
    person_id: Mapped[int] = mapped_column(ForeignKey("person.id"))


class Post(PublicIdMixin, Base):
    """A model with ids that are UUIDs."""

    __tablename__ = "post"
    __public_id__ = Uuid7(prefix="blog")


class Happening(PublicIdMixin, Base):
    """A model with ULIDs that are stored as text."""

    __tablename__ = "happening"
    __public_id__ = Ulid(storage="text")


class Reading(PublicIdMixin, Base):
    """A model with ids that are stored as 64-bit numbers."""

    __tablename__ = "reading"
    __public_id__ = Snowflake(machine_id=1)


class Document(PublicIdMixin, Base):
    """A model with ids that are stored as twelve bytes."""

    __tablename__ = "document"
    __public_id__ = ObjectId()


FOREIGN_KEYS = "PRIMARY KEY (id), FOREIGN KEY(person_id) REFERENCES person (id)"
"""The end of the DDL of :class:`Client`."""


def sql(ddl: Any, dialect: Dialect, **options: Any) -> str:
    """Return the text of *ddl*, with each run of whitespace replaced by one space."""
    return " ".join(str(ddl.compile(dialect=dialect, **options)).split())
