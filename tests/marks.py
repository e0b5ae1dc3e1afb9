"""Marks that several test modules use."""

from __future__ import annotations

import pytest
import servers


def on(*databases: str) -> pytest.MarkDecorator:
    """Run the test on these databases only."""
    return pytest.mark.parametrize("database", databases, indirect=True)


def on_async(*databases: str) -> pytest.MarkDecorator:
    """Run the test on these databases only, with each of their asynchronous drivers."""
    drivers = [pair for pair in servers.ASYNC_DRIVERS if pair[0] in databases]
    return pytest.mark.parametrize("async_engine", drivers, ids=map("-".join, drivers), indirect=True)
