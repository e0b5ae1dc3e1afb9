"""The traits that the library needs from a database, with cautious answers for one that it does not support."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlalchemy import ARRAY, BINARY, BigInteger, ColumnElement, Float, LargeBinary, String, any_, bindparam
from sqlalchemy.engine import Connection, Dialect, ExecutionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.errors import ConfigurationError


class Outcome(enum.Enum):
    """The fate of a transaction that ended with an error."""

    FAILED = enum.auto()
    """It was rolled back, and would fail again."""
    RETRYABLE = enum.auto()
    """It was rolled back in favor of other transactions, or has to be. It can be repeated from its beginning."""
    UNKNOWN = enum.auto()
    """If its COMMIT was sent, it may be committed; otherwise, it was rolled back."""


class KeyCounter(enum.Enum):
    """What counts the keys of a table."""

    SEQUENCE = enum.auto()
    """A sequence with limits of its own, which the default of the column calls."""
    AUTO_INCREMENT = enum.auto()
    """An attribute of the table, which counts on from the largest key."""
    SQLITE_SEQUENCE = enum.auto()
    """A row of the table ``sqlite_sequence``, which counts on from the largest key."""


class LimitPerRow(enum.Enum):
    """The form in which a statement selects up to so many rows for each row of another table, with an index."""

    LATERAL = enum.auto()
    """``JOIN LATERAL (SELECT … LIMIT …)``."""
    CORRELATED = enum.auto()
    """``JOIN … ON key IN (SELECT … LIMIT …)``, where the subquery names the other table."""
    UNION = enum.auto()
    """A SELECT with a LIMIT for each row, joined by ``UNION ALL``."""


@dataclass(frozen=True)
class Violation:
    """A duplicate that the database refused, as the driver reports it."""

    constraint: str | None = None
    """The constraint or index, if the driver names it. The name of the table may precede it."""
    columns: str | None = None
    """The columns of the constraint, if the driver names them: ``table.column, table.column``."""
    entry: tuple[str, str] | None = None
    """The column and the refused value as the database formats it, if the driver reports them for a single column."""


class Traits:
    """The traits of a database that the library does not support: nothing is retried, nothing is assumed."""

    retries: bool = False
    """True if collisions are retried."""
    no_retries: str = "the library does not know how this database reports one"
    """Why collisions are not retried, for the log."""
    aborts_transaction: bool = True
    """True if a failed statement aborts the transaction, so that only a savepoint allows another attempt."""
    reads_old_snapshot: bool = False
    """True if a plain SELECT may miss the committed row that an INSERT collided with; a locking read does not."""
    commits_each_row: bool = False
    """True if the driver's ``executemany`` commits each row by itself under AUTOCOMMIT."""
    max_parameters: int | None = 900
    """The limit of bound parameters in one statement; ``None`` if no limit is within reach."""
    array_parameters: bool = False
    """True if a list is sent as one parameter, ``= ANY(:ids)``, so that no limit applies."""
    indexes_row_values: bool = True
    """True if ``(a, b) > (1, 2)`` uses an index on both columns."""
    nulls_are_largest: bool = False
    """True if ORDER BY sorts NULL after all values, False if before them."""
    sorts_enums_by_position: bool = False
    """True if ORDER BY sorts a native ENUM in another order than its comparisons do."""
    indexes_text: bool = True
    """True if an index of a TEXT column has its whole values, and needs no length."""
    key_counter: KeyCounter | None = None
    """What counts keys; ``None`` if that is unknown, so that no range can limit them."""
    has_row_locks: bool = True
    """False if a transaction that writes locks the whole database."""
    escapes_reflected_names: bool = False
    """True if SQLAlchemy reflects a quote inside the name of a column as two quotes."""

    # Codes of errors, as error_code() returns them.
    permission_errors: ClassVar[frozenset[object]] = frozenset()
    """The role lacks a privilege."""
    savepoint_errors: ClassVar[frozenset[object]] = frozenset()
    """A storage engine that takes part in the transaction has no savepoints."""
    lock_errors: ClassVar[frozenset[object]] = frozenset()
    """A lock timeout, or a deadlock."""
    conflict_errors: ClassVar[frozenset[object]] = frozenset()
    """The database has rolled back the transaction: a deadlock, or a conflict with its snapshot."""
    commit_errors: ClassVar[frozenset[object]] = frozenset()
    """A cluster has refused the COMMIT; :meth:`outcome` tells whether the reason was another transaction."""
    retryable_errors: ClassVar[frozenset[object]] = frozenset()
    """:attr:`Outcome.RETRYABLE`."""
    unknown_errors: ClassVar[frozenset[object]] = frozenset()
    """:attr:`Outcome.UNKNOWN`."""
    overload_errors: ClassVar[frozenset[object]] = frozenset()
    """A lock that was not available, or too many connections. An application may provoke these on purpose."""

    def limit_per_row(self, dialect: Dialect) -> LimitPerRow:
        """Return the form for a connected server; every database has ``UNION ALL``."""
        return LimitPerRow.UNION

    def any_of(
        self, column: Any, values: Sequence[Any], type_: TypeEngine[Any] | None = None
    ) -> Iterator[ColumnElement[bool]]:
        """Yield conditions that together select the rows whose *column* is one of *values*: as few as possible."""
        return (self.is_one_of(column, part, type_) for part in self.parts(values))

    def parts(self, values: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Yield *values* in parts, each of which one statement can send: as few as possible."""
        size = len(values) if self.array_parameters else self.max_parameters or len(values)
        for at in range(0, len(values), size or 1):
            yield values[at : at + size]

    def is_one_of(
        self, column: Any, values: Sequence[Any], type_: TypeEngine[Any] | None = None, name: str | None = None
    ) -> ColumnElement[bool]:
        """Return the condition that *column* is one of *values*.

        :param type_: the type of the values, if it is not the one of the column.
        :param name: the name of the parameter, if executions of the statement may replace *values*.
        """
        of_item: TypeEngine[Any] = type_ or column.type
        is_list = not self.array_parameters
        parameter = bindparam(
            name, values, unique=name is None, type_=of_item if is_list else ARRAY(of_item), expanding=is_list
        )
        condition: ColumnElement[bool] = column.in_(parameter) if is_list else column == any_(parameter)
        return condition

    def comparable_text(self, value: Any) -> Any:
        """Return *value*, a string or a column of strings, so that comparing it runs no operator of another role."""
        return value

    # --- column types

    def key_type(self, unsigned: bool = True) -> TypeEngine[int]:
        """Return the column type of an autoincrementing key; unsigned only where the database has such a type."""
        return BigInteger()

    def text_type(self, length: int) -> TypeEngine[str]:
        """Return the column type for ids of up to *length* ASCII characters, compared byte by byte."""
        return String(length)

    def column_text(self, length: int) -> TypeEngine[str]:
        """Return the type of :meth:`text_type` for a column, whose DDL may depend on the server that creates it."""
        return self.text_type(length)

    def before_create(self, connection: Connection) -> None:
        """Ask the server of *connection* what the DDL of :meth:`column_text` depends on."""

    def integer_type(self, bits: int) -> TypeEngine[Any]:
        """Return the column type that stores an integer of *bits* bits, and sorts by its value."""
        return BigInteger() if bits == 64 else LargeBinary(bits // 8)

    def to_native(self, number: int, bits: int) -> Any:
        """Return *number* as a value for a column of :meth:`integer_type`."""
        return number if bits == 64 else number.to_bytes(bits // 8, "big")

    def from_native(self, value: Any) -> int:
        """Return the integer for a *value* from a column of :meth:`integer_type`."""
        try:
            return value if isinstance(value, int) else int.from_bytes(value, "big")
        except TypeError:
            raise ConfigurationError(
                "the column holds text, but the format of its ids stores numbers; give the format storage='text', and "
                "accept the ids that the rows have: .accepting(older_format)"
            ) from None

    def literal(self, value: Any) -> str:
        """Return a result of :meth:`to_native` as an SQL literal."""
        return str(value) if isinstance(value, int) else f"X'{value.hex()}'"

    def rounds_values_of_subqueries(self, dialect: Dialect) -> bool:
        """Return True if a decimal expression is rounded as the value of a subquery, and not in a comparison."""
        return False

    def sorted_length(self, type_: TypeEngine[Any], dialect: Dialect) -> int | None:
        """Return how many characters of values of *type_* ORDER BY sees for sure, if comparisons see more of them."""
        return None

    def float_to_cast(self, type_: Float[Any]) -> TypeEngine[Any]:
        """Return the type of a CAST that rounds as a column of *type_* does."""
        return type_

    def sorts_json(self, dialect: Dialect) -> bool:
        """Return False if ORDER BY sorts arrays and objects of JSON in another order than comparisons do."""
        return True

    # --- errors

    def error_code(self, error: BaseException | None) -> object:
        """Return the number or SQLSTATE of a DBAPI *error*; ``None`` if it has none."""
        return None

    def violation(self, error: Exception) -> Violation | None:
        """Return the duplicate that the DBAPI *error* reports; ``None`` if it is another error."""
        return None

    def format_in_error(self, value: Any) -> str:
        """Return a string, or a result of :meth:`to_native`, as it appears in :attr:`Violation.entry`."""
        return str(value)

    def outcome(self, error: Exception) -> Outcome:
        """Return what became of the transaction. SQLAlchemy detects a lost connection by itself."""
        code = self.error_code(error)
        if code in self.retryable_errors:
            return Outcome.RETRYABLE
        return Outcome.UNKNOWN if code in self.unknown_errors else Outcome.FAILED

    def is_permission_error(self, error: DBAPIError) -> bool:
        """Return True if the role lacks the privilege for the statement, and the connection can go on."""
        return not error.connection_invalidated and self.error_code(error.orig) in self.permission_errors

    # --- connections and tables

    def in_autocommit(self, dbapi_connection: Any) -> bool:
        """Return True if each statement commits by itself, so that there is no transaction to save."""
        return False

    def in_transaction(self, dbapi_connection: Any) -> bool:
        """Return True if there is a transaction, which a failed statement may have rolled back."""
        return True

    def sees_commits(self, dbapi_connection: Any, dialect: Dialect) -> bool:
        """Return True if a statement sees what others have committed since the transaction began."""
        return True

    def is_in_memory(self, connection: Connection) -> bool:
        """Return True if the database exists only for this connection."""
        return False

    def failing_at_locks(self, connection: Connection) -> AbstractContextManager[None]:
        """Let a statement with ``FOR UPDATE NOWAIT`` fail at a lock if the database ignores this clause."""
        return nullcontext()

    def begin(self, connection: PoolProxiedConnection) -> None:
        """Begin the transaction, if the driver would otherwise begin it with the next INSERT, after a SAVEPOINT."""

    def defers_result(self, context: ExecutionContext) -> bool:
        """Return True if the result of a statement is not available yet when it has been sent."""
        return False

    def forget_statement(self, cursor: Any) -> None:
        """Free the statement of *cursor* if it would keep the locks of a connection that is closed.

        Python 3.14 frees it, too, but raises the error of the statement again.
        """

    def engine_without_transactions(self, connection: Connection, table: str, schema: str | None) -> str | None:
        """Return the name of the table's storage engine if a failed statement leaves the rows that it has written."""
        return None

    def forbids_on_conflict(self, connection: Connection, table: str, schema: str | None) -> bool:
        """Return True if INSERTs into the table must not have ``ON CONFLICT DO NOTHING``.

        The table has triggers or rules that run even for a skipped row, or a deferrable constraint.
        """
        return False


# --- databases that are not guarded: columns that can be indexed, and are compared byte by byte. Their DDL is tested as
# text, without a server. On Oracle, SQLAlchemy's type for bytes is a large object, which cannot be indexed.


class Oracle(Traits):
    """Oracle Database. Its indexes and comparisons of ``VARCHAR2`` are binary, unless a session sets ``NLS_COMP``."""

    nulls_are_largest = True
    indexes_text = False

    def integer_type(self, bits: int) -> TypeEngine[Any]:
        from sqlalchemy.dialects.oracle import RAW  # only programs with Oracle need it

        return BigInteger() if bits == 64 else RAW(bits // 8)

    def literal(self, value: Any) -> str:
        return f"HEXTORAW('{value.hex()}')" if isinstance(value, bytes) else super().literal(value)


class SQLServer(Traits):
    """SQL Server. Numbers of 128 bits are bytes, because a ``UNIQUEIDENTIFIER`` is sorted by its last bytes first."""

    indexes_text = False

    def text_type(self, length: int) -> TypeEngine[str]:
        """Return a type with a binary collation: for the usual ones, ``aB`` equals ``Ab``."""
        return String(length, collation="Latin1_General_BIN2")

    def integer_type(self, bits: int) -> TypeEngine[Any]:
        return BigInteger() if bits == 64 else BINARY(bits // 8)

    def literal(self, value: Any) -> str:
        return f"0x{value.hex()}" if isinstance(value, bytes) else super().literal(value)


def execute_unlogged(connection: PoolProxiedConnection, sql: str) -> None:
    """Execute *sql* with a cursor of its own, which SQLAlchemy neither logs nor shows to listeners."""
    cursor = connection.cursor()
    try:
        cursor.execute(sql)
    except BaseException:
        # a lost connection may refuse to close its cursor, and that error would hide the reason
        with suppress(Exception):
            cursor.close()
        raise
    cursor.close()
