"""The pinned list of suites, ``suites.toml``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["HERE", "Excuse", "Suite", "load"]

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Suite:
    """The tests that a source distribution carries, with one SQLAlchemy."""

    name: str
    package: str
    version: str
    sqlalchemy: str
    series: str
    sha256: str
    tests: tuple[str, ...]
    gate: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    databases: dict[str, list[str]] = field(default_factory=lambda: {"sqlite": []})
    environment: dict[str, dict[str, str]] = field(default_factory=dict)
    xdist: bool = False

    @property
    def requirements(self) -> Path:
        """The file of pins; those of one package share it, and their virtual environment."""
        return HERE / "requirements" / f"{self.package}.txt"


@dataclass(frozen=True)
class Excuse:
    """Tests that assume that nobody listens, and why."""

    test: str
    why: str

    def covers(self, test: str) -> bool:
        return fnmatchcase(test, self.test.replace("[", "[[]"))


def load(path: Path = HERE / "suites.toml") -> tuple[list[Suite], list[Excuse]]:
    """Read the list: every suite with every series of SQLAlchemy that it supports, and the excuses."""
    pins = tomllib.loads(path.read_text(encoding="utf-8"))
    suites = [
        _suite(dict(entry), series, sqlalchemy, pins["sha256"])
        for entry in pins["suite"]
        for series, sqlalchemy in pins["sqlalchemy"].items()
        if series in entry.get("series", pins["sqlalchemy"])
    ]
    return suites, [Excuse(**entry) for entry in pins.get("excused", [])]


def _suite(entry: dict[str, Any], series: str, sqlalchemy: str, sha256: dict[str, str]) -> Suite:
    version = entry.pop("version", sqlalchemy)
    entry.pop("series", None)
    for name in ("tests", "gate", "requires"):
        entry[name] = tuple(entry.get(name, ()))
    return Suite(
        version=version,
        sqlalchemy=sqlalchemy,
        series=series,
        sha256=sha256[f"{entry['package']}-{version}"],
        **entry,
    )
