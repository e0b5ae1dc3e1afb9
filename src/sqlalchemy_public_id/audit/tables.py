"""What an audit reads from one table: its columns and keys, the indexes on its public ids, and a sample of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any, cast

from sqlalchemy import Connection, Inspector, MetaData, Table, TableClause, column, func, literal, select, table
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.exc import NoSuchTableError

from sqlalchemy_public_id.audit.report import Finding, Problem, Remedy, Severity, TableReport
from sqlalchemy_public_id.columns import is_copy, is_public_id, public_id_columns, public_id_type
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.formats.guess import ranked_guesses
from sqlalchemy_public_id.keys.cluster.audit import Clusters
from sqlalchemy_public_id.keys.cluster.catalog import counted_key
from sqlalchemy_public_id.keys.cluster.column import cluster_spec
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.column import check_names
from sqlalchemy_public_id.migrations.databases import live_table
from sqlalchemy_public_id.migrations.from_models import (
    name_in_models,
    others_in_models,
    tables_in_models,
)
from sqlalchemy_public_id.migrations.state import IndexFacts, State
from sqlalchemy_public_id.migrations.table import LiveTable, columns_of
from sqlalchemy_public_id.naming import derived_name
from sqlalchemy_public_id.types import as_format


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """The arguments of :func:`~sqlalchemy_public_id.audit.run`, which all tables share."""

    schema: str | None
    tables: Collection[str] | None
    column: str | None
    formats: Mapping[str, Format]
    models: Sequence[MetaData]
    clusters: Clusters
    sample: int
    defaults: bool

    def __post_init__(self) -> None:
        given: dict[str, object] = vars(self)  # what the caller passed, whatever its annotation says
        if isinstance(given["tables"], str):
            raise ConfigurationError(f"tables is {safe_repr(self.tables)}, expected a list: write [{self.tables!r}]")
        for name in ("formats", "clusters"):
            if not isinstance(given[name], Mapping):
                raise ConfigurationError(f"{name} is {safe_repr(given[name])}, expected a dictionary by table")
        for format in self.formats.values():
            as_format(format)
        for each in self.models:
            if not isinstance(cast("object", each), MetaData):
                raise ConfigurationError(f"models has {safe_repr(each)}, expected MetaData, such as Base.metadata")
        if not isinstance(given["sample"], int) or self.sample < 1:
            raise ConfigurationError(f"sample is {safe_repr(self.sample)}, expected 1 or more")
        check_names(column="public_id" if self.column is None else self.column, schema=self.schema)

    def columns_of(self, table: str) -> list[str]:
        """Return the columns to check: as named, or those that the models declare, or ``public_id``."""
        if self.column is not None:
            return [self.column]
        declared = tables_in_models(self.models, table, self.schema)
        names = [each.name for model in declared for each in public_id_columns(model)]
        return list(dict.fromkeys(names)) or ["public_id"]


@dataclass(eq=False)
class AuditedTable:
    """One table, and how it is audited. Its parts are read on demand."""

    connection: Connection
    inspector: Inspector
    name: str
    column: str
    settings: AuditSettings
    is_first: bool
    """False for a further column of public ids: the key was checked with the first one."""

    @property
    def dialect(self) -> Dialect:
        return self.connection.dialect

    @property
    def schema(self) -> str | None:
        return self.settings.schema

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @cached_property
    def live(self) -> LiveTable:
        """The table as migrations read it."""
        return live_table(self.connection, PublicIdColumn.of(self.name, self.column, schema=self.schema))

    @cached_property
    def columns(self) -> dict[str, ReflectedColumn]:
        return columns_of(self.inspector, self.name, self.schema)

    @property
    def has_column(self) -> bool:
        # then it is audited, whatever the models declare
        is_named = self.settings.column is not None or self.name in self.settings.formats
        return self.column in self.columns and (is_named or not self._repeats_ids)

    @cached_property
    def _repeats_ids(self) -> bool:
        """True if the models declare the column as a foreign key, or as the copy that a history table has."""
        columns = [each for model in self.declared for each in model.columns if each.name == self.column]
        return any((is_copy(each) or each.foreign_keys) and not is_public_id(each) for each in columns)

    @cached_property
    def primary_key(self) -> list[str]:
        return self.live.read_primary_key(self.inspector)

    @cached_property
    def key(self) -> str | None:
        """The column of the primary key that is counted: the only one, or of several the one that has a counter."""
        clusters = (column.name for model in self.declared for column in model.primary_key if cluster_spec(column))
        declared = next((name for name in clusters if name in self.primary_key), None)
        return declared or counted_key(self.connection, self.name, self.schema, self.primary_key)

    @cached_property
    def is_key_sorted(self) -> bool:
        """True if an index begins with the key, so that its largest value is read without other rows."""
        if self.key == self.primary_key[0]:
            return True
        indexes = (each for each in self._read_state.indexes if each.valid and not each.partial)
        return any(each.columns[:1] == (self.key,) for each in indexes)

    @cached_property
    def source(self) -> TableClause:
        """The table, for queries."""
        return table(self.name, *map(column, self.columns), schema=self.schema)

    @cached_property
    def declared(self) -> list[Table]:
        """The table in the models, if they have it."""
        return tables_in_models(self.settings.models, self.name, self.schema)

    @cached_property
    def all_clusters(self) -> Clusters:
        """The argument *clusters*, or the number or range that the model or the environment has for this table."""
        specs = [cluster_spec(column) for model in self.declared for column in model.primary_key]
        known = [keys for spec in specs if spec is not None and (keys := spec.known_keys()) is not None]
        return {self.name: known[0], **self.settings.clusters} if known else self.settings.clusters

    @cached_property
    def format(self) -> Format | None:
        """The format of the ids, if the arguments or the models name it."""
        if self.is_first and (named := self.settings.formats.get(self.name)):
            return as_format(named)
        columns = [each for model in self.declared for each in public_id_columns(model) if each.name == self.column]
        return next((public_id_type(each).id_format for each in columns), None)

    @cached_property
    def likely_format(self) -> Format | None:
        """The format, or a guess from most ids in the sample; ``None`` if no format has such ids."""
        return self.format or next(iter(ranked_guesses(self.ids)), None)

    @cached_property
    def values(self) -> list[Any]:
        """A sample of the column: half of the rows come from the beginning of the primary key, half from its end."""
        keys = [self.source.c[name] for name in self.primary_key]
        limit = self.settings.sample
        query, half = select(self.source.c[self.column]), max(limit // 2, 1)
        oldest = query.order_by(*(key.asc() for key in keys)).limit(half if keys else limit)
        values: list[Any] = [*self.connection.scalars(oldest)]
        if keys and len(values) == half:
            some = select(literal(1)).select_from(self.source).limit(limit).subquery()
            others = (self.connection.scalar(select(func.count()).select_from(some)) or 0) - half
            newest = query.order_by(*(key.desc() for key in keys)).limit(max(others, 0))
            values += self.connection.scalars(newest)
        return values

    @property
    def is_text(self) -> bool:
        """True if the database returns all ids of the sample as strings."""
        return all(value is None or isinstance(value, str) for value in self.values)

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the sample. Stored numbers are written in the format if it is known, and plain otherwise."""
        return [self._text(value) for value in self.values if value is not None]

    def _text(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        if isinstance(self.format, BitsFormat) and self.format.is_native and _has_size(value, self.format.bits):
            with suppress(InvalidPublicId):  # a negative number
                return self.format.from_int(traits_for(self.dialect).from_native(value))
        return value.hex() if isinstance(value, bytes) else str(value)

    @cached_property
    def indexes(self) -> Sequence[IndexFacts]:
        """The indexes on the column alone, and on exactly the column and those that it is unique with."""
        indexes = [each for each in self._read_state.indexes if each.is_on(self.column) or self.is_on_all(each)]
        if self.primary_key == [self.column] and not any(index.primary for index in indexes):  # rowid of SQLite
            facts: dict[str, Any] = {"constraint": True, "primary": True, "columns": (self.column,)}
            indexes.insert(0, IndexFacts("primary key", unique=True, **facts))
        return indexes

    def is_on_all(self, index: IndexFacts) -> bool:
        """Return True if *index* is on the column and exactly those that it is unique with."""
        if not self._unique_with:
            return index.is_on(self.column)
        return {*index.columns} == {self.column, *self._unique_with}

    @cached_property
    def _declared(self) -> tuple[str, ...] | None:
        return others_in_models(self.settings.models, self.live.target)

    @property
    def is_declared(self) -> bool:
        """True if the models declare the column, and what it is unique with."""
        return self._declared is not None

    @cached_property
    def _unique_with(self) -> tuple[str, ...]:
        """The columns that rows with equal ids differ in: as the models say, or else the smallest unique index."""
        if self._declared is not None:
            return self._declared
        indexes = [each for each in self._read_state.indexes if each.guards and self.column in each.columns]
        smallest = min(indexes, key=lambda each: (len(each.columns), each.primary, each.columns), default=None)
        others = () if smallest is None else tuple(name for name in smallest.columns if name != self.column)
        is_weak = any(self.columns[name]["nullable"] for name in others)
        holds_key = bool(self.primary_key) and {*self.primary_key} <= {*others}
        return () if is_weak or holds_key else others

    @cached_property
    def target(self) -> PublicIdColumn:
        """The column as it should be, with the name of its unique index, or a free name for a new index."""
        options: dict[str, Any] = {"schema": self.schema, "format": self.likely_format, "server_default": "none"}
        options["unique_with"] = self._unique_with
        target = PublicIdColumn.of(self.name, self.column, **options)
        name = name_in_models(self.settings.models, target, self.dialect) or target.unique_name
        columns = target.unique_columns
        candidates = [index.name for index in self.indexes if index.can_be_unique_index_of(*columns)]
        if candidates and name not in candidates:
            name = candidates[0]  # an INVALID index is rebuilt
        elif not candidates and self.live.folded(name) in {self.live.folded(index.name) for index in self.indexes}:
            name = self._free_name()
        return replace(target, unique_name=name)

    def _free_name(self) -> str:
        """Return a name for a unique index that no index of the table has."""
        taken = {self.live.folded(index.name) for index in self._read_state.indexes}
        names = (derived_name("uq", self.name, self.column, str(number)) for number in count(2))
        return next(name for name in names if self.live.folded(name) not in taken)

    @cached_property
    def state(self) -> State:
        if self._unique_with:
            return live_table(self.connection, self.target).read_state()
        return self._read_state.with_indexes(self._read_state.indexes, self.target)

    @property
    def partition_of(self) -> str | None:
        """The table of the audited schema of which this one is a partition, with its columns and indexes."""
        place = self._read_state.partition_of if self.has_column else None
        return place[1] if place and place[0] == (self.schema or self.inspector.default_schema_name) else None

    @cached_property
    def _read_state(self) -> State:
        try:
            return self.live.read_state()
        except ConfigurationError as error:  # it was dropped since its columns were read
            raise NoSuchTableError(self.name) from error

    def finding(
        self, problem: Problem, severity: Severity, message: str, remedy: Remedy | None = None, **facts: Any
    ) -> Finding:
        return Finding(self.full_name, self.column, problem, severity, message, facts, remedy)

    def report(self) -> TableReport:
        if not self.has_column:
            return TableReport(self.full_name, has_column=False, column=self.column)
        format = None if self.likely_format is None else self.likely_format.expected
        has_default = self.state.default is not None or self.state.filled
        return TableReport(self.full_name, True, len(self.ids), format, has_default, column=self.column)


def _has_size(value: Any, bits: int) -> bool:
    """Return False for a value that a column has instead of a number of *bits* bits, as SQLite's may."""
    if isinstance(value, (int, float)):
        return bits == 64 and isinstance(value, int)
    return not isinstance(value, bytes) or 8 * len(value) == bits
