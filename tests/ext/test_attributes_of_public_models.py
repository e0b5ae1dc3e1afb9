"""``PublicModel``: which attributes of a mapped class it shows."""

from __future__ import annotations

import pytest
from sqlalchemy import MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, configure_mappers, mapped_column

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin
from sqlalchemy_public_id.ext.pydantic import PublicModel


class Base(DeclarativeBase):
    metadata = MetaData()


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    name: Mapped[str] = mapped_column(String(20))

    @property
    def number(self) -> int:
        return self.id


configure_mappers()


def test_key() -> None:
    """A field that is the key is refused when the model is declared."""
    with pytest.raises(ConfigurationError):

        class WithKey(PublicModel, model=User):
            id: int


def test_property_that_returns_the_key() -> None:
    """An ``int`` field that is no mapped column is refused unless the model says that it is no key."""
    with pytest.raises(ConfigurationError):

        class WithNumber(PublicModel, model=User):
            number: int
