"""The simulation finds mistakes that are put into the write path by hand, without being told where."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "sqlalchemy_public_id"

SLIPS = {slip["what"]: slip for slip in tomllib.loads((Path(__file__).parent / "slips.toml").read_text())["slip"]}
"""What somebody could get wrong → the file, the lines as they are, and the lines with the mistake."""

SEARCH = """
import sys
sys.path.insert(0, sys.argv[1])
from simulation.exploring import plain_histories, random_history, with_every_fault
from simulation.running import run
from simulation.storage import FAMILIES

import sqlalchemy_public_id
assert sqlalchemy_public_id.__file__.startswith(sys.argv[2]), sqlalchemy_public_id.__file__

def results():
    for family in FAMILIES:
        yield from (run(history) for _, history in plain_histories(family))
    for seed in range(2000):
        yield run(random_history(seed))
    for family in FAMILIES:
        for _, history in plain_histories(family):
            yield from with_every_fault(history)

for number, result in enumerate(results(), start=1):
    if result.kinds:
        print(number, *sorted(result.kinds), sep="; ")
        sys.exit(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("slip", SLIPS)
def test_slip_is_found(slip: str, tmp_path: Path) -> None:
    """A mistake in the write path leads to a history that breaks a rule."""
    file, before, after = (SLIPS[slip][name] for name in ("file", "before", "after"))
    copy = tmp_path / "src" / "sqlalchemy_public_id"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    text = (copy / file).read_text()
    assert text.count(before) == 1, f"{file} has changed: write the slip for what it is now"
    (copy / file).write_text(text.replace(before, after))
    tests = str(ROOT / "tests")
    command = [sys.executable, "-c", SEARCH, tests, str(tmp_path)]
    found = subprocess.run(command, env={"PYTHONPATH": str(tmp_path / "src")}, capture_output=True, text=True)
    assert found.returncode == 3, found.stderr[-2000:]
