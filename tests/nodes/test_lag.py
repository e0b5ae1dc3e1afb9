"""How far a replica is behind, which may have several sources, or none any more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Engine
from sqlalchemy.pool import NullPool
from support.marks import on
from support.private_servers import wait_until
from support.replicas import ByGtid, Replication

from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.backfill import MaxLag


@on("postgresql", "mysql", "mariadb")
def test_promoted_server(servers: Replication, new_engine: Callable[..., Engine], database: str) -> None:
    """A replica that was promoted is no replica any more; a backfill that is to wait for it is refused."""
    primary, replica = (new_engine(database, url, poolclass=NullPool) for url in (servers.primary, servers.replica))
    lag = MaxLag(replica)
    with primary.connect() as connection:
        servers.fall_behind()
        lag.lag(connection)  # a number, or None if the replication has stopped
        servers.promote()
        with pytest.raises(ConfigurationError, match="is not a replica"):
            lag.lag(connection)


@on("mysql", "mariadb")
def test_several_sources(servers: ByGtid, new_engine: Callable[..., Engine], database: str) -> None:
    """The lag is that of the rows of the primary; for a server that is no source itself, all sources count."""
    primary, replica = (new_engine(database, url, poolclass=NullPool) for url in (servers.primary, servers.replica))
    with primary.connect() as connection, replica.connect() as other:

        def is_known() -> bool:
            return MaxLag(replica).lag(connection) is not None

        wait_until(is_known, "the replication")
        servers.begin(port=1, channel="b")  # no server answers there
        assert (is_known(), MaxLag(replica).lag(other)) == (True, None)

        servers.forget("b")
        servers.forget()
        servers.begin(channel="b")
        wait_until(is_known, "the replication by a channel with a name")
        servers.begin(port=1, channel="a")
        assert (is_known(), MaxLag(replica).lag(other)) == (True, None)


@on("mysql", "mariadb")
def test_source_that_is_gone(servers: ByGtid, new_engine: Callable[..., Engine], database: str) -> None:
    """A replica that cannot reach its source is an unknown time behind; MySQL reports no lag for it."""
    primary, replica = (new_engine(database, url, poolclass=NullPool) for url in (servers.primary, servers.replica))
    servers.forget()
    servers.begin(port=1)
    with primary.connect() as connection:
        assert MaxLag(replica).lag(connection) is None
        assert MaxLag(replica)(connection)
