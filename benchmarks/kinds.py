"""Tables with each kind of key, as text for the databases: accounts, and entries that refer to two of them.

An account has three secondary indexes besides that of its public id, an entry those of its two foreign keys. Each kind
gets the smallest type that a database has for it: 8 bytes for a BIGINT, 16 for a UUID, a byte a character for a text.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import uuid_utils
from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Uuid,
)
from sqlalchemy.dialects import mysql

from sqlalchemy_public_id import NanoId, PublicIdType, Uuid4, Uuid7
from sqlalchemy_public_id.formats import Format

__all__ = ["KINDS", "NANOID", "Batch", "Kind", "Tables"]

Ids: TypeAlias = list[str]
"""Texts, as PostgreSQL's COPY reads them."""
_REMEMBERED = 50_000
"""Keys of accounts that entries refer to; uniform over all that were written."""

_nanoid = NanoId()


def _uuids4(first: int, count: int) -> Ids:
    return [str(uuid_utils.uuid4()) for _ in range(count)]


def _uuids7(first: int, count: int) -> Ids:
    return [str(uuid_utils.uuid7()) for _ in range(count)]


def _nanoids(first: int, count: int) -> Ids:
    return _nanoid.generate_many(count)


def _time(second: int) -> str:
    return (datetime(2020, 1, 1) + timedelta(seconds=second)).isoformat(" ")


def _numbers(first: int, count: int) -> Ids:
    return [str(number) for number in range(first, first + count)]


_BIGINT = BigInteger().with_variant(Integer(), "sqlite").with_variant(mysql.BIGINT(unsigned=True), "mysql", "mariadb")
_UUID = Uuid().with_variant(mysql.BINARY(16), "mysql", "mariadb").with_variant(LargeBinary(16), "sqlite")
_BYTEWISE = String(12, collation="ascii_bin")
_TEXT = String(12).with_variant(_BYTEWISE, "mysql", "mariadb").with_variant(String(12, collation="C"), "postgresql")


@dataclass(frozen=True)
class Kind:
    """How the rows of a table are told apart, inside and outside."""

    name: str
    key: Any
    """The type of the key and of what refers to it."""
    keys: Callable[[int, int], Ids]
    format: Format | None = None
    """The format of the public id, if the key is not shown."""
    shown: Callable[[int, int], Ids] | None = None
    """Makes public ids."""
    ordered: bool = True
    """True if the order of keys is that of time."""

    @property
    def slug(self) -> str:
        return "".join(letter if letter.isalnum() else "_" for letter in self.name.lower())

    @property
    def shown_column(self) -> str:
        """The column by which a row is looked up from outside."""
        return "public_id" if self.format else "id"


NANOID = "BIGINT + NanoId"
KINDS = [
    Kind(NANOID, _BIGINT, _numbers, _nanoid, _nanoids),
    Kind("BIGINT + Uuid4, native", _BIGINT, _numbers, Uuid4(), _uuids4),
    Kind("BIGINT + Uuid7, native", _BIGINT, _numbers, Uuid7(), _uuids7),
    Kind("UUIDv4 key", _UUID, _uuids4, ordered=False),
    Kind("UUIDv7 key", _UUID, _uuids7),
    Kind("NanoID key", _TEXT, _nanoids, ordered=False),
]
"""Ours first. All public ids have a unique index."""


@dataclass
class Batch:
    """Rows of both tables, as texts."""

    accounts: list[tuple[str, ...]]
    entries: list[tuple[str, ...]]


@dataclass
class Tables:
    """The tables of a kind in one database, and what has been generated for them."""

    kind: Kind
    metadata: MetaData = field(default_factory=MetaData)
    written: int = 0
    remembered: list[tuple[str, str]] = field(default_factory=list)
    """Keys of some accounts, and what is shown of them."""

    def __post_init__(self) -> None:
        kind, slug = self.kind, self.kind.slug
        public_id: list[Column[Any]] = (
            [Column("public_id", PublicIdType(kind.format), nullable=False)] if kind.format else []
        )
        self.accounts = Table(
            f"account_{slug}",
            self.metadata,
            Column("id", kind.key, primary_key=True, autoincrement=False),
            *public_id,
            Column("name", String(50), nullable=False),
            Column("email", String(100), nullable=False),
            Column("created_at", DateTime(), nullable=False),
        )
        if kind.format:
            Index(f"uq_{slug}_public_id", self.accounts.c.public_id, unique=True)
        for name in ("name", "email", "created_at"):
            Index(f"ix_{slug}_{name}", self.accounts.c[name])
        self.entries = Table(
            f"entry_{slug}",
            self.metadata,
            Column("id", kind.key, primary_key=True, autoincrement=False),
            Column("payer_id", kind.key, ForeignKey(self.accounts.c.id), nullable=False),
            Column("payee_id", kind.key, ForeignKey(self.accounts.c.id), nullable=False),
            Column("amount", Integer(), nullable=False),
        )
        for name in ("payer_id", "payee_id"):
            Index(f"ix_{slug}_{name}", self.entries.c[name])
        self._random = random.Random(0)

    def batch(self, rows: int) -> Batch:
        """Generate so many accounts, and as many entries that refer to these and to older ones."""
        kind, chance, first = self.kind, self._random, self.written + 1
        keys = kind.keys(first, rows)
        shown = kind.shown(first, rows) if kind.shown else keys
        accounts: list[tuple[str, ...]] = []
        for number, key, public_id in zip(range(first, first + rows), keys, shown, strict=True):
            ids = (key, public_id) if kind.shown else (key,)
            accounts.append(
                (*ids, f"name {chance.randrange(10**9)}", f"{chance.randrange(10**12)}@example.org", _time(number))
            )
        self._remember(list(zip(keys, shown, strict=True)))
        entries: list[tuple[str, ...]] = [
            (key, chance.choice(self.remembered)[0], chance.choice(self.remembered)[0], str(chance.randrange(10_000)))
            for key in kind.keys(first, rows)
        ]
        return Batch(accounts, entries)

    def _remember(self, new: list[tuple[str, str]]) -> None:
        """Keep a sample of all accounts in which each is as likely as any other."""
        self.written += len(new)
        room = _REMEMBERED - len(self.remembered)
        self.remembered += new[:room]
        rest = new[room:]
        some = int(len(rest) * _REMEMBERED / self.written + self._random.random())
        for row in self._random.sample(rest, some):
            self.remembered[self._random.randrange(_REMEMBERED)] = row
