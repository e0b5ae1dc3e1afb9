"""Several nodes: private PostgreSQL servers, and clusters, with the programs that ``tools/nodes`` finds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from sqlalchemy.engine import URL
from support import private_servers
from support.private_clusters import Galera, GroupReplication, running
from support.replicas import Replication, replication

pytest.register_assert_rewrite("cluster_stories")

ROOT = Path(__file__).parents[2]


class Programs(dict[str, str]):
    """Name → path. A test that uses a missing program is skipped, or fails with ``--require-all-databases``."""

    def __init__(self, paths: Mapping[str, str], is_required: bool) -> None:
        super().__init__({name: path for name, path in paths.items() if path})
        self.is_required = is_required

    def __missing__(self, name: str) -> str:
        missing = f"{name} not found: run tools/nodes up"
        pytest.fail(missing) if self.is_required else pytest.skip(missing)


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> Programs:
    """The programs that ``tools/nodes`` finds."""
    told = subprocess.run([sys.executable, ROOT / "tools/nodes", "paths"], stdout=subprocess.PIPE, text=True)
    found = dict(line.partition(" ")[::2] for line in told.stdout.splitlines())
    return Programs(found, pytestconfig.getoption("--require-all-databases"))


@pytest.fixture(scope="session")
def three_postgresqls(programs: dict[str, str]) -> Iterator[list[URL]]:
    """URLs of the database ``test`` on three servers that are ready for logical replication."""
    with private_servers.postgresqls(programs, 3) as urls:
        yield urls


@pytest.fixture(scope="session")
def primary_and_standby(programs: dict[str, str]) -> Iterator[tuple[URL, URL]]:
    """URLs of a PostgreSQL server and of its replica by streaming replication."""
    with private_servers.postgresqls(programs, 1) as [primary], private_servers.standby(programs, primary) as replica:
        yield primary, replica


@pytest.fixture(scope="session")
def poolers(programs: dict[str, str]) -> Iterator[tuple[URL, URL, URL]]:
    """URLs of a PostgreSQL server, and of PgBouncer in front of it, in transaction mode and in session mode."""
    with (
        private_servers.postgresqls(programs, 1) as [server],
        private_servers.pgbouncer(programs, server) as (transaction, session),
    ):
        yield server, transaction, session


@pytest.fixture(scope="session")
def galera(programs: dict[str, str]) -> Iterator[Galera]:
    """A Galera cluster of three nodes, all ready."""
    with running(Galera, programs) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def group(programs: dict[str, str]) -> Iterator[GroupReplication]:
    """Three nodes of group replication, all of them primaries."""
    with running(GroupReplication, programs) as cluster:
        yield cluster


@pytest.fixture
def servers(database: str, programs: dict[str, str]) -> Iterator[Replication]:
    with replication(database, programs) as pair:
        yield pair
