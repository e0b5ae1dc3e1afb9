"""What copies and backups of a database do to ids that are counted, or that contain a machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session
from sqlalchemy.pool import NullPool

from sqlalchemy_public_id import PublicIdMixin, Snowflake
from sqlalchemy_public_id.formats import BASE36
from sqlalchemy_public_id.keys import BlockAllocator, CoprimeKey, CoprimeStep, block_key
from sqlalchemy_public_id.keys.blocks.key import allocator_of


def program(engine: Engine, machine: int, prefix: str = "ord", start: int = 1) -> tuple[Any, Any]:
    """Return the models of orders and pings, as a program that has just started declares them."""

    class Base(DeclarativeBase): ...

    orders = BlockAllocator(engine, "order", block=10, create=True)
    pings = BlockAllocator(engine, "ping", block=10, create=True, start=start)
    orders.create_table()

    class Order(PublicIdMixin, Base):
        __tablename__ = "order"
        __public_id__ = CoprimeKey(orders, step=CoprimeStep(BASE36, 6), prefix=prefix)

    class Ping(PublicIdMixin, Base):
        __tablename__ = "ping"
        __public_id__ = Snowflake(lambda: machine)
        id: Mapped[int] = block_key(pings)

    Base.metadata.create_all(engine)
    return Order, Ping


def write(engine: Engine, models: tuple[Any, Any], count: int) -> tuple[set[str], set[str], set[int]]:
    """Write rows, a transaction each; return the ids of the new orders and pings, and the keys of the pings."""
    made: list[Any] = []
    for _ in range(count):
        for allocator in (models[0].__public_id__.allocator, allocator_of(models[1].__table__.c.id)):
            allocator.reserve(10)  # on SQLite, before the first write
        with Session(engine, expire_on_commit=False) as session:
            rows = [model() for model in reversed(models)]
            session.add_all(rows)
            session.commit()
            made += rows
    pings, orders = made[::2], made[1::2]
    return {each.public_id for each in orders}, {each.public_id for each in pings}, {each.id for each in pings}


def test_a_copy(tmp_path: Path) -> None:
    """A copy repeats the counted ids and the keys of blocks; another prefix, start or machine does not."""
    first = create_engine(f"sqlite:///{tmp_path}/first.db", poolclass=NullPool)
    write(first, program(first, 1), 3)
    shutil.copy(tmp_path / "first.db", tmp_path / "second.db")
    second = create_engine(f"sqlite:///{tmp_path}/second.db", poolclass=NullPool)

    one, other = write(first, program(first, 1), 5), write(second, program(second, 2), 5)
    another = write(second, program(second, 2, prefix="us", start=10**12), 5)

    assert (one[0], one[2]) == (other[0], other[2])
    assert not one[1] & other[1]
    assert not one[0] & another[0]
    assert not one[2] & another[2]


def test_a_backup(tmp_path: Path) -> None:
    """After a restore, lost ids are issued again; a counter that is behind its rows skips the stored ids."""
    engine = create_engine(f"sqlite:///{tmp_path}/first.db", poolclass=NullPool)
    write(engine, program(engine, 1), 3)
    shutil.copy(tmp_path / "first.db", tmp_path / "backup.db")
    lost = write(engine, program(engine, 1), 5)
    shutil.copy(tmp_path / "backup.db", tmp_path / "first.db")

    again = write(engine, program(engine, 1), 5)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE public_id_block SET next = 1 WHERE name = 'order'")
    Order, Ping = program(engine, 1)
    later = write(engine, (Order, Ping), 3)

    assert (lost[0], lost[2]) == (again[0], again[2])
    assert not lost[1] & again[1]
    with Session(engine) as session:
        assert len(session.scalars(select(Order.public_id)).all()) == 11
    assert not later[0] & again[0]
