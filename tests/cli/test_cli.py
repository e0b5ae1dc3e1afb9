"""The ``public-id`` command, in this process and as a separate process."""

from __future__ import annotations

import json
import logging
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import click
import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, func, make_url
from sqlalchemy import select as sql_select
from sqlalchemy.orm import declarative_base
from support.command import run
from support.every_format import one_of_each
from support.invoices import NAME, NewInvoices
from support.marks import on

from sqlalchemy_public_id import (
    ConfigurationError,
    Format,
    JetifyTypeId,
    NanoId,
    ObjectId,
    Snowflake,
    Ulid,
    Uuid4,
    Uuid7,
)
from sqlalchemy_public_id.cli._console import problem_of
from sqlalchemy_public_id.cli.commands import public_id
from sqlalchemy_public_id.formats.guess import guesses
from sqlalchemy_public_id.migrations import Consent, Pace, PublicIdColumn, Timeouts
from sqlalchemy_public_id.migrations.consent import HOLDERS, choices_of, defaults_of, describe_options

pytestmark = pytest.mark.backend


def url(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def filled(engine: Engine, table: Table) -> int:
    """Return how many rows have an id."""
    with engine.connect() as connection:
        return connection.scalar(sql_select(func.count(table.c.public_id))) or 0


# --- new


@pytest.mark.parametrize(
    ("arguments", "format", "count"),
    [
        ([], NanoId(), 1),
        (["NanoId(length=16, prefix='cus')", "-n", 25_000], NanoId(length=16, prefix="cus"), 25_000),
        (["Uuid7", "-n", 100], Uuid7(), 100),
        (["Ulid", "-n", 0], Ulid(), 0),
    ],
)
def test_new(arguments: list[Any], format: Format, count: int) -> None:
    """``new`` prints the given number of ids, one per line, and in order if the format is ordered."""
    result = run("new", *arguments)
    ids = result.stdout.splitlines()

    assert len(set(ids)) == len(ids) == count
    assert all(map(format.is_valid, ids))
    assert ids == (sorted(ids) if format.ordered else ids)
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["new", "NanoIdd"], ["'NanoIdd' is not a format", "write one of JetifyTypeId"]),
        (["new", "Snowflake"], ["missing a required argument: 'machine_id'"]),
        (["template", "multidb"], ["'generic'", "'async'"]),
        (["inspect", "abc", "--models", "models"], ["is not module:Base"]),
        (["inspect", "abc", "--models", "there.is.none:Base"], ["there is no module 'there'"]),
        (["inspect", "abc", "--models", "json:Base"], ["the module 'json' has no 'Base'"]),
        (["inspect", "abc", "--models", "json:JSONDecoder"], ["expected a declarative base"]),
        (
            ["inspect", "abc", "--models", "sqlalchemy:orm"],
            ["sqlalchemy:orm is <module", "expected a declarative base"],
        ),
        (["inspect", "abc", "--models", "json:decoder.Base"], ["the module 'json' has no 'decoder.Base'"]),
        (["inspect", "abc", "--url", "sqlite://"], ["--url needs --models"]),
        (
            ["plan", "sqlite:///a.db", "sqlite:///b.db", "invoice"],
            ["there are two database URLs; run the command once"],
        ),
        (["new", "Snowflake(1, epoch=4102444800000)"], ["public-id: the clock of this machine is ", "earlier epoch\n"]),
    ],
)
def test_arguments_that_cannot_be_used(arguments: list[str], expected: list[str]) -> None:
    """An unusable argument is reported on stderr, with the valid ones, and the exit status is 2."""
    result = run(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert [words for words in expected if words not in result.stderr] == []


@pytest.mark.parametrize(
    "command", [["audit", "sqlite://"], ["plan", "sqlite://", "--all"], ["inspect", "cus_izkpm55j334u"], ["spec"]]
)
def test_base_without_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    """A base whose module imports no models is refused: an audit would find nothing wrong in the tables."""
    (tmp_path / "bare_base.py").write_text("from sqlalchemy.orm import declarative_base\n\nBase = declarative_base()\n")
    monkeypatch.chdir(tmp_path)
    option = [] if command == ["spec"] else ["--models"]

    result = run(*command, *option, "bare_base:Base")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "bare_base:Base has no models; name a module that imports them all" in " ".join(result.stderr.split())


# --- inspect

FORMATS = [
    NanoId(prefix="cus_type"),
    NanoId(prefix="cus", separator="-"),
    Uuid7(),
    Uuid7("post", encoding="base58"),
    Uuid7("credit_note", encoding="hyphenated"),
    Uuid4("a", encoding="hex"),
    JetifyTypeId("line_item"),
    Ulid(prefix="evt", separator="."),
    Snowflake(0),
    Snowflake(0, prefix="s", encoding="base36"),
    ObjectId("o"),
    *one_of_each(prefix="o", machine_id=0),
]


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_guesses(format: Format) -> None:
    """The guesses for an id include its format, with prefix and encoding, and have a NanoId only at the end."""
    found = {text: [*guesses(text)] for text in format.generate_many(20)}

    assert {text: some for text, some in found.items() if format not in some} == {}
    assert [(text, guess) for text, some in found.items() for guess in some if not guess.is_valid(text)] == []
    assert [(text, guess) for text, some in found.items() for guess in some[:-1] if isinstance(guess, NanoId)] == []


def test_inspect_another_spelling() -> None:
    """An id in another case is well-formed if its format ignores case, and the spelling of its row is shown."""
    right, wrong = (f"NanoId(6, prefix='cus'{more})" for more in (", ignore_case=True", ""))
    shown = run("inspect", "CUS_BCDFGH", "--format", right).output

    assert [line.split()[-1] for line in shown.splitlines() if line.startswith(("pre", "well", "can"))] == [
        "CUS",
        "yes",
        "cus_bcdfgh",
    ]
    assert "canonical" not in run("inspect", "cus_bcdfgh", "--format", right).output
    assert run("inspect", "CUS_BCDFGH", "--format", wrong).exit_code == 1


@pytest.mark.parametrize(
    ("format", "prefix"),
    [("Uuid7(prefix='inv')", "inv"), ("Uuid7(prefix='inv').accepting(Uuid7())", None), ("Uuid7()", None)],
)
def test_inspect_a_prefix(format: str, prefix: str | None) -> None:
    """The prefix of the format is shown if the id has it, and not if only its canonical spelling has it."""
    text = Uuid7(prefix=prefix).generate()

    shown = run("inspect", text, "--format", format)

    assert shown.exit_code == 0
    assert re.findall(r"^prefix +(\S+)$", shown.stdout, re.MULTILINE) == ([prefix] if prefix else [])
    length = r"29 \(25 without the prefix\)" if prefix else "25"
    assert re.search(rf"^length +{length}$", shown.stdout, re.MULTILINE)


def test_inspect_many() -> None:
    """Malformed ids from the standard input, also with blanks, are shown with their lines; the exit status is 1."""
    good, other = "cus_izkpm55j334u", "cus_izkpm55j334ü"
    result = run("inspect", "-", "--format", "NanoId(prefix='cus')", given=f"{good}\nbad\r\n\n{other}\n{good}")

    assert result.exit_code == 1
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == ["2", "3", "4"]
    assert "it does not begin with 'cus_'" in result.stdout
    assert result.stderr == "5 ids, 3 malformed\n"
    well_formed = run("inspect", "-", "--format", "NanoId(prefix='cus')", given=f"{good}\n" * 3)
    assert (well_formed.exit_code, well_formed.stdout) == (0, "")
    assert run("inspect", "-", "--format", "NanoId(prefix='cus')", given=b"\xff\xfe\n").exit_code == 1
    blanks = run("inspect", "-", "--format", "NanoId(prefix='cus')", given=f" {good}\n{good} \n")
    assert [line.partition(":")[0] for line in blanks.stdout.splitlines()] == ["1", "2"]
    facts = run("inspect", "-", given=f"{good}\nabc\n")
    assert re.findall(r"^id +(\S+)$", facts.stdout, re.MULTILINE) == [good, "abc"]
    assert (facts.exit_code, run("inspect", "-", given="").stdout) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        ([""], 0, r"wrong +it is empty"),
        (["a b"], 0, r"wrong +no id contains ' '"),
        (["gr\u00fc\u00dfe"], 0, r"wrong +no id contains '\u00df', '\u00fc'"),
        (["x" * 300], 0, r"wrong +no id has more than 255 characters"),
        (["evt_0ujtsYcgvSTl8PAuAdqWYSMnLOv"], 0, r"time +2017-10-10T04:00:47\.000\+00:00 \(as Ksuid\)"),
        (["0ujtsYcgvSTl8PAuAdqWYSMnLOv", "--format", "Ksuid"], 0, "well-formed +yes"),
        (["01ARZ3NDEKTSV4RRFFQ69G5FAV"], 0, r"time +2016-07-30T23:54:10\.259\+00:00 \(as Ulid\)"),
        (["017F22E2-79B0-7CC3-98C4-DC0C0C07398F"], 0, r"uuid +version 7"),
        (["017F22E2-79B0-7CC3-98C4-DC0C0C07398F"], 0, r"time +2022-02-22T19:22:22\.000\+00:00.*"),
        (
            ["0000000004194324480", "--format", "Snowflake(1, epoch=1704067200000)"],
            0,
            r"time +2024-01-01T00:00:01\.000\+00:00",
        ),
        (["cus_izkpm55j334u", "--format", "NanoId(prefix='cus')"], 0, "well-formed +yes"),
        (
            ["ord_izkpm55j334u", "--format", "NanoId(prefix='cus')"],
            1,
            r"well-formed +no: the prefix is 'ord' \(expected cus_ and 12.*",
        ),
    ],
)
def test_inspect(arguments: list[str], status: int, line: str) -> None:
    """``inspect`` shows time and version of an id, or why it is malformed; the status tells if it has the format."""
    result = run("inspect", *arguments)

    assert result.exit_code == status
    assert re.search(f"^{line}$", result.stdout, re.MULTILINE), result.stdout


def test_inspect_a_check_digit() -> None:
    """A correct check digit is reported as valid; the guide shows a wrong one."""
    text = NanoId(prefix="cus", check_digit=True).generate()

    assert "check digit  valid by ISO 7064 MOD 37,36" in run("inspect", text).stdout
    assert "check digit  valid " in run("inspect", text, "--format", "NanoId(prefix='cus', check_digit=True)").stdout
    assert "check digit" not in run("inspect", "cus_izkpm55j334u", "--format", "NanoId(prefix='cus')").stdout


MODELS = """
from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, mapped_column
from sqlalchemy_public_id import NanoId, PublicIdMixin

class Base(DeclarativeBase): ...

class Crate(PublicIdMixin, Base):
    __tablename__ = "crate"
    __public_id__ = NanoId(prefix="clicrate")

class LargeCrate(Crate):
    __tablename__ = "large_crate"
    id = mapped_column(ForeignKey("crate.id"), primary_key=True)

class Barrel(PublicIdMixin, Base):
    __tablename__ = "barrel"
    __public_id__ = NanoId(prefix="clibarrel")
"""


@pytest.mark.parametrize(
    ("id", "url", "status", "line"),
    [
        ("clicrate_000000000one", True, 0, "model        Crate, crate.public_id: one row"),
        ("clibarrel_000000000one", False, 0, "model        Barrel, barrel.public_id"),
        ("clibarrel_000000000one", True, 1, "model        Barrel, barrel.public_id: no row"),
        ("nonsense", False, 1, "model        none of Base has such ids"),
    ],
)
def test_inspect_with_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id: str, url: bool, status: int, line: str
) -> None:
    """With models, the matching model is named; with a database, whether a row has the id. The key is not shown."""
    (tmp_path / "depot_models.py").write_text(MODELS)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])  # as a script finds it
    monkeypatch.chdir(tmp_path)  # modules in this folder are found, as by "python -m"
    monkeypatch.delitem(sys.modules, "depot_models", raising=False)
    with sqlite3.connect("depot.db") as connection:
        for name in ("crate", "barrel"):
            connection.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, public_id VARCHAR(30))")
        connection.execute("INSERT INTO crate VALUES (77777, 'clicrate_000000000one')")

    options = ["--models", "depot_models:Base", *(["--url", "sqlite:///depot.db"] if url else [])]
    result = run("inspect", id, *options)

    assert (result.exit_code, result.stdout.splitlines()[-1]) == (status, line)
    assert result.stdout.count("\nmodel ") == 1
    assert "77777" not in result.stdout
    assert run("inspect", id, "--format", "NanoId(prefix='other')", *options).exit_code == 1


SEVERAL = """
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy_public_id import PublicIdMixin

class Base(DeclarativeBase): ...

class Tin(PublicIdMixin, Base):
    __tablename__ = "tin"

class Jar(PublicIdMixin, Base):
    __tablename__ = "jar"
"""


def test_inspect_with_several_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If several models can have the id, the command succeeds if a row of one of them has it."""
    (tmp_path / "larder_models.py").write_text(SEVERAL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "larder_models", raising=False)
    with sqlite3.connect("larder.db") as connection:
        for name in ("tin", "jar"):
            connection.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, public_id VARCHAR(12))")
        connection.execute("INSERT INTO jar VALUES (1, 'izkpm55j334u')")
    options = ["--models", "larder_models:Base", "--url", "sqlite:///larder.db"]

    found, missing = (run("inspect", id, *options) for id in ("izkpm55j334u", "izkpm55j334v"))

    assert (found.exit_code, missing.exit_code) == (0, 1)
    assert "Jar, jar.public_id: one row" in found.stdout
    assert "Tin, tin.public_id: no row" in found.stdout


# --- budget and templates


@pytest.mark.parametrize(
    ("format", "line"),
    [("NanoId(12)", "7,654,321 "), ("NanoId(1, alphabet='a')", ""), ("NanoId(200, alphabet=BASE62)", ""), ("Ulid", "")],
)
def test_budget(format: str, line: str) -> None:
    """``budget`` has a line for the given number of ids, and works for formats with very few or very many ids."""
    result = run("budget", format, "--ids", 7_654_321)

    assert result.exit_code == 0
    assert line in result.stdout
    assert ("years" in result.stdout) == ("Ulid" not in format)


@pytest.mark.parametrize(("options", "rate"), [([], 1_000), (["--per-hour", "50"], 50), (["--per-hour", "0.5"], 0.5)])
def test_budget_in_years(options: list[str], rate: float) -> None:
    """The last column is the time until so many ids are issued, at the given rate."""
    lines = run("budget", "--ids", 10**9, *options).stdout.splitlines()

    assert lines[1].endswith(f"years at {rate:,g} an hour")
    (years,) = [line.split()[-1] for line in lines if line.startswith("1,000,000,000 ")]
    assert years == f"{10**9 / rate / (24 * 365.25):,.1f}"


@pytest.mark.parametrize("names", [[], ["generic"], ["async"]])
def test_template(names: list[str]) -> None:
    """The absolute path of the template is printed, and Alembic finds the files that it needs there."""
    folder = Path(run("template", *names).stdout.removesuffix("\n"))

    assert folder.is_absolute()
    assert {"alembic.ini.mako", "env.py", "script.py.mako"} <= {path.name for path in folder.iterdir()}


# --- audit


def test_audit_with_findings(engine: Engine, new_invoices: NewInvoices) -> None:
    """``audit`` shows problems and remedies, as text or as JSON with the URL; the exit status is 1."""
    new_invoices(rows=[None] * 2, nullable=True)

    result = run("audit", url(engine), "--table", NAME)
    short = run("audit", url(engine), "--table", NAME, "--no-remedies")
    as_json = run("audit", url(engine), "--table", NAME, "--output", "json")
    report = json.loads(as_json.stdout)

    assert [each.exit_code for each in (result, short, as_json)] == [1] * 3
    assert "missing-ids       2 rows have no id" in result.stdout
    assert f"public-id backfill {NAME}" in result.stdout
    assert "1 error, 1 warning\n" in result.stderr
    assert "backfill" not in short.stdout
    assert {finding["problem"] for finding in report["findings"]} == {"missing-ids", "nullable"}
    assert report["counts"] == {"tables": 1, "without_column": 0, "without_default": 1}
    assert [table["name"] for table in report["tables"]] == [NAME]
    assert report["url"].startswith(engine.name)
    assert all(finding["remedy"] for finding in report["findings"])
    without = json.loads(run("audit", url(engine), "--table", NAME, "--json", "--no-remedies").stdout)
    assert [finding["remedy"] for finding in without["findings"]] == [None, None]


@on("sqlite")
@pytest.mark.parametrize(
    ("format", "status", "words"),
    [
        (f"{NAME}=NanoId()", 0, "nothing is wrong"),
        (f" {NAME} = NanoId() ", 0, "nothing is wrong"),
        (f"{NAME}=NanoId(length=8)", 1, "malformed-ids"),
        ("NanoId()", 2, "names no table; write TABLE=FORMAT"),
    ],
)
def test_audit_with_a_format(engine: Engine, new_invoices: NewInvoices, format: str, status: int, words: str) -> None:
    """``--table-format`` sets the format of a table; without a table, it is refused."""
    new_invoices()

    result = run("audit", url(engine), "--table-format", format)

    assert result.exit_code == status
    assert words in (result.stderr if status == 2 else result.stdout)


def test_audit_shows_a_remedy_once(engine: Engine, new_invoices: NewInvoices) -> None:
    """A remedy that fixes several problems is shown once, below the last of these problems."""
    new_invoices(rows=[], nullable=True, index=False)
    remedy = "public-id contract " if engine.name == "sqlite" else "-- build the unique index"

    shown = run("audit", url(engine), "--table", NAME).stdout

    assert shown.index("unique-missing") < shown.index("nullable") < shown.index(remedy)
    assert shown.count(remedy) == 1


def test_audit_counts_tables(engine: Engine, new_invoices: NewInvoices, create: Callable[[MetaData], None]) -> None:
    """Tables without public ids are counted, and so are those without a server default."""
    new_invoices(rows=[])
    metadata = MetaData()
    for name in ("plain", "simple"):
        Table(name, metadata, Column("id", Integer, primary_key=True))
    create(metadata)

    result = run("audit", url(engine))
    listed = run("audit", url(engine), "--defaults")

    assert (result.exit_code, listed.exit_code) == (0, 0)
    effect = "programs that leave the column out cannot insert, or insert NULL"
    assert result.stdout.splitlines() == [
        f"{NAME}: no ids; nothing is wrong",
        "2 tables without public_id",
        f"  info     default-missing   the database generates no ids in 1 table: {effect}; --defaults lists them",
    ]
    assert result.stderr == "public_id in 1 of 3 tables: nothing is wrong\n"
    assert listed.stdout.splitlines() == [
        f"{NAME}: no ids",
        f"  info     default-missing   the database generates no ids: {effect}",
        "2 tables without public_id",
    ]
    assert listed.stdout.count("default-missing") == 1


PARCELS = """
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy_public_id import NanoId, PublicIdMixin, public_id_column

class Base(DeclarativeBase): ...

class Parcel(PublicIdMixin, Base):
    __tablename__ = "cli_parcel"
    __public_id__ = NanoId(prefix="clip")
    label = public_id_column(NanoId(prefix="clil"))
"""


def test_audit_of_two_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each column of ids has a line; what is wrong with the key is below the first one, and the table counts once."""
    (tmp_path / "parcel_models.py").write_text(PARCELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "parcel_models", raising=False)
    with sqlite3.connect("parcels.db") as connection:
        ids = "public_id varchar(17) NOT NULL UNIQUE, label varchar(17) NOT NULL UNIQUE"
        connection.execute(f"CREATE TABLE cli_parcel (id INTEGER PRIMARY KEY, {ids})")
        connection.execute("INSERT INTO cli_parcel VALUES (5, 'clip_izkpm55j334u', 'clil_izkpm55j334u')")

    result = run("audit", "sqlite:///parcels.db", "--models", "parcel_models:Base", "--cluster", "cli_parcel=6-9")

    lines = [" ".join(line.split()[:3]) for line in result.stdout.splitlines()]
    assert lines == [
        "cli_parcel.public_id: 1 id",
        "warning keys-outside there",
        "cli_parcel.label: 1 id",
        "info default-missing the",
    ]
    assert " generates no ids in 1 table: " in result.stdout
    assert result.stderr == "public ids in 1 of 1 table: 1 warning\n"


@on("sqlite")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["audit", "--table", "invoces"], "there is no table 'invoces'; there are: invoice"),
        (["audit", "--schema", "typo"], "there is no schema 'typo'; there are: main"),
        (["backfill", "nothing"], "sqlite:"),
        (["backfill", NAME, "--column", "slug"], "invoice has no column 'slug'; add it first, with "),
    ],
)
def test_names_of_nothing(engine: Engine, new_invoices: NewInvoices, arguments: list[str], error: str) -> None:
    """A schema, table or column that does not exist is reported in one line, and the exit status is 2."""
    new_invoices()

    result = run(arguments[0], url(engine), *arguments[1:])

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith(f"public-id: {error}")


SECRET = "s3cret-word"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"postgresql://user:{SECRET}@host:port/x", "this is not the URL of a database; write postgresql+psycopg://"),
        (f"nosuch://user:{SECRET}@host/x", "SQLAlchemy has no dialect 'nosuch'"),
        (f"mssql://user:{SECRET}@host/x", "the driver pyodbc is not installed"),
        (f"postgresql+asyncpg://user:{SECRET}@host/x", "is an asynchronous driver"),
        ("sqlite:////nowhere/x.db", "there is no file '/nowhere/x.db'"),
        (f"postgresql+psycopg://user:{SECRET}@127.0.0.1:1/x", "postgresql+psycopg://user:***@127.0.0.1:1/x: "),
        (f"postgresql+psycopg://user@127.0.0.1:1/x?password={SECRET}", "postgresql+psycopg://user@127.0.0.1:1/x: "),
        (f"mysql+pymysql://user:{SECRET}@127.0.0.1:1/x?nonsense={SECRET}", "user:***@127.0.0.1:1/x: "),
        # the message of the driver repeats the value of sslmode
        (f"postgresql+psycopg://user@127.0.0.1:1/x?sslpassword={SECRET}&sslmode={SECRET}", "invalid sslmode value"),
    ],
)
def test_databases_that_cannot_be_used(text: str, expected: str) -> None:
    """An unusable URL is reported in one line, without its password."""
    if "asyncpg" in text:
        pytest.importorskip("asyncpg")
    result = run("audit", text)

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert expected in result.stderr
    assert SECRET not in result.stderr


def test_secrets_in_an_error_of_the_library() -> None:
    """An error of this library that repeats a part of the URL is shown without the passwords in it."""
    url = make_url(f"postgresql://user:{SECRET}@host/x?sslpassword=other-{SECRET}")

    problem = problem_of(ConfigurationError(f"cannot use {SECRET}, nor other-{SECRET}; pass allow_lock=True"), url)

    assert problem.message == "cannot use ***, nor other-***; pass --allow-lock"


@on("sqlite")
def test_file_as_a_uri(engine: Engine, new_invoices: NewInvoices) -> None:
    """A file of SQLite may be a URI, such as one that opens it for reading only."""
    new_invoices()

    assert run("audit", f"sqlite:///file:{engine.url.database}?mode=ro&uri=true").exit_code == 0


@pytest.mark.parametrize(("table", "status"), [(NAME, 0), ("nothing", 2)])
def test_connections_are_closed(
    engine: Engine, new_invoices: NewInvoices, listen: Any, table: str, status: int
) -> None:
    """A command closes its connections, also after an error."""
    new_invoices()
    disposed: list[Engine] = []
    listen(Engine, "engine_disposed", disposed.append)

    assert run("audit", url(engine), "--table", table).exit_code == status
    assert [each.url for each in disposed] == [engine.url]


# --- backfill


def test_backfill(engine: Engine, new_invoices: NewInvoices) -> None:
    """All rows get an id; the result goes to stdout, progress to stderr; the log handler is removed at the end."""
    handlers = [*logging.getLogger("sqlalchemy_public_id").handlers]
    table = new_invoices(rows=[None] * 2_500, nullable=True, type=String(12))

    result = run("backfill", url(engine), NAME)

    assert result.exit_code == 0
    assert filled(engine, table) == 2_500
    assert re.fullmatch(r"2,500 rows of invoice got an id in \d+\.\d s\n", result.stdout)
    assert re.search(r"^invoice: [\d,]+ rows, [\d,]+ rows/s", result.stderr)
    assert logging.getLogger("sqlalchemy_public_id").handlers == handlers


@on("sqlite")
def test_backfill_with_a_format(engine: Engine, new_invoices: NewInvoices) -> None:
    """The ids have the given format; without one, a column that was made for another format is refused."""
    table = new_invoices(rows=[None] * 3, nullable=True)

    refused = run("backfill", url(engine), NAME)
    done = run("backfill", url(engine), NAME, "--format", "NanoId(prefix='cus')")

    assert (refused.exit_code, done.exit_code) == (2, 0)
    assert "invoice.public_id has 16 characters, but ids of NanoId() have 12" in refused.stderr
    with engine.connect() as connection:
        assert all(map(NanoId(prefix="cus").is_valid, connection.scalars(sql_select(table.c.public_id))))


# --- the command itself

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "command-line.md"
SESSIONS = re.findall(
    r"^```text\n\$ public-id ((?:inspect|budget) .*)\n((?:.*\n)*?)```$", GUIDE.read_text(), re.MULTILINE
)


@pytest.mark.parametrize(("arguments", "expected"), SESSIONS)
def test_the_guide(arguments: str, expected: str) -> None:
    """The command prints what the guide shows."""
    lines = run(*shlex.split(arguments)).stdout.splitlines()

    assert [line.rstrip() for line in lines] == expected.splitlines()


def test_options_of_an_operation() -> None:
    """Each option is a field of one dataclass with its type, and an option of the command with its text and default."""
    described, hints = describe_options(), {}
    for holder in (PublicIdColumn, *HOLDERS):
        types = get_type_hints(holder)
        assert not hints.keys() & types.keys()
        hints |= {name: types[name] for name in defaults_of(holder)}
    shown = {option.name: option for option in public_id.commands["add"].params if isinstance(option, click.Option)}

    assert described.keys() == hints.keys()
    assert {name for name, hint in hints.items() if described[name].type not in (hint, hint | None)} == {"format"}
    assert hints.keys() - shown.keys() == {"wait_while", "online"}
    for name in hints.keys() & shown.keys() - {"dry_run"}:  # whose text in Alembic names an error
        more = " A pattern, such as 'tenant_*', means each schema that matches." if name == "schema" else ""
        assert shown[name].help == described[name].text.replace("``", "'") + more
        assert tuple(getattr(shown[name].type, "choices", ())) == choices_of(described[name].type)
    for name, default in {**defaults_of(Consent), **defaults_of(Timeouts), **defaults_of(Pace)}.items():
        assert name == "wait_while" or shown[name].default == default


@on("sqlite")
@pytest.mark.parametrize(("share", "status"), [("0", 0), ("0.5", 0), ("-1", 2)])
def test_pause(engine: Engine, new_invoices: NewInvoices, share: str, status: int) -> None:
    """``--pause`` is a share of a batch's duration, from 0 for none."""
    new_invoices(rows=[None], nullable=True)

    command = ("backfill", url(engine), NAME, "--format", "NanoId()", "--pause", share)
    assert run(*command).exit_code == status
    assert "--pause SHARE" in run("backfill", "--help").stdout


@pytest.mark.parametrize("command", sorted(public_id.commands))
def test_help(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command describes itself and its options, and its help ends with command lines that it accepts."""
    monkeypatch.setenv("DATABASE_URL", "sqlite://")
    models: Any = ModuleType("shop.models")
    models.Base = declarative_base()
    Table("invoice", models.Base.metadata)
    monkeypatch.setitem(sys.modules, "shop.models", models)
    result = run(command, "--help")
    shown, _, text = result.stdout.partition("Examples:\n")
    lines = re.findall(rf"public-id {command}\b(.*?)(?:\)\"| <|$)", text, re.MULTILINE)

    assert result.exit_code == 0
    assert f"public-id {command} [OPTIONS]" in shown
    options = [param for param in public_id.commands[command].params if isinstance(param, click.Option)]
    assert [param.name for param in options if not param.help] == []
    assert "The exit status is 0 for success, 1 if" in " ".join(shown.split())
    assert "\\b" not in shown
    assert lines
    for line in lines:
        public_id.commands[command].make_context(command, shlex.split(line))


def test_completion(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Completion in a shell completes the names of commands."""
    (script,) = entry_points(group="console_scripts", name="public-id")
    monkeypatch.setattr(sys, "argv", ["public-id"])

    def ask(**words: str) -> str:
        for name, value in words.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            script.load()()
        assert ended.value.code == 0
        return capsys.readouterr().out

    names = ask(_PUBLIC_ID_COMPLETE="fish_complete", COMP_WORDS="public-id bu", COMP_CWORD="bu")

    assert "public-id" in ask(_PUBLIC_ID_COMPLETE="fish_source")
    assert "budget" in names
    assert "audit" not in names


# --- as a process


@pytest.mark.slow
def test_as_a_module() -> None:
    """``python -m sqlalchemy_public_id.cli`` runs the command, which ends without a traceback if its pipe is closed."""
    command = f"{sys.executable} -W error -m sqlalchemy_public_id.cli new -n 200000 | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)

    assert NanoId().is_valid(done.stdout.strip())
    assert done.stderr == ""


SLOWLY = ("--batch-seconds", "0.0001", "--pause", "50")
"""Batches of a few rows, with a pause between them."""


@pytest.mark.slow
@on("sqlite", "postgresql")
@pytest.mark.parametrize("name", ["backfill", "add"])
def test_interrupt(engine: Engine, new_invoices: NewInvoices, name: str) -> None:
    """Ctrl-C ends the command after the current batch, before a later phase; the same command continues from there."""
    table = new_invoices(rows=[None] * 15_000, nullable=True, type=String(12))
    command = [sys.executable, "-m", "sqlalchemy_public_id.cli", name, url(engine), NAME]
    started = subprocess.Popen([*command, *SLOWLY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    while not started.stderr.readline().startswith(f"{NAME}: "):
        assert started.poll() is None  # wait until the first batch is done
    started.send_signal(signal.SIGINT)
    _, stderr = started.communicate(timeout=60)

    assert started.returncode == 130
    assert "finishing the batch" in stderr
    assert "run the same command again to continue" in stderr
    assert 0 < filled(engine, table) < 15_000
    assert run(name, url(engine), NAME).exit_code == 0
    assert filled(engine, table) == 15_000


@pytest.mark.slow
@on("sqlite")
@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN], ids=["foreground", "background"])
def test_interrupt_twice(engine: Engine, new_invoices: NewInvoices, before: signal.Handlers) -> None:
    """The second Ctrl-C ends a backfill at once, without a traceback, even if the shell made the process ignore it."""
    new_invoices(rows=[None] * 15_000, nullable=True, type=String(12))
    command = [sys.executable, "-m", "sqlalchemy_public_id.cli", "backfill", url(engine), NAME, "--pause", "5000"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, before),
    ) as started:
        assert started.stderr is not None
        started.stderr.readline()  # the first batch is done, and a long pause follows
        started.send_signal(signal.SIGINT)
        assert "Ctrl-C again stops at once" in started.stderr.readline()
        started.send_signal(signal.SIGINT)
        _, stderr = started.communicate(timeout=60)

    assert started.returncode == 130
    assert stderr == "interrupted; run the same command again to continue\n"


WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from sqlalchemy_public_id.cli import main
main(sys.argv[2:])
"""


@pytest.mark.slow
def test_missing_extra() -> None:
    """Without Click, the command says how to install it."""
    command = [sys.executable, "-c", WITHOUT, "click", "new"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert done.stderr == "public-id: click is not installed; run: pip install 'sqlalchemy-public-id[cli]'\n"


@pytest.mark.slow
def test_nothing_is_imported_that_is_not_needed() -> None:
    """The drivers and Alembic are imported only by the commands that need them."""
    program = (
        "import sys\nfrom sqlalchemy_public_id.cli.commands import public_id\n"
        "unwanted = {'numpy', 'psycopg', 'pymysql', 'alembic'}\n"
        "print(sorted(unwanted & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_unknown_command() -> None:
    """The error names all commands, and a similar one; an unknown option is another error."""
    for name in ("generate", "neu"):
        result = run(name)
        assert result.exit_code == 2
        assert re.search(rf"No such command '{name}'.* The commands are add, audit, .*, new, plan, ", result.stderr)
        assert re.match(r"Usage: public-id .*\nTry 'public-id .*--help'", result.stderr)
    assert "commands are" not in run("--nothing").stderr
