"""Integer keys from blocks (hi/lo): the key of a row is known before the INSERT."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Connection, Engine, UniqueConstraint
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import InstanceState, MappedColumn, Mapper, mapped_column
from sqlalchemy.orm.interfaces import EXT_CONTINUE

from sqlalchemy_public_id._private import inserted_table
from sqlalchemy_public_id.declared_options import keep_options
from sqlalchemy_public_id.dialects import Violation, traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.guard.checks import inserted_by
from sqlalchemy_public_id.key_types import BigIntegerKey
from sqlalchemy_public_id.keys.blocks.allocator import BlockAllocator
from sqlalchemy_public_id.keys.blocks.lease import NumberRefusal
from sqlalchemy_public_id.listeners import Listener, Listeners
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm import listen_unwrapped

_ALLOCATOR = "sqlalchemy_public_id.allocator"
"""Key in ``Column.info``: the allocator."""

_OWN = ("default", "insert_default", "primary_key", "autoincrement")


def block_key(allocator: BlockAllocator, **kwargs: Any) -> MappedColumn[int]:
    """Declare a 64-bit primary key whose values come from *allocator*, and not from the database.

    The column is like :func:`~sqlalchemy_public_id.bigint_key` without autoincrement: ``BIGINT``, on MySQL and MariaDB
    ``BIGINT UNSIGNED``, on SQLite ``INTEGER``. ORM and Core inserts use the allocator unless a key is set. A flush
    needs no RETURNING, so it inserts many objects with one statement on MySQL and SQLite, too.

    If the table refuses a key that the allocator has issued, because it has rows that the counter does not know of, the
    next lease skips the keys of the table.

    Programs without the allocator have to provide their own keys. Keyword arguments are passed to
    :func:`sqlalchemy.orm.mapped_column`.

    >>> from sqlalchemy import create_engine
    >>> from sqlalchemy.orm import DeclarativeBase
    >>> from sqlalchemy_public_id.keys import BlockAllocator, block_key
    >>> events = BlockAllocator(create_engine("sqlite:///shop.db"), "event")
    >>> class Base(DeclarativeBase): ...
    >>> class Event(Base):
    ...     __tablename__ = "event"
    ...     id = block_key(events)
    >>> Event.__table__.c.id.type
    BigIntegerKey()
    """
    if not isinstance(allocator, BlockAllocator):
        raise ConfigurationError(f"expected a BlockAllocator, not {safe_repr(allocator)}")
    for option in _OWN:
        if option in kwargs:
            raise ConfigurationError(f"block_key() sets {option} itself: the keys come from {allocator!r}")
    _LISTENERS.install()
    info = {**kwargs.pop("info", {}), _ALLOCATOR: allocator}
    mapped: MappedColumn[int] = mapped_column(
        kwargs.pop("name", None),
        BigIntegerKey(),
        primary_key=True,
        autoincrement=False,
        insert_default=allocator.next,
        info=info,
        **kwargs,
    )
    keep_options(mapped.column, "block_key()", _OWN)
    return mapped


def allocator_of(column: Column[Any]) -> BlockAllocator | None:
    """Return the allocator of a key from blocks; ``None`` for any other column."""
    found: BlockAllocator | None = column.info.get(_ALLOCATOR)
    return found


def _on_mapper_configured(mapper: Mapper[Any], model: type[Any]) -> None:
    # with the column default alone, a flush would send one INSERT per row
    allocators: dict[str, BlockAllocator] = {
        prop.key: column.info[_ALLOCATOR]
        for prop in mapper.column_attrs
        for column in prop.columns
        if isinstance(column, Column) and _ALLOCATOR in column.info  # a property may be an expression
    }
    if not allocators:
        return

    def before_insert(_: Mapper[Any], connection: Connection, state: InstanceState[Any]) -> Any:
        for key, allocator in allocators.items():
            if state.dict.get(key) is None:
                state.dict[key] = allocator.next()
        return EXT_CONTINUE

    listen_unwrapped(mapper, "before_insert", before_insert)


def _on_error(context: ExceptionContext) -> None:
    """Let the allocator look at a table that has refused a key. Runs when a statement of any engine has failed."""
    execution: Any = context.execution_context
    cause, engine = context.original_exception, context.engine
    if not isinstance(context.sqlalchemy_exception, IntegrityError) or execution is None or engine is None:
        return
    insert = inserted_by(execution.compiled) if execution.isinsert else None
    violation = traits_for(engine.dialect).violation(cause) if isinstance(cause, Exception) else None
    if insert is None or violation is None:
        return
    table = inserted_table(execution.compiled, insert)
    for column in table.primary_key:
        allocator = allocator_of(column)
        if allocator is not None and _may_be_of(violation, column):
            allocator._doubt(NumberRefusal(engine, column))  # pyright: ignore[reportPrivateUsage]  # private to users


def _may_be_of(violation: Violation, key: Column[Any]) -> bool:
    """Return True unless the duplicate is in another column than *key*. The name of a primary key may be unknown."""
    if violation.columns is not None:
        return violation.columns == f"{key.table.name}.{key.name}"
    others: set[Any] = {each.name for each in key.table.indexes}
    others |= {each.name for each in key.table.constraints if isinstance(each, UniqueConstraint)}
    return violation.constraint is None or violation.constraint.rpartition(".")[2] not in others


_LISTENERS = Listeners(
    Listener(Mapper, "mapper_configured", _on_mapper_configured), Listener(Engine, "handle_error", _on_error)
)
