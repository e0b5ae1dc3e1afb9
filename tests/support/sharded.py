"""Accounts and their notes in several databases, and rows whose key or id determines their shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, Engine, ForeignKey, MetaData, String, event
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from sqlalchemy_public_id import NanoId, PublicIdColumnMixin, PublicIdMixin, Uuid7, lookup, public_ref
from sqlalchemy_public_id.keys import ShardRouter

CLUSTERS = {10: "a", 20: "b", 30: "c", 40: "d"}
"""Cluster → the shard with its keys."""
IDS = [f"shacct_{number:012}" for number in range(12)]


class Base(DeclarativeBase):
    metadata = MetaData()


class Account(PublicIdMixin, Base):
    """A model whose rows any shard may have."""

    __tablename__ = "sharded_account"
    __public_id__ = NanoId(prefix="shacct")
    name: Mapped[str] = mapped_column(String(50), default="")
    notes: Mapped[list[Note]] = relationship(back_populates="account", cascade="all, delete-orphan")


class Note(PublicIdMixin, Base):
    """A model whose rows are in the shard of their account."""

    __tablename__ = "sharded_note"
    __public_id__ = NanoId(prefix="shnote")
    account_id: Mapped[int] = mapped_column(ForeignKey(Account.id))
    account: Mapped[Account] = relationship(back_populates="notes")
    account_public_id: Mapped[str] = public_ref("account")


class Event(PublicIdMixin, Base):
    """A model whose ids are stored as numbers."""

    __tablename__ = "sharded_event"
    __public_id__ = Uuid7(prefix="shev", encoding="crockford32")


class Region(PublicIdColumnMixin, Base):
    """A model whose key contains its cluster."""

    __tablename__ = "sharded_region"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)


class Word(PublicIdColumnMixin, Base):
    """A model whose key is text."""

    __tablename__ = "sharded_word"
    text: Mapped[str] = mapped_column(String(20), primary_key=True)


class Shards:
    """Four databases, and the statements that are sent to them."""

    def __init__(self, engines: dict[str, Engine]) -> None:
        self.engines = engines
        self.sent: list[str] = []
        for name, engine in engines.items():
            event.listen(engine, "before_cursor_execute", lambda *call, name=name: self.sent.append(name))

    def router(self, **options: Any) -> ShardRouter:
        return ShardRouter(self.engines, **options)

    def asked(self, call: Callable[[], Any]) -> list[str]:
        """Return the shards that *call* sends statements to, in order."""
        self.sent.clear()
        call()
        return sorted(self.sent)

    def holding(self, model: type[Any], public_id: str) -> list[str]:
        """Return the shards that have the row."""
        found: list[str] = []
        for name, engine in self.engines.items():
            with Session(engine) as session:
                found += [name] if lookup.get(session, model, public_id) is not None else []
        return found


def stored(db: ShardedSession, count: int = 12) -> list[Account]:
    """Store accounts in all shards, some with equal keys, and return them."""
    accounts = [Account(public_id=public_id, name=f"account {at}") for at, public_id in enumerate(IDS[:count])]
    db.add_all(accounts)
    db.commit()
    return accounts
