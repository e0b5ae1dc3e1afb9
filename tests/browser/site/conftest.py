"""Serve the built documentation. ``make docs`` builds it and runs these tests on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.served_folders import served

ROOT = Path(__file__).parents[3]

collect_ignore_glob = [] if "SITE" in os.environ else ["test_*.py"]
"""Without ``SITE``, these tests are not collected: ``make docs``, which ``.ci/run`` calls, runs them."""


@pytest.fixture(scope="session")
def site() -> Path:
    """Return the folder of the site."""
    return ROOT / os.environ["SITE"]


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Serve the site, and yield its address."""
    with served(site) as address:
        yield address
