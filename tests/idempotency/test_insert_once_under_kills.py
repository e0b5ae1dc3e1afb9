"""``insert_once`` from many connections at once, of which some are killed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, MetaData, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session
from support.marks import on
from support.purchases import Base, Order, stored

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = pytest.mark.slow

CONNECTIONS, TIMES = 32, 5
IDS = NanoId().generate_many(1000)


def driver_number(connection: Connection) -> int:
    """What the server calls the connection."""
    driver: Any = connection.connection.driver_connection
    return int(driver.info.backend_pid if connection.dialect.name == "postgresql" else driver.thread_id())


class Clients:
    """Programs that send payments, with an engine each, and an administrator who ends their connections."""

    def __init__(self, engines: Iterator[Engine]) -> None:
        self.engines = engines
        self.engine = next(engines)
        self.local = threading.local()
        self.connected: dict[int, int] = {}
        """Thread → the number of its connection."""
        self.killed: set[int] = set()
        self.outcomes: Counter[object] = Counter()
        self.done = threading.Event()

    def send(self, public_id: str) -> None:
        """Send a payment as a client does: again, until it hears what became of it."""
        if not hasattr(self.local, "engine"):
            self.local.engine = next(self.engines)
        while True:
            number = None
            try:
                with self.local.engine.connect() as connection, Session(connection) as session:
                    number = self.connected[threading.get_ident()] = driver_number(connection)
                    row, created = insert_once(session, Order(public_id=public_id, note=f"for {public_id}"))
                    assert row.note == f"for {public_id}"
                    time.sleep(random.random() / 500)  # so that others meet the row before it is committed
                    session.commit()
            except SQLAlchemyError:
                if number not in self.killed:
                    raise
                self.outcomes["killed"] += 1
            else:
                self.outcomes[created] += 1
                return

    def kill(self) -> None:
        """End a connection, twenty times a second."""
        with self.engine.connect() as own:
            while not self.done.wait(0.05):
                alive = set(self.connected.values()) - self.killed
                if alive:
                    number = random.choice(list(alive))
                    self.killed.add(number)
                    kill = "SELECT pg_terminate_backend({})" if own.dialect.name == "postgresql" else "KILL {}"
                    with suppress(DBAPIError), own.begin():  # it may be gone already
                        own.execute(text(kill.format(number)))


@on("postgresql", "mysql", "mariadb")
def test_many_connections(
    database: str, engine: Engine, new_engine: Callable[..., Engine], create: Callable[[MetaData], None]
) -> None:
    """Each id makes one row, however often it is sent, and only who was killed sees an error."""
    create(Base.metadata)
    # an engine each, because a pool drops all its connections when one is killed
    clients = Clients(iter([new_engine(database, engine.url) for _ in range(CONNECTIONS + 1)]))
    with ThreadPoolExecutor(CONNECTIONS + 1) as threads:
        killer = threads.submit(clients.kill)
        sent = [threads.submit(clients.send, public_id) for public_id in IDS for _ in range(TIMES)]
        try:
            for each in sent:
                each.result()
        finally:
            clients.done.set()
        killer.result()

    assert stored(engine) == sorted(IDS)
    assert clients.outcomes[True] + clients.outcomes[False] == len(IDS) * TIMES
    assert clients.outcomes["killed"] > 0
