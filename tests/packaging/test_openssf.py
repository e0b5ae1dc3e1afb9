"""What OpenSSF's Scorecard and Best Practices require of a repository, as far as its files show it.

Scorecard's other checks query the host: Branch-Protection, CI-Tests and Code-Review of past changes, Contributors,
Maintained, Webhooks, Vulnerabilities, and the badge. ``make lint`` runs zizmor, which reads the workflows too.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = {path.name: path.read_text() for path in sorted((GITHUB / "workflows").glob("*.yml"))}
JOBS = {
    f"{name} {job}": text
    for name, workflow in WORKFLOWS.items()
    for job, text in re.findall(
        r"^  ([\w-]+):[^\n]*\n((?:    .*\n|\n)+)", workflow.partition("\njobs:\n")[2], re.MULTILINE
    )
}
EXECUTABLE = {".a", ".class", ".dll", ".dylib", ".egg", ".exe", ".jar", ".o", ".pyc", ".pyd", ".so", ".wasm", ".whl"}


def test_the_workflows_were_found() -> None:
    """The tests of this module read every workflow and every job."""
    assert list(WORKFLOWS) == ["release.yml", "tests.yml"]
    assert {f"release.yml {job}" for job in ("requirements", "build", "attest", "publish")} | {
        "tests.yml gate"
    } <= JOBS.keys()


@pytest.mark.parametrize("name", WORKFLOWS)
def test_pinned_dependencies(name: str) -> None:
    """Each third-party action is pinned to a commit, and a comment on the line names its version."""
    used = re.findall(r"uses: (?!\./)(.*)", WORKFLOWS[name])

    assert used
    assert [line for line in used if not re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_token_permissions(name: str) -> None:
    """Workflows have read-only permissions; a job with write permissions does not check out the repository."""
    before = WORKFLOWS[name].partition("\njobs:\n")[0]
    writing = {job: text for job, text in JOBS.items() if job.startswith(name) and ": write" in text}

    assert re.findall(r"^permissions:\n((?:  .*\n)+)", before, re.MULTILINE) == ["  contents: read\n"]
    assert set(writing) == ({"release.yml attest", "release.yml publish"} if name == "release.yml" else set())
    assert [job for job, text in writing.items() if "actions/checkout" in text] == []


def unpinned_installs(job: str) -> list[str]:
    """Return the commands of *job* that install packages without hashes."""
    commands = re.findall(r"^.*\b(?:pip3? (?:install|download|wheel)|pipx|uvx?|npm|npx)\b.*$", job, re.MULTILINE)
    return [command for command in map(str.strip, commands) if "--require-hashes" not in command.partition(" #")[0]]


def test_unpinned_installs_are_found() -> None:
    """An installation without hashes is found, by any of the usual programs, and also if only a comment has hashes."""
    pinned = "run: python -m pip install --require-hashes -r requirements/publish.txt"
    others = [
        "run: pip install twine",
        "run: uv pip install twine # --require-hashes",
        "run: pipx run twine",
        "npm i a",
    ]

    assert unpinned_installs(pinned) == []
    assert unpinned_installs("\n".join([pinned, *others])) == others


@pytest.mark.parametrize("name", ["release.yml build", "release.yml publish"])
def test_packages_of_a_release_have_hashes(name: str) -> None:
    """The packages that make, sign or publish the files of a release are installed from a list with hashes."""
    assert 'pip install --require-hashes --only-binary ":all:" -r' in JOBS[name]
    assert unpinned_installs(JOBS[name]) == []


def test_packages_beside_a_token_have_hashes() -> None:
    """A job that can get an identity token installs nothing without a hash, and gets the list of hashes unchanged."""
    beside = {job: text for job, text in JOBS.items() if "id-token: write" in text}
    (runs,) = re.findall(r"^    steps:(.*)", JOBS["release.yml requirements"], re.MULTILINE | re.DOTALL)

    assert beside.keys() >= {"release.yml attest", "release.yml publish"}
    assert {job: unpinned_installs(text) for job, text in beside.items()} == {job: [] for job in beside}
    assert "needs: [attest, requirements]" in JOBS["release.yml publish"]
    assert "path: .github/requirements/publish.txt" in runs
    assert "run:" not in runs


def test_release_builds_without_other_packages() -> None:
    """The build backend has a hash, and the files are stored before their own dependencies are installed."""
    job = JOBS["release.yml build"]
    (backend,) = re.findall(r"^requires = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    pinned = (GITHUB / "requirements/build.txt").read_text()

    assert "tools/release build --no-isolation" in job
    assert job.index("name: dist") < job.index("tools/release sbom")
    assert [name for name in re.findall(r'"([\w-]+)', backend) if f"\n{name}==" not in pinned] == []


@pytest.mark.parametrize("name", ["build", "publish"])
def test_lists_of_hashes(name: str) -> None:
    """A list has one version and at least one hash of each package, and contains what the list of names asks for."""
    pinned, names = ((GITHUB / "requirements" / f"{name}{suffix}").read_text() for suffix in (".txt", ".in"))
    packages = re.split(r"\n(?=\S)", "\n" + re.sub(r"^#.*\n", "", pinned, flags=re.MULTILINE))[1:]
    pattern = r"([a-z0-9-]+)==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n?"

    assert [package for package in packages if not re.fullmatch(pattern, package)] == []
    assert [one for one in re.findall(r"^[\w-]+", names, re.MULTILINE) if f"\n{one}==" not in f"\n{pinned}"] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_dangerous_workflow(name: str) -> None:
    """A pull request from a fork gets no secret, and no untrusted text becomes part of a command."""
    text = WORKFLOWS[name]

    assert re.findall(r"pull_request_target|workflow_run|secrets\.", text) == []
    assert re.findall(r"run: .*\$\{\{.*", text) == []
    assert text.count("uses: actions/checkout@") == text.count("persist-credentials: false")


def test_ci_tests() -> None:
    """Each pull request, and each push to ``main``, runs every part of the gate."""
    triggers = WORKFLOWS["tests.yml"].partition("\npermissions:")[0]
    (parts,) = re.findall(r"^PARTS=\((.*)\)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)

    assert "\n  push:\n    branches: [main]\n  pull_request:\n" in triggers
    assert f"part: [{', '.join(parts.split())}]" in JOBS["tests.yml gate"]
    assert '.ci/run "$PART"' in JOBS["tests.yml gate"]


def test_packaging_and_signed_releases() -> None:
    """A workflow releases a tag after the tests, without a password, and with signed provenance and an SBOM."""
    assert 'on:\n  push:\n    tags: ["v*"]\n' in WORKFLOWS["release.yml"]
    assert "needs: [tests, build]" in JOBS["release.yml attest"]
    assert JOBS["release.yml attest"].count("actions/attest@") == 2
    assert "sbom-path:" in JOBS["release.yml attest"]
    assert "needs: [attest, " in JOBS["release.yml publish"]
    assert "--attestations" in JOBS["release.yml publish"]


def test_dependency_update_tool() -> None:
    """Dependabot proposes new versions of actions, of packages, and of the packages that make a release."""
    text = (GITHUB / "dependabot.yml").read_text()

    assert re.findall(r"package-ecosystem: (.*)", text) == ["github-actions", "pip"]
    assert "directories: [/, /.github/requirements]" in text


def test_security_policy() -> None:
    """The policy says how to report a vulnerability privately, when it is answered, and which versions get fixes."""
    text = (GITHUB / "SECURITY.md").read_text()
    (reporting,) = re.findall(r"^## Reporting a vulnerability\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)

    assert re.search(r"https://github\.com/\S+/security/advisories/new", reporting)
    assert re.search(r"within \w+ days", reporting)
    assert "\n## Supported versions\n" in text


def test_community_files() -> None:
    """The repository has contribution rules, a code of conduct and a license; the changelog links semver.org."""
    assert "\n## How a change is judged\n" in (ROOT / "CONTRIBUTING.md").read_text()
    assert all((GITHUB / name).exists() for name in ("CODE_OF_CONDUCT.md", "PULL_REQUEST_TEMPLATE.md"))
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert "https://semver.org/" in (ROOT / "CHANGELOG.md").read_text()


def test_binary_artifacts() -> None:
    """The repository contains no compiled program."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("an sdist is no repository")

    assert [name for name in done.stdout.split("\0") if Path(name).suffix in EXECUTABLE] == []
