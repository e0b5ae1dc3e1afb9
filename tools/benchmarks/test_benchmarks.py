"""The tables and pictures of the benchmarks match the stored results."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
from tools.benchmarks import counted, instructions, pictures, report
from tools.benchmarks.databases import Bench
from tools.benchmarks.measure import Subject, Unavailable, compared

pytestmark = pytest.mark.housekeeping

FOLDER = report.RESULTS.parent
PAGE = FOLDER / "README.md"
AGAIN = "run python -m tools.benchmarks --write"


def run_of(folder: Path, name: str, what: str, ours: list[float]) -> None:
    """Write a results file with one comparison."""
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
    """Each suite has a table in the README, which equals the one generated from its results."""
    text = PAGE.read_text()

    assert [match["name"] for match in report.BLOCK.finditer(text)] == list(report.SUITES)
    assert report.filled(text) == text, AGAIN


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_the_pictures_are_those_of_the_stored_results(name: str) -> None:
    """A picture contains the digest of the results that it shows, and the README shows the picture."""
    read, _ = pictures.PICTURES[name]

    assert pictures.digest(read(report.RESULTS)) in (report.RESULTS / name).read_text(), AGAIN
    assert f"](results/{name})" in PAGE.read_text()


def test_each_file_of_results_belongs_to_a_suite() -> None:
    """Every results file belongs to a suite or is a picture, and every suite has its module."""
    kept = {run.path for suite in report.SUITES for run in report.runs_of(suite)}
    kept |= {report.RESULTS / name for name in pictures.PICTURES}

    assert set(report.RESULTS.iterdir()) == kept
    assert [module for module in report.SUITES.values() if not (FOLDER / f"{module}.py").exists()] == []


def test_each_subject_is_first_and_last_equally_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each subject is first and last in equally many rounds; the first round does not count."""
    for name in ("collect", "freeze", "unfreeze"):  # 21 collections of the objects of all other tests took a minute
        monkeypatch.setattr(gc, name, lambda: None)
    order: list[str] = []

    def subject(name: str) -> Subject:
        return lambda: nullcontext(lambda: order.append(name))

    (one,) = compared("", {name: subject(name) for name in "abc"}, [("a", "b", None)], rounds=6)
    rounds = ["".join(order[at : at + 3]) for at in range(3, len(order), 3)]

    assert len(one.ours) == len(one.rival) == len(rounds) == 6
    assert sorted(each[0] for each in rounds) == sorted(each[-1] for each in rounds) == list("aabbcc")


@pytest.mark.parametrize(("ours", "shown"), [([1.2, 1.2, 1.4, 1.4], "**1.30**"), ([0.8, 0.9, 1.2, 1.3], "1.05")])
def test_a_rival_who_is_ahead_is_bold(tmp_path: Path, ours: list[float], shown: str) -> None:
    """A ratio is bold if the rival was ahead in three quarters of the rounds, and not if in half of them."""
    run_of(tmp_path, "bulk", "9 rows, mysql", ours)

    assert f" {shown} (" in page(tmp_path, "bulk")
    assert "Abacus" in page(tmp_path, "bulk")


def test_a_suite_may_have_a_file_for_each_database(tmp_path: Path) -> None:
    """The results of several databases are in one table."""
    run_of(tmp_path, "live-mysql", "failed, mysql", [1.0])
    run_of(tmp_path, "live-postgresql", "failed, postgresql", [2.0])

    assert "| failed | ours / theirs | **2.00**; 2 µs | 1.00; 1 µs |" in page(tmp_path, "live")


def test_what_was_not_measured_says_so(tmp_path: Path) -> None:
    """A suite without results shows the command that measures it."""
    assert "Not measured yet: `python -m tools.benchmarks --suite growth`" in page(tmp_path, "growth")


def test_figures_of_the_stored_run(tmp_path: Path) -> None:
    """A new run is held against the figures of the stored one, comparison by comparison."""
    run_of(tmp_path, "instructions", "flush of 1, sqlite", [1.5])

    assert report.figures_of("instructions", tmp_path) == {("flush of 1, sqlite", "ours", "theirs"): 1.5}
    assert report.figures_of("bulk", tmp_path) == {}


def test_a_suite_without_its_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without valgrind or a C compiler, the suite of instructions says what to install, and measures nothing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="valgrind is not installed"):
        next(instructions.run(Bench(quick=True, databases={})))
    (tmp_path / "valgrind").touch(mode=0o755)
    with pytest.raises(Unavailable, match="a C compiler are needed: apt install valgrind gcc"):
        next(instructions.run(Bench(quick=True, databases={})))


@pytest.mark.parametrize("side", counted.SIDES)
def test_both_sides_do_the_same(side: str) -> None:
    """Each side of the suite of instructions finds, pages and loads as many rows; rivals do not load the library."""
    if side not in counted.OURS:
        pytest.importorskip("fastnanoid")
    code = (
        "import sys; from tools.benchmarks.counted import *; work = Work(sys.argv[1], 'sqlite://')\n"
        "sizes = [WAYS[name](work, 30)() for name in ('get_many', 'page', 'load')]; found = WAYS['get'](work, 1)()\n"
        "print(len(sizes[0]), len(sizes[1]), len(sizes[2]), found.name, WAYS['malformed'](work, 1)(), "
        "'sqlalchemy_public_id' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, side], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["30", "12", "30", "Ada", "None", str(side in counted.OURS)]


def test_other_names_are_refused(tmp_path: Path) -> None:
    """A misspelled marker raises an error; otherwise, its text would never be updated."""
    with pytest.raises(LookupError, match="bluk"):
        page(tmp_path, "bluk")
