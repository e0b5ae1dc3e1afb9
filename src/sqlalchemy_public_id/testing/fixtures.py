"""Pytest fixtures for the context managers of :mod:`sqlalchemy_public_id.testing`.

.. code-block:: python

    # conftest.py
    pytest_plugins = ["sqlalchemy_public_id.testing.fixtures"]


    # test_signup.py
    def test_signup_survives_a_collision(session, forced_collisions):
        taken = sign_up(session, "Ada").public_id
        forced_collisions(User, taken, times=3)

        assert sign_up(session, "Grace").public_id != taken
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from sqlalchemy_public_id import testing

__all__ = ["fixed_public_ids", "forced_collisions"]


@pytest.fixture
def fixed_public_ids() -> Iterator[Callable[..., None]]:
    """Apply :func:`~sqlalchemy_public_id.testing.fixed_ids` until the end of the test."""
    with ExitStack() as stack:

        def fix(target: Any, *public_ids: str, attribute: str | None = None) -> None:
            stack.enter_context(testing.fixed_ids(target, *public_ids, attribute=attribute))

        yield fix


@pytest.fixture
def forced_collisions() -> Iterator[Callable[..., None]]:
    """Apply :func:`~sqlalchemy_public_id.testing.collisions` until the end of the test."""
    with ExitStack() as stack:

        def force(target: Any, taken: str, times: int = 1, attribute: str | None = None) -> None:
            stack.enter_context(testing.collisions(target, taken, times, attribute))

        yield force
