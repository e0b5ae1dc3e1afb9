"""The places for histories: a private server or a SQLite file, on a small separate disk if one can be mounted.

The disk is a ``tmpfs``. The process that mounts it also unmounts it when the keeper of the servers ends the process.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool
from support.private_servers import HOST, Keeper, NotReady, answer, execute, free_ports, owner, run, wait_until

ROOT = Path(__file__).parents[2]

MEGABYTES = {"sqlite": 24, "postgresql": 160, "mariadb": 120, "mysql": 420}
"""The size of the disk."""

_MOUNTS = """
mount -t tmpfs -o "size=$1" history "$2" || exit 1
trap 'umount -l "$2"; exit 0' TERM
while :; do sleep 1 & wait $!; done
"""


def programs() -> dict[str, str]:
    """Return name → path of the servers' programs that were found."""
    told = subprocess.run([sys.executable, ROOT / "tools/nodes", "paths"], capture_output=True, text=True)
    return {name: path for name, _, path in (line.partition(" ") for line in told.stdout.splitlines()) if path}


class Server(ABC):
    """A private server that can be killed, and started again."""

    needs: ClassVar[set[str]]
    """The names of the programs that it needs."""
    user: ClassVar[str | None]
    """The user that runs the server if the tests run as root."""
    drivername: ClassVar[str]
    login: ClassVar[str] = "root"
    system: ClassVar[str | None] = None
    """The database that exists from the beginning."""

    def __init__(self, paths: dict[str, str], keeper: Keeper, folder: Path) -> None:
        self._paths, self._keeper = paths, keeper
        self.folder = folder
        [self.port] = free_ports(1)
        self.url = URL.create(self.drivername, self.login, host=HOST, port=self.port, database="test")
        self.log = keeper.folder / f"{self.port}.log"
        if self.user:
            shutil.chown(folder, *owner(self.user))
        self._make()
        self.start()

    @abstractmethod
    def _make(self) -> None:
        """Create the data directory."""

    @abstractmethod
    def _command(self) -> list[str]: ...

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self.pid = self._keeper.start(self._command(), self.user, self.log, signal.SIGQUIT)
        system = self.url.set(database=self.system)
        name = f"{type(self).__name__} on {self.port}"
        wait_until(lambda: bool(answer(system, "SELECT 1")) or self.has_ended, name, self.log)
        if self.has_ended:
            raise NotReady(f"{name} has ended\n{self.log.read_text(errors='replace')[-3000:]}")

    @property
    def has_ended(self) -> bool:
        return self._keeper.ended(self.pid)

    def crash(self) -> None:
        """Kill the server, as with ``kill -9``."""
        self._keeper.kill(self.pid)


class PostgreSQL(Server):
    needs, user, drivername = {"initdb", "postgres"}, "postgres", "postgresql+psycopg"
    login, system = "postgres", "postgres"

    def _make(self) -> None:
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--wal-segsize=4"]
        run([self._paths["initdb"], "-D", str(self._data), *options], "postgres")

    def start(self) -> None:
        (self._data / "postmaster.pid").unlink(missing_ok=True)  # another process may have this number by now
        super().start()
        if answer(self.url, "SELECT 1") is None:
            execute(self.url.set(database="postgres"), "CREATE DATABASE test")

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _command(self) -> list[str]:
        settings = ["fsync=off", "shared_buffers=16MB", "max_connections=60", "max_wal_size=32MB", "min_wal_size=16MB"]
        settings += [f"listen_addresses={HOST}", f"port={self.port}", "unix_socket_directories=", "wal_keep_size=16MB"]
        settings += ["max_prepared_transactions=16", "wal_receiver_status_interval=1s", "hot_standby=on"]
        return [self._paths["postgres"], "-D", str(self._data), *(part for each in settings for part in ("-c", each))]


class _InnoDB(Server):
    server: ClassVar[str]
    options: ClassVar[list[str]]

    def _command(self) -> list[str]:
        places = [f"--datadir={self.folder}", f"--port={self.port}", f"--socket={self.folder}/s"]
        places += [f"--bind-address={HOST}", f"--pid-file={self.folder}/pid", "--skip-name-resolve", "--skip-log-bin"]
        # an acknowledged row must survive a kill
        common = ["--innodb-flush-log-at-trx-commit=1", "--max-connections=80", "--performance-schema=OFF"]
        return [*self._mysqld, *places, *common, *self.options]

    @property
    def _mysqld(self) -> list[str]:
        name = self.user or ""
        name = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() or not name else name
        return [self._paths[self.server], "--no-defaults", f"--user={name}"]

    def _users(self) -> Path:
        script = self._keeper.folder / "users.sql"
        script.write_text(
            "FLUSH PRIVILEGES;\n"
            f"CREATE USER IF NOT EXISTS root@'{HOST}' IDENTIFIED BY '';\n"
            f"GRANT ALL ON *.* TO root@'{HOST}' WITH GRANT OPTION;\n"
            "CREATE DATABASE test;\n"
        )
        return script


class MariaDB(_InnoDB):
    needs, user, drivername = {"mariadbd", "mariadb-install-db"}, "mysql", "mariadb+pymysql"
    server, options = "mariadbd", ["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=24M"]

    def _make(self) -> None:
        install = [self._paths["mariadb-install-db"], "--no-defaults", f"--datadir={self.folder}", "--skip-test-db"]
        install += ["--auth-root-authentication-method=normal", "--innodb-log-file-size=8M"]
        run(install + ["--user=mysql"] * (not os.geteuid()), None)
        with self._users().open() as script:
            command = [*self._mysqld, "--bootstrap", f"--datadir={self.folder}", "--innodb-log-file-size=8M"]
            run(command, None, script)


class MySQL(_InnoDB):
    needs, user, drivername = {"mysqld"}, None, "mysql+pymysql"
    server, options = "mysqld", ["--mysqlx=OFF", "--innodb-redo-log-capacity=16M", "--innodb-buffer-pool-size=32M"]

    def _make(self) -> None:
        # MySQL creates the folder itself
        made = [f"--datadir={self.folder}", "--initialize-insecure", f"--init-file={self._users()}", "--skip-log-bin"]
        run([*self._mysqld, *made, *self.options[1:]], None)


SERVERS: dict[str, type[Server]] = {"postgresql": PostgreSQL, "mysql": MySQL, "mariadb": MariaDB}


@dataclass
class Disk:
    """A small disk that can be filled."""

    folder: Path

    def fill(self) -> None:
        """Use up all free space."""
        with (self.folder / "ballast").open("wb") as ballast:
            state = os.statvfs(self.folder)
            with suppress(OSError):  # another process used up the space first
                os.posix_fallocate(ballast.fileno(), 0, state.f_bavail * state.f_frsize)

    def free(self) -> None:
        """Free the space."""
        (self.folder / "ballast").unlink(missing_ok=True)


@dataclass
class Place:
    """The database for a history, and the troubles that are possible there."""

    database: str
    url: URL
    server: Server | None = None
    disk: Disk | None = None
    counters: URL = field(init=False)
    """The database of the key counters: on SQLite a separate file, because a transaction locks the whole file."""

    def __post_init__(self) -> None:
        self.counters = self.url
        if self.database == "sqlite":
            self.counters = self.url.set(database=f"{self.url.database}-counters")

    @property
    def troubles(self) -> set[str]:
        """Return the names of the possible troubles."""
        possible = {"kill a worker", "rebuild an index", "change a table"}
        if self.database != "sqlite":
            possible.add("end a session")
        if self.server is not None:
            possible.add("crash")
        if hasattr(self.server, "fail_over"):
            possible.add("fail over")
        if self.disk is not None:
            possible.add("fill the disk")
        return possible

    def heal(self) -> None:
        """Free the disk, and start the server if it does not run."""
        if self.disk is not None:
            self.disk.free()
        if self.server is not None:
            wait_until(self._answers, "the server", self.server.log, 60)

    def _answers(self) -> bool:
        """Return whether the server answers. One that has ended, as PostgreSQL does on a full disk, is started."""
        assert self.server is not None
        if self.server.has_ended:
            self.server.crash()  # also ends its children
            self.server.start()
        return bool(answer(self.url, "SELECT 1"))

    def wait_for_silence(self, seconds: float = 20) -> None:
        """Wait until no session of a worker is left, because one that was cut off may still be active."""
        queries = {
            "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
            "mysql": "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE()"
            " AND id <> connection_id()",
        }
        query = queries.get("mysql" if self.database == "mariadb" else self.database)
        if query is not None:
            wait_until(lambda: answer(self.url, query) == (0,), "the end of the sessions", seconds=seconds)


@contextmanager
def place(database: str, paths: dict[str, str], shared: URL | None = None) -> Iterator[Place]:
    """Make a place on a private server, or on the *shared* one if the programs are missing."""
    kind = SERVERS.get(database)
    if kind is not None and not kind.needs <= paths.keys():
        if shared is None:
            raise NotReady(f"{', '.join(sorted(kind.needs - paths.keys()))} not found: run tools/nodes up")
        yield Place(database, shared)
        return
    keeper = Keeper(f"history-{database}")
    try:
        disk = _mounted(keeper, MEGABYTES[database])
        folder = (disk.folder if disk else keeper.folder) / "data"
        folder.mkdir()
        if kind is None:
            yield Place(database, URL.create("sqlite", database=str(folder / "history.db")), None, disk)
            return
        server = kind(paths, keeper, folder)
        yield Place(database, server.url, server, disk)
    finally:
        keeper.close()


def _mounted(keeper: Keeper, megabytes: int) -> Disk | None:
    """Mount a disk, or return None if this is not allowed."""
    folder = keeper.folder / "disk"
    folder.mkdir()
    log = keeper.folder / "disk.log"
    command = ["sh", "-c", _MOUNTS, "mount", f"{megabytes}m", str(folder)]
    pid = keeper.start(command, None, log, signal.SIGTERM)
    for _ in range(500):
        if keeper.ended(pid):
            return None
        if folder.is_mount():
            folder.chmod(0o755)
            return Disk(folder)
        time.sleep(0.01)
    return None


def send(url: URL, *statements: str, **options: Any) -> None:
    """Execute *statements* on one connection, outside of any transaction."""
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", **options)
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))
