"""Slips: small mistakes of a maintainer, written by hand in ``slips.toml``, and the first test that fails for each.

The tests of a slip are those that execute the lines that it changes: of a line that is executed at import, those that
execute a line of its module, and, if there is none, all.
"""

from __future__ import annotations

import ast
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

import tomllib

from mutants.running import PASSED, ROOT, copy_with, file_of, outcome_of, place_of, run_pytest, until_killed

FILE = Path(__file__).with_name("slips.toml")
OUTCOMES = ("killed", "survived", "timeout", "unsure", "stale", "broken")
"""``timeout``: a test does not end. ``unsure``: the test fails without the slip, too. ``stale``: the source has
changed, and the slip has to be written again. ``broken``: pytest has not run the tests."""
_MOST_DOUBTS = 5
"""The number of tests that may fail after others, and pass alone, before a slip counts as unsure."""
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)

Lines = Mapping[str, Mapping[int, set[str]]]
"""Module → line → the tests that execute it."""


@dataclass(frozen=True)
class Slip:
    """A mistake: *before* stands once in *file*, and becomes *after*."""

    id: str
    part: str
    """The package, or the kind of module, for the table."""
    file: str
    """The module, from the folder of the package."""
    before: str
    after: str
    what: str
    """What a user would see."""

    @property
    def path(self) -> str:
        """The module, from the root of the repository."""
        return f"src/sqlalchemy_public_id/{self.file}"

    @property
    def source(self) -> str:
        """The module without the slip; empty if there is none."""
        path = ROOT / self.path
        return path.read_text(encoding="utf-8") if path.exists() else ""

    @property
    def code(self) -> str | None:
        """The module with the slip; ``None`` if that is no change of one place, or no Python."""
        source = self.source
        code = source.replace(self.before, self.after)
        if source.count(self.before) != 1 or code == source:
            return None
        try:
            ast.parse(code)
        except SyntaxError:
            return None
        return code


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


def read(file: Path = FILE) -> list[Slip]:
    """Return the slips of *file*.

    :raises ValueError: if two have one id.
    """
    slips = [Slip(**row) for row in tomllib.loads(file.read_text(encoding="utf-8"))["slip"]]
    twice = [id for id, count in Counter(slip.id for slip in slips).items() if count > 1]
    if twice:
        raise ValueError(f"{file} has two slips {', '.join(twice)}")
    return slips


def tests_of(slip: Slip, lines: Lines) -> list[str]:
    """Return the tests for *slip*, those of the files that execute the changed lines most often first."""
    of_module = lines.get(slip.path, {})
    found = {test for line in _changed_lines(slip) for test in of_module.get(line, ())}
    found = found or set[str]().union(*of_module.values())
    found = found or {test for module in lines.values() for tests in module.values() for test in tests}
    # an example of a page needs those before it, and one in a docstring is run in the module without the slip
    tests = sorted((test for test in found if test.startswith("tests/")), key=place_of)
    total = Counter(map(file_of, {test for module in lines.values() for tests in module.values() for test in tests}))
    own = Counter(map(file_of, tests))
    return sorted(tests, key=lambda test: (-own[file_of(test)] / total[file_of(test)], file_of(test)))


def _changed_lines(slip: Slip) -> set[int]:
    """Return the lines of the source that *slip* changes, with those of the statements that they belong to."""
    source = slip.source
    before, after = source.splitlines(), (slip.code or "").splitlines()
    changed: set[int] = set()
    for tag, first, last, *_ in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            changed.update(range(first + 1, last + 1) if last > first else (first, first + 1))
    return changed.union(*(span for span in _statements(source) if changed & span))


def _statements(source: str) -> Iterator[set[int]]:
    """Yield the lines of each statement that has no body; of the others, those before the body."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt):
            body: list[ast.AST] = getattr(node, "body", [])
            last = min((part.lineno for part in body if isinstance(part, ast.stmt)), default=(node.end_lineno or 0) + 1)
            yield set(range(node.lineno, last)) if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) else set()


def run(slip: Slip, tests: Sequence[str], options: Sequence[str], timeout: float, limit: float) -> Trial:
    """Run *tests*, or whole files, on a copy of the source that has *slip*, until one fails.

    :param timeout: the seconds of one test.
    :param limit: the seconds of all.
    """
    code = slip.code
    if code is None:
        return Trial(slip.id, slip.part, "stale")
    began, doubts = time.monotonic(), list[str]()
    with copy_with(slip.path, code) as copy:
        while True:
            rest = [test for test in tests if test not in doubts]
            outcome, killer = _first_to_fail(copy, rest, options, timeout, limit)
            if outcome != "killed" or "::" not in killer:
                break
            if _first_to_fail(copy, [killer], options, timeout, limit)[0] != "survived":
                break
            doubts.append(killer)  # it fails after others only, by chance, or by what they have left
            if len(doubts) == _MOST_DOUBTS:
                outcome = "unsure"
                break
    return Trial(slip.id, slip.part, outcome, len(tests), round(time.monotonic() - began, 1), killer)


def _first_to_fail(
    copy: Path, tests: Sequence[str], options: Sequence[str], timeout: float, limit: float
) -> tuple[str, str]:
    """Run *tests* with the source in *copy*, and return the outcome and its reason."""
    names = copy.parent / "tests"
    names.write_text("\n".join(tests), encoding="utf-8")
    try:
        done = run_pytest(copy, [*options, *until_killed(timeout), f"@{names}"], {}, limit)
    except subprocess.TimeoutExpired:
        return "timeout", f"all together take more than {limit:.0f} s"
    outcome, killer = outcome_of(done), _first_failure(done.stdout)
    if outcome == "killed" and not killer:
        return ("timeout", "") if "Timeout (" in done.stderr else (outcome, _last_line(done.stderr))
    return outcome, _last_line(done.stdout + done.stderr) if outcome == "broken" else killer


def _first_failure(output: str) -> str:
    match = _FAILURE.search(output)
    return match[1] if match else ""


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def run_all(
    slips: Sequence[Slip],
    lines: Lines,
    options: Sequence[str],
    *,
    also: Sequence[str],
    timeout: float,
    limit: float,
    processes: int,
) -> Iterator[Trial]:
    """Yield the trial of each slip, several side by side; those with few tests first.

    :param also: files or folders whose tests are run for each slip, before the others.
    """
    pairs = sorted(((slip, tests_of(slip, lines)) for slip in slips), key=lambda pair: len(pair[1]))
    with ThreadPoolExecutor(processes) as pool:
        yield from pool.map(lambda pair: run(pair[0], [*also, *pair[1]], options, timeout, limit), pairs)


def unsure(trials: Iterable[Trial], options: Sequence[str], timeout: float) -> set[str]:
    """Return the tests that have killed a slip, and fail without it, too."""
    killers = sorted({trial.killer for trial in trials if trial.outcome == "killed" and "::" in trial.killer})
    if not killers:
        return set()
    first = Slip("", "", "__init__.py", "", "", "")
    with copy_with(first.path, first.source) as copy:
        names = copy.parent / "tests"
        names.write_text("\n".join(killers), encoding="utf-8")
        limits = [option for option in until_killed(timeout) if option != "-x"]
        done = run_pytest(copy, [*options, *limits, f"@{names}"], {}, timeout * len(killers))
    if done.returncode not in (PASSED, 1):
        raise SystemExit(f"the tests that have failed cannot be run without a slip:\n{done.stdout[-2000:]}")
    return {match[1] for match in _FAILURE.finditer(done.stdout)} & set(killers)
