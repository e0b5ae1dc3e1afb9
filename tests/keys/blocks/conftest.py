"""Allocators of block keys for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine

from sqlalchemy_public_id.keys import BlockAllocator


@pytest.fixture
def allocators(engine: Engine) -> Iterator[Callable[..., BlockAllocator]]:
    """Yield a function that makes allocators of the sequence ``order``, whose table is dropped after the test."""
    made = [BlockAllocator(engine, "order")]
    table = made[0].table
    table.drop(engine, checkfirst=True)
    made[0].create_table()

    def make(name: str = "order", engine: Engine = engine, **options: Any) -> BlockAllocator:
        made.append(BlockAllocator(engine, name, **({"timeout": 30, "block": 100, "start": 0} | options)))
        return made[-1]

    yield make
    for allocator in made:
        allocator.close()
    table.drop(engine, checkfirst=True)
