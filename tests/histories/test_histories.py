"""Histories on real servers: whatever is killed, rebuilt, interrupted or full, what was acknowledged is there, once.

``python tests/histories --operations 100000 --on postgresql --seed 7`` is a long one.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from histories.checking import Finding
from histories.failover import place_with_replica
from histories.places import Place, place, programs
from histories.running import Report, run
from sqlalchemy import Engine, event
from support import servers
from support.marks import on

from sqlalchemy_public_id.keys import BlockAllocator

pytestmark = pytest.mark.slow

OPERATIONS = 10_000

REBUILT = "_public_id_cc"
"""The names that PostgreSQL gives to an index which REINDEX CONCURRENTLY replaces end in _ccold and _ccnew."""


def is_known(finding: Finding, *texts: str) -> bool:
    return finding.kind == "error" and any(text in finding.what for text in texts)


def run_at(where: Place, operations: int = OPERATIONS) -> Report:
    return run(where, random.randrange(10**6), operations)


@pytest.fixture(scope="module")
def paths() -> dict[str, str]:
    return programs()


@on("sqlite", "mysql", "mariadb")
def test_history(database: str, paths: dict[str, str]) -> None:
    """Nothing is found in a history of ten thousand operations."""
    with place(database, paths, servers.servers()[database].url) as where:
        report = run_at(where)

    assert not report.findings, str(report)
    assert report.outcomes()["ok"] > 0.7 * OPERATIONS, str(report)


@on("postgresql")
def test_history_on_postgresql(database: str, paths: dict[str, str]) -> None:
    """Nothing is found in a history of ten thousand operations, while indexes are rebuilt."""
    with place(database, paths, servers.servers()[database].url) as where:
        report = run_at(where)

    sent = [each for each in report.findings if each.what.startswith("send raised IntegrityError")]
    assert not [each for each in report.findings if not is_known(each, REBUILT)] + sent, str(report)
    assert report.outcomes()["ok"] > 0.7 * OPERATIONS, str(report)


@pytest.mark.nodes
@on("postgresql")
def test_history_with_a_replica(database: str, paths: dict[str, str]) -> None:
    """Nothing that was acknowledged is lost when a synchronous replica takes the place of the primary."""
    if "initdb" not in paths:
        pytest.skip("no PostgreSQL programs were found: run tools/nodes up")
    with place_with_replica(paths) as where:
        report = run_at(where, 4000)

    assert not [each for each in report.findings if not is_known(each, REBUILT)], str(report)
    assert "fail over" in {each.name for each in report.happened if not each.refused}, str(report)


# --- what histories have found, each by itself


@on("postgresql", "mysql", "mariadb")
def test_first_lease_while_others_connect(engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """A thread connects while another one takes the first key of an allocator."""
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
