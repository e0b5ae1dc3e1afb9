"""A savepoint of PostgreSQL that waits for the first statement inside of it, and is sent together with it by psycopg.

By itself, it would take a round trip of its own. SQLAlchemy notices nothing of it: the savepoint is held back where it
would be given to the driver.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from weakref import ref

from sqlalchemy.engine import Connection

from sqlalchemy_public_id._compat import read_pipelined_rows
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.weak import RefDict

held_savepoints: RefDict[Connection, HeldSavepoint] = RefDict()
"""Connection → its savepoint that is held back. Empty most of the time."""


@contextmanager
def hold_savepoint(connection: Connection) -> Generator[None]:
    """Hold back the next SAVEPOINT of *connection*, if its driver can send it together with another statement."""
    is_possible = traits_for(connection.dialect).pipeline(connection.connection.dbapi_connection) is not None
    if not is_possible or ref(connection) in held_savepoints:
        yield
        return
    held_savepoints.keep(connection, HeldSavepoint(connection))
    try:
        yield
    finally:
        del held_savepoints[ref(connection)]


def send_held_savepoint(context: Any) -> None:
    """Send the savepoint that is held back on the connection of an execution, if there is one."""
    if held_savepoints and context is not None:
        held = held_savepoints.get(ref(context.root_connection))
        if held is not None:
            held.send(context)


class _State(enum.Enum):
    AWAITED = enum.auto()
    HELD = enum.auto()
    SENT = enum.auto()
    OVER = enum.auto()


class HeldSavepoint:
    """The next savepoint of a connection."""

    def __init__(self, connection: Connection) -> None:
        self._traits = traits_for(connection.dialect)  # not the connection, whose entry this is
        self._state = _State.AWAITED
        self._command = ""

    def send(self, context: Any) -> None:
        """Send the savepoint before a statement, if it is still held back."""
        if self._state is _State.HELD:
            self._state = _State.SENT
            self._traits.send(context.root_connection.connection, self._command)

    def execute(
        self, cursor: Any, statement: str, context: Any, execute: Callable[[], None], *, reads_result: bool
    ) -> None:
        """Execute *statement* by *execute*, together with the savepoint if it is the first one inside of it.

        :param reads_result: *execute* needs the result before it returns.
        """
        if self._state is _State.AWAITED and statement.startswith("SAVEPOINT "):
            self._command, self._state = statement, _State.HELD
        elif self._state is not _State.HELD:
            execute()
        elif statement in (f"RELEASE {self._command}", f"ROLLBACK TO {self._command}"):
            self._state = _State.OVER  # nothing was executed inside of it
        else:
            self._execute_with(cursor, context, execute, reads_result)

    def _execute_with(self, cursor: Any, context: Any, execute: Callable[[], None], reads_result: bool) -> None:
        dbapi_connection = context.root_connection.connection.dbapi_connection
        pipeline = None if reads_result else self._traits.pipeline(dbapi_connection)
        if pipeline is None:
            self.send(context)
            execute()
            return
        self._state = _State.SENT
        with pipeline:
            self._traits.send(context.root_connection.connection, self._command)
            execute()
        read_pipelined_rows(cursor, dbapi_connection)
