"""``tools/release`` rejects a release whose parts disagree, and lists every reason."""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.housekeeping

Release = Callable[..., "subprocess.CompletedProcess[str]"]


def git(folder: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a repository with the parts of a release, ready for version 7.8.9."""
    today = datetime.datetime.now(datetime.timezone.utc).date()
    for name in ("tools/release", "src/sqlalchemy_public_id/_version.py", "CHANGELOG.md", "CITATION.cff"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    change(tmp_path / "src/sqlalchemy_public_id/_version.py", r'"\d.*"', '"7.8.9"')
    change(tmp_path / "CITATION.cff", "^version: .*$", "version: 7.8.9")
    change(tmp_path / "CHANGELOG.md", r"^## \d.*$", f"## 7.8.9 ({today})")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "a release")
    return tmp_path


def change(path: Path, pattern: str, text: str) -> None:
    old = path.read_text()
    path.write_text(re.sub(pattern, text, old, count=1, flags=re.MULTILINE))


def check(folder: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, str(folder / "tools/release"), "check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_what_agrees(folder: Path) -> None:
    """A release whose version, changelog, citation and tags agree passes; once it is tagged, only with ``--tagged``."""
    assert check(folder, "7.8.9") == (0, "")
    assert check(folder, "7.8.9", "--tagged")[0] == 1
    git(folder, "tag", "v7.8.9")
    assert check(folder, "7.8.9", "--tagged") == (0, "")
    assert "the tag v7.8.9 exists" in check(folder, "7.8.9")[1]


@pytest.mark.parametrize(
    ("path", "pattern", "text", "reason"),
    [
        ("CHANGELOG.md", "^## 7.8.9 .*$", "## 7.8.9 (unreleased)", "the changelog begins with '7.8.9 (unreleased)'"),
        ("CITATION.cff", "7.8.9", "7.8.8", "the citation has the version 7.8.8"),
        ("src/sqlalchemy_public_id/_version.py", "7.8.9", "7.9.0", "the package has the version 7.9.0"),
    ],
)
def test_what_disagrees(folder: Path, path: str, pattern: str, text: str, reason: str) -> None:
    """A part with another version is reported, and so are uncommitted changes."""
    change(folder / path, pattern, text)
    status, reasons = check(folder, "7.8.9")

    assert status == 1
    assert reason in reasons
    assert "not committed" in reasons


def test_no_version(folder: Path) -> None:
    """An argument that is not a version is rejected."""
    assert "'v7.8.9' is no version" in check(folder, "v7.8.9")[1]


def test_parts_of_this_version() -> None:
    """The citation has the version of the package, and the changelog begins with it."""
    version = re.findall(r'"(.*)"', (ROOT / "src/sqlalchemy_public_id/_version.py").read_text())[-1]

    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^## (\S+) ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == version
