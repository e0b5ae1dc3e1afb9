"""The operations for cluster keys, as Alembic knows them: what a migration says. What they do is in ``cluster_toimpl``.

The number of the cluster is an argument, or comes from ``env.py``, so that one migration serves all clusters::

    context.configure(..., public_id_cluster=int(os.environ["CLUSTER"]))    # or a function, which is asked when needed
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from alembic.operations import MigrateOperation, Operations
from typing_extensions import TypeVar

from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.keys.ranges import Range

__all__ = [
    "ClusterOp",
    "CreateClusterConfigOp",
    "CreateClusterSequenceOp",
    "DropClusterConfigOp",
    "DropClusterSequenceOp",
    "SetClusterOp",
    "UnsetClusterOp",
    "create_cluster_config",
    "create_cluster_sequence",
    "drop_cluster_config",
    "drop_cluster_sequence",
    "set_cluster",
    "unset_cluster",
]


class ClusterOp(MigrateOperation):
    """What the operations have in common."""

    name: ClassVar[str]
    """The name of the method of ``op``."""
    schema: str | None = None

    def arguments(self) -> Iterator[tuple[str | None, object]]:
        """The arguments that a migration has to say, by name where they have to be named."""
        if self.schema is not None:
            yield "schema", self.schema

    @classmethod
    def invoke(cls, operations: Any, *args: Any, **kwargs: Any) -> None:
        """Do it."""
        operations.invoke(cls(*args, **kwargs))

    def to_diff_tuple(self) -> tuple[object, ...]:
        return self.name, *(value for _, value in self.arguments())


class _OfTable(ClusterOp):
    """An operation on a column."""

    def __init__(self, table: str, column: str = "id", *, schema: str | None = None) -> None:
        self.table_name, self.column_name, self.schema = str(table), str(column), schema

    def arguments(self) -> Iterator[tuple[str | None, object]]:
        yield None, self.table_name
        if self.column_name != "id":
            yield None, self.column_name
        yield from super().arguments()


OpT = TypeVar("OpT", bound=ClusterOp)


def _registered(cls: type[OpT]) -> type[OpT]:
    """Let ``op`` have a method that invokes the operation."""
    invoke: Any = cls.invoke
    invoke.__func__.__doc__ = cls.__doc__  # is copied
    Operations.register_operation(cls.name, "invoke")(cls)
    return cls


@_registered
class CreateClusterConfigOp(ClusterOp):
    """The table ``cluster_config``, with the number of the cluster in its one row, and what reads it."""

    name = "create_cluster_config"

    def __init__(self, cluster: int | None = None, *, schema: str | None = None) -> None:
        self.cluster, self.schema = cluster, schema

    def arguments(self) -> Iterator[tuple[str | None, object]]:
        if self.cluster is not None:
            yield "cluster", self.cluster
        yield from super().arguments()

    def reverse(self) -> MigrateOperation:
        return DropClusterConfigOp(schema=self.schema)


@_registered
class DropClusterConfigOp(ClusterOp):
    """Remove the table ``cluster_config``, and what reads it. No table may need it any more."""

    name = "drop_cluster_config"

    def __init__(self, *, schema: str | None = None) -> None:
        self.schema = schema

    def reverse(self) -> MigrateOperation:
        return CreateClusterConfigOp(schema=self.schema)


@_registered
class CreateClusterSequenceOp(_OfTable):
    """A counter of its own for a key, and a default or trigger that makes keys of it and of the cluster."""

    name = "create_cluster_sequence"

    def __init__(
        self, table: str, column: str = "id", *, schema: str | None = None, sequence: str | None = None
    ) -> None:
        super().__init__(table, column, schema=schema)
        self.sequence = sequence

    def arguments(self) -> Iterator[tuple[str | None, object]]:
        yield from super().arguments()
        if self.sequence is not None:
            yield "sequence", self.sequence

    def reverse(self) -> MigrateOperation:
        return DropClusterSequenceOp(self.table_name, self.column_name, schema=self.schema, sequence=self.sequence)


@_registered
class DropClusterSequenceOp(CreateClusterSequenceOp):
    """Remove what makes cluster keys; the key counts up by itself again, behind the largest one that is there."""

    name = "drop_cluster_sequence"

    def reverse(self) -> MigrateOperation:
        return CreateClusterSequenceOp(self.table_name, self.column_name, schema=self.schema, sequence=self.sequence)


@_registered
class SetClusterOp(_OfTable):
    """Let the ``IDENTITY`` or ``AUTO_INCREMENT`` of a key count within the range of a cluster."""

    name = "set_cluster"

    def __init__(
        self,
        table: str,
        column: str = "id",
        *,
        cluster: int | None = None,
        key_range: Range | None = None,
        schema: str | None = None,
        enforce_range: bool = False,
        keep_outside: bool = False,
    ) -> None:
        super().__init__(table, column, schema=schema)
        given: object = key_range
        if given is not None and not isinstance(given, Range):
            raise ConfigurationError(f"key_range is {shown(given)}, expected one of ranges(shards=...)")
        if key_range is not None and cluster is not None:
            raise ConfigurationError("key_range is a range that takes the place of a cluster; leave one of them out")
        self.cluster, self.key_range = cluster, key_range
        self.enforce_range, self.keep_outside = enforce_range, keep_outside

    def arguments(self) -> Iterator[tuple[str | None, object]]:
        yield from super().arguments()
        for name in ("cluster", "key_range", "enforce_range", "keep_outside"):
            value = getattr(self, name)
            if value is not None and value is not False:
                yield name, value

    def reverse(self) -> MigrateOperation:
        return UnsetClusterOp(self.table_name, self.column_name, schema=self.schema)


@_registered
class UnsetClusterOp(_OfTable):
    """Take the limits away from the counter of a key; it goes on from where it is, and keys that are there stay."""

    name = "unset_cluster"

    def reverse(self) -> MigrateOperation:
        return SetClusterOp(self.table_name, self.column_name, schema=self.schema)


def create_cluster_config(op: Any, cluster: int | None = None, *, schema: str | None = None) -> None:
    """Create the table ``cluster_config``, and on PostgreSQL the function ``this_cluster()``.

    *op* is the module ``alembic.op``, or an :class:`~alembic.operations.Operations`.

    :param cluster: the number of the cluster, if not that of ``env.py``. Where neither says one, the table remains
        empty, and no key is made before it has its row.
    """
    op.create_cluster_config(cluster, schema=schema)


def drop_cluster_config(op: Any, *, schema: str | None = None) -> None:
    """Drop the table ``cluster_config``, and the function."""
    op.drop_cluster_config(schema=schema)


def create_cluster_sequence(
    op: Any, table: str, column: str = "id", *, schema: str | None = None, sequence: str | None = None
) -> None:
    """Give the key of *table* a counter, and let each new row look up its cluster (``strategy="function"``).

    Rows that are there keep their keys, and the counter begins behind the largest sequence among them: the table is
    read once.

    :param sequence: what the counter is called: the first argument of ``cluster_key()``.
    :raises sqlalchemy_public_id.ConfigurationError: on SQLite, which has no functions, for a key with less than 64
        bits, and on MySQL and MariaDB for one without ``AUTO_INCREMENT``. In a script (``--sql``) nobody looks.
    """
    op.create_cluster_sequence(table, column, schema=schema, sequence=sequence)


def drop_cluster_sequence(
    op: Any, table: str, column: str = "id", *, schema: str | None = None, sequence: str | None = None
) -> None:
    """Undo :func:`create_cluster_sequence`. The key is ``IDENTITY`` or ``AUTO_INCREMENT`` again."""
    op.drop_cluster_sequence(table, column, schema=schema, sequence=sequence)


def set_cluster(
    op: Any,
    table: str,
    column: str = "id",
    *,
    cluster: int | None = None,
    key_range: Range | None = None,
    schema: str | None = None,
    enforce_range: bool = False,
    keep_outside: bool = False,
) -> None:
    """Let the counter of the key of *table* go on within the range of a cluster (``strategy="identity"``).

    :param cluster: the number of the cluster, if not that of ``env.py``, or else of the variable ``PUBLIC_ID_CLUSTER``
        of the environment.
    :param key_range: a range in its place.
    :param enforce_range: whether a trigger refuses other keys, on MySQL, MariaDB and SQLite.
    :param keep_outside: whether rows may stay that are older than the clusters, or outside of *key_range*. (Rows of
        other clusters may always.)
    :raises sqlalchemy_public_id.ConfigurationError: where there are such rows, where the key has not enough bits or
        does not count, and for rows behind the range, where the counter goes on from the largest key. In a script
        (``--sql``) nobody looks.
    """
    op.set_cluster(
        table,
        column,
        cluster=cluster,
        key_range=key_range,
        schema=schema,
        enforce_range=enforce_range,
        keep_outside=keep_outside,
    )


def unset_cluster(op: Any, table: str, column: str = "id", *, schema: str | None = None) -> None:
    """Undo :func:`set_cluster`: no limits, no trigger. The counter does not go back."""
    op.unset_cluster(table, column, schema=schema)
