"""Public ids in the models and routes of a web application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated

from fastapi import Depends, FastAPI
from models import Customer, CustomerId, User
from pydantic import BaseModel
from sqlalchemy import ColumnElement
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session
from typing_extensions import assert_type

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.ext.fastapi import Finding, by_public_id, install, lint_app
from sqlalchemy_public_id.ext.pydantic import PublicId, PublicModel

Coupon = Annotated[str, PublicId(NanoId(prefix="cpn"))]


class CustomerOut(PublicModel, model=Customer):
    public_id: CustomerId


class UserOut(PublicModel, model=User):
    public_id: Annotated[str, PublicId(User)]
    name: str


class Wanted(BaseModel):
    customer: CustomerId
    coupon: Coupon | None = None


def get_session() -> Iterator[Session]:
    yield Session()


def named() -> ColumnElement[bool]:
    return User.name == "Ada"


assert_type(by_public_id(User, session=get_session), Callable[..., Awaitable[User]])

UserRow = Annotated[User, Depends(by_public_id(User, session=get_session, scope=named, malformed=422))]

app = FastAPI()
install(app)


@app.get("/users/{user_id}")
def show(user: UserRow) -> UserOut:
    return UserOut.model_validate(user)


def responses(session: Session, users: list[User], wanted: Wanted) -> UserOut:
    assert_type(wanted.customer, CustomerId)
    assert_type(wanted.coupon, str | None)
    assert_type(UserOut.many(session, users), list[UserOut])
    return UserOut.of(session, users[0])


async def responses_awaited(session: AsyncSession, users: list[User]) -> None:
    assert_type(await session.run_sync(UserOut.of, users[0]), UserOut)
    assert_type(await session.run_sync(UserOut.many, users), list[UserOut])


def check() -> list[Finding]:
    return [finding for finding in lint_app(app) if finding.is_leak]
