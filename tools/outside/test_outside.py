"""The runner of other projects' test suites: what counts as a new failure, and what its list of suites must have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sqlalchemy_public_id
from tools.outside.comparing import Outcome, failed, files, read, regressions
from tools.outside.suites import Excuse, load

PASSED, FAILED, SKIPPED = Outcome("passed"), Outcome("failed", "KeyError: 'id'"), Outcome("skipped")
pytestmark = pytest.mark.housekeeping

PLUGINS = Path(__file__).parent / "plugins"
PATHS = [str(PLUGINS), str(Path(sqlalchemy_public_id.__file__).parents[1])]  # the library under test, not another one


def run_pytest(folder: Path, *plugins: str) -> tuple[dict[str, Outcome], list[dict[str, object]]]:
    """Run pytest in *folder* with *plugins* of the runner; return the outcomes, and the facts that plugins write."""
    outcomes, facts = folder / "outcomes", folder / "facts"
    variables = {
        "PUBLIC_ID_OUTCOMES": str(outcomes),
        "PUBLIC_ID_LOADED": str(facts),
        "PYTHONPATH": os.pathsep.join(PATHS),
    }
    options = ["-q", "--continue-on-collection-errors", *(part for plugin in plugins for part in ("-p", plugin))]
    subprocess.run([sys.executable, "-m", "pytest", *options], cwd=folder, env=variables, check=False, timeout=120)
    read_facts = [json.loads(line) for line in facts.read_text().splitlines()] if facts.exists() else []
    return read(outcomes.read_text().splitlines()), read_facts


def test_the_worst_phase_of_a_test_is_its_outcome() -> None:
    """A test whose teardown fails counts as failed, even if later phases pass."""
    lines = [
        '["t.py::one", "passed", ""]',
        '["t.py::one", "failed", "OSError"]',
        '["t.py::two", "skipped", ""]',
        '["t.py::one", "passed", ""]',
    ]
    assert {"t.py::one": Outcome("failed", "OSError"), "t.py::two": Outcome("skipped")} == read(lines)


def test_failures_that_exist_without_the_library_are_not_new() -> None:
    """A test that fails in both runs is no regression; one that fails only with the library is."""
    without, loaded = {"a": FAILED, "b": PASSED, "c": SKIPPED}, {"a": FAILED, "b": FAILED, "c": FAILED}
    assert regressions(without, loaded) == {"b": "KeyError: 'id'", "c": "KeyError: 'id'"}


def test_tests_that_no_longer_run_are_new_failures() -> None:
    """A test that passes without the library must neither vanish nor be skipped with it."""
    without = {"gone": PASSED, "skipped": PASSED, "was skipped": SKIPPED, "failed": FAILED}
    assert regressions(without, {"skipped": SKIPPED}) == {"gone": "did not run", "skipped": "was skipped"}


def test_failures_come_back_with_their_files() -> None:
    """The files of failed tests are listed once each, because a test may depend on those before it in the file."""
    assert files(failed({"b/c.py::x": FAILED, "a.py::y[1]": FAILED, "a.py::z": FAILED})) == ["a.py", "b/c.py"]


@pytest.mark.parametrize(
    ("pattern", "covered"), [("t.py::one*", True), ("t.py::one[True-False]", True), ("t.py::one[a]", False)]
)
def test_an_excuse_takes_brackets_as_they_are(pattern: str, covered: bool) -> None:
    """An excuse matches the brackets of a parametrized test literally, and not as a set of characters."""
    assert covered is Excuse(pattern, "").covers("t.py::one[True-False]")


def test_every_suite_is_pinned() -> None:
    """Each suite has a version, a checksum and a file of exact requirements, for both series of SQLAlchemy."""
    suites, excuses = load()
    assert {"2.0", "2.1"} == {suite.series for suite in suites}
    assert all(suite.sqlalchemy.startswith(suite.series) for suite in suites)
    assert all(len(suite.sha256) == 64 for suite in suites)
    pins = [line for suite in suites for line in suite.requirements.read_text().splitlines()]
    assert [line for line in pins if "==" not in line] == []
    assert all(excuse.why for excuse in excuses)


def test_a_module_that_cannot_be_imported_is_a_failure(tmp_path: Path) -> None:
    """A collection error counts as a failed test, beside the outcomes of the other modules."""
    (tmp_path / "test_broken.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "test_whole.py").write_text("def test_one(): ...\n")
    outcomes, _ = run_pytest(tmp_path, "public_id_outcomes")
    assert {test: outcome.outcome for test, outcome in outcomes.items()} == {
        "test_broken.py": "failed",
        "test_whole.py::test_one": "passed",
    }
    assert outcomes["test_broken.py"].cause.endswith("No module named 'nothing_of_that_name'")


def test_listeners_that_a_suite_removes_come_back(tmp_path: Path) -> None:
    """After a test clears all mappers and listeners, the next one still gets public ids and a guarded engine."""
    (tmp_path / "test_clearing.py").write_text(
        """
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, clear_mappers, events
from sqlalchemy_public_id import PublicIdMixin


@pytest.mark.parametrize("time", [1, 2])
def test_model(time):
    class Base(DeclarativeBase): ...
    class User(PublicIdMixin, Base):
        __tablename__ = "user"
    engine = create_engine("sqlite://")
    guarded = len(list(engine.dialect.dispatch.do_execute))
    shown = User().public_id
    events.MapperEvents._clear()
    events.SessionEvents._clear()
    clear_mappers()
    assert guarded == 1 and shown
"""
    )
    outcomes, facts = run_pytest(tmp_path, "public_id_outcomes", "public_id_loaded")
    assert {"passed"} == {outcome.outcome for outcome in outcomes.values()}
    assert [fact["works"] for fact in facts] == [True]
    assert [int(str(fact["revived"])) > 0 for fact in facts] == [True]
