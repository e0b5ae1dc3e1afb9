"""The templates for ``alembic init``, used from the command line as their users do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Engine, text
from sqlalchemy.engine import URL
from support.projects import TEMPLATES, Project
from support.shops import old_shop, shop

from conftest import url_of

pytestmark = pytest.mark.backend

SUPPORT = Path(__file__).parents[1] / "support"

DRIVERS = {"sqlite": "aiosqlite", "postgresql": "asyncpg", "mysql": "aiomysql", "mariadb": "asyncmy"}

LOCK_TIMEOUT = {
    "sqlite": ("PRAGMA foreign_keys", "0"),
    "postgresql": ("SHOW lock_timeout", "5s"),
    "mysql": ("SELECT @@lock_wait_timeout", "5"),
    "mariadb": ("SELECT @@lock_wait_timeout", "5"),
}
"""A query on a connection of env.py, and its expected result."""


def alembic(folder: Path, *arguments: str) -> str:
    """Run the command in *folder* with warnings as errors, and return what it prints."""
    words = [sys.executable, "-W", "error", "-m", "alembic.config", *arguments]
    paths = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths.rstrip(os.pathsep)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def edit(file: Path, *changes: tuple[str, str]) -> None:
    """Make the *changes* that the template asks its user to make."""
    told = file.read_text()
    for old, new in changes:
        assert old in told
        told = told.replace(old, new)
    file.write_text(told)


def with_driver(url: URL, kind: str, database: str) -> URL:
    """Return the URL of the same database with a synchronous or an asynchronous driver."""
    return url.set(drivername=url_of(database, DRIVERS[database]).drivername) if kind == "async" else url


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_there_and_back(kind: str, engine: Engine, new_project: Callable[..., Project], database: str) -> None:
    """With both kinds of drivers on each database, a table gains a public id, loses it, and gains it again."""
    project = new_project(with_driver(engine.url, kind, database))
    project.migrate(old_shop())
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO customer (name) VALUES ('Ada'), ('Grace')"))
    project.migrate(shop())
    assert project.check(shop()) is None

    project.downgrade()
    project.upgrade()
    assert project.check(shop()) is None


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "database"), [("sync", "sqlite"), ("async", "postgresql")], indirect=["database"])
def test_from_the_command_line(
    kind: str, tmp_path: Path, engine: Engine, new_project: Callable[..., Project], database: str
) -> None:
    """The commands in the README of the template lead from ``alembic init`` to public ids."""
    new_project()  # for its teardown, which empties the database
    url = with_driver(engine.url, kind, database)
    folder = tmp_path / "work"
    folder.mkdir()
    alembic(folder, "init", "-t", str(TEMPLATES / "generic"), "migrations")
    edit(folder / "alembic.ini", ("driver://user:password@localhost/database", url.render_as_string(False)))
    env = folder / "migrations" / "env.py"
    edit(
        env,
        ("target_metadata = None", "import shops\ntarget_metadata = shops.old_shop()"),
    )
    alembic(folder, "revision", "--autogenerate", "-m", "shop")
    alembic(folder, "upgrade", "head")
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO customer (name) VALUES ('Ada'), ('Grace')"))
    edit(env, ("shops.old_shop()", "shops.shop()"))
    alembic(folder, "revision", "--autogenerate", "-m", "ids")
    alembic(folder, "upgrade", "head")
    assert "No new upgrade operations detected." in alembic(folder, "check")

    alembic(folder, "downgrade", "-1")
    alembic(folder, "upgrade", "head")
    assert "No new upgrade operations detected." in alembic(folder, "check")
    with engine.connect() as connection:
        assert len(set(connection.scalars(text("SELECT public_id FROM customer")))) == 2


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_settings_of_connections(kind: str, engine: Engine, new_project: Callable[..., Project], database: str) -> None:
    """Connections of env.py have a short lock timeout; on SQLite, foreign keys are off."""
    project = new_project(with_driver(engine.url, kind, database))
    question, answer = LOCK_TIMEOUT[database]
    project.write(f"assert str(op.get_bind().exec_driver_sql({question!r}).scalar()) == {answer!r}")

    project.config.attributes["metadata"] = old_shop()
    project.upgrade()


def test_each_migration_has_its_transaction(new_project: Callable[..., Project], database: str) -> None:
    """If a migration fails, the ones before it are committed, and their version is stored."""
    project = new_project()
    project.migrate(old_shop())
    project.write("op.add_public_id('customer')", "op.drop_public_id('customer')")
    project.write("raise RuntimeError('as it happens')")
    with pytest.raises(RuntimeError, match="as it happens"):
        project.upgrade()

    assert project.differences(shop()) == []
    project.downgrade()
    assert project.differences(old_shop()) == []


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_offline(kind: str, engine: Engine, new_project: Callable[..., Project], database: str) -> None:
    """``--sql`` writes the statements, and needs no connection."""
    project = new_project(with_driver(engine.url, kind, database))
    project.revision(old_shop())

    command.upgrade(project.config, "head", sql=True)

    assert "CREATE TABLE customer" in project.output.getvalue()


def test_template_has_what_alembic_takes() -> None:
    """The template is complete, and has a README, without which Alembic does not list it."""
    names = {path.name for path in (TEMPLATES / "generic").iterdir()}
    assert names - {"__pycache__"} == {"README", "alembic.ini.mako", "env.py", "script.py.mako"}
