"""Typed ids from the driver, and what other packages make of the same rows.

A TypeID is stored once as text and once as a UUID, in the same rows. Ours reads either column as a typed id.
typeid-python has no column type: a ``TypeDecorator`` calls ``TypeID.from_string``, as its documentation would have it.
advanced-alchemy reads the UUID as ``uuid.UUID``, which is not yet a text that can be shown.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from advanced_alchemy.types import GUID
from sqlalchemy import DateTime, Dialect, Engine, Integer, String, TypeDecorator, create_engine, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from typeid import TypeID

from benchmarks.databases import ALL, Bench
from benchmarks.measure import Comparison, Subject, together
from sqlalchemy_public_id import JetifyTypeId, PublicIdType, TypedId

__all__ = ["run"]

_TABLE = "loaded_format"
_AT_ONCE = 5_000


class NativeId(TypedId, format=JetifyTypeId("inv")):
    """A typed id, stored as a UUID."""


class TextId(TypedId, format=JetifyTypeId("rcp", storage="text")):
    """A typed id, stored as text."""


class TypeIdText(TypeDecorator[TypeID[str]]):
    """Reads a TypeID with typeid-python."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: TypeID[str] | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> TypeID[str] | None:
        return None if value is None else TypeID.from_string(value)


class TypeIdUuid(GUID):
    """Reads a UUID as a TypeID with typeid-python, with the column type of advanced-alchemy."""

    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        found: Any = super().process_result_value(value, dialect)
        return None if found is None else TypeID.from_uuid(found, "inv")


def _model(column: str, type_: Any) -> type[Any]:
    """Map the table with one of its two ids; each model has a base of its own."""
    base = type("Base", (DeclarativeBase,), {})
    columns = {
        "__tablename__": _TABLE,
        "__annotations__": {
            "id": Mapped[int],
            "public_id": Mapped[Any],
            "name": Mapped[str],
            "email": Mapped[str],
            "created_at": Mapped[datetime],
        },
        "id": mapped_column(Integer, primary_key=True, autoincrement=False),
        "public_id": mapped_column(column, type_),
        "name": mapped_column(String(50)),
        "email": mapped_column(String(100)),
        "created_at": mapped_column(DateTime()),
    }
    return type("Loaded", (base,), columns)


class Base(DeclarativeBase):
    """The table itself."""


class Stored(Base):
    """All columns of the table."""

    __tablename__ = _TABLE
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    native: Mapped[NativeId] = mapped_column(PublicIdType(NativeId))
    shown: Mapped[TextId] = mapped_column(PublicIdType(TextId))
    name: Mapped[str] = mapped_column(String(50))
    email: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime] = mapped_column(DateTime())


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the loading of rows, µs a row."""
    rows = bench.rows or bench.times(20_000, 2_000)
    ours = {"text": _model("shown", PublicIdType(TextId)), "native": _model("native", PublicIdType(NativeId))}
    for database in bench.on(*ALL):
        engine = create_engine(database.url)
        Base.metadata.create_all(engine)
        _fill(engine, rows)
        rivals = {
            ("text", "typeid-python"): _model("shown", TypeIdText(30)),
            ("native", "typeid-python, from a UUID"): _model("native", TypeIdUuid()),
            ("native", "advanced-alchemy, UUID"): _model("native", GUID()),
        }
        _check(engine, [*ours.values(), *rivals.values()])
        for what, query in (("objects", _objects), ("rows of key and id", _pairs)):
            subjects = {f"ours, {stored}": _loaded(engine, query(model), rows) for stored, model in ours.items()}
            subjects |= {name: _loaded(engine, query(model), rows) for (_, name), model in rivals.items()}
            taken = together(subjects, bench.times(11, 1))
            for stored, name in rivals:
                yield Comparison.of_times(
                    f"{rows:,} {what} with typed ids, {stored}, {database.name}",
                    ("TypedId", name),
                    (taken[f"ours, {stored}"], taken[name]),
                    rows,
                    1.0,
                )
        Base.metadata.drop_all(engine)
        engine.dispose()


def _check(engine: Engine, models: list[type[Any]]) -> None:
    """Refuse figures of models that read different ids from the same rows."""
    with Session(engine) as session:
        rows = session.execute(select(Stored.native, Stored.shown)).tuples().all()
        uuids = {TypeID.from_string(native).uuid_bytes for native, _ in rows}
        texts = {str(shown) for _, shown in rows}
        for model in models:
            read = session.scalars(select(model.public_id)).all()
            ids = {each.bytes if isinstance(each, uuid.UUID) else str(each) for each in read}
            native = {TypeID.from_string(each).uuid_bytes if isinstance(each, str) else each for each in ids}
            assert ids == texts or native == uuids


def _fill(engine: Engine, rows: int) -> None:
    for at in range(0, rows, _AT_ONCE):
        some = [
            {
                "id": number + 1,
                "native": NativeId(),
                "shown": TextId(),
                "name": f"name {number}",
                "email": f"{number}@example.org",
                "created_at": datetime(2026, 1, 1) + timedelta(seconds=number),
            }
            for number in range(at, min(at + _AT_ONCE, rows))
        ]
        with engine.begin() as connection:
            connection.execute(insert(Stored), some)


def _objects(model: type[Any]) -> Any:
    return select(model).execution_options(yield_per=1000)


def _pairs(model: type[Any]) -> Any:
    return select(model.id, model.public_id)


def _loaded(engine: Engine, query: Any, rows: int) -> Subject:
    """Read everything; objects a thousand at a time, as a program that reads so many would."""
    keep = 1 if query.get_execution_options().get("yield_per") else None

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        counted: list[int] = []
        with Session(engine) as session:
            session.connection()

            def work() -> None:
                found = deque(session.execute(query), maxlen=keep)
                counted.append(len(found))

            yield work
            assert counted == [keep or rows]

    return subject
