"""The first lines of a script (``--sql``): it stops at an error, and changes nothing on a server that is too old."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.engine import Dialect

_TOO_OLD = (
    'MariaDB before 10.10 has no RANDOM_BYTES() to generate ids with: pass server_default="none", '
    "and run the backfill with a connection"
)
_MAJOR, _MINOR = "SUBSTRING_INDEX(VERSION(), '.', 1)", "SUBSTRING_INDEX(SUBSTRING_INDEX(VERSION(), '.', 2), '.', -1)"
# Only a stored program can SIGNAL under a condition, and it would remain. A mode that does not exist is an error, too.
_REFUSE_OLD_MARIADB = (
    f"SET SESSION sql_mode = IF(VERSION() LIKE '%MariaDB%' AND {_MAJOR} * 100 + {_MINOR} < 1010, "
    f"'{_TOO_OLD}', @@SESSION.sql_mode)"
)


def start_of_script(statements: Sequence[str], dialect: Dialect, *, psql: bool = True) -> list[str]:
    """Return the lines that precede *statements*.

    :param psql: True if psql will run the script: by default, it continues after an error, up to Alembic's version.
    """
    if dialect.name == "postgresql":
        return ["\\set ON_ERROR_STOP on"] if psql else []
    return [_REFUSE_OLD_MARIADB] if any("RANDOM_BYTES(" in statement.upper() for statement in statements) else []
