"""The state of a column of public ids, as the catalogs describe it before each step of a migration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.migrations.column import PublicIdColumn


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
    columns: tuple[str, ...] = ()
    """Its columns in their order, if it indexes each as a whole."""
    deferrable: bool = False
    """True if PostgreSQL may defer the check for duplicates until COMMIT."""
    prefix_of: str | None = None
    """Its column, if it indexes only a prefix of the values (MySQL and MariaDB)."""
    prefix: int = 0
    """The length of this prefix in characters."""
    kind: str = ""
    """The method of the index in lower case, such as ``btree`` or ``fulltext``, if it is known."""
    shown_by: str = ""
    """The statement after which look-ups use it, if it is INVISIBLE (MySQL) or IGNORED (MariaDB)."""
    by_other_collation: bool = False
    """True if it has a column by another collation than that of the column, so that look-ups cannot use it."""
    part_of: str | None = None
    """The index of the partitioned table of PostgreSQL to which it is attached."""

    @property
    def guards(self) -> bool:
        """True if it keeps duplicates out, and look-ups use it unless it is hidden."""
        is_whole = not self.partial and self.prefix_of is None
        return self.unique and self.valid and is_whole and not self.by_other_collation

    def can_be_unique_index_of(self, *columns: str) -> bool:
        """Return True if it is the unique index of *columns*, in any order, or will be when its build is finished."""
        is_usable = not self.partial and not self.deferrable and not self.by_other_collation
        return self.unique and is_usable and {*self.columns} == {*columns}

    def is_on(self, column: str) -> bool:
        """Return True if it is on *column* alone, or on a prefix of it."""
        return self.columns == (column,) or self.prefix_of == column


@dataclass(frozen=True)
class Partition:
    """A partition of a table of PostgreSQL, on any level."""

    schema: str
    name: str
    parent_schema: str
    parent: str
    kind: str
    """``r`` for a table, ``p`` for one that has partitions itself, ``f`` for a foreign table."""
    is_owned: bool
    checked: bool
    """True if the temporary CHECK constraint that forbids NULL is validated for its rows."""
    indexes: tuple[IndexFacts, ...] = ()

    @property
    def place(self) -> tuple[str, str]:
        """Its schema and name."""
        return self.schema, self.name


@dataclass(frozen=True)
class Demand:
    """What a table demands of a column's values: a CHECK, a domain, a trigger, or a generated column's expression."""

    name: str
    """In words, such as ``the CHECK constraint id_length``."""
    expression: str | None
    """The condition as SQL; ``None`` if the server does not show it."""
    is_ours: bool = False
    """True if the catalogs say that it is about the column; otherwise, the database is asked."""
    why_not: str = ""
    """Why it must not be tried, such as the code of another role that it calls."""


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
    is_invisible: bool = False
    """True if MySQL or MariaDB leaves the column out of ``*`` and of an INSERT without a list of columns."""
    default: str | None = None
    """The expression of the server default, whether this library has set it or not."""
    domain: str | None = None
    """The domain of PostgreSQL that the server default belongs to."""
    calls: tuple[str, ...] = ()
    """The operators and functions outside of PostgreSQL's ``pg_catalog`` that the server default calls."""
    filled: bool = False
    """True if a BEFORE INSERT trigger mentions the column, or if it is an identity column of PostgreSQL."""
    unique: IndexFacts | None = None
    """The index, of a constraint or not, that makes the column unique, whatever its name is. An index that is not valid
    counts only if it has the name that a migration gives it."""
    constrained: bool = False
    """True if a UNIQUE constraint, of whatever name, is on the column and those that it is unique with."""
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
    partition_of: tuple[str, str] | None = None
    """The schema and the name of the table of PostgreSQL of which this one is a partition."""
    partition_keys: tuple[str, ...] = ()
    """The columns by which the table, or one of its partitions, is partitioned."""
    partitions: tuple[Partition, ...] | None = None
    """The partitions of a partitioned table of PostgreSQL, each after the one that it belongs to."""
    misfit: Obstacle | None = None
    """Why the table cannot have such a column, or its unique index, whatever its rows and the rights are."""

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

    @property
    def finds_others(self) -> str:
        """What a collation that is not exact does, in words."""
        example = "" if (self.collation or "").endswith("_cs") else ", such as aB and Ab"
        return f"can treat different ids as equal{example}"

    def with_indexes(self, indexes: Iterable[IndexFacts], target: PublicIdColumn) -> State:
        """Return the state with the *indexes* of the table, of which one may make the column of *target* unique."""
        state, columns = replace(self, indexes=tuple(indexes)), target.unique_columns
        found = [index for index in state.indexes if index.can_be_unique_index_of(*columns) and not index.primary]
        own = target.unique_name

        def rank(index: IndexFacts) -> tuple[bool, ...]:
            # MySQL, MariaDB and SQLite ignore case in the name of an index
            is_named = index.name == own, index.name.lower() == own.lower()
            return not index.valid, *(not each for each in is_named), index.columns != columns

        found.sort(key=rank)
        unique = next((index for index in found if index.valid or index.name == target.unique_name), None)
        return replace(state, unique=unique, constrained=any(index.constraint for index in found))
