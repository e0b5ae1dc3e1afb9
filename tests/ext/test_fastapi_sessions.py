"""The session of a request, where the application keeps one in a ``scoped_session``."""
# FastAPI reads the annotations of routes, which name what is local to a test: they must not be put off

import asyncio
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from sqlalchemy import Engine, MetaData, String, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, object_session, scoped_session, sessionmaker

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, TypedId
from sqlalchemy_public_id.ext.fastapi import by_public_id


class Base(DeclarativeBase):
    metadata = MetaData()


class VisitorId(TypedId, prefix="favisitor"): ...


class Visitor(PublicIdMixin[VisitorId], Base):
    __tablename__ = "visitor"
    name: Mapped[str] = mapped_column(String(50))


ADA = VisitorId("favisitor_000000000ada")
request_of: ContextVar[object] = ContextVar("request_of")


@pytest.fixture
def engine_with_ada(engine: Engine, create: Callable[[MetaData], None]) -> Engine:
    create(Base.metadata)
    with Session(engine) as session:
        session.add(Visitor(public_id=ADA, name="Ada"))
        session.commit()
    return engine


def shop(db: Any) -> FastAPI:
    """An application that says for each visitor the name, and whether the row is in the session of the route."""
    app = FastAPI()

    async def get_session() -> AsyncIterator[Any]:
        token = request_of.set(object())
        try:
            yield db
        finally:
            db.remove()
            request_of.reset(token)

    found = by_public_id(Visitor, session=get_session)

    @app.get("/async/{visitor_id}")
    async def there(visitor: Annotated[Visitor, Depends(found)]) -> tuple[str, bool]:
        return visitor.name, object_session(visitor) is db()

    @app.get("/sync/{visitor_id}")
    def here(visitor: Annotated[Visitor, Depends(found)]) -> tuple[str, bool]:
        return visitor.name, object_session(visitor) is db()

    return app


async def asking(app: FastAPI, path: str) -> Any:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return (await client.get(f"{path}/{ADA}")).json()


@pytest.mark.backend
@pytest.mark.parametrize("path", ["/async", "/sync"])
def test_scoped_session_of_a_request(engine_with_ada: Engine, path: str) -> None:
    """A session for each request is that of the route, ends with it, and shows what others have written since."""
    engine = engine_with_ada
    db = scoped_session(sessionmaker(engine), scopefunc=request_of.get)
    app = shop(db)
    before = engine.pool.checkedout()  # type: ignore[attr-defined]

    async def story() -> list[Any]:
        first = await asking(app, path)
        with engine.begin() as connection:
            connection.execute(update(Visitor).values(name="Grace"))
        return [first, await asking(app, path)]

    assert asyncio.run(story()) == [["Ada", True], ["Grace", True]]
    assert engine.pool.checkedout() == before  # type: ignore[attr-defined]


def test_many_requests_at_once(engine_with_ada: Engine) -> None:
    """Requests that overlap have a session each, and leave none behind."""
    db = scoped_session(sessionmaker(engine_with_ada), scopefunc=request_of.get)
    app = shop(db)

    async def story() -> list[Any]:
        return await asyncio.gather(*(asking(app, path) for path in ["/async", "/sync"] * 4))

    assert asyncio.run(story()) == [["Ada", True]] * 8
    assert not db.registry.registry  # type: ignore[attr-defined]


def test_scoped_session_of_a_thread(engine_with_ada: Engine) -> None:
    """A session for each thread is refused: a request has several threads, and nobody would end those sessions."""
    engine = engine_with_ada
    db = scoped_session(sessionmaker(engine))
    before = engine.pool.checkedout()  # type: ignore[attr-defined]

    with pytest.raises(ConfigurationError, match="has a session for each thread, and a request has several threads"):
        asyncio.run(asking(shop(db), "/async"))

    assert engine.pool.checkedout() == before  # type: ignore[attr-defined]
