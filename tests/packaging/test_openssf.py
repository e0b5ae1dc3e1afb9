"""What OpenSSF's Scorecard and Best Practices ask of a repository, as far as its files show it.

Scorecard's other checks ask the host: Branch-Protection, CI-Tests and Code-Review of past changes, Contributors,
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
    """The tests of this module look at every workflow, and at every job."""
    assert list(WORKFLOWS) == ["release.yml", "tests.yml"]
    assert {"release.yml build", "release.yml attest", "release.yml publish", "tests.yml gate"} <= JOBS.keys()


@pytest.mark.parametrize("name", WORKFLOWS)
def test_pinned_dependencies(name: str) -> None:
    """Each action of others is pinned by its commit, and the line tells the version that this commit is."""
    used = re.findall(r"uses: (?!\./)(.*)", WORKFLOWS[name])

    assert used
    assert [line for line in used if not re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_token_permissions(name: str) -> None:
    """A workflow may read, and nothing else; a job that may write has no code of the repository."""
    before = WORKFLOWS[name].partition("\njobs:\n")[0]
    writing = {job: text for job, text in JOBS.items() if job.startswith(name) and ": write" in text}

    assert re.findall(r"^permissions:\n((?:  .*\n)+)", before, re.MULTILINE) == ["  contents: read\n"]
    assert set(writing) == ({"release.yml attest", "release.yml publish"} if name == "release.yml" else set())
    assert [job for job, text in writing.items() if "actions/checkout" in text] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_dangerous_workflow(name: str) -> None:
    """A stranger's pull request gets no secret, and no text that a stranger writes becomes part of a command."""
    text = WORKFLOWS[name]

    assert re.findall(r"pull_request_target|workflow_run|secrets\.", text) == []
    assert re.findall(r"run: .*\$\{\{.*", text) == []
    assert text.count("uses: actions/checkout@") == text.count("persist-credentials: false")


def test_ci_tests() -> None:
    """Each pull request, and each change of the branch ``main``, runs the gate."""
    triggers = WORKFLOWS["tests.yml"].partition("\npermissions:")[0]

    assert "\n  push:\n    branches: [main]\n  pull_request:\n" in triggers
    assert ".ci/run" in JOBS["tests.yml gate"]


def test_packaging_and_signed_releases() -> None:
    """A tag is released by a workflow, after the tests: without a password, with signed provenance and an SBOM."""
    assert 'on:\n  push:\n    tags: ["v*"]\n' in WORKFLOWS["release.yml"]
    assert "needs: [tests, build]" in JOBS["release.yml attest"]
    assert JOBS["release.yml attest"].count("actions/attest@") == 2
    assert "sbom-path:" in JOBS["release.yml attest"]
    assert "needs: attest" in JOBS["release.yml publish"]
    assert "--attestations" in JOBS["release.yml publish"]


def test_dependency_update_tool() -> None:
    """Dependabot proposes new versions of actions and of packages."""
    text = (GITHUB / "dependabot.yml").read_text()

    assert re.findall(r"package-ecosystem: (.*)", text) == ["github-actions", "pip"]


def test_security_policy() -> None:
    """The policy says how to report a vulnerability in private, when it is answered, and which versions are mended."""
    text = (GITHUB / "SECURITY.md").read_text()
    (reporting,) = re.findall(r"^## Reporting a vulnerability\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)

    assert re.search(r"https://github\.com/\S+/security/advisories/new", reporting)
    assert re.search(r"within \w+ days", reporting)
    assert "\n## Supported versions\n" in text


def test_community_files() -> None:
    """Contributors find how a change is judged and how people treat each other; the changelog names its rules."""
    assert "\n## How a change is judged\n" in (ROOT / "CONTRIBUTING.md").read_text()
    assert all((GITHUB / name).exists() for name in ("CODE_OF_CONDUCT.md", "PULL_REQUEST_TEMPLATE.md"))
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert "https://semver.org/" in (ROOT / "CHANGELOG.md").read_text()


def test_binary_artifacts() -> None:
    """The repository holds no program that somebody has compiled."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("an sdist is no repository")

    assert [name for name in done.stdout.split("\0") if Path(name).suffix in EXECUTABLE] == []
