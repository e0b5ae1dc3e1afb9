"""Write the outcome of every test of a suite to a file, line by line, so that a crash loses only one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

VARIABLE = "PUBLIC_ID_OUTCOMES"
"""The environment variable that names the file."""


class Outcomes:
    """The pytest hooks that write the file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:  # a module that cannot be imported counts as a failure, not as missing tests
            self._write(report.nodeid, "failed", report.longreprtext)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._write(report.nodeid, report.outcome, report.longreprtext)

    def pytest_unconfigure(self) -> None:
        self._file.close()

    def _write(self, test: str, outcome: str, text: str) -> None:
        cause = text.strip().rpartition("\n")[2] if outcome == "failed" else ""
        self._file.write(json.dumps([test, outcome, cause[:300]]) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Register the hooks if the variable names a file."""
    path = os.environ.get(VARIABLE)
    if path and not hasattr(config, "workerinput"):  # pytest-xdist reports everything to the process that started it
        config.pluginmanager.register(Outcomes(Path(path)))
