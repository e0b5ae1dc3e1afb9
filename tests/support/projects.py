"""A user's project with migrations: created by ``alembic init``, and run by Alembic's commands."""

from __future__ import annotations

import ast
import io
from pathlib import Path
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Engine, MetaData, text
from sqlalchemy.engine import URL

TEMPLATES = Path(__file__).parents[2] / "alembic_templates"


class Project:
    """A folder with migrations for one database."""

    def __init__(self, folder: Path, engine: Engine, url: URL | None = None, template: str = "generic") -> None:
        self.engine = engine
        self.folder = folder / "migrations"
        self.output = io.StringIO()
        self.config = Config(folder / "alembic.ini", stdout=self.output)
        command.init(self.config, str(self.folder), template=str(TEMPLATES / template))
        self.config = Config(stdout=self.output, output_buffer=self.output)  # without the file, logging does not change
        self.config.set_main_option("script_location", str(self.folder))
        self.config.set_main_option("path_separator", "os")
        told = (url or engine.url).render_as_string(hide_password=False)
        self.config.set_main_option("sqlalchemy.url", told.replace("%", "%%"))
        self.configure()

    def configure(self, options: str = "", before: str = "") -> None:
        """Make env.py pass *options* to ``context.configure()``, and execute *before* at its beginning."""
        env = self.folder / "env.py"
        told = (TEMPLATES / "generic" / "env.py").read_text()
        told = told.replace("target_metadata = None", 'target_metadata = config.attributes["metadata"]')
        told = told.replace("target_metadata=target_metadata,", f"target_metadata=target_metadata, {options}")
        env.write_text(f"{before}\n{told}")

    def revision(self, metadata: MetaData, message: str = "next") -> str:
        """Return the text that ``alembic revision --autogenerate`` writes, of all files in order."""
        return "\n".join(self.files(metadata, message))

    def files(self, metadata: MetaData, message: str = "next") -> list[str]:
        """Return the files that ``alembic revision --autogenerate`` writes, in order."""
        self.config.attributes["metadata"] = metadata
        made = command.revision(self.config, message, autogenerate=True)
        scripts = made if isinstance(made, list) else [made]
        return [Path(script.path).read_text() for script in scripts if script]

    def write(self, upgrade: str, downgrade: str = "pass") -> None:
        """Write a revision by hand."""
        script = command.revision(self.config, "by hand")
        assert script is not None
        assert not isinstance(script, list)
        path = Path(script.path)
        head = (
            path.read_text()
            .partition("def upgrade()")[0]
            .replace("import sqlalchemy as sa", "import sqlalchemy as sa\nimport sqlalchemy_public_id.alembic")
        )
        path.write_text(f"{head}def upgrade():\n    {upgrade}\n\n\ndef downgrade():\n    {downgrade}\n")

    def rewrite(self, old: str, new: str) -> None:
        """Replace *old* in the revision that contains it."""
        path = next(path for path in (self.folder / "versions").glob("*.py") if old in path.read_text())
        path.write_text(path.read_text().replace(old, new))

    def script(self) -> str:
        """Return what ``alembic upgrade head --sql`` writes."""
        self.output.seek(0)
        self.output.truncate()
        command.upgrade(self.config, "head", sql=True)
        return self.output.getvalue()

    def execute(self, statement: str) -> None:
        """Run *statement* in the database."""
        with self.engine.begin() as connection:
            connection.execute(text(statement))

    def upgrade(self, to: str = "head") -> None:
        command.upgrade(self.config, to)

    def downgrade(self, to: str = "-1") -> None:
        command.downgrade(self.config, to)

    def history(self) -> list[str]:
        """Return the messages of the revisions, the oldest first."""
        return [str(script.doc) for script in ScriptDirectory.from_config(self.config).walk_revisions()][::-1]

    def heads(self) -> list[str]:
        """Return the ids of the revisions that no other follows."""
        return list(ScriptDirectory.from_config(self.config).get_heads())

    def check(self, metadata: MetaData) -> str | None:
        """Return the error of ``alembic check``, or ``None`` if it finds no differences."""
        self.config.attributes["metadata"] = metadata
        try:
            command.check(self.config)
        except CommandError as error:
            return str(error)
        return None

    def migrate(self, metadata: MetaData, message: str = "next") -> str:
        """Write a revision, and run it."""
        written = self.revision(metadata, message)
        self.upgrade()
        return written

    def differences(self, metadata: MetaData) -> list[Any]:
        """Return the differences that autogenerate finds, at any revision of the database."""
        with self.engine.connect() as connection:
            return list(compare_metadata(MigrationContext.configure(connection), metadata))


def upgrade_of(written: str) -> list[str]:
    """Return the statements of the upgrade in a file that Alembic has *written*."""
    return _statements(written.partition("def upgrade()")[2].partition("def downgrade()")[0])


def downgrade_of(written: str) -> list[str]:
    """Return the statements of the downgrade in a file that Alembic has *written*."""
    return _statements(written.partition("def downgrade()")[2])


def _statements(function: str) -> list[str]:
    """Return the statements, each on one line."""
    statements, begun = list[str](), ""
    for line in map(str.strip, function.splitlines()[1:]):
        if not line or line.startswith("#"):
            continue
        begun += line if begun[-1:] in {"", "("} or line.startswith(")") else f" {line}"
        if line.endswith(":") or _is_whole(begun):
            statements.append(begun.replace(",)", ")"))
            begun = ""
    return statements


def _is_whole(statement: str) -> bool:
    try:
        ast.parse(statement)
    except SyntaxError:
        return False
    return True
