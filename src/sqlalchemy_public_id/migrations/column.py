"""The target of a migration: a column of public ids, as it should be afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy_public_id import naming
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format, NanoId
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.migrations.consent import Keeps, ServerDefault, check_choices, check_flags
from sqlalchemy_public_id.stored_ids import SqlType
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import as_format, require_text


@dataclass(frozen=True)
class PublicIdColumn:
    """A column of public ids, as it should be after the migration."""

    table: str
    column: str = "public_id"
    format: Format = field(default_factory=NanoId)
    schema: str | None = None
    unique_name: str = ""
    unique_with: Sequence[str] = ()
    sql_type: SqlType | None = None
    collation: str | None = None
    keeps: Keeps | None = None
    server_default: ServerDefault = "keep"
    comment: str | None = None
    invisible: bool | None = None

    @classmethod
    def of(
        cls,
        table: str,
        column: str = "public_id",
        *,
        format: Format | type[TypedId] | None = None,
        unique_name: str | None = None,
        unique_with: Sequence[str] = (),
        **options: Any,
    ) -> PublicIdColumn:
        """Build the column from the arguments of an operation. *options* are the other fields.

        :raises ConfigurationError: if an argument is not a name, or an option has a value that is not allowed.
        """
        check_names(table=table, column=column, unique_name=unique_name or "", **options)
        return cls(
            str(table),  # not a quoted_name
            str(column),
            NanoId() if format is None else as_format(format),
            unique_name=unique_name or naming.unique_name(str(table), str(column)),
            unique_with=_names_of_others(str(column), unique_with),
            **options,
        )

    def __post_init__(self) -> None:
        check_choices(self)
        if self.sql_type is not None:
            require_text(self.format, self.sql_type)
        if self.invisible is not None:
            check_flags(invisible=self.invisible)

    @property
    def unique_columns(self) -> tuple[str, ...]:
        """The columns of the unique index: this one, and those that it is unique with."""
        return self.column, *self.unique_with

    @property
    def keeps_unique(self) -> bool:
        """``True`` if ``loosen`` leaves the column unique."""
        return self.keeps in ("unique", "all")

    @property
    def keeps_not_null(self) -> bool:
        """``True`` if ``loosen`` leaves the column NOT NULL."""
        return self.keeps in ("not null", "all")

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}.{self.column}" if self.schema else f"{self.table}.{self.column}"


def _names_of_others(column: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(
            f"unique_with is {safe_repr(names)}, expected the names of columns, such as ('tenant_id',)"
        )
    if len({column, *names}) <= len(names):
        raise ConfigurationError(f"unique_with is {safe_repr(names)}, expected each column beside {column} once")
    return tuple(map(str, names))


_NAMES = {"table", "column", "schema", "unique_name", "collation", "comment"}
_OPTIONAL = {"schema", "collation", "comment"}


def check_names(**arguments: object) -> None:
    """Raise an error if an argument that should be a name is not: a format could become the name of a column."""
    for name, value in arguments.items():
        if name in _NAMES and not isinstance(value, str) and not (value is None and name in _OPTIONAL):
            shown = safe_repr(value)
            hint = f"; write format={shown}" if isinstance(value, Format) else ""
            raise ConfigurationError(f"{name} is {shown}, expected {'text' if name == 'comment' else 'a name'}{hint}")
