"""What the answers to errors cost, for requests that are as nested, wide and long as a client likes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST = 1.5
"""How much more than a handler of one line an answer may cost."""


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the number of requests is fixed, and they take 20 s of CPU time
def test_answers_cost_as_much_as_those_of_a_plain_handler() -> None:
    """2,000 hostile requests take no more memory, and stop the event loop no longer, than with a handler of one line.

    The stalls are CPU time, and both helpdesks get each request in turn, so other work of the machine does not matter.
    """
    program = ROOT / "tests" / "support" / "fuzzed_helpdesk.py"
    paths = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests")))}
    command = [sys.executable, str(program), "2000"]
    done = subprocess.run(command, env={**os.environ, **paths}, capture_output=True, text=True, check=True)
    costs = json.loads(done.stdout)

    assert set(costs["statuses"]) == {"404", "422"}
    assert len(costs["stalls"]) == 4
    assert costs["memory"] <= MOST * costs["plain_memory"]
    assert {kind: (plain, own) for kind, (plain, own) in costs["stalls"].items() if own > MOST * plain} == {}
