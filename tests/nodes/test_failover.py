"""A failover to a replica that is behind: which keys and ids are issued again, and what prevents it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session
from sqlalchemy.pool import NullPool
from support.marks import on
from support.replicas import Replication

from sqlalchemy_public_id import PublicIdMixin, Snowflake, audit
from sqlalchemy_public_id.formats import BASE36
from sqlalchemy_public_id.keys import BlockAllocator, CoprimeKey, CoprimeStep, Range, block_key, cluster_key

KINDS = ("event", "snowflake", "call", "customer", "depot", "post")


class Program:
    """A program with keys of blocks, of clusters and of a range, ids that are counted, and Snowflakes."""

    def __init__(self, engine: Engine, machine: int = 1, **options: Any) -> None:
        self.engine = engine
        self.events = BlockAllocator(lambda: self.engine, "event", block=100, **options)
        self.codes = BlockAllocator(lambda: self.engine, "code", block=100, **options)

        class Base(DeclarativeBase): ...

        class Event(PublicIdMixin, Base):
            __tablename__ = "event"
            __public_id__ = Snowflake(lambda: machine)
            id: Mapped[int] = block_key(self.events)

        class Call(PublicIdMixin, Base):
            __tablename__ = "call"
            __public_id__ = CoprimeKey(self.codes, step=CoprimeStep(BASE36, 6), prefix="call")

        class Customer(PublicIdMixin, Base):
            __tablename__ = "customer"
            id: Mapped[int] = cluster_key(cluster=10)

        class Depot(PublicIdMixin, Base):
            __tablename__ = "depot"
            id: Mapped[int] = cluster_key(cluster=10, strategy="function")

        class Post(PublicIdMixin, Base):
            __tablename__ = "post"
            id: Mapped[int] = cluster_key(key_range=Range(10**6, 2 * 10**6))

        self.metadata, self.models = Base.metadata, (Event, Call, Customer, Depot, Post)

    def write(self, count: int) -> dict[str, set[Any]]:
        """Store rows of each model in a transaction each; return their keys and ids, and how many commits failed."""
        made: dict[str, set[Any]] = {kind: set() for kind in KINDS}
        self.failed = 0
        while len(made["customer"]) < count:
            with Session(self.engine, expire_on_commit=False) as session:
                event, call, customer, depot, post = rows = [model() for model in self.models]
                session.add_all(rows)
                try:
                    session.commit()
                except IntegrityError:
                    self.failed += 1
                    continue
                made["event"].add(event.id)
                made["snowflake"].add(event.public_id)
                made["call"].add(call.public_id)
                made["customer"].add(customer.id)
                made["depot"].add(depot.id)
                made["post"].add(post.id)
        return made


@on("postgresql", "mysql", "mariadb")
def test_failover_in_the_middle_of_a_block(
    servers: Replication, new_engine: Callable[..., Engine], database: str
) -> None:
    """A program that restarts stores every row, but issues keys and ids of lost rows again, unless they are raised.

    A program that goes on with the numbers in its memory meets those that another one leases: one INSERT fails, or
    none, and no key is stored twice.
    """
    primary, replica = (new_engine(database, url, poolclass=NullPool) for url in (servers.primary, servers.replica))
    old = Program(primary, create=True)
    old.events.create_table()
    old.metadata.create_all(primary)
    stored = old.write(60)  # of the first block
    servers.fall_behind()
    lost = old.write(100)  # which ends in the second block
    servers.promote()

    restarted = Program(replica)
    again = restarted.write(60)
    old.engine = replica  # it goes on with the rest of the second block
    later = old.write(60)
    raised = Program(replica, start=10_000)
    after = raised.write(10)

    assert (restarted.failed, raised.failed) == (0, 0)
    assert old.failed <= 2
    for kind in KINDS:
        together = [stored[kind], again[kind], later[kind], after[kind]]
        assert sum(map(len, together)) == len(set().union(*together)) == 190, kind
    assert again["event"] & lost["event"]
    assert again["call"] & lost["call"]
    for kind in ("customer", "depot", "post"):
        # PostgreSQL writes up to 32 numbers of a sequence to its log in advance, which the replica skips
        assert again[kind] & lost[kind], kind
    assert not (again["snowflake"] | later["snowflake"]) & lost["snowflake"]
    assert not after["event"] & lost["event"]
    assert not after["call"] & lost["call"]
    with Session(replica) as session:
        for model in raised.models:
            assert len(session.scalars(select(model.public_id)).all()) == 190
    found = audit.run(replica, models=raised.metadata)
    assert found.at_least("warning") == []
