"""``by_public_id()``: rows for the path parameters of a FastAPI application, and the session that loads them."""
# annotations are not postponed: FastAPI evaluates those of routes, which use names that are local to a test

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Header, HTTPException
from sqlalchemy import Connection, Engine, ForeignKey, MetaData, String, true, update
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    object_session,
    relationship,
    scoped_session,
    sessionmaker,
)
from support.async_sessions import session_on
from support.web_requests import asked, asking

from conftest import Statements
from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdMixin,
    TypedId,
    Uuid4,
    bigint_key,
    lookup,
    public_id_column,
)
from sqlalchemy_public_id.ext.fastapi import by_public_id, install, page_of
from sqlalchemy_public_id.ext.pydantic import PublicId, PublicModel


class Base(DeclarativeBase):
    metadata = MetaData()


class ClientId(TypedId, prefix="facli"): ...


class Client(PublicIdMixin[ClientId], Base):
    __tablename__ = "client"
    name: Mapped[str] = mapped_column(String(50))
    is_active: Mapped[bool] = mapped_column(default=True)
    parcels: Mapped[list["BigParcel"]] = relationship(order_by="BigParcel.id", back_populates="client")


class BigParcel(PublicIdMixin, Base):
    __tablename__ = "parcel"
    client_id: Mapped[int] = mapped_column(ForeignKey(Client.id))
    client: Mapped[Client] = relationship(back_populates="parcels")


class Coupon(Base):
    """Has two public ids."""

    __tablename__ = "coupon"
    id: Mapped[int] = bigint_key()
    code: Mapped[str] = public_id_column(NanoId(length=6, prefix="facode"))
    slug: Mapped[str] = public_id_column(NanoId(length=8))


class ClientOut(PublicModel, model=Client):
    public_id: ClientId
    name: str


class ParcelOut(PublicModel, model=BigParcel):
    public_id: Annotated[str, PublicId(BigParcel)]
    client: ClientOut


ADA, GRACE, UNKNOWN = (f"facli_{name:0>12}" for name in ("ada", "grace", "unknown"))
PARCEL = "parcel000000"
MALFORMED = ["1", PARCEL, ADA.upper(), f"{ADA}%20", "%00", "%F0%9F%92%A9", "a" * 10_000]


def fill(session: Session) -> None:
    ada = Client(public_id=ADA, name="Ada", parcels=[BigParcel(public_id=PARCEL)])
    session.add_all([ada, Client(public_id=GRACE, name="Grace"), Coupon(code="facode_abcdef", slug="12345678")])
    session.commit()


@pytest.fixture
def clients(engine: Engine, create: Callable[[MetaData], None]) -> Engine:
    """Return an engine whose database has two clients."""
    create(Base.metadata)
    with Session(engine) as session:
        fill(session)
    return engine


@pytest.fixture
def get_session(clients: Engine) -> Callable[[], Iterator[Session]]:
    """Return a dependency that yields a session."""

    def get_session() -> Iterator[Session]:
        with Session(clients) as session:
            yield session

    return get_session


def nowhere() -> Iterator[Session]:
    """Yield a session without a database."""
    yield Session()


def shop(get_session: Any, **options: Any) -> FastAPI:
    """Return an application that shows clients, using ``by_public_id()`` with these options."""
    app = FastAPI()

    @app.get("/clients/{client_id}")
    def show(client: Annotated[Client, Depends(by_public_id(Client, session=get_session, **options))]) -> ClientOut:
        return ClientOut.model_validate(client)

    return app


# --- the row


def test_no_row(get_session: Any, statements: Statements) -> None:
    """Unknown and malformed ids get the same 404; a malformed id is not sent to the database."""
    unknown, *malformed = asked(shop(get_session), f"/clients/{UNKNOWN}", *(f"/clients/{text}" for text in MALFORMED))

    assert (unknown.status_code, unknown.json()) == (404, {"detail": "no such Client"})
    assert {(response.status_code, response.text) for response in malformed} == {(404, unknown.text)}
    assert len([text for text in statements.starting("SELECT") if "client" in text]) == 1


def test_malformed_as_422(get_session: Any) -> None:
    """With ``malformed=422``, a malformed id is a 422 with the reason; an unknown one is still a 404."""
    unknown, malformed = asked(shop(get_session, malformed=422), f"/clients/{UNKNOWN}", "/clients/1")
    (error,) = malformed.json()["detail"]

    assert (unknown.status_code, malformed.status_code) == (404, 422)
    assert (error["type"], error["loc"]) == ("public_id", ["path", "client_id"])
    assert "expected facli_ and 12 of 0-9 a-z" in error["msg"]


def test_names(get_session: Any) -> None:
    """The path parameter is named after the model, or by ``param``; ``attribute`` chooses the public id."""
    app = FastAPI()

    @app.get("/parcels/{big_parcel_id}")
    def parcel(parcel: Annotated[BigParcel, Depends(by_public_id(BigParcel, session=get_session))]) -> str:
        return parcel.public_id

    @app.get("/coupons/{public_id}/{condition}")
    def coupon(
        one: Annotated[Coupon, Depends(by_public_id(Coupon, session=get_session, param="public_id", attribute="code"))],
        same: Annotated[
            Coupon, Depends(by_public_id(Coupon, session=get_session, param="condition", attribute="slug"))
        ],
    ) -> bool:
        return one is same

    assert asked(app, f"/parcels/{PARCEL}")[0].json() == PARCEL
    assert asked(app, "/coupons/facode_abcdef/12345678")[0].json() is True
    assert asked(app, "/coupons/12345678/facode_abcdef")[0].status_code == 404


# --- scope


def current(x_client: Annotated[str | None, Header()] = None) -> str:
    """Return the name of the client that sends the request."""
    if x_client is None:
        raise HTTPException(401)
    return x_client


def own(name: Annotated[str, Depends(current)]) -> Any:
    return true() if name == "admin" else Client.name == name


def test_scope(get_session: Any) -> None:
    """A row outside the scope gets the response of a missing row; the scope can depend on the client."""
    app = shop(get_session, scope=own)
    paths = [f"/clients/{text}" for text in (ADA, GRACE, UNKNOWN)]

    mine, other, unknown = asked(app, *paths, headers={"X-Client": "Ada"})

    assert (mine.status_code, other.status_code) == (200, 404)
    assert other.text == unknown.text
    assert [response.status_code for response in asked(app, *paths, headers={"X-Client": "admin"})] == [200, 200, 404]
    assert [response.status_code for response in asked(app, *paths)] == [401, 401, 401]


def test_scope_that_is_an_attribute(get_session: Any) -> None:
    """A boolean attribute is a valid condition."""
    (active,) = asked(shop(get_session, scope=lambda: Client.is_active), f"/clients/{ADA}")
    (passive,) = asked(shop(get_session, scope=lambda: ~Client.is_active), f"/clients/{ADA}")

    assert (active.status_code, passive.status_code) == (200, 404)


@pytest.mark.parametrize("condition", [None, True, "x", Client.parcels], ids=lambda scope: type(scope).__name__)
def test_scope_that_says_nothing(condition: object) -> None:
    """A scope that returns no condition raises an error instead of showing every row."""
    with pytest.raises(ConfigurationError, match=r"the scope of Client returned .+, expected a condition such as"):
        asked(shop(nowhere, scope=lambda: condition), f"/clients/{ADA}")


# --- what cannot work


def test_connection_instead_of_a_session(engine: Engine) -> None:
    """A connection is rejected, because it would return the key instead of the row."""

    def get_connection() -> Iterator[Connection]:
        with engine.connect() as connection:
            yield connection

    with pytest.raises(TypeError, match="expected a Session, not Connection"):
        asked(shop(get_connection), f"/clients/{ADA}")


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (int, {}, "<class 'int'> is not a mapped class"),
        (Coupon, {}, "name one of code, slug with attribute=…"),
        (Client, {"malformed": 400}, "malformed is 400, expected 404 or 422"),
    ],
)
def test_declarations_that_cannot_work(model: Any, options: Any, message: str) -> None:
    """Invalid arguments raise an error when the dependency is built."""
    with pytest.raises(ConfigurationError, match=message):
        by_public_id(model, session=nowhere, **options)


@pytest.mark.parametrize(
    "session",
    [
        sessionmaker(),
        async_sessionmaker(),
        scoped_session(sessionmaker()),
        Annotated[Session, Depends(nowhere)],
        Depends(nowhere),
        Session(),
    ],
    ids=lambda session: type(session).__name__,
)
def test_session_that_is_no_dependency(session: Any) -> None:
    """A ``session`` that is not a dependency function is rejected when the dependency is built."""
    for build in (by_public_id, page_of):
        with pytest.raises(ConfigurationError, match=r"session is .*, expected a dependency: a function"):
            build(Client, session=session)


# --- the session


def test_session_is_that_of_the_route(get_session: Any) -> None:
    """The row belongs to the session that the route gets from the same dependency."""
    app = FastAPI()

    @app.get("/clients/{client_id}")
    def show(
        client: Annotated[Client, Depends(by_public_id(Client, session=get_session))],
        session: Annotated[Session, Depends(get_session)],
    ) -> bool:
        return client in session

    assert asked(app, f"/clients/{ADA}")[0].json() is True


@pytest.mark.backend
def test_async_session(async_engine: AsyncEngine) -> None:
    """The dependency also accepts an ``AsyncSession``; ``run_sync()`` builds responses with related objects."""

    async def get_session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(async_engine) as session:
            yield session

    app = shop(get_session, scope=own)

    @app.get("/parcels/{big_parcel_id}")
    async def show(
        parcel: Annotated[BigParcel, Depends(by_public_id(BigParcel, session=get_session))],
        session: Annotated[AsyncSession, Depends(get_session)],
    ) -> list[ParcelOut]:
        return await session.run_sync(ParcelOut.many, [parcel])

    async def story() -> list[Any]:
        async with session_on(async_engine, Base.metadata) as session:
            await session.run_sync(fill)
            paths = [f"/clients/{text}" for text in (ADA, GRACE, UNKNOWN, "1")]
            return await asking(app, f"/parcels/{PARCEL}", *paths, headers={"X-Client": "Ada"})

    parcel, *others = asyncio.run(story())

    assert parcel.json() == [{"public_id": PARCEL, "client": {"public_id": ADA, "name": "Ada"}}]
    assert [response.status_code for response in others] == [200, 404, 404, 404]


request_of: ContextVar[object] = ContextVar("request_of")


def scoped(db: Any) -> FastAPI:
    """Return an application that returns a client's name, and whether the row is in the session of the route."""
    app = FastAPI()

    async def get_session() -> AsyncIterator[Any]:
        token = request_of.set(object())
        try:
            yield db
        finally:
            db.remove()
            request_of.reset(token)

    found = by_public_id(Client, session=get_session)

    @app.get("/async/{client_id}")
    async def there(client: Annotated[Client, Depends(found)]) -> tuple[str, bool]:
        return client.name, object_session(client) is db()

    @app.get("/sync/{client_id}")
    def here(client: Annotated[Client, Depends(found)]) -> tuple[str, bool]:
        return client.name, object_session(client) is db()

    return app


@pytest.mark.parametrize("path", [f"/async/{ADA}", f"/sync/{ADA}"])
def test_scoped_session_of_a_request(clients: Engine, path: str) -> None:
    """A request-scoped session is that of the route, ends with the request, and the next one sees new commits."""
    app = scoped(scoped_session(sessionmaker(clients), scopefunc=request_of.get))
    before = clients.pool.checkedout()

    async def story() -> list[Any]:
        first = await asking(app, path)
        with clients.begin() as connection:
            connection.execute(update(Client).where(Client.public_id == ADA).values(name="Eve"))
        return [each.json() for each in [*first, *await asking(app, path)]]

    assert asyncio.run(story()) == [["Ada", True], ["Eve", True]]
    assert clients.pool.checkedout() == before


def test_async_scoped_session(async_engine: AsyncEngine) -> None:
    """An ``async_scoped_session`` is accepted like its current session, for rows and for responses."""
    db = async_scoped_session(async_sessionmaker(async_engine), scopefunc=asyncio.current_task)
    app = FastAPI()

    async def get_session() -> AsyncIterator[Any]:
        try:
            yield db
        finally:
            await db.remove()

    @app.get("/clients/{client_id}")
    async def there(client: Annotated[Client, Depends(by_public_id(Client, session=get_session))]) -> Any:
        return [await ClientOut.of(db, client), *await ClientOut.many(db, [client])]

    async def story() -> list[Any]:
        async with session_on(async_engine, Base.metadata) as session:
            await session.run_sync(fill)
            return await asking(app, f"/clients/{ADA}", f"/clients/{UNKNOWN}")

    found, unknown = asyncio.run(story())
    assert [each["name"] for each in found.json()] == ["Ada", "Ada"]
    assert unknown.status_code == 404


def test_many_requests_at_once(clients: Engine) -> None:
    """Concurrent requests have separate sessions, and leave none in the registry."""
    db = scoped_session(sessionmaker(clients), scopefunc=request_of.get)
    app = scoped(db)

    async def story() -> list[Any]:
        return await asyncio.gather(*(asking(app, f"{path}/{ADA}") for path in ["/async", "/sync"] * 4))

    assert [answer.json() for (answer,) in asyncio.run(story())] == [["Ada", True]] * 8
    assert not db.registry.registry


def test_scoped_session_of_a_thread(clients: Engine) -> None:
    """A thread-local session is rejected: a request runs in several threads, and nothing would close their sessions."""
    before = clients.pool.checkedout()

    with pytest.raises(ConfigurationError, match="has a session for each thread, but a request runs in several"):
        asked(scoped(scoped_session(sessionmaker(clients))), f"/async/{ADA}")

    assert clients.pool.checkedout() == before


# --- UUIDs


class Deed(PublicIdMixin, Base):
    __tablename__ = "fa_deed"
    __public_id__ = Uuid4(encoding="hyphenated")


def test_path_parameter_that_is_a_uuid(get_session: Any, clients: Engine) -> None:
    """A path parameter ``id: UUID`` is passed to a lookup as it is; a UUID of another version is not found."""
    app = FastAPI()
    install(app)

    @app.get("/deeds/{id}")
    def show(id: uuid.UUID, session: Annotated[Session, Depends(get_session)]) -> str:
        return lookup.get_one(session, Deed, id).public_id

    with Session(clients) as session:
        session.add(deed := Deed())
        session.commit()
        text = deed.public_id
    found, unknown, other = asked(app, *(f"/deeds/{each}" for each in (text, uuid.uuid4(), uuid.UUID(int=7))))

    assert (found.status_code, found.json()) == (200, text)
    assert [(each.status_code, each.json()) for each in (unknown, other)] == [(404, {"detail": "no such Deed"})] * 2
