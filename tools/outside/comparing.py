"""Compare the outcomes of one suite without the library and with it. These are pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Broken", "Outcome", "Outcomes", "failed", "files", "read", "regressions"]


class Broken(Exception):
    """A run that proves nothing: it crashed, hung, had no database, or did not use the library."""


@dataclass(frozen=True)
class Outcome:
    """How a test ended, and the last line of its traceback if it failed."""

    outcome: str  # passed, failed or skipped
    cause: str = ""


Outcomes = Mapping[str, Outcome]

_ORDER = ("passed", "skipped", "failed")


def read(lines: Iterable[str]) -> dict[str, Outcome]:
    """Return the outcome of each test: the worst one of its setup, call and teardown."""
    outcomes: dict[str, Outcome] = {}
    for line in lines:
        test, outcome, cause = json.loads(line)
        before = outcomes.get(test)
        if before is None or _ORDER.index(outcome) > _ORDER.index(before.outcome):
            outcomes[test] = Outcome(outcome, cause)
    return outcomes


def failed(outcomes: Outcomes) -> set[str]:
    """Return the tests that failed."""
    return {test for test, outcome in outcomes.items() if outcome.outcome == "failed"}


def regressions(without: Outcomes, loaded: Outcomes) -> dict[str, str]:
    """Return test → cause for tests that fail only with the library, or that pass without it and do not run with it."""
    found = {test: loaded[test].cause for test in sorted(failed(loaded) - failed(without))}
    for test, outcome in without.items():
        if outcome.outcome == "passed" and test not in found:
            if test not in loaded:
                found[test] = "did not run"
            elif loaded[test].outcome == "skipped":
                found[test] = "was skipped"
    return found


def files(tests: Iterable[str]) -> list[str]:
    """Return the files of *tests*, each once."""
    return sorted({test.partition("::")[0] for test in tests})
