"""Three MySQL servers with group replication: a certification that fails is an error of the COMMIT."""

from __future__ import annotations

import itertools

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session
from support.cluster_stories import OfClusters, Order
from support.private_clusters import GroupReplication
from support.private_servers import execute
from support.retrying import run_transaction

from sqlalchemy_public_id.migrations.databases import database_of

READ_ONLY = 1290


class TestGroupReplication(OfClusters):
    """The tests of all clusters, and one of a member that leaves its group."""

    @pytest.fixture
    def cluster(self, group: GroupReplication) -> GroupReplication:
        """The cluster, which all tests share."""
        return group

    def test_member_that_is_read_only(self, cluster: GroupReplication, nodes: list[Engine]) -> None:
        """A member that is read-only for everybody, as a replica is, is named before a migration changes anything."""
        execute(cluster.url(2), "SET GLOBAL super_read_only = ON")
        try:
            with nodes[2].connect() as connection:
                found = database_of(connection.dialect).session(connection).read_only
        finally:
            execute(cluster.url(2), "SET GLOBAL super_read_only = OFF")
            execute(cluster.url(2), "SET GLOBAL read_only = OFF")

        assert found == "the server is read-only (super_read_only), as a replica is"

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
