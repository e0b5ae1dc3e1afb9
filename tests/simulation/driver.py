"""A DBAPI on the database in memory, and SQLAlchemy's own dialects for it.

Every call passes the *stage* (``stage.py``), which decides who goes on, and which call fails: before it has an effect,
or after it. What an error does to the transaction is the business of the family of databases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from simulation.sql import Answer, parse
from simulation.storage import FAMILIES, Database, Family, Kind, Refusal, Transaction
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mysql.base import MySQLDialect
from sqlalchemy.dialects.mysql.mariadb import MariaDBDialect
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.dialects.sqlite.base import SQLiteDialect

if TYPE_CHECKING:
    from simulation.stage import Stage

T = TypeVar("T")


class Driver:
    """The module of a driver, as :func:`sqlalchemy.create_engine` takes it."""

    apilevel = "2.0"
    threadsafety = 0
    version = "1.0"
    sqlite_version_info = (3, 45, 0)

    def __init__(self, family: Family, stage: Stage, *, is_follower: bool = False) -> None:
        self.family = family
        self.is_follower = is_follower
        self.stage = stage
        self.paramstyle = {"postgresql": "pyformat", "sqlite": "qmark"}.get(family.name, "format")
        for error in _ERRORS[family.name]:
            setattr(self, error.__name__, error)
        stage.error = self.error

    @property
    def database(self) -> Database:
        return self.stage.database

    def connect(self, *_: Any, **__: Any) -> Connection:
        return self.stage.call(None, "connect", "", lambda: Connection(self))

    def error(self, refusal: Refusal) -> Exception:
        """Return the error that the driver raises for *refusal*."""
        return _MAKE[self.family.name](self, refusal)


class Connection:
    """A connection; its transaction begins with the first statement."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.database = driver.database
        self.family = driver.family
        self.transaction: Transaction | None = None
        self.closed = False
        self.actor = -1
        self.is_follower = driver.is_follower
        self.autocommit = False
        self.isolation_level: str | None = "" if self.family.one_writer else None
        driver.stage.connections.append(self)

    @property
    def in_transaction(self) -> bool:
        return self.transaction is not None

    def get_autocommit(self) -> bool:
        return self.autocommit

    def cursor(self) -> Cursor:
        if self.closed:
            raise self.driver.error(Refusal(Kind.LOST))
        return Cursor(self)

    def commit(self) -> None:
        self.call("commit", "COMMIT", lambda: self._end(commits=True))

    def rollback(self) -> None:
        self.call("rollback", "ROLLBACK", lambda: self._end(commits=False))

    def close(self) -> None:
        self.driver.stage.call(self, "close", "", self.disconnect)

    def disconnect(self) -> None:
        """End the connection, and what the server keeps for it."""
        self.closed = True
        self._end(commits=False)
        for name in [name for name, owner in self.database.advisory_locks.items() if owner is self]:
            del self.database.advisory_locks[name]

    def _end(self, *, commits: bool) -> None:
        transaction, self.transaction = self.transaction, None
        if transaction is None:
            return
        if commits and not transaction.is_aborted:
            transaction.commit()
        else:
            transaction.roll_back()

    # --- statements

    def call(self, kind: str, text: str, effect: Callable[[], T], begin: Callable[[], object] | None = None) -> T:
        """Do *effect* as one call of the driver."""

        def tried() -> T:
            if self.closed:
                raise Refusal(Kind.LOST)
            return effect()

        return self.driver.stage.call(self, kind, text, tried, begin)

    def suffer(self, refusal: Refusal, kind: str) -> Exception:
        """Return the error for *refusal*, after what it does to the transaction."""
        loses_all = refusal.kind in {Kind.DEADLOCK, Kind.SERIALIZATION} and self.family.ends_on_deadlock
        if refusal.kind is Kind.LOST:
            if not self.closed:
                self.disconnect()
        elif loses_all or (kind == "commit" and not self.family.one_writer):
            self._end(commits=False)
        elif self.family.aborts and self.transaction is not None:
            self.transaction.is_aborted = True
        return self.driver.error(refusal)

    def run(self, text: str, parameters: Any) -> Answer:
        """Execute one statement, all of it or nothing."""
        begins = text.startswith("BEGIN")
        if self.transaction is None:
            self.transaction = self.database.begin(self, self.isolation_level)
        transaction = self.transaction
        if begins:
            if text.endswith("IMMEDIATE"):
                self.database.lock_for_writing(transaction)
            return Answer()
        if self.is_follower and text.startswith(("INSERT", "UPDATE", "DELETE")):
            self.driver.stage.written_on_followers.append(text)
        if transaction.is_aborted and not text.startswith("ROLLBACK TO"):
            raise Refusal(Kind.ABORTED)
        command, _, name = text.rpartition(" ")
        if command in _SAVEPOINTS:
            _SAVEPOINTS[command](transaction, name)
            return Answer()
        if "pg_trigger" in text:  # whether INSERTs into the table must not have ON CONFLICT DO NOTHING
            return Answer(["forbids"], [(bool(self.database.tables["item"].before_insert),)])
        if "information_schema" in text:
            return Answer(["engine", "transactions"], [("InnoDB", "YES")])
        if not text:  # sqlite3 takes it, and forgets the statement before it
            return Answer()
        transaction.begin_statement()
        position = len(transaction.log)
        try:
            return parse(text)(transaction, parameters)
        except BaseException:
            if text.startswith("INSERT OR ROLLBACK"):
                self._end(commits=False)
            elif transaction.state == "active":
                transaction.undo_to(position)
            raise


class Cursor:
    """A cursor that has its whole result as soon as the statement was executed."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.description: list[tuple[Any, ...]] | None = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self._rows: list[tuple[Any, ...]] = []

    def execute(self, statement: str, parameters: Any = ()) -> None:
        kind = "savepoint" if statement.rpartition(" ")[0] in _SAVEPOINTS else "execute"
        self._show(self.connection.call(kind, statement, lambda: self.connection.run(statement, parameters)))

    def executemany(self, statement: str, rows: Iterable[Any]) -> None:
        """Execute the statement for each row. MySQL's drivers send all rows together, so that all fail or none."""
        remaining = iter(rows)

        def run() -> Answer:
            count, key, transaction = 0, None, self.connection.transaction
            position = len(transaction.log) if transaction is not None else 0
            try:
                for row in remaining:
                    answer = self.connection.run(statement, row)
                    count, key = count + answer.count, key or answer.last_key
            except Refusal:
                if self.connection.family.ends_on_deadlock and self.connection.transaction is not None:
                    self.connection.transaction.undo_to(position)
                raise
            return Answer(count=count, last_key=key)

        self._show(self.connection.call("executemany", statement, run, lambda: next(remaining, None)))

    def _show(self, answer: Answer) -> None:
        self.description = answer.columns and [(name, *[None] * 6) for name in answer.columns]
        self._rows = list(answer.rows)
        self.rowcount, self.lastrowid = answer.count, answer.last_key

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._fetch(lambda: self._rows.pop(0) if self._rows else None)

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        return self._fetch(lambda: [self._rows.pop(0) for _ in range(min(size, len(self._rows)))])

    def fetchall(self) -> list[tuple[Any, ...]]:
        def take() -> list[tuple[Any, ...]]:
            rows, self._rows = self._rows, []
            return rows

        return self._fetch(take)

    def _fetch(self, take: Callable[[], T]) -> T:
        return self.connection.call("fetch", "", take)

    def close(self) -> None:
        self._rows = []


_SAVEPOINTS: dict[str, Callable[[Transaction, str], None]] = {
    "SAVEPOINT": Transaction.set_savepoint,
    "RELEASE SAVEPOINT": Transaction.release,
    "ROLLBACK TO SAVEPOINT": Transaction.roll_back_to,
}


# --- errors


def _errors(family: str) -> list[type[Exception]]:
    """Return the exceptions of PEP 249, one set for each driver."""
    made: dict[str, type[Exception]] = {}
    for name, base in (
        ("Warning", Exception),
        ("Error", Exception),
        ("InterfaceError", "Error"),
        ("DatabaseError", "Error"),
        ("DataError", "DatabaseError"),
        ("OperationalError", "DatabaseError"),
        ("IntegrityError", "DatabaseError"),
        ("InternalError", "DatabaseError"),
        ("ProgrammingError", "DatabaseError"),
        ("NotSupportedError", "DatabaseError"),
    ):
        made[name] = type(name, (made[base] if isinstance(base, str) else base,), {"__module__": f"simulated_{family}"})
    return list(made.values())


_ERRORS = {name: _errors(name) for name in FAMILIES}


class _Diagnostics:
    """What psycopg has as ``error.diag``."""

    def __init__(self, refusal: Refusal) -> None:
        index = refusal.index
        self.constraint_name = index.name if index else None
        values = refusal.values
        self.message_detail = f"Key ({index.column})=({values[0]}) already exists." if index and values else None


def _postgresql_error(driver: Any, refusal: Refusal) -> Exception:
    name, state = {
        Kind.UNIQUE: ("IntegrityError", "23505"),
        Kind.NOT_NULL: ("IntegrityError", "23502"),
        Kind.DEADLOCK: ("OperationalError", "40P01"),
        Kind.SERIALIZATION: ("OperationalError", "40001"),
        Kind.TIMEOUT: ("OperationalError", "55P03"),
        Kind.ABORTED: ("InternalError", "25P02"),
        Kind.NO_SAVEPOINT: ("InternalError", "3B001"),
        Kind.LOST: ("OperationalError", "57P01"),
    }[refusal.kind]
    error: Any = getattr(driver, name)(str(refusal))
    error.sqlstate, error.diag = state, _Diagnostics(refusal)
    return error


def _mysql_error(driver: Any, refusal: Refusal) -> Exception:
    index = refusal.index
    place = "" if index is None else f"{index.table}.{index.name}" if driver.family.name == "mysql" else index.name
    name, number, message = {
        Kind.UNIQUE: ("IntegrityError", 1062, f"Duplicate entry {(*refusal.values, '')[0]!r} for key '{place}'"),
        Kind.NOT_NULL: ("IntegrityError", 1048, "Column cannot be null"),
        Kind.DEADLOCK: ("OperationalError", 1213, "Deadlock found when trying to get lock"),
        Kind.SERIALIZATION: ("OperationalError", 1020, "Record has changed since last read"),
        Kind.TIMEOUT: ("OperationalError", 1205, "Lock wait timeout exceeded"),
        Kind.ABORTED: ("OperationalError", 1105, str(refusal)),
        Kind.NO_SAVEPOINT: ("OperationalError", 1305, "SAVEPOINT does not exist"),
        Kind.LOST: ("OperationalError", 2013, "Lost connection to server during query"),
    }[refusal.kind]
    error: Exception = getattr(driver, name)(number, message)
    return error


def _sqlite_error(driver: Any, refusal: Refusal) -> Exception:
    index = refusal.index
    name, message = {
        Kind.UNIQUE: ("IntegrityError", f"UNIQUE constraint failed: {index and f'{index.table}.{index.column}'}"),
        Kind.NOT_NULL: ("IntegrityError", "NOT NULL constraint failed"),
        Kind.NO_SAVEPOINT: ("OperationalError", "no such savepoint"),
        Kind.LOST: ("OperationalError", "disk I/O error"),
    }.get(refusal.kind, ("OperationalError", "database is locked"))
    error: Exception = getattr(driver, name)(message)
    return error


_MAKE: dict[str, Callable[[Driver, Refusal], Exception]] = {
    "postgresql": _postgresql_error,
    "mysql": _mysql_error,
    "mariadb": _mysql_error,
    "sqlite": _sqlite_error,
}


# --- dialects


class _Simulated:
    """What SQLAlchemy asks a new connection of a server, answered without a statement."""

    driver = "simulated"

    @classmethod
    def import_dbapi(cls) -> Any:
        raise NotImplementedError("pass module=Driver(…) to create_engine()")

    def initialize(self: Any, connection: Any) -> None:
        family: Family = self.dbapi.family
        self.server_version_info = (18, 0, 0)
        self.default_schema_name = "main"
        self.default_isolation_level = family.isolation
        self.is_mariadb = family.name == "mariadb"
        self.insert_returning = self.delete_returning = family.returning

    def is_disconnect(self, error: Any, connection: Any, cursor: Any) -> bool:
        owner = connection if connection is not None else getattr(cursor, "connection", None)
        return bool(getattr(owner, "closed", False))

    def get_isolation_level_values(self, connection: Any) -> list[str]:
        return ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]

    def set_isolation_level(self, connection: Any, level: str) -> None:
        connection.isolation_level = level

    def reset_isolation_level(self: Any, connection: Any) -> None:
        connection.isolation_level = "" if self.dbapi.family.one_writer else None

    def get_isolation_level(self: Any, connection: Any) -> str:
        level: str = connection.isolation_level or self.dbapi.family.isolation
        return level

    def get_default_isolation_level(self: Any, connection: Any) -> str:
        level: str = self.dbapi.family.isolation
        return level


class SimulatedPostgreSQL(_Simulated, PGDialect):
    """SQLAlchemy's dialect of PostgreSQL on the driver of this module."""

    supports_statement_cache = True


class SimulatedSQLite(_Simulated, SQLiteDialect):
    """SQLAlchemy's dialect of SQLite on the driver of this module."""

    supports_statement_cache = True


class SimulatedMySQL(_Simulated, MySQLDialect):
    """SQLAlchemy's dialect of MySQL on the driver of this module."""

    supports_statement_cache = True

    def _extract_error_code(self, exception: Any) -> int | None:
        return exception.args[0] if exception.args else None


class SimulatedMariaDB(_Simulated, MariaDBDialect):
    """SQLAlchemy's dialect of MariaDB on the driver of this module."""

    supports_statement_cache = True
    _extract_error_code = SimulatedMySQL._extract_error_code


for _name, _class in (
    ("postgresql", SimulatedPostgreSQL),
    ("sqlite", SimulatedSQLite),
    ("mysql", SimulatedMySQL),
    ("mariadb", SimulatedMariaDB),
):
    registry.register(f"{_name}.simulated", __name__, _class.__name__)
