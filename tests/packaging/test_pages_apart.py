"""Pages whose examples load packages that change SQLAlchemy for the whole process, each run in its own process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", ["guides/history-and-listeners.md"])
def test_page_is_a_program(page: str, tmp_path: Path) -> None:
    """The examples of a page run in order, as one program."""
    blocks = FENCE.findall((DOCS / page).read_text())
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks))
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)

    assert len(blocks) > 2
    assert (ended.returncode, ended.stderr) == (0, "")
