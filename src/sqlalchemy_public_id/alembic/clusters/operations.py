"""Alembic operations for cluster keys. Each can be repeated, and none moves a counter back.

The number of the cluster is an argument, or is set in ``env.py`` so that one migration serves all clusters::

    context.configure(..., public_id_cluster=int(os.environ["CLUSTER"]))    # or a function that returns it

The operations run inside the transaction of the revision. If they do not get a lock within five seconds, they raise
:class:`~sqlalchemy_public_id.errors.LockNotAvailable`: run the migration again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from alembic.operations import MigrateOperation, Operations
from sqlalchemy import Connection, inspect
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.alembic.directives import Directive, as_function, registered
from sqlalchemy_public_id.dialects import KeyCounter, key_counter_of
from sqlalchemy_public_id.dialects.quoting import in_script, quoted_table
from sqlalchemy_public_id.errors import ConfigurationError, LockNotAvailable
from sqlalchemy_public_id.keys.cluster.audit import problems_of
from sqlalchemy_public_id.keys.cluster.column import ClusterSpec, resolved
from sqlalchemy_public_id.keys.cluster.ddl import CONFIG, ClusterColumn, Config, as_ddl
from sqlalchemy_public_id.keys.ranges import LAST_KEY, Range
from sqlalchemy_public_id.migrations import Timeouts
from sqlalchemy_public_id.migrations.databases import database_of
from sqlalchemy_public_id.migrations.steps import can_be_retried
from sqlalchemy_public_id.migrations.table import columns_of, largest_number

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext  # half imported while Alembic loads plugins

_TIMEOUTS = Timeouts(lock_timeout=5.0, attempts=1)
"""While an operation waits for its lock, all other statements on the table queue behind it. There is one attempt,
because the transaction of the revision may hold other locks meanwhile."""


@dataclass(eq=False)  # Alembic compares directives by identity
class ClusterOp(Directive):
    """Base of the directives for cluster keys."""

    def arguments(self) -> dict[str, Any]:
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}

    def reverse(self) -> MigrateOperation:
        shared = {field.name for field in fields(self)} & {field.name for field in fields(self.reversed_by)}
        undone: MigrateOperation = self.reversed_by(**{name: getattr(self, name) for name in shared})
        return undone

    def run(self, operations: Operations) -> None:
        """Check the table, unless this is a script, and send the DDL."""
        context: MigrationContext = operations.get_context()
        connection = context.connection
        if context.as_sql or connection is None:
            for written in in_script(self._statements(context, None), context.dialect):
                context.impl.static_output(written)
            return
        with database_of(connection.dialect).session(connection, _TIMEOUTS).settings():
            try:
                for statement in self._statements(context, connection):
                    operations.execute(as_ddl(statement))
            except DBAPIError as error:
                if not can_be_retried(error, connection.dialect):
                    raise
                step, table = f"run op.{self.name}()", getattr(self, "table", CONFIG)
                raise LockNotAvailable(step=step, table=table, attempts=1, timeout=_TIMEOUTS.lock_timeout) from error

    def _statements(self, context: MigrationContext, connection: Connection | None) -> list[str]:
        """Return the DDL. With a *connection*, check the table first."""
        raise NotImplementedError  # MigrateOperation is not an abstract class


@Operations.implementation_for(ClusterOp)
def _run(operations: Operations, op: ClusterOp) -> None:
    op.run(operations)


@registered
@dataclass(eq=False)
class CreateClusterConfigOp(ClusterOp):
    """Create the table ``cluster_config``, and on PostgreSQL the function ``this_cluster()``.

    Run it again to change the number, and to replace a function that an earlier version has written.

    :param cluster: the number of the cluster; by default, the one in ``env.py``, or else in the environment variable
        ``PUBLIC_ID_CLUSTER``. Without any, the table stays empty or as it is; while it is empty, every INSERT that
        needs a key fails.
    """

    name = "create_cluster_config"
    cluster: int | None = None
    schema: str | None = field(default=None, kw_only=True)

    def _statements(self, context: MigrationContext, connection: Connection | None) -> list[str]:
        config, cluster = Config(context.dialect, self.schema), self.number(context)
        return [*config.create(), *([] if cluster is None else config.set(resolved(cluster)))]

    def number(self, context: MigrationContext) -> Any:
        """Return the number that is set, or a function that returns it; ``None`` if there is none.

        :raises ConfigurationError: if the environment variable is invalid.
        """
        cluster = _cluster(context, self.cluster)
        known = ClusterSpec().known_keys() if cluster is None else None
        return cluster if known is None else known.cluster


class RenewClusterConfigOp(CreateClusterConfigOp):
    """The operation for a config that exists. A downgrade keeps the table, and the number of its database."""

    def reverse(self) -> MigrateOperation:
        return RenewClusterConfigOp(schema=self.schema)


@registered
@dataclass(eq=False)
class DropClusterConfigOp(ClusterOp):
    """Drop the table ``cluster_config``, and the function. No table may use them any more."""

    name = "drop_cluster_config"
    schema: str | None = field(default=None, kw_only=True)

    def _statements(self, context: MigrationContext, connection: Connection | None) -> list[str]:
        return Config(context.dialect, self.schema).drop()


@dataclass(eq=False)
class _KeyOp(ClusterOp):
    table: str
    column: str = "id"
    schema: str | None = field(default=None, kw_only=True)

    def _counter(self, context: MigrationContext) -> ClusterColumn:
        sequence: str | None = getattr(self, "sequence", None)
        return ClusterColumn(context.dialect, self.table, self.column, schema=self.schema, sequence=sequence)


@registered
@dataclass(eq=False)
class CreateClusterSequenceOp(_KeyOp):
    """Give the key of *table* a counter, and a default or trigger that looks up the cluster (``strategy="function"``).

    Existing rows keep their keys. The counter begins after the largest sequence among them; the table is read once.

    :param sequence: the name of the counter, which is the first argument of ``cluster_key()``.
    :raises sqlalchemy_public_id.ConfigurationError: on SQLite, which has no functions, for a key with fewer than 64
        bits, and on MySQL and MariaDB for a key without ``AUTO_INCREMENT``. A script (``--sql``) checks no columns.
    """

    name = "create_cluster_sequence"
    sequence: str | None = field(default=None, kw_only=True)

    def _statements(self, context: MigrationContext, connection: Connection | None) -> list[str]:
        statements = self._counter(context).create_sequence()
        if connection is not None:
            _check_column(connection, self, LAST_KEY)
        return statements


@registered
class DropClusterSequenceOp(CreateClusterSequenceOp):
    """Undo :func:`create_cluster_sequence`. The key is ``IDENTITY`` or ``AUTO_INCREMENT`` again.

    The counter continues after the largest key of the table.
    """

    name = "drop_cluster_sequence"

    def _statements(self, context: MigrationContext, connection: Connection | None) -> list[str]:
        return self._counter(context).drop_sequence()


@registered
@dataclass(eq=False)
class SetClusterOp(_KeyOp):
    """Limit the ``IDENTITY`` or ``AUTO_INCREMENT`` of a key to the range of a cluster (``strategy="identity"``).

    On PostgreSQL, a key without a counter becomes ``IDENTITY``.

    :param cluster: the number of the cluster; by default, the one in ``env.py``, or else in the environment variable
        ``PUBLIC_ID_CLUSTER``.
    :param key_range: a range of keys instead of a cluster.
    :param enforce_range: refuse keys outside of the range with a trigger, on MySQL, MariaDB and SQLite.
    :param keep_outside: accept existing rows without a cluster, or outside of *key_range*. (Rows of other clusters are
        always accepted.)
    :raises sqlalchemy_public_id.ConfigurationError: if there are such rows and *keep_outside* is False, if the key has
        too few bits or no counter, and for rows beyond the range if the counter continues from the largest key. A
        script (``--sql``) does not check this.
    """

    name = "set_cluster"
    cluster: int | None = field(default=None, kw_only=True)
    key_range: Range | None = field(default=None, kw_only=True)
    enforce_range: bool = field(default=False, kw_only=True)
    keep_outside: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        ClusterSpec(cluster=self.cluster, key_range=self.key_range)  # the constructor checks them

    def keys(self, context: MigrationContext) -> Range:
        """Return the range that is set.

        :raises ConfigurationError: if the cluster is neither in the migration, nor in env.py, nor in the environment.
        """
        return self.key_range or ClusterSpec(cluster=_cluster(context, self.cluster)).keys()

    def _statements(self, context: MigrationContext, connection: Connection | None) -> list[str]:
        counter, keys = self._counter(context), self.keys(context)
        if connection is not None:
            _check_column(connection, self, keys.last)
            refused = {"key-counter-outside"} if self.keep_outside else {"key-counter-outside", "keys-outside"}
            for found in problems_of(connection, self.table, self.schema, self.column, keys):
                if found.problem in refused:
                    raise ConfigurationError(
                        f"op.set_cluster({self.table!r}): {found.message}. Renumber these rows; or pass "
                        f"keep_outside=True if no other database has them, unless the counter would follow them"
                    )
        return [*counter.limit(keys), *counter.guard(keys if self.enforce_range else None)]


@registered
class UnsetClusterOp(_KeyOp):
    """Undo :func:`set_cluster`: remove the limits and the trigger. The counter does not move back, and keys stay."""

    name = "unset_cluster"

    def _statements(self, context: MigrationContext, connection: Connection | None) -> list[str]:
        counter = self._counter(context)
        return [*counter.limit(None), *counter.guard(None)]


for _done, _undone in (
    (CreateClusterConfigOp, DropClusterConfigOp),
    (CreateClusterSequenceOp, DropClusterSequenceOp),
    (SetClusterOp, UnsetClusterOp),
):
    _done.reversed_by, _undone.reversed_by = _undone, _done

create_cluster_config: Final = as_function(CreateClusterConfigOp)
drop_cluster_config: Final = as_function(DropClusterConfigOp)
create_cluster_sequence: Final = as_function(CreateClusterSequenceOp)
drop_cluster_sequence: Final = as_function(DropClusterSequenceOp)
set_cluster: Final = as_function(SetClusterOp)
unset_cluster: Final = as_function(UnsetClusterOp)


def _cluster(context: MigrationContext, number: int | None) -> Any:
    """Return *number*, or else the setting of env.py: a number, a function, or ``None``."""
    return context.opts.get("public_id_cluster") if number is None else number


def _check_column(connection: Connection, op: _KeyOp, last: int) -> None:
    """Check that a key can hold numbers up to *last*, and that it autoincrements.

    :raises ConfigurationError: if not; the message contains the operation that changes the column.
    """
    inspector, counted_by, name, key = inspect(connection), key_counter_of(connection.dialect), op.table, op.column
    columns = columns_of(inspector, name, op.schema) if inspector.has_table(name, schema=op.schema) else {}
    if key not in columns:
        there_are = f"it has: {', '.join(columns)}" if columns else "there is no such table"
        raise ConfigurationError(f"{name!r} has no column {key!r}; {there_are}")
    type_: Any = getattr(columns[key]["type"], "data_type", columns[key]["type"])  # the type of a DOMAIN
    kind = type(type_).__name__
    is_large = counted_by is KeyCounter.SQLITE_SEQUENCE or kind in {"NUMERIC", "DECIMAL"}
    is_large = is_large or last <= largest_number(type_)  # PostgreSQL cuts the numbers of an IDENTITY
    counts, remedy = True, f"op.alter_column({name!r}, {key!r}, type_=sa.BigInteger())"
    if counted_by is KeyCounter.SQLITE_SEQUENCE:  # no other catalog shows it
        master = quoted_table("sqlite_master", op.schema, connection.dialect)
        query = f"SELECT sql FROM {master} WHERE type = 'table' AND name = ? COLLATE NOCASE"
        counts = "AUTOINCREMENT" in str(connection.exec_driver_sql(query, (name,)).scalar()).upper()
        remedy = "create the table with sqlite_autoincrement=True"
    elif counted_by is KeyCounter.AUTO_INCREMENT:  # PostgreSQL itself refuses a key without a sequence
        counts = bool(columns[key].get("autoincrement"))
        remedy = f"{remedy[:-1]}, existing_nullable=False, autoincrement=True)"
    if not is_large or not counts:
        kind = kind if counts else f"{kind} without AUTO_INCREMENT"
        raise ConfigurationError(f"the key of {name} is {kind}, which cannot count up to {last}; {remedy} first")
