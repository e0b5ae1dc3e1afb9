# expect mypy arg-type, pyright reportAssignmentType
from __future__ import annotations

from models import Base, CardId, OrderId
from sqlalchemy.orm import Mapped

from sqlalchemy_public_id import bigint_key, public_id_column


class Purse(Base):
    __tablename__ = "purse"
    id: Mapped[int] = bigint_key()
    number: Mapped[CardId] = public_id_column(OrderId)  # wrong
