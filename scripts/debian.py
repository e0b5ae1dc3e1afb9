"""Packages of Debian's releases, unpacked into a folder: nothing is installed, and the system stays as it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def mirrors() -> list[str]:
    """Return Debian's mirrors as the apt of this machine names them."""
    lists = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.*")]
    text = "".join(file.read_text() for file in lists if file.suffix in (".list", ".sources") and file.is_file())
    active = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    return list(dict.fromkeys(re.findall(r"https?://\S+/debian(?=/?\s)", active)))


def unpack(suite: str, packages: Iterable[str], root: Path) -> None:
    """Unpack *packages* of a release, and what they depend on, into the folder *root*, which must not exist.

    :raises subprocess.CalledProcessError: if a package cannot be had.
    """
    apt, unpacked = root.parent / "apt", root.with_suffix(".part")
    for leftover in (apt, unpacked):
        shutil.rmtree(leftover, ignore_errors=True)
    for new in (unpacked, apt / "lists/partial", apt / "cache/archives/partial"):
        new.mkdir(parents=True)
    (apt / "status").touch()
    sources = [f"deb [signed-by={KEYRING}] {mirror} {suite} main\n" for mirror in mirrors()]
    (apt / "sources.list").write_text("".join(sources))
    apt_get = ["apt-get", "-qq", "-y", "--no-install-recommends", f"-oDir::Cache={apt}/cache"]
    apt_get += [f"-oDir::State::Lists={apt}/lists", f"-oDir::State::status={apt}/status"]
    apt_get += [f"-oDir::Etc::sourcelist={apt}/sources.list", "-oDir::Etc::sourceparts=/dev/null"]
    # The cache folder may be closed to the user `_apt`.
    apt_get += ["-oDir::Etc::preferencesparts=/dev/null", "-oAPT::Sandbox::User=root"]
    _run(*apt_get, "update")
    _run(*apt_get, "--download-only", "install", *packages)
    for package in (apt / "cache/archives").glob("*.deb"):
        _run("dpkg", "-x", str(package), str(unpacked))
    unpacked.rename(root)
    shutil.rmtree(apt)


def loader(root: Path) -> list[str]:
    """Return the command that starts an unpacked program with the C library that was unpacked with it."""
    libraries = [*root.glob("usr/lib/*-linux-gnu*"), *root.glob("lib/*-linux-gnu*")]
    dynamic = next(path for library in libraries for path in library.glob("ld-linux*"))
    return [str(dynamic), "--library-path", ":".join(map(str, libraries))]


def _run(*command: str) -> None:
    environment = os.environ | {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    subprocess.run(command, check=True, text=True, env=environment, **streams)  # type: ignore[call-overload]
