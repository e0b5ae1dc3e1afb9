"""The state of a column of public ids, as the catalogs describe it before each step of a migration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlalchemy_public_id.errors import Obstacle


@dataclass(frozen=True)
class IndexFacts:
    """An index, or the index of a constraint."""

    name: str
    unique: bool
    valid: bool = True
    """False after a failed ``CREATE INDEX CONCURRENTLY`` on PostgreSQL."""
    partial: bool = False
    constraint: bool = False
    """True if it belongs to a UNIQUE or PRIMARY KEY constraint."""
    primary: bool = False
    only_column: str | None = None
    """Its column, if it has only one, and indexes it as a whole."""
    deferrable: bool = False
    """True if PostgreSQL may defer the check for duplicates until COMMIT."""
    prefix_of: str | None = None
    """Its column, if it indexes only a prefix of the values (MySQL and MariaDB)."""
    prefix: int = 0
    """The length of this prefix in characters."""
    kind: str = ""
    """The method of the index in lower case, such as ``btree`` or ``fulltext``, if it is known."""

    @property
    def guards(self) -> bool:
        """True if it keeps duplicates out."""
        return self.unique and self.valid and not self.partial and self.prefix_of is None

    def can_be_unique_index_of(self, column: str) -> bool:
        """Return True if it is the unique index of *column*, or will be when its build is finished."""
        return self.unique and not self.partial and not self.deferrable and self.only_column == column

    def is_on(self, column: str) -> bool:
        """Return True if it is on *column* alone, or on a prefix of it."""
        return column in {self.only_column, self.prefix_of}


@dataclass(frozen=True)
class StoredTable:
    """A table as SQLite's schema stores it, from which a copy is created."""

    sql: str
    """The CREATE TABLE statement, without the schema."""
    others: tuple[str, ...]
    """The statements of its indexes and triggers."""
    columns: tuple[str, ...]
    """The columns that are stored, without computed ones."""
    counter: int | None
    """The largest key that AUTOINCREMENT has generated; ``None`` if the table does not use it."""
    is_referred_to: bool
    """True if the foreign keys of other tables would fire, or fail, when the table is dropped."""
    is_strict: bool
    legacy: int
    """``PRAGMA legacy_alter_table``, which making a copy changes."""


@dataclass(frozen=True)
class State:
    """The column of public ids as a migration has left it so far."""

    exists: bool = False
    schema: str = ""
    """The schema of the table and its indexes on PostgreSQL, quoted."""
    type: str | None = None
    """The type as DDL, with the character set on MySQL and MariaDB, and without the collation on PostgreSQL."""
    nullable: bool = True
    collation: str | None = None
    """The collation; None if the type has none, and on SQLite."""
    order: str | None = None
    """The collation that orders the column on PostgreSQL: the database's collation if the column has ``default``."""
    exact: bool = True
    """True if an id is found only by its exact spelling, whatever collation orders the ids."""
    comment: str | None = None
    attributes: str = ""
    """The attributes that a MODIFY of MySQL or MariaDB has to repeat besides type, default and comment, as SQL."""
    default: str | None = None
    """The expression of the server default, whether this library has set it or not."""
    calls: tuple[str, ...] = ()
    """The operators and functions outside of PostgreSQL's ``pg_catalog`` that the server default calls."""
    filled: bool = False
    """True if a BEFORE INSERT trigger mentions the column."""
    unique: IndexFacts | None = None
    """The index, of a constraint or not, that makes the column unique, whatever its name is. An index that is not valid
    counts only if it has the name that a migration gives it."""
    constrained: bool = False
    """True if a UNIQUE constraint, of whatever name, is on the column alone."""
    check: bool = False
    """True if the temporary CHECK constraint that forbids NULL exists."""
    checked: bool = False
    """True if that constraint is validated for the existing rows."""
    builder: int | None = None
    """The process of PostgreSQL that is building an index of the table, if there is one."""
    versioned: bool = False
    """True if MariaDB keeps the history of the table's rows."""
    stored: StoredTable | None = None
    """The table of SQLite."""
    indexes: tuple[IndexFacts, ...] = ()
    """All indexes of the table."""
    misfit: Obstacle | None = None
    """Why the table cannot have such a column, or a unique index on it alone, whatever its rows and the rights are."""

    @property
    def index(self) -> bool:
        """True if the unique index exists, valid or not."""
        return self.unique is not None

    @property
    def valid(self) -> bool:
        """True if the unique index exists, and keeps duplicates out."""
        return self.unique is not None and self.unique.valid

    @property
    def constraint(self) -> bool:
        """True if the unique index belongs to a constraint."""
        return self.unique is not None and self.unique.constraint

    @property
    def complete(self) -> bool:
        """True if the column is NOT NULL and unique, and an id is found only by its exact spelling."""
        return self.exists and not self.nullable and self.valid and self.exact

    def with_indexes(self, indexes: Iterable[IndexFacts], column: str, unique_name: str) -> State:
        """Return the state with the *indexes* of the table, of which one may make *column* unique."""
        state = replace(self, indexes=tuple(indexes))
        found = [index for index in state.indexes if index.can_be_unique_index_of(column) and not index.primary]
        found.sort(key=lambda index: (not index.valid, index.name != unique_name))
        unique = next((index for index in found if index.valid or index.name == unique_name), None)
        return replace(state, unique=unique, constrained=any(index.constraint for index in found))
