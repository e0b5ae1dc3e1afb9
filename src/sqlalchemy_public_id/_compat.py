"""The private parts of SQLAlchemy that have no public twin. Tested on 2.0.40, 2.0.57 and 2.1.9.

Everything else in this library uses public API.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any

from sqlalchemy import Insert, Table
from sqlalchemy.dialects.postgresql.dml import OnConflictDoNothing
from sqlalchemy.sql.compiler import Compiled

__all__ = [
    "QUIET_SQL",
    "has_many_rows",
    "is_quiet",
    "plain_table",
    "post_values",
    "quiet",
    "rotated_columns",
    "selected_names",
    "values_names",
]

QUIET_SQL = " ON CONFLICT DO NOTHING"
"""The text that :func:`quiet` adds to a compiled INSERT."""


class _Quiet(OnConflictDoNothing):
    """ON CONFLICT DO NOTHING without a target. It has no state, so one compiled form serves all (2.0 does not know)."""

    inherit_cache = True


_QUIET = _Quiet()


def post_values(insert: Insert) -> Any:
    """What stands after the VALUES of *insert*: an ON CONFLICT or ON DUPLICATE KEY clause, or nothing."""
    return insert._post_values_clause


def quiet(insert: Insert) -> Insert:
    """A copy of *insert* that skips a row instead of violating a unique constraint (PostgreSQL).

    SQLAlchemy offers ``on_conflict_do_nothing()`` only on its PostgreSQL ``Insert``, and the unit of work makes plain ones.
    """
    copy = insert._generate()
    copy._post_values_clause = _QUIET
    return copy


def is_quiet(compiled: Compiled) -> bool:
    """Whether *compiled* is an INSERT that :func:`quiet` has changed."""
    return getattr(compiled.statement, "_post_values_clause", None) is _QUIET


def has_many_rows(insert: Insert) -> bool:
    """Whether *insert* has rows of its own, ``insert().values([{…}, {…}])``."""
    return bool(insert._multi_values)


def selected_names(insert: Insert) -> set[str]:
    """The names of the columns that ``insert().from_select()`` fills from the SELECT."""
    return {str(name) for name in insert._select_names or ()}


def rotated_columns(clause: Any) -> set[str]:
    """The names of the columns that an ON CONFLICT DO UPDATE or ON DUPLICATE KEY UPDATE clause sets."""
    pairs: dict[Any, Any] | list[Any] | None = getattr(clause, "update_values_to_set", None)  # PostgreSQL, SQLite
    if pairs is None:
        pairs = getattr(clause, "update", None)  # MySQL, MariaDB
    names = pairs.keys() if isinstance(pairs, dict) else [pair[0] for pair in pairs or ()]
    return {name if isinstance(name, str) else str(getattr(name, "key", name)) for name in names}


def values_names(compiled: Any) -> set[str]:
    """The names of the parameters that are repeated for each row of an "insertmanyvalues" batch."""
    return {name for element in compiled._insertmanyvalues.insert_crud_params for name in element[3]}


def plain_table(table: Any) -> Table:
    """*table* without the annotations that the ORM puts on the table of ``insert(Model)``."""
    plain: Table = table._deannotate() if hasattr(table, "_deannotate") else table
    return plain
