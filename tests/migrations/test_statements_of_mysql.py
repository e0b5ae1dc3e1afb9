"""The statements of MySQL and MariaDB for each state of the column, which they must repeat whole, without a server."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.consent import Consent
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.plan import Lock, Plan
from sqlalchemy_public_id.migrations.state import IndexFacts, State

FORMAT = NanoId(length=2, alphabet="ab", prefix="p")
MADE = "CONCAT('p_', {0}, {0})".format(
    "substr('ab', 1 + CAST(CONV(HEX(RANDOM_BYTES(7)), 16, 10) AS UNSIGNED) MOD 2, 1)"
)
"""The server default for the format, which is MADE in the statements below."""
NEW = "VARCHAR(4) CHARACTER SET ascii COLLATE ascii_bin"
"""The type of a new column, which is NEW below."""
OLD = "varchar(9) CHARACTER SET latin1 COLLATE latin1_bin"
"""The type of the column of another program, which is OLD below."""

ABSENT, EXPANDED = State(), State(exists=True, default=MADE)
BARE, NOT_NULL = State(exists=True), State(exists=True, nullable=False)
COMPLETE = replace(NOT_NULL, default=MADE, unique=IndexFacts("of`old", True, columns=("public_id",)))
THEIRS = State(
    exists=True,
    type=OLD,
    collation="latin1_bin",
    comment="it's",
    default="upper('x')",
    attributes=" CHECK (x)",
    versioned=True,
    is_invisible=True,
)
REST = "DEFAULT (upper('x')) COMMENT 'it''s' WITHOUT SYSTEM VERSIONING INVISIBLE CHECK (x)"
"""What a MODIFY of their column repeats behind its type, which is REST below."""
INDEX, DEFAULT = "ADD UNIQUE INDEX uq_person_public_id (public_id)", "ALTER COLUMN public_id SET DEFAULT (MADE)"
DROPPED = "ALTER COLUMN public_id DROP DEFAULT"
UNVERSIONED = " WITHOUT SYSTEM VERSIONING"
NO_LOCK, COPY = ", LOCK=NONE", ", ALGORITHM=COPY"


def plan(dialect: str, *, allow_lock: bool = False, **options: Any) -> Plan:
    target = PublicIdColumn.of("person", **{"format": FORMAT, **options})
    return plan_for(target, make_url(f"{dialect}://").get_dialect()(), Consent(allow_lock=allow_lock))


def sent(plan: Plan, phase: str, state: State) -> list[str]:
    """Return the statements of a phase without ``ALTER TABLE person``, with short names for what is long."""
    found: list[str] = []
    for sql in (sql for step in getattr(plan, phase)() for sql in step.statements(state)):
        assert sql.startswith("ALTER TABLE person ")
        found.append(sql.removeprefix("ALTER TABLE person "))
        for long, short in ((REST, "REST"), (MADE, "MADE"), (NEW, "NEW"), (OLD, "OLD")):
            found[-1] = found[-1].replace(long, short)
    return found


CASES: list[tuple[str, State, dict[str, Any], list[str]]] = [
    ("expand", ABSENT, {}, [f"ADD COLUMN public_id NEW NULL{NO_LOCK}", DEFAULT + NO_LOCK]),
    ("expand", ABSENT, {"allow_lock": True}, ["ADD COLUMN public_id NEW NULL", DEFAULT]),
    ("expand", ABSENT, {"server_default": "none"}, [f"ADD COLUMN public_id NEW NULL{NO_LOCK}"]),
    (
        "expand",
        ABSENT,
        {"comment": "it's", "invisible": True, "server_default": "none"},
        [f"ADD COLUMN public_id NEW NULL COMMENT 'it''s' INVISIBLE{NO_LOCK}"],
    ),
    (
        "expand",
        State(versioned=True),
        {"comment": "", "server_default": "none"},
        [f"ADD COLUMN public_id NEW NULL WITHOUT SYSTEM VERSIONING{NO_LOCK}"],
    ),
    ("expand", BARE, {}, [DEFAULT + NO_LOCK]),
    ("expand", BARE, {"server_default": "none"}, []),
    ("expand", EXPANDED, {}, []),
    ("expand", NOT_NULL, {"server_default": "drop"}, [DEFAULT + NO_LOCK]),
    ("expand", replace(COMPLETE, default=None), {"server_default": "drop"}, []),
    ("expand", replace(COMPLETE, default=None), {}, [DEFAULT + NO_LOCK]),
    ("expand", THEIRS, {}, []),
    ("expand", THEIRS, {"server_default": "replace"}, [DEFAULT + NO_LOCK]),
    ("contract", BARE, {}, [f"{INDEX}, MODIFY COLUMN public_id NEW NOT NULL DEFAULT (MADE){NO_LOCK}"]),
    ("contract", EXPANDED, {"server_default": "none"}, [f"{INDEX}, MODIFY COLUMN public_id NEW NOT NULL{NO_LOCK}"]),
    (
        "contract",
        EXPANDED,
        {"server_default": "drop"},
        [f"{INDEX}, MODIFY COLUMN public_id NEW NOT NULL DEFAULT (MADE){NO_LOCK}", DROPPED],
    ),
    ("contract", NOT_NULL, {}, [INDEX + NO_LOCK]),
    ("contract", NOT_NULL, {"allow_lock": True}, [INDEX]),
    ("contract", COMPLETE, {}, []),
    ("contract", COMPLETE, {"server_default": "drop"}, [DROPPED]),
    ("contract", THEIRS, {}, [f"{INDEX}, MODIFY COLUMN public_id OLD NOT NULL REST{NO_LOCK}"]),
    ("contract", THEIRS, {"server_default": "none"}, [f"{INDEX}, MODIFY COLUMN public_id OLD NOT NULL REST{NO_LOCK}"]),
    ("contract", THEIRS, {"server_default": "drop"}, [f"{INDEX}, MODIFY COLUMN public_id OLD NOT NULL REST{NO_LOCK}"]),
    (
        "contract",
        replace(THEIRS, comment=None),
        {"server_default": "replace", "comment": "x", "invisible": False},
        [f"{INDEX}, MODIFY COLUMN public_id OLD NOT NULL DEFAULT (MADE) COMMENT 'x'{UNVERSIONED} CHECK (x){NO_LOCK}"],
    ),
    (
        "contract",
        replace(THEIRS, versioned=False, attributes="", is_invisible=False),
        {"comment": ""},
        [f"{INDEX}, MODIFY COLUMN public_id OLD NOT NULL DEFAULT (upper('x')){NO_LOCK}"],
    ),
    (
        "contract",
        THEIRS,
        {"collation": "bytes"},
        [
            "MODIFY COLUMN public_id varchar(9) COLLATE ascii_bin NULL REST",
            f"{INDEX}, MODIFY COLUMN public_id varchar(9) COLLATE ascii_bin NOT NULL REST{NO_LOCK}",
        ],
    ),
    (
        "contract",
        replace(THEIRS, nullable=False),
        {"collation": "utf8mb4_bin"},
        ["MODIFY COLUMN public_id varchar(9) COLLATE utf8mb4_bin NOT NULL REST", INDEX + NO_LOCK],
    ),
    ("contract", replace(THEIRS, nullable=False), {"collation": "latin1_bin"}, [INDEX + NO_LOCK]),
    (
        "loosen",
        COMPLETE,
        {},
        [f"MODIFY COLUMN public_id NEW NULL DEFAULT (MADE){NO_LOCK}", f"DROP INDEX `of``old`{NO_LOCK}"],
    ),
    ("loosen", COMPLETE, {"keeps": "unique"}, [f"MODIFY COLUMN public_id NEW NULL DEFAULT (MADE){NO_LOCK}"]),
    ("loosen", COMPLETE, {"keeps": "not null"}, [f"DROP INDEX `of``old`{NO_LOCK}"]),
    ("loosen", COMPLETE, {"keeps": "all"}, []),
    (
        "loosen",
        COMPLETE,
        {"server_default": "none"},
        [f"MODIFY COLUMN public_id NEW NULL{NO_LOCK}", f"DROP INDEX `of``old`{NO_LOCK}", DROPPED],
    ),
    (
        "loosen",
        replace(COMPLETE, default=None),
        {"server_default": "drop"},
        [f"MODIFY COLUMN public_id NEW NULL DEFAULT (MADE){NO_LOCK}", f"DROP INDEX `of``old`{NO_LOCK}"],
    ),
    ("loosen", EXPANDED, {}, []),
    ("loosen", EXPANDED, {"server_default": "none"}, [DROPPED]),
    ("loosen", THEIRS, {"server_default": "none"}, []),
    ("loosen", replace(THEIRS, nullable=False), {}, [f"MODIFY COLUMN public_id OLD NULL REST{NO_LOCK}"]),
    (
        "loosen",
        replace(THEIRS, nullable=False),
        {"collation": "bytes", "keeps": "not null"},
        ["MODIFY COLUMN public_id varchar(9) COLLATE ascii_bin NOT NULL REST"],
    ),
    ("drop", COMPLETE, {}, [f"DROP INDEX `of``old`{NO_LOCK}", f"DROP COLUMN public_id{NO_LOCK}"]),
    ("drop", COMPLETE, {"allow_lock": True}, ["DROP INDEX `of``old`", "DROP COLUMN public_id"]),
    ("drop", BARE, {}, [f"DROP COLUMN public_id{NO_LOCK}"]),
    ("drop", ABSENT, {}, []),
]


@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
@pytest.mark.parametrize(("phase", "state", "options", "expected"), CASES)
def test_statements(dialect: str, phase: str, state: State, options: dict[str, Any], expected: list[str]) -> None:
    """A phase changes what its state lacks; a MODIFY repeats the whole definition of the column."""
    assert sent(plan(dialect, **options), phase, state) == expected


REBUILT = f"{INDEX}, MODIFY COLUMN public_id NEW NOT NULL DEFAULT (MADE)"
SHOWN = "ALTER COLUMN public_id SET VISIBLE, LOCK=NONE"
APART: list[tuple[str, State, dict[str, Any], list[str], list[str]]] = [
    ("contract", EXPANDED, {"allow_lock": True}, [REBUILT + COPY], [REBUILT]),
    (
        "loosen",
        COMPLETE,
        {"allow_lock": True, "keeps": "unique"},
        [f"MODIFY COLUMN public_id NEW NULL DEFAULT (MADE){COPY}"],
        ["MODIFY COLUMN public_id NEW NULL DEFAULT (MADE)"],
    ),
    (
        "expand",
        EXPANDED,
        {"invisible": True},
        [f"ALTER COLUMN public_id SET INVISIBLE{NO_LOCK}"],
        [f"MODIFY COLUMN public_id NEW NULL DEFAULT (MADE) INVISIBLE{NO_LOCK}"],
    ),
    (
        "loosen",
        replace(COMPLETE, is_invisible=True),
        {"invisible": False, "keeps": "all"},
        [SHOWN],
        [f"MODIFY COLUMN public_id NEW NOT NULL DEFAULT (MADE){NO_LOCK}"],
    ),
    (
        "contract",
        replace(THEIRS, nullable=False, unique=COMPLETE.unique),
        {"invisible": False},
        [SHOWN],
        [f"MODIFY COLUMN public_id OLD NOT NULL {REST.replace(' INVISIBLE', '')}{NO_LOCK}"],
    ),
]


@pytest.mark.parametrize(("phase", "state", "options", "mysql", "mariadb"), APART)
def test_what_differs(phase: str, state: State, options: dict[str, Any], mysql: list[str], mariadb: list[str]) -> None:
    """MySQL copies the table where its rebuild in place can lose rows, and hides a column without a MODIFY."""
    assert [sent(plan(dialect, **options), phase, state) for dialect in ("mysql", "mariadb")] == [mysql, mariadb]


@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
def test_rewrites(dialect: str) -> None:
    """The steps that may rewrite the table try their lock first, unless writers have to wait anyway."""

    def rewrites(**options: Any) -> dict[str, str]:
        steps = [step for phase in ("expand", "contract", "loosen", "drop") for step in getattr(made, phase)()]
        return {step.name: step.probe for step in steps if step.lock is Lock.REWRITE or step.probe}

    made, names = plan(dialect, schema="shop"), ("build the unique index and forbid NULL", "allow NULL")
    assert rewrites() == dict.fromkeys(names, "ALTER TABLE shop.person ENABLE KEYS")
    made = plan(dialect, allow_lock=True)
    assert rewrites() == dict.fromkeys(names, "")


@pytest.mark.parametrize(
    ("column", "algorithm"),
    [
        ("x" * 60, ""),
        ("é" * 16, ""),
        ("é" * 17, "INPLACE"),
        ("é" + "x" * 31, "INPLACE"),
        ("é" + "x" * 30, ""),
    ],
    ids=["ASCII", "32 bytes", "34 bytes", "33 bytes", "mixed, 32 bytes"],
)
def test_name_that_is_cut(column: str, algorithm: str) -> None:
    """A column whose name MySQL could cut within a character is not dropped by renaming it."""
    for allow_lock in (False, True):
        suffix = f", ALGORITHM={'COPY' if allow_lock else algorithm}" if algorithm else ""
        lock = "" if allow_lock else NO_LOCK
        [drop] = sent(plan("mysql", column=column, allow_lock=allow_lock), "drop", BARE)
        assert drop.endswith(f"{column}`{suffix}{lock}" if "é" in column else f"{column}{suffix}{lock}")


@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
def test_script(dialect: str) -> None:
    """A script sets whole seconds, rounded up, and restores the server's limit; a default is added only if wanted."""
    limits = "SET SESSION lock_wait_timeout = 3", "SET SESSION lock_wait_timeout = DEFAULT"
    add, default = (
        f"ALTER TABLE person ADD COLUMN public_id {NEW} NULL{NO_LOCK}",
        f"ALTER TABLE person {DEFAULT}{NO_LOCK}",
    )
    scripts = plan(dialect).scripts(2.1)

    assert scripts["expand"] == [limits[0], add, default.replace("MADE", MADE), limits[1]]
    assert scripts["backfill"] == []
    assert scripts["drop"] == [limits[0], f"ALTER TABLE person DROP COLUMN public_id{NO_LOCK}", limits[1]]
    assert plan(dialect, server_default="none").scripts(3)["expand"] == [limits[0], add, limits[1]]


@pytest.mark.parametrize(
    ("version", "invisible", "accepted"),
    [((8, 0, 22), True, False), ((8, 0, 22), False, False), ((8, 0, 22), None, True), ((8, 0, 23), True, True)],
)
def test_old_mysql(version: tuple[int, ...], invisible: bool | None, accepted: bool) -> None:
    """MySQL before 8.0.23 can neither hide nor show a column; MariaDB of any version can."""
    for name in ("mysql", "mariadb"):
        dialect = make_url(f"{name}://").get_dialect()()
        dialect.server_version_info = version
        is_refused = pytest.raises(ConfigurationError, match=r"MySQL hides columns since 8\.0\.23; leave")
        with nullcontext() if accepted or name == "mariadb" else is_refused:
            plan_for(PublicIdColumn.of("person", invisible=invisible), dialect)


@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ({"column": "x" * 64}, None),
        ({"column": "é" * 64, "unique_name": "u"}, None),
        ({"column": "x" * 65, "unique_name": "u"}, "the name of the column, '{}', has more than 64 characters"),
        ({"unique_name": "x" * 65}, "the name of the unique_name, '{}', has more than 64 characters"),
        ({"schema": "x" * 65}, "the name of the schema, '{}', has more than 64 characters"),
        ({"schema": "a\nb"}, None),
        ({"column": "a\nb"}, "has several lines, and SQLAlchemy does not reflect it"),
        ({"column": "a\rb"}, "has several lines, and SQLAlchemy does not reflect it"),
        ({"schema": "a "}, "ends with a blank"),
        ({"unique_name": "a "}, "ends with a blank"),
        ({"column": " a"}, None),
    ],
    ids=str,
)
def test_names(dialect: str, names: dict[str, str], problem: str | None) -> None:
    """A name that the server refuses or cuts is refused; its length counts in characters."""
    if problem is None:
        assert plan(dialect, **names)
    else:
        with pytest.raises(ConfigurationError) as caught:
            plan(dialect, **names)
        assert problem.partition("'{}'")[0] in str(caught.value)
        assert problem.rpartition("'{}'")[2] in str(caught.value)
