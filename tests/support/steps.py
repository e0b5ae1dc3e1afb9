"""The ways to write rows, for all simulations: random programs, errors at every call, and histories.

A new way is one function here. Random programs (``tests/whole/programs``) then mix it with all others, and
``tests/faults`` fails every call that it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import groupby
from typing import Any, TypeAlias

from sqlalchemy import insert
from sqlalchemy.orm import Session

from sqlalchemy_public_id import bulk, idempotency

__all__ = ["FLUSHING", "OBJECT_STEPS", "ONLY_ON", "ROW_STEPS", "flush"]

Values: TypeAlias = "list[dict[str, Any]]"

# --- of objects: each returns the objects of the rows, in their order


def flush(session: Session, objects: Sequence[Any]) -> Sequence[Any]:
    """Add new objects, and flush."""
    session.add_all(objects)
    session.flush()
    return objects


def merge(session: Session, objects: Sequence[Any]) -> Sequence[Any]:
    """Merge new objects, which stores a copy of each."""
    merged = [session.merge(each) for each in objects]
    session.flush()
    return merged


def bulk_insert(session: Session, objects: Sequence[Any]) -> Sequence[Any]:
    """Insert objects with ``bulk.insert()``."""
    bulk.insert(session, objects)
    return objects


def bulk_save(session: Session, objects: Sequence[Any]) -> Sequence[Any]:
    """Insert objects with SQLAlchemy's ``bulk_save_objects()``, which leaves them out of the session."""
    session.bulk_save_objects(objects)
    return objects


def bulk_save_and_return(session: Session, objects: Sequence[Any]) -> Sequence[Any]:
    """Insert objects with ``bulk_save_objects()``, which sets their keys."""
    session.bulk_save_objects(objects, return_defaults=True)
    return objects


def insert_once(session: Session, objects: Sequence[Any]) -> Sequence[Any]:
    """Insert each object unless its id is stored with the same content, and return the stored objects."""
    return [idempotency.insert_once(session, each)[0] for each in objects]


def second_session(session: Session, objects: Sequence[Any]) -> Sequence[Any]:
    """Store objects in another session on the connection of this one, and close it."""
    with Session(session.connection(), join_transaction_mode="create_savepoint", expire_on_commit=False) as other:
        other.add_all(objects)
        other.commit()
    return objects


OBJECT_STEPS: dict[str, Callable[[Session, Sequence[Any]], Sequence[Any]]] = {
    "flush": flush,
    "merge": merge,
    "bulk": bulk_insert,
    "bulk_save": bulk_save,
    "bulk_save_and_return": bulk_save_and_return,
    "once": insert_once,
    "second_session": second_session,
}
FLUSHING = frozenset({"flush", "merge", "bulk", "once", "second_session"})
"""Steps that fire the mapper's events, so that listeners run."""


# --- of values: each returns the number of rows that the results tell, if they do, and the objects that they return


def core(session: Session, model: Any, rows: Values) -> tuple[int | None, Sequence[Any]]:
    """Insert into the table of a model."""
    return _execute_many(session, insert(model.__table__), rows)


def orm(session: Session, model: Any, rows: Values) -> tuple[int | None, Sequence[Any]]:
    """Insert into a model."""
    return _execute_many(session, insert(model), rows)


def values_clause(session: Session, model: Any, rows: Values) -> tuple[int | None, Sequence[Any]]:
    """Insert rows with ``insert(Model).values([…])``."""
    for alike in _group_alike(rows):
        session.execute(insert(model).values(alike))
    return None, ()


def returning(session: Session, model: Any, rows: Values) -> tuple[int | None, Sequence[Any]]:
    """Insert into a model, and return its objects."""
    statement: Any = insert(model).returning(model, sort_by_parameter_order=True)
    objects: list[Any] = []
    for alike in _group_alike(rows):
        objects += session.scalars(statement, alike).all()
    return len(objects), objects


def skipping(session: Session, model: Any, rows: Values) -> tuple[int | None, Sequence[Any]]:
    """Insert rows, and skip those whose code is taken, by the application's own ON CONFLICT."""
    statement = _own_insert(session, model.__table__).on_conflict_do_nothing(index_elements=["code"])
    return _execute_many(session, statement, rows)


def upsert(session: Session, model: Any, rows: Values) -> tuple[int | None, Sequence[Any]]:
    """Insert rows, and update those whose code is taken, without their ids."""
    statement = _own_insert(session, model)
    statement = statement.on_conflict_do_update(index_elements=["code"], set_={"marker": statement.excluded.marker})
    for alike in _group_alike(rows):
        session.execute(statement, alike)
    return None, ()


def or_rollback(session: Session, model: Any, rows: Values) -> tuple[int | None, Sequence[Any]]:
    """Insert with a statement that rolls the transaction back if it fails."""
    for row in rows:
        session.execute(insert(model.__table__).prefix_with("OR ROLLBACK"), row)
    return None, ()


ROW_STEPS: dict[str, Callable[[Session, Any, Values], tuple[int | None, Sequence[Any]]]] = {
    step.__name__: step for step in (core, orm, values_clause, returning, skipping, upsert, or_rollback)
}

ONLY_ON = {
    "returning": {"sqlite", "postgresql", "mariadb"},
    "skipping": {"sqlite", "postgresql"},
    "upsert": {"sqlite", "postgresql"},  # in MySQL, an upsert whose id collides would change the row with this id
    "or_rollback": {"sqlite"},
}
"""Step → the databases that support its statement."""


def _execute_many(session: Session, statement: Any, rows: Values) -> tuple[int, Sequence[Any]]:
    count = 0
    for alike in _group_alike(rows):
        result: Any = session.execute(statement, alike, execution_options={"preserve_rowcount": True})
        count += getattr(result, "rowcount", len(alike))  # a result of the ORM has no rowcount
    return count, ()


def _own_insert(session: Session, target: Any) -> Any:
    dialect: Any = import_module(f"sqlalchemy.dialects.{session.get_bind().dialect.name}")
    return dialect.insert(target)


def _group_alike(rows: Values) -> list[Values]:
    """Return the rows in groups that have the same columns, each for one INSERT."""
    return [list(group) for _, group in groupby(rows, key=dict.keys)]
