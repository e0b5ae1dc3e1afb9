"""What reads the changes of a table while it gets ids: subscribers of PostgreSQL, and a reader of MySQL's binlog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import QueryEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import URL
from support.people import People, send
from support.private_clusters import GroupReplication
from support.private_servers import wait_until

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.errors import DryRun

# --- subscribers


def alone(engine: Engine, statement: str) -> None:
    """Execute *statement* outside of any transaction."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(statement))


def wait_for_ids(published: People, subscribed: People) -> None:
    """Wait until the subscriber has the ids of the publisher."""
    wait_until(lambda: subscribed.ids() == published.ids(), "the ids at the subscriber")


@pytest.fixture
def engines(three_postgresqls: list[URL]) -> Iterator[tuple[Engine, Engine]]:
    """A server that publishes, and one that subscribes."""
    publisher, subscriber = map(create_engine, three_postgresqls[:2])
    for setting in ("ALTER SYSTEM SET wal_retrieve_retry_interval = '100ms'", "SELECT pg_reload_conf()"):
        alone(subscriber, setting)  # retry soon after an error
    yield publisher, subscriber
    publisher.dispose()
    subscriber.dispose()


@pytest.fixture
def published(engines: tuple[Engine, Engine]) -> Iterator[tuple[People, People]]:
    """A table of 100 people, and the copy that another server keeps of it."""
    publisher, subscriber = engines
    people, copy = People(publisher), People(subscriber, server_default="none")
    people.create(100)
    copy.create(0)
    try:
        alone(publisher, "CREATE PUBLICATION people FOR TABLE person")
        source = f"host={publisher.url.host} port={publisher.url.port} user=postgres dbname=test"
        alone(subscriber, f"CREATE SUBSCRIPTION people CONNECTION '{source}' PUBLICATION people")
        yield people, copy
    finally:
        alone(subscriber, "DROP SUBSCRIPTION IF EXISTS people")
        alone(publisher, "DROP PUBLICATION IF EXISTS people")
        people.drop()
        copy.drop()


def test_subscriber_first(published: tuple[People, People], caplog: pytest.LogCaptureFixture) -> None:
    """The operation warns of subscribers; once they have the column that it names, they get every id, and no error."""
    people, copy = published
    with pytest.raises(DryRun) as caught:
        people.add(dry_run=True)
    [warning] = caught.value.report.warnings
    assert "published in people: subscribers stop" in warning
    copy.execute(warning.rpartition("first: ")[2])

    people.add()
    people.write(50)

    assert warning in caplog.text
    wait_for_ids(people, copy)
    copy.add()
    copy.check_complete(150)
    with pytest.raises(DryRun) as caught:
        people.run("drop_public_id", dry_run=True)
    [warning] = caught.value.report.warnings
    copy.execute(warning.rpartition("first: ")[2])
    people.run("drop_public_id")
    people.write(1)
    wait_until(lambda: len(copy.ids()) == 151, "the new row at the subscriber")


def count(people: People, query: str = "SELECT count(*) FROM person") -> int:
    with people.engine.connect() as connection:
        return int(send(connection, query).scalar() or 0)


ERRORS = "SELECT sum(apply_error_count) FROM pg_stat_subscription_stats"


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_publisher_first(published: tuple[People, People], identity: str) -> None:
    """A subscriber without the column stops at the first change after the expand, and catches up once it has it."""
    people, copy = published
    wait_until(lambda: count(copy) == 100, "the rows at the subscriber")
    people.execute(f"ALTER TABLE person REPLICA IDENTITY {identity}")
    before = count(copy, ERRORS)

    people.add()
    people.write(50)
    wait_until(lambda: count(copy, ERRORS) > before, "the error of the subscriber")
    assert count(copy) == 100
    copy.execute('ALTER TABLE person ADD COLUMN public_id varchar(12) COLLATE "C"')

    wait_for_ids(people, copy)
    assert all(NanoId().is_valid(each or "") for each in copy.ids())


# --- a reader of the binlog

IMAGES = ("before_values", "after_values", "values")
"""The images of a row in events: two of an UPDATE, one of others."""


class Reader:
    """A program that follows the binlog of a server, as Debezium and Maxwell do."""

    def __init__(self, url: URL) -> None:
        self.url = url
        with create_engine(url).connect() as connection:
            self.log, self.position = send(connection, "SHOW BINARY LOG STATUS").one()[:2]

    def read(self) -> list[Any]:
        """Return the changes of the table since the last call: statements as text, and rows as their values."""
        stream = BinLogStreamReader(
            connection_settings={"host": self.url.host, "port": self.url.port, "user": "root", "passwd": ""},
            server_id=4711,
            resume_stream=True,
            log_file=self.log,
            log_pos=self.position,
            only_events=[QueryEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        )
        changes: list[Any] = []
        for event in stream:
            if isinstance(event, QueryEvent):
                statement = event.query if isinstance(event.query, str) else event.query.decode()
                changes += [statement] if statement.startswith(("ALTER", "CREATE", "DROP")) else []
            elif event.table == "person":
                changes += [tuple(tuple(row[image].values()) for image in IMAGES if image in row) for row in event.rows]
        self.log, self.position = stream.log_file, stream.log_pos
        stream.close()
        return changes


def test_reader_of_the_binlog(group: GroupReplication) -> None:
    """It gets one UPDATE for each row that the backfill fills, and only the ALTER of each other step."""
    people = People(create_engine(group.url(0)))
    people.create(20)
    reader = Reader(people.engine.url)
    try:
        people.run("expand_public_id")
        expanded = reader.read()
        people.write(3)
        written = reader.read()
        people.run("backfill_public_id")
        filled = reader.read()
        people.run("contract_public_id")
        contracted = reader.read()
        people.run("drop_public_id")
        dropped = reader.read()
    finally:
        people.drop()

    assert expanded
    assert all(isinstance(each, str) and each.startswith("ALTER TABLE") for each in (*expanded, *contracted, *dropped))
    assert all(NanoId().is_valid(new[2]) for (new,) in written)
    assert len(written) == 3
    assert [before[:2] for before, _ in filled] == [after[:2] for _, after in filled]
    assert len(filled) == 20
    assert all(before[2] is None and NanoId().is_valid(after[2]) for before, after in filled)
