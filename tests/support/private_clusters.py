"""Multi-primary clusters that a test run starts for itself: Galera and MySQL group replication."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, TypeVar

from sqlalchemy.engine import URL
from support.private_servers import HOST, Keeper, NotReady, answer, execute, free_ports, owner, run, wait_until

__all__ = ["Cluster", "Galera", "GroupReplication", "running"]

C = TypeVar("C", bound="Cluster")


class Cluster(ABC):
    """Three nodes of one cluster; the first one is node 0."""

    ports: ClassVar[int]
    """The number of ports that a node needs. Clients connect to the first of them."""
    user: ClassVar[str | None]
    """The user that runs the servers if the tests run as root."""
    drivername: ClassVar[str]
    refusals: ClassVar[frozenset[int]]
    """Errors of a transaction that was rolled back because another node's transaction came first."""
    wait_for_all: ClassVar[str]
    """The statement that makes a session wait, before it reads, for all commits of the cluster."""
    go_on: ClassVar[str]
    """The statement that ends this."""

    def __init__(self, programs: dict[str, str], keeper: Keeper, count: int = 3) -> None:
        self._programs = programs
        self._keeper = keeper
        self._pids: dict[int, int] = {}
        ports = free_ports(self.ports * count)
        self._ports = [ports[self.ports * node : self.ports * (node + 1)] for node in range(count)]
        if self.user:
            shutil.chown(keeper.folder, *owner(self.user))

    @property
    def nodes(self) -> range:
        """The numbers of all nodes."""
        return range(len(self._ports))

    def url(self, node: int) -> URL:
        """Return the URL of the database ``test`` on *node*."""
        return URL.create(self.drivername, "root", host=HOST, port=self._ports[node][0], database="test")

    @abstractmethod
    def begin(self) -> None:
        """Create the database, and start all nodes."""

    @abstractmethod
    def start(self, node: int, *, alone: bool = False) -> None:
        """Start *node*, and return before it is ready. With *alone*, it bootstraps a new cluster."""

    @abstractmethod
    def is_ready(self, node: int) -> bool:
        """Return True if *node* accepts statements, and is synchronized with the cluster."""

    @abstractmethod
    def size(self, node: int) -> int:
        """Return the number of nodes that *node* sees."""

    def kill(self, node: int) -> None:
        """Kill *node*, as with ``kill -9``."""
        self._keeper.kill(self._pids.pop(node))

    def wait(self, node: int) -> None:
        """Wait until *node* is ready."""
        pid = self._pids[node]
        name = f"{type(self).__name__} node {node}"
        wait_until(lambda: self.is_ready(node) or self._keeper.ended(pid), name, self.log(node))
        if self._keeper.ended(pid):
            raise NotReady(f"{name} has ended\n{self.log(node).read_text(errors='replace')[-3000:]}")

    def log(self, node: int) -> Path:
        """Return the path of the log of *node*."""
        return self._keeper.folder / f"node{node}.log"

    def _folder(self, node: int) -> Path:
        folder = self._keeper.folder / f"node{node}"
        if not folder.exists():
            folder.mkdir()
            if self.user:
                shutil.chown(folder, *owner(self.user))
        return folder


class Galera(Cluster):
    """A Galera cluster of MariaDB servers."""

    ports, user, drivername = 4, "mysql", "mariadb+pymysql"
    refusals = frozenset({1213})
    wait_for_all, go_on = "SET SESSION wsrep_sync_wait = 1", "SET SESSION wsrep_sync_wait = 0"

    def begin(self) -> None:
        # the first node starts alone, and the others copy it (SST by rsync)
        first = self._folder(0)
        install = [self._programs["mariadb-install-db"], "--no-defaults", f"--datadir={first}", "--skip-test-db"]
        install += ["--auth-root-authentication-method=normal", "--innodb-log-file-size=8M"]
        run(install + ["--user=mysql"] * (not os.geteuid()), None)
        users = self._keeper.folder / "users.sql"
        users.write_text(
            "FLUSH PRIVILEGES;\n"  # with --bootstrap, there are no users before this
            f"CREATE USER IF NOT EXISTS root@'{HOST}' IDENTIFIED BY '';\n"
            f"GRANT ALL ON *.* TO root@'{HOST}' WITH GRANT OPTION;\n"
            "CREATE DATABASE IF NOT EXISTS test;\n"
        )
        with users.open() as script:
            run([self._programs["mariadbd"], "--no-defaults", "--bootstrap", f"--datadir={first}", "--wsrep-on=OFF"]
                 + ["--innodb-log-file-size=8M"] + ["--user=mysql"] * (not os.geteuid()), None, script)  # fmt: skip
        self.start(0, alone=True)
        self.wait(0)
        for node in self.nodes[1:]:
            self.start(node)
        for node in self.nodes[1:]:  # a node that finds the donor busy asks again
            self.wait(node)

    def start(self, node: int, *, alone: bool = False) -> None:
        port, group, ist, sst = self._ports[node]
        folder = self._folder(node)
        others = ",".join(f"{HOST}:{ports[1]}" for ports in self._ports)
        provider = {
            "base_host": HOST,
            "base_port": group,
            "gmcast.listen_addr": f"tcp://{HOST}:{group}",
            "ist.recv_addr": f"{HOST}:{ist}",
            "gcache.size": "16M",
            # a lost node is given up after seconds, not minutes, but a node on a busy machine is not
            "evs.suspect_timeout": "PT3S",
            "evs.inactive_timeout": "PT8S",
            "pc.recovery": "false",
        }
        options = {
            "datadir": folder,
            "port": port,
            "bind-address": HOST,
            "socket": folder / "s",
            "pid-file": folder / "pid",
            "default-storage-engine": "InnoDB",
            "binlog-format": "ROW",
            "innodb-autoinc-lock-mode": 2,
            "innodb-buffer-pool-size": "24M",
            "innodb-log-file-size": "8M",
            "innodb-flush-log-at-trx-commit": 0,
            "max-connections": 80,
            "performance-schema": "OFF",
            "wsrep-on": "ON",
            "wsrep-provider": self._programs["galera"],
            "wsrep-provider-options": "; ".join(f"{name}={value}" for name, value in provider.items()),
            "wsrep-cluster-name": f"public-id-{os.getpid()}",
            "wsrep-cluster-address": "gcomm://" + ("" if alone else others),
            "wsrep-node-name": f"node{node}",
            "wsrep-node-address": HOST,
            "wsrep-sst-method": "rsync",
            "wsrep-sst-receive-address": f"{HOST}:{sst}",
            "wsrep-slave-threads": 2,
            # otherwise, nodes count alike for a moment when another one leaves, and an INSERT finds its key taken
            "wsrep-auto-increment-control": "OFF",
            "auto-increment-increment": len(self.nodes),
            "auto-increment-offset": node + 1,
        }
        command = [self._programs["mariadbd"], "--no-defaults", "--skip-name-resolve"]
        command += [f"--{name}={value}" for name, value in options.items()]
        self._pids[node] = self._keeper.start(command, "mysql", self.log(node), signal.SIGKILL)

    def is_ready(self, node: int) -> bool:
        state = answer(self.url(node), "SHOW STATUS LIKE 'wsrep_local_state_comment'")
        return state is not None and state[1] == "Synced"

    def size(self, node: int) -> int:
        size = answer(self.url(node), "SHOW STATUS LIKE 'wsrep_cluster_size'")
        return int(size[1]) if size else 0


class GroupReplication(Cluster):
    """MySQL servers with group replication in multi-primary mode."""

    ports, user, drivername = 2, None, "mysql+pymysql"
    refusals = frozenset({1180, 1213, 3101})
    wait_for_all = "SET SESSION group_replication_consistency = 'BEFORE'"
    go_on = "SET SESSION group_replication_consistency = 'EVENTUAL'"

    def __init__(self, programs: dict[str, str], keeper: Keeper, count: int = 3) -> None:
        super().__init__(programs, keeper, count)
        self._group = uuid.uuid4()

    def begin(self) -> None:
        first = self._folder(0)
        users = self._keeper.folder / "users.sql"
        users.write_text(
            f"CREATE USER root@'{HOST}' IDENTIFIED BY '';\n"
            f"GRANT ALL ON *.* TO root@'{HOST}' WITH GRANT OPTION;\n"
            "CREATE DATABASE test;\n"
        )
        made = [f"--datadir={first}", "--initialize-insecure", f"--init-file={users}", "--skip-log-bin"]
        run([*self._mysqld(), *made], None)
        (first / "auto.cnf").unlink()  # the UUID of a server
        for node in self.nodes[1:]:
            run(["cp", "-a", f"{first}/.", str(self._folder(node))], None)
        for node in self.nodes:
            self.start(node, alone=not node)
        for node in self.nodes:
            self.wait(node)

    def start(self, node: int, *, alone: bool = False) -> None:
        port, group = self._ports[node]
        folder = self._folder(node)
        options = {
            "datadir": folder,
            "port": port,
            "bind-address": HOST,
            "socket": folder / "s",
            "pid-file": folder / "pid",
            "mysqlx": "OFF",
            "server-id": node + 1,
            "report-host": HOST,
            "report-port": port,
            "gtid-mode": "ON",
            "enforce-gtid-consistency": "ON",
            "log-bin": "binlog",
            # with 0, a killed node loses rows that its binary log contains
            "innodb-flush-log-at-trx-commit": 2,
            "sync-binlog": 0,
            "innodb-buffer-pool-size": "32M",
            "max-connections": 80,
            "super-read-only": "ON",  # until it has joined, because its own writes would keep it out of the group
            "plugin-load-add": "group_replication.so",
            "loose-group-replication-group-name": self._group,
            "loose-group-replication-local-address": f"{HOST}:{group}",
            "loose-group-replication-group-seeds": ",".join(f"{HOST}:{ports[1]}" for ports in self._ports),
            "loose-group-replication-start-on-boot": "OFF",
            "loose-group-replication-bootstrap-group": "ON" if alone else "OFF",
            "loose-group-replication-single-primary-mode": "OFF",
            "loose-group-replication-enforce-update-everywhere-checks": "ON",
        }
        command = [*self._mysqld(), "--skip-name-resolve", *(f"--{name}={value}" for name, value in options.items())]
        self._pids[node] = self._keeper.start(command, None, self.log(node), signal.SIGKILL)

    def wait(self, node: int) -> None:
        url, pid = self.url(node), self._pids[node]
        up = f"MySQL on {url.port}"
        wait_until(lambda: bool(answer(url, "SELECT 1")) or self._keeper.ended(pid), up, self.log(node))
        execute(url, "START GROUP_REPLICATION USER = 'root'")
        execute(url, "SET GLOBAL group_replication_bootstrap_group = OFF")
        super().wait(node)

    def is_ready(self, node: int) -> bool:
        members = "performance_schema.replication_group_members"
        # a member is online some time before it accepts writes
        facts = "member_state, @@super_read_only"
        state = answer(self.url(node), f"SELECT {facts} FROM {members} WHERE member_id = @@server_uuid")
        return state == ("ONLINE", 0)

    def size(self, node: int) -> int:
        size = answer(self.url(node), "SELECT count(*) FROM performance_schema.replication_group_members")
        return int(size[0]) if size else 0

    def _mysqld(self) -> list[str]:
        return [self._programs["mysqld"], "--no-defaults", f"--user={pwd.getpwuid(os.geteuid()).pw_name}"]


@contextmanager
def running(kind: type[C], programs: dict[str, str]) -> Iterator[C]:
    """Start a cluster of three nodes, and wait until all are ready."""
    keeper = Keeper(kind.__name__.lower())
    try:
        cluster = kind(programs, keeper)
        cluster.begin()
        yield cluster
    finally:
        keeper.close()
