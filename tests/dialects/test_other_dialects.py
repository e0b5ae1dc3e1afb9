"""Dialects of other packages that are children of SQLAlchemy's, under a name of their own: ``auroradsql``, say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import BigInteger, Engine, ForeignKey, MetaData, String, cast, create_engine, inspect, literal, select
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mysql.mariadb import MariaDBDialect
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.schema import CreateTable
from support.rows import agree

from sqlalchemy_public_id import NanoId, PublicIdColumnMixin, PublicIdMixin, Ulid, Uuid7, idempotency, testing
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.keys import BlockAllocator, block_key

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class Invoice(PublicIdMixin, Base):
    __tablename__ = "invoice"
    __public_id__ = Uuid7()
    name: Mapped[str] = mapped_column(String(9), default="a")


class Receipt(PublicIdMixin, Base):
    __tablename__ = "receipt"
    __public_id__ = Ulid(prefix="rptrec")


class Payment(PublicIdMixin, Base):
    """Has a foreign key that takes the type of the key."""

    __tablename__ = "payment"
    invoice_id: Mapped[int] = mapped_column(ForeignKey("invoice.id"))


class Pallet(PublicIdColumnMixin, Base):
    """Has a key from blocks."""

    __tablename__ = "pallet"
    id: Mapped[int] = block_key(BlockAllocator(create_engine("sqlite:///pallets.db"), "pallet"))


class Letter(PublicIdMixin, Base):
    __tablename__ = "letter"
    __public_id__ = NanoId(prefix="letter")


class OtherPostgreSQL(PGDialect_psycopg):
    name = "other_postgresql"
    supports_statement_cache = True


class OtherMySQL(MySQLDialect_pymysql):
    name = "other_mysql"
    supports_statement_cache = True


class OtherMariaDB(MariaDBDialect, MySQLDialect_pymysql):
    name = "other_mariadb"
    supports_statement_cache = True


class OtherSQLite(SQLiteDialect_pysqlite):
    name = "other_sqlite"
    supports_statement_cache = True


class Namesake(DefaultDialect):
    """A dialect that is called as SQLAlchemy's, and is no child of it."""

    name = "postgresql"
    supports_statement_cache = True


class CockroachDB(PGDialect_psycopg):
    """Stands for the dialect of ``sqlalchemy-cockroachdb``, and for that of ``aurora-dsql-sqlalchemy``."""

    name = "cockroachdb"
    supports_statement_cache = True


class AuroraDSQL(PGDialect_psycopg):
    name = "auroradsql"
    supports_statement_cache = True


CHILDREN = {"postgresql": OtherPostgreSQL, "mysql": OtherMySQL, "mariadb": OtherMariaDB, "sqlite": OtherSQLite}
for child in CHILDREN.values():
    registry.register(child.name, __name__, child.__name__)
    registry.register(f"{child.name}.own", __name__, child.__name__)


def ddl(model: type[Any], dialect: Any) -> str:
    return str(CreateTable(model.__table__).compile(dialect=dialect))


@pytest.mark.parametrize("model", [Invoice, Receipt, Payment, Pallet])
def test_types(database: str, engine: Engine, model: type[Any]) -> None:
    """The columns of a child have the types of its family."""
    assert ddl(model, engine.dialect) == ddl(model, CHILDREN[database]())


def test_cast_to_the_type_of_a_key(database: str, engine: Engine) -> None:
    """A CAST to the type of the key names the same type on a child."""
    key = cast(literal(1), Invoice.__table__.c.id.type)
    wanted = {"postgresql": "BIGINT", "sqlite": "INTEGER"}.get(database, "UNSIGNED INTEGER")

    for dialect in (engine.dialect, CHILDREN[database]()):
        assert str(key.compile(dialect=dialect)).endswith(f" AS {wanted})")


def test_a_key_is_an_integer() -> None:
    """What looks at the types of a model, as other libraries do, finds that the key is a BigInteger."""
    assert isinstance(inspect(Payment).columns.invoice_id.type, BigInteger)


def test_types_of_a_namesake() -> None:
    """A dialect of another family has the types of an unknown database, although its name is a known one."""
    assert "public_id VARCHAR(19) NOT NULL" in ddl(Letter, Namesake())
    assert "COLLATE" not in ddl(Letter, Namesake())


@pytest.mark.parametrize("child", [CockroachDB, AuroraDSQL])
def test_types_of_a_child_that_differs(child: type[PGDialect_psycopg]) -> None:
    """A child that is known to differ from its family has types of its own, and is not guarded."""
    assert "public_id UUID NOT NULL" in ddl(Invoice, child())
    assert "COLLATE" not in ddl(Letter, child())
    assert not traits_for(child()).retries


def test_collisions(
    database: str, create: Callable[[MetaData], None], engine: Engine, new_engine: Callable[..., Engine]
) -> None:
    """A collision is retried on a child, as on every database of its family."""
    create(Base.metadata)
    with Session(new_engine(database, engine.url.set(drivername=f"{CHILDREN[database].name}+own"))) as session:
        session.add(first := Invoice())
        session.flush()
        with testing.collisions(Invoice, first.public_id):
            session.add(second := Invoice())
            session.flush()

        agree(session, [first, second])


def test_insert_once(
    database: str, create: Callable[[MetaData], None], engine: Engine, new_engine: Callable[..., Engine]
) -> None:
    """What was inserted once on a child is rolled back with its transaction."""
    create(Base.metadata)
    with Session(new_engine(database, engine.url.set(drivername=f"{CHILDREN[database].name}+own"))) as session:
        _, created = idempotency.insert_once(session, Invoice(public_id=Uuid7().generate()))
        session.rollback()

        assert created
        assert session.scalars(select(Invoice)).all() == []
