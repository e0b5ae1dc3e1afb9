"""The page on GraphQL is a program, which counts its statements and looks for keys in its answers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "graphql.md"
BY_HAND = Path(__file__).with_name("graphql_by_hand.py")
FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ROW = re.compile(r"^\| (.+?) \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    program = tmp_path / "page.py"
    program.write_text("\n".join(FENCE.findall(PAGE.read_text())))
    return program


def run(program: Path) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended


def test_page_is_a_program(program: Path) -> None:
    """The examples of the page run in order, as one program."""
    assert "7770" not in run(program).stderr, "the log has a key"


def test_statements_beside_those_by_hand(program: Path) -> None:
    """Each query returns what plain SQLAlchemy returns, with as many statements; the page's table has the numbers."""
    by_hand = program.with_name(BY_HAND.name)
    by_hand.write_text(BY_HAND.read_text())
    counts: dict[str, list[int]] = json.loads(run(by_hand).stdout)

    assert {name: [int(each) for each in numbers] for name, *numbers in ROW.findall(PAGE.read_text())} == counts
    assert all(page <= separate for page, separate, _ in counts.values())
