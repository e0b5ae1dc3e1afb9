"""Integer keys from blocks: the program knows the key of a row before it writes the row."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Integer, event
from sqlalchemy.orm import InstanceState, MappedColumn, Mapper, mapped_column

from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.keys.blocks.allocator import BlockAllocator
from sqlalchemy_public_id.orm import Listeners

__all__ = ["block_key"]

_ALLOCATOR = "sqlalchemy_public_id.allocator"
"""In the ``info`` of a column: what its keys come from."""


def block_key(allocator: BlockAllocator, **kwargs: Any) -> MappedColumn[int]:
    """A primary key of 64 bits that the program takes from *allocator*, so that the database need not tell it.

    The type is that of :func:`~sqlalchemy_public_id.bigint_key`, without its identity: ``BIGINT``, on MySQL and MariaDB
    ``BIGINT UNSIGNED``, on SQLite ``INTEGER``. A key that is given stays. Each way to write a row takes its keys from
    the allocator, and a flush needs no RETURNING: on MySQL and SQLite too, many objects are one statement then.

    Programs that know nothing of the allocator cannot write to the table without a key of their own. Keyword arguments
    go to :func:`sqlalchemy.orm.mapped_column`.

    >>> from sqlalchemy import create_engine
    >>> from sqlalchemy.orm import DeclarativeBase
    >>> from sqlalchemy_public_id.keys import BlockAllocator, block_key
    >>> events = BlockAllocator(create_engine("sqlite:///shop.db"), "event")
    >>> class Base(DeclarativeBase): ...
    >>> class Event(Base):
    ...     __tablename__ = "event"
    ...     id = block_key(events)
    >>> Event.__table__.c.id.type
    BigInteger()
    """
    if not isinstance(allocator, BlockAllocator):
        raise ConfigurationError(f"expected a BlockAllocator, not {shown(allocator)}")
    for option in ("default", "insert_default", "primary_key", "autoincrement"):
        if option in kwargs:
            raise ConfigurationError(f"block_key() sets {option} itself: the keys come from {allocator!r}")
    _LISTENERS.install()
    from sqlalchemy.dialects import mysql  # a third of the time to import this library

    type_ = BigInteger().with_variant(Integer(), "sqlite").with_variant(mysql.BIGINT(unsigned=True), "mysql", "mariadb")
    info = {**kwargs.pop("info", {}), _ALLOCATOR: allocator}
    return mapped_column(
        kwargs.pop("name", None),
        type_,
        primary_key=True,
        autoincrement=False,
        insert_default=allocator.next,
        info=info,
        **kwargs,
    )


def _on_mapper_configured(mapper: Mapper[Any], model: type[Any]) -> None:
    """Have the key set before the INSERT: to the column default, a flush would turn row by row."""
    allocators: dict[str, BlockAllocator] = {
        prop.key: column.info[_ALLOCATOR]
        for prop in mapper.column_attrs
        for column in prop.columns
        if isinstance(column, Column) and _ALLOCATOR in column.info  # a property may be an expression
    }
    if not allocators:
        return

    def before_insert(_: Mapper[Any], connection: Connection, state: InstanceState[Any]) -> None:
        for key, allocator in allocators.items():
            if state.dict.get(key) is None:
                state.dict[key] = allocator.next()

    event.listen(mapper, "before_insert", before_insert, raw=True)


_LISTENERS = Listeners((Mapper, "mapper_configured", _on_mapper_configured))
