"""The target of a migration, what the migration may do to reach it, and how long it may wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from sqlalchemy_public_id import naming
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format, NanoId
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import format_of

ServerDefault: TypeAlias = Literal["keep", "drop", "none"]
Keeps: TypeAlias = Literal["unique", "not null", "all"]
Triggers: TypeAlias = Literal["refuse", "fire", "skip"]
"""What to do if the UPDATEs of a migration would fire triggers; ``"skip"`` works on PostgreSQL and SQLite."""
OnDuplicate: TypeAlias = Literal["refuse", "replace"]
OnInvalid: TypeAlias = Literal["refuse", "keep", "replace"]


@dataclass(frozen=True)
class PublicIdColumn:
    """A column of public ids, as it should be after the migration."""

    table: str
    column: str = "public_id"
    format: Format = field(default_factory=NanoId)
    schema: str | None = None
    unique_name: str = ""
    """The name for the unique index if the migration creates it; ``uq_<table>_<column>`` by default."""
    collation: str | None = None
    """The new collation of an existing column: ``"bytes"`` or a name. ``None`` keeps the present collation."""
    keeps: Keeps | None = None
    """The constraints that ``relax`` leaves in place, because the column had them before it was adopted."""
    server_default: ServerDefault = "keep"
    """Whether the database generates missing ids: always (``"keep"``), until the contract (``"drop"``), or never."""
    comment: str | None = None

    @classmethod
    def of(
        cls,
        table: str,
        column: str = "public_id",
        *,
        format: Format | type[TypedId] | None = None,
        unique_name: str | None = None,
        **options: Any,
    ) -> PublicIdColumn:
        """Build the column from the arguments of an operation. *options* are the other fields.

        :raises ConfigurationError: if an argument is not a name, or an option has a value that is not allowed.
        """
        check_names(table=table, column=column, unique_name=unique_name or "", **options)
        return cls(
            str(table),  # not a quoted_name
            str(column),
            NanoId() if format is None else format_of(format),
            unique_name=unique_name or naming.unique_name(str(table), str(column)),
            **options,
        )

    def __post_init__(self) -> None:
        _check_choices(self, server_default=ServerDefault)
        if self.keeps is not None:
            _check_choices(self, keeps=Keeps)

    @property
    def keeps_unique(self) -> bool:
        """``True`` if ``relax`` leaves the column unique."""
        return self.keeps in ("unique", "all")

    @property
    def keeps_not_null(self) -> bool:
        """``True`` if ``relax`` leaves the column NOT NULL."""
        return self.keeps in ("not null", "all")

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}.{self.column}" if self.schema else f"{self.table}.{self.column}"


_NAMES = {"table", "column", "schema", "unique_name", "collation", "comment"}
_OPTIONAL = {"schema", "collation", "comment"}


def check_names(**arguments: object) -> None:
    """Raise an error if an argument that should be a name is not: a format could become the name of a column."""
    for name, value in arguments.items():
        if name in _NAMES and not isinstance(value, str) and not (value is None and name in _OPTIONAL):
            shown = safe_repr(value)
            hint = f"; write format={shown}" if isinstance(value, Format) else ""
            raise ConfigurationError(f"{name} is {shown}, expected {'text' if name == 'comment' else 'a name'}{hint}")


def check_flags(**arguments: object) -> None:
    """Raise an error if a value is neither ``True`` nor ``False``, because ``"false"`` would count as true."""
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise ConfigurationError(f"{name} is {safe_repr(value)}, expected True or False")


def _check_choices(holder: object, **choices: Any) -> None:
    """Raise an error if a value is not one of the literals of its type."""
    for name, literals in choices.items():
        value: object = getattr(holder, name)
        if value not in get_args(literals):
            expected = ", ".join(map(repr, get_args(literals)))
            raise ConfigurationError(f"{name} is {safe_repr(value)}, expected one of {expected}")


@dataclass(frozen=True)
class Consent:
    """What a migration may do to existing rows and to other users of the table. By default, all of it is refused."""

    update_triggers: Triggers = "refuse"
    on_duplicate: OnDuplicate = "refuse"
    on_invalid: OnInvalid = "refuse"
    allow_lock: bool = False

    def __post_init__(self) -> None:
        _check_choices(self, update_triggers=Triggers, on_duplicate=OnDuplicate, on_invalid=OnInvalid)
        check_flags(allow_lock=self.allow_lock)


def is_time(value: object) -> bool:
    """Return True for a number of seconds."""
    return isinstance(value, (int, float)) and value >= 0


@dataclass(frozen=True)
class Patience:
    """How long a migration waits for locks, in seconds and attempts."""

    lock_timeout: float = 1.0  # for strong locks; meanwhile, all other users of the table wait
    attempts: int = 30  # with growing pauses between them
    index_timeout: float = 600.0  # for open transactions to end, before the index is built

    def __post_init__(self) -> None:
        is_possible = all(map(is_time, (self.lock_timeout, self.index_timeout))) and isinstance(self.attempts, int)
        if not (is_possible and self.attempts >= 1 and self.lock_timeout > 0 and self.index_timeout > 0):
            raise ConfigurationError(f"{self!r} cannot work: expected times above 0 and at least one attempt")
