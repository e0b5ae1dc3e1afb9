"""The page on GraphQL is a program, which counts its statements and looks for keys in its answers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "graphql.md"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_page_is_a_program(tmp_path: Path) -> None:
    """The examples of the page run in order, as one program."""
    program = tmp_path / "page.py"
    program.write_text("\n".join(FENCE.findall(PAGE.read_text())))
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120)

    assert ended.returncode == 0, ended.stderr
    assert "7770" not in ended.stderr, "the log has a key"
