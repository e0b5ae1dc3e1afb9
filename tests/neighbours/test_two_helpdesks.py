"""The helpdesk of the examples, and the same with advanced-alchemy alone: what they answer, and how long they are."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import io
import tokenize
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import advanced_desk
import pytest
import uuid_utils
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from examples.helpdesk import app as our_app
from examples.helpdesk import models as our_models
from examples.helpdesk.models import TicketId

OURS = Path(our_app.__file__).parent
THEIRS = Path(advanced_desk.__file__)


def our_login(user: Any) -> tuple[Any, str]:
    token = our_models.TOKEN.issue()
    expires_at = our_models.now() + timedelta(days=1)
    return our_models.Login(user=user, token=token.digest, expires_at=expires_at), token.reveal()


def their_login(user: Any) -> tuple[Any, str]:
    token = f"token of {user.name}"
    expires_at = advanced_desk.now() + timedelta(days=1)
    digest = hashlib.sha256(token.encode()).digest()
    return advanced_desk.Login(user=user, digest=digest, expires_at=expires_at), token


async def start(
    engine: AsyncEngine, models: Any, metadata: Any, login: Callable[[Any], tuple[Any, str]]
) -> dict[str, Any]:
    """Create the tables with two organisations; return the tokens of their users."""
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    tokens = {}
    async with AsyncSession(engine) as session:
        for name, organisation_name in (("Ada", "Analytical Engines"), ("Eve", "Difference & Sons")):
            organisation = models.Organisation(name=organisation_name)
            user = models.User(organisation=organisation, name=name)
            row, tokens[name] = login(user)
            session.add_all([organisation, user, models.Tag(organisation=organisation, name="bug"), row])
        await session.commit()
    return tokens


async def story(app: FastAPI, tokens: dict[str, str], new_id: Callable[[], str], id: str, reference: str) -> list[Any]:
    """Return the statuses of many requests, with the facts that both programs show."""
    seen: list[Any] = []
    transport = ASGITransport(app)
    clients = {
        name: AsyncClient(
            transport=transport, base_url="http://desk", headers={"Authorization": f"Bearer {tokens[name]}"}
        )
        for name in ("Ada", "Eve")
    }
    ada, eve = clients.values()

    async def send(client: AsyncClient, method: str, path: str, body: Any = None) -> Any:
        response = await client.request(method, path, json=body)
        seen.append((method, response.status_code))
        return response.json()

    me, them = await send(ada, "GET", "/me"), await send(eve, "GET", "/me")
    seen.append((me["name"], me["organisation"]["name"]))
    tag, their_tag = [(await send(client, "GET", "/tags"))["items"][0][id] for client in (ada, eve)]
    seen.append([user["name"] for user in (await send(ada, "GET", "/users?sort=-name"))["items"]])
    await send(ada, "POST", "/tags", {"name": "bug"})
    await send(ada, "POST", "/tags", {"name": "urgent"})

    path = f"/tickets/{new_id()}"
    first = {"subject": "first", reference: me[id], "tags": [tag]}
    created, repeated = [await send(ada, "PUT", path, first) for _ in range(2)]
    seen.append(created == repeated)
    await send(ada, "PUT", path, first | {"subject": "other"})
    await send(eve, "PUT", path, {"subject": "first"})
    for wrong in ({reference: them[id]}, {reference: new_user_id(me[id])}, {"tags": [their_tag]}, {"subject": ""}):
        answer = await send(ada, "PATCH", path, wrong)
        seen.append(answer["detail"][0]["loc"][1].replace(reference, "assignee"))
        await send(ada, "POST", "/tickets", [{"subject": "new"} | wrong])
    changed = await send(ada, "PATCH", path, {"status": "closed", reference: None, "tags": []})
    seen.append((changed["status"], changed[reference], changed["tags"], changed["subject"]))
    await send(ada, "POST", "/tickets", [{"subject": f"{n}", "priority": n, "tags": [tag]} for n in (1, 4, 2)])
    for query in ("", "?sort=-priority", "?status=open&limit=2", f"?tag={tag}", f"?tag={their_tag}", "?sort=id"):
        page = await send(ada, "GET", f"/tickets{query}")
        seen.append(([ticket["subject"] for ticket in page["items"]], page["total"]) if "items" in page else None)
    for client in (ada, eve):
        await send(client, "GET", path)
        await send(client, "PATCH", path, {"subject": "mine"})
        await send(client, "POST", f"{path}/comments", {"text": "hello"})
        await send(client, "GET", f"{path}/comments")
    for client in clients.values():
        await client.aclose()
    anyone = AsyncClient(transport=transport, base_url="http://desk")
    await send(anyone, "GET", path)
    await anyone.aclose()
    return seen


def new_user_id(known: str) -> str:
    return str(uuid.uuid4()) if "-" in known else "user_000000000000"


@pytest.fixture
def engine_of(tmp_path: Path) -> Callable[[str], AsyncEngine]:
    return lambda name: create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/{name}.db")


def test_both_answer_the_same(engine_of: Callable[[str], AsyncEngine]) -> None:
    """Every request of a story has the same status, and shows the same, with either library."""

    async def both() -> list[list[Any]]:
        ours, theirs = engine_of("ours"), engine_of("theirs")
        tokens = await start(ours, our_models, our_models.Base.metadata, our_login)
        their_tokens = await start(theirs, advanced_desk, advanced_desk.UUIDv7Base.metadata, their_login)
        told = [
            await story(our_app.create_app(ours), tokens, TicketId, "public_id", "assignee_public_id"),
            await story(
                advanced_desk.create_app(theirs), their_tokens, lambda: str(uuid_utils.uuid7()), "id", "assignee_id"
            ),
        ]
        await ours.dispose()
        await theirs.dispose()
        return told

    ours, theirs = asyncio.run(both())
    assert ours == theirs
    assert len(ours) >= 50


def lines_of_code(path: Path) -> int:
    """Return the number of lines with code: without blank lines, comments and docstrings."""
    source = path.read_text(encoding="utf-8")
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0]
            if ast.get_docstring(node) is not None:
                docstrings |= set(range(first.lineno, (first.end_lineno or 0) + 1))
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in layout for line in range(token.start[0], token.end[0] + 1)}
    return len(lines - docstrings)


def test_ours_is_shorter() -> None:
    """Models, schemas and endpoints take fewer lines of code."""
    ours = sum(lines_of_code(OURS / name) for name in ("models.py", "schemas.py", "app.py"))
    theirs = lines_of_code(THEIRS)

    assert ours < theirs
