"""A PostgreSQL server with a synchronous replica, which is promoted when the primary is killed."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from histories.places import Place, PostgreSQL
from sqlalchemy.engine import URL
from support.private_servers import HOST, Keeper, answer, execute, free_ports, owner, run, wait_until

__all__ = ["Pair", "place_with_replica"]


class Pair(PostgreSQL):
    """Two servers, of which clients find the primary by themselves. Both have everything that was acknowledged."""

    def __init__(self, paths: dict[str, str], keeper: Keeper, folder: Path) -> None:
        self._number, self._replica = 0, 0
        super().__init__(paths, keeper, folder)
        self._ports = [self.port, *free_ports(1)]
        # before the copy: the replica waits for its own replica, too, when it is the primary
        execute(self._alone(), "ALTER SYSTEM SET synchronous_standby_names = '*'")
        execute(self._alone(), "SELECT pg_reload_conf()")
        self._begin_replica()
        hosts = tuple(f"{HOST}:{port}" for port in self._ports)
        query = {"host": hosts, "target_session_attrs": "read-write"}
        self.url = URL.create(self.drivername, self.login, database="test", query=query)

    def _command(self) -> list[str]:
        return [*super()._command(), "-c", "wal_retrieve_retry_interval=100ms"]

    @property
    def _data(self) -> Path:
        return self.folder / f"data{self._number}"

    def _alone(self) -> URL:
        """The URL of the primary."""
        return URL.create(self.drivername, self.login, host=HOST, port=self.port, database="test")

    def start(self) -> None:
        """Start the primary, and wait for the replica: what a kill left unacknowledged is visible from now on."""
        super().start()
        if self._replica:
            self._wait_for_replica()

    def fail_over(self) -> None:
        """Kill the primary, promote the replica, and replace the old primary by a new replica."""
        self.crash()
        old = self._data
        self._number = 1 - self._number
        self.port, self.pid = self._ports[self._number], self._replica
        execute(self._alone(), "SELECT pg_promote()")
        shutil.rmtree(old)
        self._begin_replica()

    def _begin_replica(self) -> None:
        number = 1 - self._number
        folder, port = self.folder / f"data{number}", self._ports[number]
        source = ["-h", HOST, "-p", str(self.port), "-U", self.login, "--checkpoint=fast", "--no-sync"]
        run(["pg_basebackup", "-D", str(folder), "--write-recovery-conf", *source], self.user)
        primary = self.port, self._number
        self.port, self._number = port, number
        command = self._command()
        self.port, self._number = primary
        log = self._keeper.folder / f"{port}.log"
        self._replica = self._keeper.start(command, self.user, log, signal.SIGQUIT)
        self._wait_for_replica()

    def _wait_for_replica(self) -> None:
        log = self._keeper.folder / f"{self._ports[1 - self._number]}.log"
        streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        wait_until(lambda: answer(self._alone(), streaming) == (1,), "the replica", log)


@contextmanager
def place_with_replica(paths: dict[str, str]) -> Iterator[Place]:
    """Make a place on a pair of servers."""
    keeper = Keeper("history-pair")
    try:
        shutil.chown(keeper.folder, *owner("postgres"))
        folder = keeper.folder / "data"
        folder.mkdir()
        server = Pair(paths, keeper, folder)
        yield Place("postgresql", server.url, server)
    finally:
        keeper.close()
