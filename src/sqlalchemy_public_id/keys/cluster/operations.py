"""Alembic's operations for cluster keys. Each can be run again, and none sets a counter back.

They take the number of the cluster, or ``env.py`` has it, so that one migration serves all clusters::

    context.configure(..., public_id_cluster=int(os.environ["CLUSTER"]))    # or a function that returns it

They run inside the transaction of the revision, wait five seconds for a lock, and then raise
:class:`~sqlalchemy_public_id.errors.LockNotAvailable`: run the migration again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from alembic.operations import MigrateOperation, Operations
from sqlalchemy import Connection, column, func, inspect, select, table
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects.quoting import in_script, quoted_table
from sqlalchemy_public_id.directives import Directive, as_function, registered
from sqlalchemy_public_id.errors import ConfigurationError, LockNotAvailable
from sqlalchemy_public_id.keys.cluster.column import ENVIRONMENT, check_settings, cluster_of_environment, resolved
from sqlalchemy_public_id.keys.cluster.ddl import CONFIG, ClusterColumn, Config, as_ddl
from sqlalchemy_public_id.keys.ranges import LAST_KEY, SEQUENCE_BITS, Range, range_of
from sqlalchemy_public_id.migrating import Patience
from sqlalchemy_public_id.migrating.databases import database_of
from sqlalchemy_public_id.migrating.steps import can_be_retried
from sqlalchemy_public_id.migrating.table import columns_of

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext  # half imported while Alembic loads plugins

_PATIENCE = Patience(lock_timeout=5.0, attempts=1)
"""Everything that uses the table queues behind a lock that is waited for. One attempt, because the transaction of the
revision may have other locks meanwhile."""


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
        with database_of(connection.dialect).session(connection, _PATIENCE).settings():
            try:
                for statement in self._statements(context, connection):
                    operations.execute(as_ddl(statement))
            except DBAPIError as error:
                if not can_be_retried(error, connection.dialect):
                    raise
                step, table = f"run op.{self.name}()", getattr(self, "table", CONFIG)
                raise LockNotAvailable(step=step, table=table, attempts=1, timeout=_PATIENCE.lock_timeout) from error

    def _statements(self, context: MigrationContext, connection: Connection | None) -> list[str]:
        """Return the DDL, after a look at the table if there is a *connection*."""
        raise NotImplementedError  # MigrateOperation is no abstract class


@Operations.implementation_for(ClusterOp)
def _run(operations: Operations, op: ClusterOp) -> None:
    op.run(operations)


@registered
@dataclass(eq=False)
class CreateClusterConfigOp(ClusterOp):
    """Create the table ``cluster_config``, and on PostgreSQL the function ``this_cluster()``.

    :param cluster: the number of the cluster, instead of that in ``env.py``. Without either, the table stays empty,
        and every INSERT that needs a key fails until it has its row.
    """

    name = "create_cluster_config"
    cluster: int | None = None
    schema: str | None = field(default=None, kw_only=True)

    def _statements(self, context: MigrationContext, connection: Connection | None) -> list[str]:
        config, cluster = Config(context.dialect, schema=self.schema), _cluster(context, self.cluster)
        row = config.set(cluster) if cluster is not None else []
        return [*config.create(), *config.create_function(), *row]


@registered
@dataclass(eq=False)
class DropClusterConfigOp(ClusterOp):
    """Drop the table ``cluster_config``, and the function. No table may use them any more."""

    name = "drop_cluster_config"
    schema: str | None = field(default=None, kw_only=True)

    def _statements(self, context: MigrationContext, connection: Connection | None) -> list[str]:
        config = Config(context.dialect, schema=self.schema)
        return [*config.drop_function(), *config.drop()]


@dataclass(eq=False)
class _KeyOp(ClusterOp):
    table: str
    column: str = "id"
    schema: str | None = field(default=None, kw_only=True)

    def _counter(self, context: MigrationContext, sequence: str | None = None) -> ClusterColumn:
        return ClusterColumn(context.dialect, self.table, self.column, schema=self.schema, sequence=sequence)


@registered
@dataclass(eq=False)
class CreateClusterSequenceOp(_KeyOp):
    """Give the key of *table* a counter, and a default or trigger that looks up the cluster (``strategy="function"``).

    Existing rows keep their keys. The counter begins behind the largest sequence among them: the table is read once.

    :param sequence: the name of the counter: the first argument of ``cluster_key()``.
    :raises sqlalchemy_public_id.ConfigurationError: on SQLite, which has no functions, for a key with less than 64
        bits, and on MySQL and MariaDB for one without ``AUTO_INCREMENT``. A script (``--sql``) checks no columns.
    """

    name = "create_cluster_sequence"
    sequence: str | None = field(default=None, kw_only=True)

    def _statements(self, context: MigrationContext, connection: Connection | None) -> list[str]:
        statements = self._counter(context, self.sequence).create_sequence()
        if connection is not None:
            _check_column(connection, self)
        return statements


@registered
class DropClusterSequenceOp(CreateClusterSequenceOp):
    """Undo :func:`create_cluster_sequence`. The key is ``IDENTITY`` or ``AUTO_INCREMENT`` again.

    It continues behind the largest key of the table.
    """

    name = "drop_cluster_sequence"

    def _statements(self, context: MigrationContext, connection: Connection | None) -> list[str]:
        return self._counter(context, self.sequence).drop_sequence()


@registered
@dataclass(eq=False)
class SetClusterOp(_KeyOp):
    """Limit the ``IDENTITY`` or ``AUTO_INCREMENT`` of a key to the range of a cluster (``strategy="identity"``).

    :param cluster: the number of the cluster, instead of that in ``env.py``, or else that of the environment variable
        ``PUBLIC_ID_CLUSTER``.
    :param key_range: a range in its place.
    :param enforce_range: refuse other keys with a trigger, on MySQL, MariaDB and SQLite.
    :param keep_outside: accept rows from before there were clusters, or outside of *key_range*. (Rows of other clusters
        are always accepted.)
    :raises sqlalchemy_public_id.ConfigurationError: if there are such rows, if the key has not enough bits or does not
        count, and for rows behind the range if the counter continues from the largest key. A script (``--sql``) checks
        nothing of this.
    """

    name = "set_cluster"
    cluster: int | None = field(default=None, kw_only=True)
    key_range: Range | None = field(default=None, kw_only=True)
    enforce_range: bool = field(default=False, kw_only=True)
    keep_outside: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_settings(self.cluster, self.key_range)

    def _statements(self, context: MigrationContext, connection: Connection | None) -> list[str]:
        keys, counter = self.key_range or self._range_of_cluster(context), self._counter(context)
        if connection is not None:
            _check_column(connection, self, keys.last)
            if connection.dialect.name == "sqlite":
                counter.table = _stored_name(connection, self)
            _check_rows(connection, self, keys)
        return [*counter.limit(keys), *(counter.create_guard(keys) if self.enforce_range else counter.drop_guard())]

    def _range_of_cluster(self, context: MigrationContext) -> Range:
        cluster = _cluster(context, self.cluster)
        if cluster is None and ENVIRONMENT not in os.environ:
            raise ConfigurationError(
                f"op.set_cluster({self.table!r}) has no cluster; pass cluster=10 in the migration, or "
                f"context.configure(..., public_id_cluster=10) in env.py, or set {ENVIRONMENT} in the environment"
            )
        return range_of(cluster_of_environment() if cluster is None else cluster)


@registered
class UnsetClusterOp(_KeyOp):
    """Undo :func:`set_cluster`: no limits, no trigger. The counter does not go back, and the keys stay."""

    name = "unset_cluster"

    def _statements(self, context: MigrationContext, connection: Connection | None) -> list[str]:
        return self._counter(context).free()


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


def _cluster(context: MigrationContext, number: int | None) -> int | None:
    """Return *number*, or else the one in env.py, which may be a function."""
    value: Any = context.opts.get("public_id_cluster") if number is None else number
    return None if value is None else resolved(value)


# --- checks before the first statement


def _check_column(connection: Connection, op: _KeyOp, last: int = LAST_KEY) -> None:
    """Check that a key holds numbers up to *last*, and counts.

    :raises ConfigurationError: if not, with the migration that changes it.
    """
    inspector, dialect, name, key = inspect(connection), connection.dialect.name, op.table, op.column
    if not inspector.has_table(name, schema=op.schema):
        raise ConfigurationError(f"there is no table {name!r}: create it first, or correct its name")
    columns = columns_of(inspector, name, op.schema)
    if key not in columns:
        raise ConfigurationError(f"{name} has no column {key!r}; there are: {', '.join(columns)}")
    type_: Any = columns[key]["type"]
    kind = type(getattr(type_, "data_type", type_)).__name__  # of a DOMAIN
    limit = LAST_KEY if dialect == "sqlite" or kind in {"BIGINT", "NUMERIC", "DECIMAL"} else 2**31 - 1
    if last > limit:
        of_range = "a cluster key has 64 bits" if last > 1 << SEQUENCE_BITS else f"the range ends at {last}"
        raise ConfigurationError(
            f"the key of {name} is {kind}, {of_range}: op.alter_column({name!r}, {key!r}, type_=sa.BigInteger()) first"
        )
    if dialect in {"mysql", "mariadb"} and not columns[key].get("autoincrement"):
        raise ConfigurationError(
            f"the key of {name} is not AUTO_INCREMENT, so {dialect} has no counter for it, and does not return the key "
            f"of a new row: op.alter_column({name!r}, {key!r}, existing_type=sa.BigInteger(), "
            f"existing_nullable=False, autoincrement=True) first"
        )


def _check_rows(connection: Connection, op: SetClusterOp, keys: Range) -> None:
    """Check that no row is outside of *keys*. Reads the smallest and the largest key, the ends of an index.

    :raises ConfigurationError: if other databases may have the same keys, or if the counter would leave the range.
    """
    key, dialect = table(op.table, column(op.column), schema=op.schema).c[op.column], connection.dialect.name
    smallest, largest = connection.execute(select(func.min(key), func.max(key))).one()
    if smallest is None:
        return
    problem = None
    if dialect != "postgresql" and largest > keys.last:
        elsewhere = "use op.create_cluster_sequence(), which has a counter of its own"
        problem = (
            f"{dialect} counts on from the largest key, so new keys would be outside of the range, too; "
            f"{elsewhere if dialect != 'sqlite' else 'keep them in another table'}"
        )
    elif not op.keep_outside:
        remedy = "give them other keys, or pass keep_outside=True if no other database has made keys of this table"
        if keys.cluster is None and (smallest < keys.start or largest > keys.last):
            problem = f"keys outside of it may be those of other databases as well; {remedy}"
        elif keys.cluster is not None and smallest < min(1 << SEQUENCE_BITS, keys.start):
            # keys of other clusters come from a merge
            problem = f"{smallest} is from before there were clusters: other databases may have the same keys; {remedy}"
    if problem is not None:
        existing = f"there are rows in {op.table} from {smallest} to {largest}"
        raise ConfigurationError(f"{existing}, and the range is {keys.start} to {keys.last}: {problem}")


def _stored_name(connection: Connection, op: _KeyOp) -> str:
    """Return the name of a table as SQLite stores it. Unlike table names, names of counters are case-sensitive.

    :raises ConfigurationError: if the table has no counter.
    """
    master = quoted_table("sqlite_master", op.schema, connection.dialect)
    query = f"SELECT name, sql FROM {master} WHERE type = 'table' AND name = ? COLLATE NOCASE"
    name, sql = connection.exec_driver_sql(query, (op.table,)).one()
    if "AUTOINCREMENT" not in sql.upper():
        raise ConfigurationError(
            f"the key of {name} is not AUTOINCREMENT, so SQLite has no counter for it; "
            f"create the table with sqlite_autoincrement=True"
        )
    return str(name)
