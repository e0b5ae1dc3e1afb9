"""Whether a stored column holds the ids of a format: the judgement for each type of each database, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import (
    BIGINT,
    BINARY,
    BLOB,
    CHAR,
    INTEGER,
    NUMERIC,
    TEXT,
    UUID,
    VARBINARY,
    VARCHAR,
    BigInteger,
    Integer,
    String,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.engine import make_url
from sqlalchemy.types import NullType, TypeEngine

from sqlalchemy_public_id import NanoId, ObjectId, PublicIdType, Snowflake, Ulid, Uuid4
from sqlalchemy_public_id.migrations.stored_types import Fit, StoredIds, fit_of, has_width_of, in_revision
from sqlalchemy_public_id.references import AnyPublicIdType

NANOID, PREFIXED = NanoId(), NanoId(prefix="per")
BOTH = PREFIXED.accepting(NANOID)
UUID_TEXT, UUIDS = Uuid4(encoding="hyphenated", storage="text"), Uuid4(encoding="hyphenated")
HEX_TEXT = Uuid4(encoding="hex", storage="text")
UUID_PREFIXED = Uuid4(encoding="hyphenated", storage="text", prefix="usr")
UUID_OLD_TEXT, UUID_OLD = (each.accepting(Uuid4()) for each in (UUID_TEXT, UUIDS))
FLAKE, FLAKE_TEXT = Snowflake(machine_id=1), Snowflake(machine_id=1, storage="text")
ANY = AnyPublicIdType(30)


def judged(dialect: str, existing: TypeEngine[Any], declared: object, *, is_key: bool = True) -> Fit:
    ids = StoredIds.of(declared)
    assert ids is not None
    return fit_of(existing, ids, make_url(f"{dialect}://").get_dialect()(), is_key=is_key)


HOLDING: list[tuple[str, TypeEngine[Any], object]] = [
    ("sqlite", VARCHAR(12), NANOID),
    ("sqlite", TEXT(), NANOID),
    ("sqlite", NullType(), NANOID),
    ("sqlite", NullType(), FLAKE),
    ("sqlite", CHAR(30), NANOID),
    ("sqlite", NUMERIC(), FLAKE),
    ("sqlite", INTEGER(), FLAKE),
    ("sqlite", BLOB(), UUIDS),
    ("postgresql", TEXT(), NANOID),
    ("postgresql", VARCHAR(), NANOID),
    ("postgresql", VARCHAR(12, collation="de_DE"), NANOID),
    ("postgresql", CHAR(12), NANOID),
    ("postgresql", CHAR(), NanoId(length=1)),
    ("postgresql", postgresql.DOMAIN("text_id", VARCHAR(12)), NANOID),
    ("postgresql", postgresql.DOMAIN("number_id", postgresql.UUID()), UUIDS),
    ("postgresql", postgresql.UUID(), Uuid4()),
    ("postgresql", BIGINT(), FLAKE),
    ("mysql", mysql.BIGINT(display_width=20), FLAKE),
    ("mysql", CHAR(20), NANOID),
    ("mysql", CHAR(16), BOTH),
    ("mysql", BINARY(16), UUIDS),
    ("mysql", VARBINARY(16), UUIDS),
    ("mysql", VARBINARY(20), UUIDS),
    ("mysql", VARBINARY(), UUIDS),
    ("mariadb", UUID(), UUID_TEXT),
    ("postgresql", VARCHAR(30), ANY),
]


@pytest.mark.parametrize(("dialect", "existing", "declared"), HOLDING, ids=repr)
def test_column_that_holds_the_ids(dialect: str, existing: TypeEngine[Any], declared: object) -> None:
    """A column that returns each id as it was written keeps its type, and nothing is said about it."""
    assert judged(dialect, existing, declared) == Fit()


WIDER: list[tuple[str, TypeEngine[Any], object, str]] = [
    ("sqlite", VARCHAR(11), NANOID, "VARCHAR(12)"),
    ("postgresql", VARCHAR(12), BOTH, "VARCHAR(16)"),
    ("postgresql", VARCHAR(10, collation="de_DE"), NANOID, 'VARCHAR(12) COLLATE "de_DE"'),
    ("postgresql", CHAR(), NANOID, "CHAR(12)"),
    ("postgresql", CHAR(12), BOTH, "CHAR(16)"),
    ("postgresql", postgresql.DOMAIN("short", VARCHAR(3)), NANOID, "VARCHAR(12)"),
    ("postgresql", VARCHAR(29), ANY, "VARCHAR(30)"),
    (
        "mysql",
        mysql.VARCHAR(10, charset="latin1", collation="latin1_bin"),
        NANOID,
        "VARCHAR(12) CHARACTER SET latin1 COLLATE latin1_bin",
    ),
]


@pytest.mark.parametrize(("dialect", "existing", "declared", "better"), WIDER, ids=repr)
def test_column_that_is_too_short(dialect: str, existing: TypeEngine[Any], declared: object, better: str) -> None:
    """A column that is shorter than the longest id gets the length of that id, and keeps the rest of its type."""
    fit = judged(dialect, existing, declared)

    length = getattr(declared, "length", None) if declared is ANY else getattr(declared, "max_length", None)
    assert (fit.code, fit.why, bool(fit)) == ("too-short", f", but ids have up to {length} characters", False)
    assert (fit.instead, fit.is_other_kind) == (None, False)
    assert fit.better is not None
    assert fit.better.compile(make_url(f"{dialect}://").get_dialect()()) == better


OTHER_TYPES: list[tuple[str, TypeEngine[Any], object, str, str | None]] = [
    ("postgresql", CHAR(20, collation="C"), NANOID, "which adds blanks to ids of NanoId()", 'VARCHAR(20) COLLATE "C"'),
    ("postgresql", CHAR(16), BOTH, f"which adds blanks to ids of {BOTH!r}", "VARCHAR(16)"),
    ("postgresql", CHAR(30), ANY, "which adds blanks to ids of any model", "VARCHAR(30)"),
    ("postgresql", postgresql.CITEXT(), NANOID, 'but ids of NanoId() are stored as VARCHAR(12) COLLATE "C"', None),
    ("postgresql", postgresql.ENUM("a", name="e"), NANOID, "but ids of NanoId() are stored as VARCHAR(12)", None),
    ("mysql", mysql.ENUM("aaaaaaaaaaaa"), NANOID, "but ids of NanoId() are stored as VARCHAR(12)", None),
    ("mysql", mysql.TEXT(), NANOID, "of which mysql indexes a prefix only", "VARCHAR(12) CHARACTER SET ascii"),
    ("mariadb", mysql.LONGTEXT(), ANY, "of which mariadb indexes a prefix only", "VARCHAR(30) CHARACTER SET ascii"),
    ("postgresql", INTEGER(), FLAKE, f"but ids of {FLAKE!r} are stored as BIGINT", "BIGINT"),
    ("mysql", mysql.INTEGER(), FLAKE, f"but ids of {FLAKE!r} are stored as BIGINT", "BIGINT"),
]


@pytest.mark.parametrize(("dialect", "existing", "declared", "why", "better"), OTHER_TYPES, ids=repr)
def test_column_of_another_type(
    dialect: str, existing: TypeEngine[Any], declared: object, why: str, better: str | None
) -> None:
    """A column of the right kind that changes ids, or finds others, is refused; if an ALTER helps, it is named."""
    fit = judged(dialect, existing, declared)

    assert fit.code == "wrong-type"
    assert fit.why.startswith(f", {why}")
    assert (fit.instead, fit.is_other_kind) == (None, False)
    if better is None:
        assert fit.better is None
    else:
        assert fit.better is not None
        assert fit.better.compile(make_url(f"{dialect}://").get_dialect()()).startswith(better)


OTHER_KINDS: list[tuple[str, TypeEngine[Any], object, str, object]] = [
    ("postgresql", VARCHAR(36), UUIDS, "UUID", UUID_TEXT),
    ("postgresql", VARCHAR(32), UUIDS, "UUID", HEX_TEXT),
    ("postgresql", VARCHAR(36), UUID_OLD, "UUID", UUID_OLD_TEXT),
    ("postgresql", VARCHAR(10), UUIDS, "UUID", None),
    ("postgresql", postgresql.UUID(), UUID_TEXT, "VARCHAR(36)", UUIDS),
    ("postgresql", postgresql.UUID(), UUID_OLD_TEXT, "VARCHAR(36)", UUID_OLD),
    ("postgresql", postgresql.UUID(), NANOID, "VARCHAR(12)", None),
    ("postgresql", VARCHAR(20), FLAKE, "BIGINT", FLAKE_TEXT),
    ("postgresql", INTEGER(), ANY, "VARCHAR(30)", None),
    ("postgresql", NullType(), NANOID, "VARCHAR(12)", None),
    # neither text nor the numbers of the format
    ("postgresql", NUMERIC(), FLAKE, "BIGINT", None),
    ("postgresql", postgresql.BYTEA(), UUIDS, "UUID", None),
    ("mysql", BINARY(15), UUIDS, "BINARY(16)", None),
    ("mysql", VARBINARY(15), UUIDS, "BINARY(16)", None),
    ("mysql", BINARY(15), UUID_TEXT, "VARCHAR(36)", None),
    ("mysql", BINARY(16), UUID_TEXT, "VARCHAR(36)", UUIDS),
    ("mysql", BIGINT(), FLAKE_TEXT, "VARCHAR(19)", FLAKE),
    ("mariadb", UUID(), UUIDS, "BINARY(16)", UUID_TEXT),
    ("mariadb", UUID(), UUID_PREFIXED, "VARCHAR(40)", None),
    ("mariadb", UUID(), UUID_TEXT.accepting(UUID_PREFIXED), "VARCHAR(40)", None),
    ("mariadb", UUID(), HEX_TEXT, "VARCHAR(32)", None),
    ("postgresql", VARCHAR(26), Ulid(), "UUID", Ulid(storage="text")),
    ("mysql", VARCHAR(26), Ulid(prefix="ev"), "BINARY(16)", None),
    ("mysql", VARCHAR(24), ObjectId(), "BINARY(12)", ObjectId(storage="text")),
    ("mysql", BINARY(16), Ulid(storage="text"), "VARCHAR(26)", Ulid()),
    ("sqlite", BLOB(), UUID_TEXT, "VARCHAR(36)", UUIDS),
    ("sqlite", VARCHAR(36), UUIDS, "", UUID_TEXT),
]


@pytest.mark.parametrize(("dialect", "existing", "declared", "expected", "instead"), OTHER_KINDS, ids=repr)
def test_text_and_numbers(
    dialect: str, existing: TypeEngine[Any], declared: object, expected: str, instead: object
) -> None:
    """Text for numbers, or the other way round, is refused: the format whose ids the column holds is named, if any."""
    fit = judged(dialect, existing, declared)

    assert (fit.code, fit.is_other_kind, fit.better, fit.instead) == ("wrong-type", True, None, instead)
    assert f" are stored as {expected}" in fit.why
    assert (f"take the format {instead!r}, whose" in fit.advice) == (instead is not None)
    assert ("pass the format that its ids have" in fit.advice) == (instead is None)


@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
def test_text_without_an_index(dialect: str) -> None:
    """A TEXT of MySQL or MariaDB holds ids if it needs no index of its own, as a foreign key that has one already."""
    assert judged(dialect, mysql.TEXT(), NANOID, is_key=False)
    assert not judged(dialect, mysql.TEXT(), NANOID)


def test_kinds_of_declarations() -> None:
    """The ids of a type and of its format are judged alike; a type that is not for ids is not judged."""
    assert StoredIds.of(PublicIdType(BOTH)) == StoredIds.of(BOTH)
    assert StoredIds.of(String(12)) is None
    assert StoredIds(BOTH, 16, frozenset({12, 16})) == StoredIds.of(BOTH)
    assert StoredIds(None, 30, frozenset()) == StoredIds.of(ANY)


@pytest.mark.parametrize(
    ("existing", "has_width"),
    [
        (VARCHAR(12), True),
        (VARCHAR(), True),
        (TEXT(), True),
        (VARCHAR(16), False),
        (VARCHAR(11), False),
        (BLOB(), False),
    ],
    ids=repr,
)
def test_width(existing: TypeEngine[Any], has_width: bool) -> None:
    """The command line guesses the format of a column whose length fits, or that has none."""
    assert has_width_of(existing, NANOID) == has_width


def test_type_in_a_revision() -> None:
    """A message writes a type as a revision does, without its collation."""
    types = VARCHAR(16, collation="C"), mysql.VARCHAR(16, charset="ascii"), CHAR(3), BigInteger(), Integer()
    assert [*map(in_revision, types)] == ["sa.String(16)"] * 2 + ["sa.String(3)", "sa.BigInteger()", "sa.Integer()"]
