"""Tests of a multi-primary cluster: two nodes may generate the same id, which only a COMMIT detects.

Each kind of cluster has its own file in ``tests/nodes``, with a class that inherits from :class:`OfClusters`.
"""

from __future__ import annotations

import queue
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, MetaData, column, create_engine, event, select, table, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, sessionmaker
from support import private_servers
from support.people import People
from support.private_clusters import Cluster
from support.retrying import run_transaction

from sqlalchemy_public_id import NanoId, PublicIdMixin
from sqlalchemy_public_id.dialects import Outcome, traits_for
from sqlalchemy_public_id.idempotency import insert_once

__all__ = ["OfClusters", "Order"]

NARROW = NanoId(length=2, alphabet="0123456789abcdefghij")  # 400 ids
NUMBERS = 100
LINES = 3
WRITERS = 6
PEOPLE = 10_000


class Base(DeclarativeBase):
    metadata = MetaData()


class Order(PublicIdMixin, Base):
    """A model whose id the sender keeps."""

    __tablename__ = "order"
    number: Mapped[int]


class Line(PublicIdMixin, Base):
    """A model whose ids other nodes are likely to generate at the same time; its number is not unique."""

    __tablename__ = "line"
    __public_id__ = NARROW
    number: Mapped[int]
    position: Mapped[int]


class Coin(PublicIdMixin, Base):
    """A model with only two possible ids."""

    __tablename__ = "coin"
    __public_id__ = NanoId(length=1, alphabet="01")


class Writers:
    """Threads that write orders on all nodes, and move on to the next node when one fails."""

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
        """Write the waiting orders, starting with the node *home*."""
        while (number := self.waiting.get()) is not None:
            node = run_transaction(self.sessions(home), self.write(number), attempts=200, timeout=120, idempotent=True)
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
        """Wait until *count* orders are written, at least one of them on the last node."""
        with self.changed:
            while self.written.total() < count or not self.written[2]:
                self.changed.wait(0.2)
                for each in threads:
                    if each.done():
                        each.result()  # raises the error of a thread, because no thread should be done yet


class OfClusters:
    """The tests, for a class that has a fixture ``cluster``."""

    @pytest.fixture
    def nodes(self, cluster: Cluster) -> Iterator[list[Engine]]:
        """An engine for each node, and empty tables."""
        # a node that has just failed must not block its writers for long
        timeouts = {"connect_timeout": 5, "read_timeout": 60}
        engines = [create_engine(cluster.url(node), pool_size=WRITERS, connect_args=timeouts) for node in cluster.nodes]
        Base.metadata.drop_all(engines[0])
        Base.metadata.create_all(engines[0])
        for engine in engines:
            self.rows(cluster, engine, Coin.public_id)  # waits for the tables
        yield engines
        for engine in engines:
            engine.dispose()

    def rows(self, cluster: Cluster, engine: Engine, *columns: object) -> list[tuple[object, ...]]:
        """Return the sorted rows of a node, once it has applied all commits of the others."""
        node = next(each for each in cluster.nodes if cluster.url(each) == engine.url)
        # on a busy machine, a member may have been expelled, and be about to rejoin
        private_servers.wait_until(lambda: cluster.is_ready(node), f"node {node} is ready", cluster.log(node))
        with engine.connect() as connection:
            connection.execute(text(cluster.wait_for_all))
            rows = connection.execute(select(*columns)).all()
            connection.rollback()
            connection.execute(text(cluster.go_on))
        return sorted(map(tuple, rows))

    def test_ids_that_collide_between_nodes(self, cluster: Cluster, nodes: list[Engine]) -> None:
        """If two nodes insert the same id, the second COMMIT fails with a retryable error, although the guard is on."""
        with Session(nodes[0]) as first:
            first.add(Coin())
            first.commit()
        self.rows(cluster, nodes[1], Coin.public_id)
        with Session(nodes[0]) as first, Session(nodes[1]) as second:
            for session in (first, second):
                session.add(Coin())  # only one id is left for both of them
                session.flush()
            first.commit()
            with pytest.raises(OperationalError) as caught:
                second.commit()

        assert caught.value.orig is not None
        assert caught.value.orig.args[0] in cluster.refusals
        assert traits_for(nodes[1].dialect).outcome(caught.value.orig) is Outcome.RETRYABLE
        assert [self.rows(cluster, node, Coin.public_id) for node in nodes] == [[("0",), ("1",)]] * 3

    def test_repeated_inserts_on_two_nodes(self, cluster: Cluster, nodes: list[Engine]) -> None:
        """If two nodes insert one order, the second transaction is rolled back, and its retry finds the row."""
        answers: list[bool] = []

        def order() -> Order:
            return Order(public_id="izkpm55j334u", number=1)

        def send(session: Session) -> None:
            answers.append(insert_once(session, order())[1])
            if len(answers) == 1:
                first.commit()
                self.rows(cluster, nodes[1], Order.public_id)  # waits for the row

        with Session(nodes[0]) as first:
            insert_once(first, order())
            run_transaction(sessionmaker(nodes[1]), send)

        assert answers == [True, False]
        stored = [self.rows(cluster, node, Order.public_id, Order.number) for node in nodes]
        assert stored == [[("izkpm55j334u", 1)]] * 3

    def test_writers_of_narrow_ids(self, cluster: Cluster, nodes: list[Engine]) -> None:
        """No transaction of writers on all nodes is lost or repeated, although ids collide between nodes."""
        written: dict[int, str] = {}

        def write(home: int) -> None:
            def line(session: Session) -> str:
                row = Line(number=number, position=0)
                session.add(row)
                session.flush()
                return row.public_id

            for number in range(home, NARROW.capacity * 3 // 4, WRITERS):
                sessions = sessionmaker(nodes[home % len(nodes)])
                written[number] = run_transaction(sessions, line, attempts=100, timeout=60)

        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(write, range(WRITERS)))

        expected = sorted(written.items())
        assert len(expected) == NARROW.capacity * 3 // 4
        assert [self.rows(cluster, node, Line.number, Line.public_id) for node in nodes] == [expected] * 3

    def test_migration_beside_writers(self, cluster: Cluster, nodes: list[Engine]) -> None:
        """During a migration on one node, writers on all nodes see only the usual refusals of a cluster."""
        people = People(nodes[0])
        people.create(PEOPLE)
        person = table("person", column("id"), column("name"), column("public_id"))
        keys = [key for (key,) in self.rows(cluster, nodes[0], person.c.id)]
        stop, inserted, errors = threading.Event(), Counter[int](), Counter[int]()

        def write(number: int) -> None:
            chance = random.Random(number)
            with nodes[number % len(nodes)].connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                while not stop.wait(0.002):
                    change = person.update().where(person.c.id == chance.choice(keys)).values(name="changed")
                    statement = chance.choice([change, person.insert().values(name="new")])
                    try:
                        connection.execute(statement)
                    except DBAPIError as error:
                        errors[getattr(error.orig, "args", [0])[0]] += 1
                    else:
                        inserted[number] += statement is not change

        with ThreadPoolExecutor(WRITERS) as pool:
            threads = [pool.submit(write, number) for number in range(WRITERS)]
            try:
                people.add()
                people.run("drop_public_id")
                people.add()
            finally:
                stop.set()
            for each in threads:
                each.result()

        stored = [self.rows(cluster, node, person.c.id, person.c.public_id) for node in nodes]
        people.check_complete(PEOPLE + inserted.total())
        assert stored[0] == stored[1] == stored[2]
        assert set(errors) <= cluster.refusals
        people.drop()

    def test_writers_while_a_node_is_killed(self, cluster: Cluster, nodes: list[Engine]) -> None:
        """Each order and each line is stored once on all nodes, although one node was killed and rejoined."""
        writers = Writers(nodes)
        errors: list[int] = []
        for node in nodes:
            event.listen(node, "handle_error", lambda context: errors.extend(context.original_exception.args[:1]))
        parts = [range(NUMBERS)[:60], range(NUMBERS)[60:]]
        with ThreadPoolExecutor(WRITERS) as pool:
            threads = [pool.submit(writers.run, number % len(nodes)) for number in range(WRITERS)]
            try:
                for number in parts[0]:
                    writers.waiting.put(number)
                writers.wait_for(20, threads)
                cluster.kill(2)
                private_servers.wait_until(lambda: cluster.size(0) == 2, "the others notice", cluster.log(0))
                writers.wait_for(60, threads)
                before = writers.written[2]
                cluster.start(2)
                cluster.wait(2)
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
        assert [self.rows(cluster, node, Order.public_id, Order.number) for node in nodes] == [sorted(orders)] * 3
        assert [self.rows(cluster, node, Line.number, Line.position) for node in nodes] == [lines] * 3
        assert len({public_id for (public_id,) in self.rows(cluster, nodes[0], Line.public_id)}) == NUMBERS * LINES
        assert before < writers.written[2]
        assert writers.attempts.total() > NUMBERS, "no transaction was run again"
        assert cluster.refusals & set(errors), "no certification has failed"
