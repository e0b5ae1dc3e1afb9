"""The unique index of a partitioned table, which PostgreSQL does not build CONCURRENTLY.

The table first gets an index ON ONLY itself, which is not valid, and then gives each new partition one. The index of
each existing partition is built while the partition is in use, and attached; the index of the table becomes valid with
the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Dialect, text

from sqlalchemy_public_id import naming
from sqlalchemy_public_id.dialects.quoting import quoted, quoted_table
from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrations.column import PublicIdColumn
from sqlalchemy_public_id.migrations.plan import Lock, Migration, Step
from sqlalchemy_public_id.migrations.state import IndexFacts, Partition, State


class _PartOfIndex(NamedTuple):
    """The index of a partition: as it is, or as it will be."""

    partition: Partition
    existing: IndexFacts | None
    name: str
    """Quoted, with the schema."""
    parent: str
    """The index that it is attached to, or will be."""

    @property
    def is_attached(self) -> bool:
        return self.existing is not None and self.existing.part_of is not None

    @property
    def is_valid(self) -> bool:
        return self.existing is not None and self.existing.valid


class PartitionedIndex:
    """The steps for the unique index of the partitioned table of *target*. They are empty for other tables.

    :param online: False if all steps run inside one transaction, where PostgreSQL refuses CONCURRENTLY.
    """

    def __init__(self, target: PublicIdColumn, dialect: Dialect, *, online: bool = True) -> None:
        self.target = target
        self.dialect = dialect
        self.online = online
        self.table: str = quoted_table(target.table, target.schema, dialect)

    def build(self) -> list[Step]:
        """Return the steps that build the index while the table is in use."""
        return [
            Step("create the index of the partitioned table", self._create),
            Step("build the unique index of each partition", self._build_parts, Lock.BUILD),
            Step("attach the indexes of the partitions", self._attach),
        ]

    def drop(self) -> list[Step]:
        """Return the steps that drop the index of the table with those of the partitions, and what a kill has left."""
        return [
            Step("drop the unique index of the partitioned table", self._drop),
            Step(
                "drop the unfinished indexes of partitions",
                self._drop_unattached,
                Lock.BUILD if self.online else Lock.STRONG,
            ),
        ]

    def drop_unfinished(self, state: State) -> list[str]:
        """Return the statements that drop what an interrupted build has left."""
        return [*self._drop(state), *self._drop_unattached(state)]

    def name_of(self, partition: Partition) -> str:
        """Return the quoted name of a partition."""
        return quoted_table(partition.name, partition.schema, self.dialect)

    def missing(self, state: State) -> list[Partition]:
        """Return the partitions that have no such index yet, finished or not."""
        return [part.partition for part in self._parts(state) if part.existing is None]

    def _create(self, state: State) -> list[str]:
        if state.valid or state.partitions is None:
            return []
        statements: list[str] = []
        if state.unique is None:
            name = quoted(self.target.unique_name, self.dialect)
            statements.append(f"CREATE UNIQUE INDEX {name} ON ONLY {self.table} ({self._columns(state)})")
        for part in self._parts(state):
            if part.partition.kind != "p" or part.is_attached:
                continue
            if part.existing is None:
                name, table = self._own_name(part.partition), self.name_of(part.partition)
                statements.append(
                    f"CREATE UNIQUE INDEX {quoted(name, self.dialect)} ON ONLY {table} ({self._columns(state)})"
                )
            statements.append(f"ALTER INDEX {part.parent} ATTACH PARTITION {part.name}")
        return statements

    def _build_parts(self, state: State) -> list[str]:
        statements: list[str] = []
        for part in self._unattached(state):
            if part.existing is not None and not part.is_valid:  # left by an interrupted build
                statements.append(f"DROP INDEX CONCURRENTLY IF EXISTS {part.name}")
            if not part.is_valid:
                name, table = self._own_name(part.partition), self.name_of(part.partition)
                create = f"CREATE UNIQUE INDEX CONCURRENTLY {quoted(name, self.dialect)}"
                statements.append(f"{create} ON {table} ({self._columns(state)})")
        return statements

    def _attach(self, state: State) -> list[str]:
        return [f"ALTER INDEX {part.parent} ATTACH PARTITION {part.name}" for part in self._unattached(state)]

    def _unattached(self, state: State) -> list[_PartOfIndex]:
        """Return the indexes that the partitions with rows lack, or that are not attached."""
        if state.valid:
            return []
        return [part for part in self._parts(state) if part.partition.kind == "r" and not part.is_attached]

    def _drop(self, state: State) -> list[str]:
        if state.partitions is None or state.unique is None or state.constraint:
            return []
        schema = f"{state.schema}." if state.schema else ""
        return [f"DROP INDEX IF EXISTS {schema}{quoted(state.unique.name, self.dialect)}"]

    def _drop_unattached(self, state: State) -> list[str]:
        parts = [part for part in self._parts(state) if part.existing is not None and not part.is_attached]
        # an index of a partitioned table cannot be dropped CONCURRENTLY
        return [
            f"DROP INDEX {'CONCURRENTLY ' if self.online and part.partition.kind == 'r' else ''}IF EXISTS {part.name}"
            for part in parts
        ]

    def _columns(self, state: State) -> str:
        columns = self.target.unique_columns if state.unique is None else state.unique.columns
        return ", ".join(quoted(column, self.dialect) for column in columns)

    def _own_name(self, partition: Partition) -> str:
        return naming.unique_name(partition.name, self.target.column)

    def _parts(self, state: State) -> Iterator[_PartOfIndex]:
        """Yield the index of each partition, after the one that it belongs to."""
        root = self.target.unique_name if state.unique is None else state.unique.name
        schema = f"{state.schema}." if state.schema else ""
        names: dict[tuple[str, str], tuple[str, str]] = {}  # of the partitions: their indexes, plain and quoted
        for partition in state.partitions or ():
            parent, parent_quoted = names.get(
                (partition.parent_schema, partition.parent), (root, f"{schema}{quoted(root, self.dialect)}")
            )
            attached = [index for index in partition.indexes if index.part_of == parent]
            own = [index for index in partition.indexes if self._is_own(partition, index)]
            existing = next(iter(attached + own), None)
            name = self._own_name(partition) if existing is None else existing.name
            names[partition.place] = name, quoted_table(name, partition.schema, self.dialect)
            yield _PartOfIndex(partition, existing, names[partition.place][1], parent_quoted)

    def _is_own(self, partition: Partition, index: IndexFacts) -> bool:
        is_unique = index.can_be_unique_index_of(*self.target.unique_columns)
        return is_unique and index.part_of is None and index.name == self._own_name(partition)


_TAKEN = text("""
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (CAST(n.nspname AS text), CAST(c.relname AS text))
   IN (SELECT * FROM ROWS FROM (
       pg_catalog.unnest(CAST(:schemas AS text[])), pg_catalog.unnest(CAST(:names AS text[]))) AS wanted)
""")


def obstacles_of_partitions(migration: Migration) -> Iterator[Obstacle]:
    """Yield the obstacles to a migration of the partitions of a table."""
    partitions = migration.state.partitions or ()
    others = [part.name for part in partitions if not part.is_owned]
    if others:
        belong = "belongs" if len(others) == 1 else "belong"
        problem = f"the partition {', '.join(others)} {belong} to another role, and only its owner can change it"
        yield Obstacle("missing-right", problem, "run the migration as a member of both roles")
    if "contract" not in migration.phases or migration.state.valid or not migration.plan.online:
        return
    index = PartitionedIndex(migration.target, migration.plan.dialect)
    missing = [*index.missing(migration.state)]
    names = [naming.unique_name(part.name, migration.target.column) for part in missing]
    wanted = {"schemas": [part.schema for part in missing], "names": names}
    taken = (
        {(row.nspname, row.relname) for row in migration.table.connection.execute(_TAKEN, wanted)} if missing else ()
    )
    for part, name in zip(missing, names, strict=True):
        if (part.schema, name) in taken:
            problem = f"the name {name}, which the index of the partition {part.name} gets, belongs to something else"
            yield Obstacle("name-taken", problem, "rename that first")
