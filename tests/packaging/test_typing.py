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


@dataclass(frozen=True, order=True)
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


def mistake(program: Path, checker: str) -> Complaint:
    """The complaint that a program is about: at its line that is wrong, by the rule that its first line names."""
    text = program.read_text()
    expected = EXPECTATION.match(text)
    (wrong,) = (number for number, line in enumerate(text.splitlines(), 1) if line.endswith("  # wrong"))
    assert expected is not None, program
    return Complaint(program, wrong, expected[checker])


@pytest.mark.parametrize("checker", CHECKERS)
def test_mistakes_are_found_and_nothing_else(checker: str, tmp_path: Path) -> None:
    """Each checker complains once of a program with a mistake, and never of a correct one."""
    assert REFUSED
    assert sorted(CHECKERS[checker](tmp_path)) == sorted(mistake(program, checker) for program in REFUSED)


def test_accepted_programs_run() -> None:
    """What the checkers accept also runs: the models can be mapped and the constructors called."""
    names = [path.relative_to(PROGRAMS).with_suffix("").as_posix().replace("/", ".") for path in ACCEPTED]
    program = f"import {', '.join(names)}; models.Base.registry.configure(); models.DataBase.registry.configure()"
    done = subprocess.run([sys.executable, "-c", program], cwd=PROGRAMS, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
