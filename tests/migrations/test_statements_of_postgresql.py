"""The statements of PostgreSQL for each state of column, index and partitions, without a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.plan import Lock, Plan
from sqlalchemy_public_id.migrations.state import IndexFacts, Partition, State

FORMAT = NanoId(length=2, alphabet="ab", prefix="p")


def plan(*, online: bool = True, **options: Any) -> Plan:
    target = PublicIdColumn.of("person", **{"format": FORMAT, "schema": "shop", **options})
    return plan_for(target, make_url("postgresql://").get_dialect()(), online=online)


MADE = plan().defaults.expression(FORMAT)
"""The server default for the format, which is MADE in the statements below."""
ABSENT, EXISTING = State(), State(exists=True, type="character varying(4)", collation="C")
OURS = IndexFacts("uq_person_public_id", True, columns=("public_id",))
BROKEN = replace(OURS, valid=False)
OTHER, KEY = replace(OURS, name="Old"), replace(OURS, name="key", constraint=True)


def _index(table: str, *, is_attached: bool = False, valid: bool = True) -> IndexFacts:
    return replace(
        OURS, name=f"uq_{table}_public_id", part_of="uq_person_public_id" if is_attached else None, valid=valid
    )


def _part(
    name: str, kind: str = "r", parent: str = "person", checked: bool = False, indexes: tuple[IndexFacts, ...] = ()
) -> Partition:
    return Partition("shop", name, "shop", parent, kind, True, checked, indexes)


def sent(plan: Plan, phase: str, state: State) -> list[str]:
    """Return the statements of a phase without ``ALTER TABLE shop.person``, with short names for what is long."""
    found = [sql for step in getattr(plan, phase)() for sql in step.statements(state)]
    for long, short in (
        ("ALTER TABLE shop.person ", ""),
        (MADE, "MADE"),
        ("ck_person_public_id_not_null", "CK"),
        ("uq_person_public_id", "UQ"),
    ):
        found = [sql.replace(long, short) for sql in found]
    return found


CASES: list[tuple[str, State, dict[str, Any], list[str]]] = [
    ("expand", ABSENT, {}, ['ADD COLUMN public_id VARCHAR(4) COLLATE "C", ALTER COLUMN public_id SET DEFAULT MADE']),
    ("expand", EXISTING, {}, ["ALTER COLUMN public_id SET DEFAULT MADE"]),
    ("expand", replace(EXISTING, default=MADE), {}, []),
    ("expand", replace(EXISTING, default=MADE), {"server_default": "replace"}, []),
    (
        "expand",
        replace(EXISTING, default="old()"),
        {"server_default": "replace"},
        ["ALTER COLUMN public_id SET DEFAULT MADE"],
    ),
    (
        "expand",
        ABSENT,
        {"server_default": "none", "comment": "it's"},
        ['ADD COLUMN public_id VARCHAR(4) COLLATE "C"', "COMMENT ON COLUMN shop.person.public_id IS 'it''s'"],
    ),
    ("expand", replace(EXISTING, default=MADE, comment="it's"), {"comment": "it's"}, []),
    (
        "expand",
        replace(EXISTING, default=MADE, comment="old"),
        {"comment": ""},
        ["COMMENT ON COLUMN shop.person.public_id IS ''"],
    ),
    ("expand", replace(EXISTING, nullable=False, unique=OURS), {"server_default": "drop"}, []),
    ("expand", replace(EXISTING, unique=OURS), {"server_default": "drop"}, ["ALTER COLUMN public_id SET DEFAULT MADE"]),
    (
        "contract",
        EXISTING,
        {"server_default": "drop"},
        [
            "CREATE UNIQUE INDEX CONCURRENTLY UQ ON shop.person (public_id)",
            "ADD CONSTRAINT CK CHECK (public_id IS NOT NULL) NOT VALID",
            "VALIDATE CONSTRAINT CK",
            "ALTER COLUMN public_id SET NOT NULL",
            "DROP CONSTRAINT IF EXISTS CK",
        ],
    ),
    (
        "contract",
        replace(EXISTING, default=MADE),
        {"server_default": "drop", "online": False},
        [
            "CREATE UNIQUE INDEX UQ ON shop.person (public_id)",
            "ALTER COLUMN public_id SET NOT NULL",
            "ALTER COLUMN public_id DROP DEFAULT",
        ],
    ),
    (
        "contract",
        replace(EXISTING, default="other()"),
        {"server_default": "drop", "online": False},
        ["CREATE UNIQUE INDEX UQ ON shop.person (public_id)", "ALTER COLUMN public_id SET NOT NULL"],
    ),
    (
        "contract",
        replace(EXISTING, unique=OTHER, check=True),
        {},
        ["VALIDATE CONSTRAINT CK", "ALTER COLUMN public_id SET NOT NULL", "DROP CONSTRAINT IF EXISTS CK"],
    ),
    (
        "contract",
        replace(EXISTING, unique=OTHER, check=True, checked=True),
        {},
        ["ALTER COLUMN public_id SET NOT NULL", "DROP CONSTRAINT IF EXISTS CK"],
    ),
    ("contract", replace(EXISTING, unique=OURS, nullable=False), {}, []),
    ("contract", replace(EXISTING, unique=OURS, nullable=False, check=True), {}, ["DROP CONSTRAINT IF EXISTS CK"]),
    (
        "contract",
        replace(EXISTING, unique=BROKEN, nullable=False, schema='"Shop"'),
        {},
        [
            'DROP INDEX CONCURRENTLY IF EXISTS "Shop".UQ',
            "CREATE UNIQUE INDEX CONCURRENTLY UQ ON shop.person (public_id)",
        ],
    ),
    (
        "contract",
        replace(EXISTING, collation="en", unique=OURS, nullable=False),
        {"collation": "bytes"},
        ['ALTER COLUMN public_id TYPE character varying(4) COLLATE "C"'],
    ),
    ("contract", replace(EXISTING, unique=OURS, nullable=False), {"collation": "bytes"}, []),
    ("contract", replace(EXISTING, collation=None, unique=OURS, nullable=False), {"collation": "bytes"}, []),
    (
        "contract",
        replace(EXISTING, unique=OURS, nullable=False),
        {"collation": "En US"},
        ['ALTER COLUMN public_id TYPE character varying(4) COLLATE "En US"'],
    ),
    (
        "contract",
        replace(EXISTING, nullable=False),
        {"unique_with": ("tenant", "a b")},
        ['CREATE UNIQUE INDEX CONCURRENTLY UQ ON shop.person (public_id, tenant, "a b")'],
    ),
    (
        "loosen",
        replace(EXISTING, unique=OTHER, nullable=False, default=MADE),
        {},
        ["ALTER COLUMN public_id DROP NOT NULL", 'DROP INDEX CONCURRENTLY IF EXISTS shop."Old"'],
    ),
    (
        "loosen",
        replace(EXISTING, unique=KEY, nullable=False, default=MADE),
        {},
        ["ALTER COLUMN public_id DROP NOT NULL", "DROP CONSTRAINT IF EXISTS key"],
    ),
    (
        "loosen",
        replace(EXISTING, unique=OURS, nullable=False),
        {},
        [
            "ALTER COLUMN public_id SET DEFAULT MADE, ALTER COLUMN public_id DROP NOT NULL",
            "DROP INDEX CONCURRENTLY IF EXISTS shop.UQ",
        ],
    ),
    (
        "loosen",
        replace(EXISTING, unique=OURS, nullable=True, default=MADE),
        {},
        ["DROP INDEX CONCURRENTLY IF EXISTS shop.UQ"],
    ),
    (
        "loosen",
        replace(EXISTING, unique=OURS, nullable=False, default=MADE),
        {"keeps": "unique"},
        ["ALTER COLUMN public_id DROP NOT NULL"],
    ),
    (
        "loosen",
        replace(EXISTING, unique=OURS, nullable=False, default=MADE),
        {"keeps": "not null"},
        ["DROP INDEX CONCURRENTLY IF EXISTS shop.UQ"],
    ),
    ("loosen", replace(EXISTING, unique=OURS, nullable=False, default=MADE), {"keeps": "all"}, []),
    (
        "loosen",
        replace(EXISTING, unique=OURS, nullable=False, default=MADE),
        {"server_default": "none"},
        [
            "ALTER COLUMN public_id DROP NOT NULL",
            "DROP INDEX CONCURRENTLY IF EXISTS shop.UQ",
            "ALTER COLUMN public_id DROP DEFAULT",
        ],
    ),
    (
        "loosen",
        replace(EXISTING, unique=OURS, nullable=False, default="other()"),
        {"server_default": "none"},
        ["ALTER COLUMN public_id DROP NOT NULL", "DROP INDEX CONCURRENTLY IF EXISTS shop.UQ"],
    ),
    (
        "loosen",
        replace(EXISTING, unique=OURS, nullable=False, default="other()"),
        {"server_default": "replace", "keeps": "all"},
        ["ALTER COLUMN public_id SET DEFAULT MADE"],
    ),
    (
        "loosen",
        replace(EXISTING, collation="en", unique=OURS, nullable=True, default=MADE),
        {"collation": "bytes", "online": False},
        ["DROP INDEX IF EXISTS shop.UQ", 'ALTER COLUMN public_id TYPE character varying(4) COLLATE "C"'],
    ),
    (
        "drop",
        replace(EXISTING, unique=OTHER),
        {},
        ['DROP INDEX CONCURRENTLY IF EXISTS shop."Old"', "DROP COLUMN IF EXISTS public_id"],
    ),
    ("drop", replace(EXISTING, unique=KEY), {}, ["DROP CONSTRAINT IF EXISTS key", "DROP COLUMN IF EXISTS public_id"]),
    (
        "drop",
        replace(EXISTING, unique=OURS, schema='"Shop"'),
        {"online": False},
        ['DROP INDEX IF EXISTS "Shop".UQ', "DROP COLUMN IF EXISTS public_id"],
    ),
    ("drop", ABSENT, {}, []),
    ("drop_unfinished", replace(EXISTING, unique=BROKEN), {}, ["DROP INDEX CONCURRENTLY IF EXISTS shop.UQ"]),
    ("drop_unfinished", replace(EXISTING, unique=OURS), {}, []),
    ("renew_default", replace(EXISTING, default=MADE), {}, []),
    ("renew_default", replace(EXISTING, default="other()"), {}, []),
    (
        "contract",
        replace(
            EXISTING,
            nullable=False,
            schema="shop",
            partitions=(
                _part("a"),
                _part("b", "p"),
                _part("b1", parent="b"),
            ),
        ),
        {},
        [
            "CREATE UNIQUE INDEX UQ ON ONLY shop.person (public_id)",
            "CREATE UNIQUE INDEX uq_b_public_id ON ONLY shop.b (public_id)",
            "ALTER INDEX shop.UQ ATTACH PARTITION shop.uq_b_public_id",
            "CREATE UNIQUE INDEX CONCURRENTLY uq_a_public_id ON shop.a (public_id)",
            "CREATE UNIQUE INDEX CONCURRENTLY uq_b1_public_id ON shop.b1 (public_id)",
            "ALTER INDEX shop.UQ ATTACH PARTITION shop.uq_a_public_id",
            "ALTER INDEX shop.uq_b_public_id ATTACH PARTITION shop.uq_b1_public_id",
        ],
    ),
    (
        "contract",
        replace(
            EXISTING,
            nullable=False,
            schema="shop",
            unique=BROKEN,
            partitions=(
                _part("a", indexes=(_index("a"),)),
                _part("b", "p", indexes=(_index("b", is_attached=True),)),
                _part("b1", parent="b", indexes=(_index("b1", valid=False),)),
                _part("c", indexes=(_index("c", is_attached=True),)),
            ),
        ),
        {},
        [
            "DROP INDEX CONCURRENTLY IF EXISTS shop.uq_b1_public_id",
            "CREATE UNIQUE INDEX CONCURRENTLY uq_b1_public_id ON shop.b1 (public_id)",
            "ALTER INDEX shop.UQ ATTACH PARTITION shop.uq_a_public_id",
            "ALTER INDEX shop.uq_b_public_id ATTACH PARTITION shop.uq_b1_public_id",
        ],
    ),
    (
        "contract",
        replace(
            EXISTING,
            unique=OURS,
            partitions=(
                _part("a", checked=True),
                _part("b", "p"),
                _part("b1", parent="b"),
            ),
        ),
        {},
        [
            "ADD CONSTRAINT CK CHECK (public_id IS NOT NULL) NOT VALID",
            "ALTER TABLE shop.b1 VALIDATE CONSTRAINT CK",
            "VALIDATE CONSTRAINT CK",
            "ALTER COLUMN public_id SET NOT NULL",
            "DROP CONSTRAINT IF EXISTS CK",
        ],
    ),
    (
        "contract",
        replace(EXISTING, nullable=False, unique=BROKEN, partitions=(_part("a", indexes=(_index("a", valid=False),)),)),
        {"online": False},
        [
            "DROP INDEX IF EXISTS UQ",
            "DROP INDEX IF EXISTS shop.uq_a_public_id",
            "CREATE UNIQUE INDEX UQ ON shop.person (public_id)",
        ],
    ),
    (
        "drop",
        replace(
            EXISTING,
            schema="shop",
            unique=OURS,
            partitions=(
                _part("a", indexes=(_index("a", is_attached=True),)),
                _part("b", "p", indexes=(_index("b"),)),
                _part("c", indexes=(_index("c"),)),
            ),
        ),
        {},
        [
            "DROP INDEX IF EXISTS shop.UQ",
            "DROP INDEX IF EXISTS shop.uq_b_public_id",
            "DROP INDEX CONCURRENTLY IF EXISTS shop.uq_c_public_id",
            "DROP COLUMN IF EXISTS public_id",
        ],
    ),
    (
        "drop",
        replace(EXISTING, unique=OURS, partitions=(_part("c", indexes=(_index("c"),)),)),
        {"online": False},
        ["DROP INDEX IF EXISTS UQ", "DROP INDEX IF EXISTS shop.uq_c_public_id", "DROP COLUMN IF EXISTS public_id"],
    ),
    (
        "drop",
        replace(EXISTING, unique=KEY, partitions=(_part("c"),)),
        {},
        ["DROP CONSTRAINT IF EXISTS key", "DROP COLUMN IF EXISTS public_id"],
    ),
    (
        "drop_unfinished",
        replace(EXISTING, unique=BROKEN, partitions=(_part("c", indexes=(_index("c"),)),)),
        {},
        ["DROP INDEX IF EXISTS UQ", "DROP INDEX CONCURRENTLY IF EXISTS shop.uq_c_public_id"],
    ),
    ("drop_unfinished", replace(EXISTING, unique=OURS, partitions=(_part("c", indexes=(_index("c"),)),)), {}, []),
]


@pytest.mark.parametrize(("phase", "state", "options", "expected"), CASES)
def test_statements(phase: str, state: State, options: dict[str, Any], expected: list[str]) -> None:
    """Each state leads to the statements that are left, in their order, which name the table and its schema."""
    assert sent(plan(**options), phase, state) == expected


def test_scripts() -> None:
    """A script sets the time limit for a lock before its statements, and resets it; the contract has none."""
    add = 'ALTER TABLE shop.person ADD COLUMN public_id VARCHAR(4) COLLATE "C"'
    scripts = plan(comment="shown").scripts(0.5)

    assert scripts == {
        "expand": [
            "SET lock_timeout = 500",
            f"{add}, ALTER COLUMN public_id SET DEFAULT {MADE}",
            "COMMENT ON COLUMN shop.person.public_id IS 'shown'",
            "RESET lock_timeout",
        ],
        "backfill": [],
        "drop": [
            "SET lock_timeout = 500",
            "ALTER TABLE shop.person DROP COLUMN IF EXISTS public_id",
            "RESET lock_timeout",
        ],
    }


def test_partitions_elsewhere() -> None:
    """A partition of a partition is attached in the schema of its own parent; one that has an index gets no other."""
    attached = replace(OURS, name="given", part_of="uq_person_public_id")
    parts = (
        Partition("north", "a", "shop", "person", "r", True, False, (_index("a"), attached)),
        Partition("north", "b", "shop", "person", "p", True, False),
        Partition("south", "c", "north", "b", "r", True, False),
    )

    assert sent(plan(), "contract", replace(EXISTING, schema="shop", nullable=False, partitions=parts)) == [
        "CREATE UNIQUE INDEX UQ ON ONLY shop.person (public_id)",
        "CREATE UNIQUE INDEX uq_b_public_id ON ONLY north.b (public_id)",
        "ALTER INDEX shop.UQ ATTACH PARTITION north.uq_b_public_id",
        "CREATE UNIQUE INDEX CONCURRENTLY uq_c_public_id ON south.c (public_id)",
        "ALTER INDEX north.uq_b_public_id ATTACH PARTITION south.uq_c_public_id",
    ]


@pytest.mark.parametrize(
    ("phase", "online", "long"),
    [
        ("expand", True, []),
        (
            "contract",
            True,
            ["build the unique index", "build the unique index of each partition", "look for NULL in old rows"],
        ),
        ("contract", False, []),
        ("loosen", True, ["drop the unique index", "drop the unfinished indexes of partitions"]),
        ("loosen", False, []),
        ("drop", True, ["drop the unique index", "drop the unfinished indexes of partitions"]),
        ("drop", False, []),
    ],
)
def test_locks(phase: str, online: bool, long: list[str]) -> None:
    """Only long statements, and those with CONCURRENTLY, run outside of a transaction, and none in one that is open."""
    steps = getattr(plan(online=online), phase)()

    assert [step.name for step in steps if step.lock is not Lock.STRONG] == long
