"""The steps of a migration: a :class:`Plan` for each database derives them, and says what stands in the way."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

from sqlalchemy import Connection
from sqlalchemy.engine import Dialect

from sqlalchemy_public_id import naming
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.dialects.quoting import literal, quoted, quoted_table
from sqlalchemy_public_id.errors import ConfigurationError, Obstacle, safe_repr
from sqlalchemy_public_id.migrating.catalog import Triggers
from sqlalchemy_public_id.migrating.column import PublicIdColumn
from sqlalchemy_public_id.migrating.column_state import State, estimate_rows
from sqlalchemy_public_id.types import column_type


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

    @abstractmethod
    def rights(self, scene: Scene) -> list[str]:
        """Return the rights that the phases need."""

    @abstractmethod
    def obstacles(self, scene: Scene) -> Iterator[Obstacle]:
        """Yield what stands in the way of the phases, as the catalogs tell."""

    def warnings(self, scene: Scene) -> Iterator[str]:
        """Yield what the phases change elsewhere."""
        yield from ()

    def scripts(self, lock_timeout: float) -> dict[str, list[str]]:
        """Return the statements of each phase that is the same for every table; a script (``--sql``) can have these.

        :param lock_timeout: the time that a statement waits for its lock, in seconds.
        """
        return {}


OnDuplicate: TypeAlias = Literal["refuse", "replace"]
OnInvalid: TypeAlias = Literal["refuse", "keep", "replace"]


@dataclass(frozen=True)
class Consent:
    """What a migration may do to rows that it finds, and to others that use the table."""

    update_triggers: Triggers = "refuse"
    on_duplicate: OnDuplicate = "refuse"
    on_invalid: OnInvalid = "refuse"
    allow_lock: bool = False

    def __post_init__(self) -> None:
        for name, choices in (
            ("update_triggers", get_args(Triggers)),
            ("on_duplicate", get_args(OnDuplicate)),
            ("on_invalid", get_args(OnInvalid)),
        ):
            value: object = getattr(self, name)
            if value not in choices:
                expected = ", ".join(map(repr, choices))
                raise ConfigurationError(f"{name} is {safe_repr(value)}, expected one of {expected}")


@dataclass(frozen=True)
class Scene:
    """What the checks of one migration have in common."""

    connection: Connection
    plan: Plan
    phases: Sequence[str]
    """``expand``, ``backfill``, ``contract``, ``relax`` or ``drop``."""
    consent: Consent
    state: State
    runs: bool = False
    """True if the phases run afterwards."""

    @property
    def target(self) -> PublicIdColumn:
        return self.plan.target

    @cached_property
    def rows(self) -> int | None:
        """The number of rows of the table, as the database estimates it."""
        return estimate_rows(self.connection, self.target.table, self.target.schema)

    @cached_property
    def steps(self) -> list[tuple[str, Step]]:
        """The phase of each step that is needed, and the step; without those of the backfill."""
        phases = [phase for phase in self.phases if phase != "backfill"]
        every = [(phase, step) for phase in phases for step in getattr(self.plan, phase)()]
        return [(phase, step) for phase, step in every if step.needed(self.state)]

    @property
    def begins_with_index(self) -> bool:
        """True if the phases run now, and change nothing before the unique index is built."""
        is_contract = [*self.phases] == ["contract"] and self.plan.online and self.consent.on_invalid != "replace"
        return self.runs and is_contract and not self.plan.changes_collation(self.state)

    @cached_property
    def fills_rows(self) -> bool:
        """True if the backfill will change rows."""
        return "backfill" in self.phases and self.target.has_rows_to_fill(self.connection)
