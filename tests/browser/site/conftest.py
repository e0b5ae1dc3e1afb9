"""The built documentation, served. ``make docs`` builds it and runs these tests on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.served_folders import served

ROOT = Path(__file__).parents[3]

collect_ignore_glob = [] if "SITE" in os.environ else ["test_*.py"]
"""Without a site the folder is left to ``make docs``, which ``.ci/run`` calls."""


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the site."""
    return ROOT / os.environ["SITE"]


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """The address under which the site is served."""
    with served(site) as address:
        yield address
