"""Four databases, and a sharded session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, MetaData
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.pool import NullPool
from support import servers
from support.sharded import Base, Note, Shards

from sqlalchemy_public_id.keys import ShardRouter


@pytest.fixture(params=["four files of SQLite", "four databases"])
def shards(
    request: pytest.FixtureRequest, new_engine: Callable[..., Engine], create_on: Callable[[Engine, MetaData], None]
) -> Shards:
    """Return four SQLite files, or one database each of SQLite, PostgreSQL, MySQL and MariaDB."""
    kinds = ["sqlite"] * 4 if request.param.endswith("SQLite") else list(servers.servers())
    if len(kinds) < 4:
        pytest.skip(f"there are only {', '.join(kinds)}")
    engines = {name: new_engine(kind, poolclass=NullPool) for name, kind in zip("abcd", kinds, strict=True)}
    for engine in engines.values():
        create_on(engine, Base.metadata)
    return Shards(engines)


@pytest.fixture
def router(shards: Shards) -> ShardRouter:
    """Return a router by hash that places notes with their accounts."""
    router = shards.router(place={Note: lambda note: router.shard_of(note.account)})
    return router


@pytest.fixture
def db(router: ShardRouter) -> Iterator[ShardedSession]:
    with router.session() as session:
        yield session
