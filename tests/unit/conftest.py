"""What several of these tests need."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns a hundred times more often than usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 100)
    yield
    sys.setswitchinterval(usual)
