"""How far a replica is behind, which may have several sources, or none any more; and that it is no load."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool
from support.connections import monitor
from support.marks import on
from support.people import send
from support.private_servers import wait_until
from support.replicas import ByGtid, Replication
from support.rights import USER, user_with

from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.backfill import MaxLag, MaxLoad


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


@on("mysql", "mariadb")
def test_user_without_the_privilege(engine: Engine) -> None:
    """A backfill that is to wait for a replica is refused if the user may not see its lag, and told the GRANT."""
    privilege = "REPLICATION CLIENT" if engine.name == "mysql" else "SLAVE MONITOR"
    with user_with(engine) as url, engine.connect() as primary:
        replica = create_engine(url.set(database="information_schema"), poolclass=NullPool)
        with pytest.raises(ConfigurationError, match=rf"may not see .*GRANT {privilege} ON \*\.\* TO"):
            MaxLag(replica).lag(primary)
        with primary.begin():
            send(primary, f"GRANT {privilege} ON *.* TO {USER}")
        with pytest.raises(ConfigurationError, match="is not a replica"):
            MaxLag(replica).lag(primary)


@on("mysql", "mariadb")
def test_load_of_replication(servers: Replication, new_engine: Callable[..., Engine], database: str) -> None:
    """What replicates always runs, and so does the event scheduler; neither is load, unlike a statement."""
    for url in (servers.primary, servers.replica):
        engine = new_engine(database, url, poolclass=NullPool)
        with monitor(engine) as own, engine.connect() as other, ThreadPoolExecutor(1) as threads:
            send(own, "SET GLOBAL event_scheduler = ON")
            wait_until(lambda own=own: MaxLoad(0).running(own) == 0, "the end of other statements")
            sleeping = threads.submit(send, other, "SELECT SLEEP(1.5)")
            wait_until(lambda own=own: MaxLoad(0).running(own) == 1, "the statement")
            sleeping.result()
