"""What a migration is about: one column of public ids in one table, and how patient to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from sqlalchemy import Column, MetaData, String, Table
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.formats import Format, NanoId
from sqlalchemy_public_id.naming import derived_name, unique_name
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import format_of, stored_type

__all__ = ["Patience", "ServerDefault", "Target", "Unique"]

Unique: TypeAlias = Literal["index", "constraint"]
ServerDefault: TypeAlias = Literal["keep", "drop", "none"]


@dataclass(frozen=True)
class Target:
    """A column of public ids, as it is to be in the end."""

    table: str
    column: str = "public_id"
    format: Format = field(default_factory=NanoId)
    schema: str | None = None
    unique_name: str = ""
    """The name of the unique index or constraint; ``uq_<table>_<column>`` where nothing else is said."""
    unique: Unique = "index"
    server_default: ServerDefault = "keep"
    """Whether the database makes ids for writers that give none: for ever, until the column is complete, or never."""
    comment: str | None = None
    """The comment of the column, where the database keeps one."""

    @classmethod
    def of(
        cls,
        table: str,
        column: str = "public_id",
        *,
        format: Format | type[TypedId] | None = None,
        schema: str | None = None,
        unique_name: str | None = None,
        unique: Unique = "index",
        server_default: ServerDefault = "keep",
        comment: str | None = None,
    ) -> Target:
        """The target that the arguments of an operation describe.

        :raises ConfigurationError: where one of them is none that is known.
        """
        _one_of("unique", unique, Unique)
        _one_of("server_default", server_default, ServerDefault)
        return cls(
            table=str(table),
            column=str(column),
            format=NanoId() if format is None else format_of(format),
            schema=schema,
            unique_name=unique_name or _unique_name(table, column),
            unique=unique,
            server_default=server_default,
            comment=comment,
        )

    def type_for(self, dialect: Dialect) -> TypeEngine[Any]:
        """The plain column type, with nothing of this library in it."""
        return stored_type(self.format, dialect)

    def as_table(self) -> Table:
        """The table with this one column, to name them in statements."""
        return Table(self.table, MetaData(), Column(self.column, String()), schema=self.schema)

    @property
    def helper_name(self) -> str:
        """The name of the function, and of the trigger, that make ids in the database."""
        return derived_name("make", self.table, self.column)

    @property
    def check_name(self) -> str:
        """The name of the CHECK constraint that is there while a column becomes NOT NULL."""
        return derived_name("ck", self.table, self.column, "not_null")

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}.{self.column}" if self.schema else f"{self.table}.{self.column}"


@dataclass(frozen=True)
class Patience:
    """How long to wait for locks, and how often. Times are seconds."""

    lock_timeout: float = 1.0
    """How long a statement that takes a strong lock waits for it; all other users of the table wait as long."""
    attempts: int = 30
    """How often it is tried, with growing pauses between."""
    index_timeout: float = 600.0
    """How long the build of the index may wait for transactions that are open."""

    def __post_init__(self) -> None:
        if not (self.lock_timeout > 0 and self.attempts >= 1 and self.index_timeout > 0):
            raise ConfigurationError(f"{self!r} cannot work: expected times above 0 and at least one attempt")


def _unique_name(table: str, column: str) -> str:
    return unique_name(str(table), str(column))


def _one_of(name: str, value: object, choices: object) -> None:
    if value not in get_args(choices):
        known = ", ".join(map(repr, get_args(choices)))
        raise ConfigurationError(f"{name} is {shown(value)}, expected one of {known}")
