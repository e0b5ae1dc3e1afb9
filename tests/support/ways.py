"""Ways to write rows of a model: ``write(session, User, [{"name": "Ada"}])``. Each returns its objects, if any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from sqlalchemy import insert
from sqlalchemy.orm import Session

from sqlalchemy_public_id import bulk

Rows: TypeAlias = list[dict[str, Any]]
Way: TypeAlias = Callable[[Session, Any, Rows], list[Any]]


def flush(session: Session, model: Any, rows: Rows) -> list[Any]:
    objects = [model(**row) for row in rows]
    session.add_all(objects)
    session.flush()
    return objects


def flush_one_by_one(session: Session, model: Any, rows: Rows) -> list[Any]:
    return [flush(session, model, [row])[0] for row in rows]


def insert_in_bulk(session: Session, model: Any, rows: Rows) -> list[Any]:
    objects = [model(**row) for row in rows]
    bulk.insert(session, objects)
    return objects


def save_in_bulk(session: Session, model: Any, rows: Rows) -> list[Any]:
    session.bulk_save_objects([model(**row) for row in rows])
    return []  # SQLAlchemy sets neither keys nor ids


def insert_mappings(session: Session, model: Any, rows: Rows) -> list[Any]:
    session.bulk_insert_mappings(model, [dict(row) for row in rows])
    return []


def execute(session: Session, model: Any, rows: Rows) -> list[Any]:
    session.execute(insert(model), rows)
    return []


def execute_values(session: Session, model: Any, rows: Rows) -> list[Any]:
    session.execute(insert(model).values(rows))
    return []


def execute_core(session: Session, model: Any, rows: Rows) -> list[Any]:
    session.connection().execute(insert(model.__table__), rows)
    return []


def execute_returning(session: Session, model: Any, rows: Rows) -> list[Any]:
    """Insert with RETURNING, if the database has it, and return the objects."""
    if not session.get_bind().dialect.insert_executemany_returning:
        return execute(session, model, rows)
    return list(session.scalars(insert(model).returning(model), rows))


def each_way(*ways: Way) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("write", ways, ids=lambda way: way.__name__)


def numbers(count: int, first: int = 0) -> Rows:
    """Return *count* rows with a ``number``."""
    return [{"number": number} for number in range(first, first + count)]
