"""Tables that are created and filled once for a module, whose tests roll back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, create_engine
from sqlalchemy.engine import URL
from sqlalchemy.orm import Session

EngineOf = Callable[[str, Callable[..., Engine]], Engine]
"""Database and ``new_engine`` → an engine for the tables."""


@contextmanager
def filled_once(metadata: MetaData, fill: Callable[[Session], None]) -> Iterator[EngineOf]:
    """Make engines for the tables of *metadata*, which *fill* fills when a database is first used."""
    urls: dict[str, URL] = {}

    def engine_of(database: str, new_engine: Callable[..., Engine]) -> Engine:
        engine = new_engine(database, urls.get(database))
        if database not in urls:
            urls[database] = engine.url
            metadata.create_all(engine)
            with Session(engine) as session, session.begin():
                fill(session)
        return engine

    yield engine_of
    for url in urls.values():
        engine = create_engine(url)
        metadata.drop_all(engine)
        engine.dispose()


def filled_engine(metadata: MetaData, fill: Callable[[Session], None]) -> Any:
    """Return a fixture ``engine`` for a module whose tests share the tables of *metadata* (:func:`filled_once`)."""
    engines: list[EngineOf] = []

    @pytest.fixture
    def engine(request: pytest.FixtureRequest, database: str, new_engine: Callable[..., Engine]) -> Engine:
        if not engines:
            stack = ExitStack()
            stack.callback(engines.clear)
            engines.append(stack.enter_context(filled_once(metadata, fill)))
            request.node.getparent(pytest.Module).addfinalizer(stack.close)
        return engines[0](database, new_engine)

    return engine
