"""The exact statements of the steps for each dialect, without a server."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.plan import Lock, Plan
from sqlalchemy_public_id.migrations.state import IndexFacts, State

FORMAT = NanoId(length=2, alphabet="ab", prefix="p")
MADE = "CONCAT('p_', {0}, {0})".format(
    "substr('ab', 1 + CAST(CONV(HEX(RANDOM_BYTES(7)), 16, 10) AS UNSIGNED) MOD 2, 1)"
)
TYPE = "VARCHAR(4) CHARACTER SET ascii COLLATE ascii_bin"


def plan(dialect: str, **options: Any) -> Plan:
    options = {"format": FORMAT, "schema": "shop", **options}
    return plan_for(PublicIdColumn.of("person", **options), make_url(f"{dialect}://").get_dialect()())


EXISTS = State(exists=True)


def of(plan: Plan, phase: str, state: State = EXISTS) -> str:
    """Return all statements of a phase, one per line."""
    return "\n".join(sql for step in getattr(plan, phase)() for sql in step.statements(state))


def test_postgresql_expand() -> None:
    """On PostgreSQL, one statement adds the column and its default, and touches no row: only new rows get ids."""
    drawn = "pg_catalog.encode(pg_catalog.sha384(pg_catalog.uuid_send(pg_catalog.gen_random_uuid())), 'base64')"
    others = "ABCDEFGHIJKLMNOPQRSTUVWXYZcdefghijklmnopqrstuvwxyz0123456789+/"
    made = f"pg_catalog.left(pg_catalog.translate({drawn}, '{others}', '{'ab' * 31}'), 2)"

    assert of(plan("postgresql"), "expand", State()) == (
        'ALTER TABLE shop.person ADD COLUMN public_id VARCHAR(4) COLLATE "C", '
        f"ALTER COLUMN public_id SET DEFAULT 'p_' || {made}"
    )


def test_postgresql_contract() -> None:
    """On PostgreSQL, the index is built while others write, and NOT NULL is set after a CHECK has been validated."""
    lines = [
        "CREATE UNIQUE INDEX CONCURRENTLY uq_person_public_id ON shop.person (public_id)",
        "ALTER TABLE shop.person ADD CONSTRAINT ck_person_public_id_not_null CHECK (public_id IS NOT NULL) NOT VALID",
        "ALTER TABLE shop.person VALIDATE CONSTRAINT ck_person_public_id_not_null",
        "ALTER TABLE shop.person ALTER COLUMN public_id SET NOT NULL",
        "ALTER TABLE shop.person DROP CONSTRAINT IF EXISTS ck_person_public_id_not_null",
    ]

    assert of(plan("postgresql"), "contract").splitlines()[-len(lines) :] == lines
    steps = [step for step in plan("postgresql").contract() if step.lock is Lock.BUILD and step.statements(EXISTS)]
    assert [step.name for step in steps] == ["build the unique index", "look for NULL in old rows"]


@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
def test_mysql_contract(dialect: str) -> None:
    """On MySQL and MariaDB, the table is rewritten once, while others write; NOT NULL repeats the whole definition."""
    (step,) = [step for step in plan(dialect).contract() if "unique index" in step.name]
    built = IndexFacts("uq_person_public_id", True)
    index, modify = "ADD UNIQUE INDEX uq_person_public_id (public_id)", f"MODIFY COLUMN public_id {TYPE} NOT NULL"

    states = State(exists=True), State(exists=True, unique=built), State(exists=True, nullable=False)
    changes = f"{index}, {modify} DEFAULT ({MADE})", f"{modify} DEFAULT ({MADE})", index
    assert [*map(step.statements, states)] == [[f"ALTER TABLE shop.person {each}, LOCK=NONE"] for each in changes]
    assert not step.statements(State(exists=True, nullable=False, unique=built))


@pytest.mark.parametrize(
    ("version", "accepted"), [((10, 5, 28), False), ((10, 9, 8), False), ((10, 10, 0), True), ((11, 4, 2), True)]
)
def test_old_mariadb(version: tuple[int, ...], accepted: bool) -> None:
    """A MariaDB without RANDOM_BYTES() is refused, unless it does not have to generate ids."""
    target = plan("mariadb")
    target.dialect.server_version_info = version

    if accepted:
        assert "RANDOM_BYTES" in of(target, "expand", State())
    else:
        with pytest.raises(ConfigurationError, match=r"has no RANDOM_BYTES\(\); use 10\.10"):
            of(target, "expand", State())
    without = plan("mariadb", server_default="none")
    without.dialect.server_version_info = version
    assert "RANDOM_BYTES" not in of(without, "expand", State())


@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
@pytest.mark.parametrize("phase", ["expand", "contract", "loosen", "drop"])
@pytest.mark.parametrize("options", [{}, {"server_default": "drop"}], ids=["", "without default"])
def test_every_alter_leaves_writers_alone(dialect: str, phase: str, options: dict[str, Any]) -> None:
    """Every ALTER on MySQL and MariaDB demands LOCK=NONE, except DROP DEFAULT, which changes only metadata.

    Changing the collation copies the table, and is an obstacle (``needs-lock``) if there are many rows.
    """
    steps = getattr(plan(dialect, **options), phase)()
    sent = [sql for step in steps if step.name != "compare byte by byte" for sql in step.statements(State(exists=True))]
    alters = [sql for sql in sent if "ALTER TABLE" in sql]
    assert alters
    assert [sql for sql in alters if "LOCK=NONE" not in sql and "DROP DEFAULT" not in sql] == []


def test_other_database() -> None:
    """A database without support for migrations raises an error that lists the supported ones."""
    with pytest.raises(
        ConfigurationError, match="migrations do not support oracle; expected one of mariadb, mysql, postgresql, sqlite"
    ):
        plan("oracle")


@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
def test_mysql_expand(dialect: str) -> None:
    """On MySQL and MariaDB, the server chooses the algorithm of both changes, or refuses them if writers would wait."""
    sql = of(plan(dialect), "expand", State())

    assert f"ALTER TABLE shop.person ADD COLUMN public_id {TYPE} NULL, LOCK=NONE" in sql
    assert f"ALTER TABLE shop.person ALTER COLUMN public_id SET DEFAULT ({MADE}), LOCK=NONE" in sql


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "mariadb"])
@pytest.mark.parametrize("phase", ["expand", "contract", "loosen", "drop"])
def test_names_have_their_schema(dialect: str, phase: str) -> None:
    """Statements never name a table, or an index to drop, without its schema, because a namesake could be found."""
    for options in ({}, {"keeps": "unique"}, {"server_default": "drop"}):
        sql = of(plan(dialect, **options), phase)

        assert re.findall(r"(?<!shop\.)\bperson\b", sql) == []
        dropped = re.findall(r"^ *DROP INDEX (?:CONCURRENTLY )?(?:IF EXISTS )?(\S+)", sql, re.MULTILINE)
        assert [name for name in dropped if not name.startswith("shop.")] == []
