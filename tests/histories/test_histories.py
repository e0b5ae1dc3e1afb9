"""Histories on real servers: each acknowledged row is stored once, whatever is killed, rebuilt, interrupted or full.

``python tests/histories --operations 100000 --on postgresql --seed 7`` runs a long history.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from histories.failover import place_with_replica
from histories.places import SERVERS, Place, place, programs
from histories.running import Report, run
from sqlalchemy import Engine, event
from support import servers
from support.judge import Finding
from support.marks import on
from support.private_servers import answer, wait_until

from sqlalchemy_public_id.keys import BlockAllocator

pytestmark = pytest.mark.slow

OPERATIONS = 10_000

REBUILT = "_public_id_cc"
"""PostgreSQL's suffixes _ccold and _ccnew for indexes that REINDEX CONCURRENTLY replaces."""


def is_known(finding: Finding, *texts: str) -> bool:
    return finding.kind == "error" and any(text in finding.what for text in texts)


def run_at(where: Place, operations: int = OPERATIONS) -> Report:
    return run(where, random.randrange(10**6), operations)


@pytest.fixture(scope="module")
def paths() -> dict[str, str]:
    return programs()


@on("sqlite", "mysql", "mariadb")
def test_history(database: str, paths: dict[str, str]) -> None:
    """A history of ten thousand operations has no findings."""
    with place(database, paths, servers.servers()[database].url) as where:
        report = run_at(where)

    assert not report.findings, str(report)
    assert report.outcomes()["ok"] > 0.7 * OPERATIONS, str(report)


@on("postgresql")
def test_history_on_postgresql(database: str, paths: dict[str, str]) -> None:
    """A history of ten thousand operations has no findings while indexes are rebuilt."""
    with place(database, paths, servers.servers()[database].url) as where:
        report = run_at(where)

    sent = [each for each in report.findings if each.what.startswith("send raised IntegrityError")]
    assert not [each for each in report.findings if not is_known(each, REBUILT)] + sent, str(report)
    assert report.outcomes()["ok"] > 0.7 * OPERATIONS, str(report)


@pytest.mark.nodes
@on("postgresql")
def test_history_with_a_replica(database: str, paths: dict[str, str]) -> None:
    """No acknowledged row is lost when a synchronous replica is promoted."""
    if "initdb" not in paths:
        pytest.skip("no PostgreSQL programs were found: run tools/nodes up")
    with place_with_replica(paths) as where:
        report = run_at(where, 4000)

    assert not [each for each in report.findings if not is_known(each, REBUILT)], str(report)
    assert "fail over" in {each.name for each in report.happened if not each.refused}, str(report)


# --- regression tests for what histories have found


@on("postgresql", "mysql", "mariadb")
def test_server_that_has_ended_by_itself(database: str, paths: dict[str, str]) -> None:
    """A server that has ended with all of its processes is started again, as one that was killed is."""
    if not SERVERS[database].needs <= paths.keys():
        pytest.skip(f"no programs of {database} were found: run tools/nodes up")
    with place(database, paths) as where:
        assert where.server is not None
        os.killpg(where.server.pid, signal.SIGTERM)
        wait_until(lambda: where.server is not None and where.server.has_ended, "the end of the server")

        where.heal()

        assert answer(where.url, "SELECT 1") == (1,)


@on("postgresql", "mysql", "mariadb")
def test_first_lease_while_others_connect(engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """A thread can connect while another one takes the first key of an allocator."""
    connecting, has_begun = threading.Event(), threading.Event()
    own = new_engine(engine.name, engine.url)

    @event.listens_for(own, "connect")
    def configure(connection: Any, record: Any) -> None:
        connecting.set()
        has_begun.wait(10)

    with ThreadPoolExecutor(1) as thread:
        connected = thread.submit(lambda: own.connect().close())
        assert connecting.wait(10)
        BlockAllocator(own, "order", table="history_first", timeout=0.01)
        time.sleep(0.01)
        has_begun.set()
        connected.result()
