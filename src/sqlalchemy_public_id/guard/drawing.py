"""Draw the ids of new rows, and keep those of a flush until their INSERT.

Every new id is drawn here: for a flush, for an INSERT without a flush, for ``bulk.insert()``, and in place of one that
has collided. So the bound, ``max_retries``, is in one function.

In a flush, the mapper event ``before_insert`` draws an id for each object, and the column default hands it over inside
the INSERT. Meanwhile it waits in a queue of the flush, and not in the object, where a program could read it. Ids are
interchangeable until a row has them: the default takes the one that has waited longest.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import ref

from sqlalchemy import Column
from sqlalchemy.engine import Connection
from sqlalchemy.orm import InstanceState, Mapper, Session
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.orm.interfaces import EXT_CONTINUE

from sqlalchemy_public_id._private import session_token
from sqlalchemy_public_id.columns import max_retries, public_id_type
from sqlalchemy_public_id.errors import ConfigurationError, PublicIdCollision
from sqlalchemy_public_id.registry import model_of
from sqlalchemy_public_id.types import IdColumnType, unwrapped
from sqlalchemy_public_id.weak import RefDict

logger: logging.Logger = logging.getLogger("sqlalchemy_public_id")

# --- the bound


def another(type_: IdColumnType, column: Column[Any], used: set[str], tried: int = 0) -> tuple[str, int]:
    """Return a new id that is not in *used*, to replace one that is, and the number of ids tried for the row.

    :param tried: how many other ids the row has had before.
    :raises PublicIdCollision: if the row has had ``max_retries`` other ids.
    """
    most = max_retries(column)
    while tried < most:
        tried += 1
        public_id = type_.next_id()
        if public_id not in used:
            used.add(public_id)
            return public_id, tried
    raise unwrapped(_exhausted(column))


def _exhausted(column: Column[Any]) -> PublicIdCollision:
    """Log and build the error for a row of *column* that has used up its retries."""
    format = public_id_type(column).id_format
    model = model_of(column.table, column.key)
    logger.error("%s: no free %s was found for a row in %d tries", column.table.name, column.name, max_retries(column))
    return PublicIdCollision(
        model=model.__name__ if model else column.table.name,
        column=column.name,
        format=format,
        attempts=max_retries(column),
        capacity=format.capacity,
    )


class NewIds:
    """The ids of new rows of one column, for one INSERT or one flush: no two are equal.

    SQLAlchemy tells the rows of an INSERT apart by them.
    """

    __slots__ = (
        "_type",
        "alone",
        "column",
        "connection",
        "generate",
        "outer",
        "runner",
        "sent",
        "session",
        "used",
        "waiting",
    )

    def __init__(self, type_: IdColumnType, column: Column[Any]) -> None:
        self._type = type_
        self.column: Column[Any] = column
        self.generate: Callable[[], str] = type_.generate
        self.used: set[str] = set()
        self.waiting: OrderedDict[InstanceState[Any], str] = OrderedDict()
        """Object of a flush → the id that waits for its INSERT, in the order of the draws."""
        self.sent: set[InstanceState[Any]] = set()
        """The objects of a flush whose ids have been handed over to an INSERT."""
        self.runner: tuple[int, asyncio.Task[Any] | None] = (0, None)
        """The thread and task that flushes."""
        self.alone: dict[tuple[InstanceState[Any], str], str] = {}
        """Object of a flush and attribute → its id, which is sent in an INSERT of its own."""
        self.session: object = None
        """A token for the session that flushes."""
        self.outer: NewIds | None = None
        """The ids of another session, whose flush has called a listener that flushes this one."""
        self.connection: ref[Connection] | None = None
        """Kept, because Python takes longer to make a new weak reference than to return this one again."""

    def draw(self) -> str:
        """Return a new id."""
        public_id = self.generate()
        if public_id in self.used:
            return self.another()
        self.used.add(public_id)
        return public_id

    def another(self) -> str:
        """Return an id in place of a new one that another row has: up to ``max_retries`` are tried.

        :raises PublicIdCollision: if the other rows have all of them.
        """
        return another(self._type, self.column, self.used)[0]

    def draw_many(self, count: int) -> list[str]:
        """Return *count* new ids in the order in which they were generated, faster than one by one."""
        ids, used = self._type.next_ids(count), self.used
        new = set(ids)
        if len(new) == count and used.isdisjoint(new):
            used |= new
            return ids
        unused: list[str] = []
        for public_id in ids:  # a short format has made some of them before
            unused.append(self.another() if public_id in used else public_id)
            used.add(unused[-1])
        return unused

    def hand_over(self, count: int) -> list[str]:
        """Return the ids of the next *count* rows: those that have waited longest, and new ones for all other rows.

        In a flush, none waits for a row that a listener of the program inserts without the unit of work, nor for an
        object from which a listener has removed the id.
        """
        waiting = self.waiting
        if count < len(waiting):
            taken = dict([waiting.popitem(last=False) for _ in range(count)])
        else:
            taken = dict(waiting)
            waiting.clear()
        self.sent.update(taken)
        ids = [*taken.values()]
        return ids if len(ids) == count else ids + self.draw_many(count - len(ids))

    def is_of_others(self) -> bool:
        """Return True if another thread or task flushes."""
        task = self.runner[1]
        # a task that was canceled again while it rolled back has not said that its flush is over
        return self.runner != _runner() and not (task is not None and task.done())


# --- the ids of a flush

flush_ids: RefDict[Connection, dict[Column[Any], NewIds]] = RefDict()
"""Connection → column → the ids of the flush that is running on the connection."""
_of_session: RefDict[Session, list[tuple[dict[Column[Any], NewIds], NewIds]]] = RefDict()
"""Session → the ids of its flush, each with their dictionary in :data:`flush_ids`."""


def drawing_listener(
    columns: Mapping[str, Column[Any]], guard_connection: Callable[[Connection], None]
) -> Callable[[Mapper[Any], Connection, InstanceState[Any]], object]:
    """Return the listener to ``before_insert`` that draws the ids of a mapper.

    For each object without an id, it draws one that differs from all others of the flush.

    :param columns: attribute → the column whose default hands the ids over. Attributes may be added later.
    :param guard_connection: called with the connection of a flush before its first id is drawn.
    """
    on_connection, token = flush_ids.get, session_token

    # it runs for each object of a flush, where each function call counts
    def before_insert(_: Mapper[Any], connection: Connection, state: InstanceState[Any]) -> object:
        values: dict[str, Any] = state.obj().__dict__
        for key, column in columns.items():
            if values.get(key) is None:
                by_column = on_connection(ref(connection))
                ids = by_column.get(column) if by_column else None
                if ids is None or ids.session != token(state):
                    guard_connection(connection)
                    ids = begin(state, connection, column)
                    if ids is None:
                        continue
                public_id = ids.generate()
                if public_id in ids.used:
                    public_id = ids.another()
                ids.used.add(public_id)
                ids.waiting[state] = public_id
        return EXT_CONTINUE

    return before_insert


def show_again(ids: NewIds, members: Iterable[tuple[InstanceState[Any], str]]) -> None:
    """Let objects show the ids that are sent alone, in place of SQL expressions."""
    for state, key in members:
        given, instance = ids.alone.pop((state, key)), state.obj()
        if instance is not None:
            set_committed_value(instance, key, given)


def begin(state: InstanceState[Any], connection: Connection, column: Column[Any]) -> NewIds | None:
    """Return the ids of a flush that inserts into *column* for the first time.

    Another session on the connection may flush inside a listener of the first one, and ends before it continues.
    """
    session, by_column = state.session, flush_ids.get(ref(connection))
    outer = by_column.get(column) if by_column else None
    if session is None:  # a listener has expunged the object: without a flush, its id is drawn inside the INSERT
        return outer
    if by_column is None:
        by_column = flush_ids.keep(connection, {})
    type_: Any = column.type
    ids = by_column[column] = NewIds(type_, column)
    ids.session, ids.outer, ids.connection = session_token(state), outer, ref(connection)
    ids.runner = _runner()
    of_session = _of_session.get(ref(session))
    if of_session is None:
        of_session = _of_session.keep(session, [])
    of_session.append((by_column, ids))
    return ids


def draw_on_access(state: InstanceState[Any], column: Column[Any], type_: IdColumnType) -> str:
    """Return the id of an object that is read before its INSERT: in a flush, the one that waits for it.

    :raises ConfigurationError: in another task than that of the flush: the INSERT may have its parameters already, in
        which an id that is read now would be missing, and a collision may replace the one that they contain.
    """
    ids = _ids_of(state, column)
    if ids is None:
        return type_.next_id()
    if (state in ids.waiting or state in ids.sent) and ids.is_of_others():
        name = f"{state.class_.__name__}.{column.key}"
        raise ConfigurationError(
            f"{name} is read while another task or thread inserts its row, and is not certain yet; read it before the "
            f"flush, or when the flush is over"
        )
    return ids.waiting.pop(state) if state in ids.waiting else ids.draw()


def _runner() -> tuple[int, asyncio.Task[Any] | None]:
    """Return the thread and the task that is running."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # there is no event loop
        task = None
    return threading.get_ident(), task


def discard(state: InstanceState[Any], column: Column[Any]) -> None:
    """Discard the id that waits for an object, because a listener has assigned another one."""
    ids = _ids_of(state, column)
    if ids is not None and state in ids.waiting:
        del ids.waiting[state]


def _ids_of(state: InstanceState[Any], column: Column[Any]) -> NewIds | None:
    """Return the ids of *column* in the flush of the object's session, if it is running."""
    session = state.session if _of_session else None  # mostly, no flush is running in the process
    if session is None:
        return None
    of_column = [ids for _, ids in _of_session.get(ref(session), ()) if ids.column is column]
    # the flush of a sharded session has several connections
    own = (ids for ids in of_column if state in ids.waiting or state in ids.sent)
    return next(own, of_column[0] if of_column else None)


def end_flush(session: Session, *_: object) -> None:
    """Discard the ids that wait for no INSERT any more: the flush of *session* is complete, or has failed."""
    for by_column, ids in _of_session.pop(ref(session), ()):
        if ids.alone:
            show_again(ids, [*ids.alone])
        if by_column.get(ids.column) is ids:
            del by_column[ids.column]
            if ids.outer is not None:
                by_column[ids.column] = ids.outer
