"""A backfill beside a replica of PostgreSQL waits while the replica is too far behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool
from support.connections import count_waiting, monitor
from support.people import People, send
from support.private_servers import wait_until
from support.rights import user_with

from sqlalchemy_public_id import ConfigurationError, backfill
from sqlalchemy_public_id.backfill import MaxLag, MaxLoad
from sqlalchemy_public_id.cli.commands import public_id


@pytest.fixture
def engines(primary_and_standby: tuple[URL, URL]) -> Iterator[tuple[Engine, Engine]]:
    primary, replica = (create_engine(url, poolclass=NullPool) for url in primary_and_standby)
    yield primary, replica
    _send(replica, "SELECT pg_wal_replay_resume()")


@pytest.fixture
def people(engines: tuple[Engine, Engine]) -> Iterator[People]:
    made = People(engines[0])
    made.create(2000)
    made.run("expand_public_id")
    yield made
    made.drop()


def _send(engine: Engine, statement: str) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(statement))


def test_waits(engines: tuple[Engine, Engine], people: People) -> None:
    """While the replica replays nothing, no batch begins after the limit; afterwards, the backfill completes."""
    primary, replica = engines
    lag = MaxLag(replica, 0.2)
    _send(replica, "SELECT pg_wal_replay_pause()")
    _send(primary, "CREATE TABLE IF NOT EXISTS something (id integer)")
    with primary.connect() as connection:
        assert not lag(connection)
        time.sleep(0.3)
        assert lag(connection)
    with ThreadPoolExecutor(1) as threads:
        worker = threads.submit(backfill.run, primary, "person", batch_seconds=0.01, wait_while=lag)
        time.sleep(1.5)
        assert not worker.done()
        assert set(people.ids()) == {None}
        _send(replica, "SELECT pg_wal_replay_resume()")
        worker.result(30)

    people.run("contract_public_id")
    people.check_complete(2000)


def test_load(engines: tuple[Engine, Engine]) -> None:
    """What sends the log to the replica is always active, but no load; nobody needs a right to see it."""
    primary, _ = engines
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL AND usename <> current_user"
    with primary.connect() as connection:
        senders = "SELECT state FROM pg_stat_activity WHERE backend_type = 'walsender'"
        assert connection.scalars(text(senders)).all() == ["active"]
        assert MaxLoad(0).running(connection) == 0
    with user_with(primary) as url, create_engine(url, poolclass=NullPool).connect() as limited:
        limited.execution_options(isolation_level="AUTOCOMMIT")
        wait_until(lambda: not limited.scalar(text(others)), "the end of other connections")
        assert MaxLoad(0).running(limited) == 0


def test_load_that_is_not_tracked(engines: tuple[Engine, Engine]) -> None:
    """The load is unknown while another session reports no activity, and the error names the setting and its number."""
    primary, _ = engines
    with primary.connect() as own, primary.connect() as other:
        send(other, "SET track_activities = off")
        number = send(other, "SELECT pg_backend_pid()").scalar()
        with pytest.raises(ConfigurationError, match=rf"track_activities is off in the session {number}, .*max-load"):
            MaxLoad(0).running(own)
        send(own, "SET track_activities = off")
        send(other, "SET track_activities = on")
        assert MaxLoad(0).running(own) == 0


def test_load_inside_a_transaction(engines: tuple[Engine, Engine]) -> None:
    """A backfill in the transaction of its caller sees that others become busy, and that they end."""
    primary, _ = engines
    with monitor(primary) as watch, primary.connect() as own, primary.connect() as other, ThreadPoolExecutor(1) as pool:
        send(own, "SELECT pg_advisory_lock(1)")
        found = [MaxLoad(0).running(own)]
        waiting = pool.submit(send, other, "SELECT pg_advisory_lock(1)")
        wait_until(lambda: count_waiting(watch) == 1, "the other session waits")
        found.append(MaxLoad(0).running(own))
        send(own, "SELECT pg_advisory_unlock(1)")
        waiting.result()
        found.append(MaxLoad(0).running(own))

    assert found == [0, 1, 0]


def test_command(engines: tuple[Engine, Engine], people: People) -> None:
    """The command takes the URL of the replica, and the maximum lag."""
    urls = [engine.url.render_as_string(hide_password=False) for engine in engines]
    arguments = ["backfill", urls[0], "person", "--replica", urls[1], "--max-lag", "20"]
    result = CliRunner().invoke(public_id, arguments)

    assert result.exit_code == 0, result.output
    assert "2,000 rows of person got an id" in result.stdout


def test_replica(engines: tuple[Engine, Engine], people: People) -> None:
    """On a replica, the plan has a warning, and each command is refused with the reason."""
    url = engines[1].url.render_as_string(hide_password=False)
    _wait_for_column(engines[1])
    planned = CliRunner().invoke(public_id, ["plan", url, "person"])
    refused = [CliRunner().invoke(public_id, [name, url, "person"]) for name in ("add", "backfill")]

    assert planned.exit_code == 0, planned.output
    assert "warning: the server is a replica, on which nothing can be changed" in planned.output
    assert [each.exit_code for each in refused] == [1, 1]
    assert all("the server is a replica" in each.stderr for each in refused), [each.stderr for each in refused]


def _wait_for_column(replica: Engine) -> None:
    def is_there() -> bool:
        with replica.connect() as connection:
            return "public_id" in {column["name"] for column in inspect(connection).get_columns("person")}

    wait_until(is_there, "the column on the replica")
