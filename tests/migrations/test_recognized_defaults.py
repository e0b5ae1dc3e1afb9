"""Server defaults of earlier formats and versions: from its text alone, a default tells the format that wrote it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import make_url

from sqlalchemy_public_id import JetifyTypeId, NanoId, ObjectId, Ulid, Uuid4, Uuid7
from sqlalchemy_public_id.formats import BASE58, BASE62, Format
from sqlalchemy_public_id.migrations.databases import database_of
from sqlalchemy_public_id.migrations.server_defaults import ServerDefaults

DIALECTS = ("sqlite", "postgresql", "mysql", "mariadb")
on_each = pytest.mark.parametrize("dialect", DIALECTS)


def defaults(name: str, version: tuple[int, ...] | None = None) -> ServerDefaults:
    """Return the server defaults of the database *name*, whose server has the *version*."""
    dialect = make_url(f"{name}://").get_dialect()()
    dialect.name, dialect.server_version_info = name, version
    return database_of(dialect).plan.defaults_of(dialect)


NEW = NanoId()
FORMER: list[tuple[Format, Format]] = [
    # what the default generates, and the present format
    (NEW, NEW),
    (NanoId(length=4), NEW),
    (NanoId(length=40), NEW),
    (NanoId(length=16, alphabet=BASE58), NEW),
    (NanoId(length=16, alphabet=BASE62, prefix="usr"), NEW),
    (NanoId(length=50), NanoId(length=50, prefix="per")),
    (NanoId(length=16), NanoId(prefix="per")),
    (NanoId(length=16, prefix="u"), NEW),
    (NanoId(length=16, prefix="usr", separator="-"), NanoId(prefix="usr")),
    (
        NanoId(length=5, prefix="per", separator="-", alphabet="abc"),
        NanoId(prefix="per", separator="-", alphabet="abc"),
    ),
    (Uuid7(encoding="hyphenated", storage="text", prefix="usr"), NEW),
    (Uuid4(encoding="hex", storage="text", prefix="usr", separator="-"), NEW),
    (ObjectId(storage="text", prefix="usr"), NEW),
    (Uuid4(encoding="hex", storage="text"), NEW),
    (Uuid7(encoding="hyphenated", storage="text"), NEW),
]


@pytest.mark.parametrize(("old", "new"), FORMER, ids=repr)
def test_former_formats_without_ids(old: Format, new: Format) -> None:
    """The default of an empty table tells kind, length, alphabet, prefix and separator of its format."""
    written = defaults("sqlite")

    assert written.former_format(written.expression(old), new, []) == old


def test_former_format_of_ids() -> None:
    """The format of a default of another length than usual is found by the ids that are stored."""
    written, old = defaults("sqlite"), NanoId(length=50)

    assert written.former_format(written.expression(old), NEW, old.generate_many(100)) == old


@on_each
def test_alphabets_that_differ_by_case(dialect: str) -> None:
    """A default whose alphabet or prefix is in another case is not the one of the format; other words may be."""
    written = defaults(dialect)
    default = written.expression(NanoId(alphabet="abcd", prefix="usr"))

    assert written.is_generated(default, NanoId(alphabet="abcd", prefix="usr"))
    assert not written.is_generated(default, NanoId(alphabet="ABCD", prefix="usr"))
    assert not written.is_generated(default, NanoId(alphabet="abcd", prefix="Usr"))
    assert not written.is_generated(default, NanoId(alphabet="abdc", prefix="usr"))
    shouted = re.sub(r"'[^']*'|[^']+", lambda part: part[0] if part[0][0] == "'" else part[0].upper(), default)
    assert written.is_generated(shouted, NanoId(alphabet="abcd", prefix="usr"))


@pytest.mark.parametrize(
    ("dialect", "version", "format", "found"),
    [
        ("postgresql", (17,), Uuid4(), None),  # gen_random_uuid(), which other columns have as well
        ("postgresql", (18,), Uuid7(), None),
        ("postgresql", (17,), Uuid7(), Uuid7()),
        ("postgresql", (17,), ObjectId(), ObjectId()),
        ("postgresql", (17,), Ulid(), Ulid()),
        *((dialect, None, format, format) for dialect in ("mysql", "mariadb") for format in (Uuid4(), Uuid7(), Ulid())),
        ("mysql", None, ObjectId(), ObjectId()),
        ("mysql", None, JetifyTypeId("x"), Uuid7()),
        ("mysql", None, NanoId(), None),
        ("mysql", None, Uuid4(storage="text", encoding="hex"), None),
    ],
    ids=repr,
)
def test_formats_of_numbers(dialect: str, version: Any, format: Format, found: Format | None) -> None:
    """A default of the library for numbers tells the format, unless it only calls a function of the database."""
    written = defaults(dialect, version)

    assert written.format_of_numbers(written.expression(format)) == found


@on_each
def test_form_of_a_default(dialect: str) -> None:
    """A default belongs to the form of a format that it generates, the present one or one that is accepted."""
    written, other = defaults(dialect), NanoId(length=20, prefix="per")
    formats = other.accepting(NEW), other.accepting(Uuid4(encoding="hex", storage="text")), other
    found = [written.form_of(written.expression(NEW), format) for format in formats]

    assert found == [NEW, None, None]
    assert written.form_of(written.expression(other), formats[0]) in (other, formats[0])
    assert written.form_of("upper('x')", formats[0]) is None
    assert written.form_of(written.expression(NEW), NanoId(check_digit=True).accepting(NEW)) == NEW
    assert written.form_of(written.expression(NEW), NEW, outdated=True) is None


OLDER: dict[Format, str] = {
    ObjectId(storage="text"): (
        "lower(lpad(to_hex(floor(extract(epoch FROM clock_timestamp()))::bigint), 8, '0') || "
        "substr(gen_random_uuid()::text, 25, 12) || substr(gen_random_uuid()::text, 25, 4))"
    ),
    Uuid7(encoding="hyphenated", storage="text"): (
        "(lower(lpad(to_hex(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || "
        "substr(gen_random_uuid()::text, 25, 3) || substr(gen_random_uuid()::text, 20, 1) || "
        "substr(gen_random_uuid()::text, 25, 12) || substr(gen_random_uuid()::text, 25, 3)))::uuid::text"
    ),
    Uuid4(encoding="hex", storage="text"): (
        "lower(substr(gen_random_uuid()::text, 25, 12) || '4' || substr(gen_random_uuid()::text, 25, 3) || "
        "substr(gen_random_uuid()::text, 20, 1) || substr(gen_random_uuid()::text, 25, 12) || "
        "substr(gen_random_uuid()::text, 25, 3))"
    ),
}
"""Format → the default that builds before 1.0 wrote for PostgreSQL."""


@pytest.mark.parametrize("format", OLDER, ids=repr)
def test_defaults_of_older_builds(format: Format) -> None:
    """A default of a build before 1.0, as PostgreSQL stores it, is the library's."""
    assert defaults("postgresql", (17,)).form_of(OLDER[format], format) == format


def test_outdated_defaults() -> None:
    """A default of builds before 1.0 is the library's, and is outdated if this version writes another one."""
    written, format = defaults("postgresql", (17,)), NanoId(length=2, alphabet="ab")
    number = "(('x' || substr(gen_random_uuid()::text, 25))::bit(48)::bigint % 2)::int"
    default = " || ".join([f"substr('ab', 1 + {number}, 1)"] * 2)
    accepting = NEW.accepting(format)

    assert [written.form_of(default, format, outdated=outdated) for outdated in (False, True)] == [format, format]
    assert [written.form_of(default, accepting, outdated=outdated) for outdated in (False, True)] == [format, format]
    assert written.form_of(default, NEW, outdated=True) is None
    for same in (Uuid4(), format):
        assert written.form_of(written.expression(same), same) == same
        assert written.form_of(written.expression(same), same, outdated=True) is None
