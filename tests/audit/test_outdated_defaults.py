"""The audit finds server defaults of early builds, and those that call code of another role, and replaces them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Engine
from support.marks import on
from support.people import People, send

from sqlalchemy_public_id import NanoId, Uuid4, Uuid7, audit
from sqlalchemy_public_id.audit import Finding
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats.alphabets import BASE36

pytestmark = [pytest.mark.backend, on("postgresql")]

_CHARACTER = f"substr('{BASE36}', 1 + (('x' || substr(gen_random_uuid()::text, 25))::bit(48)::bigint % 36)::int, 1)"
_TIME = "lpad(to_hex(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')"
_REST = " || ".join(f"substr(gen_random_uuid()::text, {part})" for part in ("25, 3", "20, 1", "25, 12", "25, 3"))
OLD: dict[Format, str] = {
    NanoId(): " || ".join([_CHARACTER] * 12),
    NanoId(prefix="per", length=5): " || ".join(["'per_'", *[_CHARACTER] * 5]),
    Uuid7(): f"({_TIME} || '7' || {_REST})::uuid",
    Uuid7(encoding="hex", storage="text"): f"lower({_TIME} || '7' || {_REST})",
}
"""Format → the expression that builds before 1.0 have written."""


@pytest.fixture
def old_people(new_people: Callable[..., People], request: pytest.FixtureRequest) -> People:
    """A complete table with the default of an early build."""
    format: Format = request.param
    people = new_people(3, format=format)
    people.add()
    people.execute(f"ALTER TABLE person ALTER COLUMN public_id SET DEFAULT {OLD[format]}")
    return people


def found(engine: Engine, format: Format) -> list[Finding]:
    return audit.run(engine, tables=["person"], formats={"person": format}).findings


@pytest.mark.parametrize("old_people", OLD, ids=repr, indirect=True)
def test_old_default(old_people: People) -> None:
    """A default of an early build is found, and the statements of the remedy replace it by the present one."""
    people, format = old_people, old_people.format
    (finding,) = found(people.engine, format)

    assert (finding.problem, finding.severity) == ("default-outdated", "info")
    assert finding.remedy is not None
    assert finding.remedy.language == "sql"
    for line in finding.remedy.lines:
        people.execute(line)
    assert found(people.engine, format) == []
    people.write(2)
    assert len({*people.ids()}) == 5


@pytest.mark.parametrize("format", [Uuid4(), NanoId(), Uuid7()], ids=repr)
def test_present_default(new_people: Callable[..., People], format: Format) -> None:
    """The default of a migration is not outdated, also if early builds have written the same."""
    people = new_people(1, format=format)
    people.add()

    assert found(people.engine, format) == []


@pytest.mark.parametrize("old_people", [NanoId()], ids=repr, indirect=True)
def test_old_default_is_dropped(old_people: People) -> None:
    """A migration takes a default of an early build for its own: with server_default="none", it is dropped."""
    old_people.run("loosen_public_id", server_default="none")

    assert old_people.state().default is None


@pytest.mark.parametrize("is_visible", [True, False])
def test_operator_of_another_role(new_people: Callable[..., People], is_visible: bool) -> None:
    """A default that calls an operator outside of pg_catalog is an error, in or out of the search path."""
    people = new_people(0)
    people.add()
    with people.engine.begin() as connection:
        for statement in (
            "CREATE SCHEMA mallory",
            "CREATE FUNCTION mallory.seen(bigint, integer) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'",
            "CREATE OPERATOR mallory.% (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = mallory.seen)",
            "SET LOCAL search_path = public, mallory",
            f"ALTER TABLE person ALTER COLUMN public_id SET DEFAULT {OLD[NanoId()]}",
        ):
            send(connection, statement)
    try:
        with people.engine.connect() as connection:
            send(connection, f"SET search_path = public{', mallory' if is_visible else ''}")
            (finding,) = audit.run(connection, tables=["person"]).at_least("warning")
            connection.rollback()

        assert (finding.problem, finding.severity) == ("default-outdated", "error")
        assert finding.facts == {"calls": [f"operator {'' if is_visible else 'mallory.'}%(bigint,integer)"]}
        assert finding.remedy is not None
        for line in finding.remedy.lines:
            people.execute(line)
        assert audit.run(people.engine, tables=["person"]).findings == []
    finally:
        people.execute("DROP SCHEMA mallory CASCADE")
