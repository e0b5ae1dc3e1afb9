"""Run pytest once with coverage, to see which test executes which line, and once for each slip."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["CACHE", "OUTCOMES", "Slip", "Trial", "cover", "read_lines", "read_slips", "run", "tests_of"]

ROOT = Path(__file__).parents[2]
SLIPS = Path(__file__).with_name("slips.toml")
CACHE = ROOT / ".cache" / "mutants"
OUTCOMES = ("killed", "survived", "timeout", "unsure", "stale", "broken")
"""``timeout``: a test does not end. ``unsure``: the test passes alone, or also fails without the slip. ``stale``: the
source has changed. ``broken``: pytest has not run the tests."""
_COVERAGE = CACHE / "coverage"
_PASSED = 0
_FAILED = {1, 2, 3}  # exit statuses of pytest: a test fails, a module cannot be imported, a failure cannot be shown
_NOT_IMPORTED = ("while loading conftest", "found no collectors for")
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


Lines = Mapping[str, Mapping[int, set[str]]]
"""Module → line → the tests that execute it."""


@dataclass(frozen=True)
class Slip:
    """A mistake in one module."""

    id: str
    part: str
    """The part of the library for the table: a name for several packages and modules."""
    path: str
    """The path of the module, relative to the root of the repository."""
    code: str | None
    """The source of the module with the mistake; ``None`` if the source has changed since."""
    on: str
    """The database whose tests see the mistake."""


@dataclass(frozen=True)
class Trial:
    """The outcome of the tests for one slip."""

    id: str
    part: str
    outcome: str
    tests: int = 0
    """The number of tests that were chosen."""
    seconds: float = 0.0
    killer: str = ""
    """The first test that fails."""


def read_slips(files: Sequence[Path] = ()) -> Iterator[Slip]:
    """Yield the slips of *files*, or all. ``before`` must occur once in its module, and is replaced by ``after``."""
    for file in files or [SLIPS]:
        for row in tomllib.loads(file.read_text(encoding="utf-8"))["slip"]:
            path = f"src/sqlalchemy_public_id/{row['file']}"
            source = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).exists() else ""
            code = source.replace(row["before"], row["after"]) if source.count(row["before"]) == 1 else None
            yield Slip(row["id"], row["part"], path, code, row.get("on", "sqlite"))


def cover(tests: Sequence[str]) -> Lines:
    """Run *tests*, which must pass, and return which of them execute which line."""
    CACHE.mkdir(parents=True, exist_ok=True)
    _COVERAGE.unlink(missing_ok=True)
    measure = ("--cov=sqlalchemy_public_id", "--cov-context=test", "--cov-report=", "-n", "auto", "--dist", "loadfile")
    done = _pytest(ROOT / "src", [*tests, *measure], COVERAGE_FILE=str(_COVERAGE))
    if done.returncode != _PASSED:
        raise SystemExit(f"the tests do not pass without a slip:\n{(done.stdout + done.stderr)[-4000:]}")
    return read_lines()


def read_lines() -> Lines:
    """Return which test executed which line when :func:`cover` ran last."""
    if not _COVERAGE.exists():  # every slip would survive
        raise SystemExit("no coverage was recorded yet: run once without --same-lines")
    from coverage import CoverageData  # of the group "mutants": the tests of this tool run without it

    data = CoverageData(str(_COVERAGE))
    data.read()
    return {
        Path(measured).relative_to(ROOT).as_posix(): {
            # a suffix such as "|run" follows the name of the test, which may contain a "|", too
            line: {name.rpartition("|")[0] for name in names if name}
            for line, names in data.contexts_by_lineno(measured).items()
            if any(names)
        }
        for measured in data.measured_files()
    }


def tests_of(slip: Slip, lines: Lines) -> list[str]:
    """Return the tests that execute the changed lines, starting with the files in which most tests do so.

    For a line that is executed at import, return the tests that execute any line of its module or, if there are none,
    all tests.
    """
    of_module = lines.get(slip.path, {})
    everything = {test for module in lines.values() for tests in module.values() for test in tests}
    found = {test for line in _changed_lines(slip) for test in of_module.get(line, ())}
    found = found or set[str]().union(*of_module.values()) or everything
    # an example on a page needs those before it, and an example in a docstring runs in the module without the slip
    tests = sorted((test for test in found if test.startswith("tests/")), key=_place)
    total, own = Counter(map(_file, everything)), Counter(map(_file, tests))
    return sorted(tests, key=lambda test: (_needs_server(test), -own[_file(test)] / total[_file(test)], _file(test)))


def run(
    slip: Slip, tests: Sequence[str], options: Sequence[str], timeout: float, limit: float, *, again: bool = True
) -> Trial:
    """Run *tests* on a copy of the source with the slip, until a test fails.

    :param again: whether this test must fail alone, too, and pass without the slip.
    :param timeout: the time limit for one test, in seconds.
    :param limit: the time limit for all tests, in seconds.
    """
    if slip.code is None:
        return Trial(slip.id, slip.part, "stale")
    if not tests:
        return Trial(slip.id, slip.part, "survived")
    began = time.monotonic()
    with _copy(slip.path, slip.code) as copy:
        outcome, killer = _first_to_fail(copy, tests, options, timeout, limit)
        if again and outcome == "killed" and "::" in killer:
            alone = _first_to_fail(copy, [killer], options, timeout, limit)[0]
            without = _first_to_fail(ROOT / "src", [killer], options, timeout, limit)[0]
            outcome = outcome if (alone, without) == ("killed", "survived") else "unsure"
    return Trial(slip.id, slip.part, outcome, len(tests), round(time.monotonic() - began, 1), killer)


def _first_to_fail(
    source: Path, tests: Sequence[str], options: Sequence[str], timeout: float, limit: float
) -> tuple[str, str]:
    """Run *tests* on *source*, and return the outcome and its reason."""
    ends = ("-o", f"faulthandler_timeout={timeout}", "-o", "faulthandler_exit_on_timeout=true")
    with tempfile.NamedTemporaryFile("w", prefix="public-id-tests-", encoding="utf-8") as names:
        names.write("\n".join(tests))
        names.flush()
        try:
            done = _pytest(source, [*options, "-x", "-p", "no:cacheprovider", *ends, f"@{names.name}"], timeout=limit)
        except subprocess.TimeoutExpired:
            return "timeout", f"all together take more than {limit:.0f} s"
    if done.returncode == _PASSED:
        return "survived", ""
    if "Timeout (" in done.stderr:
        return "timeout", ""
    last = ((done.stdout + done.stderr).strip().splitlines() or [""])[-1]
    if done.returncode in _FAILED or any(reason in done.stderr for reason in _NOT_IMPORTED):
        match = _FAILURE.search(done.stdout)
        return "killed", match[1] if match else last
    return "broken", last


def _pytest(
    source: Path, arguments: Sequence[str], *, timeout: float | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest with the library in the folder *source*."""
    path = os.pathsep.join((str(source), str(ROOT)))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tools.mutants.origin", *arguments],
        cwd=ROOT,
        env={**os.environ, **variables, "PYTHONPATH": path, "PUBLIC_ID_SOURCE": str(source)},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


@contextmanager
def _copy(path: str, code: str) -> Iterator[Path]:
    """Copy the source, write *code* into the module *path* of the copy, and yield its folder."""
    with tempfile.TemporaryDirectory(prefix="public-id-mutant-") as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy.parent / "alembic_templates").symlink_to(ROOT / "alembic_templates")  # where a checkout has them
        (copy.parent / path).write_text(code, encoding="utf-8")
        yield copy


def _changed_lines(slip: Slip) -> set[int]:
    """Return the changed lines of the source, and the other lines of their statements."""
    if slip.code is None:
        return set()
    source = (ROOT / slip.path).read_text(encoding="utf-8")
    changed: set[int] = set()
    matcher = SequenceMatcher(None, source.splitlines(), slip.code.splitlines(), autojunk=False)
    for tag, first, last, *_ in matcher.get_opcodes():
        if tag != "equal":
            changed.update(range(first + 1, last + 1) if last > first else (first, first + 1))
    return changed.union(*(span for span in _statements(source) if changed & span))


def _statements(source: str) -> Iterator[set[int]]:
    """Yield the lines of each statement, up to its body if it has one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            body: list[ast.AST] = getattr(node, "body", [])
            last = min((part.lineno for part in body if isinstance(part, ast.stmt)), default=(node.end_lineno or 0) + 1)
            yield set(range(node.lineno, last))


def _file(test: str) -> str:
    return test.partition("::")[0]


def _place(test: str) -> tuple[str, int, str]:
    """Return the position of a test's function in its file: some tests pass only in this order."""
    function = test.partition("[")[0].rpartition("::")[2]
    return _file(test), _text_of(_file(test)).find(f"def {function}("), test


@cache
def _text_of(file: str) -> str:
    path = ROOT / file
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _needs_server(test: str) -> bool:
    """Return True for tests that need a server. They run last, because most slips are caught without them."""
    return any(server in test for server in ("postgresql", "mysql", "mariadb"))
