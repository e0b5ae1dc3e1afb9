"""The statements of SQLite for each state of the column and its table, of which a copy is made, without a file."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.engine import make_url

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.plan import Plan
from sqlalchemy_public_id.migrations.state import IndexFacts, State, StoredTable

FORMAT = NanoId(length=2, alphabet="ab", prefix="p")


def plan(**options: Any) -> Plan:
    target = PublicIdColumn.of("person", **{"format": FORMAT, **options})
    return plan_for(target, make_url("sqlite://").get_dialect()())


MADE = plan().defaults.expression(FORMAT)
"""The server default for the format, which is MADE in the statements below."""
OF_COLUMN = ", public_id VARCHAR(4)"
OURS = IndexFacts("uq_person_public_id", True, columns=("public_id",))
OLD = IndexFacts("Old", True, columns=("public_id",))
PLAIN = IndexFacts("own", False, columns=("public_id",))
BOTH = IndexFacts("both", False, columns=("public_id", "name"))
KEY = IndexFacts("sqlite_autoindex_person_1", True, constraint=True, columns=("public_id",))


def state(column: str = "", facts: dict[str, Any] | None = None, **of_column: Any) -> State:
    """Return the state of a table with the definition of the *column*, and with other *facts* about the table."""
    stored: dict[str, Any] = {
        "sql": f"CREATE TABLE person (id INTEGER PRIMARY KEY, name{column})",
        "others": (),
        "columns": ("id", "name", "public_id") if column else ("id", "name"),
        "counter": None,
        "is_referred_to": False,
        "is_strict": False,
        "legacy": 0,
    }
    table = StoredTable(**{**stored, **(facts or {})})
    return State(exists=bool(column), type="VARCHAR(4)" if column else None, stored=table, **of_column)


def sent(plan: Plan, phase: str, state: State) -> list[str]:
    """Return the statements of a phase, with short names for what is long."""
    found = [sql for step in getattr(plan, phase)() for sql in step.statements(state)]
    for long, short in ((MADE, "MADE"), ("uq_person_public_id", "UQ"), ("_copy_of_person", "COPY")):
        found = [sql.replace(long, short) for sql in found]
    return found


def copied(create: str, columns: str, values: str = "") -> list[str]:
    """Return the statements that make a copy of the table, with the statement *create* and the values of *columns*."""
    return [
        "PRAGMA legacy_alter_table=ON",
        "ALTER TABLE person RENAME TO COPY",
        create,
        f"INSERT INTO person ({columns}) SELECT {values or columns} FROM main.COPY",
        "DROP TABLE main.COPY",
        "PRAGMA legacy_alter_table=0",
    ]


CASES: list[tuple[str, State, dict[str, Any], list[str]]] = [
    ("expand", state(), {}, ["ALTER TABLE person ADD COLUMN public_id VARCHAR(4)"]),
    ("expand", state(facts={"is_strict": True}), {}, ["ALTER TABLE person ADD COLUMN public_id TEXT"]),
    ("expand", state(OF_COLUMN), {}, []),
    (
        "expand",
        state(OF_COLUMN, nullable=False),
        {},
        copied(
            "CREATE TABLE person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4) DEFAULT (MADE))",
            "id, name, public_id",
        ),
    ),
    ("expand", state(OF_COLUMN, nullable=False), {"server_default": "drop"}, []),
    ("expand", state(OF_COLUMN, nullable=False, default="x()"), {}, []),
    (
        "expand",
        state(OF_COLUMN + " DEFAULT (x())", nullable=False, default="x()"),
        {"server_default": "replace"},
        copied(
            "CREATE TABLE person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4) DEFAULT (MADE))",
            "id, name, public_id",
        ),
    ),
    ("expand", state(OF_COLUMN, nullable=False, default=MADE), {"server_default": "replace"}, []),
    (
        "contract",
        state(),
        {},
        [
            "CREATE UNIQUE INDEX UQ ON person (public_id)",
            "PRAGMA legacy_alter_table=ON",
            "ALTER TABLE person RENAME TO COPY",
            "CREATE TABLE person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4) DEFAULT (MADE) NOT NULL)",
            "INSERT INTO person (id, name, public_id) SELECT id, name, COALESCE(public_id, MADE) FROM main.COPY",
            "DROP TABLE main.COPY",
            "PRAGMA legacy_alter_table=0",
        ],
    ),
    (
        "contract",
        state(),
        {"server_default": "none"},
        [
            "CREATE UNIQUE INDEX UQ ON person (public_id)",
            "PRAGMA legacy_alter_table=ON",
            "ALTER TABLE person RENAME TO COPY",
            "CREATE TABLE person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4) NOT NULL)",
            "INSERT INTO person (id, name, public_id) SELECT id, name, public_id FROM main.COPY",
            "DROP TABLE main.COPY",
            "PRAGMA legacy_alter_table=0",
        ],
    ),
    (
        "contract",
        state(OF_COLUMN),
        {"schema": "shop", "unique_with": ("name",)},
        [
            "CREATE UNIQUE INDEX shop.UQ ON person (public_id, name)",
            "PRAGMA legacy_alter_table=ON",
            "ALTER TABLE shop.person RENAME TO COPY",
            "CREATE TABLE shop.person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4) DEFAULT (MADE) NOT NULL)",
            "INSERT INTO shop.person (id, name, public_id) SELECT id, name, COALESCE(public_id, MADE) FROM shop.COPY",
            "DROP TABLE shop.COPY",
            "PRAGMA legacy_alter_table=0",
        ],
    ),
    (
        "contract",
        state(OF_COLUMN + " DEFAULT (x())", default="x()"),
        {"server_default": "none"},
        [
            "CREATE UNIQUE INDEX UQ ON person (public_id)",
            "PRAGMA legacy_alter_table=ON",
            "ALTER TABLE person RENAME TO COPY",
            "CREATE TABLE person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4) DEFAULT (x()) NOT NULL)",
            "INSERT INTO person (id, name, public_id) SELECT id, name, public_id FROM main.COPY",
            "DROP TABLE main.COPY",
            "PRAGMA legacy_alter_table=0",
        ],
    ),
    (
        "contract",
        state(OF_COLUMN, default=MADE, unique=OURS),
        {"server_default": "drop"},
        copied(
            "CREATE TABLE person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4) NOT NULL)",
            "id, name, public_id",
            "id, name, COALESCE(public_id, MADE)",
        ),
    ),
    ("contract", state(OF_COLUMN, nullable=False, unique=OURS), {}, []),
    (
        "contract",
        state(
            OF_COLUMN,
            unique=OURS,
            facts={
                "counter": 7,
                "legacy": 1,
                "others": (
                    "CREATE UNIQUE INDEX i ON person (name)",
                    "CREATE TRIGGER t AFTER INSERT ON person BEGIN SELECT 1; END",
                ),
            },
        ),
        {"schema": "shop", "server_default": "none"},
        [
            "PRAGMA legacy_alter_table=ON",
            "ALTER TABLE shop.person RENAME TO COPY",
            "CREATE TABLE shop.person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4) NOT NULL)",
            "INSERT INTO shop.person (id, name, public_id) SELECT id, name, public_id FROM shop.COPY",
            "DROP TABLE shop.COPY",
            "UPDATE shop.sqlite_sequence SET seq = 7 WHERE lower(name) = lower('person')",
            "CREATE UNIQUE INDEX shop.i ON person (name)",
            "CREATE TRIGGER shop.t AFTER INSERT ON person BEGIN SELECT 1; END",
            "PRAGMA legacy_alter_table=1",
        ],
    ),
    (
        "contract",
        state(OF_COLUMN, unique=OURS, facts={"columns": ("id", "name", "Public_ID")}),
        {},
        [
            "PRAGMA legacy_alter_table=ON",
            "ALTER TABLE person RENAME TO COPY",
            "CREATE TABLE person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4) DEFAULT (MADE) NOT NULL)",
            'INSERT INTO person (id, name, "Public_ID") SELECT id, name, COALESCE(public_id, MADE) FROM main.COPY',
            "DROP TABLE main.COPY",
            "PRAGMA legacy_alter_table=0",
        ],
    ),
    (
        "loosen",
        state(OF_COLUMN + " NOT NULL", nullable=False, unique=OLD),
        {"schema": "shop"},
        [
            'DROP INDEX IF EXISTS shop."Old"',
            "PRAGMA legacy_alter_table=ON",
            "ALTER TABLE shop.person RENAME TO COPY",
            "CREATE TABLE shop.person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4) DEFAULT (MADE))",
            "INSERT INTO shop.person (id, name, public_id) SELECT id, name, public_id FROM shop.COPY",
            "DROP TABLE shop.COPY",
            "PRAGMA legacy_alter_table=0",
        ],
    ),
    (
        "loosen",
        state(OF_COLUMN + " UNIQUE NOT NULL", nullable=False, unique=KEY, constrained=True),
        {"server_default": "none"},
        copied("CREATE TABLE person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4))", "id, name, public_id"),
    ),
    ("loosen", state(OF_COLUMN, unique=OURS), {}, ["DROP INDEX IF EXISTS UQ"]),
    (
        "loosen",
        state(OF_COLUMN + " NOT NULL", nullable=False, unique=OURS),
        {"keeps": "unique", "server_default": "none"},
        copied("CREATE TABLE person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4))", "id, name, public_id"),
    ),
    (
        "loosen",
        state(OF_COLUMN + " NOT NULL", nullable=False, unique=OURS),
        {"keeps": "not null"},
        ["DROP INDEX IF EXISTS UQ"],
    ),
    ("loosen", state(OF_COLUMN + " NOT NULL", nullable=False, unique=OURS), {"keeps": "all"}, []),
    (
        "loosen",
        state(OF_COLUMN + " UNIQUE", unique=KEY, constrained=True),
        {"keeps": "not null", "server_default": "none"},
        copied("CREATE TABLE person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4))", "id, name, public_id"),
    ),
    (
        "loosen",
        state(OF_COLUMN + f" DEFAULT ({MADE})", default=MADE),
        {"server_default": "none"},
        copied("CREATE TABLE person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4))", "id, name, public_id"),
    ),
    (
        "loosen",
        state(OF_COLUMN + " DEFAULT (x())", default="x()"),
        {"server_default": "replace"},
        copied(
            "CREATE TABLE person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4) DEFAULT (MADE))",
            "id, name, public_id",
        ),
    ),
    ("loosen", state(OF_COLUMN + " DEFAULT (x())", default="x()"), {"server_default": "none"}, []),
    (
        "drop",
        state(OF_COLUMN, unique=OURS, indexes=(OURS, PLAIN, BOTH)),
        {"schema": "shop"},
        ["DROP INDEX shop.UQ", "DROP INDEX shop.own", "ALTER TABLE shop.person DROP COLUMN public_id"],
    ),
    (
        "drop",
        state(OF_COLUMN + " UNIQUE", unique=KEY, indexes=(KEY, OLD), constrained=True),
        {"server_default": "none"},
        [
            "PRAGMA legacy_alter_table=ON",
            "ALTER TABLE person RENAME TO COPY",
            "CREATE TABLE person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4))",
            "INSERT INTO person (id, name, public_id) SELECT id, name, public_id FROM main.COPY",
            "DROP TABLE main.COPY",
            "PRAGMA legacy_alter_table=0",
            'DROP INDEX "Old"',
            "ALTER TABLE person DROP COLUMN public_id",
        ],
    ),
    ("drop", state(), {}, []),
]


@pytest.mark.parametrize(("phase", "state", "options", "expected"), CASES)
def test_statements(phase: str, state: State, options: dict[str, Any], expected: list[str]) -> None:
    """Each state leads to the statements that are left, and a copy has all that the table has, in its schema."""
    assert sent(plan(**options), phase, state) == expected


@pytest.mark.parametrize(("server_default", "kept"), [("keep", "x()"), ("replace", "MADE")])
def test_default_of_another_program(server_default: str, kept: str) -> None:
    """The contract keeps the default that another program has set, unless it should be replaced."""
    column = f"{OF_COLUMN} DEFAULT (x())"

    statements = sent(plan(server_default=server_default), "contract", state(column, default="x()", unique=OURS))

    assert f"public_id VARCHAR(4) DEFAULT ({kept}) NOT NULL)" in statements[2]


def test_clauses_that_a_copy_keeps() -> None:
    """A copy that drops the UNIQUE constraint, or NOT NULL, keeps the other one if the column keeps it."""
    column = f"{OF_COLUMN} UNIQUE NOT NULL"
    facts: dict[str, Any] = {"nullable": False, "unique": KEY, "constrained": True}

    created = {
        keeps: sent(plan(keeps=keeps, server_default="none"), "loosen", state(column, **facts))[2:3]
        for keeps in (None, "unique", "not null", "all")
    }

    start = "CREATE TABLE person (id INTEGER PRIMARY KEY, name, public_id VARCHAR(4)"
    assert created == {
        None: [f"{start})"],
        "unique": [f"{start} UNIQUE)"],
        "not null": [f"{start} NOT NULL)"],
        "all": [],
    }


def test_remedy_for_the_collation() -> None:
    """The remedy for a collation is a batch operation, with the length of the ids."""
    assert plan().how_to_change_collation() == (
        "change it in an earlier revision: with op.batch_alter_table('person') as batch_op: "
        "batch_op.alter_column('public_id', type_=sa.String(4, collation='BINARY'))"
    )


def test_table_that_others_refer_to() -> None:
    """A copy of a table that others refer to is refused at the last moment, whichever phase needs it."""
    referred = {"is_referred_to": True}
    refused = "PRAGMA foreign_keys is ON, and other tables refer to 'person': copying it would delete or orphan"

    for phase, of_column in (("contract", ""), ("loosen", " NOT NULL")):
        with pytest.raises(ConfigurationError, match=refused):
            sent(plan(), phase, state(OF_COLUMN + of_column, referred, nullable=not of_column, unique=OURS))
    assert sent(plan(), "expand", state(facts=referred)) == ["ALTER TABLE person ADD COLUMN public_id VARCHAR(4)"]
    assert sent(plan(), "drop", state(OF_COLUMN, referred)) == ["ALTER TABLE person DROP COLUMN public_id"]
