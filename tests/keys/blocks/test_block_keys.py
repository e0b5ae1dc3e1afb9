"""Keys from blocks."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import MetaData, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session
from sqlalchemy.pool import NullPool

from sqlalchemy_public_id.keys import BlockAllocator, block_key


def test_first_key(tmp_path: Path) -> None:
    """The first key is 1, as it is for a sequence, so that ``if order.id`` is true for every stored row."""
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}", poolclass=NullPool)

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Order(Base):
        __tablename__ = "order"
        id: Mapped[int] = block_key(BlockAllocator(engine, "order", create=True))

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(order := Order())
        session.flush()

        assert order.id == 1
