"""Tables for random programs: ordinary tables, one with a trigger, one without transactions, one in three shards, and
models with inheritance, a version, and listeners that write a log."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import DDL, Connection, Engine, ForeignKey, MetaData, String, Table, delete, event, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from sqlalchemy_public_id import NanoId, PublicIdMixin, testing
from sqlalchemy_public_id.keys import ShardRouter
from sqlalchemy_public_id.references import public_ref

__all__ = ["SHARES", "Columns", "World", "world_of"]

SHARES = {"plain": 0.3, "traced": 0.15, "loose": 0.15, "spread": 0.15, "family": 0.25}
"""World → its share of the programs."""


class Columns:
    """The columns that all models here have."""

    marker: Mapped[int]
    """Identifies a row. It has no unique constraint, so that a row that is stored twice is found."""
    code: Mapped[int] = mapped_column(unique=True)
    """A unique column, for INSERTs that fail because of another constraint."""
    note: Mapped[str | None] = mapped_column(String(20))


class PlainBase(DeclarativeBase):
    metadata = MetaData()


class Box(PublicIdMixin, PlainBase):
    __tablename__ = "program_box"


class Plain(Columns, PublicIdMixin, PlainBase):
    """A model with a hundred possible ids, so that many collide by chance."""

    __tablename__ = "program_plain"
    __public_id__ = NanoId(length=2, alphabet="0123456789")
    box_id: Mapped[int | None] = mapped_column(ForeignKey(Box.id))
    box: Mapped[Box | None] = relationship()
    box_public_id: Mapped[str | None] = public_ref("box")


class TracedBase(DeclarativeBase):
    metadata = MetaData()


class Audit(TracedBase):
    __tablename__ = "program_audit"
    number: Mapped[int] = mapped_column(primary_key=True)
    marker: Mapped[int]


class Traced(Columns, PublicIdMixin, TracedBase):
    """A model with a trigger that inserts a row into another table before each INSERT."""

    __tablename__ = "program_traced"
    __public_id__ = NanoId(length=2, alphabet="0123456789")


_AUDIT = "INSERT INTO program_audit (marker) VALUES (NEW.marker)"
_TRIGGERS = {
    "sqlite": [f"CREATE TRIGGER program_trace BEFORE INSERT ON program_traced BEGIN {_AUDIT}; END"],
    "mysql": [f"CREATE TRIGGER program_trace BEFORE INSERT ON program_traced FOR EACH ROW {_AUDIT}"],
    "mariadb": [f"CREATE TRIGGER program_trace BEFORE INSERT ON program_traced FOR EACH ROW {_AUDIT}"],
    "postgresql": [
        f"""CREATE OR REPLACE FUNCTION program_trace() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN {_AUDIT}; RETURN NEW; END $$""",
        "CREATE TRIGGER program_trace BEFORE INSERT ON program_traced FOR EACH ROW EXECUTE FUNCTION program_trace()",
    ],
}
for _database, _statements in _TRIGGERS.items():
    for _statement in _statements:
        event.listen(TracedBase.metadata, "after_create", DDL(_statement).execute_if(dialect=_database))


class LooseBase(DeclarativeBase):
    metadata = MetaData()


class Loose(Columns, PublicIdMixin, LooseBase):
    """A model whose storage engine has no transactions."""

    __tablename__ = "program_loose"
    __public_id__ = NanoId(length=2, alphabet="0123456789")
    __table_args__ = {"mysql_engine": "MyISAM", "mariadb_engine": "Aria"}  # noqa: RUF012


class SpreadBase(DeclarativeBase):
    metadata = MetaData()


class Spread(Columns, PublicIdMixin, SpreadBase):
    """A model in three databases, with more possible ids, because a colliding id cannot be replaced there."""

    __tablename__ = "program_spread"
    __public_id__ = NanoId(length=3, alphabet="0123456789")


class FamilyBase(DeclarativeBase):
    metadata = MetaData()


class Log(PublicIdMixin, FamilyBase):
    """The rows that listeners write for each member during its flush."""

    __tablename__ = "program_log"
    __public_id__ = NanoId(length=2, alphabet="0123456789")
    marker: Mapped[int]


class Member(Columns, PublicIdMixin, FamilyBase):
    __tablename__ = "program_member"
    __public_id__ = NanoId(length=2, alphabet="0123456789")
    kind: Mapped[str] = mapped_column(String(10))
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {  # noqa: RUF012
        "polymorphic_on": "kind",
        "polymorphic_identity": "member",
        "version_id_col": version,
    }


class Friend(Member):
    """A subclass in the table of its base."""

    __mapper_args__ = {"polymorphic_identity": "friend"}  # noqa: RUF012


class Partner(Member):
    """A subclass with a joined table."""

    __tablename__ = "program_partner"
    __mapper_args__ = {"polymorphic_identity": "partner"}  # noqa: RUF012
    id: Mapped[int] = mapped_column(ForeignKey(Member.id), primary_key=True)
    share: Mapped[int | None]


@event.listens_for(Member, "before_insert", propagate=True)
def log_by_a_second_session(mapper: Any, connection: Connection, member: Member) -> None:
    """Write every second log before the INSERT, in another session on the connection of the flush."""
    if member.marker % 2:
        with Session(connection, join_transaction_mode="create_savepoint") as other:
            other.add(Log(marker=member.marker))
            other.commit()


@event.listens_for(Member, "after_insert", propagate=True)
def log_by_a_statement(mapper: Any, connection: Connection, member: Member) -> None:
    """Write the other logs after the INSERT, with a statement."""
    if not member.marker % 2:
        connection.execute(insert(Log), [{"marker": member.marker}])


@dataclass
class World:
    """The models and databases that a program runs on."""

    name: str
    model: type[Any]
    metadata: MetaData
    engines: dict[str, Engine]
    router: ShardRouter | None = None
    rolls_back: bool = True
    """True if a rollback undoes writes."""
    audit: Table | None = None
    box: type[Any] | None = None
    boxes: dict[str, int] = field(default_factory=dict)
    """Public id → key of the rows that references point to."""
    children: tuple[type[Any], ...] = ()
    """The subclasses of the model."""
    log: type[Any] | None = None

    @property
    def table(self) -> Table:
        table: Table = self.model.__table__
        return table

    @property
    def database(self) -> str:
        """The name of the first database."""
        return next(iter(self.engines.values())).dialect.name

    @property
    def has_savepoints(self) -> bool:
        return self.rolls_back and self.router is None

    def session(self, **options: Any) -> Session:
        if self.router is not None:
            return self.router.session(**options)
        return Session(next(iter(self.engines.values())), **options)

    def empty(self) -> None:
        """Delete all rows, and insert the rows that references point to."""
        for engine in self.engines.values():
            with engine.begin() as connection:
                for table in reversed(self.metadata.sorted_tables):
                    connection.execute(delete(table))
        if self.box is not None:
            with self.session() as session:
                boxes = [self.box(public_id=f"00000000000{number}") for number in range(3)]
                session.add_all(boxes)
                session.commit()
                self.boxes = {box.public_id: box.id for box in boxes}

    def meet_triggers(self) -> None:
        """Cause the engine's first collision, which warns on PostgreSQL, where the writes of its triggers stay."""
        if self.audit is None:
            return
        with self.session() as session, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            first = self.model(marker=0, code=0)
            session.add(first)
            session.flush()
            with testing.collisions(self.model, first.public_id):
                session.add(self.model(marker=1, code=1))
                session.flush()

    def connections(self, session: Session) -> dict[str, Connection]:
        """Return the connections of *session*, by shard."""
        if self.router is None:
            return {name: session.connection() for name in self.engines}
        return {name: session.connection(bind_arguments={"shard_id": name}) for name in self.engines}

    def rows(self, session: Session) -> list[tuple[str, Any]]:
        """Return the rows of the table as *session* sees them, each with its shard."""
        query = select(self.table)
        return [(name, row) for name, each in self.connections(session).items() for row in each.execute(query)]

    def logged(self, session: Session) -> Counter[int]:
        """Return the number of logs of each marker."""
        assert self.log is not None
        return Counter(session.scalars(select(self.log.marker)))

    def audited(self, session: Session) -> Counter[int]:
        """Return how often the trigger ran for each marker, not counting what was rolled back."""
        assert self.audit is not None
        (connection,) = self.connections(session).values()
        return Counter(connection.execute(select(self.audit.c.marker)).scalars())


def world_of(name: str, database: str, new_engine: Callable[..., Engine]) -> World:
    """Return the world *name* on *database*. The sharded world also uses two SQLite files."""
    kinds = [database, "sqlite", "sqlite"] if name == "spread" else [database]
    engines = {
        each: new_engine(kind, connect_args={"timeout": 1} if kind == "sqlite" else {})
        for each, kind in zip("abc", kinds, strict=False)
    }
    for engine in engines.values():
        if engine.dialect.name == "sqlite":  # transactions that support savepoints, with SQLAlchemy's recipe
            event.listen(engine, "connect", lambda connection, record: setattr(connection, "isolation_level", None))
            event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    if name == "plain":
        return World(name, Plain, PlainBase.metadata, engines, box=Box)
    if name == "traced":
        audit: Any = Audit.__table__
        return World(name, Traced, TracedBase.metadata, engines, audit=audit)
    if name == "loose":
        return World(name, Loose, LooseBase.metadata, engines, rolls_back=False)
    if name == "family":
        return World(name, Member, FamilyBase.metadata, engines, children=(Friend, Partner), log=Log)
    return World(name, Spread, SpreadBase.metadata, engines, router=ShardRouter(engines))
