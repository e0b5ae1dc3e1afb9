"""The steps of a migration: a :class:`Plan` for each database derives them, and finds the obstacles."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

from sqlalchemy.engine import Dialect

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.dialects.quoting import literal, quoted, quoted_table
from sqlalchemy_public_id.errors import ConfigurationError, Obstacle
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.migrations.column import PublicIdColumn
from sqlalchemy_public_id.migrations.consent import Consent
from sqlalchemy_public_id.migrations.server_defaults import ServerDefaults
from sqlalchemy_public_id.migrations.state import State
from sqlalchemy_public_id.migrations.stored_code.programs import StoredCode
from sqlalchemy_public_id.migrations.stored_code.scope import BrokenStatement
from sqlalchemy_public_id.migrations.stored_code.shapes import Change
from sqlalchemy_public_id.migrations.table import LiveTable
from sqlalchemy_public_id.stored_ids import column_type, require_text_index

Phase: TypeAlias = Literal["expand", "backfill", "contract", "loosen", "drop"]


class Lock(enum.Enum):
    """Which other sessions wait while a step runs."""

    STRONG = enum.auto()
    """All users of the table wait. The statement is short, but others queue behind it while it waits for its lock."""
    BUILD = enum.auto()
    """Only other schema changes of the table wait. The statement is long, and waits for open transactions."""
    REWRITE = enum.auto()
    """All users of the table wait at the beginning and at the end of a long statement of MySQL or MariaDB."""
    WRITERS = enum.auto()
    """All other writers of the database wait until the statements end: SQLite has one writer at a time."""


@dataclass(frozen=True)
class Step:
    """An atomic step of a migration that can be repeated safely."""

    name: str
    statements: Callable[[State], Sequence[str]]
    """The statements for a state of the column; none if the step is done."""
    lock: Lock = Lock.STRONG
    probe: str = ""
    """A short statement that takes the same lock before the long one, so that others do not queue for long."""


def step_if(name: str, is_needed: Callable[[State], bool], sql: str, lock: Lock = Lock.STRONG) -> Step:
    """Build a step of one statement, which is the same for every state in which it is needed."""
    return Step(name, lambda state: [sql] if is_needed(state) else [], lock)


class Plan(ABC):
    """The steps for one database. The names in its statements are quoted, and include the schema.

    :param online: False if all steps run inside one transaction that is open already.
    :param consent: what the steps may do to existing rows and to other users of the table; by default, nothing.
    :raises ConfigurationError: if the database does not accept one of the names.
    """

    stores_any_type: ClassVar[bool] = False
    """True if a column stores values of any type."""
    indexes_whole_texts: ClassVar[bool] = False
    """True if an index of a TEXT column has its whole values, and not only a prefix of them."""
    pads_char: ClassVar[bool] = False
    """True if a CHAR column returns shorter values with blanks at their ends."""
    reads_uuids_as_text: ClassVar[bool] = False
    """True if a column of the type UUID, where there is one, reads and writes hyphenated text."""
    work_of_collation: ClassVar[str] = "copies"
    """What a change of the collation does to the table."""
    hides_columns: ClassVar[bool] = False
    """True if the database can hide a column from ``*``, and from an INSERT without a list of columns."""
    deadlocks_with_readers: ClassVar[bool] = False
    """True if a transaction that has read the table is aborted when it writes to the table while an ALTER waits."""
    works_in_a_shell: ClassVar[bool] = False
    """True if no rows are lost when somebody pastes the statements into a shell, which continues after an error."""

    def __init__(
        self, target: PublicIdColumn, dialect: Dialect, consent: Consent | None = None, *, online: bool = True
    ) -> None:
        self.target = target
        self.dialect = dialect
        for kind in ("schema", "table", "column", "unique_name"):
            name: str | None = getattr(target, kind)
            problem = None if name is None and kind == "schema" else self._problem(name or "", kind)
            if problem is not None:
                raise ConfigurationError(f"the name of the {kind}, {safe_repr(name)}, {problem}: choose another one")
        if target.invisible and not self.hides_columns:
            raise ConfigurationError(f"{dialect.name} cannot hide a column; leave out invisible=True")
        require_text_index(f"the column {target}", target.sql_type, target.format.max_length, dialect)
        self.online = online
        self.consent: Consent = consent or Consent()
        self.defaults: ServerDefaults = self.defaults_of(dialect)
        self.schema: str = f"{self.quoted(target.schema)}." if target.schema else ""
        self.table: str = quoted_table(target.table, target.schema, dialect)
        self.column: str = self.quoted(target.column)
        self.unique: str = self.quoted(target.unique_name)
        self.unique_columns: str = ", ".join(map(self.quoted, target.unique_columns))

    @cached_property
    def type(self) -> str:
        """The type of a new column, which depends on what the server of :func:`~.databases.live_table` has."""
        target, traits = self.target, traits_for(self.dialect)
        written = column_type(target.format, traits, sql_type=target.sql_type, is_created=True)
        return self.dialect.type_compiler_instance.process(written)

    def _problem(self, name: str, kind: str) -> str | None:
        """Return why the database would refuse or truncate the *name* of a table, column, index or schema."""
        if not name:
            return "is empty"
        if "\0" in name:
            return "contains NUL, which no database accepts in a name"
        return "ends with a newline, and SQLAlchemy does not quote it" if name.endswith("\n") else None

    def quoted(self, name: str) -> str:
        return quoted(name, self.dialect)

    def literal(self, text: str) -> str:
        return literal(text, self.dialect)

    def unique_of(self, state: State) -> str:
        """Return the quoted name of the unique index or constraint that the column has or will get."""
        return self.unique if state.unique is None else self.quoted(state.unique.name)

    @property
    def collation(self) -> str | None:
        """The collation that an existing column should get."""
        return self.bytewise if self.target.collation == "bytes" else self.target.collation

    def changes_collation(self, state: State) -> bool:
        """Return True if the collation of the column has to change."""
        return self.collation is not None and state.collation not in (None, self.collation)

    def becomes_ascii(self, state: State) -> bool:
        """Return True if the column will store no characters outside of ASCII any more."""
        return False

    def how_to_change_collation(self) -> str:
        """Return what a user has to write so that the column compares bytes."""
        return 'pass collation="bytes" to change it; columns that are joined with this one need the same change'

    @property
    def generates_ids(self) -> bool:
        """True if the database generates ids, at least until the column is complete."""
        return self.target.server_default != "none"

    @property
    def can_fill_stragglers(self) -> bool:
        """True if the contract itself gives ids to the few rows that were inserted after the backfill."""
        return False

    @property
    @abstractmethod
    def bytewise(self) -> str:
        """The collation that compares bytes, which a new column of public ids gets."""

    @classmethod
    @abstractmethod
    def defaults_of(cls, dialect: Dialect) -> ServerDefaults:
        """Return the server defaults with which the database of *dialect* generates ids."""

    def has_own_default(self, state: State) -> bool:
        """Return True if the server default of the column is an expression of this library."""
        return state.default is not None and self.defaults.is_generated(state.default, self.target.format)

    def lacks_default(self, state: State) -> bool:
        """Return True if the column has no server default, but should keep one that generates ids."""
        if self.target.server_default == "replace":
            return state.exists and not self.has_own_default(state)
        return state.exists and state.default is None and self.target.server_default == "keep"

    def wants_default(self, state: State) -> bool:
        """Return True if a step sets the server default: there is none, or one that should be replaced."""
        return self.generates_ids and (state.default is None or self.lacks_default(state))

    def renew_default(self) -> list[Step]:
        """Return the steps that replace the server default of an earlier version of this library."""
        return []

    @abstractmethod
    def expand(self) -> list[Step]:
        """Return the steps that add the column, which new rows set, and which is NULL in existing rows."""

    @abstractmethod
    def contract(self) -> list[Step]:
        """Return the steps that make the column unique and NOT NULL."""

    @abstractmethod
    def loosen(self) -> list[Step]:
        """Return the steps that restore the result of :meth:`expand`."""

    @abstractmethod
    def drop(self) -> list[Step]:
        """Return the steps that remove the column."""

    def drop_unfinished(self) -> list[Step]:
        """Return the steps that remove what a failed build of the unique index has left."""
        return []

    def steps_of(self, phases: Sequence[Phase]) -> list[tuple[Phase, Step]]:
        """Return the steps of *phases*, each with its phase; the backfill has none."""
        return [(phase, step) for phase in phases if phase != "backfill" for step in getattr(self, phase)()]

    @abstractmethod
    def rights(self, migration: Migration) -> list[str]:
        """Return the rights that the phases need."""

    def may_read(self, migration: Migration) -> bool:
        """Return True if the user may read the rows of the table."""
        return True

    @abstractmethod
    def obstacles(self, migration: Migration) -> Iterator[Obstacle]:
        """Yield the obstacles to the phases that the catalogs show."""

    def read_stored_code(self, migration: Migration, change: Change) -> StoredCode:
        """Return what the *change* of the table breaks in the code that the database stores, and what was not read."""
        return StoredCode(not_examined=("the triggers, functions and views of this database",))

    def find_statements(self, migration: Migration, change: Change) -> Sequence[BrokenStatement]:
        """Return what the *change* breaks among the statements of which the database has kept statistics."""
        return ()

    def rehearse(self, migration: Migration) -> Iterator[Obstacle]:
        """Yield an obstacle for the first step that the server refuses on an empty copy of the table.

        PostgreSQL has no rehearsal, because it cannot copy a table with its dependants and without its rows.
        """
        yield from ()

    def warnings(self, migration: Migration) -> Iterator[str]:
        """Yield a warning for each effect of the phases on other servers, and for what they leave as it is."""
        yield from ()

    def scripts(self, lock_timeout: float) -> dict[Phase, list[str]]:
        """Return the statements of the phases that do not depend on the table; a script (``--sql``) has only these.

        :param lock_timeout: the time that a statement waits for its lock, in seconds.
        """
        return {}


@dataclass(frozen=True)
class Migration:
    """A migration of one table: its plan, and the state in which it begins. All checks share what it has read."""

    table: LiveTable
    plan: Plan
    phases: Sequence[Phase]
    state: State
    runs: bool = False
    """True if the phases run after the checks."""
    is_stable: bool = True
    """False behind a pooler that changes the session of PostgreSQL."""
    read_only: str | None = None
    """Why nothing can be changed through the connection, if it is known that nothing can."""

    @property
    def target(self) -> PublicIdColumn:
        return self.plan.target

    @property
    def consent(self) -> Consent:
        return self.plan.consent

    @cached_property
    def steps(self) -> list[tuple[Phase, Step]]:
        """The steps that are needed, each with its phase; the backfill has none."""
        return [(phase, step) for phase, step in self.plan.steps_of(self.phases) if step.statements(self.state)]

    @property
    def begins_with_index(self) -> bool:
        """True if the phases run now, and change nothing before the unique index is built."""
        is_contract = [*self.phases] == ["contract"] and self.plan.online and self.consent.on_invalid != "replace"
        return self.runs and is_contract and not self.plan.changes_collation(self.state)

    @cached_property
    def fills_rows(self) -> bool:
        """True if the backfill will change rows, as far as the user may see them."""
        if "backfill" not in self.phases:
            return False
        return not self.plan.may_read(self) or self.table.has_rows_to_fill(self.state)

    @cached_property
    def triggers(self) -> list[str]:
        """The triggers that an UPDATE of the column fires."""
        return self.table.update_triggers()

    @property
    def change(self) -> Change | None:
        """The column that the table gets or loses, as programs see it."""
        target, state = self.target, self.state
        was_seen = state.exists and not state.is_invisible
        if "drop" in self.phases:
            return Change(target.column, adds=False) if state.exists else None
        if target.invisible is None or not {"expand", "contract", "loosen"} & {*self.phases}:
            is_seen = was_seen or ("expand" in self.phases and not state.exists)
        else:
            is_seen = not target.invisible
        return None if was_seen == is_seen else Change(target.column, adds=is_seen)

    @cached_property
    def stored_code(self) -> StoredCode:
        """What the change breaks in the code that the database stores."""
        return StoredCode() if self.change is None else self.plan.read_stored_code(self, self.change)
