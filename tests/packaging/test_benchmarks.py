"""The tables and pictures of the benchmarks show what the stored results say."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from benchmarks import pictures, stored, tables
from benchmarks.measure import Subject, together
from benchmarks.suites import SUITES

FOLDER = Path(stored.RESULTS).parent
PAGE = FOLDER / "README.md"
AGAIN = "python -m benchmarks --write"


def run_of(folder: Path, name: str, what: str, ours: list[float], **more: object) -> None:
    """Write a file of results with one comparison."""
    comparison = {
        "what": what,
        "ours_name": "ours",
        "rival_name": "theirs",
        "unit": "µs",
        "ours": ours,
        "rival": [1.0] * len(ours),
    }
    document = {
        "date": "2026-11-23T01:02:03+00:00",
        "command": ["python", "-m", "benchmarks"],
        "machine": {"processor": "Abacus", "processors": 2, "load_average": [0.1, 0.1, 0.1]},
        "versions": {"python": "3.11.7 (GCC)", "SQLAlchemy": "2.1.9"},
        "databases": {"mysql": "9.7.4"},
        "comparisons": [comparison],
        **more,
    }
    (folder / f"{name}.json").write_text(json.dumps(document))


def page(folder: Path, suite: str) -> str:
    return tables.filled(f"<!-- generated: {suite} -->\nold\n<!-- end -->\n", folder)


def test_the_tables_are_those_of_the_stored_results() -> None:
    """Each table of the README is made of the files of results again, and is the same."""
    assert tables.BLOCK.search(PAGE.read_text())
    assert tables.filled(PAGE.read_text(), stored.RESULTS) == PAGE.read_text(), f"run {AGAIN}"


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_the_pictures_are_those_of_the_stored_results(name: str) -> None:
    """A picture carries the digest of what it shows; without results there is none."""
    read, _ = pictures.PICTURES[name]
    data, path = read(stored.RESULTS), stored.RESULTS / name

    assert path.exists() == bool(data), f"run {AGAIN}"
    assert not data or pictures.digest(data) in path.read_text(), f"run {AGAIN}"


def test_each_subject_is_first_and_last_equally_often() -> None:
    """Whatever comes first in a round has the same turns as the others."""
    order: list[str] = []

    def subject(name: str) -> Subject:
        return lambda: nullcontext(lambda: order.append(name))

    taken = together({name: subject(name) for name in "abc"}, rounds=6)
    rounds = ["".join(order[at : at + 3]) for at in range(3, len(order), 3)]

    assert {name: len(samples.wall) for name, samples in taken.items()} == {"a": 6, "b": 6, "c": 6}
    assert sorted(each[0] for each in rounds) == sorted(each[-1] for each in rounds) == list("aabbcc")


def test_every_suite_is_in_the_list() -> None:
    """The first table of the README has a row for each suite, and each suite has its module."""
    listed = [line.split("`")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]

    assert set(SUITES) <= set(listed)
    assert [module for module in SUITES.values() if not (FOLDER / f"{module}.py").exists()] == []


def test_a_rival_who_is_ahead_is_bold(tmp_path: Path) -> None:
    """It is, if it was in three quarters of the rounds; a goal that was missed is named."""
    run_of(tmp_path, "1", "bulk: 9 rows, mysql", [1.1, 1.2, 1.3, 1.4])

    assert "**1.250** (1.175 … 1.325)" in page(tmp_path, "bulk")
    assert "Abacus" in page(tmp_path, "bulk")


def test_a_rival_who_is_ahead_now_and_then_is_not(tmp_path: Path) -> None:
    """Half of the rounds are no lead."""
    run_of(tmp_path, "1", "bulk: 9 rows, mysql", [0.8, 0.9, 1.2, 1.3])

    assert "**" not in page(tmp_path, "bulk")


def test_the_latest_run_counts_and_quick_ones_do_not(tmp_path: Path) -> None:
    """A later file replaces the suite on its databases."""
    run_of(tmp_path, "1", "bulk: 9 rows, mysql", [0.1])
    run_of(tmp_path, "2", "bulk: 8 rows, mysql", [0.2])
    run_of(tmp_path, "3", "bulk: 7 rows, mysql", [0.3], quick=True)
    shown = page(tmp_path, "bulk")

    assert "8 rows" in shown
    assert "9 rows" not in shown
    assert "7 rows" not in shown


def test_sizes_of_a_flush_are_kept_apart(tmp_path: Path) -> None:
    """A run with other sizes adds them."""
    run_of(tmp_path, "1", "rivals: flush of 1, mysql", [0.1])
    run_of(tmp_path, "2", "rivals: flush of 100,000, mysql", [0.2])

    assert "flush of 1 " in page(tmp_path, "rivals")
    assert "flush of 100,000" in page(tmp_path, "rivals")


def test_what_was_not_measured_says_so(tmp_path: Path) -> None:
    """The command stands where the table will be."""
    assert "Not measured yet: `python -m benchmarks --suite growth`" in page(tmp_path, "growth")


def test_other_names_are_refused(tmp_path: Path) -> None:
    """A misspelt marker would keep its old text for ever."""
    with pytest.raises(LookupError, match="bluk"):
        page(tmp_path, "bluk")
