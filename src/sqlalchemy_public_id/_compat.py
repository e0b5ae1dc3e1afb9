"""The private parts of SQLAlchemy that have no public twin. Tested on 2.0.40, 2.0.57 and 2.1.9.

Everything else in this library uses names without an underscore.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any

from sqlalchemy import Column, Insert, Table
from sqlalchemy.orm import InstanceState, Session, persistence

__all__ = [
    "bulk_saved_objects",
    "has_expressions",
    "has_many_rows",
    "key_behind_returning",
    "plain_table",
    "post_values",
    "register_pending",
    "register_persistent",
    "rotated_columns",
    "selected_names",
    "set_rowcount",
    "values_names",
]


def post_values(insert: Insert) -> Any:
    """What stands after the VALUES of *insert*: an ON CONFLICT or ON DUPLICATE KEY clause, or nothing."""
    return insert._post_values_clause


def has_many_rows(insert: Insert) -> bool:
    """Whether *insert* has rows of its own, ``insert().values([{…}, {…}])``."""
    return bool(insert._multi_values)


def has_expressions(insert: Insert) -> bool:
    """Whether *insert* has values of its own, ``insert().values(…)``, beside the parameters it is executed with."""
    return insert._values is not None


def selected_names(insert: Insert) -> set[str]:
    """The names of the columns that ``insert().from_select()`` fills from the SELECT."""
    return {str(name) for name in insert._select_names or ()}


def rotated_columns(clause: Any) -> set[str]:
    """The names of the columns that an ON CONFLICT DO UPDATE or ON DUPLICATE KEY UPDATE clause sets."""
    pairs: dict[Any, Any] | list[Any] | None = getattr(clause, "update_values_to_set", None)  # PostgreSQL, SQLite
    if pairs is None:
        pairs = getattr(clause, "update", None)  # MySQL, MariaDB
    names = pairs.keys() if isinstance(pairs, dict) else [pair[0] for pair in pairs or ()]
    return {part for name in names for part in _names(name)}


def _names(column: Any) -> set[str]:
    """What a column is called that was given as a text, as itself, or as the attribute that shows it."""
    if isinstance(column, str):
        return {column}
    column = getattr(column, "expression", column)
    return {str(getattr(column, each, column)) for each in ("key", "name")}


def values_names(compiled: Any) -> set[str]:
    """The names of the parameters that are repeated for each row of an "insertmanyvalues" batch."""
    return {name for element in compiled._insertmanyvalues.insert_crud_params for name in element[3]}


def key_behind_returning(compiled: Any) -> Column[Any] | None:
    """The key that SQLAlchemy appends to the RETURNING of an "insertmanyvalues" batch, to bring its rows into order."""
    many = compiled._insertmanyvalues
    if many is None or not many.implicit_sentinel or not many.sort_by_parameter_order:
        return None
    column: Column[Any] = many.sentinel_columns[0]
    return column


_EXECUTING: CodeType = persistence._emit_insert_statements.__code__  # pyright: ignore[reportUnknownMemberType]


def bulk_saved_objects(context: Any) -> list[dict[str, Any]]:
    """Return the ``__dict__`` of each object whose row ``Session.bulk_save_objects()`` is inserting, in their order.

    The session passes values to the connection, and fires no event that names the objects. They stand in the frame of
    the function that executes the INSERT.
    """
    frame: FrameType | None = sys._getframe(1) if "compiled_cache" in context.execution_options else None
    while frame is not None and frame.f_code is not _EXECUTING:
        frame = frame.f_back
    if frame is None:
        return []
    rows = [record[1] for record in frame.f_locals["records"]]
    if len(rows) != len(context.compiled_parameters):  # a statement for each row
        rows = [frame.f_locals["state_dict"]]
    return rows if all("_sa_instance_state" in row for row in rows) else []


def register_pending(session: Session, states: Iterable[InstanceState[Any]]) -> None:
    """What ``add_all()`` does for new objects, but for the walk along relationships: there must be none that is set."""
    for state in states:
        session._save_impl(state)


def register_persistent(session: Session, states: list[InstanceState[Any]]) -> None:
    """End what a flush does for *states*, whose rows are there: persistent from now on, transient after a rollback."""
    session._register_persistent(set(states))


def set_rowcount(context: Any, rows: int) -> None:
    """Let ``result.rowcount`` be *rows*, where the cursor knows only of the last of several calls."""
    context._rowcount = rows


def plain_table(table: Any) -> Table:
    """*table* without the annotations that the ORM puts on the table of ``insert(Model)``."""
    plain: Table = table._deannotate() if hasattr(table, "_deannotate") else table
    return plain
