"""Names of unique indexes, as the databases report them in errors."""

from __future__ import annotations

import pytest
from sqlalchemy import Column, Index, Integer, MetaData, String, Table
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.engine import Dialect

from sqlalchemy_public_id.dialects import Violation
from sqlalchemy_public_id.guard.collision import Match, match_violation

DIALECTS: dict[str, Dialect] = {
    "psycopg": postgresql.psycopg.dialect(),
    "asyncpg": postgresql.asyncpg.dialect(),
    "pymysql": mysql.pymysql.dialect(),
}
NAMES = ["uq_plain", 'uq_we"ird', "uq_back`tick", "uq_per%cent", "uq_%%", "uq_it's", "UPPER", "uq_with space", "order"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", NAMES)
def test_index_is_found_by_its_name(name: str, dialect: str) -> None:
    """Errors contain the unescaped name, so an index with an odd name is recognized."""
    column = Column("public_id", String(12))
    other = Column("code", String(12))
    table = Table("user", MetaData(), Column("id", Integer, primary_key=True), column, other)
    Index(name, column, unique=True)
    Index(f"{name}_2", other, unique=True)

    assert match_violation(Violation(constraint=name), column, DIALECTS[dialect]) is Match.YES
    assert match_violation(Violation(constraint=f"{name}_2"), column, DIALECTS[dialect]) is Match.NO
    assert match_violation(Violation(constraint=f"{table.name}.{name}"), column, DIALECTS[dialect]) is Match.YES


@pytest.mark.parametrize("name", ["user_public_id_key", "public_id", "user.public_id"])
def test_constraint_without_a_name(name: str) -> None:
    """A UNIQUE constraint without a name is known by the one that PostgreSQL, or MySQL and MariaDB, give it."""
    id, other = Column("public_id", String(12), unique=True), Column("code", String(12), unique=True)
    Table("user", MetaData(), Column("id", Integer, primary_key=True), id, other)

    assert match_violation(Violation(constraint=name), id, DIALECTS["pymysql"]) is Match.YES
    assert match_violation(Violation(constraint=name), other, DIALECTS["pymysql"]) is not Match.YES


def test_column_whose_name_begins_alike() -> None:
    """A duplicate in another column is no collision, although its name begins with that of the id."""
    id, old = Column("public_id", String(12), unique=True), Column("public_id_old", String(12), unique=True)
    Table("user", MetaData(), Column("id", Integer, primary_key=True), id, old)

    for columns in ("user.public_id_old", "user.tenant_id, user.public_id_old"):
        assert match_violation(Violation(columns=columns), id, DIALECTS["psycopg"]) is Match.NO
        assert match_violation(Violation(columns=columns), old, DIALECTS["psycopg"]) is Match.YES


@pytest.mark.parametrize("violation", [Violation(constraint="uq"), Violation(columns="user.tenant_id, user.public_id")])
def test_columns_beside_the_id(violation: Violation) -> None:
    """A violation of an index on the id and other columns is a collision, because another id resolves it."""
    id, tenant, code = Column("public_id", String(12)), Column("tenant_id", Integer), Column("code", String(12))
    table = Table("user", MetaData(), Column("id", Integer, primary_key=True), id, tenant, code)
    Index("uq", tenant, id, unique=True)
    dialect = DIALECTS["psycopg"]

    assert match_violation(violation, table.c.public_id, dialect) is Match.YES
    assert match_violation(violation, table.c.code, dialect) is Match.NO
