"""The cost of storing ids: reading rows with typed ids, and the size of the unique index for each storage.

The size of an index also depends on how full its pages are: ids in the order of time fill one page after the other,
random ones split pages and leave them two thirds full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Column,
    DateTime,
    Engine,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    insert,
    select,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from benchmarks.databases import ALL, Bench, Database
from benchmarks.measure import Comparison, Subject, interleaved
from sqlalchemy_public_id import NanoId, ObjectId, PublicIdType, Snowflake, TypedId, Ulid, Uuid4, Uuid7

__all__ = ["run"]


class LoadedId(TypedId, prefix="ld"): ...


class Base(DeclarativeBase): ...


class Typed(Base):
    __tablename__ = "loaded"
    id: Mapped[int] = mapped_column(primary_key=True)
    public_id: Mapped[LoadedId] = mapped_column(PublicIdType(LoadedId))
    name: Mapped[str] = mapped_column(String(50))
    email: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime] = mapped_column(DateTime())


class PlainBase(DeclarativeBase): ...


class Plain(PlainBase):
    __tablename__ = "loaded"
    id: Mapped[int] = mapped_column(primary_key=True)
    public_id: Mapped[str] = mapped_column(String(15))
    name: Mapped[str] = mapped_column(String(50))
    email: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime] = mapped_column(DateTime())


_STORED: dict[str, tuple[Any, Any]] = {
    "Uuid7, native": (Uuid7(), Uuid7(storage="text", encoding="hyphenated")),
    "Uuid7, native against base 36": (Uuid7(), Uuid7(storage="text")),
    "Uuid4, native": (Uuid4(), Uuid4(storage="text", encoding="hyphenated")),
    "Ulid, native": (Ulid(), Ulid(storage="text")),
    "Snowflake, native": (Snowflake(machine_id=1), Snowflake(machine_id=1, storage="text")),
    "ObjectId, native": (ObjectId(), ObjectId(storage="text")),
    "NanoId(12) against Uuid4, hyphenated": (NanoId(), Uuid4(storage="text", encoding="hyphenated")),
}
_AT_ONCE = 5_000


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare bytes per entry of the unique index, and the loading of rows, µs per row."""
    yield from _sizes(bench)
    yield from _loading(bench)


def _sizes(bench: Bench) -> Iterator[Comparison]:
    rows = bench.rows or bench.times(100_000, 1_000)
    for database in bench.on(*ALL):
        for name, formats in _STORED.items():
            ours, rival = (_index_size(database, format, rows) / rows for format in formats)
            names = tuple(_words(format) for format in formats)
            what = f"unique index of {rows} ids, {name}, {database.name}"
            yield Comparison(what, names[0], names[1], "bytes an id", [ours], [rival])


# --- loading


def _loading(bench: Bench) -> Iterator[Comparison]:
    rows = bench.times(100_000, 2_000)
    for database in bench.on(*ALL):
        engine = create_engine(database.url)
        Base.metadata.create_all(engine)
        with engine.begin() as connection:
            table = Base.metadata.tables["loaded"]
            ids = [LoadedId() for _ in range(rows)]
            for at in range(0, rows, _AT_ONCE):
                some = [
                    {
                        "id": at + number + 1,
                        "public_id": public_id,
                        "name": f"name {at + number}",
                        "email": f"{at + number}@example.org",
                        "created_at": datetime(2026, 1, 1) + timedelta(seconds=number),
                    }
                    for number, public_id in enumerate(ids[at : at + _AT_ONCE])
                ]
                connection.execute(insert(table), some)
        rounds = bench.times(12, 1)
        for what, typed, plain, goal in (
            ("objects of five columns, a thousand at a time", _streamed(Typed), _streamed(Plain), 1.10),
            ("objects of five columns, all at once", select(Typed), select(Plain), 1.10),
            ("rows of key and id", select(Typed.id, Typed.public_id), select(Plain.id, Plain.public_id), None),
        ):
            taken = interleaved(_loaded(engine, typed), _loaded(engine, plain), rounds)
            names = "a typed id", "plain str"
            yield Comparison.of_times(f"loading {rows} {what}, {database.name}", names, taken, rows, goal)
        Base.metadata.drop_all(engine)
        engine.dispose()


def _streamed(model: type[Any]) -> Any:
    return select(model).execution_options(yield_per=1000)


def _loaded(engine: Engine, query: Any) -> Subject:
    keep = 0 if query.get_execution_options().get("yield_per") else None

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        with Session(engine) as session:
            session.connection()
            yield lambda: deque(session.execute(query), maxlen=keep)

    return subject


# --- the size of an index


def _index_size(database: Database, format: Any, rows: int) -> int:
    """Return the bytes of the unique index of a table of *rows* rows, inserted in the order of their ids."""
    metadata = MetaData()
    table = Table(
        "stored_id",
        metadata,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("public_id", PublicIdType(format), nullable=False),
        Index("uq_stored_id_public_id", "public_id", unique=True),
    )
    engine = create_engine(database.url)
    metadata.drop_all(engine)
    metadata.create_all(engine)
    try:
        with engine.begin() as connection:
            ids = format.generate_many(rows)
            for at in range(0, rows, _AT_ONCE):
                some = [{"id": at + n, "public_id": text} for n, text in enumerate(ids[at : at + _AT_ONCE])]
                connection.execute(insert(table), some)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            return _SIZES[engine.name](connection, table)
    finally:
        metadata.drop_all(engine)
        engine.dispose()


def _sqlite(connection: Any, table: Table) -> int:
    """Return the pages that are free without the index."""
    free = "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"
    before = connection.scalar(text(free))
    connection.execute(text("DROP INDEX uq_stored_id_public_id"))
    return int(connection.scalar(text(free)) - before)


def _postgresql(connection: Any, table: Table) -> int:
    return int(connection.scalar(text("SELECT pg_relation_size('uq_stored_id_public_id')")))


def _mysql(connection: Any, table: Table) -> int:
    connection.execute(text("ANALYZE TABLE stored_id")).all()
    query = (
        "SELECT stat_value * @@innodb_page_size FROM mysql.innodb_index_stats WHERE database_name = DATABASE() "
        "AND table_name = 'stored_id' AND index_name = 'uq_stored_id_public_id' AND stat_name = 'size'"
    )
    return int(connection.scalar(text(query)))


_SIZES: dict[str, Callable[[Any, Table], int]] = {
    "mariadb": _mysql,
    "mysql": _mysql,
    "postgresql": _postgresql,
    "sqlite": _sqlite,
}


def _words(format: Any) -> str:
    stored = "number" if format.is_native else f"text of {format.max_length}"
    return f"{type(format).__name__}, {stored}"
