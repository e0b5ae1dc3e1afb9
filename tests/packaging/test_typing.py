"""mypy and pyright, both strict, on programs they must accept and on programs with one mistake each."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "typing_tests"
ACCEPTED = [PROGRAMS / "models.py", *sorted(PROGRAMS.glob("should_pass/*.py"))]
REFUSED = sorted(PROGRAMS.glob("should_fail/*.py"))

EXPECTATION = re.compile(r"# expect mypy (?P<mypy>[a-z-]+), pyright (?P<pyright>\w+)\n")


@dataclass(frozen=True)
class Complaint:
    file: Path
    line: int
    rule: str


def mypy(cache: Path) -> Iterator[Complaint]:
    for line in run("mypy", "--config-file=pyproject.toml", f"--cache-dir={cache}", "--output=json").splitlines():
        found = json.loads(line)
        if found["severity"] == "error":
            yield Complaint(ROOT / found["file"], found["line"], found["code"])


def pyright(_: Path) -> Iterator[Complaint]:
    report = json.loads(run("pyright", "--pythonpath", sys.executable, "--outputjson"))
    for found in report["generalDiagnostics"]:
        yield Complaint(Path(found["file"]), found["range"]["start"]["line"] + 1, found["rule"])


def run(checker: str, *arguments: str) -> str:
    """What *checker*, of the interpreter that runs the tests, says of all programs."""
    command = [sys.executable, "-m", checker, *arguments, "typing_tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr + done.stdout  # it ran to the end, and has complained
    return done.stdout


CHECKERS = {"mypy": mypy, "pyright": pyright}


@pytest.fixture(scope="module", params=CHECKERS)
def checker(request: pytest.FixtureRequest) -> str:
    """The name of each checker."""
    return str(request.param)


@pytest.fixture(scope="module")
def complaints(checker: str, tmp_path_factory: pytest.TempPathFactory) -> list[Complaint]:
    """The complaints of one checker, run once for all programs."""
    return list(CHECKERS[checker](tmp_path_factory.mktemp("cache")))


@pytest.mark.parametrize("program", ACCEPTED, ids=lambda path: path.stem)
def test_correct_programs_are_accepted(program: Path, complaints: list[Complaint]) -> None:
    """Neither checker complains of a correct program."""
    assert program not in [complaint.file for complaint in complaints]


@pytest.mark.parametrize("program", REFUSED, ids=lambda path: path.stem)
def test_mistakes_are_found(program: Path, checker: str, complaints: list[Complaint]) -> None:
    """Each checker complains once of a program with a mistake: where it is, by the rule the first line names."""
    text = program.read_text()
    expected = EXPECTATION.match(text)
    (wrong,) = (number for number, line in enumerate(text.splitlines(), 1) if line.endswith("  # wrong"))

    assert expected is not None
    assert [Complaint(program, wrong, expected[checker])] == [each for each in complaints if each.file == program]


def test_accepted_programs_run() -> None:
    """What the checkers accept also runs: the models can be mapped and the constructors called."""
    names = [path.relative_to(PROGRAMS).with_suffix("").as_posix().replace("/", ".") for path in ACCEPTED]
    program = f"import {', '.join(names)}; models.Base.registry.configure(); models.DataBase.registry.configure()"
    done = subprocess.run([sys.executable, "-c", program], cwd=PROGRAMS, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
