"""Read the rows of tables, bypassing the session's identity map."""

from __future__ import annotations

from typing import Any

from sqlalchemy import inspect, select
from sqlalchemy.orm import Session


def stored(session: Session, model: type[Any]) -> dict[int, str]:
    """Return key → public id, for all rows of *model*."""
    table = inspect(model).base_mapper.local_table
    return dict(session.connection().execute(select(table.c.id, table.c.public_id)).all())


def agree(session: Session, objects: list[Any]) -> None:
    """Check that each object has the key and the id of a different row, and that no two rows share an id."""
    rows = stored(session, type(objects[0]))

    assert {each.id: each.public_id for each in objects}.items() <= rows.items()
    assert len({each.id for each in objects}) == len(objects)
    assert len(set(rows.values())) == len(rows)
