"""Three MySQL servers with group replication: a certification that fails is an error of the COMMIT."""

from __future__ import annotations

import itertools

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.orm import Session
from support.cluster_stories import OfClusters, Order
from support.private_clusters import GroupReplication
from support.private_servers import execute
from support.retrying import run_transaction
from support.rights import user_with

from sqlalchemy_public_id.migrations.databases import database_of

READ_ONLY = 1290


class TestGroupReplication(OfClusters):
    """The tests of all clusters, and one of a member that leaves its group."""

    @pytest.fixture
    def cluster(self, group: GroupReplication) -> GroupReplication:
        """The cluster, which all tests share."""
        return group

    def test_member_that_is_read_only(self, cluster: GroupReplication) -> None:
        """A member that is read-only is named before a migration changes anything, unless the user may still write."""
        with user_with(create_engine(cluster.url(2))) as user:
            reader, root = (create_engine(url.set(database="information_schema")) for url in (user, cluster.url(2)))
            found: list[str | None] = []
            for setting in ("read_only", "super_read_only"):
                execute(cluster.url(2), f"SET GLOBAL {setting} = ON")
                for engine in (reader, root):
                    with engine.connect() as connection:
                        found.append(database_of(connection.dialect).session(connection).read_only)
            for setting in ("super_read_only", "read_only"):
                execute(cluster.url(2), f"SET GLOBAL {setting} = OFF")

        named = [f"the server is read-only ({name}), as a replica is" for name in ("read_only", "super_read_only")]
        assert found == [named[0], None, named[1], named[1]]

    @pytest.mark.parametrize("moment", ["before", "within"])
    def test_member_that_leaves(self, cluster: GroupReplication, nodes: list[Engine], moment: str) -> None:
        """A transaction that a member cannot commit because it has left the group is run again on another member."""
        errors: list[int] = []
        event.listen(nodes[2], "handle_error", lambda context: errors.append(context.original_exception.args[0]))
        turns = itertools.chain([nodes[2]], itertools.repeat(nodes[0]))

        def leave() -> None:
            execute(cluster.url(2), "STOP GROUP_REPLICATION")

        def order(session: Session) -> None:
            session.add(Order(public_id="izkpm55j334u", number=1))
            session.flush()
            if session.get_bind() is nodes[2]:
                leave()

        if moment == "before":
            leave()
        try:
            run_transaction(lambda: Session(next(turns)), order)
        finally:
            cluster.wait(2)

        assert errors == [READ_ONLY]
        stored = [self.rows(cluster, node, Order.public_id, Order.number) for node in nodes]
        assert stored == [[("izkpm55j334u", 1)]] * 3
