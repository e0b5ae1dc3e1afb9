"""The column that a migration is to reach, and its steps: a :class:`Plan` for each database derives them."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from sqlalchemy import Connection, column, func, select, table
from sqlalchemy import literal as sql_literal
from sqlalchemy.engine import Dialect

from sqlalchemy_public_id import naming
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.dialects.quoting import literal, quoted, quoted_table
from sqlalchemy_public_id.errors import ConfigurationError, safe_repr
from sqlalchemy_public_id.formats import Format, NanoId
from sqlalchemy_public_id.migrating.column_state import State, read_state
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import column_type, format_of

Unique: TypeAlias = Literal["index", "constraint"]
ServerDefault: TypeAlias = Literal["keep", "drop", "none"]
Keeps: TypeAlias = Literal["unique", "not null", "all"]


@dataclass(frozen=True)
class PublicIdColumn:
    """A column of public ids, as it is to be after the migration."""

    table: str
    column: str = "public_id"
    format: Format = field(default_factory=NanoId)
    schema: str | None = None
    unique_name: str = ""
    """The name of the unique index or constraint, if there is none yet; ``uq_<table>_<column>`` by default."""
    unique: Unique = "index"
    collation: str | None = None
    """The collation that a column gets that exists: ``"bytes"`` or a name. None keeps the one that it has."""
    keeps: Keeps | None = None
    """What ``relax`` leaves as it is: the column had it before it was adopted."""
    server_default: ServerDefault = "keep"
    """Generate missing ids in the database: always (``"keep"``), until the column is complete (``"drop"``), never."""
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
        """Build the column from the arguments of an operation, whose *options* are the other fields."""
        _check_names(table=table, column=column, unique_name=unique_name or "", **options)
        return cls(
            str(table),  # not a quoted_name
            str(column),
            NanoId() if format is None else format_of(format),
            unique_name=unique_name or naming.unique_name(str(table), str(column)),
            **options,
        )

    def __post_init__(self) -> None:
        for name, choices in (
            ("unique", get_args(Unique)),
            ("server_default", get_args(ServerDefault)),
            ("keeps", (*get_args(Keeps), None)),
        ):
            value: object = getattr(self, name)
            if value not in choices:
                expected = ", ".join(map(repr, choices))
                raise ConfigurationError(f"{name} is {safe_repr(value)}, expected one of {expected}")

    @property
    def keeps_unique(self) -> bool:
        """True if ``relax`` leaves the column unique."""
        return self.keeps in ("unique", "all")

    @property
    def keeps_not_null(self) -> bool:
        """True if ``relax`` leaves the column NOT NULL."""
        return self.keeps in ("not null", "all")

    def read_state(self, connection: Connection) -> State:
        """Read what exists of the column.

        :raises ConfigurationError: if there is no such table, or if it holds no rows, as a view does.
        """
        return read_state(connection, self.table, self.schema, self.column, unique_name=self.unique_name)

    def has_rows_to_fill(self, connection: Connection) -> bool:
        """Return True if a row has no id, also because there is no column yet."""
        rows = table(self.table, column(self.column), schema=self.schema)
        query = select(sql_literal(1)).select_from(rows).limit(1)
        if self.read_state(connection).exists:
            query = query.where(rows.c[self.column].is_(None))
        return connection.execute(query).first() is not None

    def are_few_missing(self, connection: Connection) -> bool:
        """Return True if a backfill has run, and has left one row in a hundred, or 1000 rows."""
        rows = table(self.table, column(self.column), schema=self.schema)
        query = select(func.count(), func.count(rows.c[self.column])).select_from(rows)
        total, filled = connection.execute(query).one()
        return filled > 0 and total - filled <= max(1000, total // 100)

    def count_missing(self, connection: Connection) -> int:
        """Return how many rows have no id."""
        rows = table(self.table, column(self.column), schema=self.schema)
        return connection.scalar(select(func.count()).select_from(rows).where(rows.c[self.column].is_(None))) or 0

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}.{self.column}" if self.schema else f"{self.table}.{self.column}"


_NAMES = {"table", "column", "schema", "unique_name", "collation"}


def _check_names(**arguments: object) -> None:
    """Refuse what is no name in the place of one: a format there would become the name of a column."""
    for name, value in arguments.items():
        if name in _NAMES and not isinstance(value, str) and not (value is None and name in ("schema", "collation")):
            shown = safe_repr(value)
            hint = f"; write format={shown}" if isinstance(value, Format) else ""
            raise ConfigurationError(f"{name} is {shown}, expected a name{hint}")


@dataclass(frozen=True)
class Patience:
    """The limits of waiting for locks, in seconds and attempts."""

    lock_timeout: float = 1.0  # for strong locks: all other users of the table wait as long
    attempts: int = 30  # with growing pauses between
    index_timeout: float = 600.0  # for open transactions, before the build of the index

    def __post_init__(self) -> None:
        if not (self.lock_timeout > 0 and self.attempts >= 1 and self.index_timeout > 0):
            raise ConfigurationError(f"{self!r} cannot work: expected times above 0 and at least one attempt")


class Lock(enum.Enum):
    """The work of others that waits while a step runs."""

    STRONG = enum.auto()
    """Everything that uses the table waits. The statement is short, but others queue while it waits for its lock."""
    BUILD = enum.auto()
    """Only other changes of the table wait. The statement is long, and waits for open transactions."""
    REWRITE = enum.auto()
    """Everything that uses the table waits at the beginning and at the end of a long statement of MySQL or MariaDB."""


Statements: TypeAlias = Callable[[Connection, State], Sequence[str]]
"""The statements for a state of the column."""


@dataclass(frozen=True)
class Step:
    """An atomic step of a migration that can be repeated safely."""

    name: str
    sql: Statements
    needed: Callable[[State], bool]
    lock: Lock = Lock.STRONG
    probe: str = ""
    """A statement before a long one that needs the same lock for a moment, so that others do not wait for long."""


def always(*sql: str) -> Statements:
    """Return the same statements for every state."""
    return lambda connection, state: sql


_BYTEWISE = {"postgresql": "C", "mysql": "ascii_bin", "mariadb": "ascii_bin", "sqlite": "BINARY"}
"""The collations that compare bytes, as a new column of public ids has them."""


class Plan(ABC):
    """The steps for one database. The names in its statements are quoted, and include the schema.

    :param online: False if all steps run inside one transaction that is open already.
    :param allow_lock: True if writers may wait for the steps that the database cannot execute beside them.
    """

    def __init__(
        self, target: PublicIdColumn, dialect: Dialect, *, online: bool = True, allow_lock: bool = False
    ) -> None:
        self.target = target
        self.dialect = dialect
        self.online = online
        self.allow_lock = allow_lock
        self.schema: str = f"{self.quoted(target.schema)}." if target.schema else ""
        self.table: str = quoted_table(target.table, target.schema, dialect)
        self.column: str = self.quoted(target.column)
        self.unique: str = self.quoted(target.unique_name)
        self.check: str = self.quoted(naming.not_null_check_name(target.table, target.column))
        self.generator_name: str = naming.generator_name(target.table, target.column)
        self.generator: str = f"{self.schema}{self.quoted(self.generator_name)}"
        self.type: str = dialect.type_compiler_instance.process(column_type(target.format, traits_for(dialect)))

    def quoted(self, name: str) -> str:
        return quoted(name, self.dialect)

    def literal(self, text: str) -> str:
        return literal(text, self.dialect)

    def unique_of(self, state: State) -> str:
        """Return the quoted name of the unique index or constraint that the column has, or is to get."""
        return self.unique if state.unique is None else self.quoted(state.unique.name)

    @property
    def collation(self) -> str | None:
        """The collation that a column is to get that exists."""
        return _BYTEWISE[self.dialect.name] if self.target.collation == "bytes" else self.target.collation

    def changes_collation(self, state: State) -> bool:
        """Return True if the column has another collation than it is to get."""
        return self.collation is not None and state.collation not in (None, self.collation)

    @property
    def generates_ids(self) -> bool:
        """True if the database generates ids, at least until the column is complete."""
        return self.target.server_default != "none"

    @property
    def can_fill_stragglers(self) -> bool:
        """True if the contract itself gives ids to the few rows that have arrived after the backfill."""
        return False

    @property
    def uses_trigger(self) -> bool:
        """True if a trigger generates ids, because the expression of a default cannot."""
        return False

    @abstractmethod
    def has_own_default(self, state: State) -> bool:
        """Return True if the server default of the column is one of this library."""

    @abstractmethod
    def expand(self) -> list[Step]:
        """Return the steps to a column that new rows set and old rows may leave NULL."""

    @abstractmethod
    def contract(self) -> list[Step]:
        """Return the steps to a column that is unique and NOT NULL."""

    @abstractmethod
    def relax(self) -> list[Step]:
        """Return the steps back to the result of :meth:`expand`."""

    def drop_unfinished(self) -> list[Step]:
        """Return the steps that remove what a failed build of the unique index has left."""
        return []

    @abstractmethod
    def drop(self) -> list[Step]:
        """Return the steps that remove the column."""

    def scripts(self, lock_timeout: float) -> dict[str, list[str]]:
        """Return the statements of each phase that is the same for every table; a script (``--sql``) can have these.

        :param lock_timeout: the time that a statement waits for its lock, in seconds.
        """
        return {}
