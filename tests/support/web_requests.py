"""Send requests to an application in memory, and raise its errors: ``asked(app, "/items/1", "/items/2")``."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx


def asked(app: Any, *paths: str, method: str = "GET", **request: Any) -> list[httpx.Response]:
    """Return the responses of *app* at *paths*."""
    return asyncio.run(asking(app, *paths, method=method, **request))


async def asking(app: Any, *paths: str, method: str = "GET", **request: Any) -> list[httpx.Response]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return [await client.request(method, path, **request) for path in paths]
