"""A primary server with a replica, which a test lets fall behind and makes the new primary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from histories import places
from sqlalchemy.engine import URL
from support import private_servers
from support.private_servers import HOST, Keeper, answer, execute, wait_until


@dataclass
class Replication(ABC):
    """The URLs of a primary and of its replica."""

    primary: URL
    replica: URL

    @abstractmethod
    def fall_behind(self) -> None:
        """Wait until the replica has all rows, and let it receive no more."""

    @abstractmethod
    def promote(self) -> None:
        """Make the replica a primary, which has not received what was written since it fell behind."""


class OnPostgreSQL(Replication):
    """Streaming replication."""

    def fall_behind(self) -> None:
        [position] = answer(self.primary, "SELECT CAST(pg_current_wal_lsn() AS text)")
        has_replayed = f"SELECT 1 WHERE pg_last_wal_replay_lsn() >= CAST('{position}' AS pg_lsn)"
        wait_until(lambda: bool(answer(self.replica, has_replayed)), "the rows on the replica")
        execute(self.replica, "ALTER SYSTEM SET primary_conninfo = ''")
        execute(self.replica, "SELECT pg_reload_conf()")
        wait_until(lambda: not answer(self.replica, "SELECT 1 FROM pg_stat_wal_receiver"), "the end of the receiver")

    def promote(self) -> None:
        execute(self.replica, "SELECT pg_promote()")
        wait_until(lambda: bool(answer(self.replica, "SELECT 1 WHERE NOT pg_is_in_recovery()")), "the new primary")


class ByGtid(Replication):
    """Asynchronous replication of rows by global transaction identifiers."""

    position: ClassVar[str]
    """The expression for what the primary has written."""
    wait: ClassVar[str]
    """The function that waits for a position, and returns 0 when it is reached."""
    source: ClassVar[str]
    """The statement that tells the replica a source."""
    start: ClassVar[str]
    stop: ClassVar[str]
    reset: ClassVar[str]
    """The statements that start the replication from a source, stop it, and forget the source."""

    def begin(self, port: int | None = None, channel: str = "") -> None:
        """Start the replication from the server on *port*, by default the primary."""
        values = {"host": HOST, "port": port or self.primary.port, "channel": channel}
        execute(self.replica, self.source.format(**values))
        execute(self.replica, self.start.format(**values))

    def forget(self, channel: str = "") -> None:
        """Stop the replication from a source, and forget it."""
        execute(self.replica, self.stop.format(channel=channel))
        execute(self.replica, self.reset.format(channel=channel))

    def fall_behind(self) -> None:
        [position] = answer(self.primary, f"SELECT {self.position}")
        reached = f"SELECT {self.wait}('{''.join(position.split())}', 5)"
        wait_until(lambda: answer(self.replica, reached) == (0,), "the rows on the replica")
        execute(self.replica, self.stop.format(channel=""))

    def promote(self) -> None:
        execute(self.replica, self.reset.format(channel=""))


class OnMySQL(ByGtid):
    position, wait = "@@global.gtid_executed", "WAIT_FOR_EXECUTED_GTID_SET"
    source = (
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{host}', SOURCE_PORT = {port}, SOURCE_USER = 'root', "
        "SOURCE_AUTO_POSITION = 1 FOR CHANNEL '{channel}'"
    )
    start = "START REPLICA FOR CHANNEL '{channel}'"
    stop = "STOP REPLICA FOR CHANNEL '{channel}'"
    reset = "RESET REPLICA ALL FOR CHANNEL '{channel}'"


class OnMariaDB(ByGtid):
    position, wait = "@@global.gtid_binlog_pos", "MASTER_GTID_WAIT"
    source = (
        "CHANGE MASTER '{channel}' TO MASTER_HOST = '{host}', MASTER_PORT = {port}, MASTER_USER = 'root', "
        "MASTER_USE_GTID = slave_pos"
    )
    start = "START SLAVE '{channel}'"
    stop = "STOP SLAVE '{channel}'"
    reset = "RESET SLAVE '{channel}' ALL"


class _Logged(places.Server):
    """A server that writes the log from which others replicate."""

    more: ClassVar[list[str]] = []

    def _command(self) -> list[str]:
        # the last of two options is valid
        return [*super()._command(), f"--server-id={self.port}", "--log-bin=bin", "--binlog-format=ROW", *self.more]


class _MySQL(_Logged, places.MySQL):
    more: ClassVar[list[str]] = ["--gtid-mode=ON", "--enforce-gtid-consistency"]


class _MariaDB(_Logged, places.MariaDB):
    pass


_KINDS: dict[str, tuple[type[places.Server], type[ByGtid]]] = {
    "mysql": (_MySQL, OnMySQL),
    "mariadb": (_MariaDB, OnMariaDB),
}


@contextmanager
def replication(database: str, programs: dict[str, str]) -> Iterator[Replication]:
    """Start a primary server of *database* and its replica."""
    if database == "postgresql":
        with private_servers.postgresqls(programs, 1) as [url], private_servers.standby(programs, url) as replica:
            yield OnPostgreSQL(url, replica)
        return
    server, kind = _KINDS[database]
    for name in server.needs:
        programs[name]  # raises, skips or fails if it is missing
    keeper = Keeper(f"replicas-{database}")
    try:
        urls = []
        for name in ("primary", "replica"):
            folder = keeper.folder / name
            folder.mkdir()
            urls.append(server(programs, keeper, folder).url)
        pair = kind(*urls)
        pair.begin()
        yield pair
    finally:
        keeper.close()
