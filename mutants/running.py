"""Runs of pytest: once with coverage, to see which test executes which line, and once for each mutant."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from coverage import CoverageData

from mutants.candidates import Mutant

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache" / "mutants"
OUTCOMES = ("killed", "survived", "broken")
PASSED = 0
_FAILED = {1, 2, 3}  # exit statuses of pytest: a test fails, a module cannot be imported, a failure cannot be shown
_NOT_IMPORTED = ("while loading conftest", "found no collectors for")


@dataclass(frozen=True)
class Result:
    """A mutant, and the outcome of the tests that execute its line."""

    mutant: Mutant
    outcome: str
    """``killed``, ``survived``, or ``broken``: the operator changes nothing, or pytest does not run the tests."""
    tests: int
    diff: str


def cover(tests: Sequence[str], label: str) -> dict[str, dict[int, set[str]]]:
    """Return module → line → the tests that execute it. The tests run the first time, and must pass."""
    CACHE.mkdir(parents=True, exist_ok=True)
    file = CACHE / f"{label}.coverage"
    if not file.exists():
        measure = ("--cov=sqlalchemy_public_id", "--cov-context=test", "--cov-report=")
        part = file.with_suffix(".part")
        done = run_pytest(ROOT / "src", [*tests, *measure, "-n", "auto"], {"COVERAGE_FILE": str(part)})
        if done.returncode != PASSED:
            raise SystemExit(f"the tests do not pass without a mutant:\n{done.stdout[-4000:]}")
        part.rename(file)
    data = CoverageData(str(file))
    data.read()
    lines: dict[str, dict[int, set[str]]] = {}
    for measured in data.measured_files():
        contexts = data.contexts_by_lineno(measured)
        lines[Path(measured).relative_to(ROOT).as_posix()] = {
            # "|run" and its like follow the name of the test, which may have a "|" of its own
            line: {name.rpartition("|")[0] for name in names if name}
            for line, names in contexts.items()
            if any(names)
        }
    return lines


def run(mutant: Mutant, tests: set[str], options: Sequence[str], timeout: float) -> Result:
    """Run *tests* on a copy of the source that has the mutant."""
    source = (ROOT / mutant.path).read_text(encoding="utf-8")
    mutated = mutant.code(source)
    if mutated is None:
        return Result(mutant, "broken", 0, "")
    # Sybil imports a module whose docstrings it runs by its path, which is that of the module without the mutant.
    names = sorted((test for test in tests if not test.startswith("src/")), key=_cost)
    if not names:
        return Result(mutant, "survived", 0, _changed_line(source, mutated))
    with copy_with(mutant.path, mutated) as copy:
        arguments = copy.parent / "tests"
        arguments.write_text("\n".join(names), encoding="utf-8")
        try:
            # Each test has its own limit: that of the whole is for a module that is imported for ever.
            done = run_pytest(
                copy, [*options, *until_killed(timeout), f"@{arguments}"], {}, 10 * timeout + 5 * len(names)
            )
        except subprocess.TimeoutExpired:
            outcome = "killed"
        else:
            outcome = outcome_of(done)
    return Result(mutant, outcome, len(names), _changed_line(source, mutated))


@contextmanager
def copy_with(path: str, code: str) -> Generator[Path]:
    """Make a copy of the source in which the module *path* has other *code*, and return its folder."""
    with tempfile.TemporaryDirectory(prefix="public-id-mutant-") as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy.parent / "alembic_templates").symlink_to(ROOT / "alembic_templates")  # where a checkout has them
        (copy.parent / path).write_text(code, encoding="utf-8")
        yield copy


def outcome_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the outcome that the exit status of pytest shows."""
    if done.returncode == PASSED:
        return "survived"
    failed = done.returncode in _FAILED or any(reason in done.stderr for reason in _NOT_IMPORTED)
    return "killed" if failed else "broken"


def until_killed(timeout: float) -> list[str]:
    """Stop at the first test that fails, or that does not end in time."""
    limit = ("-o", f"faulthandler_timeout={timeout}", "-o", "faulthandler_exit_on_timeout=true")
    return ["-x", "-p", "no:cacheprovider", *limit]


def file_of(test: str) -> str:
    """Return the file of a test."""
    return test.partition("::")[0]


def place_of(test: str) -> tuple[str, int, str]:
    """Return the position of a test, that of its function in its file: some tests pass in that order only."""
    function = test.partition("[")[0].rpartition("::")[2]
    return file_of(test), _text_of(file_of(test)).find(f"def {function}("), test


@cache
def _text_of(file: str) -> str:
    path = ROOT / file
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _cost(test: str) -> tuple[bool, str, int, str]:
    """Return the position of a test: those of servers come last, for most mutants are killed without them."""
    return any(server in test for server in ("postgresql", "mysql", "mariadb")), *place_of(test)


def run_pytest(
    source: Path, arguments: Sequence[str], environment: dict[str, str], timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run pytest with the library of the folder *source*."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "mutants.origin", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment, "PYTHONPATH": str(source), "PUBLIC_ID_SOURCE": str(source)},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def _changed_line(source: str, mutated: str) -> str:
    pairs = zip(source.splitlines(), mutated.splitlines(), strict=False)
    return next((f"{before.strip()} → {after.strip()}" for before, after in pairs if before != after), "")
