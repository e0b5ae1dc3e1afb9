"""The feeds of docs/guides/feeds.md: consumers beside writers that commit in another order, with kills."""

from __future__ import annotations

import os
import random
import re
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import Engine, Index, MetaData, create_engine, event, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from support.marks import on

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "feeds.md"
WRITERS, CONSUMERS = 10, 3
ENTRIES = int(os.environ.get("PUBLIC_ID_FEED_ENTRIES", "600"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def execute(program: str) -> Any:
    """Return the module with a program of the page."""
    module: Any = ModuleType(f"feed_{next(_numbers)}")
    sys.modules[module.__name__] = module  # where SQLAlchemy looks for the names in annotations
    exec(program, module.__dict__)
    return module


_numbers = count()


class Numbered:
    """The feed of the first section: a publisher numbers entries."""

    def __init__(self) -> None:
        self.page = execute(blocks("python")[0])
        self.Entry, self.metadata = self.page.Entry, self.page.Base.metadata

    def begin(self, session: Session) -> None:
        session.add(self.page.Feed(id=1))

    def read(self, publisher: Session, session: Session, after: str | None) -> Any:
        self.page.publish(publisher, limit=100)
        return self.page.read(session, after, limit=50)


class ByTransaction:
    """The feed of the second section."""

    def __init__(self) -> None:
        models, reading = blocks("text")[0].split("page = ")
        first = blocks("python")[0].split("class Feed")[0]
        self.page = execute(first + models)
        self.reading = reading
        self.Entry, self.metadata = self.page.Entry, self.page.Base.metadata

    def begin(self, session: Session) -> None:
        pass

    def read(self, publisher: Session, session: Session, after: str | None) -> Any:
        with session.begin():
            return eval(self.reading, {**self.page.__dict__, "session": session, "after": after})


class Workers:
    """Writers, consumers, and one who kills their connections."""

    def __init__(self, feed: Any, engine: Engine, entries: int) -> None:
        self.feed, self.engine = feed, engine
        # a publisher does not see what others have numbered, at the default isolation of MySQL and MariaDB
        self.publishers = create_engine(engine.url, isolation_level="READ COMMITTED")
        self.each = entries // WRITERS
        self.read: list[list[str]] = [[] for _ in range(CONSUMERS)]
        self.connections: set[int] = set()
        self.kills = self.late = 0
        self.writing = threading.Event()
        self.errors: list[BaseException] = []
        for each in (engine, self.publishers):
            event.listen(each, "connect", self._connected)

    def run(self) -> None:
        self.writing.set()
        writers = [threading.Thread(target=self._guarded, args=(self._write, number)) for number in range(WRITERS)]
        others = [threading.Thread(target=self._guarded, args=(self._consume, number)) for number in range(CONSUMERS)]
        killer = threading.Thread(target=self._guarded, args=(self._kill,))
        for thread in (*writers, *others, killer):
            thread.start()
        for thread in writers:
            thread.join()
        self.writing.clear()
        for thread in (*others, killer):
            thread.join()
        for each in (self.engine, self.publishers):
            each.dispose()  # connections that were killed last
        if self.errors:
            raise self.errors[0]
        assert [self._read_on(read) for read in self.read] == [[]] * CONSUMERS
        self.publishers.dispose()

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self.errors.append(error)

    def _connected(self, dbapi_connection: Any, record: Any) -> None:
        cursor = dbapi_connection.cursor()
        cursor.execute("SELECT pg_backend_pid()" if self.engine.name == "postgresql" else "SELECT CONNECTION_ID()")
        self.connections.add(cursor.fetchone()[0])
        cursor.close()
        dbapi_connection.rollback()

    def _write(self, writer: int) -> None:
        chance = random.Random(writer)
        for number in range(self.each):
            text = f"{writer}.{number}"
            while not self._is_stored(text):
                try:
                    with Session(self.engine) as session, session.begin():
                        session.add(self.feed.Entry(text=text))
                        session.flush()
                        time.sleep(chance.choice([0, 0, 0.001, 0.02]))  # others commit meanwhile
                        if chance.random() < 0.05:
                            session.rollback()
                except DBAPIError:
                    pass  # killed; whether it is committed, the next turn asks

    def _is_stored(self, text: str) -> bool:
        while True:
            try:
                with Session(self.engine) as session:
                    Entry = self.feed.Entry
                    return session.scalar(select(Entry.id).where(Entry.text == text)) is not None
            except DBAPIError:
                pass

    def _consume(self, consumer: int) -> None:
        after: str | None = None
        until = None  # a transaction of anybody on the server may hold a feed back for a while
        while until is None or (len(self.read[consumer]) < self.each * WRITERS and time.monotonic() < until):
            if until is None and not self.writing.is_set():
                until = time.monotonic() + 60
            try:
                with Session(self.publishers) as publisher, Session(self.engine, expire_on_commit=False) as session:
                    page = self.feed.read(publisher, session, after)
                    ids = [entry.public_id for entry in page]
            except DBAPIError:
                continue  # killed: the cursor is kept
            if ids:
                after = ids[-1]
                self.read[consumer] += ids

    def _read_on(self, read: list[str]) -> list[Any]:
        """Return what comes after all that a consumer has *read*."""
        with Session(self.publishers) as publisher, Session(self.engine) as session:
            return list(self.feed.read(publisher, session, read[-1] if read else None))

    def _kill(self) -> None:
        chance = random.Random(0)
        with self.publishers.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            own = connection.scalar(text("SELECT pg_backend_pid()" if self._is_pg else "SELECT CONNECTION_ID()"))
            while self.writing.is_set():
                time.sleep(0.1)
                number = chance.choice(sorted(self.connections - {own}))
                self.connections.discard(number)
                try:
                    connection.execute(
                        text(f"SELECT pg_terminate_backend({number})" if self._is_pg else f"KILL {number}")
                    )
                    self.kills += 1
                except DBAPIError:
                    pass  # it is gone already

    @property
    def _is_pg(self) -> bool:
        return self.engine.name == "postgresql"


@pytest.fixture
def workers(request: pytest.FixtureRequest, create: Callable[[MetaData], None], engine: Engine) -> Workers:
    feed = request.param()
    Index("ix_entry_text", feed.Entry.__table__.c.text, mysql_length=20, mariadb_length=20)  # for the writers
    create(feed.metadata)
    with Session(engine) as session, session.begin():
        feed.begin(session)
    return Workers(feed, engine, ENTRIES)


def check(workers: Workers) -> None:
    """Compare what each consumer has read with what is stored."""
    with Session(workers.engine) as session:
        Entry = workers.feed.Entry
        stored = list(session.scalars(select(Entry.public_id).order_by(Entry.id)))
    assert len(stored) == workers.each * WRITERS
    for read in workers.read:
        assert len(read) == len(set(read))
        assert set(read) == set(stored)
        assert read == workers.read[0]
    assert workers.kills > 3
    if isinstance(workers.feed, Numbered):
        assert workers.read[0] != stored, "all were committed in the order of their keys, so this shows nothing"


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("workers", [Numbered], indirect=True)
def test_numbered_feed(workers: Workers) -> None:
    """Each consumer of a numbered feed reads each entry once, and all of them in one order."""
    workers.run()
    check(workers)


@on("postgresql")
@pytest.mark.parametrize("workers", [ByTransaction], indirect=True)
def test_feed_by_transaction(workers: Workers) -> None:
    """Each consumer of a feed in the order of transactions reads each entry once, and all of them in one order."""
    workers.run()
    check(workers)
