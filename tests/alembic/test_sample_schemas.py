"""Pagila, Sakila and employees get public ids on every table that can have them; nothing else in them changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest
from sqlalchemy import Column, Engine, Index, MetaData
from support import samples
from support.clients import run_script
from support.marks import on
from support.projects import Project, downgrade_of, upgrade_of

from sqlalchemy_public_id import NanoId, PublicIdType, audit
from sqlalchemy_public_id.errors import MigrationRefused
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import plan_for
from sqlalchemy_public_id.migrations.operation import examine

pytestmark = [
    pytest.mark.backend,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Did not recognize type 'geometry'"),
    pytest.mark.filterwarnings("ignore:Cannot correctly sort tables"),  # stores have managers, managers have stores
]

FORMATS = {"customer": NanoId(prefix="cus"), "film": NanoId(prefix="film"), "dept_emp": NanoId(length=16)}
OPTIONS = {"needs-lock": "allow_lock=True", "update-triggers": "update_triggers={!r}"}
"""Code of an obstacle → the option that its remedy names."""
ADD = ["expand", "backfill", "contract"]


@pytest.fixture
def new_sample(new_project: Callable[..., Project], engine: Engine) -> Iterator[Callable[[str], Project]]:
    """Return a function that creates a project whose database is a sample schema with rows."""

    def make(name: str) -> Project:
        with engine.begin() as connection:
            samples.unload(connection)  # tables of an earlier run
            samples.load(connection, name)
        with engine.begin() as connection:
            samples.fill(connection, reflected(engine))
        return new_project()

    yield make
    with engine.begin() as connection:
        samples.unload(connection)


def reflected(engine: Engine) -> MetaData:
    """Return the reflected schema of the database."""
    metadata = MetaData()
    metadata.reflect(engine, only=lambda name, _: name != "alembic_version")
    return metadata


def format_of(table: str) -> NanoId:
    return FORMATS.get(table, NanoId())


def with_public_ids(engine: Engine, but: str | None = None) -> MetaData:
    """Return the schema with a public id on every table, except those whose name begins with *but*."""
    metadata = reflected(engine)
    for table in metadata.tables.values():
        if but is None or not table.name.startswith(but):
            format = format_of(table.name)
            column = Column("public_id", PublicIdType(format), default=format.generate, nullable=False)
            table.append_column(column)
            Index(f"uq_{table.name}_public_id", column, unique=True)
    return metadata


def there_and_back(project: Project, engine: Engine, wanted: MetaData) -> dict[str, set[str]]:
    """Upgrade, insert as an old program does, and downgrade; return the tables that needed consent, by obstacle."""
    old = reflected(engine)
    with engine.connect() as connection:
        rows, views, catalog = (
            samples.read(connection, old),
            samples.read_views(connection),
            samples.catalog(connection),
        )
    chosen = {name: table for name, table in wanted.tables.items() if "public_id" in table.c}
    written = project.revision(wanted)
    assert len(upgrade_of(written)) == len(downgrade_of(written)) == len(chosen)

    consents = consent(project, chosen, "add_public_id", ADD)
    project.upgrade()
    assert project.check(wanted) is None
    with engine.connect() as connection:
        assert samples.read(connection, old) == rows
        assert samples.read_views(connection) == views
    assert_complete(engine, chosen)

    with engine.begin() as connection:
        samples.fill(connection, old, samples.ROWS, 1)
        rows = samples.read(connection, old)
        views = samples.read_views(connection)
    assert all(len(rows[name]) == samples.ROWS + 1 for name in chosen)
    assert_complete(engine, chosen)

    consent(project, chosen, "drop_public_id", ["drop"])
    project.downgrade()
    with engine.connect() as connection:
        assert samples.catalog(connection) == catalog
        assert samples.read(connection, old) == rows
        assert samples.read_views(connection) == views
    return consents


def consent(project: Project, tables: Iterable[str], operation: str, phases: Sequence[str]) -> dict[str, set[str]]:
    """Give each operation the options that its obstacles name; return the tables, by obstacle."""
    consents: dict[str, set[str]] = {}
    triggers = "skip" if project.engine.name == "postgresql" else "fire"
    for table in tables:
        target = PublicIdColumn.of(table, format=format_of(table))
        plan = plan_for(target, project.engine.dialect, online=True)
        with project.engine.connect() as connection:
            obstacles = examine(connection, plan, phases).obstacles
        for obstacle in obstacles:
            consents.setdefault(obstacle.code, set()).add(table)
            start = f"op.{operation}({table!r}"
            project.rewrite(start, f"{start}, {OPTIONS[obstacle.code].format(triggers)}")
    return consents


def assert_complete(engine: Engine, tables: Iterable[str]) -> None:
    """Assert that no id is missing, malformed or duplicated."""
    metadata = reflected(engine)
    with engine.connect() as connection:
        rows = samples.read(connection, metadata)
    for name in tables:
        place = [*metadata.tables[name].c.keys()].index("public_id")
        ids = [row[place] for row in rows[name]]
        assert len({*ids}) == len(ids) >= samples.ROWS, name
        assert all(format_of(name).is_valid(id_) for id_ in ids), name
    report = audit.run(engine, formats={name: format_of(name) for name in tables})
    assert [finding for finding in report.findings if finding.severity != "info"] == []


@on("postgresql")
def test_pagila(new_sample: Callable[[str], Project], engine: Engine) -> None:
    """All tables except the partitioned one are upgraded and downgraded; most have triggers that set last_update."""
    project = new_sample("pagila")
    with pytest.raises(MigrationRefused, match="payment is partitioned"):
        project.revision(with_public_ids(engine))
    assert not [*(project.folder / "versions").glob("*.py")]
    wanted = with_public_ids(engine, but="payment")

    consents = there_and_back(project, engine, wanted)
    assert consents == {"update-triggers": {*wanted.tables} - {name for name in wanted.tables if "payment" in name}}


@on("mysql", "mariadb")
def test_sakila(new_sample: Callable[[str], Project], engine: Engine) -> None:
    """All tables are upgraded and downgraded, with ON UPDATE columns, triggers, FULLTEXT and SPATIAL indexes."""
    project = new_sample("sakila")

    consents = there_and_back(project, engine, with_public_ids(engine))
    assert consents == {"update-triggers": {"film"}, "needs-lock": {"address", "film_text"}}


@on("mysql", "mariadb")
def test_employees(new_sample: Callable[[str], Project], engine: Engine) -> None:
    """All tables are upgraded and downgraded, with keys of two and three columns."""
    project = new_sample("employees")

    assert there_and_back(project, engine, with_public_ids(engine)) == {}


@pytest.mark.parametrize(
    ("database", "name"),
    [("postgresql", "pagila"), ("mysql", "sakila"), ("mariadb", "sakila")],
    indirect=["database"],
)
def test_script(new_sample: Callable[[str], Project], engine: Engine, name: str) -> None:
    """The script of ``--sql`` adds the columns, and changes nothing else."""
    project, old = new_sample(name), reflected(engine)
    with engine.connect() as connection:
        rows, views = samples.read(connection, old), samples.read_views(connection)
    wanted = with_public_ids(engine, but="payment" if name == "pagila" else None)
    chosen = [name for name, table in wanted.tables.items() if "public_id" in table.c]
    project.revision(wanted)
    project.rewrite("op.add_public_id(", "op.expand_public_id(")
    consent(project, chosen, "expand_public_id", ["expand"])

    project.execute("DROP TABLE IF EXISTS alembic_version")  # the script creates it
    run_script(engine, project.script())

    tables = reflected(engine).tables
    assert all("public_id" in tables[name].c for name in chosen)
    with engine.connect() as connection:
        assert samples.read(connection, old) == rows
        assert samples.read_views(connection) == views
