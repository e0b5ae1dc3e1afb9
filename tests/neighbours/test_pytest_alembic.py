"""pytest-alembic: its tests pass on a project whose migrations were generated with this library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TEMPLATE = Path(__file__).parents[2] / "alembic_templates" / "generic"
MODELS = """
from sqlalchemy.orm import DeclarativeBase, Mapped
from sqlalchemy_public_id import PublicIdMixin

class Base(DeclarativeBase): ...

class Customer({mixin}Base):
    __tablename__ = "customer"
    {key}
    name: Mapped[str]
"""
TESTS = "from pytest_alembic.tests import *\n"


def run(folder: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_project(tmp_path: Path) -> None:
    """After a table has gained public ids, the tests of upgrades, downgrades and the comparison with models pass."""
    key = "id: Mapped[int] = __import__('sqlalchemy').orm.mapped_column(primary_key=True)"
    (tmp_path / "models.py").write_text(MODELS.format(mixin="", key=key))
    run(tmp_path, "alembic", "init", "-t", str(TEMPLATE), "migrations")
    settings = tmp_path / "alembic.ini"
    settings.write_text(
        settings.read_text().replace("driver://user:password@localhost/database", "sqlite:///project.db")
    )
    environment = tmp_path / "migrations" / "env.py"
    environment.write_text(
        environment.read_text().replace(
            "target_metadata = None", "from models import Base\ntarget_metadata = Base.metadata"
        )
    )
    run(tmp_path, "alembic", "revision", "--autogenerate", "-m", "customers")
    run(tmp_path, "alembic", "upgrade", "head")
    (tmp_path / "models.py").write_text(MODELS.format(mixin="PublicIdMixin, ", key=""))
    run(tmp_path, "alembic", "revision", "--autogenerate", "-m", "public ids")
    (tmp_path / "test_migrations.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(
        "import pytest\nfrom sqlalchemy import create_engine\n\n"
        "@pytest.fixture\ndef alembic_engine(tmp_path):\n"
        "    return create_engine(f'sqlite:///{tmp_path}/migrated.db')\n"
    )
    assert "4 passed" in run(tmp_path, "pytest", "-q", "-p", "no:cacheprovider")
