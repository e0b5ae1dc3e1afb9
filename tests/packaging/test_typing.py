"""Five type checkers on programs they must accept, and on programs full of mistakes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests/typing"
ACCEPTED = [PROGRAMS / "models.py", *sorted(PROGRAMS.glob("should_pass/*.py"))]

MISTAKE = re.compile(r"  # wrong: (?P<mypy>[a-z-]+), (?P<pyright>\w+)(?:, not (?P<unseen>\w+))?$")
"""The comment on a line with a mistake. ty does not check the names in ``**options: Unpack[…]``."""
MISTAKES = [
    (f"tests/typing/should_fail/{program.name}", number, found)
    for program in sorted(PROGRAMS.glob("should_fail/*.py"))
    for number, line in enumerate(program.read_text().splitlines(), 1)
    if (found := MISTAKE.search(line))
]

PYTHON = sys.executable


def run(program: str, *arguments: str) -> str:
    """Return the output of a type checker for all programs."""
    command = Path(PYTHON).parent / program
    if not command.exists():
        pytest.skip(f"{program} is not installed")
    folders = ["tests/typing/models.py", "tests/typing/should_pass", "tests/typing/should_fail"]
    done = subprocess.run([command, *arguments, *folders], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr + done.stdout  # it ran to the end, and reported errors
    return done.stdout


def mypy(cache: Path) -> list[tuple[str, int, str]]:
    lines = run("mypy", "--config-file=pyproject.toml", f"--cache-dir={cache}", "--output=json").splitlines()
    found = [each for each in map(json.loads, lines) if each["severity"] == "error"]
    return [(each["file"], each["line"], each["code"]) for each in found]


def pyright(_: Path) -> list[tuple[str, int, str]]:
    found = json.loads(run("pyright", "--pythonpath", PYTHON, "--outputjson"))["generalDiagnostics"]
    return [
        (Path(each["file"]).relative_to(ROOT).as_posix(), each["range"]["start"]["line"] + 1, each["rule"])
        for each in found
    ]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_mistakes_are_found_and_nothing_else(
    checker: Callable[[Path], list[tuple[str, int, str]]], tmp_path: Path
) -> None:
    """Each checker reports every mistake once, by the rule in the comment beside it, and reports nothing else."""
    assert len(MISTAKES) > 20
    assert sorted(checker(tmp_path)) == [(file, line, found[checker.__name__]) for file, line, found in MISTAKES]


OTHERS = {
    "basedpyright": (["--pythonpath", PYTHON], r"(?P<file>\S+\.py):(?P<line>\d+):\d+ - error"),
    "ty": (["check", "--output-format", "concise", "--python", PYTHON], r"(?P<file>\S+\.py):(?P<line>\d+):\d+: error"),
    "pyrefly": (
        [
            *("check", "--preset", "default", "--output-format", "min-text"),
            *("--python-interpreter-path", PYTHON),
            *("--search-path", "tests/typing", "--search-path", "src"),
        ],
        r"ERROR (?P<file>\S+\.py):(?P<line>\d+):",
    ),
}


@pytest.mark.parametrize("checker", OTHERS)
def test_other_checkers(checker: str) -> None:
    """Other type checkers report the mistakes as well, and never a correct line."""
    options, pattern = OTHERS[checker]
    complaints = re.finditer(pattern, run(checker, *options))
    found = {(str((ROOT / one["file"]).relative_to(ROOT)), int(one["line"])) for one in complaints}

    assert found == {(file, line) for file, line, one in MISTAKES if one["unseen"] != checker}


def test_accepted_programs_run() -> None:
    """Programs that the checkers accept also run: the models can be mapped and the constructors called."""
    names = [path.relative_to(PROGRAMS).with_suffix("").as_posix().replace("/", ".") for path in ACCEPTED]
    program = f"import {', '.join(names)}; models.Base.registry.configure(); models.DataBase.registry.configure()"
    done = subprocess.run([PYTHON, "-c", program], cwd=PROGRAMS, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
