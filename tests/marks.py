"""Marks that several test modules use."""

from __future__ import annotations

import pytest


def on(*databases: str) -> pytest.MarkDecorator:
    """Run the test on these databases only."""
    return pytest.mark.parametrize("database", databases, indirect=True)
