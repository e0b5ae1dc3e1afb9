"""Flask-Migrate: the commands of its documentation take a table with rows to public ids, and back."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from neighbours.test_pytest_alembic import run

APPLICATION = """
from flask import Flask
from flask_migrate import Migrate
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy_public_id import NanoId, PublicIdColumnMixin

class Base(DeclarativeBase): ...

db = SQLAlchemy(model_class=Base)

class Customer({mixin}db.Model):
    __tablename__ = "customer"
    __public_id__ = NanoId(prefix="cus")
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]

app = Flask(__name__)
app.config["SQLALCHEMY_DATABASE_URI"] = "sqlite:///{folder}/shop.db"
db.init_app(app)
Migrate(app, db)
"""


COMMANDS = """
import sys
import flask_migrate
from shop import app

with app.app_context():
    for command in sys.argv[1:]:
        getattr(flask_migrate, command)()
"""


def flask_db(folder: Path, *commands: str) -> str:
    """Run commands of ``flask db`` in one process, and return what they print."""
    (folder / "commands.py").write_text(COMMANDS)
    return run(folder, "commands", *commands)


def query(folder: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "shop.db")) as connection, connection:
        return connection.execute(statement).fetchall()


def test_project(tmp_path: Path) -> None:
    """``db migrate`` writes the operations, ``db upgrade`` fills the rows, and ``db check`` finds nothing then."""
    shop = tmp_path / "shop.py"
    shop.write_text(APPLICATION.format(mixin="", folder=tmp_path))
    flask_db(tmp_path, "init", "migrate", "upgrade")
    query(tmp_path, "INSERT INTO customer (name) VALUES ('Ada'), ('Grace')")

    shop.write_text(APPLICATION.format(mixin="PublicIdColumnMixin, ", folder=tmp_path))
    printed = flask_db(tmp_path, "migrate", "upgrade", "check")

    assert "No new upgrade operations detected" in printed
    assert [str(id)[:4] for (id,) in query(tmp_path, "SELECT public_id FROM customer")] == ["cus_", "cus_"]
    flask_db(tmp_path, "downgrade")
    assert query(tmp_path, "SELECT * FROM customer ORDER BY id") == [(1, "Ada"), (2, "Grace")]


def test_models_argument(tmp_path: Path) -> None:
    """``public-id`` takes the base of Flask-SQLAlchemy as ``shop:db.Model``, and for ``shop:db`` names it."""
    (tmp_path / "shop.py").write_text(APPLICATION.format(mixin="PublicIdColumnMixin, ", folder=tmp_path))
    command = [sys.executable, "-m", "sqlalchemy_public_id.cli", "spec"]

    spec = subprocess.run([*command, "shop:db.Model"], cwd=tmp_path, capture_output=True, text=True, check=True)
    refused = subprocess.run([*command, "shop:db"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert '"Customer"' in spec.stdout
    assert refused.returncode == 2
    assert "which is no declarative base; pass its attribute Model" in refused.stderr
