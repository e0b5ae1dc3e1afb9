"""Ids that the database makes: they pass the same validator, and the same chi-square, as those of Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine
from support.evenness import chance_of
from support.marks import on, since_mariadb
from support.people import People, send

from sqlalchemy_public_id import ConfigurationError, NanoId
from sqlalchemy_public_id.formats import BASE36, BASE62, Format, alphabets
from sqlalchemy_public_id.migrating.server_defaults import expression

pytestmark = [pytest.mark.backend, since_mariadb(10, 10, "RANDOM_BYTES()")]

SUSPECT = 1e-6 / 100
"""There are about a hundred chances below; together they give a false alarm once in a million runs."""
ALPHABETS = {
    "2": "01",
    "10": "0123456789",
    "base36": BASE36,
    "base62": BASE62,
    "64": alphabets.__dict__.get("URL_SAFE", BASE62 + "-_"),
    "odd": "'\"%:;,.()-?{}$@ab",
    "95": "".join(map(chr, range(32, 127))).replace("\\", ""),
}
PRINTABLE = {
    name: "".join(character for character in alphabet if character != " ") for name, alphabet in ALPHABETS.items()
}


def make(engine: Engine, format: Format, count: int) -> list[str]:
    """So many ids from a default of the database."""
    people = People(engine, format=format)
    people.create(0)
    try:
        people.run("expand_public_id")
        if engine.name == "sqlite":
            people.run("contract_public_id")
        for at in range(0, count, 5_000):
            people.write(min(5_000, count - at))
        made = people.ids()
        assert None not in made
        return [id for id in made if id is not None]
    finally:
        people.drop()


def chances(bodies: list[str], alphabet: str) -> list[float]:
    """The chances of the counts of characters: over all, at each place, and of pairs of neighbours in an id."""
    text = "".join(bodies)
    length = len(bodies[0])
    columns = [text, *(text[place::length] for place in range(length))]
    found = [chance_of([column.count(character) for character in alphabet]) for column in columns]
    if len(alphabet) ** 2 * 20 < len(bodies):
        for left, right in ((0, 1), (length // 2, length // 2 + 1), (0, length - 1)):
            pairs = Counter(body[left] + body[right] for body in bodies)
            found.append(chance_of([pairs[a + b] for a in alphabet for b in alphabet]))
    return found


@pytest.mark.backend(alphabet=[PRINTABLE["odd"]])
@pytest.mark.parametrize("alphabet", PRINTABLE.values(), ids=PRINTABLE)
def test_uniform(engine: Engine, alphabet: str) -> None:
    """Every character is equally likely at every place, and none depends on another."""
    count = 60_000 if len(alphabet) > 2 else 20_000
    format = NanoId(length=12 if len(alphabet) > 2 else 60, alphabet=alphabet)

    ids = make(engine, format, count)

    assert all(map(format.is_valid, ids))
    assert min(chances(ids, alphabet)) > SUSPECT


@pytest.mark.slow
def test_many(engine: Engine) -> None:
    """Two hundred thousand ids are even, and all are different."""
    ids = make(engine, NanoId(), 200_000)

    assert len(set(ids)) == len(ids)
    assert min(chances(ids, BASE36)) > SUSPECT


@pytest.mark.parametrize("length", [1, 5, 24, 100])
def test_lengths(engine: Engine, length: int) -> None:
    """Ids of any length are well-formed, also where they take several random numbers."""
    format = NanoId(length=length, prefix="p", separator="-")

    ids = make(engine, format, 300 if length > 4 else 1)

    assert all(map(format.is_valid, ids))
    assert length < 5 or len(set(ids)) == len(ids)


@pytest.mark.parametrize("separator", ["'", '"', "$:", "''", "%(", "~{}"])
def test_separators(engine: Engine, separator: str) -> None:
    """Whatever stands between prefix and body is quoted."""
    format = NanoId(prefix="per", separator=separator)

    ids = make(engine, format, 20)

    assert all(map(format.is_valid, ids))


REFUSED: list[tuple[Any, str]] = [
    (NanoId(alphabet="\\ab"), "backslash"),
    (NanoId(prefix="a", separator="\\"), "backslash"),
    (NanoId(check_digit=True), 'pass server_default="none"'),
    ("a format of one's own", 'pass server_default="none"'),
]


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql", "mariadb"])
@pytest.mark.parametrize(("format", "why"), REFUSED, ids=["alphabet", "separator", "check digit", "other"])
def test_refused(dialect: str, format: Any, why: str) -> None:
    """A format that the database cannot make, or whose backslash is an escape in some sessions, is refused."""
    with pytest.raises(ConfigurationError, match=why):
        expression(format, dialect)


EVIL = "CREATE FUNCTION evil.substr(text, int{}) RETURNS text LANGUAGE sql AS $$ SELECT 'e' $$"


@on("postgresql")
def test_session_of_another_program(new_people: Callable[..., People]) -> None:
    """The default of PostgreSQL makes the same ids if strings have escapes, and whatever the search path is."""
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
