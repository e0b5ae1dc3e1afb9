"""While a backfill fills a table that other sessions write to, none of their statements fails."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, func, insert, select, update
from support.marks import on

from sqlalchemy_public_id import NanoId, backfill
from sqlalchemy_public_id.dialects import traits_for

pytestmark = pytest.mark.slow

ROWS = 30_000
WRITERS = 4


@on("postgresql", "mysql", "mariadb")
def test_no_statement_of_others_fails(new_engine: Callable[..., Engine], database: str) -> None:
    """Programs that update single rows get no deadlock, and no timeout, while batches are filled around them."""
    engine = new_engine(database, isolation_level="AUTOCOMMIT")
    id_type = traits_for(engine.dialect).text_type(12)
    counter = Table(
        "counter",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("n", Integer),
        Column("public_id", id_type),
    )
    stop, failed, done = threading.Event(), list[str](), list[int]()

    def write() -> None:
        with engine.connect() as connection:
            while not stop.is_set():
                try:
                    one = update(counter).where(counter.c.id == random.randint(1, ROWS)).values(n=counter.c.n + 1)
                    done.append(connection.execute(one).rowcount)
                except Exception as error:
                    failed.append(str(error))

    counter.metadata.create_all(engine)
    try:
        with engine.begin() as connection:
            connection.execute(insert(counter), [{"id": number, "n": 0} for number in range(1, ROWS + 1)])
        threads = [threading.Thread(target=write) for _ in range(WRITERS)]
        for thread in threads:
            thread.start()
        try:
            progress = backfill.run(engine, "counter", format=NanoId(), pause=0)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        with engine.connect() as connection:
            written = connection.scalar(select(func.sum(counter.c.n)))
            distinct = connection.scalar(select(func.count(counter.c.public_id.distinct())))
    finally:
        counter.metadata.drop_all(engine)

    assert (failed, progress.finished, distinct) == ([], True, ROWS)
    assert written == sum(done) > 0
