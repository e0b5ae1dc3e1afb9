"""Joins autogenerate: as a plugin that is on by default, and in the way of Alembic before 1.18."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from alembic.operations import Operations

from sqlalchemy_public_id.alembic.clusters.compare import keeps_cluster_counter, with_clusters
from sqlalchemy_public_id.alembic.clusters.ops import ClusterOp
from sqlalchemy_public_id.alembic.compare import fold, keeps_default, knows_no_identity
from sqlalchemy_public_id.alembic.ops import PublicIdOp
from sqlalchemy_public_id.alembic.render import render_plain_types

__all__ = ["NAME", "register"]

NAME = "alembic.autogenerate.sqlalchemy_public_id"
"""Matches ``alembic.autogenerate.*``, the plugins that Alembic uses where nothing is said. To go without this one:
``context.configure(autogenerate_plugins=["alembic.autogenerate.*", "~alembic.autogenerate.sqlalchemy_public_id"])``."""

_registered: list[str] = []


def register() -> None:
    """Let autogenerate know of public ids. Calling it again does nothing.

    >>> register()
    """
    if _registered:
        return
    _registered.append(NAME)
    Operations.implementation_for(PublicIdOp)(_carry_out)
    Operations.implementation_for(ClusterOp)(_carry_out)
    try:
        from alembic.runtime.plugins import Plugin
    except ImportError:
        _register_with_old_alembic()
        return
    from alembic.util import DispatchPriority, PriorityDispatchResult

    def answered(function: Callable[..., bool]) -> Callable[..., PriorityDispatchResult]:
        """*function* with its answer, whether there is nothing more to compare, in the words of Alembic."""

        def compare(*arguments: Any) -> PriorityDispatchResult:
            return PriorityDispatchResult.STOP if function(*arguments) else PriorityDispatchResult.CONTINUE

        return compare

    plugin = Plugin(NAME)
    first, last = DispatchPriority.FIRST, DispatchPriority.LAST
    plugin.add_autogenerate_comparator(answered(render_plain_types), "schema", "public_id", priority=first)
    plugin.add_autogenerate_comparator(answered(with_clusters), "schema", "cluster_key", priority=last)
    plugin.add_autogenerate_comparator(answered(keeps_default), "column", "server_default", priority=first)
    plugin.add_autogenerate_comparator(answered(keeps_cluster_counter), "column", "server_default", priority=first)
    plugin.add_autogenerate_comparator(answered(knows_no_identity), "column", "public_id", priority=last)
    plugin.add_autogenerate_comparator(answered(fold), "table", "public_id", priority=last)


def _carry_out(operations: Operations, op: PublicIdOp | ClusterOp) -> None:
    """Load what the operations do when one is invoked: Alembic is only half imported when it loads plugins."""
    import_module("sqlalchemy_public_id.alembic.toimpl")
    import_module("sqlalchemy_public_id.alembic.clusters.toimpl")
    operations.invoke(op)  # by its own class now


def _register_with_old_alembic() -> None:
    from alembic.autogenerate.compare import comparators

    comparators.dispatch_for("schema")(render_plain_types)
    comparators.dispatch_for("schema")(with_clusters)
    comparators.dispatch_for("column")(keeps_default)
    comparators.dispatch_for("column")(keeps_cluster_counter)
    comparators.dispatch_for("column")(knows_no_identity)
    comparators.dispatch_for("table")(fold)
