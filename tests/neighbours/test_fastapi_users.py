"""fastapi-users: with the public id as the attribute ``id``, no token and no response has the key."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import fastapi_users
import httpx
import pytest
from fastapi import FastAPI
from fastapi_users import FastAPIUsers, schemas
from fastapi_users.authentication import AuthenticationBackend, BearerTransport, JWTStrategy
from fastapi_users.authentication.strategy.db import DatabaseStrategy
from fastapi_users_db_sqlalchemy import SQLAlchemyBaseUserTable, SQLAlchemyUserDatabase
from fastapi_users_db_sqlalchemy.access_token import SQLAlchemyAccessTokenDatabase, SQLAlchemyBaseAccessTokenTable
from neighbours.guide import examples
from sqlalchemy import ForeignKey, update
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.pool import StaticPool

import sqlalchemy_public_id

SECRET = "of this test, and long enough for it"
ADA = {"email": "ada@example.org", "password": "Lovelace"}


def claims(token: str) -> Any:
    """Return what everybody can read in a token."""
    return json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "==="))


def application(names: dict[str, Any], engine: AsyncEngine, mails: list[str]) -> FastAPI:
    """Return the application of fastapi-users' documentation, with the classes of the guide."""
    user, user_id = names["User"], names["UserId"]

    class Manager(names["UserManager"]):  # type: ignore[misc]
        reset_password_token_secret = verification_token_secret = SECRET

        async def on_after_forgot_password(self, user: Any, token: str, request: Any = None) -> None:
            mails.append(token)

        async def on_after_request_verify(self, user: Any, token: str, request: Any = None) -> None:
            mails.append(token)

    async def get_manager() -> AsyncIterator[Any]:
        async with AsyncSession(engine, expire_on_commit=False) as session:
            yield Manager(SQLAlchemyUserDatabase(session, user))

    class UserRead(schemas.BaseUser[user_id]): ...  # type: ignore[valid-type]

    backend = AuthenticationBackend("jwt", BearerTransport("login"), lambda: JWTStrategy(SECRET, 600))
    users = FastAPIUsers(get_manager, [backend])
    app = FastAPI()
    for router in (
        users.get_auth_router(backend),
        users.get_register_router(UserRead, schemas.BaseUserCreate),
        users.get_verify_router(UserRead),
        users.get_reset_password_router(),
    ):
        app.include_router(router)
    app.include_router(users.get_users_router(UserRead, schemas.BaseUserUpdate), prefix="/users")
    return app


def test_example_of_the_guide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sign-up, login, e-mails and the routes of users show and accept the public id; the key finds nobody."""

    class Base(DeclarativeBase): ...

    module = ModuleType("users_of_the_guide")  # a module, because SQLAlchemy looks annotations up in it
    monkeypatch.setitem(sys.modules, module.__name__, module)
    vars(module).update({"Base": Base, "Mapped": Mapped, "SQLAlchemyBaseUserTable": SQLAlchemyBaseUserTable})
    vars(module).update({name: getattr(fastapi_users, name) for name in ("BaseUserManager", "InvalidID")})
    vars(module).update({name: getattr(sqlalchemy_public_id, name) for name in sqlalchemy_public_id.__all__})
    [example] = examples("fastapi-users")
    exec(example, vars(module))

    class AccessToken(SQLAlchemyBaseAccessTokenTable[Any], Base):
        user_id: Mapped[str] = mapped_column(ForeignKey(module.User.id))  # type: ignore[attr-defined]

    vars(module)["AccessToken"] = AccessToken
    asyncio.run(use(vars(module), create_async_engine("sqlite+aiosqlite://", poolclass=StaticPool)))


async def use(names: dict[str, Any], engine: AsyncEngine) -> None:
    mails: list[str] = []
    app = application(names, engine, mails)
    async with engine.begin() as connection:
        await connection.run_sync(names["Base"].metadata.create_all)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        ada = (await client.post("/register", json=ADA)).json()
        assert names["UserId"](ada["id"]) == ada["id"]
        async with engine.begin() as connection:
            await connection.execute(update(names["User"]).values(is_superuser=True))

        login = await client.post("/login", data={"username": ADA["email"], "password": ADA["password"]})
        token = login.json()["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        for path in ("/request-verify-token", "/forgot-password"):
            assert (await client.post(path, json={"email": ADA["email"]})).status_code == 202
        assert [claims(each)["sub"] for each in (token, *mails)] == [ada["id"]] * 3

        assert (await client.get("/users/me", headers=headers)).json()["id"] == ada["id"]
        answers = [await client.get(f"/users/{id}", headers=headers) for id in (ada["id"], 1)]
        assert [answer.status_code for answer in answers] == [200, 404]
    async with AsyncSession(engine) as session:
        strategy = DatabaseStrategy(SQLAlchemyAccessTokenDatabase(session, names["AccessToken"]))
        manager = names["UserManager"](SQLAlchemyUserDatabase(session, names["User"]))
        user = await manager.get(ada["id"])
        assert await strategy.read_token(await strategy.write_token(user), manager) is user
    await engine.dispose()
