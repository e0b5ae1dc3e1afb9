"""``by_public_id()`` of FastAPI and of Litestar: attribute, loader options and scope reach the statement."""
# both frameworks read the annotations of handlers, which name what is local to this module

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import fastapi
import pytest
from sqlalchemy import Engine, MetaData, String, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, load_only, mapped_column
from support.asking import asked

from sqlalchemy_public_id import NanoId, PublicIdMixin, public_id_column
from sqlalchemy_public_id.ext import fastapi as of_fastapi


class Base(DeclarativeBase):
    metadata = MetaData()


class Book(PublicIdMixin, Base):
    """Has two public ids."""

    __tablename__ = "book"
    __public_id__ = NanoId(prefix="pathbook")
    code: Mapped[str] = public_id_column(NanoId(length=6, prefix="pathcode"))
    owner: Mapped[str] = mapped_column(String(10))
    title: Mapped[str] = mapped_column(String(10))


OURS, THEIRS = "pathcode_aaaaaa", "pathcode_bbbbbb"
OPTIONS: dict[str, Any] = {"attribute": "code", "options": [load_only(Book.owner)]}


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{tmp_path / 'books.db'}")
    Base.metadata.create_all(engine)
    one = Book(public_id="pathbook_000000000000", code=OURS, owner="ours", title="one")
    with Session(engine) as session, session.begin():
        session.add_all([one, Book(code=THEIRS, owner="theirs", title="two")])
    return engine


def shown(book: Book) -> dict[str, Any]:
    """Return what was loaded of *book*."""
    return {name: value for name, value in vars(book).items() if name in ("owner", "title")}


def app_of_fastapi(engine: Engine) -> Any:
    def session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    def own() -> Any:
        return Book.owner == "ours"

    app = fastapi.FastAPI()
    book = of_fastapi.by_public_id(Book, session=session, **OPTIONS)
    own_book = of_fastapi.by_public_id(Book, session=session, scope=own, **OPTIONS)

    @app.get("/books/{book_id}")
    def show(book: Annotated[Any, fastapi.Depends(book)]) -> dict[str, Any]:
        return shown(book)

    @app.get("/own/{book_id}")
    def show_own(book: Annotated[Any, fastapi.Depends(own_book)]) -> dict[str, Any]:
        return shown(book)

    return app


def app_of_litestar(engine: Engine) -> Any:
    litestar = pytest.importorskip("litestar")
    from litestar.di import NamedDependency, Provide

    from sqlalchemy_public_id.ext import litestar as of_litestar

    async def session() -> Any:
        with Session(engine) as session:
            yield session

    async def own() -> Any:
        return Book.owner == "ours"

    book = of_litestar.by_public_id(Book, **OPTIONS)
    own_book = of_litestar.by_public_id(Book, scope="own", **OPTIONS)

    @litestar.get("/books/{book_id:str}", dependencies={"book": book})
    async def show(book: NamedDependency[Any]) -> dict[str, Any]:
        return shown(book)

    @litestar.get("/own/{book_id:str}", dependencies={"book": own_book})
    async def show_own(book: NamedDependency[Any]) -> dict[str, Any]:
        return shown(book)

    provided = {"db_session": Provide(session), "own": Provide(own)}
    return litestar.Litestar([show, show_own], dependencies=provided, logging_config=None)


@pytest.mark.parametrize("app_of", [app_of_fastapi, app_of_litestar])
def test_row(engine: Engine, app_of: Callable[[Engine], Any]) -> None:
    """The row is that of the id of the attribute, loaded as the options want it; outside of the scope, it is 404."""
    paths = [f"/books/{OURS}", f"/books/{THEIRS}", f"/own/{OURS}", f"/own/{THEIRS}", "/books/pathbook_000000000000"]
    *found, theirs, other = asked(app_of(engine), *paths)

    assert [answer.json() for answer in found] == [{"owner": "ours"}, {"owner": "theirs"}, {"owner": "ours"}]
    assert (theirs.status_code, other.status_code) == (404, 404)
