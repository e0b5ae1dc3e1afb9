"""One piece of advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Database: TypeAlias = Literal["postgresql", "mysql", "mariadb", "sqlite"]

ALL: tuple[Database, ...] = ("postgresql", "mysql", "mariadb", "sqlite")
_NAMES = {"postgresql": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB", "sqlite": "SQLite"}


@dataclass(frozen=True)
class Advice:
    """One danger, and its remedy."""

    slug: str
    """The identifier of the piece, for programs and links."""
    title: str
    """The danger in a few words."""
    danger: str
    """The damage, and its cause."""
    lock: str
    """The lock, and its duration."""
    bad: str
    """The dangerous lines."""
    good: str
    """The lines to paste instead, or to repair the damage."""
    databases: tuple[Database, ...] = ALL
    """The databases concerned."""
    language: Literal["sql", "sh", "text"] = "text"
    """The language of the lines; ``text`` is Python in a migration or a model."""

    def as_markdown(self) -> str:
        """Return the piece as a section of a Markdown page."""
        databases = ", ".join(_NAMES[database] for database in self.databases)
        return (
            f"({self.slug})=\n## {self.title}\n\n*{databases}*\n\n{self.danger}\n\n**Lock:** {self.lock}\n\n"
            f"Bad:\n\n```{self.language}\n{self.bad}\n```\n\nGood:\n\n```{self.language}\n{self.good}\n```\n"
        )
