"""A Galera cluster of three nodes, where two nodes give out one id and only a COMMIT tells."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import private_servers
import pytest
from private_servers import Galera
from sqlalchemy import Engine, MetaData, create_engine, event, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, sessionmaker

from sqlalchemy_public_id import NanoId, PublicIdMixin, guard
from sqlalchemy_public_id.idempotency import insert_once

DEADLOCK = 1213
NARROW = NanoId(length=2, alphabet="0123456789abcdefghij")  # 400 ids
NUMBERS = 100
LINES = 3
WRITERS = 6


class Base(DeclarativeBase):
    metadata = MetaData()


class Order(PublicIdMixin, Base):
    """Has an id that its sender keeps."""

    __tablename__ = "order"
    number: Mapped[int]


class Line(PublicIdMixin, Base):
    """Has an id that other nodes are likely to give out at the same time; its number may be there twice."""

    __tablename__ = "line"
    __public_id__ = NARROW
    number: Mapped[int]
    position: Mapped[int]


class Coin(PublicIdMixin, Base):
    __tablename__ = "coin"
    __public_id__ = NanoId(length=1, alphabet="01")


@pytest.fixture
def nodes(galera: Galera) -> Iterator[list[Engine]]:
    """An engine for each node, and empty tables."""
    # a node that has just gone must not keep its writers for long
    timeouts = {"connect_timeout": 5, "read_timeout": 60}
    engines = [create_engine(galera.url(node), pool_size=WRITERS, connect_args=timeouts) for node in galera.nodes]
    Base.metadata.drop_all(engines[0])
    Base.metadata.create_all(engines[0])
    for engine in engines:
        rows(engine, Coin.public_id)  # which waits for the tables
    yield engines
    for engine in engines:
        engine.dispose()


def rows(engine: Engine, *columns: object) -> list[tuple[object, ...]]:
    """What a node has when it knows all that the others have committed, in order."""
    with engine.connect() as connection:
        connection.execute(text("SET SESSION wsrep_sync_wait = 1"))
        found = connection.execute(select(*columns)).all()
        connection.execute(text("SET SESSION wsrep_sync_wait = 0"))
    return sorted(map(tuple, found))


def test_ids_that_collide_between_nodes(nodes: list[Engine]) -> None:
    """The COMMIT of the second node is refused as a deadlock, which no guard can turn into another id."""
    with Session(nodes[0]) as first:
        first.add(Coin())
        first.commit()
    rows(nodes[1], Coin.public_id)
    with Session(nodes[0]) as first, Session(nodes[1]) as second:
        for session in (first, second):
            session.add(Coin())  # there is one id left, for both of them
            session.flush()
        first.commit()
        with pytest.raises(OperationalError) as caught:
            second.commit()

    assert caught.value.orig is not None
    assert caught.value.orig.args[0] == DEADLOCK
    assert [rows(node, Coin.public_id) for node in nodes] == [[("0",), ("1",)]] * 3


def test_repeated_inserts_on_two_nodes(nodes: list[Engine]) -> None:
    """Of one order on two nodes, the second one is a deadlock first, and the row of the first one when run again."""
    answers: list[bool] = []

    def order() -> Order:
        return Order(public_id="izkpm55j334u", number=1)

    def send(session: Session) -> None:
        answers.append(insert_once(session, order())[1])
        if len(answers) == 1:
            first.commit()

    with Session(nodes[0]) as first:
        insert_once(first, order())
        guard.run_transaction(sessionmaker(nodes[1]), send)

    assert answers == [True, False]
    assert [rows(node, Order.public_id, Order.number) for node in nodes] == [[("izkpm55j334u", 1)]] * 3


class Writers:
    """Threads that write orders on all nodes, and move on to the next node when one fails them."""

    def __init__(self, nodes: list[Engine]) -> None:
        self.nodes = nodes
        self.waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.ids = NanoId().generate_many(NUMBERS)
        self.written: Counter[int] = Counter()
        """Node → how many orders it has committed."""
        self.attempts: Counter[int] = Counter()
        """Number of an order → how often it was tried."""
        self.changed = threading.Condition()

    def run(self, home: int) -> None:
        """Write what is waiting, at first on the node *home*."""
        while (number := self.waiting.get()) is not None:
            node = guard.run_transaction(
                self.sessions(home), self.write(number), attempts=200, seconds=120, idempotent=True
            )
            with self.changed:
                self.written[node] += 1
                self.changed.notify_all()

    def sessions(self, home: int) -> Callable[[], Session]:
        made: list[int] = []

        def session() -> Session:
            node = (home + len(made)) % len(self.nodes)
            made.append(node)
            return Session(self.nodes[node], info={"node": node})

        return session

    def write(self, number: int) -> Callable[[Session], int]:
        def order(session: Session) -> int:
            self.attempts[number] += 1
            _, created = insert_once(session, Order(public_id=self.ids[number], number=number))
            if created:
                session.add_all(Line(number=number, position=position) for position in range(LINES))
            return int(session.info["node"])

        return order

    def wait_for(self, count: int, threads: list[Future[None]]) -> None:
        """Wait until so many orders are written, one of them at least on the last node."""
        with self.changed:
            while self.written.total() < count or not self.written[2]:
                self.changed.wait(0.2)
                for each in threads:
                    if each.done():
                        each.result()  # which raises, for none is done before it is told


def test_writers_on_all_nodes_while_one_is_killed(galera: Galera, nodes: list[Engine]) -> None:
    """Every order and every line is there once on all nodes, though ids collided and a node was killed and rejoined."""
    writers = Writers(nodes)
    deadlocks: list[int] = []
    for node in nodes:
        event.listen(node, "handle_error", lambda context: deadlocks.extend(context.original_exception.args[:1]))
    parts = [range(NUMBERS)[:60], range(NUMBERS)[60:]]
    with ThreadPoolExecutor(WRITERS) as pool:
        threads = [pool.submit(writers.run, number % len(nodes)) for number in range(WRITERS)]
        try:
            for number in parts[0]:
                writers.waiting.put(number)
            writers.wait_for(20, threads)
            galera.kill(2)
            private_servers.wait_until(lambda: galera.size(0) == 2, "the others notice", galera.log(0))
            writers.wait_for(60, threads)
            before = writers.written[2]
            galera.start(2)
            galera.wait(2)
            for number in parts[1]:
                writers.waiting.put(number)
            writers.wait_for(NUMBERS, threads)
        finally:
            for _ in threads:
                writers.waiting.put(None)
        for each in threads:
            each.result()

    orders = [(public_id, number) for number, public_id in enumerate(writers.ids)]
    lines = [(number, position) for number in range(NUMBERS) for position in range(LINES)]
    assert [rows(node, Order.public_id, Order.number) for node in nodes] == [sorted(orders)] * 3
    assert [rows(node, Line.number, Line.position) for node in nodes] == [lines] * 3
    assert len({public_id for (public_id,) in rows(nodes[0], Line.public_id)}) == NUMBERS * LINES
    assert before < writers.written[2]
    assert writers.attempts.total() > NUMBERS, "no transaction was run again"
    assert DEADLOCK in deadlocks, "no certification has failed"
