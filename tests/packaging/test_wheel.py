"""The wheel: its contents, its metadata, and that it works with only its runtime dependencies."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import PathDistribution, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "sqlalchemy_public_id"
URLS = dict(re.findall(r'^([A-Z]\w+) = "(https://.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
BUILD_REQUIRES = re.findall(
    r'"([^"]+)"', re.findall(r"^requires = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
)

IMPORT_ALL = """
import importlib, json, pkgutil, sqlalchemy_public_id as package
failed = {}
for module in pkgutil.walk_packages(package.__path__, "sqlalchemy_public_id."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        failed[module.name] = getattr(error, "extra", None)
print(json.dumps(failed))
"""
"""Prints the modules that cannot be imported, with the extra that each error says to install."""

IMPORT_ASYNCIO = """
import sys
sys.modules["greenlet"] = None
try:
    import sqlalchemy_public_id.asyncio
except ImportError as error:
    print(type(error).__name__, getattr(error, "extra", None))
"""

OPTIONAL = {"alembic", "asyncio", "cli", "ext"}
"""The parts of the package that need an extra."""


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the source tree, and return its path."""
    pytest.importorskip("pip")
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", f"--wheel-dir={folder}", str(ROOT))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    """Return the names of the files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def distribution(wheel: Path) -> PathDistribution:
    """Return the metadata of the wheel."""
    (folder,) = (each for each in zipfile.Path(wheel).iterdir() if each.name.endswith(".dist-info"))
    return PathDistribution(folder)


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an interpreter with the wheel, the SQLAlchemy of this test run, and their dependencies."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    executable = str(folder / "bin" / "python")
    pip("--python", executable, "install", str(wheel), f"sqlalchemy=={version('sqlalchemy')}")
    return executable


@pytest.fixture(scope="module")
def failed(python: str) -> dict[str, str | None]:
    """Return the modules that *python* cannot import, with the extra that each error says to install."""
    return dict(json.loads(run(python, IMPORT_ALL)))


def run(python: str, program: str) -> str:
    done = subprocess.run([python, "-I", "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_contents_of_the_wheel(names: set[str], distribution: PathDistribution) -> None:
    """The wheel has one package with the modules of the source tree, Alembic's templates, and ``py.typed``."""
    source, templates = ROOT / "src", ROOT / "alembic_templates"
    expected = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    expected |= {f"{PACKAGE}/{path.relative_to(ROOT).as_posix()}" for path in templates.rglob("*.py")}

    assert expected == {name for name in names if name.endswith(".py")}
    assert f"{PACKAGE}/py.typed" in names
    assert {name.partition("/")[0] for name in names} == {PACKAGE, f"{PACKAGE}-{distribution.version}.dist-info"}


def test_licence_is_in_the_wheel(distribution: PathDistribution) -> None:
    """The wheel contains the whole license, and its metadata has the SPDX identifier of the license."""
    assert distribution.metadata["License-Expression"] == "MIT"
    assert (ROOT / "LICENSE").read_text() == distribution.read_text("licenses/LICENSE")


def test_runtime_dependencies(distribution: PathDistribution) -> None:
    """The package has three runtime dependencies."""
    expected = ["sqlalchemy", "typing-extensions", "uuid-utils"]
    required = {re.split("[^a-z-]", line)[0] for line in distribution.requires or () if "extra ==" not in line}

    assert expected == sorted(required)


def test_extras(distribution: PathDistribution) -> None:
    """The extras have the names in the documentation, and each of them installs something."""
    drivers = "aiomysql aiosqlite asyncio asyncmy asyncpg mysql postgresql"
    tools = "alembic cli fastapi flask keyed litestar pydantic sqlmodel starlette"
    lines = "\n".join(distribution.requires or ()).replace('"', "'")

    assert sorted(f"{drivers} {tools}".split()) == sorted(distribution.metadata.get_all("Provides-Extra", []))
    assert set(re.findall("extra == '([a-z]+)'", lines)) == set(f"{drivers} {tools}".split())


def test_wheel_works_alone(python: str, distribution: PathDistribution) -> None:
    """With only its runtime dependencies, the package can be imported, and reports its version."""
    assert distribution.version == run(python, f"import {PACKAGE}; print({PACKAGE}.__version__)")


def test_modules_need_no_extra(failed: dict[str, str | None]) -> None:
    """Every module can be imported without an extra, except those that are for one, and for pytest or Pydantic."""
    single = {f"{PACKAGE}.testing.fixtures", f"{PACKAGE}.typed.schema"}
    assert {name for name in failed if name.split(".")[1] not in OPTIONAL} <= single


def test_told_extras(python: str, failed: dict[str, str | None], distribution: PathDistribution) -> None:
    """A module that lacks a package names the extra to install, for Alembic and for greenlet, too."""
    extras = set(distribution.metadata.get_all("Provides-Extra", []))

    assert set(failed.values()) - {None} <= extras
    assert failed[f"{PACKAGE}.alembic"] == "alembic"
    assert run(python, IMPORT_ASYNCIO) == "MissingExtra asyncio"


def test_licences_of_what_is_installed(distribution: PathDistribution) -> None:
    """The documentation lists the license of each dependency, including those of the extras."""
    page = (ROOT / "docs/contributing/how-it-is-proven.md").read_text(encoding="utf-8").partition("## Licenses")[2]
    listed = {name.lower() for name in re.findall(r"`([\w-]+)`", page)}
    required = {re.split("[^A-Za-z0-9-]", line)[0].lower() for line in distribution.requires or ()}

    assert listed == required - {"sqlalchemy-public-id"}


# --- what an index shows


def test_links_of_the_readme(distribution: PathDistribution) -> None:
    """Every link in the description leads to a file of this version in the repository, or to another site."""
    text = str(distribution.metadata.get_payload())
    files = f"{URLS['Repository']}/blob/v{distribution.version}/"
    pictures = f"{URLS['Repository']}/v{distribution.version}/".replace("github.com", "raw.githubusercontent.com")
    links = re.findall(r"\]\(([^)\s]+)\)", text)

    assert len(links) > 20
    images = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert [one for one in images if not one.startswith("https://img.shields.io/pypi/")] == [
        f"{pictures}docs/_static/identifiers.svg"
    ]
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    own = [link for link in links if link.startswith(URLS["Repository"])]
    assert [link for link in own if not link.startswith(files)] == []
    assert [link for link in own if not (ROOT / link.removeprefix(files).partition("#")[0]).exists()] == []


def test_addresses(distribution: PathDistribution) -> None:
    """The metadata links the documentation, repository, changelog and issues."""
    listed = distribution.metadata.get_all("Project-URL", [])

    assert dict(one.split(", ", 1) for one in listed) == URLS
    assert set(URLS) == {"Documentation", "Repository", "Changelog", "Issues"}


def test_classifiers(distribution: PathDistribution) -> None:
    """The Python classifiers are the versions that the metadata allows and the test workflow runs."""
    classified = re.findall(
        r"Python :: (3\.\d+)$", "\n".join(distribution.metadata.get_all("Classifier", [])), re.MULTILINE
    )
    workflow = (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")
    (tested,) = re.findall(r"python: \[(.*)\]", workflow)

    assert distribution.metadata["Requires-Python"] == f">={classified[0]}"
    assert classified == [one for one in re.findall(r'"([^"]+)"', tested) if not one.endswith("t")]


# --- the build


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return two folders, each with the sdist and the wheel that was built from it."""
    pytest.importorskip("build")
    folders = [tmp_path_factory.mktemp("build") for _ in range(2)]
    for folder in folders:
        command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
        subprocess.run(command, check=True, capture_output=True)
    return folders


@pytest.mark.slow
def test_same_bytes_twice(builds: list[Path]) -> None:
    """Two builds of one tree are identical, so that anyone can verify a release."""
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in builds)

    assert sorted(Path(name).suffix for name in first) == [".gz", ".whl"]
    assert first == second


@pytest.mark.slow
def test_what_an_index_accepts(builds: list[Path]) -> None:
    """``twine check --strict`` reports nothing."""
    pytest.importorskip("twine")
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, builds[0].iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_bill_of_materials(builds: list[Path], python: str, tmp_path: Path) -> None:
    """``tools/release sbom`` lists the wheel and each package that it installs, with version and license."""
    pytest.importorskip("cyclonedx_py")
    file = tmp_path / "sbom.json"
    command = [sys.executable, str(ROOT / "tools/release"), "sbom", f"--dist={builds[0]}", f"--output={file}"]
    subprocess.run(command, check=True, capture_output=True)
    listed = json.loads(file.read_text())["components"]
    installed = run(python, "from importlib.metadata import distributions as all; print(*[one.name for one in all()])")

    # the SBOM lists the newest SQLAlchemy; SQLAlchemy 2.0 also installs greenlet
    assert {component["name"].lower() for component in listed} == {*installed.lower().split()} - {"greenlet"}
    assert all(component["version"] and component["licenses"] for component in listed)


@pytest.mark.slow
def test_readme_runs_on_the_sdist(builds: list[Path], tmp_path: Path) -> None:
    """The sdist that ``pip download`` gets from an index installs in an empty environment, and runs the README."""
    index, downloads, environment = tmp_path / "index", tmp_path / "downloads", tmp_path / "venv"
    (archive,) = builds[0].glob("*.tar.gz")
    pinned = f"sqlalchemy=={version('sqlalchemy')}"
    pip("download", f"--dest={index}", pinned, "typing-extensions", "uuid-utils", *BUILD_REQUIRES)
    shutil.copy(archive, index)
    from_index = ["--no-index", f"--find-links={index}"]
    pip("download", "--no-deps", *from_index, f"--dest={downloads}", "sqlalchemy-public-id")
    venv.create(environment, with_pip=False)
    executable = str(environment / "bin" / "python")
    pip("--python", executable, "install", *from_index, str(downloads / archive.name))
    (program,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)

    assert re.fullmatch("cus_[0-9a-z]{12}", run(executable, program))


@pytest.mark.slow
def test_contents_of_the_sdist(builds: list[Path]) -> None:
    """The sdist has what its tests need, and no benchmark results, which are larger than all the rest."""
    (archive,) = builds[0].glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}

    assert {"conftest.py", "pyproject.toml", "Makefile", "LICENSE", "CHANGELOG.md"} <= names
    assert {"tests/conftest.py", "docs/conf.py", "examples/helpdesk/page.html", "tests/typing/models.py"} <= names
    assert not [name for name in names if name.startswith("tools/benchmarks/results/")]
    assert archive.stat().st_size < 2_000_000  # 1.5 MB of text; a picture or a database by mistake is more
