"""Stories about the helpdesk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from support.web_helpdesk import Desk, opened

Story = Callable[[Desk], Awaitable[None]]


@pytest.fixture
def tell(async_engine: AsyncEngine) -> Callable[[Story], None]:
    """Run a story, with every asynchronous driver of every database."""

    async def run(story: Story) -> None:
        async with opened(async_engine) as desk:
            await story(desk)

    return lambda story: asyncio.run(run(story))
