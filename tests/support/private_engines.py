"""Engines that divide tables, or that are embedded: OceanBase, MariaDB with the Spider engine, and PGlite."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import URL
from support.private_servers import HOST, Keeper, NotReady, answer, execute, free_ports, owner, run, wait_until

SHARDS = ("shard_1", "shard_2")
"""Names of the servers behind Spider's front, for its ``srv`` option."""


def _wait_for(url: URL, keeper: Keeper, pid: int, log: Path) -> None:
    name = f"the server on {url.port}"
    wait_until(lambda: bool(answer(url, "SELECT 1")) or keeper.ended(pid), name, log)
    if keeper.ended(pid):
        raise NotReady(f"{name} has ended\n{log.read_text(errors='replace')[-3000:]}")


@contextmanager
def oceanbase(programs: dict[str, str]) -> Iterator[URL]:
    """Start seekdb, OceanBase on one node; yield the URL of the database ``test``."""
    keeper = Keeper("oceanbase")
    try:
        folder, [port] = keeper.folder / "data", free_ports(1)
        folder.mkdir()
        options = ["memory_limit=1G", "log_disk_size=2G", "datafile_size=256M", "datafile_maxsize=2G"]
        command = [programs["seekdb"], "--nodaemon", "--port", str(port), "--base-dir", str(folder)]
        command += [part for each in options for part in ("--parameter", each)]
        log = keeper.folder / "log"
        pid = keeper.start([*command, "--log-level", "ERROR"], None, log, signal.SIGKILL)
        url = URL.create("mysql+pymysql", "root", host=HOST, port=port, database="test")
        _wait_for(url, keeper, pid, log)
        yield url
    finally:
        keeper.close()


@contextmanager
def spider(programs: dict[str, str]) -> Iterator[tuple[URL, list[URL]]]:
    """Start a MariaDB server with the Spider engine in front of two; yield the URLs of ``test`` on it and on both."""
    keeper = Keeper("spider")
    try:
        shutil.chown(keeper.folder, *owner("mysql"))
        folders = [keeper.folder / name for name in ("front", *SHARDS)]
        as_mysql = ["--user=mysql"] * (not os.geteuid())
        install = [programs["mariadb-install-db"], "--no-defaults", f"--datadir={folders[0]}", "--skip-test-db"]
        install += ["--auth-root-authentication-method=normal", "--innodb-log-file-size=8M", *as_mysql]
        run(install, None)
        users = keeper.folder / "users.sql"
        users.write_text(
            "FLUSH PRIVILEGES;\n"  # with --bootstrap, there are no users before this
            f"CREATE USER IF NOT EXISTS root@'{HOST}' IDENTIFIED BY '';\n"
            f"GRANT ALL ON *.* TO root@'{HOST}' WITH GRANT OPTION;\n"
            "CREATE DATABASE IF NOT EXISTS test;\n"
        )
        own = ["--no-defaults", "--innodb-log-file-size=8M"]
        with users.open() as script:
            run([programs["mariadbd"], *own, "--bootstrap", f"--datadir={folders[0]}", *as_mysql], None, script)
        for folder in folders[1:]:
            run(["cp", "-a", str(folders[0]), str(folder)], None)
        (keeper.folder / "plugins").mkdir()  # the user that runs the servers may not read the cache folder
        plugin = Path(shutil.copy(programs["spider"], keeper.folder / "plugins"))
        of_front = [f"--plugin-dir={plugin.parent}", f"--plugin-load-add={plugin.stem}", "--plugin-maturity=unknown"]
        urls = []
        for folder, port in zip(folders, free_ports(3), strict=True):
            options = [f"--datadir={folder}", f"--port={port}", f"--bind-address={HOST}", f"--socket={folder}/s"]
            options += [f"--pid-file={folder}/pid", "--innodb-buffer-pool-size=32M", "--skip-log-bin"]
            options += ["--skip-name-resolve", *(of_front if folder == folders[0] else [])]
            log = keeper.folder / f"{folder.name}.log"
            pid = keeper.start([programs["mariadbd"], *own, *options], "mysql", log, signal.SIGKILL)
            urls.append(URL.create("mariadb+pymysql", "root", host=HOST, port=port, database="test"))
            _wait_for(urls[-1], keeper, pid, log)
        for name, url in zip(SHARDS, urls[1:], strict=True):
            options = [f"HOST '{HOST}'", "DATABASE 'test'", "USER 'root'", "PASSWORD ''", f"PORT {url.port}"]
            execute(urls[0], f"CREATE SERVER {name} FOREIGN DATA WRAPPER mysql OPTIONS ({', '.join(options)})")
        yield urls[0], urls[1:]
    finally:
        keeper.close()


@contextmanager
def pglite(programs: dict[str, str]) -> Iterator[URL]:
    """Start PGlite in memory; yield the URL of its database, to which one client can connect at a time."""
    keeper = Keeper("pglite")
    try:
        [port], log = free_ports(1), keeper.folder / "log"
        command = [programs["node"], programs["pglite"], f"--port={port}", f"--host={HOST}"]
        pid = keeper.start(command, None, log, signal.SIGTERM)
        url = URL.create("postgresql+psycopg", "postgres", host=HOST, port=port, database="postgres")
        _wait_for(url.update_query_dict({"sslmode": "disable"}), keeper, pid, log)
        yield url.update_query_dict({"sslmode": "disable"})
    finally:
        keeper.close()
