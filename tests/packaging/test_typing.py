"""Five type checkers on programs they must accept and on programs with one mistake each."""

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
PROGRAMS = ROOT / "tests/typing"
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
    pytest.importorskip(checker)
    command = [sys.executable, "-m", checker, *arguments, "tests/typing"]
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


PYTHON = sys.executable
FOLDERS = ["tests/typing/models.py", "tests/typing/should_pass", "tests/typing/should_fail"]
OTHERS = {
    "basedpyright": (["--pythonpath", PYTHON], r"(?P<file>\S+\.py):(?P<line>\d+):\d+ - error"),
    "ty": (["check", "--output-format", "concise", "--python", PYTHON], r"(?P<file>\S+\.py):(?P<line>\d+):\d+: error"),
    "pyrefly": (
        [
            *("check", "--output-format", "min-text", "--python-interpreter-path", PYTHON),
            *("--search-path", "tests/typing", "--search-path", "src"),
        ],
        r"ERROR (?P<file>\S+\.py):(?P<line>\d+):",
    ),
}
UNSEEN = {
    # ty does not check the names in **options: Unpack[…]
    "ty": {"get_many_with_unknown_option", "get_one_with_unknown_option", "lookup_with_unknown_option"},
}


@pytest.mark.parametrize("checker", OTHERS)
def test_other_checkers(checker: str) -> None:
    """Other type checkers complain of the mistakes as well, and never of a correct program."""
    options, pattern = OTHERS[checker]
    program = Path(sys.executable).parent / checker
    if not program.exists():
        pytest.skip(f"{checker} is not installed")
    command = [str(program), *options, *FOLDERS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = {(ROOT / match["file"], int(match["line"])) for match in re.finditer(pattern, done.stdout)}
    seen = [program for program in REFUSED if program.stem not in UNSEEN.get(checker, set())]
    mistakes = {mistake(program, "mypy") for program in seen}

    assert done.returncode == 1, done.stdout + done.stderr
    assert found == {(complaint.file, complaint.line) for complaint in mistakes}


def test_accepted_programs_run() -> None:
    """What the checkers accept also runs: the models can be mapped and the constructors called."""
    names = [path.relative_to(PROGRAMS).with_suffix("").as_posix().replace("/", ".") for path in ACCEPTED]
    program = f"import {', '.join(names)}; models.Base.registry.configure(); models.DataBase.registry.configure()"
    done = subprocess.run([sys.executable, "-c", program], cwd=PROGRAMS, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
