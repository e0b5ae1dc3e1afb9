"""``block_key()`` beside whatever else a model has."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, create_engine, func
from sqlalchemy.orm import DeclarativeBase, Mapped, column_property, configure_mappers, mapped_column

from sqlalchemy_public_id import bigint_key
from sqlalchemy_public_id.keys import BlockAllocator, block_key


def test_properties_that_are_expressions(tmp_path: Path) -> None:
    """Models with a ``column_property()`` are configured as ever, with and without a key from blocks."""
    engine: Engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")

    class Base(DeclarativeBase): ...

    class Order(Base):
        __tablename__ = "order"
        id: Mapped[int] = block_key(BlockAllocator(engine, "order"))
        name: Mapped[str] = mapped_column()
        upper: Mapped[str] = column_property(func.upper(name.column))  # type: ignore[attr-defined]

    class Other(Base):
        __tablename__ = "other"
        id: Mapped[int] = bigint_key()
        size: Mapped[int] = mapped_column()
        twice: Mapped[int] = column_property(size.column * 2)  # type: ignore[attr-defined]

    configure_mappers()

    assert {"id", "name", "upper"} == set(Order.__mapper__.attrs.keys())
    assert {"id", "size", "twice"} == set(Other.__mapper__.attrs.keys())
    engine.dispose()
