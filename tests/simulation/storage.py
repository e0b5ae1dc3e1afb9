"""A database in memory, as far as INSERTs can see one: rows, unique indexes, transactions, savepoints.

What PostgreSQL, InnoDB and SQLite do differently is an attribute of :class:`Family`. Statements are in ``sql.py``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Wait: TypeAlias = "Callable[[Transaction, object, Callable[[], bool]], None]"


class Refusal(Exception):
    """A statement that the database refuses. The driver makes an error of its family of it."""

    def __init__(self, kind: Kind, index: Index | None = None, values: tuple[Any, ...] = ()) -> None:
        super().__init__(kind.value)
        self.kind = kind
        self.index = index
        self.values = values


class Kind(enum.Enum):
    """The reasons of a refusal."""

    UNIQUE = "a value is taken"
    NOT_NULL = "a value is missing"
    DEADLOCK = "two transactions wait for each other"
    SERIALIZATION = "another transaction has changed what this one has read"
    TIMEOUT = "the lock was not available in time"
    ABORTED = "the transaction has failed"
    NO_SAVEPOINT = "there is no such savepoint"
    LOST = "the connection is lost"


@dataclass(frozen=True)
class Family:
    """The behaviour that a family of databases has."""

    name: str
    aborts: bool = False
    """True if a statement that fails aborts the transaction until it is rolled back, at least to a savepoint."""
    one_writer: bool = False
    """True if a transaction that writes locks the database against other writers."""
    isolation: str = "READ COMMITTED"
    """The isolation level of a connection that sets none."""
    returning: bool = True
    ends_on_deadlock: bool = False
    """True if a deadlock rolls back the whole transaction, so that the connection has none afterwards."""


POSTGRESQL = Family("postgresql", aborts=True)
MYSQL = Family("mysql", isolation="REPEATABLE READ", returning=False, ends_on_deadlock=True)
MARIADB = Family("mariadb", isolation="REPEATABLE READ", ends_on_deadlock=True)
SQLITE = Family("sqlite", one_writer=True, isolation="SERIALIZABLE")
FAMILIES = {family.name: family for family in (SQLITE, POSTGRESQL, MYSQL, MARIADB)}


@dataclass(frozen=True)
class Index:
    """A unique index."""

    name: str
    table: str
    column: str


@dataclass(eq=False)
class Row:
    """A row, and the transaction that has inserted it."""

    values: dict[str, Any]
    made_by: Transaction


@dataclass(eq=False)
class Table:
    """Rows, and what an INSERT runs into."""

    name: str
    columns: tuple[str, ...]
    indexes: tuple[Index, ...] = ()
    required: tuple[str, ...] = ()
    before_insert: dict[str, Callable[[Transaction, dict[str, Any]], dict[str, Any] | None]] = field(
        default_factory=dict
    )
    """Name → trigger. It may write to other tables, and returns None to leave the row out."""
    rows: list[Row] = field(default_factory=list)
    next_key: int = 1


class Transaction:
    """A transaction of one connection, with an undo log that savepoints are positions of."""

    def __init__(self, database: Database, owner: object, isolation: str) -> None:
        self.database = database
        self.owner = owner
        self.isolation = isolation
        self.state = "active"
        self.committed_at = 0
        self.snapshot: int | None = None
        self.log: list[tuple[Row, Table]] = []
        self.savepoints: list[tuple[str, int]] = []
        self.is_aborted = False

    # --- reading

    def begin_statement(self) -> None:
        """Take the snapshot that the statement reads."""
        if self.snapshot is None or self.isolation in {"READ COMMITTED", "READ UNCOMMITTED"}:
            self.snapshot = self.database.clock

    def sees(self, row: Row, *, latest: bool = False) -> bool:
        """Return True if the row is there for this transaction; with *latest*, as it is committed now."""
        other = row.made_by
        if other is self:
            return True
        if other.state != "committed":
            return False
        return latest or self.snapshot is None or other.committed_at <= self.snapshot

    def scan(self, table: Table, *, lock: bool = False) -> Iterator[Row]:
        """Yield the visible rows of *table*; a locking read waits for those that others have just written."""
        for row in list(table.rows):
            if lock:
                while (other := self._other_writer(row)) is not None:
                    self.database.wait(self, other)
                if row not in table.rows:
                    continue
            if self.sees(row, latest=lock):
                yield row

    def _other_writer(self, row: Row) -> Transaction | None:
        writer = row.made_by
        return writer if writer is not self and writer.state == "active" else None

    # --- writing

    def insert(
        self, table: Table, values: dict[str, Any], skips: frozenset[str] | None = frozenset()
    ) -> dict[str, Any] | None:
        """Insert a row and return it. Return None if it is left out: by a trigger, or because a value is taken.

        :param skips: the columns with unique indexes whose taken values leave a row out; None for all of them.
        """
        self.database.lock_for_writing(self)
        values = {column: values.get(column) for column in table.columns}
        if values["id"] is None:
            values["id"] = table.next_key
        table.next_key = max(table.next_key, values["id"] + 1)
        for trigger in table.before_insert.values():
            result = trigger(self, values)
            if result is None:
                return None
            values = result
        for column in table.required:
            if values[column] is None:
                raise Refusal(Kind.NOT_NULL)
        for index in table.indexes:
            taken = self._find_taken(table, index, values[index.column])
            if taken is None:
                continue
            if skips is not None and index.column not in skips:
                raise Refusal(Kind.UNIQUE, index, (values[index.column],))
            if self.database.family.aborts and self.isolation != "READ COMMITTED" and not self.sees(taken):
                raise Refusal(Kind.SERIALIZATION)
            return None
        row = Row(values, self)
        table.rows.append(row)
        self.log.append((row, table))
        return values

    def _find_taken(self, table: Table, index: Index, value: Any) -> Row | None:
        """Return the row that has *value*, after others have decided whether it stays."""
        while value is not None:
            same = [row for row in table.rows if row.values[index.column] == value]
            undecided = [writer for row in same if (writer := self._other_writer(row)) is not None]
            live = [row for row in same if self.sees(row, latest=True)]
            if not undecided:
                return live[0] if live else None
            self.database.wait(self, undecided[0])
        return None

    # --- undoing

    def undo_to(self, position: int) -> None:
        """Undo what was written after *position* of the log."""
        while len(self.log) > position:
            row, table = self.log.pop()
            table.rows.remove(row)

    def set_savepoint(self, name: str) -> None:
        self.savepoints.append((name, len(self.log)))

    def release(self, name: str) -> None:
        del self.savepoints[self._find_savepoint(name) :]

    def roll_back_to(self, name: str) -> None:
        at = self._find_savepoint(name)
        self.undo_to(self.savepoints[at][1])
        del self.savepoints[at + 1 :]
        self.is_aborted = False

    def _find_savepoint(self, name: str) -> int:
        for at in reversed(range(len(self.savepoints))):
            if self.savepoints[at][0] == name:
                return at
        raise Refusal(Kind.NO_SAVEPOINT)

    def commit(self) -> None:
        self.database.clock += 1
        self.committed_at = self.database.clock
        self._end("committed")

    def roll_back(self) -> None:
        self.undo_to(0)
        self._end("rolled back")

    def _end(self, state: str) -> None:
        self.state = state
        self.savepoints.clear()
        self.database.end(self)


class Database:
    """Tables, the clock of commits, and the locks that are not on rows.

    *wait* is called with a transaction, with the one that it has to wait for, and with a function that returns True as
    soon as it need not wait any longer; it returns then, or raises.
    """

    def __init__(self, family: Family, tables: dict[str, Table], wait: Wait) -> None:
        self.family = family
        self.tables = tables
        self._wait = wait
        self.clock = 1
        self._last_value = 1_000
        self.writer: Transaction | None = None
        self.advisory_locks: dict[str, object] = {}
        """Name → the connection that has the lock."""

    def next_value(self) -> int:
        """Return the next value of the sequence, which no rollback takes back."""
        self._last_value += 1
        return self._last_value

    def wait(self, transaction: Transaction, other: Transaction) -> None:
        """Wait until *other* has ended."""
        self._wait(transaction, other.owner, lambda: other.state != "active")

    def wait_for_lock(self, transaction: Transaction, name: str) -> None:
        """Wait until nobody has the advisory lock *name*."""
        self._wait(transaction, self.advisory_locks[name], lambda: name not in self.advisory_locks)

    def begin(self, owner: object, isolation: str | None) -> Transaction:
        return Transaction(self, owner, isolation or self.family.isolation)

    def lock_for_writing(self, transaction: Transaction) -> None:
        """Lock the database if it has one writer; refuse a transaction whose snapshot is no longer the last."""
        if not self.family.one_writer or self.writer is transaction:
            return
        while self.writer is not None:
            self.wait(transaction, self.writer)
        if transaction.snapshot is not None and transaction.snapshot < self.clock:
            raise Refusal(Kind.TIMEOUT)
        self.writer = transaction

    def end(self, transaction: Transaction) -> None:
        if self.writer is transaction:
            self.writer = None

    def committed(self, table: str) -> list[dict[str, Any]]:
        """Return the rows that everybody sees."""
        return [row.values for row in self.tables[table].rows if row.made_by.state == "committed"]
