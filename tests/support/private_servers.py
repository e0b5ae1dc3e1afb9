"""Servers that a test run starts for itself and always stops; ``tools/nodes`` installs their programs.

Each server has its own process group. A separate process, the keeper, ends them and removes their folder as soon as
the test run closes its pipe to the keeper: at the end of the tests, or because the run was killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

HOST = "127.0.0.1"
PATIENCE = 120
"""Seconds to wait for a server to start, on a slow and busy machine."""

_KEEPER = """
import os, shutil, signal, sys, time

groups = {}
for line in sys.stdin:  # "group signal": keep it; "group 0": it has ended; "end": a fork may hold the pipe open
    if line == "end\\n":
        break
    group, number = map(int, line.split())
    groups[group] = number
    if not number:
        del groups[group]

def send(group, number):
    try:
        os.killpg(group, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False

for group, number in groups.items():
    send(group, number)
for _ in range(300):
    if not any(send(group, 0) for group in groups):
        break
    time.sleep(0.01)
for group in groups:
    send(group, signal.SIGKILL)
for _ in range(100):  # who has just been killed may still write
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.exists(sys.argv[1]):
        break
    time.sleep(0.05)
"""


_given: set[int] = set()


class NotReady(RuntimeError):
    """A server did not start; the message ends with its log."""


class Keeper:
    """A folder and the processes that work in it; both are removed at the end of the test run."""

    def __init__(self, name: str) -> None:
        # not pytest's tmp_path, which the users that run the servers cannot read
        self.folder = Path(tempfile.mkdtemp(prefix=f"public-id-{name}-"))
        self.folder.chmod(0o755)
        self.children: dict[int, subprocess.Popen[bytes]] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _KEEPER, str(self.folder)], stdin=subprocess.PIPE, start_new_session=True, text=True
        )

    def start(self, command: list[str], user: str | None, log: Path, ended_by: signal.Signals) -> int:
        """Start *command*, as *user* if the tests run as root, and make sure that it ends."""
        own = _own_tmp(tempfile.mkdtemp(dir=self.folder))
        with log.open("ab") as out:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env=own, **_as(user)
            )
        self._tell(child.pid, ended_by)
        self.children[child.pid] = child
        return child.pid

    def kill(self, pid: int) -> None:
        """Kill the process and its children, as with ``kill -9``. They may have ended by themselves."""
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        self.children.pop(pid).wait()
        self._tell(pid, 0)

    def ended(self, pid: int) -> bool:
        return self.children[pid].poll() is not None

    def close(self) -> None:
        """End all processes now."""
        assert self._process.stdin is not None
        self._process.stdin.write("end\n")
        self._process.stdin.close()
        for child in self.children.values():
            child.wait()
        self._process.wait()

    def _tell(self, group: int, number: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{group} {int(number)}\n")
        self._process.stdin.flush()


def _own_tmp(folder: str) -> dict[str, str]:
    """Return the environment of a server. In a shared folder, it would remove other servers' temporary tables."""
    Path(folder).chmod(0o1777)
    return {**os.environ, "TMPDIR": folder}


def _as(user: str | None) -> dict[str, Any]:
    """Return the arguments of ``subprocess`` to run a command as *user*, if the tests run as root."""
    return {"user": user, "group": user, "extra_groups": []} if user and not os.geteuid() else {}


def free_ports(count: int) -> list[int]:
    """Return unused ports, below those that the system gives to clients.

    So a node that was killed finds its ports free when it restarts. Two workers begin far apart.
    """
    found: list[int] = []
    for port in (15_000 + (os.getpid() * 97 + each) % 15_000 for each in range(15_000)):
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            _given.update(found)
            return found
    raise NotReady(f"no {count} free ports")


def wait_until(done: Callable[[], bool], what: str, log: Path | None = None, seconds: float = PATIENCE) -> None:
    """Wait until *done* returns True; otherwise, raise an error that says *what* was waited for."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            told = log.read_text(errors="replace")[-3000:] if log and log.exists() else ""
            raise NotReady(f"{what}, waited for in vain ({seconds:.0f} s)\n{told}")
        time.sleep(0.05)


def answer(url: URL, query: str) -> Any:
    """Return the first row of *query*, or ``None`` if the server cannot answer now."""
    engine = create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": 5})
    try:
        with engine.connect() as connection:
            return tuple(connection.execute(text(query)).first() or ()) or None
    except SQLAlchemyError:
        return None


def owner(user: str) -> tuple[Any, Any]:
    """Return the owner of the files of a server, which is *user* if the tests run as root."""
    return (user, user) if not os.geteuid() else (os.getuid(), os.getgid())


def run(command: list[str], user: str | None, stdin: Any = subprocess.DEVNULL) -> None:
    """Run *command* as *user*, and wait for its end."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, env=_own_tmp(folder), **_as(user))
    if done.returncode:
        raise NotReady(f"{command[0]} failed: {(done.stderr + done.stdout)[-3000:]}")


def execute(url: URL, statement: str) -> None:
    """Execute *statement* outside of any transaction."""
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))


# --- PostgreSQL


@contextmanager
def postgresqls(programs: dict[str, str], count: int, *more: str) -> Iterator[list[URL]]:
    """Start *count* servers with ``wal_level=logical`` and *more* settings; create a database ``test`` on each.

    They are only for tests, because ``fsync`` is off.
    """
    keeper = Keeper("postgresql")
    try:
        folders = [keeper.folder / str(number) for number in range(count)]
        shutil.chown(keeper.folder, *owner("postgres"))
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        run([programs["initdb"], "-D", str(folders[0]), *options], "postgres")
        for folder in folders[1:]:
            run(["cp", "-a", str(folders[0]), str(folder)], "postgres")
        ports = free_ports(count)
        for folder, port in zip(folders, ports, strict=True):
            settings = ["wal_level=logical", "fsync=off", "shared_buffers=16MB", "max_connections=60"]
            settings += [f"listen_addresses={HOST}", f"port={port}", "unix_socket_directories="]
            settings += ["max_prepared_transactions=16", "wal_receiver_status_interval=1s", "autovacuum=off", *more]
            command = [programs["postgres"], "-D", str(folder), *(part for each in settings for part in ("-c", each))]
            # SIGQUIT: the postmaster ends its children and itself at once
            keeper.start(command, "postgres", keeper.folder / f"{port}.log", signal.SIGQUIT)
        urls = [URL.create("postgresql+psycopg", "postgres", host=HOST, port=port, database="test") for port in ports]
        for url, pid in zip(urls, list(keeper.children), strict=True):
            log = keeper.folder / f"{url.port}.log"
            system = url.set(database="postgres")
            wait_until(lambda: bool(answer(system, "SELECT 1")) or keeper.ended(pid), f"PostgreSQL on {url.port}", log)  # noqa: B023
            execute(system, "CREATE DATABASE test")
        yield urls
    finally:
        keeper.close()


@contextmanager
def standby(programs: dict[str, str], primary: URL) -> Iterator[URL]:
    """Start a streaming replica of *primary*."""
    keeper = Keeper("standby")
    try:
        folder, [port] = keeper.folder / "data", free_ports(1)
        shutil.chown(keeper.folder, *owner("postgres"))
        source = ["-h", HOST, "-p", str(primary.port), "-U", "postgres", "--checkpoint=fast", "--no-sync"]
        run(["pg_basebackup", "-D", str(folder), "--write-recovery-conf", *source], "postgres")
        log = keeper.folder / "log"
        options = [
            "-c",
            f"port={port}",
            "-c",
            "unix_socket_directories=",
            "-c",
            "fsync=off",
            "-c",
            "max_connections=60",
        ]
        options += ["-c", f"listen_addresses={HOST}", "-c", "max_prepared_transactions=16", "-c", "wal_level=logical"]
        pid = keeper.start([programs["postgres"], "-D", str(folder), *options], "postgres", log, signal.SIGQUIT)
        url = primary.set(port=port)
        wait_until(lambda: bool(answer(url, "SELECT 1")) or keeper.ended(pid), f"the standby on {port}", log)
        yield url
    finally:
        keeper.close()


# --- PgBouncer


@contextmanager
def pgbouncer(programs: dict[str, str], server: URL) -> Iterator[tuple[URL, URL]]:
    """Start a pooler for a PostgreSQL *server*; yield its URLs for transaction pooling and for session pooling."""
    keeper = Keeper("pgbouncer")
    try:
        folder, [port] = keeper.folder, free_ports(1)
        target = f"host={server.host} port={server.port} user={server.username} dbname={server.database}"
        log = folder / "log"
        settings = f"""
            [databases]
            transaction = {target} pool_mode=transaction
            session = {target} pool_mode=session
            [pgbouncer]
            listen_addr = {HOST}
            listen_port = {port}
            unix_socket_dir =
            auth_type = any
            default_pool_size = 4
            max_client_conn = 100
            ignore_startup_parameters = extra_float_digits
        """
        (folder / "ini").write_text("\n".join(line.strip() for line in settings.splitlines()))
        pid = keeper.start([programs["pgbouncer"], str(folder / "ini")], "postgres", log, signal.SIGINT)
        urls = [server.set(port=port, database=name) for name in ("transaction", "session")]
        wait_until(lambda: bool(answer(urls[0], "SELECT 1")) or keeper.ended(pid), f"PgBouncer on {port}", log)
        yield urls[0], urls[1]
    finally:
        keeper.close()
