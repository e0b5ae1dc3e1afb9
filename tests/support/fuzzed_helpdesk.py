"""Send nested, wide and long requests to the helpdesk, and print what they cost: ``fuzzed_helpdesk.py 10000``.

Each request is sent twice: first to a helpdesk in which a handler of one line answers the errors of the library, then
to the helpdesk itself, with the handlers of ``install()``.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import json
import random
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Generator, Iterator
from statistics import fmean
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exception_handlers import request_validation_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import StaticPool

from examples.helpdesk.app import create_app
from examples.helpdesk.models import TagId, Ticket, TicketId, UserId
from examples.helpdesk.sample import some_rows, tables
from sqlalchemy_public_id import IdempotencyConflict, InvalidPublicId, PublicIdNotFound

LONGEST = 20
"""How many of the longest stalls of each kind are averaged: a single one may be an accident of the machine."""


class Steps:
    """Awaits a coroutine, and measures the CPU time of the longest step, in which the event loop does nothing else."""

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.coroutine = coroutine
        self.longest = 0.0

    def __await__(self) -> Generator[Any, Any, None]:
        while True:
            began = time.thread_time()
            try:
                waiting = self.coroutine.send(None)
            except StopIteration:
                return
            finally:
                self.longest = max(self.longest, time.thread_time() - began)
            yield waiting


def junk(chance: random.Random, least: float, most: float) -> str:
    """Return JSON that is nested, wide or long, or all of these; *least* and *most* are the numbers of digits."""
    count = int(10 ** chance.uniform(least, most))
    values: list[Callable[[], Any]] = [
        lambda: [0] * count,
        lambda: [{}] * count,
        lambda: {f"k{number}": None for number in range(count)},
        lambda: "a " * count,
        lambda: "\u00e9" * count,
        lambda: [10 ** min(count, 4000)],
        lambda: [f"user_{number:012}" for number in range(count)],
    ]
    depth = chance.choice([0, 0, 1, 10, 300, 800])
    return "[" * depth + json.dumps(chance.choice(values)(), ensure_ascii=False) + "]" * depth


def requests(count: int, known: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield kind, method, path and body of each request."""
    chance = random.Random(41)
    for number in range(count):
        rest = junk(chance, 5, 5.8) if number % 100 == 0 else junk(chance, 0, 4)
        wrong = [f'"{UserId()}"', '"customer_x"', junk(chance, 0, 3)][number % 3]
        new = f'{{"subject": "x", "assignee_public_id": {wrong}, "more": {rest}}}'
        kind = ["unknown", "malformed", "malformed"][number % 3]
        match chance.randrange(6):
            case 0 | 1:
                yield f"{kind} id", "POST", "/tickets", f"[{new}]"
            case 2:
                yield f"{kind} id", "PATCH", f"/tickets/{known}", new
            case 3:
                yield f"{kind} id", "PUT", f"/tickets/{TicketId()}", new
            case 4:
                yield "unknown tag", "POST", "/tickets", f'[{{"subject": "x", "tags": ["{TagId()}"], "m": {rest}}}]'
            case _:
                text = "a" * chance.randrange(60_000)
                path = [f"/tickets?after={text}", f"/tickets/{text}", f"/tickets?assignee_public_id={text}"][number % 3]
                yield "url", "GET", path, ""


def with_plain_handlers(app: FastAPI) -> FastAPI:
    async def refuse(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": "unknown"}, 422)

    for error in (PublicIdNotFound, InvalidPublicId, IdempotencyConflict):
        app.add_exception_handler(error, refuse)
    app.add_exception_handler(RequestValidationError, request_validation_exception_handler)  # type: ignore[arg-type]
    return app


async def send(app: FastAPI, token: str, method: str, path: str, body: str) -> tuple[int, float]:
    """Return the status of a response, and its longest step in seconds."""
    statuses: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body.encode(), "more_body": False}

    async def answer(message: Any) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    url, _, query = path.partition("?")
    headers = [(b"authorization", f"Bearer {token}".encode()), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": method, "path": url, "query_string": query.encode(), "headers": headers}
    steps = Steps(app(scope, receive, answer))
    await steps
    return statuses[0], steps.longest


async def measure(count: int) -> dict[str, Any]:
    """Return what *count* requests have cost.

    ``memory`` is the most that the process has had, in MB, and ``plain_memory`` what it would have been without what
    the helpdesk added to it after the plain one. ``stalls`` has the longest stalls in ms, by kind of request, of the
    plain helpdesk and of the helpdesk itself.
    """
    engine = create_async_engine("sqlite+aiosqlite://", poolclass=StaticPool)
    apps = [with_plain_handlers(create_app(engine)), create_app(engine)]
    stalls: defaultdict[str, list[list[float]]] = defaultdict(lambda: [[], []])
    statuses: Counter[int] = Counter()
    rises = [0.0, 0.0]
    async with tables(engine):
        logins: dict[str, str] = {}
        rows = some_rows(logins)
        async with AsyncSession(engine, expire_on_commit=False) as session:
            session.add_all(rows)
            await session.commit()
            known = next(row.public_id for row in rows if isinstance(row, Ticket))
        for _, *request in requests(100, known):  # fills caches
            for app in apps:
                await send(app, logins["Ada"], *request)
        for kind, *request in requests(count, known):
            for number, app in enumerate(apps):
                gc.collect(1)  # otherwise the garbage of one helpdesk would be collected in the time of the other
                before = memory()
                status, longest = await send(app, logins["Ada"], *request)
                rises[number] += memory() - before
                stalls[kind][number].append(longest)
            statuses[status] += 1
            if statuses.total() % 100 == 0:
                gc.collect()
    return {
        "memory": memory(),
        "plain_memory": memory() - rises[1],
        "stalls": {
            kind: [1000 * fmean(heapq.nlargest(LONGEST, each)) for each in both] for kind, both in stalls.items()
        },
        "statuses": statuses,
    }


def memory() -> float:
    """Return the most memory that the process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    gc.disable()
    sys.stdout.write(json.dumps(asyncio.run(measure(int(sys.argv[1])))) + "\n")
