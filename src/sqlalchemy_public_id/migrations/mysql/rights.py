"""The privileges of a user of MySQL or MariaDB.

``SHOW GRANTS`` lists them all, with those of active roles and of ``PUBLIC``, which the catalogs leave out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal
from weakref import WeakKeyDictionary

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.migrations.session import send
from sqlalchemy_public_id.migrations.table import LiveTable

_NAME = r'(\*|`(?:[^`]|``)*`|"(?:[^"]|"")*"|[^\s.`"]+)'
_GRANT = re.compile(rf"GRANT (.+) ON {_NAME}\.{_NAME} TO ")
_PRIVILEGE = re.compile(r"([^,(]+)(\(.*?\))?(?:,|$)")
_ALL = {"ALL", "ALL PRIVILEGES"}
_WITHOUT_GRANTS = 1290
"""The error of a server that was started with ``--skip-grant-tables``, where everybody may do everything."""
_SHOW_ROUTINES = ("EXECUTE", "ALTER ROUTINE", "CREATE ROUTINE", "SHOW_ROUTINE", "SHOW CREATE ROUTINE")
"""Privileges of which each lists the procedures and functions; the last two are of MySQL and of MariaDB."""
_known: WeakKeyDictionary[LiveTable, tuple[str, Sequence[str]]] = WeakKeyDictionary()
"""The table of an operation, which asks several times → its database, and what is granted to the user."""


def missing_privileges(
    live: LiveTable, wanted: Sequence[str], on: Literal["table", "database", "server"] = "table"
) -> list[str]:
    """Return those of the *wanted* privileges that the user lacks on the whole table, its database or the server."""
    here, grants = _known.get(live) or _known.setdefault(live, (_read_database(live), _read_grants(live.connection)))
    granted: set[str] = set()
    for grant in grants:
        match = _GRANT.match(grant)
        if match is None:  # of a role or a procedure
            continue
        privileges, database, table = match.groups()
        if database == "*":
            counts = True
        elif table == "*":
            counts = on != "server" and _pattern(database).fullmatch(here) is not None
        else:
            names = _plain(database).lower(), _plain(table).lower()
            counts = on == "table" and names == (here.lower(), live.target.table.lower())
        if counts:
            granted |= {name.strip().upper() for name, columns in _PRIVILEGE.findall(privileges) if not columns}
    return [] if granted & _ALL else [privilege for privilege in wanted if privilege not in granted]


def _read_database(live: LiveTable) -> str:
    return live.target.schema or str(send(live.connection, "SELECT DATABASE()").scalar())


def _read_grants(connection: Connection) -> Sequence[str]:
    try:
        return [grant for (grant,) in send(connection, "SHOW GRANTS")]
    except DBAPIError as error:
        if traits_for(connection.dialect).error_code(error.orig) != _WITHOUT_GRANTS:
            raise
        return ["GRANT ALL PRIVILEGES ON *.* TO PUBLIC"]


def privileges_to_see_programs(live: LiveTable) -> list[str]:
    """Return the privileges that the user lacks to see all triggers, events, procedures and functions."""
    missing = missing_privileges(live, ("TRIGGER", "EVENT", *_SHOW_ROUTINES), "database")
    hides_routines = {*_SHOW_ROUTINES} <= {*missing} and missing_privileges(live, ["SELECT"], "server")
    return [name for name in missing if name not in _SHOW_ROUTINES] + (["EXECUTE"] if hides_routines else [])


def read_user(connection: Connection) -> str:
    """Return the user whose privileges count, as a GRANT names it."""
    name, _, host = send(connection, "SELECT CURRENT_USER()").scalar().rpartition("@")
    return f"'{name}'@'{host}'"


def _plain(name: str) -> str:
    quote = name[0]
    return name[1:-1].replace(quote * 2, quote) if quote in '`"' else name


def _pattern(database: str) -> re.Pattern[str]:
    """Return the pattern of names of databases that a grant has, with the wildcards of LIKE."""
    wildcards = {"%": ".*", "_": "."}
    parts = re.findall(r"\\.|.", _plain(database), re.DOTALL)
    return re.compile("".join(wildcards.get(part) or re.escape(part[-1]) for part in parts), re.DOTALL | re.IGNORECASE)
