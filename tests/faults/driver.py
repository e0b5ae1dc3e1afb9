"""Faults in the driver of a real database: a connection, a cursor or a COMMIT fails, before or after its effect.

:class:`Driver` stands between SQLAlchemy and the connections of an engine. It counts the calls that can fail, and lets
some of them fail. The server itself raises each error that it can raise, so that the transaction is in the state
that the real error leaves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sqlalchemy import Engine, event
from support.server_faults import lose, refuse


class TimeLimit(Exception):
    """Raised by a signal handler, as task queues do when a task takes too long."""


RAISED: dict[str, type[BaseException]] = {"interrupt": KeyboardInterrupt, "limit": TimeLimit}
"""Trouble that a signal causes → the exception that is raised."""
_CONFLICTS = {
    "sqlite": ("lock timeout",),
    "postgresql": ("deadlock", "serialization", "lock timeout"),
    "mysql": ("deadlock", "lock timeout"),
    "mariadb": ("deadlock", "lock timeout"),
}
_INSERTS = {
    "unique": "INSERT INTO item (public_id, marker) VALUES ('00', -1)",
    "other unique": "INSERT INTO item (public_id, code, marker) VALUES ('zz', 1, -1)",
    "missing value": "INSERT INTO item (public_id) VALUES ('zz')",
}
"""Trouble → an INSERT that the database refuses like that of a program, for its id or for another column."""


@dataclass(frozen=True)
class Fault:
    """A fault at a call: the number of the call in the history, the trouble, and whether it comes after the effect."""

    call: int
    trouble: str
    after: bool = False


@dataclass
class Call:
    """A call of the driver: its name, the statement with its parameters, and the outcome."""

    name: str
    text: str = ""
    outcome: str = ""

    @property
    def undoes(self) -> bool:
        """True for savepoint statements, and for locks that are not on rows: a server refuses neither."""
        return self.text.startswith(("SAVEPOINT", "RELEASE", "ROLLBACK TO")) or "_LOCK(" in self.text.upper()

    @property
    def is_cleanup(self) -> bool:
        """True for a call that only rolls back or frees, whose error may be hidden by an earlier one."""
        return self.name in {"rollback", "close"} or self.text.startswith("ROLLBACK TO") or self.frees

    @property
    def frees(self) -> bool:
        """True for the empty statement, which frees the previous statement on SQLite."""
        return self.name == "execute" and not self.text

    def troubles(self, database: str) -> Iterator[tuple[str, bool]]:
        """Yield what can go wrong with the call, and whether it does so after the effect."""
        if self.name in {"execute", "executemany", "commit"} and not self.undoes and not self.frees:
            taken = _INSERTS if self.text.startswith("INSERT") else ()
            yield from ((trouble, False) for trouble in (*taken, *_CONFLICTS[database]))
        for trouble in ("lost", *RAISED):
            yield trouble, True
            if self.name != "close":  # a connection that is not closed keeps its locks until it is garbage-collected
                yield trouble, False


@dataclass
class Incident:
    """An error that the driver has raised, its call, and its fault, which is None if the database refused the call."""

    error: BaseException
    call: Call
    fault: Fault | None = None
    values: frozenset[str] = frozenset()
    """The ids that were refused as taken."""


@dataclass
class Driver:
    """The driver of an engine, which records the calls of a history and their errors."""

    engine: Engine
    faults: dict[int, Fault] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)

    def __post_init__(self) -> None:
        with self.engine.connect():  # on the first connection, some drivers query the types of the server
            pass
        self.engine.dispose()
        event.listen(self.engine, "do_connect", self._connect)

    def _connect(self, dialect: Any, record: object, arguments: Any, options: Any) -> Connection:
        connection = Connection(self, None)

        def connect() -> None:
            vars(connection)["raw"] = dialect.loaded_dbapi.connect(*arguments, **options)
            self.connections.append(connection)

        self.call(Call("connect"), connect, connection)
        return connection

    def start(self, faults: Iterable[Fault]) -> None:
        """Forget the previous history, and begin to count."""
        self.faults = {fault.call: fault for fault in faults}
        self.calls, self.incidents, self.connections = [], [], []

    def call(self, made: Call, effect: Callable[[], Any], connection: Connection, cursor: Any = None) -> Any:
        """Make one call, or let it fail."""
        fault, is_made_up = self.faults.get(len(self.calls)), False
        self.calls.append(made)
        try:
            if fault is None or fault.after:
                result = effect()
            if fault is None:
                return result
            is_made_up = True
            self._fail(made, fault.trouble, connection, cursor)
        except BaseException as error:
            made.outcome = f"{type(error).__name__}: {error}" + (" (made up)" if is_made_up else "")
            values = frozenset() if is_made_up else self._taken_ids(error, made, connection.raw)
            self.incidents.append(Incident(error, made, fault if is_made_up else None, values))
            raise

    def _fail(self, made: Call, trouble: str, connection: Connection, cursor: Any) -> NoReturn:
        if self.engine.name == "sqlite" and cursor is not None:
            cursor.execute("")  # frees the statement, whose locks would outlive the closed connection
        if trouble in RAISED:
            raise RAISED[trouble](trouble)
        if made.name == "connect":
            raise self.engine.dialect.loaded_dbapi.OperationalError(2003, "no server")
        cursor = cursor or connection.raw.cursor()
        if trouble in _INSERTS:
            cursor.execute(_INSERTS[trouble])
        if trouble == "lost":
            lose(self.engine, cursor)
        refuse(self.engine, cursor, trouble)

    def _taken_ids(self, error: BaseException, made: Call, raw: Any) -> frozenset[str]:
        """Return the ids that were refused as duplicates."""
        if not isinstance(error, self.engine.dialect.loaded_dbapi.IntegrityError) or "public_id" not in str(error):
            return frozenset()
        if self.engine.name == "sqlite":  # its error does not have the values
            own = re.findall(r"'([0-9a-f]{2})'", made.text.partition("\n")[2])
            stored = {each for (each,) in raw.execute("SELECT public_id FROM item")}
            return frozenset(each for each in own if each in stored or own.count(each) > 1)
        return frozenset(re.findall(r"=\((\w+)\)|entry '(\w+)'", str(error))[0]) - {""}


class _Failing:
    """A wrapper around an object of the driver, on which some calls can fail."""

    can_fail: tuple[str, ...]
    raw: Any

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.raw, name)
        return self.failing(name, value) if name in self.can_fail else value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.raw, name, value)

    def failing(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        raise NotImplementedError


class Connection(_Failing):
    """A connection of the driver."""

    can_fail = ("commit", "rollback", "close")

    def __init__(self, driver: Driver, raw: Any) -> None:
        vars(self).update(driver=driver, raw=raw)

    def failing(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda: self.driver.call(Call(name), method, self)

    def cursor(self, *arguments: Any, **options: Any) -> Cursor:
        return Cursor(self, self.raw.cursor(*arguments, **options))

    def has_transaction(self) -> bool:
        """Return True if the connection is inside a transaction, even an aborted one."""
        match self.driver.engine.name:
            case "sqlite":
                with suppress(self.driver.engine.dialect.loaded_dbapi.ProgrammingError):  # the connection is closed
                    return bool(self.raw.in_transaction)
            case "postgresql":
                return not self.raw.closed and bool(self.raw.info.transaction_status)
            case "mysql":
                return self.raw.open and bool(self.raw.server_status & 1)  # SERVER_STATUS_IN_TRANS
            case "mariadb" if self.raw.open:  # its status lacks the flag after INSERT … RETURNING
                with self.raw.cursor() as cursor:
                    cursor.execute("SELECT @@in_transaction")
                    return bool(cursor.fetchone()[0])
        return False

    def has_locks(self) -> bool:
        """Return True if the connection has locks that are not on rows, which MySQL and MariaDB keep forever."""
        if self.driver.engine.name not in {"mysql", "mariadb"} or not self.raw.open:
            return False
        with self.raw.cursor() as cursor:
            cursor.execute("SELECT RELEASE_ALL_LOCKS()")
            return bool(cursor.fetchone()[0])


class Cursor(_Failing):
    """A cursor of the driver."""

    can_fail = ("execute", "executemany", "fetchone", "fetchmany", "fetchall")

    def __init__(self, connection: Connection, raw: Any) -> None:
        vars(self).update(of=connection, raw=raw)

    def failing(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            statement, *parameters = arguments if name.startswith("execute") else ("",)
            text = "\n".join((statement, *map(repr, parameters)))
            return self.of.driver.call(Call(name, text), lambda: method(*arguments, **options), self.of, self.raw)

        return call

    def __iter__(self) -> Iterator[Any]:
        return iter(self.raw)
