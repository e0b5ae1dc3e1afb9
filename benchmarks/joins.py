"""Reads of tables with integer keys, against those with text and UUID keys: joins, lists, and pages deep in a table.

The tables are those of ``growth``, an account and an entry for each row, and all of them fit into memory. With a UUID
or a text as key, an entry holds what is shown of its accounts already; with a BIGINT, it has to join them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, String, create_engine, insert, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from benchmarks import writing
from benchmarks.databases import ALL, Bench, Database
from benchmarks.kinds import KINDS, NANOID, Tables
from benchmarks.measure import Comparison, Subject, together
from sqlalchemy_public_id import NanoId, PublicIdMixin, lookup

__all__ = ["run"]

_OURS = [kind for kind in KINDS if kind.name in (NANOID, "BIGINT + Uuid7, native")]
_RIVALS = [kind for kind in KINDS if kind.format is None]
_PAGE = 50


class Base(DeclarativeBase):
    """The table whose pages are read."""


class Paged(PublicIdMixin, Base):
    """A model with pages."""

    __tablename__ = "paged"
    name: Mapped[str] = mapped_column(String(50))


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare queries, µs each; then pages, each of them by its cursor and by OFFSET."""
    rows = bench.rows or bench.times(200_000, 2_000)
    for database in bench.on(*ALL):
        engine = create_engine(database.url)
        tables = {kind.name: Tables(kind) for kind in (*_OURS, *_RIVALS)}
        try:
            for each in tables.values():
                _fill(engine, each, rows)
            yield from _queries(bench, database, engine, tables, rows)
            yield from _pages(bench, database, engine, rows)
        finally:
            for each in tables.values():
                each.metadata.drop_all(engine)
            engine.dispose()


def _fill(engine: Engine, tables: Tables, rows: int) -> None:
    tables.metadata.drop_all(engine)
    tables.metadata.create_all(engine)
    transactions = writing.prepared(engine, tables, rows)
    connection = engine.raw_connection()
    try:
        writing.write(connection.driver_connection, transactions)
    finally:
        connection.close()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as analyzing:
        mysql = engine.dialect.name in ("mysql", "mariadb")
        for table in tables.accounts, tables.entries:
            analyzing.execute(text(f"ANALYZE {'TABLE ' if mysql else ''}{table.name}"))


# --- queries


def _queries(
    bench: Bench, database: Database, engine: Engine, tables: dict[str, Tables], rows: int
) -> Iterator[Comparison]:
    cases: dict[str, tuple[Callable[[Engine, Tables], list[str]], int | None]] = {
        "all entries joined to both accounts": (_all_joined, 1),
        "the entries of one account, by what is shown of it": (_of_one_account, None),
        f"{_PAGE} entries with what is shown of both accounts": (_with_both_ids, None),
        f"ORDER BY id LIMIT {_PAGE}": (_first, None),
        f"the newest {_PAGE} accounts": (_newest, None),
    }
    for what, (write, times) in cases.items():
        statements = {name: write(engine, each) for name, each in tables.items()}
        repeats = times or bench.times(300, 20)
        subjects = {name: _read(engine, each, repeats) for name, each in statements.items()}
        taken = together(subjects, bench.times(8 if times else 14, 1))
        for ours in _OURS:
            for rival in _RIVALS:
                names, samples = (ours.name, rival.name), (taken[ours.name], taken[rival.name])
                yield Comparison.of_times(f"{what}, of {rows:,}, {database.name}", names, samples, repeats)


def _read(engine: Engine, statements: list[str], times: int) -> Subject:
    """Execute *statements* in turn with the driver, and read all rows."""

    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        connection = engine.raw_connection()
        cursor = connection.cursor()
        found = []

        def work() -> None:
            for number in range(times):
                cursor.execute(statements[number % len(statements)])
                found.append(len(cursor.fetchall()))

        try:
            yield work
            assert len(found) == times
            assert all(found)
        finally:
            cursor.close()
            connection.close()

    return subject


def _all_joined(engine: Engine, tables: Tables) -> list[str]:
    accounts, entries = tables.accounts.name, tables.entries.name
    joined = f"{entries} e JOIN {accounts} a ON a.id = e.payer_id JOIN {accounts} b ON b.id = e.payee_id"
    return [f"SELECT COUNT(*), SUM(e.amount), MIN(a.name), MAX(b.name) FROM {joined}"]


def _of_one_account(engine: Engine, tables: Tables) -> list[str]:
    """Ask for accounts with entries or without, which count as one row."""
    column = tables.accounts.c[tables.kind.shown_column]
    ids = [writing.literal(engine, column.type, shown) for _, shown in tables.remembered[::97]]
    return [
        f"SELECT a.name, e.amount FROM {tables.accounts.name} a "
        f"LEFT JOIN {tables.entries.name} e ON e.payer_id = a.id WHERE a.{column.name} = {each}"
        for each in ids
    ]


def _with_both_ids(engine: Engine, tables: Tables) -> list[str]:
    entries, accounts = tables.entries.name, tables.accounts.name
    if tables.kind.format is None:
        return [f"SELECT e.amount, e.payer_id, e.payee_id FROM {entries} e ORDER BY e.id LIMIT {_PAGE}"]
    joined = f"{entries} e JOIN {accounts} a ON a.id = e.payer_id JOIN {accounts} b ON b.id = e.payee_id"
    return [f"SELECT e.amount, a.public_id, b.public_id FROM {joined} ORDER BY e.id LIMIT {_PAGE}"]


def _first(engine: Engine, tables: Tables) -> list[str]:
    return [f"SELECT id, name FROM {tables.accounts.name} ORDER BY id LIMIT {_PAGE}"]


def _newest(engine: Engine, tables: Tables) -> list[str]:
    """Sort by the key if its order is that of time, else by the time of creation, which has an index."""
    order = "id DESC" if tables.kind.ordered else "created_at DESC, id DESC"
    return [f"SELECT {tables.kind.shown_column}, name FROM {tables.accounts.name} ORDER BY {order} LIMIT {_PAGE}"]


# --- pages


def _pages(bench: Bench, database: Database, engine: Engine, rows: int) -> Iterator[Comparison]:
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    try:
        ids = NanoId().generate_many(rows)
        for at in range(0, rows, 5_000):
            some = ids[at : at + 5_000]
            with engine.begin() as connection:
                connection.execute(insert(Paged), [{"public_id": each, "name": "Ada"} for each in some])
        for percent in 1, 50, 95:
            place, times = rows * percent // 100, bench.times(20, 2)
            subjects = {
                "lookup.page(after=…)": _paged(engine, ids, place, times, _by_cursor),
                "OFFSET": _paged(engine, ids, place, times, _by_offset),
            }
            taken = together(subjects, bench.times(14, 1))
            names = "lookup.page(after=…)", "OFFSET"
            what = f"a page of {_PAGE} after {percent} % of {rows:,} rows, {database.name}"
            yield Comparison.of_times(what, names, (taken[names[0]], taken[names[1]]), times)
    finally:
        Base.metadata.drop_all(engine)


def _by_cursor(session: Session, ids: list[str], place: int) -> list[Paged]:
    return list(lookup.page(session, Paged, limit=_PAGE, after=ids[place - 1]))


def _by_offset(session: Session, ids: list[str], place: int) -> list[Paged]:
    return list(session.scalars(select(Paged).order_by(Paged.id).offset(place).limit(_PAGE)))


def _paged(engine: Engine, ids: list[str], place: int, times: int, read: Callable[..., list[Any]]) -> Subject:
    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        with Session(engine) as session:
            session.connection()
            found: list[list[Any]] = []
            yield lambda: found.extend([read(session, ids, place + number) for number in range(times)])
            for number, page in enumerate(found):
                assert [row.public_id for row in page] == ids[place + number : place + number + _PAGE]

    return subject
