"""Three MySQL servers with group replication: a certification that fails is an error of the COMMIT."""

from __future__ import annotations

import itertools
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from sqlalchemy import Engine, NullPool, create_engine, event
from sqlalchemy.orm import Session
from support.cluster_stories import OfClusters, Order
from support.connections import number_of
from support.people import send
from support.private_clusters import GroupReplication
from support.private_servers import execute, wait_until
from support.retrying import run_transaction
from support.rights import user_with

from sqlalchemy_public_id.backfill import MaxLoad
from sqlalchemy_public_id.migrations.databases import database_of
from sqlalchemy_public_id.migrations.mysql.session import MySQLSession

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

    def test_users_of_a_table(self, cluster: GroupReplication) -> None:
        """Users come before those of tables with a foreign key to it, the oldest first; one that waits is none."""
        engine, numbers = create_engine(cluster.url(0), poolclass=NullPool), list[int]()
        names = ("thing", "note", "elsewhere.thing", "alone")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as own, ExitStack() as stack:
            session = MySQLSession(own)

            def users(*place: str | None) -> list[str]:
                return [re.sub(r", \d+ s", "", user) for user in session.read_users(*place)]

            send(own, "CREATE DATABASE elsewhere")
            stack.callback(send, own, "DROP DATABASE elsewhere")
            for name in names:
                key = ", FOREIGN KEY (id) REFERENCES thing (id)" if name == "note" else ""
                send(own, f"CREATE TABLE {name} (id int PRIMARY KEY{key})")
                stack.callback(send, own, f"DROP TABLE {name}")
            pool = stack.enter_context(ThreadPoolExecutor())
            for name in ("note", "thing", "thing", "note", "elsewhere.thing", "alone"):
                user = stack.enter_context(engine.connect())
                send(user, f"SELECT * FROM {name}").all()
                numbers.append(number_of(user))
                time.sleep(1.1)
            note, first, second, _, namesake, alone = (f"connection {each} (root, Sleep)" for each in numbers)
            assert users("thing", None) == [first, second, note.replace(")", ", uses note)")]
            assert users("thing", "elsewhere") == [namesake]
            waiting = pool.submit(send, stack.enter_context(engine.connect()), "LOCK TABLES alone WRITE")
            wait_until(lambda: session.count_running() == 1, "the lock is asked for")
            assert users("alone", None) == [alone]
            user.rollback()
            waiting.result()

    def test_load(self, cluster: GroupReplication) -> None:
        """Neither the session that asks nor the scheduler of events, whether it is on or off, is load."""
        engine = create_engine(cluster.url(0), isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as own, engine.connect() as other, ThreadPoolExecutor() as pool:
            for setting in ("OFF", "ON"):
                send(own, f"SET GLOBAL event_scheduler = {setting}")
                wait_until(lambda: MaxLoad(0).running(own) == 0, "the scheduler has begun or ended", seconds=10)
                assert not MaxLoad(0)(own)
            send(own, "SELECT GET_LOCK('load', 0)")
            waiting = pool.submit(send, other, "SELECT GET_LOCK('load', 60)")
            wait_until(lambda: MaxLoad(0)(own), "the other session waits", seconds=10)
            assert MaxLoad(0).running(own) == 1
            send(own, "SELECT RELEASE_LOCK('load')")
            waiting.result()

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
