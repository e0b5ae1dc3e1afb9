"""Tables with cluster keys, and schemas for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, text
from support.cluster_models import models


@pytest.fixture
def depots(create: Callable[[MetaData], None]) -> Callable[..., Any]:
    """Return a function that creates tables with cluster keys, and returns the model of depots."""

    def make(*keys: Any, **options: Any) -> Any:
        metadata, Depot, _ = models(*keys, **options)
        create(metadata)
        return Depot

    return make


@pytest.fixture
def new_schema(engine: Engine) -> Iterator[Callable[[], str]]:
    """Yield a function that creates schemas, which are dropped after the test; MySQL has them server-wide."""
    made: list[str] = []

    def make() -> str:
        made.append(f"cluster_attic_{os.getpid()}_{len(made)}")
        with engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {made[-1]}"))
        return made[-1]

    yield make
    with engine.begin() as connection:
        for schema in made:
            cascade = " CASCADE" if engine.name == "postgresql" else ""
            connection.execute(text(f"DROP SCHEMA {schema}{cascade}"))
