"""The wheel with several versions of Alembic: importing it emits no warning, and migrations run both ways."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

pytestmark = pytest.mark.backend

ROOT = Path(__file__).parents[2]

NEWEST = "newest"
"""The version that is installed in the environment of these tests."""
OLD = ["1.13.3", "1.17.2"]
"""Versions without plugins."""
WITH_PLUGINS = ["1.18.0", "1.19.2", "1.20.0", NEWEST]
"""The first three iterate over the module of a plugin; the last one does not."""

FIRST = [
    "import alembic",
    "from alembic import op",
    "import alembic.command",
    "import sqlalchemy_public_id",
    "import sqlalchemy_public_id.alembic",
    "import sqlalchemy_public_id.alembic.revisions",
    "import sqlalchemy_public_id._alembic_plugin",
]
"""Imports that a program may begin with."""

MIGRATE = """
import sys
from pathlib import Path
from alembic import command
from alembic.config import Config
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, text
import sqlalchemy_public_id
from sqlalchemy_public_id import NanoId, PublicIdType

with_import, folder, url = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
format = NanoId(prefix="cus")

def tables(public_ids):
    metadata = MetaData()
    table = Table("customer", metadata, Column("id", Integer, primary_key=True))
    if public_ids:
        table.append_column(
            Column("public_id", PublicIdType(format), default=format.generate, unique=True, index=True, nullable=False)
        )
    return metadata

config = Config(folder / "alembic.ini", stdout=open(folder / "output", "w"))
templates = Path(sqlalchemy_public_id.__file__).parent / "alembic_templates"
command.init(config, str(folder / "migrations"), template=str(templates / "generic"))
env = folder / "migrations" / "env.py"
told = env.read_text().replace("target_metadata = None", "target_metadata = config.attributes['metadata']")
if with_import == "yes":
    told = told.replace("# import sqlalchemy_public_id.alembic", "import sqlalchemy_public_id.alembic")
env.write_text(told)
config.set_main_option("sqlalchemy.url", url)

def migrate(metadata):
    config.attributes["metadata"] = metadata
    script = command.revision(config, "next", autogenerate=True)
    command.upgrade(config, "head")
    return Path(script.path).read_text()

migrate(tables(False))
engine = create_engine(url)
with engine.begin() as connection:
    connection.execute(text("INSERT INTO customer (id) VALUES (1), (2), (3)"))
written = migrate(tables(True))
assert "op.add_public_id('customer', format=NanoId(prefix='cus'), " in written, written
command.check(config)
command.downgrade(config, "-1")
command.upgrade(config, "head")
command.check(config)
with engine.connect() as connection:
    ids = connection.scalars(text("SELECT public_id FROM customer")).all()
assert len(set(ids)) == 3 and all(map(format.is_valid, ids))
engine.dispose()
print("there and back")
"""


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the contents of the wheel, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("install", "--no-deps", f"--target={folder}", str(ROOT))
    return folder


@pytest.fixture(scope="module", params=[*OLD, *WITH_PLUGINS])
def alembic(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path | None]:
    """Return a version of Alembic, and the folder it is installed in."""
    version = str(request.param)
    if version == NEWEST:
        return version, None
    folder = tmp_path_factory.mktemp(f"alembic-{version}")
    pip("install", "--no-deps", f"--target={folder}", f"alembic=={version}")
    return version, folder


def run(wheel: Path, alembic: tuple[str, Path | None], program: str, *arguments: str) -> str:
    """Return the output of *program*, which runs with warnings as errors."""
    version, folder = alembic
    paths = [str(path) for path in (wheel, folder) if path is not None]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"Alembic {version}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_wheel_and_alembic_are_those_to_be_tested(wheel: Path, alembic: tuple[str, Path | None]) -> None:
    """The programs of these tests use the wheel with its entry point, and the chosen version of Alembic."""
    program = (
        "import alembic, sqlalchemy_public_id, importlib.metadata as metadata;"
        "(found,) = metadata.entry_points(group='alembic.plugins');"
        "print(alembic.__version__, alembic.__file__, sqlalchemy_public_id.__file__, found.dist.locate_file(''))"
    )
    version, where, library, distribution = run(wheel, alembic, program).split()

    assert alembic[0] in (version, NEWEST)
    assert Path(where).is_relative_to(alembic[1] or sys.prefix)
    assert Path(library).is_relative_to(wheel)
    assert Path(distribution) == wheel


@pytest.mark.parametrize("first", FIRST)
def test_import(wheel: Path, alembic: tuple[str, Path | None], first: str) -> None:
    """Alembic works without a warning, whatever is imported first; if it has plugins, ``op`` has our operations."""
    name = "add_column" if alembic[0] in OLD else "add_public_id"

    assert run(wheel, alembic, f"{first}\nimport alembic.command\nfrom alembic import op\nop.{name}") == ""


def test_there_and_back(wheel: Path, alembic: tuple[str, Path | None], tmp_path: Path, engine: Engine) -> None:
    """A model gains a public id; ``alembic check`` is clean after an upgrade, and after a downgrade and upgrade."""
    with_import = "yes" if alembic[0] in OLD else "no"
    url = engine.url.render_as_string(hide_password=False)
    try:
        assert "there and back" in run(wheel, alembic, MIGRATE, with_import, str(tmp_path), url)
    finally:
        with engine.begin() as connection:
            for table in ("customer", "alembic_version"):
                connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
