"""Servers with little memory for pages, so that a table of some millions of rows does not fit.

InnoDB is told while it runs, and told back afterwards. PostgreSQL cannot be: where its programs are installed, a second
server is started in a folder of its own, with the settings of a new cluster. Each gets 16 MB, or the least that it
accepts: 128 MB on a MySQL with the usual chunks. A URL that was given is used as
it is. Pages that the operating system still has are not read from the disk: only PostgreSQL relies on it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, create_engine, text
from sqlalchemy.pool import NullPool

from benchmarks.databases import Database

__all__ = ["small"]

_MEGABYTES = 16
_FACTS = {
    "mysql": ("innodb_buffer_pool_size", "innodb_page_size", "innodb_flush_log_at_trx_commit", "innodb_flush_method"),
    "postgresql": ("shared_buffers", "block_size", "synchronous_commit", "full_page_writes"),
}
_FACTS["mariadb"] = _FACTS["mysql"]


@contextmanager
def small(database: Database) -> Iterator[tuple[URL, dict[str, str]]]:
    """Provide the URL of a database on such a server, and the settings that matter."""
    provide = _postgresql if database.name == "postgresql" else _innodb
    with provide(database) as url:
        engine = create_engine(url, poolclass=NullPool)
        with engine.connect() as connection:
            show = "SHOW {}" if database.name == "postgresql" else "SELECT @@{}"
            yield url, {name: str(connection.scalar(text(show.format(name)))) for name in _FACTS[database.name]}


@contextmanager
def _innodb(database: Database) -> Iterator[URL]:
    """Make the buffer pool small. MySQL rounds the size up to its chunks."""
    engine = create_engine(database.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        before = int(connection.scalar(text("SELECT @@innodb_buffer_pool_size")) or 0)
    _set_pool(engine, _MEGABYTES * 2**20)
    try:
        yield database.url
    finally:
        _set_pool(engine, before)


def _set_pool(engine: Any, size: int) -> None:
    with engine.connect() as connection:
        connection.execute(text(f"SET GLOBAL innodb_buffer_pool_size = {size}"))


@contextmanager
def _postgresql(database: Database) -> Iterator[URL]:
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if database.url.port != 5432 or not programs:
        yield database.url
        return
    with tempfile.TemporaryDirectory(prefix="public-id-bench-") as folder:
        user = "postgres" if not os.geteuid() else None
        if user:
            shutil.chown(folder, user, user)
        data, programs_of = f"{folder}/data", programs[-1].parent
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = f"-p {port} -h 127.0.0.1 -c unix_socket_directories= -c shared_buffers={_MEGABYTES}MB"
        _run(user, programs_of / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale")
        _run(user, programs_of / "pg_ctl", "-D", data, "-w", "-l", f"{folder}/log", "-o", settings, "start")
        try:
            yield URL.create("postgresql+psycopg", "postgres", host="127.0.0.1", port=port, database="postgres")
        finally:
            _run(user, programs_of / "pg_ctl", "-D", data, "-m", "immediate", "stop")


def _run(user: str | None, *command: str | Path) -> None:
    as_user: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user else {}
    subprocess.run(command, check=True, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **as_user)
