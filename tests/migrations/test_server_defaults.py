"""Ids that the database generates pass the same validator, and the same chi-square test, as those of Python."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Column, Engine, MetaData, Table, inspect, make_url, select, text
from support.chi_square import chance_of
from support.marks import on, since_mariadb
from support.people import People, send

from sqlalchemy_public_id import (
    ConfigurationError,
    JetifyTypeId,
    Ksuid,
    NanoId,
    ObjectId,
    PublicIdType,
    Snowflake,
    Ulid,
    Uuid4,
    Uuid7,
)
from sqlalchemy_public_id.formats import BASE36, BASE62, Format
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import database_of, plan_for
from sqlalchemy_public_id.migrations.server_defaults import ServerDefaults

pytestmark = [pytest.mark.backend, since_mariadb(10, 10, "RANDOM_BYTES()")]

SUSPECT = 1e-6 / 1000
"""The tests compute several hundred chances; with this bound, they give a false alarm once in a million runs."""
BASE64 = string.ascii_letters + string.digits + "-_"
ODD = "'\"%:;,.()-?{}$@ab"
ALPHABETS = {"2": "01", "base36": BASE36, "odd": ODD, "94": "".join(map(chr, range(33, 127))).replace("\\", "")}
NATIVE = [
    Uuid7(prefix="pst"),
    Uuid4(encoding="base58"),
    JetifyTypeId("person"),
    Ulid(),
    Ksuid(storage="native"),
    ObjectId(prefix="oid"),
]
TEXT = [
    Uuid7(encoding="hex", storage="text"),
    Uuid7(encoding="hyphenated", storage="text", prefix="pst", separator="'"),
    Uuid4(encoding="hyphenated", storage="text"),
    Uuid4(encoding="hex", storage="text", prefix="row"),
    ObjectId(storage="text"),
]
NOT_GENERATED = [
    Snowflake(machine_id=1),
    Uuid7(storage="text"),
    Ulid(storage="text"),
    Ksuid(),
    JetifyTypeId("x", storage="text"),
]


def defaults(name: str, version: tuple[int, ...] | None = None) -> ServerDefaults:
    """Return the server defaults of the database *name*, whose server has the *version*."""
    dialect = make_url(f"{name}://").get_dialect()()
    dialect.name, dialect.server_version_info = name, version
    return database_of(dialect).plan.defaults_of(dialect)


def shown(engine: Engine, format: Format) -> list[str]:
    """Return the ids of all people, as text."""
    table = Table("person", MetaData(), Column("public_id", PublicIdType(format)))
    with engine.connect() as connection:
        return list(connection.scalars(select(table.c.public_id)))


def made(engine: Engine, format: Format, count: int) -> list[str]:
    """Return *count* ids from the default of the database, after checking that they are well-formed and distinct."""
    people = People(engine, format=format)
    people.create(0)
    try:
        people.run("expand_public_id")
        if engine.name == "sqlite":
            people.run("contract_public_id")
        for at in range(0, count, 5_000):
            people.write(min(5_000, count - at))
        ids = shown(engine, format)
    finally:
        people.drop()
    assert all(map(format.is_valid, ids)), [id for id in ids if not format.is_valid(id)][:3]
    assert len(set(ids)) == len(ids) == count
    return ids


def chances(ids: list[str], alphabet: str) -> list[float]:
    """Return the chances of the character counts: over all, at each place, and of pairs of places in an id."""
    text = "".join(ids)
    length = len(ids[0])
    columns = [text, *(text[place::length] for place in range(length))]
    found = [chance_of([column.count(character) for character in alphabet]) for column in columns]
    if len(alphabet) ** 2 * 20 < len(ids):
        for left, right in ((0, 1), (length // 2, length // 2 + 1), (0, length - 1)):
            pairs = Counter(id[left] + id[right] for id in ids)
            found.append(chance_of([pairs[a + b] for a in alphabet for b in alphabet]))
    return found


@pytest.mark.backend(alphabet=[ODD])
@pytest.mark.parametrize("alphabet", ALPHABETS.values(), ids=ALPHABETS)
def test_uniform(engine: Engine, alphabet: str) -> None:
    """Every character is equally likely at every place, and independent of the others."""
    length, count = (60, 20_000) if len(alphabet) == 2 else (12, 60_000)

    ids = made(engine, NanoId(length=length, alphabet=alphabet), count)

    assert min(chances(ids, alphabet)) > SUSPECT


RANDOM = {
    "Uuid4": (31, 30, 20, 2, 0),
    "Ulid": tuple(range(20)),
    "Ksuid": tuple(range(32)),
    "ObjectId": tuple(range(16)),
}
"""The hexadecimal places that are random, from the last one; those of UUIDs of version 7 are below."""


def has_own_function(engine: Engine, format: BitsFormat) -> bool:
    """Return True if PostgreSQL generates the ids with its own ``uuidv7()``."""
    with engine.connect() as connection:
        version = connection.dialect.server_version_info
    return engine.name == "postgresql" and "uuidv7()" in defaults("postgresql", version).expression(format)


@pytest.mark.parametrize(
    ("database", "format"),
    [
        *((database, format) for database in ("postgresql", "mysql", "mariadb") for format in [*NATIVE, *TEXT]),
        *(("sqlite", format) for format in TEXT),
    ],
    indirect=["database"],
    ids=repr,
)
def test_digits(engine: Engine, format: BitsFormat) -> None:
    """Ids that are numbers or hexadecimal text have the current time, and random digits wherever they need them."""
    ids = made(engine, format, 4000)

    if format.ordered:
        now = datetime.now(timezone.utc)
        times = [format.timestamp(id) for id in ids]
        assert now - timedelta(minutes=2) < min(times) <= max(times) < now + timedelta(seconds=2)
    numbers = [format.to_int(id) for id in ids]
    finer_time = () if has_own_function(engine, format) else (17, 18)  # uuidv7() has fractions of the millisecond there
    places = RANDOM.get(type(format).__name__, (0, 1, 7, 14, *finer_time))
    digits = {place: Counter(number >> 4 * place & 15 for number in numbers) for place in places}
    chances = {place: chance_of([counts[digit] for digit in range(16)]) for place, counts in digits.items()}
    assert {place: chance for place, chance in chances.items() if chance <= SUSPECT} == {}
    if "Uuid" in type(format).__name__:
        variants = Counter(number >> 60 & 15 for number in numbers)
        assert set(variants) == {8, 9, 10, 11}
        assert chance_of(list(variants.values())) > SUSPECT


DIALECTS = ("postgresql", "mysql", "mariadb", "sqlite")
REFUSED: list[tuple[Any, str]] = [
    (NanoId(alphabet="\\ab"), "a backslash"),
    (NanoId(prefix="a", separator="\\"), "a backslash"),
    (Uuid7(encoding="hex", storage="text", prefix="sep", separator="\\"), "a backslash"),
    (NanoId(check_digit=True), "a check digit"),
    ("a format of one's own", "no SQL"),
    *((format, "") for format in NOT_GENERATED),
]


@pytest.mark.parametrize(
    ("dialect", "format", "why"),
    [
        *((dialect, *case) for dialect in DIALECTS for case in REFUSED),
        *(("sqlite", format, "") for format in NATIVE),
    ],
    ids=repr,
)
def test_refused(dialect: str, format: Any, why: str) -> None:
    """A format that the database cannot generate, or whose backslash is an escape in some sessions, is refused."""
    start = re.escape(f"{dialect} cannot generate ids of the format {format!r}: ")
    with pytest.raises(ConfigurationError, match=f'{start}.*{why}.*; pass server_default="none"'):
        defaults(dialect).expression(format)


def test_own_function() -> None:
    """UUIDs of version 7 use PostgreSQL's own function if the server is known to have it, since version 18."""
    assert defaults("postgresql", (18, 1)).expression(Uuid7()) == "pg_catalog.uuidv7()"
    assert defaults("postgresql", (18,)).expression(JetifyTypeId("x")) == "pg_catalog.uuidv7()"
    assert "uuidv7" not in defaults("postgresql", (17, 2)).expression(Uuid7())
    assert "uuidv7" not in defaults("postgresql").expression(Uuid7())


@pytest.mark.parametrize(
    "format", [Uuid7(), JetifyTypeId("x"), Uuid7(storage="text", encoding="hyphenated"), Uuid4(), NanoId()], ids=str
)
@pytest.mark.parametrize("later", [None, (13,), (17, 2), (18, 1)], ids=str)
@pytest.mark.parametrize("earlier", [None, (13,), (17, 2), (18, 1)], ids=str)
def test_default_of_another_server(format: Any, earlier: Any, later: Any) -> None:
    """A default is the library's own after an upgrade of PostgreSQL, and in a dump that an older server has read."""
    written = defaults("postgresql", earlier).expression(format)
    if "uuidv7" not in written or later == (18, 1):  # no older server has this function
        assert defaults("postgresql", later).is_generated(written, format)


EVIL = "CREATE FUNCTION evil.substr(text, int{}) RETURNS text LANGUAGE sql AS $$ SELECT 'e' $$"


@on("postgresql")
def test_session_of_another_program(new_people: Callable[..., People]) -> None:
    """The default of PostgreSQL generates valid ids even if strings have escapes, and whatever the search path is."""
    format = NanoId(alphabet="abc'", prefix="per")
    people = new_people(0, format=format)
    people.run("expand_public_id")
    with people.engine.connect() as connection:
        for statement in ("CREATE SCHEMA evil", EVIL.format(", int"), EVIL.format("")):
            send(connection, statement)
        send(connection, "SET standard_conforming_strings = off")
        send(connection, "SET search_path = evil")
        send(connection, "INSERT INTO public.person (name) VALUES ('x')")
        assert format.is_valid(send(connection, "SELECT public_id FROM public.person").scalar())
        connection.rollback()


REPORTED = [
    NanoId(),
    NanoId(prefix="mod", separator="'", alphabet="aX(_)% .".replace(" ", "m"), length=5),
    NanoId(prefix="cus", alphabet=BASE62),
    Uuid4(prefix="cus", encoding="hex", storage="text"),
    Uuid7(encoding="hyphenated", storage="text"),
    Uuid7(),
    ObjectId(),
]


@on("sqlite", "postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("format", REPORTED, ids=repr)
def test_default_of_the_library(table: People, format: Format) -> None:
    """A default of the library is recognized although the server rewrites its text, but only for its own format."""
    dialect = table.engine.dialect
    if not defaults(dialect.name).can_generate(format):
        pytest.skip("this database cannot generate such ids")
    table.create(0)
    table.add(format=format)

    def is_own(format: Format) -> bool:
        return plan_for(PublicIdColumn.of("person", format=format), dialect).has_own_default(table.state())

    assert is_own(format)
    assert is_own(NanoId(length=30).accepting(format))
    assert not is_own(NanoId(length=31))


@on("postgresql")
@pytest.mark.parametrize("format", [REPORTED[0], REPORTED[2], *REPORTED[4:6]], ids=repr)
def test_repeated_default(table: People, format: Format) -> None:
    """A revision that repeats the reflected default makes a column whose ids are valid: it has no percent sign."""
    table.create(0)
    table.add(format=format)
    with table.migrating() as op:
        columns = inspect(op.get_bind()).get_columns("person")
        (default,) = (column["default"] for column in columns if column["name"] == "public_id")
        repeated = Column("again", PublicIdType(format), server_default=text(default))
        op.add_column("person", repeated)
    table.write(2)
    with table.engine.connect() as connection:
        again = connection.scalars(select(Table("person", MetaData(), Column("again", PublicIdType(format)))))
        assert all(map(format.is_valid, again))


@pytest.mark.parametrize("length", [1, 5, 12, 21, 60, 200])
@pytest.mark.parametrize("size", [2, 3, 10, 16, 33, 36, 57, 62, 64])
def test_characters_that_are_left(size: int, length: int) -> None:
    """Enough random characters are left for an id, with a chance of failure below 1 in 10**18, from enough bits."""
    format = NanoId(alphabet=BASE64[:size], length=length)
    digests = defaults("postgresql").expression(format).count("sha384")

    kept, tries = size * (64 // size) / 64, 64 * digests
    too_few = sum(math.comb(tries, n) * kept**n * (1 - kept) ** (tries - n) for n in range(length))
    assert too_few < 1e-18
    assert digests * 122 >= format.entropy_bits + 40


def test_length() -> None:
    """The default of the usual format takes 200 characters of a dump, where that of early builds took 2 000."""
    expression = defaults("postgresql").expression(NanoId())

    assert len(expression) < 300
    assert "%" not in expression


FUNCTION = {"postgresql": "md5(random()::text)", "sqlite": "hex(randomblob(8))"}
"""A default of the project; on MySQL and MariaDB, ``uuid()``."""
IN_STEPS = ("expand_public_id", "backfill_public_id", "contract_public_id")


@on("sqlite", "postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("operations", [("add_public_id",), IN_STEPS, IN_STEPS[:1]], ids="+".join)
@pytest.mark.parametrize("prior", [None, "'x'", "function", NanoId(length=16), NanoId()], ids=str)
def test_replaced(new_people: Callable[..., People], engine: Engine, prior: Any, operations: tuple[str, ...]) -> None:
    """With ``server_default="replace"``, a column has the default of its format afterwards, whichever it had before."""
    expression = prior
    if isinstance(prior, NanoId):
        expression = defaults(engine.name).expression(prior)
    elif prior == "function":
        expression = FUNCTION.get(engine.name, "uuid()")
    is_complete = operations == IN_STEPS[:1]  # an expand replaces the default of a column that is complete, too
    column = "public_id varchar(36)" + f" DEFAULT ({expression})" * (prior is not None)
    people = new_people(
        0, more=f", {column}" + " NOT NULL UNIQUE" * is_complete, collation="bytes", server_default="replace"
    )
    stored = NanoId().generate()
    people.execute(f"INSERT INTO person (name, public_id) VALUES ('old', '{stored}')")
    if not is_complete:
        people.execute("INSERT INTO person (name, public_id) VALUES ('new', NULL)")

    for operation in operations:
        people.run(operation)

    state, ids = people.state(), people.ids()
    assert plan_for(people.target, engine.dialect).has_own_default(state)
    assert state.unique is not None
    assert not state.nullable
    assert ids[0] == stored
    assert [NanoId().is_valid(id) for id in [*ids, people.written()]] == [True] * (len(ids) + 1)


@on("postgresql")
@pytest.mark.parametrize(
    ("format", "prior"),
    [
        *((format, None) for format in (NanoId(), NanoId(prefix="usr"), *TEXT)),
        (TEXT[2], "gen_random_uuid()::text"),
    ],
    ids=repr,
)
def test_quoted(
    new_people: Callable[..., People], new_engine: Callable[..., Engine], format: Format, prior: str | None
) -> None:
    """A default is known as one that generates the ids also if the server quotes each name in it."""
    quoting = new_engine("postgresql", connect_args={"options": "-c quote_all_identifiers=on"})
    people = new_people(2, format=format, more="" if prior is None else f", public_id varchar(36) DEFAULT {prior}")
    people.run("expand_public_id")
    own = People(quoting, **people.options)

    own.add()

    people.check_complete(2)
    assert plan_for(own.target, quoting.dialect).has_own_default(own.state()) == (prior is None)


# --- migrations to numbers


@pytest.mark.backend(format=[NATIVE[0], NATIVE[-1], TEXT[1], *NOT_GENERATED[::2]])
@pytest.mark.parametrize("format", [*NATIVE, *TEXT, *NOT_GENERATED], ids=repr)
def test_migrated(new_people: Callable[..., People], engine: Engine, format: BitsFormat) -> None:
    """A column of any format is added to a table with rows, is unique and NOT NULL, and is dropped again."""
    keep: Any = "keep" if defaults(engine.name).can_generate(format) else "none"
    people = new_people(200, format=format, server_default=keep)
    people.add()
    if keep == "keep":
        people.write(10)
    ids = shown(engine, format)

    assert len(set(ids)) == len(ids) == (210 if keep == "keep" else 200)
    assert all(map(format.is_valid, ids))
    assert people.state().complete
    people.run("loosen_public_id")
    people.add()
    people.run("drop_public_id")
    people.check_gone()


@on("mysql", "mariadb", "postgresql")
def test_duplicates(new_people: Callable[..., People], engine: Engine) -> None:
    """With consent, rows that share a number get new ones when the unique index is built."""
    format = ObjectId()
    people = new_people(20, format=format, server_default="none")
    people.run("expand_public_id")
    people.run("backfill_public_id")
    value = "'\\x0123456789abcdef01234567'" if engine.name == "postgresql" else "0x0123456789abcdef01234567"
    people.execute(f"UPDATE person SET public_id = {value} WHERE id <= 3")
    people.run("contract_public_id", on_duplicate="replace")

    assert len(set(shown(engine, format))) == 20
