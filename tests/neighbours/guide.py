"""The examples of the guide to integrations that need packages of ``make neighbours``."""

from __future__ import annotations

import re
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "integrations.md"


def section(title: str) -> str:
    """Return the section *title* of the guide."""
    [text] = re.findall(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    return str(text)


def examples(title: str) -> list[str]:
    """Return the fences of the section *title*. Pytest runs none of them, for lack of packages."""
    return re.findall(r"^```text\n(.*?)^```$", section(title), re.DOTALL | re.MULTILINE)
