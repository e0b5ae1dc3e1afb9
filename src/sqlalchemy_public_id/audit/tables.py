"""What an audit reads of one table: its columns and keys, the indexes on its public ids, and a sample of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, Inspector, MetaData, TableClause, column, func, literal, select, table
from sqlalchemy.engine.interfaces import ReflectedColumn

from sqlalchemy_public_id.audit.report import Finding, Problem, Remedy, Severity, TableReport
from sqlalchemy_public_id.columns import public_id_columns, public_id_type
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.formats.guess import ranked_guesses
from sqlalchemy_public_id.keys.cluster.audit import Clusters
from sqlalchemy_public_id.migrating import PublicIdColumn
from sqlalchemy_public_id.migrating.catalog import IndexFacts, columns_of, primary_key_of, read_indexes
from sqlalchemy_public_id.migrating.column_state import State
from sqlalchemy_public_id.migrating.declared import Models, name_in_models
from sqlalchemy_public_id.naming import derived_name


@dataclass(frozen=True)
class Options:
    """The arguments of :func:`~sqlalchemy_public_id.audit.run` that are the same for all tables."""

    schema: str | None
    column: str
    formats: Mapping[str, Format]
    models: Models
    clusters: Clusters
    sample: int


@dataclass(frozen=True)
class Sample:
    """Rows of a table: the first and the last ones by primary key."""

    rows: int
    """The number of rows that were read."""
    ids: tuple[str, ...]
    """The ids of those that have one. Stored numbers are in the format if it is known, else plain."""
    is_text: bool
    """True if the database returns all of them as strings."""


class AuditedTable:
    """One table. Each part of it is read when a check asks for it."""

    def __init__(self, connection: Connection, inspector: Inspector, name: str, options: Options) -> None:
        self.connection = connection
        self.inspector = inspector
        self.name = name
        self.options = options
        self.schema = options.schema
        self.column = options.column
        self.dialect: str = connection.dialect.name
        self.full_name = f"{self.schema}.{name}" if self.schema else name

    @cached_property
    def columns(self) -> dict[str, ReflectedColumn]:
        return columns_of(self.inspector, self.name, self.schema)

    @property
    def has_column(self) -> bool:
        return self.column in self.columns

    @cached_property
    def primary_key(self) -> list[str]:
        return primary_key_of(self.inspector, self.name, self.schema)

    @cached_property
    def source(self) -> TableClause:
        """The table in queries."""
        return table(self.name, *map(column, self.columns), schema=self.schema)

    @cached_property
    def format(self) -> Format | None:
        """The format of the ids, if the caller names it."""
        if self.name in self.options.formats:
            return self.options.formats[self.name]
        models = self.options.models
        for metadata in [models] if isinstance(models, MetaData) else models or ():
            model = metadata.tables.get(self.full_name)
            for each in () if model is None else public_id_columns(model):
                if each.name == self.column:
                    return public_id_type(each).id_format
        return None

    @cached_property
    def likely_format(self) -> Format | None:
        """The format, or that of most ids in the sample; ``None`` if no format has such ids."""
        return self.format or next(iter(ranked_guesses(self.sample.ids)), None)

    @cached_property
    def sample(self) -> Sample:
        """Half as many rows as may be read from either end of the primary key."""
        size, keys = self.options.sample, [self.source.c[name] for name in self.primary_key]
        query, half = select(self.source.c[self.column]), max(size // 2, 1)
        oldest = query.order_by(*(key.asc() for key in keys)).limit(half if keys else size)
        values: list[Any] = [*self.connection.scalars(oldest)]
        if keys and len(values) == half:
            some = select(literal(1)).select_from(self.source).limit(size).subquery()
            others = (self.connection.scalar(select(func.count()).select_from(some)) or 0) - half
            newest = query.order_by(*(key.desc() for key in keys)).limit(max(others, 0))
            values += self.connection.scalars(newest)
        stored = [value for value in values if value is not None]
        return Sample(len(values), tuple(map(self._text, stored)), all(isinstance(value, str) for value in stored))

    def _text(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        if isinstance(self.format, BitsFormat) and self.format.is_native:
            return self.format.from_int(traits_for(self.connection.dialect).from_native(value))
        return value.hex() if isinstance(value, bytes) else str(value)

    @cached_property
    def indexes(self) -> Sequence[IndexFacts]:
        """The indexes on the column alone."""
        indexes = [each for each in read_indexes(self.connection, self.name, self.schema) if each.is_on(self.column)]
        if self.primary_key == [self.column] and not any(index.primary for index in indexes):  # rowid of SQLite
            indexes.insert(0, IndexFacts("primary key", unique=True, constraint=True, primary=True))
        return indexes

    @property
    def guard(self) -> IndexFacts | None:
        """The best of the indexes that keep duplicates out: that of a constraint, or of the library's name."""
        name = self.target.unique_name
        return min(
            (index for index in self.indexes if index.guards),
            key=lambda index: (index.deferrable, not index.primary, not index.constraint, index.name != name),
            default=None,
        )

    @cached_property
    def target(self) -> PublicIdColumn:
        """The column as it is to be, with the unique index that it has, or with a name that its index can have."""
        options: dict[str, Any] = {"schema": self.schema, "format": self.likely_format, "server_default": "none"}
        target = PublicIdColumn.of(self.name, self.column, **options)
        name = name_in_models(self.options.models, target, self.connection.dialect) or target.unique_name
        candidates = [index.name for index in self.indexes if index.can_be_unique_index_of(self.column)]
        if candidates and name not in candidates:
            name = candidates[0]  # an INVALID index is built again
        elif not candidates and name in {index.name for index in self.indexes}:
            name = derived_name("uq", self.name, self.column, "2")
        return replace(target, unique_name=name)

    @cached_property
    def state(self) -> State:
        return self.target.read_state(self.connection)

    def finding(
        self, problem: Problem, severity: Severity, message: str, remedy: Remedy | None = None, **facts: Any
    ) -> Finding:
        return Finding(self.full_name, self.column, problem, severity, message, facts, remedy)

    def report(self) -> TableReport:
        if not self.has_column:
            return TableReport(self.full_name, has_column=False)
        format = None if self.likely_format is None else self.likely_format.expected
        has_default = self.state.default is not None or self.state.filled
        return TableReport(self.full_name, True, len(self.sample.ids), format, has_default)
