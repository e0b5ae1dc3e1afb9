"""Alembic's directives for cluster keys. ``toimpl_clusters`` has what they do.

They take the number of the cluster, or ``env.py`` has it, so that one migration serves all clusters::

    context.configure(..., public_id_cluster=int(os.environ["CLUSTER"]))    # or a function that returns it

They run inside the transaction of the revision, wait five seconds for a lock, and then raise
:class:`~sqlalchemy_public_id.LockNotAvailable`: run the migration again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from alembic.operations import MigrateOperation

from sqlalchemy_public_id.alembic.ops import Directive, as_function, registered
from sqlalchemy_public_id.errors import ConfigurationError, safe_repr
from sqlalchemy_public_id.keys.ranges import Range


@dataclass(eq=False)  # Alembic compares directives by identity
class ClusterOp(Directive):
    """Base of the directives for cluster keys."""

    def arguments(self) -> dict[str, Any]:
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}

    def reverse(self) -> MigrateOperation:
        shared = {field.name for field in fields(self)} & {field.name for field in fields(self.reversed_by)}
        undone: MigrateOperation = self.reversed_by(**{name: getattr(self, name) for name in shared})
        return undone


@dataclass(eq=False)
class _KeyOp(ClusterOp):
    table: str
    column: str = "id"
    schema: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.table, self.column = str(self.table), str(self.column)  # may be quoted_name

    @property
    def table_name(self) -> str:
        return self.table

    @property
    def column_name(self) -> str:
        return self.column


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


@registered
@dataclass(eq=False)
class DropClusterConfigOp(ClusterOp):
    """Drop the table ``cluster_config``, and the function. No table may use them any more."""

    name = "drop_cluster_config"
    schema: str | None = field(default=None, kw_only=True)


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


@registered
class DropClusterSequenceOp(CreateClusterSequenceOp):
    """Undo :func:`create_cluster_sequence`. The key is ``IDENTITY`` or ``AUTO_INCREMENT`` again.

    It continues behind the largest key of the table.
    """

    name = "drop_cluster_sequence"


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
        super().__post_init__()
        value: object = self.key_range
        if value is not None and not isinstance(value, Range):
            raise ConfigurationError(f"key_range is {safe_repr(value)}, expected one of ranges(shards=...)")
        if self.key_range is not None and self.cluster is not None:
            raise ConfigurationError("key_range is a range that takes the place of a cluster; leave one of them out")


@registered
class UnsetClusterOp(_KeyOp):
    """Undo :func:`set_cluster`: no limits, no trigger. The counter does not go back, and the keys stay."""

    name = "unset_cluster"


for _done, _undone in (
    (CreateClusterConfigOp, DropClusterConfigOp),
    (CreateClusterSequenceOp, DropClusterSequenceOp),
    (SetClusterOp, UnsetClusterOp),
):
    _done.reversed_by, _undone.reversed_by = _undone, _done


class CreateClusterConfig(Protocol):
    """:class:`CreateClusterConfigOp`, as a function."""

    def __call__(self, op: Any, /, cluster: int | None = None, *, schema: str | None = None) -> None: ...


class DropClusterConfig(Protocol):
    """:class:`DropClusterConfigOp`, as a function."""

    def __call__(self, op: Any, /, *, schema: str | None = None) -> None: ...


class ClusterSequence(Protocol):
    """:class:`CreateClusterSequenceOp`, or the one that undoes it, as a function."""

    def __call__(
        self, op: Any, /, table: str, column: str = "id", *, schema: str | None = None, sequence: str | None = None
    ) -> None: ...


class SetCluster(Protocol):
    """:class:`SetClusterOp`, as a function."""

    def __call__(
        self,
        op: Any,
        /,
        table: str,
        column: str = "id",
        *,
        schema: str | None = None,
        cluster: int | None = None,
        key_range: Range | None = None,
        enforce_range: bool = False,
        keep_outside: bool = False,
    ) -> None: ...


class UnsetCluster(Protocol):
    """:class:`UnsetClusterOp`, as a function."""

    def __call__(self, op: Any, /, table: str, column: str = "id", *, schema: str | None = None) -> None: ...


create_cluster_config: CreateClusterConfig = as_function(CreateClusterConfigOp)
drop_cluster_config: DropClusterConfig = as_function(DropClusterConfigOp)
create_cluster_sequence: ClusterSequence = as_function(CreateClusterSequenceOp)
drop_cluster_sequence: ClusterSequence = as_function(DropClusterSequenceOp)
set_cluster: SetCluster = as_function(SetClusterOp)
unset_cluster: UnsetCluster = as_function(UnsetClusterOp)
