"""The table that histories write to, as two applications map it, and the listeners of one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from sqlalchemy import Connection, event, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, configure_mappers, mapped_column, object_session

from sqlalchemy_public_id import NanoId, PublicIdMixin, bulk

ALPHABET = "0123456789abcdef"
FORMAT = NanoId(length=2, alphabet=ALPHABET)
IDS = [first + second for first in ALPHABET for second in ALPHABET]

GIVEN = "fe"
"""The id that listeners give."""
NEVER = 10_000
"""Markers from here belong to rows that listeners write."""


class Base(DeclarativeBase): ...


class HeardBase(DeclarativeBase): ...


class Columns:
    """The columns of both mappings of the table, besides key and public id."""

    __tablename__ = "item"
    code: Mapped[int | None] = mapped_column(unique=True, index=True)
    marker: Mapped[int]


class Item(PublicIdMixin, Columns, Base):
    """The table as an application without listeners maps it."""

    __public_id__ = FORMAT


class Heard(PublicIdMixin, Columns, HeardBase):
    """The same table in an application whose listeners write rows, or give ids."""

    __public_id__ = FORMAT


Listener: TypeAlias = Callable[[Connection, Heard], None]


def _listen_to(moment: str, key: str) -> None:
    """Run the listener that the session of an object has for *moment* under *key*."""

    def listen(mapper: object, connection: Connection, item: Heard) -> None:
        session = object_session(item)
        if session is not None and key in session.info and item.marker < NEVER:
            session.info[key](connection, item)

    event.listen(Heard, moment, listen)


_listen_to("before_insert", "early before_insert")
configure_mappers()  # the library listens from now on
_listen_to("before_insert", "late before_insert")
_listen_to("after_insert", "after_insert")


def _write_by_core(own_id: Callable[[Heard], str] | None = None) -> Listener:
    """Insert another row by Core, as SQLAlchemy's documentation recommends."""

    def listen(connection: Connection, item: Heard) -> None:
        values = {} if own_id is None else {"public_id": own_id(item)}
        connection.execute(insert(Heard.__table__), {**values, "marker": item.marker + NEVER})

    return listen


def _write_by_session(made: list[Any], way: str = "flush", **values: str) -> Listener:
    """Add another object through a second session on the same connection."""

    def listen(connection: Connection, item: Heard) -> None:
        row: dict[str, Any] = {"marker": item.marker + NEVER, **values}
        with Session(connection, join_transaction_mode="create_savepoint", expire_on_commit=False) as inner:
            if way == "orm":
                inner.execute(insert(Heard), [row])
            else:
                others = [Heard(**row)]
                if way == "bulk":
                    others.append(Heard(marker=item.marker + 2 * NEVER))
                    bulk.insert(inner, others)
                else:
                    inner.add_all(others)
                made.extend(others)
            inner.commit()

    return listen


def _give(connection: Connection, item: Heard) -> None:
    if gets_id(item.marker):
        item.public_id = GIVEN


def gets_id(marker: int) -> bool:
    """Return True if the listeners that give ids give one to this row."""
    return marker % 2 == 0


LISTENERS: dict[str, Callable[[list[Any]], dict[str, Listener]]] = {
    "core": lambda made: {"after_insert": _write_by_core()},
    "core, given": lambda made: {"after_insert": _write_by_core(lambda item: GIVEN)},
    "core, twice": lambda made: {"after_insert": _write_by_core(lambda item: item.public_id)},
    "session": lambda made: {"after_insert": _write_by_session(made)},
    "session, given": lambda made: {"after_insert": _write_by_session(made, public_id=GIVEN)},
    "session, orm": lambda made: {"after_insert": _write_by_session(made, "orm")},
    "session, bulk": lambda made: {"after_insert": _write_by_session(made, "bulk")},
    "gives early": lambda made: {"early before_insert": _give},
    "gives late": lambda made: {"late before_insert": _give},
}
"""What listeners of the application do in each flush of a session, given the list for the objects that they make."""

GIVES = frozenset({"gives early", "gives late"})
"""Listeners that give an id to every second object."""
WRITES = frozenset(LISTENERS) - GIVES - {"core, twice"}
"""Listeners that write a row for each row of a flush."""
WRITES_GIVEN = frozenset({"core, given", "core, twice", "session, given"})
"""Listeners that write this row with an id of their own."""
