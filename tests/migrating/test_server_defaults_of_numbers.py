"""Ids that are numbers, made by the database: the validator, the time and the randomness are those of Python's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Column, Engine, MetaData, Table, select
from support.evenness import chance_of
from support.marks import on, since_mariadb
from support.people import People

from sqlalchemy_public_id import (
    ConfigurationError,
    JetifyTypeId,
    ObjectId,
    PublicIdType,
    Snowflake,
    Ulid,
    Uuid4,
    Uuid7,
)
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.migrating.server_defaults import can_generate, expression

pytestmark = [pytest.mark.backend, since_mariadb(10, 10, "RANDOM_BYTES()")]

SUSPECT = 1e-6 / 1000
"""There are some hundred chances below; together they give a false alarm once in a million runs."""
NATIVE = [Uuid7(prefix="pst"), Uuid4(encoding="base58"), JetifyTypeId("person"), Ulid(), ObjectId(prefix="oid")]
TEXT = [
    Uuid7(encoding="hex", storage="text"),
    Uuid7(encoding="hyphenated", storage="text", prefix="pst"),
    Uuid4(encoding="hyphenated", storage="text"),
    Uuid4(encoding="hex", storage="text", prefix="row"),
    ObjectId(storage="text"),
]
REFUSED = [Snowflake(machine_id=1), Uuid7(storage="text"), Ulid(storage="text"), JetifyTypeId("x", storage="text")]


def shown(engine: Engine, format: BitsFormat) -> list[str]:
    """The ids of all people, as text."""
    table = Table("person", MetaData(), Column("public_id", PublicIdType(format)))
    with engine.connect() as connection:
        return list(connection.scalars(select(table.c.public_id)))


def made(engine: Engine, format: BitsFormat, count: int) -> list[str]:
    """So many ids from the default of the database."""
    people = People(engine, format=format)
    people.create(0)
    try:
        people.run("expand_public_id")
        if engine.name == "sqlite":
            people.run("contract_public_id")
        for at in range(0, count, 1000):
            people.write(min(1000, count - at))
        return shown(engine, format)
    finally:
        people.drop()


RANDOM = {"Uuid4": (31, 30, 20, 2, 0), "Ulid": tuple(range(20)), "ObjectId": tuple(range(16))}
"""The hexadecimal places that are random, from the last one; those of UUIDs of version 7 are below."""


def has_own_function(engine: Engine, format: BitsFormat) -> bool:
    """Whether PostgreSQL makes the ids with its own ``uuidv7()``."""
    with engine.connect() as connection:
        return engine.name == "postgresql" and "uuidv7()" in expression(
            format, "postgresql", connection.dialect.server_version_info
        )


def check(format: BitsFormat, ids: list[str], own_function: bool = False) -> None:
    """All are well-formed, different, of now, and random where they have to be."""
    assert all(map(format.is_valid, ids)), [id for id in ids if not format.is_valid(id)][:3]
    assert len(set(ids)) == len(ids)
    if format.ordered:
        now = datetime.now(timezone.utc)
        times = [format.timestamp(id) for id in ids]  # type: ignore[attr-defined]
        assert now - timedelta(minutes=2) < min(times) <= max(times) < now + timedelta(seconds=2)
    numbers = [format.to_int(id) for id in ids]
    finer_time = () if own_function else (17, 18)  # uuidv7() has parts of the millisecond there
    for place in RANDOM.get(type(format).__name__, (0, 1, 7, 14, *finer_time)):
        digits = Counter(number >> 4 * place & 15 for number in numbers)
        assert chance_of([digits[digit] for digit in range(16)]) > SUSPECT, place
    if "Uuid" in type(format).__name__:
        variants = Counter(number >> 60 & 15 for number in numbers)
        assert set(variants) == {8, 9, 10, 11}
        assert chance_of(list(variants.values())) > SUSPECT


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("format", NATIVE, ids=repr)
def test_numbers(engine: Engine, format: BitsFormat) -> None:
    """A column that stores numbers gets well-formed ones from its default."""
    check(format, made(engine, format, 4000), has_own_function(engine, format))


@pytest.mark.parametrize("format", TEXT, ids=repr)
def test_text(engine: Engine, format: BitsFormat) -> None:
    """A column of text gets hexadecimal ids from its default, with prefix and hyphens."""
    check(format, made(engine, format, 4000))


@pytest.mark.parametrize(
    ("dialect", "format"),
    [
        *((dialect, format) for dialect in ("postgresql", "mysql", "mariadb", "sqlite") for format in REFUSED),
        *(("sqlite", format) for format in NATIVE),
    ],
    ids=repr,
)
def test_refused(dialect: str, format: BitsFormat) -> None:
    """What a database cannot make is an error that says why, and what to write instead."""
    with pytest.raises(ConfigurationError, match=rf'{dialect} cannot generate .*: .*; pass server_default="none"'):
        expression(format, dialect)


@pytest.mark.parametrize("separator", ["'", "%(p)s", "$$:p--", "\\"])
def test_separators(engine: Engine, separator: str) -> None:
    """What stands behind the prefix is written as SQL writes it; a backslash is refused."""
    format = Uuid7(encoding="hex", storage="text", prefix="sep", separator=separator)
    if "\\" in separator:
        with pytest.raises(ConfigurationError, match=r'a backslash .* pass server_default="none"'):
            expression(format, engine.name)
        return

    ids = made(engine, format, 3)

    assert len(set(ids)) == 3
    assert all(map(format.is_valid, ids)), ids


def test_own_function() -> None:
    """PostgreSQL 18 has a function for UUIDs of version 7, and it is used where the server is known to have it."""
    assert expression(Uuid7(), "postgresql", (18, 1)) == "uuidv7()"
    assert expression(JetifyTypeId("x"), "postgresql", (18,)) == "uuidv7()"
    assert "uuidv7" not in expression(Uuid7(), "postgresql", (17, 2))
    assert "uuidv7" not in expression(Uuid7(), "postgresql")


@pytest.mark.backend(format=[NATIVE[0], NATIVE[-1], TEXT[1], *REFUSED[::2]])
@pytest.mark.parametrize("format", [*NATIVE, *TEXT, *REFUSED], ids=repr)
def test_migrated(new_people: Callable[..., People], engine: Engine, format: BitsFormat) -> None:
    """Every format goes onto a table with rows, is unique and NOT NULL, and goes away again."""
    keep: Any = "keep" if can_generate(format, engine.name) else "none"
    people = new_people(2000, format=format, server_default=keep)
    people.add()
    ids = shown(engine, format)

    assert len(set(ids)) == 2000
    assert all(map(format.is_valid, ids))
    assert people.state().complete
    if keep == "keep":
        people.write(10)
        assert all(map(format.is_valid, shown(engine, format)))
    people.run("drop_public_id")
    people.check_gone()
    people.add()
    people.run("loosen_public_id")
    people.add()


@on("mysql", "mariadb", "postgresql")
def test_duplicates(new_people: Callable[..., People], engine: Engine) -> None:
    """Rows that share a number before there is an index are given others when it is built, with consent."""
    format = ObjectId()
    people = new_people(20, format=format, server_default="none")
    people.run("expand_public_id")
    people.run("backfill_public_id")
    value = "'\\x0123456789abcdef01234567'" if engine.name == "postgresql" else "0x0123456789abcdef01234567"
    people.execute(f"UPDATE person SET public_id = {value} WHERE id <= 3")
    people.run("contract_public_id", on_duplicate="replace")

    assert len(set(shown(engine, format))) == 20


def test_default_that_goes(new_people: Callable[..., People]) -> None:
    """A default of this library is recognized, whatever format it is of."""
    people = new_people(5, format=Uuid4(encoding="hex", storage="text"), server_default="drop")
    people.add()

    assert people.state().default is None
    people.check_complete(5)
