"""Clusters of MySQL and MariaDB in which every node takes writes: Galera, and group replication with several primaries.

A node executes an ALTER of another one some time later, and meanwhile commits rows without the column or its default.
A migration has to see these rows, and must not end a phase before all nodes have.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import Connection, text

_VARIABLES = text("""
SHOW VARIABLES WHERE Variable_name IN
    ('wsrep_on', 'wsrep_sync_wait', 'group_replication_single_primary_mode', 'group_replication_consistency')
""")
_ALL_STATEMENTS = 7
"""Values of ``wsrep_sync_wait``: 1 for SELECT, 2 for UPDATE and DELETE, 4 for INSERT."""


@contextmanager
def waits_for_nodes(connection: Connection) -> Generator[None]:
    """Let the statements of *connection* wait for what all nodes have committed, and its ALTERs for all nodes.

    On a server that is no such node, and on other databases, this does nothing.
    """
    before, during = _settings(connection)
    if during is None:
        yield
        return
    connection.exec_driver_sql(during)
    try:
        yield
    finally:
        restore(connection, before)


def restore(connection: Connection, *settings: str) -> None:
    """Send the *settings* unless the connection is lost: an error of theirs would hide the one that lost it."""
    for sql in settings if not connection.invalidated else ():
        connection.exec_driver_sql(sql, execution_options={"no_parameters": True})


def _settings(connection: Connection) -> tuple[str, str | None]:
    """Return the statement that restores the session, and the one that lets it wait."""
    if connection.dialect.name not in ("mysql", "mariadb"):
        return "", None
    variables: dict[str, str] = {row[0]: row[1] for row in connection.execute(_VARIABLES)}
    if variables.get("wsrep_on") == "ON":
        # an ALTER of Galera is executed by all nodes in the same place of the order of transactions
        setting = "SET SESSION wsrep_sync_wait = "
        return f"{setting}{variables['wsrep_sync_wait']}", f"{setting}{_ALL_STATEMENTS}"
    # a member before MySQL 8.0.14 has no such setting, and nothing to wait for the others with; nor has OceanBase
    if variables.get("group_replication_single_primary_mode") == "OFF" and "group_replication_consistency" in variables:
        setting = "SET SESSION group_replication_consistency = "
        return f"{setting}'{variables['group_replication_consistency']}'", f"{setting}'BEFORE_AND_AFTER'"
    return "", None
