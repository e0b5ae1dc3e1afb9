"""Dialects of other packages that inherit from SQLAlchemy's under another name, such as ``auroradsql``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, Engine, ForeignKey, MetaData, String, cast, create_engine, inspect, literal
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mysql.mariadb import MariaDBDialect
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import StaticPool
from sqlalchemy.schema import CreateTable
from support.rows import agree
from support.ways import flush

from sqlalchemy_public_id import NanoId, PublicIdMixin, Uuid7, testing
from sqlalchemy_public_id.dialects import Traits, quoting, traits_for
from sqlalchemy_public_id.dialects._base import Oracle, SQLServer
from sqlalchemy_public_id.dialects.mysql import MySQL
from sqlalchemy_public_id.dialects.postgresql import PostgreSQL
from sqlalchemy_public_id.dialects.sqlite import SQLite

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


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        (MySQLDialect_pymysql(), {(8, 0, 13): "UNION", (8, 0, 14): "LATERAL", (9, 1): "LATERAL", None: "UNION"}),
        (MariaDBDialect(), {(11, 4, 2): "UNION", (12, 1): "UNION"}),
        (SQLiteDialect_pysqlite(), {(3, 45): "CORRELATED"}),
        (PGDialect_psycopg(), {(13, 0): "LATERAL"}),
        (OtherPostgreSQL(), {(13, 0): "UNION"}),
        (NAMESAKE(), {None: "UNION"}),
    ],
    ids=["MySQL", "MariaDB", "SQLite", "PostgreSQL", "other", "unknown"],
)
def test_limits_per_row(dialect: Any, expected: dict[Any, str]) -> None:
    """The form of a limit for each row is one that this version of the database knows; every one knows UNION ALL."""
    found = {}
    for version in expected:
        dialect.server_version_info = version
        found[version] = traits_for(dialect).limit_per_row(dialect).name

    assert found == expected


@pytest.mark.parametrize("is_lost", [True, False])
def test_error_before_a_table_is_created(is_lost: bool) -> None:
    """A server that does not tell its collations is taken for a complete one, but a lost connection is an error."""

    class Asked:
        """A connection whose server refuses the question."""

        dialect = MySQLDialect_pymysql()

        def execute(self, statement: object) -> None:
            raise OperationalError(str(statement), {}, Exception("gone"), connection_invalidated=is_lost)

    asked: Any = Asked()
    with pytest.raises(OperationalError) if is_lost else nullcontext():
        traits_for(asked.dialect).before_create(asked)

    assert "ascii_bin" in ddl(Letter, asked.dialect)


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        (PGDialect_psycopg(), r"E'it''s \\'"),
        (child_of("cockroachdb", PGDialect_psycopg)(), r"E'it''s \\'"),
        (MySQLDialect_pymysql(), r"'it''s \\'"),
        (MariaDBDialect(), r"'it''s \\'"),
        (SQLiteDialect_pysqlite(), r"'it''s \'"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_backslash_in_a_literal(dialect: Any, expected: str) -> None:
    """A backslash is doubled where it is special, and on PostgreSQL it is so in any session."""
    assert quoting.literal("it's \\", dialect) == expected
    assert quoting.literal("it's", dialect) == "'it''s'"
    if dialect.name == "mysql":
        dialect._backslash_escapes = False  # as after NO_BACKSLASH_ESCAPES in sql_mode
        assert quoting.literal("it's \\", dialect) == r"'it''s \'"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite://", True),
        ("sqlite:///:memory:", True),
        ("sqlite:///file:one?mode=memory&uri=true", True),
        ("sqlite:///{folder}/a.db", False),
        ("sqlite:///file:{folder}/a.db?uri=true", False),
    ],
)
def test_databases_in_memory(url: str, expected: bool, tmp_path: Path) -> None:
    """A database of SQLite without a file exists only for its connection, whatever its URL looks like."""
    engine = create_engine(url.format(folder=tmp_path), poolclass=StaticPool)
    with engine.connect() as connection:
        assert traits_for(engine.dialect).is_in_memory(connection) is expected
    engine.dispose()


@pytest.mark.parametrize("level", ["", "IMMEDIATE"])
def test_how_sqlite_begins(level: str, tmp_path: Path) -> None:
    """A transaction begins as the driver would begin it: with the write lock, if the program wants that."""
    options = {"isolation_level": level, "timeout": 0}
    one, other = (create_engine(f"sqlite:///{tmp_path}/a.db", connect_args=options) for _ in range(2))
    with one.connect() as first, other.connect() as second:
        traits_for(one.dialect).begin(first.connection)
        assert traits_for(one.dialect).in_transaction(first.connection.dbapi_connection)
        with pytest.raises(OperationalError, match="locked") if level else nullcontext():
            second.exec_driver_sql("BEGIN IMMEDIATE")
    for engine in (one, other):
        engine.dispose()


LITERALS: list[tuple[Traits, str]] = [
    (SQLServer(), "0x00ff"),
    (Oracle(), "HEXTORAW('00ff')"),
    (PostgreSQL(), r"'\x00ff'::bytea"),
    (MySQL(), "X'00ff'"),
    (SQLite(), "X'00ff'"),
]


@pytest.mark.parametrize(("traits", "written"), LITERALS, ids=[type(traits).__name__ for traits, _ in LITERALS])
def test_bytes_in_a_literal(traits: Traits, written: str) -> None:
    """Each database writes bytes in its way, and whole numbers as they are."""
    assert traits.literal(b"\x00\xff") == written
    assert traits.literal(5) == "5"


@pytest.mark.parametrize("dialect", [PGDialect_psycopg(), MySQLDialect_pymysql(), SQLiteDialect_pysqlite()])
@pytest.mark.parametrize("name", ["plain", "order", 'a"b', "a`b", "a%b", "a%%b", "Capital", '"', "`"])
def test_names_there_and_back(dialect: Any, name: str) -> None:
    """A name that SQLAlchemy has quoted is read as it was, with quotes and percent signs in it."""
    assert quoting.unquoted(dialect.identifier_preparer.quote(name), dialect) == name


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
