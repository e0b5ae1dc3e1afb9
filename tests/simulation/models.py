"""The table that histories write to, its mappings, and the listeners of some of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from simulation.storage import Index, Table, Transaction
from sqlalchemy import Connection, Delete, Insert, Sequence, Update, event, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, configure_mappers, mapped_column, object_session

from sqlalchemy_public_id import NanoId, PublicIdColumnMixin, PublicIdMixin, bulk

ALPHABET = "0123456789abcdef"
FORMAT = NanoId(length=2, alphabet=ALPHABET)
IDS = [first + second for first in ALPHABET for second in ALPHABET]

NEVER = 10_000
"""Markers from here belong to rows that listeners write."""


class Base(DeclarativeBase): ...


class HeardBase(DeclarativeBase): ...


class Columns:
    """What all mappings of the table have, besides key and public id."""

    __tablename__ = "item"
    code: Mapped[int | None] = mapped_column(unique=True, index=True)
    marker: Mapped[int]


class Item(PublicIdMixin, Columns, Base):
    """The table as an application without listeners maps it."""

    __public_id__ = FORMAT


class Heard(PublicIdMixin, Columns, HeardBase):
    """The same table in an application whose listeners write rows, or give ids."""

    __public_id__ = FORMAT


class RefreshedBase(DeclarativeBase): ...


class Refreshed(PublicIdMixin, Columns, RefreshedBase):
    """The table with a listener that is told of the defaults of an INSERT, as extensions for mutable values have it."""

    __public_id__ = FORMAT
    note: Mapped[str | None] = mapped_column(default=lambda: "new")


@event.listens_for(Refreshed, "refresh_flush")
def _note_refresh(item: Refreshed, context: object, attributes: object) -> None:
    item.__dict__["is_refreshed"] = True


class SequencedBase(DeclarativeBase): ...


class Sequenced(PublicIdColumnMixin, Columns, SequencedBase):
    """The table with a key that SQLAlchemy reads from a sequence before the INSERT."""

    __table_args__: ClassVar[Any] = {"implicit_returning": False}
    __public_id__ = FORMAT
    id: Mapped[int] = mapped_column(Sequence("item_id"), primary_key=True)


class RoutedSession(Session):
    """A session that writes to a leader and reads from a follower, as SQLAlchemy's documentation has it."""

    def get_bind(self, mapper: Any = None, *, clause: Any = None, **arguments: Any) -> Any:
        writes = self._flushing or isinstance(clause, (Insert, Update, Delete))
        return self.info["leader" if writes else "follower"]


MODELS: dict[str, type[Any]] = {"plain": Item, "heard": Heard, "refreshed": Refreshed, "sequenced": Sequenced}


Listener: TypeAlias = Callable[[Connection, Heard], None]


def _listen_to(moment: str, key: str) -> None:
    """Run what the session of an object has in store for *moment* under *key*."""

    def listen(mapper: object, connection: Connection, item: Heard) -> None:
        session = object_session(item)
        if session is not None and key in session.info and item.marker < NEVER:
            listener: Listener = session.info[key]
            listener(connection, item)

    event.listen(Heard, moment, listen)


_listen_to("before_insert", "early before_insert")
configure_mappers()  # the library listens from now on
_listen_to("before_insert", "late before_insert")
_listen_to("after_insert", "after_insert")


def write_by_core(own_id: Callable[[Heard], str] | None = None) -> Listener:
    """Return a listener that inserts another row by Core, as SQLAlchemy's documentation proposes."""

    def listen(connection: Connection, item: Heard) -> None:
        values = {} if own_id is None else {"public_id": own_id(item)}
        connection.execute(insert(Heard.__table__), {**values, "marker": item.marker + NEVER})

    return listen


def write_by_session(made: list[Any], way: str = "flush", own_id: str | None = None) -> Listener:
    """Return a listener that adds another object through a second session on the same connection."""

    def listen(connection: Connection, item: Heard) -> None:
        values: dict[str, Any] = {"marker": item.marker + NEVER}
        if own_id is not None:
            values["public_id"] = own_id
        with Session(connection, join_transaction_mode="create_savepoint", expire_on_commit=False) as inner:
            if way == "orm":
                inner.execute(insert(Heard), [values])
            elif way == "bulk":
                others = [Heard(**values), Heard(marker=item.marker + 2 * NEVER)]
                bulk.insert(inner, others)
                made.extend(others)
            else:
                other = Heard(**values)
                inner.add(other)
                inner.flush()
                made.append(other)
            inner.commit()

    return listen


def give_id(public_id: str) -> Listener:
    """Return a listener that gives every second object the id that the application wants."""

    def listen(connection: Connection, item: Heard) -> None:
        if gets_id(item.marker):
            item.public_id = public_id

    return listen


def gets_id(marker: int) -> bool:
    """Return True if :func:`give_id` gives the row an id."""
    return marker % 2 == 0


# --- in memory


def audited(transaction: Transaction, values: dict[str, Any]) -> dict[str, Any]:
    """Write a row of the audit table, as a trigger BEFORE INSERT."""
    transaction.insert(transaction.database.tables["trail"], {"marker": values["marker"]})
    return values


def redirected(transaction: Transaction, values: dict[str, Any]) -> None:
    """Store the row in another table, as the triggers of old partitioned tables do."""
    transaction.insert(transaction.database.tables["elsewhere"], values)


TRIGGERS = {"audit": audited, "redirect": redirected}


def tables(trigger: str | None = None) -> list[Table]:
    """Return the tables, empty."""
    columns = ("id", "public_id", "code", "marker", "note")
    item, elsewhere = (
        Table(
            name,
            columns,
            (Index(f"uq_{name}_public_id", name, "public_id"), Index(f"ix_{name}_code", name, "code")),
            required=("public_id", "marker"),
        )
        for name in ("item", "elsewhere")
    )
    if trigger is not None:
        item.before_insert[trigger] = TRIGGERS[trigger]
    return [item, elsewhere, Table("trail", ("id", "marker"))]
