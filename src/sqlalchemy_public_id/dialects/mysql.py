"""MySQL and MariaDB: a failed statement is rolled back alone; the error message names the violated index."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from sqlalchemy import BINARY, JSON, VARBINARY, Double, Float, LargeBinary, String, text
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects._base import KeyCounter, LimitPerRow, Outcome, Traits, Violation
from sqlalchemy_public_id.dialects.quoting import quoted_table

_DUPLICATE_ENTRY = 1062
_RETRYABLE_MESSAGES: dict[object, re.Pattern[str]] = {
    # rolled back in favor of a transaction that the group has certified; the words depend on the server's language
    1180: re.compile(r"\D*149\b"),
    # a member that has left its group; other options of the server refuse the statement for good
    1290: re.compile(r".*-read-only\b", re.DOTALL),
}
"""Errors whose message decides if the transaction was rolled back."""
_TABLE = text(
    "SELECT t.engine AS engine, e.transactions AS transactions FROM information_schema.tables t"
    " LEFT JOIN information_schema.engines e ON e.engine = t.engine"
    " WHERE t.table_schema = COALESCE(:schema, DATABASE()) AND t.table_name = :name"
)
_ENGINE = text(
    "SELECT engine AS engine, transactions AS transactions FROM information_schema.engines WHERE engine = :name"
)
_BYTEWISE = {"ascii_bin": "ascii", "utf8mb4_bin": "utf8mb4"}
"""Collation that compares bytes → its character set; the best one first, in which a character takes one byte."""
_COLLATIONS = text(
    "SELECT collation_name AS name FROM information_schema.collations"
    " WHERE collation_name IN ('ascii_bin', 'utf8mb4_bin')"
)
_collations: WeakKeyDictionary[Dialect, str] = WeakKeyDictionary()
"""Dialect of an engine → the best collation that its server has."""
_CREATED = re.compile(r"^\) ENGINE=(\w+)", re.MULTILINE)
_KEY = re.compile(r".*for key '(.*)'\s*$", re.DOTALL)
"""The last one: the value before it is of a user."""
_SORTED_LENGTH = 255
_SINGLE = 24
"""The most bits of a FLOAT of single precision."""


class MySQL(Traits):
    """MySQL and MariaDB, through any driver whose errors begin with the number or have it as ``errno``."""

    retries = True
    aborts_transaction = False
    key_counter: KeyCounter | None = KeyCounter.AUTO_INCREMENT
    reads_old_snapshot = True  # REPEATABLE READ is the default
    # the drivers interpolate values into the statement; max_allowed_packet is 16 MB or more
    max_parameters: int | None = None
    indexes_row_values = False
    sorts_enums_by_position = True
    escapes_reflected_names = True
    indexes_text = False

    permission_errors: ClassVar[frozenset[object]] = frozenset({1142, 1143})  # for the table, for a column
    savepoint_errors: ClassVar[frozenset[object]] = frozenset({1178})
    lock_errors: ClassVar[frozenset[object]] = frozenset({1205, 1213, 3572})  # a lock timeout, a deadlock, NOWAIT
    # a record that has changed since the snapshot (MariaDB), a deadlock
    conflict_errors: ClassVar[frozenset[object]] = frozenset({1020, 1213})
    commit_errors: ClassVar[frozenset[object]] = frozenset({1180, 3101})
    overload_errors: ClassVar[frozenset[object]] = frozenset({1040})
    retryable_errors: ClassVar[frozenset[object]] = frozenset({
        1020,  # the record has changed since the snapshot (MariaDB)
        1047,  # a node of Galera that is not ready: it has refused the statement
        1205,  # a lock timeout; the statement is rolled back, and the caller rolls back the rest
        1213,  # a deadlock; Galera's certification failures, too
        3101,  # Group Replication has refused the transaction
        3796, 3797, 3798, 3799,  # a member of the group that is not ready, or too far behind: it has executed nothing
        8002, 8005, 8022, 8028, 9007,  # TiDB: write conflicts, a failed commit, a changed table
    })  # fmt: skip
    unknown_errors: ClassVar[frozenset[object]] = frozenset({
        1053,  # the server shuts down
        1180,  # an error during COMMIT, such as a node of Galera that has lost the others
        1927, 3169,  # the connection was killed (MariaDB, MySQL)
        2002, 2003, 2006, 2013, 2055,  # no connection, or a lost one
        3032,  # the server goes offline, as a member does that was expelled from its group
        3100,  # an error before or after the group was sent the transaction, such as a member that was expelled
        4031,  # the server has closed an idle connection
    })  # fmt: skip

    def key_type(self, unsigned: bool = True) -> TypeEngine[int]:
        from sqlalchemy.dialects.mysql import BIGINT

        return BIGINT(unsigned=unsigned)

    def text_type(self, length: int) -> TypeEngine[str]:
        """Return a type with ``ascii_bin``: by default, ``aB`` equals ``Ab``, and a character may take four bytes."""
        from sqlalchemy.dialects.mysql import VARCHAR  # takes a third of the import time of this library

        return VARCHAR(length, charset="ascii", collation="ascii_bin")

    def column_text(self, length: int) -> TypeEngine[str]:
        """Return the type of :meth:`text_type`, with another character set if the server has no ``ascii``."""
        return _bytewise_text()(length)

    def before_create(self, connection: Connection) -> None:
        """Ask for the collations once for each engine; a server that does not answer is taken for a complete one."""
        if connection.dialect in _collations:
            return
        try:
            found: set[str] = {row.name for row in connection.execute(_COLLATIONS)}
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            found = set()
        _collations[connection.dialect] = next((each for each in _BYTEWISE if each in found), "ascii_bin")

    def integer_type(self, bits: int) -> TypeEngine[Any]:
        from sqlalchemy.dialects.mysql import BINARY

        return super().integer_type(bits) if bits == 64 else BINARY(bits // 8)

    def limit_per_row(self, dialect: Dialect) -> LimitPerRow:
        """MariaDB has no LATERAL, and no LIMIT in a subquery after IN."""
        version: Any = dialect.server_version_info or ()
        is_new = not _is_mariadb(dialect) and version >= (8, 0, 14)
        return LimitPerRow.LATERAL if is_new else LimitPerRow.UNION

    def rounds_values_of_subqueries(self, dialect: Dialect) -> bool:
        return _is_mariadb(dialect)

    def sorted_length(self, type_: TypeEngine[Any], dialect: Dialect) -> int | None:
        """Of the weights of a value, ``max_sort_length`` bytes are sorted, by default 1024.

        A letter has up to four in all but few collations, such as MariaDB's ``uca1400_as_cs``, which has six. MySQL
        sorts whole binary values.
        """
        kinds = (String, JSON, LargeBinary, BINARY, VARBINARY) if _is_mariadb(dialect) else (String,)
        length = getattr(type_, "length", None)
        is_whole = not isinstance(type_, kinds) or (length is not None and length <= _SORTED_LENGTH)
        return None if is_whole else _SORTED_LENGTH

    def float_to_cast(self, type_: Float[Any]) -> TypeEngine[Any]:
        """MariaDB has no precision in a CAST."""
        if type_.precision is None or isinstance(type_, Double) or getattr(type_, "scale", None) is not None:
            return type_
        return Float() if type_.precision <= _SINGLE else Double()

    def sorts_json(self, dialect: Dialect) -> bool:
        return _is_mariadb(dialect)  # which stores texts

    def error_code(self, error: BaseException | None) -> object:
        args = error.args if error is not None else ()
        code = getattr(error, "errno", None) or next(iter(args), None)  # MariaDB Connector has only a message in args
        return code if isinstance(code, int) else None

    def violation(self, error: Exception) -> Violation | None:
        if self.error_code(error) != _DUPLICATE_ENTRY:
            return None
        match = _KEY.match(_message(error))
        return Violation(constraint=match[1] if match else None)

    def outcome(self, error: Exception) -> Outcome:
        pattern = _RETRYABLE_MESSAGES.get(self.error_code(error))
        if pattern is not None and pattern.match(_message(error)):
            return Outcome.RETRYABLE
        return super().outcome(error)

    def in_autocommit(self, dbapi_connection: Any) -> bool:
        return bool(getattr(dbapi_connection, "get_autocommit", bool)())

    def engine_without_transactions(self, connection: Connection, table: str, schema: str | None) -> str | None:
        row = connection.execute(_TABLE, {"schema": schema, "name": table}).first()
        if row is None:  # a temporary table is not listed there
            created = _CREATED.search(_definition(connection, table, schema))
            row = connection.execute(_ENGINE, {"name": created[1]}).first() if created else None
        return row.engine if row is not None and row.transactions == "NO" else None


@cache
def _bytewise_text() -> type[String]:
    """Return a type whose DDL depends on the server: the type itself is kept by the dialect, maybe before it asks."""
    from sqlalchemy.dialects.mysql import VARCHAR
    from sqlalchemy.ext.compiler import compiles

    class BytewiseText(VARCHAR):
        """Text that is compared byte by byte."""

    @compiles(BytewiseText)
    def in_ddl(type_: BytewiseText, compiler: Any, **kw: Any) -> str:
        collation = _collations.get(compiler.dialect, "ascii_bin")
        written: str = compiler.process(VARCHAR(type_.length, charset=_BYTEWISE[collation], collation=collation), **kw)
        return written

    return BytewiseText


def _is_mariadb(dialect: Dialect) -> bool:
    return bool(getattr(dialect, "is_mariadb", False))


def _message(error: Exception) -> str:
    """Return the server's message: ``msg`` of MySQL Connector, otherwise the string after the number in ``args``."""
    text = getattr(error, "msg", None)
    return text if isinstance(text, str) else next((each for each in error.args if isinstance(each, str)), "")


def _definition(connection: Connection, table: str, schema: str | None) -> str:
    show = f"SHOW CREATE TABLE {quoted_table(table, schema, connection.dialect)}"
    try:
        definition: str = connection.exec_driver_sql(show, execution_options={"no_parameters": True}).one()[1]
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return ""  # there is no such table, or the user lacks the privilege
    return definition
