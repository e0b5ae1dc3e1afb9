"""Fixtures that tests of several packages use: tables, rights, listeners, requests, and projects with migrations."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, MetaData, event, inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.orm import DeclarativeBase, Session
from support.cluster_tables import NAME, Parcels
from support.members import Base as Members
from support.people import People
from support.projects import Project
from support.rights import USER, user_with
from support.shops import old_shop
from support.tenants import Organization, Tenants

from sqlalchemy_public_id.alembic import drop_cluster_config


@pytest.fixture
def restless() -> Iterator[None]:
    """Let threads switch a hundred times more often than usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 100)
    yield
    sys.setswitchinterval(usual)


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
def base() -> Iterator[Any]:
    """A declarative base whose models are discarded after the test, even those that could not be configured."""
    made = type("Base", (DeclarativeBase,), {})
    yield made
    made.registry.dispose()


@pytest.fixture
def role(engine: Engine) -> Iterator[str]:
    """A role of PostgreSQL without rights, to which row-level security applies."""
    with user_with(engine):
        yield USER


@pytest.fixture
def members(create: Callable[[MetaData], None]) -> None:
    """Create the tables of support.members."""
    create(Members.metadata)


@pytest.fixture
def tenants(create: Callable[[MetaData], None], session: Session) -> Tenants:
    """Create the tables of support.tenants, and the rows of two organizations."""
    create(Organization.metadata)
    return Tenants(session)


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


@pytest.fixture
def new_project(tmp_path: Path, engine: Engine) -> Iterator[Callable[..., Project]]:
    """Make a project for *engine*; its database is emptied after the test."""

    _empty(engine)

    def make(url: URL | None = None, template: str = "generic") -> Project:
        return Project(tmp_path, engine, url, template)

    yield make
    _empty(engine)


@pytest.fixture
def project(new_project: Callable[..., Project]) -> Project:
    """Make a project with a shop whose three customers have only integer keys."""
    made = new_project()
    made.migrate(old_shop(), "shop")
    made.execute("INSERT INTO customer (name) VALUES ('Ada'), ('Grace'), ('Mary')")
    return made


def _empty(engine: Engine) -> None:
    """Remove everything in the database, even from an earlier run."""
    engine.dispose()
    if engine.name == "sqlite":
        Path(str(engine.url.database)).unlink(missing_ok=True)
        return
    with engine.begin() as connection:
        if engine.name == "postgresql":
            connection.execute(text("DROP SCHEMA public CASCADE"))
            connection.execute(text("CREATE SCHEMA public"))
            connection.execute(text("GRANT USAGE ON SCHEMA public TO PUBLIC"))  # the default of PostgreSQL
        if engine.name in {"mysql", "mariadb"}:
            connection.execute(text("SET FOREIGN_KEY_CHECKS = 0"))
            for name in inspect(connection).get_table_names():
                connection.execute(text(f"DROP TABLE {engine.dialect.identifier_preparer.quote(name)}"))
            connection.execute(text("SET FOREIGN_KEY_CHECKS = 1"))


@pytest.fixture
def parcels(engine: Engine) -> Iterator[Parcels]:
    """Create the table without rows; after the test, drop it and everything that operations left behind."""
    made = Parcels(engine)
    made.create()
    yield made
    made.drop()
    if engine.name != "sqlite":
        made.execute(f"DROP {'SEQUENCE' if engine.name == 'postgresql' else 'TABLE'} IF EXISTS cluster_sequence_{NAME}")
        made.run(drop_cluster_config)


@pytest.fixture
def new_people(engine: Engine) -> Iterator[Callable[..., People]]:
    """Create a table of people, with more columns and constraints; it is dropped after the test."""
    made: list[People] = []

    def make(rows: int = 3, more: str = "", after: str = "", **options: Any) -> People:
        people = People(engine, **options)
        made.append(people)
        people.create(rows, more, after)
        return people

    yield make
    for people in made:
        people.drop()


@pytest.fixture
def table(new_people: Callable[..., People]) -> People:
    """Create an empty table of people, which a test may create again."""
    return new_people(0)
