"""The ways in which an INSERT is executed until no id collides.

SQLite, MySQL and MariaDB undo a statement that fails, and no more, so that it can simply be executed again. Everything
else runs inside a savepoint: each INSERT on PostgreSQL, where an error aborts the transaction, and on all databases an
``executemany``, of which the rows before the refused one would stay.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy_public_id.guard import on_conflict
from sqlalchemy_public_id.guard.execution import GuardedInsert
from sqlalchemy_public_id.guard.parameters import Batch, Row, may_contain_generated


def run(guarded: GuardedInsert, parameters: Any, first: int) -> int:
    """Execute one statement, and return the number of its rows.

    :param first: the position of its first row in the execution.
    """
    batch = Batch(guarded.context, parameters, first)
    if not may_contain_generated(guarded.context) or not guarded.has_immediate_result:
        guarded.execute(parameters)
    elif not (guarded.risks_transaction and guarded.sees_commits and on_conflict.run(guarded, batch)):
        guarded.execute_with_retries(batch, guarded.execute, in_savepoint=guarded.risks_transaction)
    return batch.rows


def run_again(guarded: GuardedInsert, parameters: Any, error: Exception, first: int) -> None:
    """Execute one statement that has just failed with *error*, and whose failure has undone nothing else."""
    batch = Batch(guarded.context, parameters, first)
    guarded.replace(batch, guarded.collided(batch, error))
    guarded.execute_with_retries(batch, guarded.execute, in_savepoint=False)


def run_many(guarded: GuardedInsert, rows: list[Row]) -> bool:
    """Execute the statement by the driver's ``executemany``. Return False, sending nothing, if it needs no guard.

    Under AUTOCOMMIT it cannot have one: no savepoint could take back the rows before a refused one.
    """
    if guarded.in_autocommit or not may_contain_generated(guarded.context):
        return False
    guarded.execute_with_retries(Batch(guarded.context, rows), guarded.execute_many, in_savepoint=True)
    return True
