"""Sessions that route writes to a leader and reads to a replica, as in the recipe of SQLAlchemy's documentation.

https://docs.sqlalchemy.org/en/20/orm/persistence_techniques.html#custom-vertical-partitioning
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Delete, Engine, ForeignKey, Insert, MetaData, String, Update, func, insert, select
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, backref, foreign, mapped_column, relationship
from support.ways import flush, insert_in_bulk

from sqlalchemy_public_id import PublicIdMixin, bulk, idempotency, public_ref

PUBLIC_ID = "izkpm55j334u"


class Base(DeclarativeBase):
    metadata = MetaData()


class Customer(PublicIdMixin, Base):
    __tablename__ = "customer"
    name: Mapped[str] = mapped_column(String(9), default="ada")


class Shop(DeclarativeBase):
    metadata = MetaData()


class Buyer(PublicIdMixin, Shop):
    __tablename__ = "buyer"


class Sale(PublicIdMixin, Shop):
    __tablename__ = "sale"
    buyer_id: Mapped[int] = mapped_column(ForeignKey("buyer.id"))
    buyer: Mapped[Buyer] = relationship()
    buyer_public_id = public_ref("buyer")


@pytest.fixture
def engines(new_engine: Callable[..., Engine]) -> tuple[Engine, Engine]:
    """Return a leader, and a replica that lags behind: it receives no row of the leader during a test."""
    leader, replica = new_engine("sqlite"), new_engine("sqlite")
    for engine in (leader, replica):
        Base.metadata.create_all(engine)
    return leader, replica


def routing(engines: tuple[Engine, Engine], *written: type[Any]) -> type[Session]:
    """Return a class of sessions that send flushes, and the statements *written*, to the leader."""
    leader, replica = engines

    class RoutingSession(Session):
        def get_bind(self, mapper: Any = None, *, clause: Any = None, **options: Any) -> Engine:
            return leader if self._flushing or isinstance(clause, written) else replica

    return RoutingSession


@pytest.fixture
def new_session(engines: tuple[Engine, Engine]) -> type[Session]:
    return routing(engines, Insert, Update, Delete)


@pytest.fixture
def documented_session(engines: tuple[Engine, Engine]) -> type[Session]:
    """Return the class of the documentation, which sends the INSERT statements of a program to the replica."""
    return routing(engines, Update, Delete)


WRITES: dict[str, Callable[[Session], object]] = {
    "flush": lambda session: (session.add_all([Customer(), Customer()]), session.flush()),
    "execute": lambda session: session.execute(insert(Customer).values([{"name": "ada"}, {"name": "ada"}])),
    "bulk.insert": lambda session: bulk.insert(session, [Customer(), Customer()]),
    "bulk.insert_many": lambda session: bulk.insert_many(session, (Customer() for _ in range(2))),
    "insert_once": lambda session: [
        idempotency.insert_once(session, Customer(public_id=each)) for each in (PUBLIC_ID, "a" * 12)
    ],
}


def names_in(engines: tuple[Engine, Engine]) -> list[Any]:
    """Return the names that are stored on the leader, and those on the replica."""
    with engines[0].connect() as leader, engines[1].connect() as replica:
        return [connection.scalars(select(Customer.name)).all() for connection in (leader, replica)]


@pytest.mark.parametrize("way", WRITES)
def test_rows_are_written_to_the_leader(new_session: type[Session], engines: tuple[Engine, Engine], way: str) -> None:
    """Every way to insert rows uses the engine that the session chooses for writes."""
    with new_session() as session:
        WRITES[way](session)
        session.commit()

    assert names_in(engines) == [["ada", "ada"], []]


@pytest.mark.parametrize("way", [way for way in WRITES if way != "execute"])
def test_objects_are_written_where_flushes_write(
    documented_session: type[Session], engines: tuple[Engine, Engine], way: str
) -> None:
    """Every way to insert objects uses the engine that the session chooses for its flushes."""
    with documented_session() as session:
        WRITES[way](session)
        session.commit()

    assert names_in(engines) == [["ada", "ada"], []]


def test_repetition_is_found_where_flushes_write(documented_session: type[Session]) -> None:
    """A repetition finds the row on the leader, also if the session chooses it for its flushes alone."""
    for is_new in (True, False):
        with documented_session() as session:
            assert idempotency.insert_once(session, Customer(public_id=PUBLIC_ID))[1] is is_new
            session.commit()


def test_repeated_insert(new_session: type[Session]) -> None:
    """A repetition finds the row on the leader, even if the replica does not have it yet; later reads use the replica.

    This also works if the session object has its own ``get_bind`` attribute.
    """
    for is_new in (True, False):
        with new_session() as session:
            own = vars(session)["get_bind"] = session.get_bind
            assert idempotency.insert_once(session, Customer(public_id=PUBLIC_ID))[1] is is_new

            assert vars(session)["get_bind"] is own
            session.commit()
            assert session.scalars(select(Customer.name)).all() == []
    with new_session() as session:
        assert idempotency.insert_once(session, Customer(public_id=PUBLIC_ID))[1] is False
        assert "get_bind" not in vars(session)


@pytest.mark.parametrize("way", [flush, insert_in_bulk])
def test_assigned_ids_are_found_where_rows_are_written(
    documented_session: type[Session], engines: tuple[Engine, Engine], way: Any
) -> None:
    """An id that is assigned to a reference is looked up on the leader: the replica may not have its row yet."""
    for engine in engines:
        Shop.metadata.create_all(engine)
    with documented_session() as session:
        session.add(Buyer(public_id=PUBLIC_ID))
        session.commit()
    with documented_session() as session:
        sales = way(session, Sale, [{"buyer_public_id": PUBLIC_ID}, {"buyer_public_id": PUBLIC_ID}])
        assert [sale.buyer_id for sale in sales] == [1, 1]
        session.commit()


def test_related_rows_of_another_database(new_engine: Callable[..., Engine]) -> None:
    """A repetition loads related rows from their own database."""
    own = MetaData()

    class Model(DeclarativeBase):
        metadata = own

    class Team(PublicIdMixin, Model):
        __tablename__ = "team"

    class Member(PublicIdMixin, Model):
        __tablename__ = "member"
        team_id: Mapped[int]
        team: Mapped[Team] = relationship(
            primaryjoin=lambda: foreign(Member.team_id) == Team.id, lazy="selectin", innerjoin=True
        )

    teams, members = new_engine("sqlite"), new_engine("sqlite")
    own.create_all(teams, tables=[Team.__table__])
    own.create_all(members, tables=[Member.__table__])
    found = []
    for _ in range(2):
        with Session(binds={Team: teams, Member: members}) as session:
            idempotency.insert_once(session, Team(public_id=PUBLIC_ID))
            member, created = idempotency.insert_once(session, Member(public_id=PUBLIC_ID, team_id=1))
            found.append((member.team.public_id, created))
            session.commit()

    assert found == [(PUBLIC_ID, True), (PUBLIC_ID, False)]


_OF_A_TEAM = backref("size", lazy="selectin", uselist=False)


def test_related_rows_of_a_query(engines: tuple[Engine, Engine], documented_session: type[Session]) -> None:
    """A repetition loads what a class selects that is mapped to a query, and from the leader."""
    own = MetaData()

    class Model(DeclarativeBase):
        metadata = own

    class Team(PublicIdMixin, Model):
        __tablename__ = "team"

    class Player(Model):
        __tablename__ = "player"
        id: Mapped[int] = mapped_column(primary_key=True)
        team_id: Mapped[int]

    class Size(Model):
        __table__ = select(Player.team_id, func.count().label("players")).group_by(Player.team_id).subquery()
        __mapper_args__ = {"primary_key": [__table__.c.team_id]}  # noqa: RUF012  # as SQLAlchemy has it
        team: Mapped[Team] = relationship(primaryjoin=lambda: foreign(Size.team_id) == Team.id, backref=_OF_A_TEAM)

    for engine in engines:
        own.create_all(engine)
    with documented_session() as session:
        team, _ = idempotency.insert_once(session, Team(public_id=PUBLIC_ID))
        session.add(Player(team_id=team.id))
        session.commit()
    with documented_session() as session:
        team, created = idempotency.insert_once(session, Team(public_id=PUBLIC_ID))
        assert (team.size.players, created) == (1, False)


def test_engine_of_a_base_table(new_engine: Callable[..., Engine]) -> None:
    """A joined table is read and written where a flush writes it: with the table of its base."""
    own = MetaData()

    class Model(DeclarativeBase):
        metadata = own

    class Party(PublicIdMixin, Model):
        __tablename__ = "party"
        kind: Mapped[str] = mapped_column(String(9))
        __mapper_args__ = {"polymorphic_on": "kind"}  # noqa: RUF012  # SQLAlchemy reads it

    class Firm(Party):
        __tablename__ = "firm"
        id: Mapped[int] = mapped_column(ForeignKey("party.id"), primary_key=True)
        __mapper_args__ = {"polymorphic_identity": "firm"}  # noqa: RUF012  # SQLAlchemy reads it

    class Offer(PublicIdMixin, Model):
        __tablename__ = "offer"
        firm_id: Mapped[int] = mapped_column(ForeignKey("firm.id"))
        firm: Mapped[Firm] = relationship()
        firm_public_id = public_ref("firm")

    engine = new_engine("sqlite")
    own.create_all(engine)
    for is_new in (True, False):
        with Session(binds={Party.__table__: engine, Offer.__table__: engine}) as session:
            assert idempotency.insert_once(session, Firm(public_id=PUBLIC_ID))[1] is is_new
            offers = insert_in_bulk(session, Offer, [{"firm_public_id": PUBLIC_ID}])
            assert [offer.firm_id for offer in offers] == [1]
            session.commit()


def test_sharded_session_chooses_no_shard_by_a_statement(engines: tuple[Engine, Engine]) -> None:
    """The ``shard_chooser`` of a sharded session, whose SELECTs ask every shard anyway, is not asked with an UPDATE."""
    shards = dict(zip("ab", engines, strict=True))
    for engine in engines:
        Shop.metadata.create_all(engine)

    def choose(mapper: Any, instance: Any, clause: Any = None) -> str:
        assert clause is None
        return "a"

    everywhere: Any = {"identity_chooser": lambda *_, **__: [*shards], "execute_chooser": lambda _: [*shards]}
    with ShardedSession(shards=shards, shard_chooser=choose, **everywhere) as session:
        session.add(Buyer(public_id=PUBLIC_ID))
        sales = insert_in_bulk(session, Sale, [{"buyer_public_id": PUBLIC_ID}])
        assert [sale.buyer_id for sale in sales] == [1]
