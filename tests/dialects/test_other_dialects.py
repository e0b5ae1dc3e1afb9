"""Dialects of other packages that inherit from SQLAlchemy's under another name, such as ``auroradsql``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import BigInteger, Engine, ForeignKey, MetaData, String, cast, inspect, literal
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mysql.mariadb import MariaDBDialect
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.schema import CreateTable
from support.rows import agree
from support.ways import flush

from sqlalchemy_public_id import NanoId, PublicIdMixin, Uuid7, testing
from sqlalchemy_public_id.dialects import traits_for

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class Invoice(PublicIdMixin, Base):
    __tablename__ = "invoice"
    __public_id__ = Uuid7()
    name: Mapped[str] = mapped_column(String(9), default="a")


class Payment(PublicIdMixin, Base):
    """A model whose foreign key takes the type of the key."""

    __tablename__ = "payment"
    invoice_id: Mapped[int] = mapped_column(ForeignKey("invoice.id"))


class Letter(PublicIdMixin, Base):
    __tablename__ = "letter"
    __public_id__ = NanoId(prefix="letter")


def child_of(name: str, *parents: Any) -> Any:
    """Create a dialect as another package would, which inherits from SQLAlchemy's *parents*."""
    return type(name.title().replace("_", ""), parents, {"name": name, "supports_statement_cache": True})


OtherPostgreSQL = child_of("other_postgresql", PGDialect_psycopg)
OtherMySQL = child_of("other_mysql", MySQLDialect_pymysql)
OtherMariaDB = child_of("other_mariadb", MariaDBDialect, MySQLDialect_pymysql)
OtherSQLite = child_of("other_sqlite", SQLiteDialect_pysqlite)
NAMESAKE = child_of("postgresql", DefaultDialect)
"""A dialect that has the name of SQLAlchemy's, but does not inherit from it."""

CHILDREN = {"postgresql": OtherPostgreSQL, "mysql": OtherMySQL, "mariadb": OtherMariaDB, "sqlite": OtherSQLite}
for attribute, child in [pair for pair in globals().items() if pair[0].startswith("Other")]:
    for name in (child.name, f"{child.name}.own"):
        registry.register(name, __name__, attribute)


def ddl(model: type[Any], dialect: Any) -> str:
    return str(CreateTable(model.__table__).compile(dialect=dialect))


@pytest.mark.parametrize("model", [Invoice, Letter, Payment])
def test_types(database: str, engine: Engine, model: type[Any]) -> None:
    """The columns have the same types on a child dialect as in its family."""
    assert ddl(model, engine.dialect) == ddl(model, CHILDREN[database]())


def test_cast_to_the_type_of_a_key(database: str, engine: Engine) -> None:
    """A CAST to the type of the key names the same type on a child dialect."""
    key = cast(literal(1), Invoice.__table__.c.id.type)
    wanted = {"postgresql": "BIGINT", "sqlite": "INTEGER"}.get(database, "UNSIGNED INTEGER")

    written = [str(key.compile(dialect=dialect)) for dialect in (engine.dialect, CHILDREN[database]())]
    assert [sql.partition(" AS ")[2] for sql in written] == [f"{wanted})"] * 2


def test_a_key_is_an_integer() -> None:
    """Code that inspects the types of a model, as other libraries do, finds that the key is a BigInteger."""
    assert isinstance(inspect(Payment).columns.invoice_id.type, BigInteger)


def test_types_of_a_namesake() -> None:
    """A dialect that only has the name of a known one gets the types of an unknown database."""
    assert "public_id VARCHAR(19) NOT NULL" in ddl(Letter, NAMESAKE())
    assert "COLLATE" not in ddl(Letter, NAMESAKE())


@pytest.mark.parametrize("name", ["cockroachdb", "auroradsql"])
def test_types_of_a_child_that_differs(name: str) -> None:
    """A child dialect that is known to differ from its family has its own types, and its collisions are not retried."""
    child = child_of(name, PGDialect_psycopg)()

    assert "public_id UUID NOT NULL" in ddl(Invoice, child)
    assert "COLLATE" not in ddl(Letter, child)
    assert not traits_for(child).retries


def test_collisions(
    database: str, engine: Engine, create: Callable[[MetaData], None], new_engine: Callable[..., Engine]
) -> None:
    """A collision is retried on a child dialect, as on every database of its family."""
    create(Base.metadata)
    with Session(new_engine(database, engine.url.set(drivername=f"{CHILDREN[database].name}+own"))) as session:
        [first] = flush(session, Invoice, [{}])
        with testing.collisions(Invoice, first.public_id):
            [second] = flush(session, Invoice, [{}])

        agree(session, [first, second])
