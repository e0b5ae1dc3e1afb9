"""The operations, as Alembic knows them: what a migration says. What they do is in ``toimpl``.

Each stands on :class:`Operations <alembic.operations.Operations>` and, without the table, on
:class:`BatchOperations <alembic.operations.BatchOperations>`, and is here as a plain function for type checkers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from alembic.operations import BatchOperations, MigrateOperation, Operations
from alembic.operations.ops import ModifyTableOps
from sqlalchemy import Connection
from typing_extensions import TypedDict, TypeVar, Unpack

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.online import Patience, PublicIdColumn, ServerDefault, Unique
from sqlalchemy_public_id.typed import TypedId

__all__ = [
    "AddPublicIdOp",
    "BackfillPublicIdOp",
    "ContractPublicIdOp",
    "DropPublicIdOp",
    "ExpandPublicIdOp",
    "LoosenPublicIdOp",
    "Options",
    "PublicIdOp",
    "add_public_id",
    "backfill_public_id",
    "contract_public_id",
    "drop_public_id",
    "expand_public_id",
    "loosen_public_id",
]


class Options(TypedDict, total=False):
    """The keyword arguments that the operations take. Times are seconds."""

    format: Format | type[TypedId] | None
    """What the ids look like; ``NanoId()`` where nothing is said."""
    schema: str | None
    unique_name: str | None
    """The name of the unique index or constraint; ``uq_<table>_<column>`` where nothing is said."""
    unique: Unique
    """``"index"``, as ``PublicIdMixin`` declares it, or ``"constraint"``, as ``unique=True`` does."""
    server_default: ServerDefault
    """Whether the database makes ids for writers that give none: it is to ``"keep"`` doing so, which is the default, to
    ``"drop"`` it when the column is complete, or never to begin: ``"none"``, if all writers give one already."""
    comment: str | None
    """The comment of the column, on databases that keep one."""
    online: bool
    """``False`` does everything inside the transaction that is open, with a lock on the table until it ends."""
    lock_timeout: float
    """How long a statement waits for a strong lock on the table: 1. It is tried again, and others go on in between."""
    attempts: int
    """How often it is tried: 30 times."""
    index_timeout: float
    """How long the build of the unique index waits for open transactions to end: 600."""
    batch_seconds: float
    """How long a batch of the backfill is to take: 0.5."""
    pause: float
    """How long to rest after a batch, as a share of its time: 0.1."""
    wait_while: Callable[[Connection], bool] | None
    """Asked before each batch; while it says true, the backfill waits. For the lag of replicas, or the load."""


_OF_TARGET = ("format", "schema", "unique_name", "unique", "server_default", "comment")
_OF_PATIENCE = ("lock_timeout", "attempts", "index_timeout")


class PublicIdOp(MigrateOperation):
    """What the operations have in common."""

    name: ClassVar[str]
    """The name of the method of ``op``."""
    reversed_by: ClassVar[type[PublicIdOp] | None] = None

    def __init__(self, table: str, column: str = "public_id", **options: Unpack[Options]) -> None:
        unknown = options.keys() - Options.__annotations__.keys()
        if unknown:
            raise TypeError(
                f"op.{self.name}() takes no {', '.join(sorted(unknown))}; it takes {', '.join(Options.__annotations__)}"
            )
        given: dict[str, Any] = dict(options)
        self.target = PublicIdColumn.of(table, column, **{name: given[name] for name in _OF_TARGET if name in given})
        self.patience = Patience(**{name: given[name] for name in _OF_PATIENCE if name in given})
        self.online = bool(given.get("online", True))
        self.batch_seconds: float = given.get("batch_seconds", 0.5)
        self.pause: float = given.get("pause", 0.1)
        self.wait_while: Callable[[Connection], bool] | None = given.get("wait_while")
        if self.batch_seconds <= 0 or self.pause < 0:
            raise ConfigurationError(
                f"batch_seconds={self.batch_seconds!r}, pause={self.pause!r} cannot work: expected times above 0"
            )
        self.options = options
        self.table_name, self.column_name, self.schema = self.target.table, self.target.column, self.target.schema

    def reverse(self) -> MigrateOperation:
        assert self.reversed_by is not None
        return self.reversed_by(self.table_name, self.column_name, **self.options)

    def to_diff_tuple(self) -> tuple[str, str | None, str, str]:
        return self.name, self.schema, self.table_name, self.column_name

    @classmethod
    def invoke(cls, operations: Any, table: str, column: str = "public_id", **options: Unpack[Options]) -> None:
        """Do it."""
        operations.invoke(cls(table, column, **options))

    @classmethod
    def batch_invoke(cls, operations: Any, column: str = "public_id", **options: Unpack[Options]) -> None:
        """Do it to the table of the batch."""
        options = {**options, "schema": operations.impl.schema}
        operations.invoke(cls(operations.impl.table_name, column, **options))


OpT = TypeVar("OpT", bound=PublicIdOp)


def _registered(cls: type[OpT]) -> type[OpT]:
    """Let ``op`` and ``batch_op`` have a method that invokes the operation."""
    for operations, source in ((Operations, "invoke"), (BatchOperations, "batch_invoke")):
        getattr(cls, source).__func__.__doc__ = cls.__doc__  # is copied
        operations.register_operation(cls.name, source)(cls)
    return cls


@_registered
class DropPublicIdOp(PublicIdOp):
    """Remove the column, and all that came with it. The ids are gone for ever."""

    name = "drop_public_id"


@_registered
class AddPublicIdOp(PublicIdOp):
    """Everything at once: expand, backfill, contract."""

    name = "add_public_id"
    reversed_by = DropPublicIdOp


DropPublicIdOp.reversed_by = AddPublicIdOp


@_registered
class ExpandPublicIdOp(PublicIdOp):
    """First phase: the column is there, NULL is allowed, and the database makes ids for writers that give none."""

    name = "expand_public_id"
    reversed_by = DropPublicIdOp


@_registered
class BackfillPublicIdOp(PublicIdOp):
    """Second phase: the rows that were there before have ids."""

    name = "backfill_public_id"

    def reverse(self) -> MigrateOperation:
        """Nothing: ids that are there do no harm to a column that may go with them."""
        return ModifyTableOps(self.table_name, [], schema=self.schema)


@_registered
class LoosenPublicIdOp(PublicIdOp):
    """Undo the last phase: NULL is allowed again, and nothing is unique; the ids stay."""

    name = "loosen_public_id"


@_registered
class ContractPublicIdOp(PublicIdOp):
    """Last phase: unique, and NOT NULL."""

    name = "contract_public_id"
    reversed_by = LoosenPublicIdOp


LoosenPublicIdOp.reversed_by = ContractPublicIdOp


def add_public_id(op: Any, table: str, column: str = "public_id", **options: Unpack[Options]) -> None:
    """Add a column of public ids to a table that is in use: expand, backfill and contract, one after the other.

    *op* is the module ``alembic.op``, or an :class:`~alembic.operations.Operations`. Any step that is done already is
    left out, so that it can be run again after a failure.
    """
    op.add_public_id(table, column, **options)


def expand_public_id(op: Any, table: str, column: str = "public_id", **options: Unpack[Options]) -> None:
    """Add the column, with a default in the database, and let it be NULL in the rows that are there.

    Programs that know nothing of the column go on writing: their rows get ids of the same kind.
    """
    op.expand_public_id(table, column, **options)


def backfill_public_id(op: Any, table: str, column: str = "public_id", **options: Unpack[Options]) -> None:
    """Give an id to each row that has none, in short transactions (:func:`sqlalchemy_public_id.backfill.run`)."""
    op.backfill_public_id(table, column, **options)


def contract_public_id(op: Any, table: str, column: str = "public_id", **options: Unpack[Options]) -> None:
    """Build the unique index and make the column NOT NULL, beside readers and writers.

    :raises sqlalchemy_public_id.ConfigurationError: where rows have no id yet; it says how many, and what to run.
    """
    op.contract_public_id(table, column, **options)


def loosen_public_id(op: Any, table: str, column: str = "public_id", **options: Unpack[Options]) -> None:
    """Undo :func:`contract_public_id`: drop the unique index, and allow NULL. The ids stay."""
    op.loosen_public_id(table, column, **options)


def drop_public_id(op: Any, table: str, column: str = "public_id", **options: Unpack[Options]) -> None:
    """Drop the column, with its index and its default. The ids are gone: links to the rows cannot be made good."""
    op.drop_public_id(table, column, **options)
