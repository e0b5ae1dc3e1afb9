"""Packages of Debian's releases, unpacked into a folder: nothing is installed, and the system stays as it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
    unpacked = _empty(root.with_suffix(".part"))
    with _apt_get("deb", suite, root.parent / "apt") as (apt_get, cache):
        _run(*apt_get, "--download-only", "install", *packages)
        for package in cache.glob("archives/*.deb"):
            _run("dpkg", "-x", str(package), str(unpacked))
    unpacked.rename(root)


def unpack_source(suite: str, package: str, root: Path) -> None:
    """Unpack the sources of a *package*, as its authors have published them, into the folder *root*.

    :raises subprocess.CalledProcessError: if they cannot be had.
    """
    unpacked = _empty(root.with_suffix(".part"))
    with _apt_get("deb-src", suite, root.parent / "apt") as (apt_get, cache):
        _run(*apt_get, "--download-only", "source", package, cwd=cache)
        for archive in cache.glob("*.orig.tar.?z"):
            _run("tar", "-xf", str(archive), "-C", str(unpacked), "--strip-components=1")
    unpacked.rename(root)


def _empty(folder: Path) -> Path:
    """Return *folder*, empty: an earlier run may have been killed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


@contextmanager
def _apt_get(kind: str, suite: str, folder: Path) -> Iterator[tuple[list[str], Path]]:
    """Yield the command ``apt-get`` for one *suite* alone, with lists of its own, and the folder of its downloads.

    :param kind: ``deb`` for packages, ``deb-src`` for sources.
    """
    apt = _empty(folder)
    for new in ("lists/partial", "cache/archives/partial"):
        (apt / new).mkdir(parents=True)
    (apt / "status").touch()
    sources = [f"{kind} [signed-by={KEYRING}] {mirror} {suite} main\n" for mirror in mirrors()]
    (apt / "sources.list").write_text("".join(sources))
    apt_get = ["apt-get", "-qq", "-y", "--no-install-recommends", f"-oDir::Cache={apt}/cache"]
    apt_get += [f"-oDir::State::Lists={apt}/lists", f"-oDir::State::status={apt}/status"]
    apt_get += [f"-oDir::Etc::sourcelist={apt}/sources.list", "-oDir::Etc::sourceparts=/dev/null"]
    # The cache folder may be closed to the user `_apt`.
    apt_get += ["-oDir::Etc::preferencesparts=/dev/null", "-oAPT::Sandbox::User=root"]
    _run(*apt_get, "update")
    yield apt_get, apt / "cache"
    shutil.rmtree(apt)


def loader(root: Path) -> list[str]:
    """Return the command that starts an unpacked program with the C library that was unpacked with it."""
    libraries = [*root.glob("usr/lib/*-linux-gnu*"), *root.glob("lib/*-linux-gnu*")]
    dynamic = next(path for library in libraries for path in library.glob("ld-linux*"))
    return [str(dynamic), "--library-path", ":".join(map(str, libraries))]


def _run(*command: str, cwd: Path | None = None) -> None:
    environment = os.environ | {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    subprocess.run(command, check=True, text=True, env=environment, cwd=cwd, **streams)  # type: ignore[call-overload]
