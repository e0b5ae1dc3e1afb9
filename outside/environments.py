"""What a suite runs in: its source distribution, a virtual environment of its own, the library beside it.

The library is not installed in the environment but in a folder that only the runs with it have on their path: Alembic
loads every plugin that it sees.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from outside.suites import Suite

__all__ = ["LIBRARY", "ROOT", "install_library", "prepare", "renew", "unpack"]

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache" / "outside"
UV = ROOT / ".venv" / "uv" / "bin" / "uv"
LIBRARY = CACHE / f"library-{os.getpid()}"  # two runners at once are two versions of the library, perhaps


def unpack(suite: Suite) -> Path:
    """Return the folder of the suite's source distribution; the first time, download it."""
    name = f"{suite.package}-{suite.version}"
    folder = CACHE / "sources" / name
    if not folder.exists():
        archives = CACHE / "archives"
        archives.mkdir(parents=True, exist_ok=True)
        archive = archives / f"{suite.package.replace('-', '_')}-{suite.version}.tar.gz"
        if not archive.exists():
            pinned = f"{suite.package}=={suite.version}"
            options = ("--no-deps", "--no-binary", suite.package, "--dest", archives)
            _run(sys.executable, "-m", "pip", "download", "-q", *options, pinned)
        checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
        if checksum != suite.sha256:
            raise SystemExit(f"{archive} has the SHA-256 {checksum}, not {suite.sha256} as in suites.toml")
        unpacked = folder.with_name(f"{name}.part")
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked, filter="data")
        (only,) = unpacked.iterdir()
        only.rename(folder)
        unpacked.rmdir()
    return folder


def prepare(suite: Suite) -> Path:
    """Return the Python of the suite's virtual environment; create it if its pins have changed."""
    python, pins = _python(suite), [_sqlalchemy(suite), *_package(suite), "-r", str(suite.requirements)]
    installed = python.parent.parent / "installed"
    wanted = f"{pins}\n{suite.requirements.read_text(encoding='utf-8')}"
    if not installed.exists() or installed.read_text(encoding="utf-8") != wanted:
        _create(python)
        _install(python, "--no-deps", *pins)
        installed.write_text(wanted, encoding="utf-8")
    return python


def renew(suite: Suite) -> None:
    """Write the pins of the suite's package again: the newest versions of everything."""
    python = _python(suite)
    _create(python)
    library = ("uuid-utils", "typing-extensions")
    _install(python, _sqlalchemy(suite), *_package(suite), *suite.requires, *library)
    freeze = [UV, "pip", "freeze", "--python", python]
    frozen = subprocess.run(freeze, check=True, capture_output=True, text=True).stdout
    own = {"sqlalchemy", suite.package}
    pins = [line for line in frozen.splitlines() if line.partition("==")[0].lower().replace("_", "-") not in own]
    suite.requirements.parent.mkdir(exist_ok=True)
    suite.requirements.write_text("\n".join(pins) + "\n", encoding="utf-8")


def install_library() -> None:
    """Build the library of this tree, and install it in its folder, until this process ends."""
    atexit.register(shutil.rmtree, LIBRARY, ignore_errors=True)
    _install(sys.executable, "--no-deps", "--target", LIBRARY, ROOT)


def _python(suite: Suite) -> Path:
    return ROOT / ".venv" / f"outside-{suite.package}-{suite.series}" / "bin" / "python"


def _create(python: Path) -> None:
    _run(UV, "venv", "--quiet", "--seed", "--clear", "--python", sys.executable, python.parent.parent)


def _install(python: Path | str, *packages: object) -> None:
    _run(UV, "pip", "install", "--quiet", "--python", python, *packages)


def _sqlalchemy(suite: Suite) -> str:
    return f"sqlalchemy[asyncio]=={suite.sqlalchemy}"


def _package(suite: Suite) -> list[str]:
    return [] if suite.package == "sqlalchemy" else [f"{suite.package}=={suite.version}"]


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True)
