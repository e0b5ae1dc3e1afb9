"""The private parts of Alembic that have no public twin. Tested on 1.13.3, 1.17.2, 1.18.0, 1.19.2, 1.20.0, 1.20.1."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext
    from alembic.runtime.migration import MigrationContext

__all__ = ["is_in_batch", "is_inside_transaction"]


def is_in_batch(context: AutogenContext) -> bool:
    """Whether what is rendered stands inside ``with op.batch_alter_table(...) as batch_op``."""
    return bool(context._has_batch)


def is_inside_transaction(context: MigrationContext) -> bool:
    """Whether the connection was inside a transaction when Alembic got it, so that no step can commit by itself."""
    return bool(context._in_external_transaction)
