# expect mypy type-var, pyright reportInvalidTypeArguments
from __future__ import annotations

from models import Base

from sqlalchemy_public_id import PublicIdMixin


class Purse(PublicIdMixin[int], Base):  # wrong
    __tablename__ = "purse"
