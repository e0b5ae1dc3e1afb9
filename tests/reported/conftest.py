"""What several tests of reported defects use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import event


@pytest.fixture
def listen() -> Iterator[Callable[..., None]]:
    """Listen to an event until the end of the test."""
    listening: list[tuple[Any, str, Callable[..., Any]]] = []

    def listen(target: Any, name: str, fn: Callable[..., Any], **options: Any) -> None:
        event.listen(target, name, fn, **options)
        listening.append((target, name, fn))

    yield listen
    for each in reversed(listening):
        event.remove(*each)


@pytest.fixture
def send() -> Callable[..., httpx.Response]:
    """Send one request to an application: ``send(app, "GET", "/items")``. A crash of the application is a 500."""

    def send(app: Any, method: str, path: str, **options: Any) -> httpx.Response:
        async def request() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, **options)

        return asyncio.run(request())

    return send
