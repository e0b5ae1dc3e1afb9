"""Alembic's directives for public ids, as migrations contain them. The module ``toimpl`` implements them.

Each directive is a method of :class:`Operations <alembic.operations.Operations>`, and of
:class:`BatchOperations <alembic.operations.BatchOperations>`, where you leave out the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from alembic.operations import MigrateOperation
from alembic.operations.ops import ModifyTableOps
from typing_extensions import Unpack

from sqlalchemy_public_id.alembic.directives import Directive, as_function, registered
from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrations import Consent, Options, Pace, PublicIdColumn, Timeouts
from sqlalchemy_public_id.migrations.consent import Mode, take_fields


class PublicIdDirective(Protocol):
    """A directive for public ids, as a function."""

    def __call__(self, op: Any, /, table: str, column: str = "public_id", **options: Unpack[Options]) -> None: ...


class PublicIdOp(Directive):
    """Base of the directives for public ids."""

    undone_by: MigrateOperation | None = None
    """Its downgrade, if that is not what usually undoes it: a column that existed before stays as it was."""
    notes: Sequence[str] = ()
    """Sentences that the revision contains as comments before it."""
    misfit: Obstacle | None = None
    """Why the table cannot have the column, for which autogenerate refuses it."""

    def __init__(self, table: str, column: str = "public_id", **options: Unpack[Options]) -> None:
        unknown = options.keys() - Options.__annotations__.keys()
        if unknown:
            raise TypeError(
                f"op.{self.name}() takes no {', '.join(sorted(unknown))}; it takes {', '.join(Options.__annotations__)}"
            )
        values: dict[str, Any] = dict(options)
        self.target: PublicIdColumn = PublicIdColumn.of(table, column, **take_fields(PublicIdColumn, values))
        self.consent: Consent = Consent(**take_fields(Consent, values))
        self.timeouts: Timeouts = Timeouts(**take_fields(Timeouts, values))
        self.pace: Pace = Pace(**take_fields(Pace, values))
        mode = Mode(**take_fields(Mode, values))
        self.online: bool = mode.online
        self.dry_run: bool = mode.dry_run
        self.options = options
        self.table_name: str = self.target.table
        self.column_name: str = self.target.column
        self.schema: str | None = self.target.schema

    def arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"table": self.table_name}
        if self.column_name != "public_id":
            arguments["column"] = self.column_name
        own, default = self._values(), type(self)(self.table_name, self.column_name)._values()
        for name in self.options:
            if name != "wait_while" and own[name] != default[name]:  # a function, which cannot be rendered
                arguments[name] = own[name]
        return arguments

    def _values(self) -> dict[str, Any]:
        """Return the value of each option, including those that were left out."""
        parts = (self, self.target, self.consent, self.timeouts, self.pace)
        return {name: value for part in parts for name, value in vars(part).items()}

    def reverse(self) -> MigrateOperation:
        if self.undone_by is not None:
            return self.undone_by
        undone: MigrateOperation = self.reversed_by(self.table_name, self.column_name, **self.options)
        return undone

    def to_diff_tuple(self) -> tuple[object, ...]:
        return self.name, self.schema, self.table_name, self.column_name

    @classmethod
    def invoke(cls, operations: Any, table: str, column: str = "public_id", **options: Unpack[Options]) -> None:
        operations.invoke(cls(table, column, **options))

    @classmethod
    def batch_invoke(cls, operations: Any, column: str = "public_id", **options: Unpack[Options]) -> None:
        options = {**options, "schema": operations.impl.schema}
        operations.invoke(cls(operations.impl.table_name, column, **options))


@registered
class DropPublicIdOp(PublicIdOp):
    """Drop the column with its index and its default. The ids are lost, so links that contain them stop working."""

    name = "drop_public_id"


@registered
class AddPublicIdOp(PublicIdOp):
    """Add a column of public ids to a table while it stays in use: expand, backfill and contract in one operation.

    After a failure, run it again: it skips completed steps and continues.
    """

    name = "add_public_id"


@registered
class ExpandPublicIdOp(PublicIdOp):
    """First phase: add the column, nullable, with a server default.

    Old versions of your application can continue to write, because the database generates ids for their rows. With
    ``--sql``, Alembic writes a script, with the command for the backfill in a comment.
    """

    name = "expand_public_id"
    reversed_by = DropPublicIdOp


@registered
class BackfillPublicIdOp(PublicIdOp):
    """Second phase: generate an id for each row without one, in short transactions.

    Without Alembic, use :func:`sqlalchemy_public_id.backfill.run`.
    """

    name = "backfill_public_id"

    def reverse(self) -> MigrateOperation:
        # nothing to undo: the ids do no harm, and are dropped with the column
        return ModifyTableOps(self.table_name, [], schema=self.schema)


@registered
class LoosenPublicIdOp(PublicIdOp):
    """Undo the last phase: drop the unique index and allow NULL. The ids remain in the table."""

    name = "loosen_public_id"


@registered
class ContractPublicIdOp(PublicIdOp):
    """Last phase: build the unique index and make the column NOT NULL, while readers and writers continue.

    :raises sqlalchemy_public_id.errors.BackfillIncomplete: if rows have no id yet. The error has their number and the
        command to run.
    """

    name = "contract_public_id"


for _done, _undone in ((AddPublicIdOp, DropPublicIdOp), (ContractPublicIdOp, LoosenPublicIdOp)):
    _done.reversed_by, _undone.reversed_by = _undone, _done

add_public_id: PublicIdDirective = as_function(AddPublicIdOp)
expand_public_id: PublicIdDirective = as_function(ExpandPublicIdOp)
backfill_public_id: PublicIdDirective = as_function(BackfillPublicIdOp)
contract_public_id: PublicIdDirective = as_function(ContractPublicIdOp)
loosen_public_id: PublicIdDirective = as_function(LoosenPublicIdOp)
drop_public_id: PublicIdDirective = as_function(DropPublicIdOp)
