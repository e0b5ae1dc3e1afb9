"""Packages of Debian: install them with apt-get, or unpack them into a folder, which does not change the system."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sqlalchemy-public-id"
"""The folder of programs and servers that need no root."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
APT_GET = ("apt-get", "-qq", "-y", "--no-install-recommends", "-oDPkg::Lock::Timeout=300")


class Unavailable(Exception):
    """A program or package cannot be provided; the message says what to do."""


def note(message: str) -> None:
    """Print *message* for the user."""
    print(message, file=sys.stderr, flush=True)


def run(*command: str | Path, timeout: float | None = None, cwd: Path | None = None) -> str:
    """Return the output of a command. It is written to a file, because a daemon left behind would keep a pipe open."""
    environment = os.environ | {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    with tempfile.TemporaryFile("w+") as out:
        streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
        try:
            code = subprocess.call([*map(str, command)], env=environment, timeout=timeout, cwd=cwd, **streams)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(str(error)) from error
        out.seek(0)
        if code:
            raise Unavailable(f"`{shlex.join(map(str, command))}` failed: {out.read().strip()[-400:]}")
        return out.read()


def install(*packages: str) -> None:
    """Install packages with apt-get, as root."""
    if not shutil.which("apt-get"):
        raise Unavailable(f"no apt-get here: install what Debian has in {', '.join(packages)}")
    if os.geteuid():
        raise Unavailable(f"run this as root, or `apt-get install {' '.join(packages)}`")
    note(f"installing {', '.join(packages)} with apt-get")
    run(*APT_GET, "update")
    run(*APT_GET, "install", *packages)


def unpack(suite: str, package: str, root: Path) -> None:
    """Unpack a *package* of a release of Debian, and its dependencies, into *root*, which must not exist."""
    if not KEYRING.exists():
        install(KEYRING.stem)
    if not (sources := mirrors()):
        raise Unavailable("apt's sources name no Debian mirror")
    unpacked, apt = root.with_suffix(".part"), root.parent / "apt"
    for folder in (unpacked, apt):  # an earlier run may have been killed
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for new in ("lists/partial", "cache/archives/partial"):
        (apt / new).mkdir(parents=True)
    (apt / "status").touch()
    lines = [f"deb [signed-by={KEYRING}] {mirror} {suite} main\n" for mirror in sources]
    (apt / "sources.list").write_text("".join(lines))
    own = [f"-oDir::Cache={apt}/cache", f"-oDir::State::Lists={apt}/lists", f"-oDir::State::status={apt}/status"]
    own += [f"-oDir::Etc::sourcelist={apt}/sources.list", "-oDir::Etc::sourceparts=/dev/null"]
    # The cache folder may be closed to the user `_apt`.
    own += ["-oDir::Etc::preferencesparts=/dev/null", "-oAPT::Sandbox::User=root"]
    run(*APT_GET, *own, "update")
    run(*APT_GET, *own, "--download-only", "install", package)
    for archive in (apt / "cache").glob("archives/*.deb"):
        run("dpkg", "-x", archive, unpacked)
    shutil.rmtree(apt)
    unpacked.rename(root)


def mirrors() -> list[str]:
    """Return Debian's mirrors as the apt of this machine names them."""
    lists = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.*")]
    text = "".join(file.read_text() for file in lists if file.suffix in (".list", ".sources") and file.is_file())
    active = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    return list(dict.fromkeys(re.findall(r"https?://\S+/debian(?=/?\s)", active)))


def version(program: str) -> str:
    """Return the first line of a program's ``--version``, such as ``postgres (PostgreSQL) 15.20``."""
    told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60).stdout if program else ""
    name, *rest = (told.strip().splitlines() or ["-"])[0].split(" ")
    return " ".join([Path(name).name, *rest])
