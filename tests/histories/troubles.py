"""The troubles that a database and its clients have during a history."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from histories.operations import APPLICATION, TABLES
from histories.places import Place
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool
from support.connections import processes

__all__ = ["LANES", "Happened", "Lane", "Workers"]

LANES = [
    {"rebuild an index", "change a table"},
    {"end a session", "kill a worker", "crash", "fill the disk", "fail over"},
]
"""The troubles of each lane. Those of different lanes may happen at the same time."""

_FULL = 0.25
"""Seconds for which the disk is full."""
_DOWN = 0.2
"""The most seconds for which a server is down."""

_ON_POSTGRESQL = "SET lock_timeout = '3s'"
_ON_MYSQL = "SET SESSION lock_wait_timeout = 3, innodb_lock_wait_timeout = 3"


class Workers(Protocol):
    """The processes of a history."""

    def pids(self) -> list[int]:
        """Return the ids of the running processes."""
        ...

    def done(self) -> int:
        """Return the number of tickets that were taken."""
        ...


@dataclass(frozen=True)
class Happened:
    """A trouble that happened."""

    name: str
    begin: float
    end: float
    refused: str = ""
    """The error if the database refused it."""

    def __str__(self) -> str:
        refused = f", refused: {self.refused}" if self.refused else ""
        return f"{self.name} {self.begin / 1e6:.0f}–{self.end / 1e6:.0f} ms{refused}"


class Lane(threading.Thread):
    """Makes troubles one after the other, each after its number of tickets."""

    def __init__(self, place: Place, workers: Workers, planned: Sequence[tuple[int, str, float]]) -> None:
        super().__init__(daemon=True)
        self._place, self._workers, self._planned = place, workers, planned
        self.over = threading.Event()
        """Set at the end of the history."""
        self.happened: list[Happened] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for ticket, name, chance in self._planned:
                while self._workers.done() < ticket and not self.over.wait(0.005):
                    pass
                if self.over.is_set():
                    return
                self._make(name, chance)
        except BaseException as error:  # the main thread reports it
            self.failure = error

    def _make(self, name: str, chance: float) -> None:
        begin, refused = time.monotonic_ns(), ""
        try:
            _TROUBLES[name](self, chance)
        except SQLAlchemyError as error:  # expected: other troubles happen at the same time
            refused = " ".join(str(error).split())[:200]
        self.happened.append(Happened(name, begin, time.monotonic_ns(), refused))

    # --- sessions and processes

    def _end_session(self, chance: float) -> None:
        with self._connected() as connection:
            if connection.dialect.name == "postgresql":
                query = "SELECT pid FROM pg_stat_activity WHERE application_name = :name ORDER BY pid"
                numbers = list(connection.scalars(text(query), {"name": APPLICATION}))
            else:
                own = connection.scalar(text("SELECT connection_id()"))
                # not the other lane's statement, which is an ALTER TABLE
                numbers = [
                    each.Id for each in processes(connection) if each.Id != own and "ALTER" not in str(each.Info)
                ]
            if numbers:
                number = numbers[int(chance * len(numbers))]
                end = "SELECT pg_terminate_backend({})" if connection.dialect.name == "postgresql" else "KILL {}"
                connection.execute(text(end.format(number)))

    def _kill_worker(self, chance: float) -> None:
        pids = self._workers.pids()
        with suppress(ProcessLookupError):
            os.kill(pids[int(chance * len(pids))], signal.SIGKILL)

    # --- the server and its disk

    def _crash(self, chance: float) -> None:
        assert self._place.server is not None
        self._place.server.crash()
        time.sleep(_DOWN * chance)
        self._place.server.start()

    def _fill_disk(self, chance: float) -> None:
        assert self._place.disk is not None
        self._place.disk.fill()
        time.sleep(_FULL)
        self._place.heal()

    def _fail_over(self, chance: float) -> None:
        assert self._place.server is not None
        self._place.server.fail_over()

    # --- tables and indexes

    def _rebuild_index(self, chance: float) -> None:
        table = TABLES[chance > 0.75].name
        index, name = f"uq_{table}_public_id", self._place.database
        if name == "sqlite":
            self._send("VACUUM" if chance < 0.3 else f"REINDEX {table}")
        elif name == "postgresql":
            try:
                self._send(_ON_POSTGRESQL, f"REINDEX INDEX CONCURRENTLY {index}")
            except SQLAlchemyError:
                self._drop_remains()
                raise
        elif chance < 0.2:
            self._send(_ON_MYSQL, self._rebuilding(table) if name == "mysql" else f"OPTIMIZE TABLE {table}")
        else:
            new = f"ADD UNIQUE INDEX {index} (public_id)"
            self._send(_ON_MYSQL, f"ALTER TABLE {table} DROP INDEX {index}, {new}, ALGORITHM=INPLACE, LOCK=NONE")

    def _drop_remains(self) -> None:
        """Drop the invalid indexes of an interrupted REINDEX, as its documentation recommends."""
        query = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid AND indrelid > 16383"
        with suppress(SQLAlchemyError), self._connected() as connection:
            for name in connection.scalars(text(query)).all():
                connection.execute(text(f"DROP INDEX CONCURRENTLY {name}"))

    def _change_table(self, chance: float) -> None:
        table = TABLES[chance > 0.5].name
        limits = {"postgresql": [_ON_POSTGRESQL], "sqlite": []}.get(self._place.database, [_ON_MYSQL])
        self._send(*limits, f"ALTER TABLE {table} ADD COLUMN extra INTEGER")
        time.sleep(chance / 20)
        self._send(*limits, f"ALTER TABLE {table} DROP COLUMN extra")
        if self._place.database in ("mysql", "mariadb"):
            self._send(*limits, self._rebuilding(table))

    def _rebuilding(self, table: str) -> str:
        """Return the statement that rebuilds a table. On MySQL it copies the table, while writers wait.

        MySQL's rebuild in place loses rows, and reports false duplicates, while others write: bugs 115608 and 115511
        of MySQL. A history of 27 November 2026 (seed 443115, MySQL 9.7.4) had both at once.
        """
        return f"ALTER TABLE {table} FORCE" + ", ALGORITHM=COPY" * (self._place.database == "mysql")

    def _send(self, *statements: str) -> None:
        with self._connected() as connection:
            for statement in statements:
                connection.execute(text(statement))

    def _connected(self) -> Connection:
        options: dict[str, Any] = {"timeout": 3} if self._place.database == "sqlite" else {"connect_timeout": 5}
        engine = create_engine(self._place.url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=options)
        return engine.connect()


_TROUBLES: dict[str, Callable[[Lane, float], None]] = {
    "end a session": Lane._end_session,
    "kill a worker": Lane._kill_worker,
    "crash": Lane._crash,
    "fill the disk": Lane._fill_disk,
    "fail over": Lane._fail_over,
    "rebuild an index": Lane._rebuild_index,
    "change a table": Lane._change_table,
}
