"""The pinned list of suites, ``suites.toml``, and for each suite its sources and a virtual environment.

The library is installed in a separate folder, which only the runs with the library have on their path, because Alembic
loads every plugin that is installed.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["CACHE", "HERE", "LIBRARY", "Excuse", "Suite", "install_library", "load"]

HERE = Path(__file__).parent
_ROOT = HERE.parents[1]
CACHE = _ROOT / ".cache" / "outside"
LIBRARY = CACHE / f"library-{os.getpid()}"  # two runners at once may test two versions of the library
_UV = _ROOT / ".venv" / "uv" / "bin" / "uv"


@dataclass(frozen=True)
class Suite:
    """The tests in a source distribution, with one version of SQLAlchemy."""

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
        """The file of pins. The suites of one package share it, and their virtual environment."""
        return HERE / "requirements" / f"{self.package}.txt"

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return _ROOT / ".venv" / f"outside-{self.package}-{self.series}" / "bin" / "python"

    @property
    def _pins(self) -> list[str]:
        own = [] if self.package == "sqlalchemy" else [f"{self.package}=={self.version}"]
        return [f"sqlalchemy[asyncio]=={self.sqlalchemy}", *own]

    def unpack(self) -> Path:
        """Return the folder of the source distribution, which is downloaded the first time."""
        name = f"{self.package}-{self.version}"
        folder, archives = CACHE / "sources" / name, CACHE / "archives"
        if not folder.exists():
            archives.mkdir(parents=True, exist_ok=True)
            archive = archives / f"{self.package.replace('-', '_')}-{self.version}.tar.gz"
            if not archive.exists():
                options = ("--no-deps", "--no-binary", self.package, "--dest", archives)
                _run(sys.executable, "-m", "pip", "download", "-q", *options, f"{self.package}=={self.version}")
            checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
            if checksum != self.sha256:
                raise SystemExit(f"{archive} has the SHA-256 {checksum}, not {self.sha256} as in suites.toml")
            unpacked = folder.with_name(f"{name}.part")
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked)  # its checksum is pinned; Python 3.11.3 knows no filter
            (only,) = unpacked.iterdir()
            only.rename(folder)
            unpacked.rmdir()
        return folder

    def prepare(self) -> Path:
        """Return the interpreter of the environment, which is created if its pins have changed."""
        installed, pins = self.python.parent.parent / "installed", [*self._pins, "-r", str(self.requirements)]
        wanted = f"{pins}\n{self.requirements.read_text(encoding='utf-8')}"
        if not installed.exists() or installed.read_text(encoding="utf-8") != wanted:
            _create(self.python)
            _install(self.python, "--no-deps", *pins)
            installed.write_text(wanted, encoding="utf-8")
        return self.python

    def renew(self) -> None:
        """Update the pins of the package to the newest versions."""
        _create(self.python)
        _install(self.python, *self._pins, *self.requires, "uuid-utils", "typing-extensions")
        freeze = [_UV, "pip", "freeze", "--python", self.python]
        frozen = subprocess.run(freeze, check=True, capture_output=True, text=True).stdout
        own = {"sqlalchemy", self.package}
        pins = [line for line in frozen.splitlines() if line.partition("==")[0].lower().replace("_", "-") not in own]
        self.requirements.write_text("\n".join(pins) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Excuse:
    """Tests that fail with any listener, and why."""

    test: str
    why: str

    def covers(self, test: str) -> bool:
        return fnmatchcase(test, self.test.replace("[", "[[]"))


def load(path: Path = HERE / "suites.toml") -> tuple[list[Suite], list[Excuse]]:
    """Read the list: every suite with every series of SQLAlchemy that it supports, and the excuses."""
    pins = tomllib.loads(path.read_text(encoding="utf-8"))
    series = pins["sqlalchemy"].items()
    suites = [_suite(dict(entry), *each, pins["sha256"]) for entry in pins["suite"] for each in series]
    return suites, [Excuse(**entry) for entry in pins.get("excused", [])]


def _suite(entry: dict[str, Any], series: str, sqlalchemy: str, sha256: dict[str, str]) -> Suite:
    version = entry.pop("version", sqlalchemy)
    entry |= {name: tuple(entry.get(name, ())) for name in ("tests", "gate", "requires")}
    checksum = sha256[f"{entry['package']}-{version}"]
    return Suite(version=version, sqlalchemy=sqlalchemy, series=series, sha256=checksum, **entry)


def install_library() -> None:
    """Build the library of this tree, and install it in its folder, which is removed when this process ends."""
    atexit.register(shutil.rmtree, LIBRARY, ignore_errors=True)
    _install(sys.executable, "--no-deps", "--target", LIBRARY, _ROOT)


def _create(python: Path) -> None:
    _run(_UV, "venv", "--quiet", "--seed", "--clear", "--python", sys.executable, python.parent.parent)


def _install(python: Path | str, *packages: object) -> None:
    _run(_UV, "pip", "install", "--quiet", "--python", python, *packages)


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True)
