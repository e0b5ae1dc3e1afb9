"""What the library needs to know of a database, with the careful answers for one it does not know."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ARRAY, BigInteger, ColumnElement, LargeBinary, String, any_, bindparam
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.types import TypeEngine

__all__ = ["Fate", "ManyRows", "Traits", "Violation"]


class Fate(enum.Enum):
    """What an error says of the transaction that it has ended."""

    FINAL = enum.auto()
    """Nothing that would make a difference: it would fail again."""
    UNDONE = enum.auto()
    """It was given up in favour of others, or has to be, and can be run again from its beginning."""
    UNKNOWN = enum.auto()
    """Nobody can tell any more. If its COMMIT was sent it may be committed, and is undone otherwise."""


class ManyRows(enum.Enum):
    """What the driver's ``executemany`` sends, and so how much of it a collision undoes."""

    ALL_OR_NOTHING = enum.auto()
    """One unit: either all rows are there afterwards, or none (inside a savepoint)."""
    ROW_BY_ROW = enum.auto()
    """Row after row, each taken from the given iterable just before it is sent: the rows before the failed one stay."""
    SLICES = enum.auto()
    """Multi-row statements of limited size; the slices before the failed one stay."""


@dataclass(frozen=True)
class Violation:
    """A refused duplicate, as the driver reports it."""

    constraint: str | None = None
    """The name of the constraint or index, where the driver gives it; the name of the table may stand before it."""
    columns: str | None = None
    """The columns of the constraint, where the driver gives them: ``table.column, table.column``."""
    entry: tuple[str, str] | None = None
    """The column and the refused value as the database writes it, where the driver gives them and it is one column."""


class Traits:
    """The answers for a database that the library does not know: nothing is retried, nothing is assumed."""

    retries: bool = False
    """Whether collisions are retried here."""
    aborts_transaction: bool = True
    """Whether a failed statement aborts the transaction, so that it needs a savepoint to be tried again."""
    reads_old_snapshot: bool = False
    """Whether a plain SELECT may miss the committed row that an INSERT has just run into; a locking read does not."""
    returns_in_order: bool = True
    """Whether RETURNING, where the database has it, can be matched to the rows that were sent."""
    many_rows: ManyRows = ManyRows.ALL_OR_NOTHING
    max_parameters: int | None = 900
    """How many bound parameters a statement may have; ``None`` where there is no limit to reach."""
    array_parameters: bool = False
    """Whether a list is sent as one parameter, ``= ANY(:ids)``, so that no limit applies."""

    def any_of(
        self, column: Any, values: Sequence[Any], type_: TypeEngine[Any] | None = None
    ) -> Iterator[ColumnElement[bool]]:
        """Conditions that together select the rows where *column* is one of *values*, as few as the database allows."""
        if self.array_parameters and values:
            yield column == any_(bindparam(None, values, unique=True, type_=ARRAY(type_ or column.type)))
            return
        size = self.max_parameters or len(values)
        for at in range(0, len(values), size or 1):
            part = bindparam(None, values[at : at + size], unique=True, type_=type_ or column.type, expanding=True)
            yield column.in_(part)

    def text(self, length: int) -> TypeEngine[str]:
        """The column type that stores ids of up to *length* ASCII characters and compares them byte by byte."""
        return String(length)

    def native(self, bits: int) -> TypeEngine[Any]:
        """The column type that stores a number of so many *bits*, and sorts by it."""
        return BigInteger() if bits == 64 else LargeBinary(bits // 8)

    def to_native(self, number: int, bits: int) -> Any:
        """*number* as the column type of :meth:`native` takes it."""
        return number if bits == 64 else number.to_bytes(bits // 8, "big")

    def from_native(self, value: Any) -> int:
        """The number that a column of :meth:`native` answered."""
        return value if isinstance(value, int) else int.from_bytes(value, "big")

    def literal(self, value: Any) -> str:
        """What :meth:`to_native` answers, as SQL writes it."""
        return str(value) if isinstance(value, int) else f"X'{value.hex()}'"

    def violation(self, error: Exception) -> Violation | None:
        """What the DBAPI *error* says about a refused duplicate; ``None`` if it is another error."""
        return None

    def forbids(self, error: BaseException | None) -> bool:
        """Whether the DBAPI *error* says that the role has not the right to do that."""
        return False

    def written(self, value: Any) -> str:
        """What :meth:`to_native` answers, or a text, as :attr:`Violation.entry` has it."""
        return str(value)

    def fate(self, error: Exception) -> Fate:
        """What the DBAPI *error* says of the whole transaction; SQLAlchemy knows a lost connection by itself."""
        return Fate.FINAL

    def in_autocommit(self, dbapi_connection: Any) -> bool:
        """Whether each statement commits by itself, so that there is no transaction to save."""
        return False

    def sees_commits(self, dbapi_connection: Any, dialect: Dialect) -> bool:
        """Whether a statement of the connection sees what others have committed since its transaction began."""
        return True

    def defers_results(self, driver_connection: Any) -> bool:
        """Whether the driver only queues statements at present, so that nobody knows what has become of one."""
        return False

    def forget_statement(self, cursor: Any) -> None:
        """Free the statement of *cursor*, where that would keep the locks of a connection that is closed."""

    def engine_without_transactions(self, connection: Connection, table: str, schema: str | None) -> str | None:
        """Return the name of the engine of the table if a statement that fails leaves the rows that it has written."""
        return None

    def early_triggers(self, connection: Connection, table: str, schema: str | None) -> list[str]:
        """Return the names of the triggers that run even for a row that ``ON CONFLICT DO NOTHING`` leaves out."""
        return []

    def slice_bytes(self, driver: str) -> int:
        """How many bytes *driver* puts into one multi-row statement at most (:attr:`ManyRows.SLICES` only)."""
        return 0
