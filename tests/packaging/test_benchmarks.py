"""The tables and pictures of the benchmarks show what the stored results say."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
from tools.benchmarks import pictures, report
from tools.benchmarks.measure import Subject, compared

FOLDER = report.RESULTS.parent
PAGE = FOLDER / "README.md"
AGAIN = "run python -m tools.benchmarks --write"


def run_of(folder: Path, name: str, what: str, ours: list[float]) -> None:
    """Write a file of results with one comparison."""
    sides = {"ours_name": "ours", "rival_name": "theirs", "unit": "µs", "ours": ours, "rival": [1.0] * len(ours)}
    document = {
        "date": "2026-11-23T01:02:03+00:00",
        "machine": {"processor": "Abacus", "processors": 2, "load_average": [0.1, 0.1, 0.1]},
        "versions": {"python": "3.11.7 (GCC)", "SQLAlchemy": "2.1.9"},
        "databases": {"mysql": "9.7.4"},
        "comparisons": [{"what": what, **sides}],
    }
    (folder / f"{name}.json").write_text(json.dumps(document))


def page(folder: Path, suite: str) -> str:
    return report.filled(f"<!-- generated: {suite} -->\nold\n<!-- end -->\n", folder)


def test_the_tables_are_those_of_the_stored_results() -> None:
    """Each suite has a table in the README, which is made of its files of results again, and is the same."""
    text = PAGE.read_text()

    assert [match["name"] for match in report.BLOCK.finditer(text)] == list(report.SUITES)
    assert report.filled(text) == text, AGAIN


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_the_pictures_are_those_of_the_stored_results(name: str) -> None:
    """A picture carries the digest of what it shows, and is on the page."""
    read, _ = pictures.PICTURES[name]

    assert pictures.digest(read(report.RESULTS)) in (report.RESULTS / name).read_text(), AGAIN
    assert f"](results/{name})" in PAGE.read_text()


def test_each_file_of_results_belongs_to_a_suite() -> None:
    """A suite that goes takes its results with it."""
    kept = {run.path for suite in report.SUITES for run in report.runs_of(suite)}
    kept |= {report.RESULTS / name for name in pictures.PICTURES}

    assert set(report.RESULTS.iterdir()) == kept
    assert [module for module in report.SUITES.values() if not (FOLDER / f"{module}.py").exists()] == []


def test_each_subject_is_first_and_last_equally_often() -> None:
    """Whatever comes first in a round has the same turns as the others, and the first round does not count."""
    order: list[str] = []

    def subject(name: str) -> Subject:
        return lambda: nullcontext(lambda: order.append(name))

    (one,) = compared("", {name: subject(name) for name in "abc"}, [("a", "b", None)], rounds=6)
    rounds = ["".join(order[at : at + 3]) for at in range(3, len(order), 3)]

    assert len(one.ours) == len(one.rival) == len(rounds) == 6
    assert sorted(each[0] for each in rounds) == sorted(each[-1] for each in rounds) == list("aabbcc")


@pytest.mark.parametrize(("ours", "shown"), [([1.2, 1.2, 1.4, 1.4], "**1.30**"), ([0.8, 0.9, 1.2, 1.3], "1.05")])
def test_a_rival_who_is_ahead_is_bold(tmp_path: Path, ours: list[float], shown: str) -> None:
    """It is, if it was in three quarters of the rounds; half of them are no lead."""
    run_of(tmp_path, "bulk", "9 rows, mysql", ours)

    assert f" {shown} (" in page(tmp_path, "bulk")
    assert "Abacus" in page(tmp_path, "bulk")


def test_a_suite_may_have_a_file_for_each_database(tmp_path: Path) -> None:
    """They stand in one table."""
    run_of(tmp_path, "live-mysql", "failed, mysql", [1.0])
    run_of(tmp_path, "live-postgresql", "failed, postgresql", [2.0])

    assert "| failed | ours / theirs | **2.00**; 2 µs | 1.00; 1 µs |" in page(tmp_path, "live")


def test_what_was_not_measured_says_so(tmp_path: Path) -> None:
    """The command stands where the table will be."""
    assert "Not measured yet: `python -m tools.benchmarks --suite growth`" in page(tmp_path, "growth")


def test_other_names_are_refused(tmp_path: Path) -> None:
    """A misspelt marker would keep its old text for ever."""
    with pytest.raises(LookupError, match="bluk"):
        page(tmp_path, "bluk")
